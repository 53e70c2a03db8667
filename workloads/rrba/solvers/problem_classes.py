"""The problem sizes of the NAS Parallel Benchmarks by class.

Source: Bailey et al., The NAS Parallel Benchmarks, NAS-95-020, and the tables of NPB 3.4. The edge counts the
points that are computed; NPB counts its walls too. MG has one size for the classes A and B, which
differ in their number of iterations alone, as all of EP do.
"""

from __future__ import annotations

from collections.abc import Mapping

from workloads.rrba.cuts import PointGrid


def _cubes(**edges: int) -> Mapping[str, PointGrid]:
    return {name: PointGrid(edge, edge, edge) for name, edge in edges.items()}


BT_CLASSES = _cubes(S=12, W=24, A=64, B=102, C=162)
SP_CLASSES = _cubes(S=12, W=36, A=64, B=102, C=162)
LU_CLASSES = _cubes(S=12, W=33, A=64, B=102, C=162)
CG_CLASSES: Mapping[str, PointGrid] = {
    "S": PointGrid(1_400, 56, 1),
    "W": PointGrid(7_000, 72, 1),
    "A": PointGrid(14_000, 132, 1),
    "B": PointGrid(75_000, 182, 1),
    "C": PointGrid(150_000, 240, 1),
}
"""Order, and entries of a row off the diagonal: even numbers, near the mean of the benchmark."""
FT_CLASSES: Mapping[str, PointGrid] = {
    "S": PointGrid(64, 64, 64),
    "W": PointGrid(128, 128, 32),
    "A": PointGrid(256, 256, 128),
    "B": PointGrid(512, 256, 256),
    "C": PointGrid(512, 512, 512),
}
EP_CLASSES: Mapping[str, PointGrid] = dict.fromkeys("SWABC", PointGrid(64, 64, 16))
"""Pairs a step: classes differ in their number of iterations alone."""
MG_CLASSES = _cubes(S=32, W=128, A=256, B=256, C=512)
