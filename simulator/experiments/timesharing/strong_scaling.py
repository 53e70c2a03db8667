"""Turnaround of applications that strong scale, from the mean slowdowns of bins (Hofmeyr et al., section V).

The five APEX applications' measurements are not published. Instead there are a perfect one and one after
Amdahl with an efficiency of 49% on 960 nodes, the least that is printed of the five.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simulator.experiments.timesharing.slowdown_bins import Binned, Grid

SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 960)
NODE_S = 57_600.0
"""What each has to do: 16 node-hours on one node."""
EFFICIENCY = 0.49
SERIAL = (1 / EFFICIENCY - 1) / (SIZES[-1] - 1)
"""Share of the work that does not scale, such that the efficiency on the last size is that."""
APPLICATIONS: Mapping[str, float] = {"perfect": 0.0, "49% at 960 nodes": SERIAL}
"""Serial share by application."""


def dedicated_s(nodes: int, serial: float) -> float:
    """Return the run time on dedicated nodes."""
    return NODE_S * (serial + (1 - serial) / nodes)


def turnarounds_s(bins: Binned, grid: Grid, serial: float, most: int) -> list[float]:
    """Return the turnaround for each size up to ``most`` nodes: run time times the slowdown of its bin."""
    found = []
    for nodes in sizes_to(most):
        run_s = dedicated_s(nodes, serial)
        size = int(grid.size_of(np.array([nodes]))[0])
        length = int(grid.length_of(np.array([run_s]))[0])
        found.append(run_s * bins.pooled(size, length))
    return found


def sizes_to(most: int) -> list[int]:
    """Return the sizes that the machine has."""
    return [nodes for nodes in SIZES if nodes <= most] or [1]
