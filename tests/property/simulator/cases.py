"""Random small worlds for the engine and its oracle."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from random import Random

import numpy as np
from hypothesis import strategies as st

from simulator.engine.pool_run import PoolRun, run_pool
from simulator.engine.run_rules import RunRules
from simulator.model.jobs import PoolJobs
from simulator.model.system import NodePool
from tests.fixtures.kinds import as_this_tier_compiles
from tests.property.simulator.reference_engine import RefJob


@dataclass(frozen=True)
class World:
    """A pool and the jobs that come to it."""

    pool: NodePool
    memory_kib: int | None
    overhead: Fraction
    jobs: tuple[RefJob, ...]


@st.composite
def _phases(draw: st.DrawFn, interactive: bool) -> list[int]:
    time_us = st.integers(1, 40)
    if not interactive:
        return [0, draw(time_us)]
    return [draw(st.integers(0, 20)), *draw(st.lists(time_us, max_size=6))]


@st.composite
def worlds(
    draw: st.DrawFn,
    most_jobs: int = 14,
    interactive: bool = True,
    most_multiplicity: int = 4,
    most_nodes: int = 8,
) -> World:
    """Draw a system of up to 8 nodes of up to 5 cores and jobs that fit on it."""
    pool = NodePool(
        name="main",
        first=0,
        nodes=draw(st.integers(1, most_nodes)),
        cores=draw(st.integers(1, 5)),
        multiplicity=draw(st.integers(1, most_multiplicity)),
    )
    memory = draw(st.none() | st.integers(4, 12))
    jobs = []
    for number in draw(st.lists(st.integers(0, 99), unique=True, max_size=most_jobs, min_size=1)):
        phases = draw(_phases(interactive and draw(st.integers(0, 3)) == 0))
        jobs.append(
            RefJob(
                number=number,
                submit_us=draw(st.integers(0, 60)),
                nodes=draw(st.integers(1, pool.nodes)),
                cores=draw(st.integers(1, pool.cores)),
                phases_us=phases,
                requested_us=sum(phases) + draw(st.sampled_from([0, 0, 1, 5, 30])),
                memory_kib=0 if memory is None else draw(st.integers(0, memory)),
                app=draw(st.integers(0, 1)),
            )
        )
    overhead = draw(st.sampled_from([Fraction(1), Fraction(6, 5), Fraction(11, 10), Fraction(3, 2)]))
    return World(pool, memory, overhead, tuple(sorted(jobs, key=lambda job: job.number)))


@st.composite
def crowds(draw: st.DrawFn, multiplicity: int = 1, most_jobs: int = 26, most_nodes: int = 8) -> World:
    """Draw a pool of 2 to 8 nodes and so many narrow jobs at nearly the same time that most of them wait.

    What delays a job here hangs on where others lie, which a few jobs spread over an hour seldom show.
    """
    dice = Random(draw(st.integers(0, 2**32 - 1)))
    nodes, cores = dice.randint(2, most_nodes), dice.randint(2, 5)
    jobs = []
    for number in range(1, dice.randint(12, most_jobs) + 1):
        run_us = dice.choice((dice.randint(1, 10), dice.randint(1, 60)))
        jobs.append(
            RefJob(
                number=number,
                submit_us=dice.randint(0, 20),
                nodes=min(nodes, dice.choice((1, 1, 1, 2, 3))),
                cores=dice.randint(1, cores),
                phases_us=[0, run_us],
                requested_us=run_us + dice.choice((0, 0, 5, 40, 200)),
            )
        )
    pool = NodePool(name="main", first=0, nodes=nodes, cores=cores, multiplicity=multiplicity)
    return World(pool, None, dice.choice((Fraction(1), Fraction(6, 5))), tuple(jobs))


def pool_jobs(jobs: tuple[RefJob, ...]) -> tuple[PoolJobs, np.ndarray]:
    """Return the jobs as the engine's arrays, and their numbers."""

    def column(name: str) -> np.ndarray:
        return np.array([getattr(job, name) for job in jobs], dtype=np.int64)

    return (
        PoolJobs(
            submit_us=column("submit_us"),
            requested_us=column("requested_us"),
            nodes=column("nodes"),
            cores=column("cores"),
            memory_kib=column("memory_kib"),
            app=column("app"),
            phase_at=np.cumsum([0, *(len(job.phases_us) for job in jobs)]),
            phase_us=np.array([period for job in jobs for period in job.phases_us], dtype=np.int64),
        ),
        column("number"),
    )


def run_world(world: World, rules: RunRules, *, stepping: bool = False) -> PoolRun:
    """Run the engine on a world, compiled if this tier compiles its kind."""
    jobs, numbers = pool_jobs(world.jobs)
    with as_this_tier_compiles(rules, world.pool.multiplicity):
        return run_pool(jobs, numbers, world.pool, rules, stepping=stepping)


def placements(run: PoolRun) -> list[dict[int, list[int]]]:
    """Return core ids by node of each job."""
    return [run.cores_of(job) for job in range(len(run.start_us))]
