"""Draws what a plain trace does not tell: projects, kinds of jobs, set-up, checkpoints, notices.

After Fan et al., section IV-B, Table I and Table III. Every job of a project has its kind. Where the trace
has no projects, jobs of equal size and request that come at most an hour apart are a burst, and a project has
whole bursts. Each thing is drawn from a stream of its own, so that other notices leave the kinds as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from foundation.units import US_PER_S
from simulator.engine.kernels.field_records import Ints
from simulator.hybrid.daly_interval import job_interval_s
from simulator.simulation import Workload
from simulator.world import PLAIN_LIFE, JobLives, Life, Sizes

BURST_US = 3600 * US_PER_S
ZIPF = 1.2
LARGE_NODES = 1024
"""From so many nodes on a checkpoint takes longer."""

_PROJECTS, _KINDS, _LARGE, _SETUP, _CLASSES, _LEADS, _WHEN = range(7)
"""Streams of random numbers."""


class Kind(IntEnum):
    """What a job is."""

    RIGID = 0
    MALLEABLE = 1
    ON_DEMAND = 2


MIXES: Mapping[str, tuple[float, float, float, float]] = {
    "W1": (0.7, 0.1, 0.1, 0.1),
    "W2": (0.1, 0.7, 0.1, 0.1),
    "W3": (0.1, 0.1, 0.7, 0.1),
    "W4": (0.1, 0.1, 0.1, 0.7),
    "W5": (0.25, 0.25, 0.25, 0.25),
}
"""Shares of on-demand jobs without a notice, and that come as predicted, earlier, and later (Table III)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How the jobs are drawn; the defaults are the paper's.

    Parameters
    ----------
    on_demand, malleable
        Shares of the projects; the rest is rigid.
    projects
        How many there are; 0: users of the trace are projects.
    mix
        One of ``MIXES``.
    least
        Fewest nodes of a malleable job, as a share of its request, rounded up.
    node_mtbf_years
        Years between failures of a node, for Daly's interval.
    checkpoint_s, large_checkpoint_s
        What a checkpoint of a rigid job takes, below ``LARGE_NODES`` nodes and from there on.
    lead_min
        Least and most minutes from a notice to the predicted arrival.
    late_min
        Most minutes by which a job is late.
    """

    on_demand: float = 0.1
    malleable: float = 0.3
    projects: int = 211
    mix: str = "W5"
    least: float = 0.2
    node_mtbf_years: float = 5.0
    checkpoint_s: float = 600.0
    large_checkpoint_s: float = 1200.0
    lead_min: tuple[float, float] = (15.0, 30.0)
    late_min: float = 30.0


def draw_lives(workload: Workload, nodes: int, draw: Draw, seed: int) -> Workload:
    """Return the workload with kinds, set-up, checkpoints and notices."""
    kinds = draw_kinds(workload, nodes, draw, seed)
    setup_us = _setup_us(workload, kinds, seed)
    notice_us, predicted_us = _notices(workload, kinds, draw, seed)
    sizes: dict[int, Sizes] = {}
    intervals: dict[int, tuple[int, int]] = {}
    lives = []
    for job, kind in enumerate(kinds.tolist()):
        size = int(workload.nodes[job])
        if kind == Kind.ON_DEMAND:
            known = bool(notice_us[job] >= 0)
            lives.append(
                Life(
                    on_demand=True,
                    notice_us=int(notice_us[job]) if known else None,
                    predicted_us=int(predicted_us[job]) if known else None,
                )
            )
        elif kind == Kind.MALLEABLE:
            sizes.setdefault(size, linear_sizes(size, draw.least))
            lives.append(Life(sizes=sizes[size], setup_us=int(setup_us[job])))
        else:
            every_us, save_us = intervals.setdefault(size, checkpoints_us(size, draw))
            lives.append(
                replace(
                    PLAIN_LIFE,
                    setup_us=int(setup_us[job]),
                    checkpoint_every_us=every_us,
                    checkpoint_us=save_us,
                )
            )
    return replace(workload, lives=JobLives.of(lives, workload.count))


def linear_sizes(asked: int, least: float) -> Sizes:
    """Return the sizes of a malleable job: its run time is linear in them."""
    fewest = min(asked, max(1, int(np.ceil(least * asked - 1e-9))))
    return Sizes(least=fewest, preferred=asked, most=asked, rates=tuple(range(1, asked + 1)))


def checkpoints_us(nodes: int, draw: Draw) -> tuple[int, int]:
    """Return the work between the checkpoints of a rigid job, and what one takes."""
    cost_s = draw.checkpoint_s if nodes < LARGE_NODES else draw.large_checkpoint_s
    every_s = job_interval_s(nodes, cost_s, draw.node_mtbf_years)
    return max(1, round(every_s * US_PER_S)), round(cost_s * US_PER_S)


def draw_kinds(workload: Workload, nodes: int, draw: Draw, seed: int) -> Ints:
    """Return the kind of every job, by project; on-demand ones of over half of the nodes become others."""
    project = projects_of(workload, draw.projects, seed)
    count = int(project.max()) + 1 if draw.projects == 0 else draw.projects
    asked = int(draw.on_demand * count + 0.5)
    able = min(count - asked, int(draw.malleable * count + 0.5))
    of_project = np.repeat([Kind.ON_DEMAND, Kind.MALLEABLE, Kind.RIGID], [asked, able, count - asked - able])
    kinds: Ints = _dice(seed, _KINDS).permutation(of_project).astype(np.int64)[project]
    large = (kinds == Kind.ON_DEMAND) & (2 * workload.nodes > nodes)
    others = _dice(seed, _LARGE).integers(0, 2, workload.count)
    return np.where(large, np.where(others == 0, Kind.RIGID, Kind.MALLEABLE), kinds)


def projects_of(workload: Workload, projects: int, seed: int) -> Ints:
    """Return the project of every job, from 0: bursts by Zipf's law; or users, where ``projects`` is 0."""
    if projects == 0:
        return np.unique(workload.user, return_inverse=True)[1].astype(np.int64)
    burst = bursts_of(workload)
    weights = np.arange(1, projects + 1, dtype=np.float64) ** -ZIPF
    chosen = _dice(seed, _PROJECTS).choice(projects, size=int(burst.max()) + 1, p=weights / weights.sum())
    return chosen[burst].astype(np.int64)


