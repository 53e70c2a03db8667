"""What the jobs of a workload run: applications drawn at random, and the same work in every layout."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from osub.physical.plan import PAIR_JOBS, Plan
from workloads.rrba.drawn_applications import FALLBACK, legal_applications
from workloads.swf import SwfComment, SwfHeader, SwfJob, SwfTrace
from workloads.trace.scaling import BATCH_QUEUE, INTERACTIVE_QUEUE

GRID_CLASS = "S"
"""Short steps: a job of a second has some hundreds, and coupled ranks wait for each other often."""
COUPLED_APP = "lu"
KNOWN_APPS = {2909: "sp", 2980: "lu", 3000: "lu", 3026: "lu", 3028: "sp", 3030: "lu", 3045: "sp"}
"""Table 7.7."""

Work = Mapping[int, tuple[int, int]]
"""By job: ranks, and steps that it makes on them."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The application of a job, and its line in the table of applications."""

    app: str
    line: str


def pair_trace(plan: Plan) -> SwfTrace:
    """Return two LU jobs on all cores that come at once (Table 7.4)."""
    wide = 1 << ((plan.nodes * plan.cores).bit_length() - 1)
    jobs = tuple(
        SwfJob(
            job_number=number,
            submit_s=0.1 * (number - 1),
            run_s=plan.pair_s,
            allocated_procs=wide,
            requested_procs=wide,
            requested_s=300.0,
            status=1,
            queue=BATCH_QUEUE,
        )
        for number in range(1, PAIR_JOBS + 1)
    )
    return SwfTrace(SwfHeader((SwfComment(b"; Version: 2.2\n"),)), jobs, "pair")


def applications(trace: SwfTrace, seed: int) -> dict[int, str]:
    """Draw an application for each batch job: LU, BT, MG or SP as its ranks allow; known ones as known."""
    drawn = {}
    for job in trace.jobs:
        if job.queue == INTERACTIVE_QUEUE:
            continue
        rng = random.Random(f"{seed} {job.job_number}")  # noqa: S311 - a draw to be repeated, no secret
        legal = legal_applications(job.procs or 1, grid_class=GRID_CLASS)
        name = rng.choice(legal) if legal else FALLBACK
        known = KNOWN_APPS.get(job.job_number)
        drawn[job.job_number] = known if known in legal else name
    return drawn


def apps_table(trace: SwfTrace, drawn: Mapping[int, str], work: Work) -> str:
    """Return the table of applications for a replay.

    A job makes as many steps as ``work`` says on as many ranks as it has; with others, or without, as many as
    its run time takes by its own first steps.
    """
    rows = ["trace_job,app,args"]
    for job in trace.jobs:
        if job.queue == INTERACTIVE_QUEUE:
            continue
        name = drawn[job.job_number]
        grid = "" if name == FALLBACK else f" --class {GRID_CLASS}"
        ranks, steps = work.get(job.job_number, (0, 0))
        length = f"--steps {steps}" if steps and ranks == job.procs else f"--target-s {job.run_s}"
        rows.append(f"{job.job_number},rrba,--app {name}{grid} {length}")
    return "\n".join(rows) + "\n"


def pair_table(trace: SwfTrace, work: Work) -> str:
    """Return the table for the pair: both make the same steps, the median of what is known."""
    made = [steps for _, steps in work.values()]
    length = f"--steps {int(median(made))}" if made else f"--target-s {trace.jobs[0].run_s}"
    rows = [f"{job.job_number},rrba,--app {COUPLED_APP} --class {GRID_CLASS} {length}" for job in trace.jobs]
    return "\n".join(["trace_job,app,args", *rows]) + "\n"


def sleepers(trace: SwfTrace) -> str:
    """Return the table for jobs that only hold their cores."""
    rows = [f"{job.job_number},sleep,{job.run_s}" for job in trace.jobs]
    return "\n".join(["trace_job,app,args", *rows]) + "\n"
