"""The pair of Table 7.4: what is replayed, and what two coupled jobs on the same cores lose.

A host's pace drifts by a tenth and more within minutes, so speeds of different replays say little of a loss.
Each replay of the pair therefore measures itself: on the same cluster under the same layout **one job runs
alone**, and when it has ended **two run together**. All three are the same program and make the same number
of steps.

The submitter replays by time, so the two come at a fixed time, with a margin for a slower host
(``StudyPlan.pair_begins_s``). A trial in which the one was still running as they began is not judged; nor is
one in which others used the host, whether in all of it or in one of the two stretches.

**Joint speed** is the steps of both over the time from the first start to the last end. The sum of both jobs'
own speeds would be more than the cores give wherever one has them to itself for a while, as in Slurm's slices
of some seconds; work over time is fair to every layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from analysis.metrics import host_use
from foundation.records import Run
from osub.physical.layouts import DEDICATED
from osub.physical.plan import PAIR, PAIR_JOBS, PlannedReplay, StudyPlan
from workloads.swf import SwfComment, SwfHeader, SwfJob, SwfTrace
from workloads.trace.scaling import BATCH_QUEUE

COUPLED_APP, GRID_CLASS = "lu", "S"
"""Short steps: coupled ranks wait for each other often."""
_ALONE = 1
"""The number of the job that runs alone; those of the two follow."""
_REQUESTED_S = 300.0

Work = Mapping[int, tuple[int, int]]
"""By job: ranks, and steps that it makes on them."""


@dataclass(frozen=True, slots=True)
class PairTrial:
    """What one replay of the pair found, in steps a second.

    Attributes
    ----------
    alone
        Of the job that ran alone just before the two, from its start to its end.
    joint
        Of both together, from the first start to the last end.
    each
        Of each of the two, from its own start to its own end.
    """

    alone: float
    joint: float
    each: tuple[float, float]

    @property
    def loss(self) -> float:
        """What the joint speed is less than the speed alone, as a share of that; negative is a gain."""
        return 1.0 - self.joint / self.alone

    @property
    def unfairness(self) -> float:
        """The difference of both jobs' own speeds over their sum: 0 is fair."""
        return abs(self.each[0] - self.each[1]) / sum(self.each)


class _Ran(NamedTuple):
    start_s: float
    end_s: float
    steps: int

    @property
    def speed(self) -> float:
        return self.steps / (self.end_s - self.start_s)


def pair_trace(plan: StudyPlan, layout: str) -> SwfTrace:
    """Return one LU job on all cores, and after it two at once; on dedicated cores the one is all."""
    wide = 1 << ((plan.nodes * plan.cores).bit_length() - 1)
    together = () if layout == DEDICATED.key else range(PAIR_JOBS)
    submits_s = (0.0, *(plan.pair_begins_s + 0.1 * number for number in together))
    jobs = tuple(
        SwfJob(
            job_number=number,
            submit_s=submit_s,
            run_s=plan.pair_s,
            allocated_procs=wide,
            requested_procs=wide,
            requested_s=_REQUESTED_S,
            status=1,
            queue=BATCH_QUEUE,
        )
        for number, submit_s in enumerate(submits_s, start=_ALONE)
    )
    return SwfTrace(SwfHeader((SwfComment(b"; Version: 2.2\n"),)), jobs, PAIR)


def pair_table(trace: SwfTrace, work: Work) -> str:
    """Return the table of applications: all make the same steps, the median of what is known."""
    made = [steps for _, steps in work.values()]
    length = f"--steps {int(median(made))}" if made else f"--target-s {trace.jobs[0].run_s}"
    rows = [f"{job.job_number},rrba,--app {COUPLED_APP} --class {GRID_CLASS} {length}" for job in trace.jobs]
    return "\n".join(["trace_job,app,args", *rows]) + "\n"


def pair_trial(run: Run) -> PairTrial | str:
    """Return what a replay of the pair found, or why it is not judged."""
    if (busy := host_use(run).unfit) is not None:
        return busy
    jobs = run.jobs.sort("trace_job")
    if jobs.height != 1 + PAIR_JOBS or (jobs["state"] != "COMPLETED").any():
        return "a job did not complete"
    known = jobs.select("start_s", "end_s", "steps")
    if any(value is None for row in known.iter_rows() for value in row):
        return "a job does not tell its times or its steps"
    alone, *both = (_Ran(*row) for row in known.iter_rows())
    from_s, to_s = min(one.start_s for one in both), max(one.end_s for one in both)
    if from_s < alone.end_s:
        return "the one alone was still running as the two began"
    if max(one.start_s for one in both) >= min(one.end_s for one in both):
        return "the two did not run at the same time"
    for rows, when in ((jobs[:1], "while one ran alone "), (jobs[1:], "while the two ran ")):
        if (why := host_use(replace(run, jobs=rows)).unfit) is not None:
            return f"{when}{why}"
    joint = sum(one.steps for one in both) / (to_s - from_s)
    return PairTrial(alone=alone.speed, joint=joint, each=(both[0].speed, both[1].speed))


def why_unfit(run: Run, item: PlannedReplay) -> str | None:
    """Return why a replay is unfit to judge by, None where it is fit."""
    if item.workload != PAIR or item.layout == DEDICATED.key:
        return host_use(run).unfit
    found = pair_trial(run)
    return found if isinstance(found, str) else None
