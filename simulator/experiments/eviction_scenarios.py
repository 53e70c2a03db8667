"""The scenarios of CoSim (sections IV-A, IV-B): 12, 16 and 24 jobs on about 4,352 nodes of Theta.

Scenarios 1 and 2 are instants of a trace at which so many jobs run on so many nodes, none of which runs for
less than 30 minutes in all. Scenario 3 is generated, and so are all without a trace: sizes are drawn from the
trace's and rescaled in steps of 8 nodes, elapsed times are uniform. Memory is drawn in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foundation.errors import InputError
from simulator.eviction.eviction_problem import Checkpoints, EvictableJob, Question, Storage
from workloads.swf import SwfColumns

MACHINE_NODES = 4392
NODES = 4352
LEAST_NODES = 4300
"""How many nodes are busy at an instant that is taken, at least; at most those of the machine."""
JOBS = (12, 16, 24)
NEEDS = (512, 1024, 2048)
DEADLINE_MIN = 15
NODE_GB = 192.0
ALL_GB_S, NODE_GB_S = 250.0, 1.0
SHORT_S = 1800
_S_PER_DAY = 86_400
_STEP = 8
_ELAPSED_S = (1800.0, 12 * 3600.0)
_SYSTEM, _APP = (0.4, 0.9), (0.2, 0.6)
_FREQUENT = {128: 56, 256: 18, 1024: 5, 512: 4, 192: 2, 640: 1, 2048: 1, 800: 1}
"""Sizes without a trace: those that are frequent on Theta in 2022, and per cent of the jobs."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Instant:
    """Jobs that run at an instant: nodes of each, and seconds since it began."""

    nodes: Ints
    elapsed_s: Floats


@dataclass(frozen=True, slots=True)
class SteadyInterval:
    """A time in which the same jobs run: from, to, and the nodes and starts of the jobs."""

    from_s: int
    to_s: int
    nodes: Ints
    start_s: Ints


