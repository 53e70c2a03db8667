"""The problem sizes of the NAS Parallel Benchmarks by class.

Source: Bailey et al., The NAS Parallel Benchmarks, NAS-95-020, and the tables of NPB 3.4. The edge counts the
points that are computed; NPB counts its walls too. MG has one size for the classes A and B, which
differ in their number of iterations alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from workloads.rrba.cuts import PointGrid


def _cubes(**edges: int) -> Mapping[str, PointGrid]:
    return {name: PointGrid(edge, edge, edge) for name, edge in edges.items()}


BT_CLASSES = _cubes(S=12, W=24, A=64, B=102, C=162)
SP_CLASSES = _cubes(S=12, W=36, A=64, B=102, C=162)
LU_CLASSES = _cubes(S=12, W=33, A=64, B=102, C=162)
MG_CLASSES = _cubes(S=32, W=128, A=256, B=256, C=512)
