"""Runs the engine and its oracle on jobs with general lifecycles, and returns their results in one form."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.engine.pool_run import PoolRun, run_pool
from simulator.engine.run_rules import RunRules
from simulator.model.jobs import PoolJobs
from simulator.model.system import NodePool, Outage
from simulator.placement import PlacementRule, ThesisPlacement
from simulator.policy_interface import QueuePolicy
from simulator.sharing import Proportional
from tests.fixtures.kinds import as_this_tier_compiles
from tests.property.simulator.lifecycle_cases import LifecycleCase
from tests.property.simulator.reference_lifecycles import ReferenceLifecycles

Story = list[tuple[Any, ...]]


def pool_jobs_of(world: LifecycleCase) -> PoolJobs:
    def column(name: str) -> np.ndarray:
        return np.array([getattr(job, name) for job in world.jobs], dtype=np.int64)

    return PoolJobs(
        submit_us=column("submit_us"),
        requested_us=column("requested_us"),
        nodes=column("nodes"),
        cores=column("cores"),
        memory_kib=column("memory_kib"),
        app=column("app"),
        phase_at=np.cumsum([0, *(len(job.phases_us) for job in world.jobs)]),
        phase_us=np.array([period for job in world.jobs for period in job.phases_us], dtype=np.int64),
        lifecycles=[job.life for job in world.jobs],
    )


def engine_run(
    world: LifecycleCase,
    policy: QueuePolicy,
    placement: PlacementRule | None = None,
    after_event: Any = None,
    *,
    stepping: bool = True,
    together: bool = False,
) -> PoolRun:
    """Run the engine on a world, compiled if this tier compiles its kind."""
    rules = RunRules(
        policy=policy,
        placement=placement or ThesisPlacement(),
        sharing=Proportional(world.overhead),
        node_memory_kib=world.memory_kib,
        outages=[Outage(outage.down_us, outage.up_us, outage.node) for outage in world.outages],
        after_failure={"fail": "give-up"}.get(world.after_failure, world.after_failure),
        together=together,
    )
    pool = NodePool(
        name="main", first=0, nodes=world.nodes, cores=world.cores, multiplicity=world.multiplicity
    )
    numbers = np.array([job.number for job in world.jobs])
    with as_this_tier_compiles(rules, world.multiplicity, with_lifecycles=True):
        return run_pool(pool_jobs_of(world), numbers, pool, rules, stepping=stepping, after_event=after_event)


def engine_story(world: LifecycleCase, run: PoolRun) -> Story:
    """Return what each job held when, and what its time was spent on."""
    assert run.books is not None
    rows = [
        (world.jobs[s.job].number, s.from_us, s.to_us, dict(s.cores), s.why)
        for s in run.stretches or ()
        if s.cores
    ]
    reported = {row[0] for row in rows}
    for index, job in enumerate(world.jobs):
        if job.number not in reported and run.start_us[index] >= 0:
            rows.append(
                (job.number, int(run.start_us[index]), int(run.end_us[index]), run.cores_of(index), "start")
            )
    books = run.books
    spent = [
        (
            job.number,
            int(run.start_us[index]),
            int(run.end_us[index]),
            *(
                int(column[index])
                for column in (
                    books.starts, books.preemptions, books.given_up, books.lost_us,
                    books.spent_setup_us, books.useful_node_us, books.lost_node_us,
                    books.setup_node_us, books.save_node_us, books.fresh_node_us,
                )
            ),
        )
        for index, job in enumerate(world.jobs)
    ]  # fmt: skip
    return [*sorted(rows, key=lambda row: row[:3]), *spent]


def oracle_story(reference: ReferenceLifecycles) -> Story:
    """Return the same of the oracle."""
    spent = [
        (
            record.job.number, -1 if record.start_us is None else record.start_us,
            -1 if record.end_us is None else record.end_us, record.starts, record.preemptions,
            int(record.given_up), record.wasted_us, record.setup_us,
            *(record.node_us[kind] for kind in ("useful", "lost", "setup", "save", "fresh")),
        )
        for record in reference.lifecycles
    ]  # fmt: skip
    return [*sorted(reference.rows, key=lambda row: row[:3]), *spent]