def bursts_of(workload: Workload) -> Ints:
    """Return the burst of every job, from 0."""
    order = np.lexsort((workload.submit_us, workload.requested_us, workload.nodes))
    size, asked = workload.nodes[order], workload.requested_us[order]
    apart = np.diff(workload.submit_us[order]) > BURST_US
    begins = np.concatenate(([False], (np.diff(size) != 0) | (np.diff(asked) != 0) | apart))
    burst = np.zeros(workload.count, dtype=np.int64)
    burst[order] = np.cumsum(begins)
    return burst


def _dice(seed: int, stream: int) -> np.random.Generator:
    return np.random.default_rng([seed, stream])


def _setup_us(workload: Workload, kinds: Ints, seed: int) -> Ints:
    """Return 5 to 10% of the run of a rigid job, 0 to 5% of a malleable one, and nothing on demand."""
    share = _dice(seed, _SETUP).uniform(0.0, 0.05, workload.count)
    share = np.where(kinds == Kind.RIGID, share + 0.05, np.where(kinds == Kind.MALLEABLE, share, 0.0))
    return np.floor(share * workload.periods.totals_us).astype(np.int64)


def _notices(workload: Workload, kinds: Ints, draw: Draw, seed: int) -> tuple[Ints, Ints]:
    """Return when every job is announced and for when; -1 where it is not."""
    count = workload.count
    shares = np.cumsum(MIXES[draw.mix])[:-1]
    classes = np.searchsorted(shares, _dice(seed, _CLASSES).random(count), side="right")
    lead = _minutes(_dice(seed, _LEADS).uniform(*draw.lead_min, count))
    when = _dice(seed, _WHEN).random(count)
    arrival = workload.submit_us
    early = np.floor(when * lead).astype(np.int64)
    late = np.floor(when * draw.late_min * 60 * US_PER_S).astype(np.int64)
    predicted = np.select(
        [classes == 1, classes == 2, classes == 3], [arrival, arrival + lead - early, arrival - late], -1
    )
    known = (kinds == Kind.ON_DEMAND) & (classes > 0)
    notice = np.maximum(0, predicted - lead)
    return np.where(known, notice, -1), np.where(known, np.maximum(predicted, notice), -1)


def _minutes(values: npt.NDArray[np.float64]) -> Ints:
    return np.floor(values * 60 * US_PER_S).astype(np.int64)