class Theta:
    """What is taken from a trace: sizes, and which jobs run when."""

    def __init__(self, trace: SwfColumns) -> None:
        known = trace.frame.drop_nulls(["submit_s", "wait_s", "run_s", "allocated_procs"])
        known = known.filter((known["run_s"] > 0) & (known["allocated_procs"] > 0))
        if known.height == 0:
            raise InputError(f"{trace.name}: no job with a wait, a run time and processors")
        self.name = trace.name
        self.nodes: Ints = known["allocated_procs"].to_numpy().astype(np.int64)
        self.run_s: Ints = known["run_s"].to_numpy().astype(np.int64)
        self.start_s: Ints = (known["submit_s"] + known["wait_s"]).to_numpy().astype(np.int64)
        self.end_s: Ints = self.start_s + self.run_s

    def occupancy(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return stretches in which nothing changes: their begins, ends, busy nodes and running jobs."""
        at = np.concatenate([self.start_s, self.end_s])
        change = np.concatenate([self.nodes, -self.nodes])
        count = np.concatenate([np.ones_like(self.nodes), -np.ones_like(self.nodes)])
        instants, place = np.unique(at, return_inverse=True)
        busy = np.cumsum(np.bincount(place, weights=change).astype(np.int64))
        jobs = np.cumsum(np.bincount(place, weights=count).astype(np.int64))
        return instants[:-1], instants[1:], busy[:-1], jobs[:-1]

    def stretches(self, jobs: int) -> list[SteadyInterval]:
        """Return the times at which so many jobs, none of them a short one, run on about all nodes."""
        begins, ends, busy, running = self.occupancy()
        found = []
        for at in np.nonzero((running == jobs) & (busy >= LEAST_NODES) & (busy <= MACHINE_NODES))[0]:
            now = (self.start_s <= begins[at]) & (self.end_s > begins[at])
            if (self.run_s[now] >= SHORT_S).all():
                found.append(
                    SteadyInterval(int(begins[at]), int(ends[at]), self.nodes[now], self.start_s[now])
                )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """Facts of a trace.

    ``busiest`` is the number of busy nodes that lasts longest of all but none, for ``busiest_days`` of
    ``days``; ``full_days`` is how long all nodes of the machine are busy; near capacity at most ``most_jobs``
    run, and 99% of the time no more than ``common_jobs``; ``short`` is the share of jobs under 30 minutes.
    """

    name: str
    jobs: int
    days: float
    busiest: int
    busiest_days: float
    full_days: float
    most_jobs: int
    common_jobs: int
    short: float


def facts_of(theta: Theta) -> TraceFacts:
    """Return the facts of a trace."""
    begins, ends, busy, running = theta.occupancy()
    lasts = ends - begins
    used = np.bincount(np.maximum(busy, 0), weights=lasts)
    used[0] = 0
    busiest = int(np.argmax(used))
    near = (busy >= LEAST_NODES) & (busy <= MACHINE_NODES)
    many = np.bincount(running[near], weights=lasts[near], minlength=1)
    common = int(np.searchsorted(np.cumsum(many), 0.99 * many.sum()))
    return TraceFacts(
        name=theta.name,
        jobs=len(theta.nodes),
        days=float(ends[-1] - begins[0]) / _S_PER_DAY,
        busiest=busiest,
        busiest_days=float(used[busiest]) / _S_PER_DAY,
        full_days=float(lasts[busy == MACHINE_NODES].sum()) / _S_PER_DAY,
        most_jobs=int(running[near].max(initial=0)),
        common_jobs=common,
        short=float((theta.run_s < SHORT_S).mean()),
    )


def instant_of(theta: Theta | None, scenario: int, rng: np.random.Generator) -> Instant:
    """Return the jobs of a scenario, 0 to 2: cut from a trace, or generated.

    Of stretches the longer ones are drawn more often, and the instant within is uniform.
    """
    stretches = [] if theta is None or scenario == 2 else theta.stretches(JOBS[scenario])
    if not stretches:
        return _generated(theta, JOBS[scenario], rng)
    lengths = np.array([one.to_s - one.from_s for one in stretches], dtype=np.float64)
    one = stretches[int(rng.choice(len(stretches), p=lengths / lengths.sum()))]
    elapsed_s: Floats = np.float64(rng.uniform(one.from_s, one.to_s)) - one.start_s.astype(np.float64)
    return Instant(one.nodes, elapsed_s)


def question_of(instant: Instant, need: int, storage: Storage, memory_seed: Sequence[int]) -> Question:
    """Return the question: sizes of checkpoints are drawn once a job (section IV-B)."""
    rng = np.random.default_rng(memory_seed)
    count = len(instant.nodes)
    system_gb = NODE_GB * rng.uniform(*_SYSTEM, count)
    app_gb = system_gb * rng.uniform(*_APP, count)
    jobs = []
    for number in range(count):
        nodes, elapsed_s = int(instant.nodes[number]), float(instant.elapsed_s[number])
        sizes = Checkpoints(system_gb=float(system_gb[number]), app_gb=float(app_gb[number]))
        jobs.append(
            EvictableJob(
                name=str(number + 1),
                nodes=nodes,
                loss=sizes.loss(nodes, elapsed_s),
                ts_min=sizes.ts_min(nodes, storage),
                ta_min=sizes.ta_min(nodes, elapsed_s, storage),
                wait_min=sizes.wait_min(elapsed_s),
                share=storage.share(nodes),
            )
        )
    return Question(jobs=jobs, need=need, deadline_min=DEADLINE_MIN)


def _generated(theta: Theta | None, jobs: int, rng: np.random.Generator) -> Instant:
    if theta is None:
        shares = np.array(list(_FREQUENT.values()), dtype=np.float64)
        sizes = rng.choice(list(_FREQUENT), size=jobs, p=shares / shares.sum())
    else:
        sizes = rng.choice(theta.nodes, size=jobs)
    return Instant(rescaled(sizes, NODES), rng.uniform(*_ELAPSED_S, size=jobs))


def rescaled(sizes: Ints, total: int) -> Ints:
    """Return sizes in proportion, multiples of 8 that add up to ``total``."""
    units = np.maximum(1, np.round(sizes / sizes.sum() * total / _STEP)).astype(np.int64)
    while units.sum() != total // _STEP:
        units[np.argmax(units)] += np.sign(total // _STEP - units.sum())
    return np.asarray(units * _STEP)
