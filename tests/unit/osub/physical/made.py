"""Small worlds for the study: traces, a plan, outcomes, all made."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from osub.physical.folder import Results
from osub.physical.layouts import SharingLayout, layouts_of
from osub.physical.outcome import CASES, REAL_WAIT_S, FullSize, ReplayOutcome
from osub.physical.pair import PairTrial
from osub.physical.plan import FIRST, StudyPlan
from osub.physical.published import SIMULATED_FINISH_S, SIMULATED_PLACES
from workloads.swf import InteractivePattern, SwfHeader, SwfJob, SwfTrace
from workloads.trace.scaling.thesis_days import FIRST_JOBS

SESSIONS = ((5030, 24_085, 9_913), (4963, 15_166, 43_209))


def first_trace() -> SwfTrace:
    """Return Table 7.8's jobs and two interactive ones."""
    batch = [_job(job.number, job.arrival_s, job.run_s, job.cores, 1) for job in FIRST_JOBS]
    sessions = [
        _job(number, at_s, run_s, 12, 0, InteractivePattern(10.0, run_s - 110.0, (100.0,), ()))
        for number, at_s, run_s in SESSIONS
    ]
    return SwfTrace(SwfHeader(()), tuple(batch + sessions), "first")


def day_trace(seed: int = 1) -> SwfTrace:
    """Return more batch jobs, other ones for each seed."""
    more = [_job(6000 + number, 1500 * number + 10 * seed, 5000, 1 + number % 12, 1) for number in range(30)]
    first = first_trace()
    jobs = sorted((*first.jobs, *more), key=lambda job: job.submit_s)
    return first.with_jobs(jobs, "more of them")


def _job(
    number: int, at_s: float, run_s: float, cores: int, queue: int, pattern: InteractivePattern | None = None
) -> SwfJob:
    return SwfJob(
        job_number=number, submit_s=at_s, run_s=run_s, allocated_procs=cores, requested_procs=cores,
        requested_s=run_s, queue=queue, extension=() if pattern is None else pattern.to_extension(),
    )  # fmt: skip


def small_plan(rounds: int = 2, draws: tuple[int, ...] = (1,), *, nodes: int = 2) -> StudyPlan:
    """Return a plan for nodes of one core."""
    return StudyPlan(
        nodes=nodes, cores=1, layouts=tuple(layout.key for layout in layouts_of(nodes)),
        rounds=rounds, draws=draws, short_s=60.0, long_s=90.0, pair_s=10.0, places=True,
        estimate_s=600.0,
    )  # fmt: skip


def outcome(
    waits_s: Sequence[tuple[str, float]], run_s: float = 4.0, dedicated_s: float = 2.0, failed: int = 0
) -> ReplayOutcome:
    """Return an outcome of jobs of these kinds that waited so long; the first interactive one is job 5030."""
    rows: list[dict[str, object]] = []
    for number, (kind, wait_s) in enumerate(waits_s):
        job = (
            5030
            if kind == "interactive" and not any(row["trace_job"] == 5030 for row in rows)
            else number + 1
        )
        rows.append(
            {
                "trace_job": job, "job_id": 100 + number, "kind": kind, "app": "rrba",
                "args": "--app lu --class S --steps 10", "cores": 1, "submit_s": float(number),
                "start_s": number + wait_s, "end_s": number + wait_s + run_s,
                "dedicated_s": dedicated_s, "wait_s": wait_s, "run_s": run_s,
                "slowdown_osub": (wait_s + run_s) / dedicated_s, "degradation": run_s / dedicated_s,
            }
        )  # fmt: skip
    return ReplayOutcome(jobs=pl.DataFrame(rows), wait_threshold_s=REAL_WAIT_S, failed=failed)


def full_size(seeds: int = 3) -> FullSize:
    """Return made outcomes of the thesis's size, all alike."""
    one = outcome([("interactive", 0.0), ("batch", 0.0)])
    return FullSize(
        outcomes={case: [one] * seeds for case in CASES},
        places=dict(SIMULATED_PLACES),
        finish_s={job: float(end_s) for job, end_s in SIMULATED_FINISH_S.items()},
    )


def pair_found(joint: float, each: tuple[float, float] | None = None, alone: float = 100.0) -> PairTrial:
    """Return what a trial of the pair found, in steps a second; as fair as can be unless said."""
    return PairTrial(alone=alone, joint=joint, each=each or (joint / 2, joint / 2))


def results(plan: StudyPlan | None = None, **changes: object) -> Results:
    """Return results in which M=2 shortens waits, and gangd loses less than naive."""
    plan = plan or small_plan()
    known: dict[str, SharingLayout] = {layout.key: layout for layout in layouts_of(plan.nodes)}
    layouts = {key: known[key] for key in plan.layouts}
    waits = {"sq-m1": 9.0, "sq-m2-naive": 0.5, "sq-m2-slurm": 0.5, "sq-m2-gangd": 0.4, "mq-1": 3.0}
    runs = {"sq-m1": 2.0, "sq-m2-naive": 8.0, "sq-m2-slurm": 6.0, "sq-m2-gangd": 5.0, "mq-1": 2.2}
    real = {
        key: {
            (FIRST, trial): outcome(
                [("interactive", waits.get(key, 1.0) + trial / 10), ("batch", waits.get(key, 1.0))],
                runs.get(key, 2.0) + trial / 10,
            )
            for trial in (1, 2, 3)
        }
        for key in layouts
    }
    pairs = {
        "sq-m2-naive": {trial: pair_found(60.0 + trial, (30.0 + trial, 30.0)) for trial in (1, 2, 3)},
        "sq-m2-slurm": {trial: pair_found(90.0 + trial, (70.0 + trial, 30.0)) for trial in (1, 2, 3)},
        "sq-m2-gangd": {trial: pair_found(95.0 + trial, (48.0 + trial / 10, 48.0)) for trial in (1, 2, 3)},
    }
    made = {
        "plan": plan, "layouts": layouts, "real": real, "simulated": real, "pairs": pairs,
        "places": dict(SIMULATED_PLACES), "full": full_size(),
    }  # fmt: skip
    return Results(**(made | changes))  # type: ignore[arg-type]
