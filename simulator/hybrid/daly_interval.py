"""How far apart checkpoints should be.

Source: J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future
Generation Computer Systems 22 (2006), equation 37.
"""

from __future__ import annotations

import math

S_PER_YEAR = 365.25 * 86_400


def daly_interval_s(checkpoint_s: float, mtbf_s: float) -> float:
    """Return the work between two checkpoints that wastes least, in seconds.

    Parameters
    ----------
    checkpoint_s
        What writing one takes.
    mtbf_s
        Mean time between failures of all nodes of the job together.
    """
    if checkpoint_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = checkpoint_s / (2 * mtbf_s)
    series = 1 + math.sqrt(ratio) / 3 + ratio / 9
    return math.sqrt(2 * checkpoint_s * mtbf_s) * series - checkpoint_s


def job_interval_s(nodes: int, checkpoint_s: float, node_mtbf_years: float) -> float:
    """Return the interval of a job on so many nodes, each of which fails once in so many years."""
    return daly_interval_s(checkpoint_s, node_mtbf_years * S_PER_YEAR / nodes)
