"""What a plain trace does not tell, drawn or read: projects, kinds of jobs, set-up, checkpoints, notices.

Drawn after Fan et al., section IV-B, Table I and Table III. Every job of a project has its kind. Where the
trace has no projects, jobs of equal size and request that come at most an hour apart are a burst, and a
project has whole bursts. Each thing is drawn from a stream of its own, so that other notices leave the kinds
as they are. How far apart checkpoints should be: J. T. Daly, A higher order estimate of the optimum
checkpoint interval for restart dumps, Future Generation Computer Systems 22 (2006), equation 37.

Read is a CSV file with columns ``trace_job`` and ``kind`` (rigid, malleable, ondemand), and any of
``min_nodes``, ``max_nodes``, ``setup_s``, ``checkpoint_every_s``, ``checkpoint_s``, ``notice_s``,
``predicted_s``; empty is not given. Jobs that the file does not name are rigid, without set-up and
checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

import numpy as np

from foundation.csv_table import CsvRow, read_csv
from foundation.units import US_PER_S, counted, seconds_to_us
from simulator.jit.field_records import Ints
from simulator.model.jobs import PLAIN_LIFECYCLE, JobLifecycle, JobLifecycles, Sizes
from simulator.simulation import Workload

BURST_US = 3600 * US_PER_S
ZIPF = 1.2
LARGE_NODES = 1024
"""From so many nodes on a checkpoint takes longer."""

_PROJECTS, _KINDS, _LARGE, _SETUP, _CLASSES, _LEADS, _WHEN = range(7)
"""Streams of random numbers."""

S_PER_YEAR = 365.25 * 86_400

_NEEDED = ("trace_job", "kind")
_NUMBERS = ("min_nodes", "max_nodes")
_TIMES = ("setup_s", "checkpoint_every_s", "checkpoint_s", "notice_s", "predicted_s")
_OF_KIND = {
    "rigid": ("setup_s", "checkpoint_every_s", "checkpoint_s"),
    "malleable": ("min_nodes", "max_nodes", "setup_s"),
    "ondemand": ("notice_s", "predicted_s"),
}
_MOST_S = 1e10
_MOST_JOBS = 10_000_000


class HybridJobKind(IntEnum):
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
    lifecycles = []
    for job, kind in enumerate(kinds.tolist()):
        size = int(workload.nodes[job])
        if kind == HybridJobKind.ON_DEMAND:
            known = bool(notice_us[job] >= 0)
            lifecycles.append(
                JobLifecycle(
                    on_demand=True,
                    notice_us=int(notice_us[job]) if known else None,
                    predicted_us=int(predicted_us[job]) if known else None,
                )
            )
        elif kind == HybridJobKind.MALLEABLE:
            sizes.setdefault(size, linear_sizes(size, draw.least))
            lifecycles.append(JobLifecycle(sizes=sizes[size], setup_us=int(setup_us[job])))
        else:
            every_us, save_us = intervals.setdefault(size, checkpoints_us(size, draw))
            lifecycles.append(
                replace(
                    PLAIN_LIFECYCLE,
                    setup_us=int(setup_us[job]),
                    checkpoint_every_us=every_us,
                    checkpoint_us=save_us,
                )
            )
    return replace(workload, lifecycles=JobLifecycles.of(lifecycles, workload.count))


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
    of_project = np.repeat(
        [HybridJobKind.ON_DEMAND, HybridJobKind.MALLEABLE, HybridJobKind.RIGID],
        [asked, able, count - asked - able],
    )
    kinds: Ints = _dice(seed, _KINDS).permutation(of_project).astype(np.int64)[project]
    large = (kinds == HybridJobKind.ON_DEMAND) & (2 * workload.nodes > nodes)
    others = _dice(seed, _LARGE).integers(0, 2, workload.count)
    return np.where(large, np.where(others == 0, HybridJobKind.RIGID, HybridJobKind.MALLEABLE), kinds)


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
    share = np.where(
        kinds == HybridJobKind.RIGID, share + 0.05, np.where(kinds == HybridJobKind.MALLEABLE, share, 0.0)
    )
    return np.floor(share * workload.periods.totals_us).astype(np.int64)


def _notices(workload: Workload, kinds: Ints, draw: Draw, seed: int) -> tuple[Ints, Ints]:
    """Return when every job is announced and for when; -1 where it is not."""
    count = workload.count
    shares = np.cumsum(MIXES[draw.mix])[:-1]
    classes = np.searchsorted(shares, _dice(seed, _CLASSES).random(count), side="right")
    lead = np.floor(_dice(seed, _LEADS).uniform(*draw.lead_min, count) * 60 * US_PER_S).astype(np.int64)
    when = _dice(seed, _WHEN).random(count)
    arrival = workload.submit_us
    early = np.floor(when * lead).astype(np.int64)
    late = np.floor(when * draw.late_min * 60 * US_PER_S).astype(np.int64)
    predicted = np.select(
        [classes == 1, classes == 2, classes == 3], [arrival, arrival + lead - early, arrival - late], -1
    )
    known = (kinds == HybridJobKind.ON_DEMAND) & (classes > 0)
    notice = np.maximum(0, predicted - lead)
    return np.where(known, notice, -1), np.where(known, np.maximum(predicted, notice), -1)


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


def read_lives(path: Path, workload: Workload, draw: Draw) -> Workload:
    """Return the workload with what the file says of its jobs; jobs that are not simulated are passed over.

    Raises
    ------
    InputError
        The file cannot be read, or says what cannot be; the message names job, file and column.
    """
    lifecycles: list[JobLifecycle] = [PLAIN_LIFECYCLE] * workload.count
    index = {number: job for job, number in enumerate(workload.number.tolist())}
    known: set[int] = set()
    for row in read_csv(path, _NEEDED, (*_NUMBERS, *_TIMES), most_rows=_MOST_JOBS):
        number = row.whole("trace_job", 10**15)
        entry = replace(row, where=f"{row.where}: job {number}")
        if number in known:
            raise entry.error("trace_job", "comes twice")
        known.add(number)
        if number in index:
            lifecycles[index[number]] = _life(entry, workload, index[number], draw)
    return replace(workload, lifecycles=JobLifecycles.of(lifecycles, workload.count))


def _time_us(row: CsvRow, column: str) -> int | None:
    seconds = row.number(column, _MOST_S)
    return None if seconds is None else seconds_to_us(seconds)


def _life(entry: CsvRow, workload: Workload, job: int, draw: Draw) -> JobLifecycle:
    kind = entry.text("kind")
    if kind not in _OF_KIND:
        raise entry.error("kind", f"is one of {', '.join(_OF_KIND)}, not {kind!r}")
    for name in (*_NUMBERS, *_TIMES):
        if entry.text(name) and name not in _OF_KIND[kind]:
            raise entry.error(name, f"does not go with a job that is {kind}")
    if kind == "ondemand":
        return _on_demand(entry, workload, job)
    setup_us = _time_us(entry, "setup_s") or 0
    if setup_us > workload.periods.totals_us[job]:
        raise entry.error("setup_s", "is longer than the job runs")
    if kind == "malleable":
        return JobLifecycle(sizes=_sizes(entry, int(workload.nodes[job]), draw), setup_us=setup_us)
    every_us = _time_us(entry, "checkpoint_every_s")
    if every_us == 0:
        raise entry.error("checkpoint_every_s", "is not positive")
    return JobLifecycle(
        setup_us=setup_us, checkpoint_every_us=every_us, checkpoint_us=_time_us(entry, "checkpoint_s") or 0
    )


def _sizes(entry: CsvRow, asked: int, draw: Draw) -> Sizes:
    least, most = (
        entry.whole(name, 10**15) if entry.text(name) else None for name in ("min_nodes", "max_nodes")
    )
    if most is not None and most != asked:
        raise entry.error("max_nodes", f"is {most}, but the job asks for {counted(asked, 'node')}")
    if least is None:
        return linear_sizes(asked, draw.least)
    if least > asked:
        raise entry.error("min_nodes", f"is {least}, above max_nodes, {asked}")
    return Sizes(least=least, preferred=asked, most=asked, rates=tuple(range(1, asked + 1)))


def _on_demand(entry: CsvRow, workload: Workload, job: int) -> JobLifecycle:
    notice_us, predicted_us = _time_us(entry, "notice_s"), _time_us(entry, "predicted_s")
    if (notice_us is None) != (predicted_us is None):
        raise entry.error(
            "predicted_s" if predicted_us is None else "notice_s", "is missing, the other is given"
        )
    if notice_us is None or predicted_us is None:
        return JobLifecycle(on_demand=True)
    if notice_us > int(workload.submit_us[job]):
        raise entry.error("notice_s", "is after the job's arrival")
    if predicted_us < notice_us:
        raise entry.error("predicted_s", "is before notice_s")
    return JobLifecycle(on_demand=True, notice_us=notice_us, predicted_us=predicted_us)
