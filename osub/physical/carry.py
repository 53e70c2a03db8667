"""Carries a plan out: cluster after cluster, replay after replay, each of them once; and what the jobs run.

What is finished already is passed over, so a study that was killed goes on with what lacks. Jobs run
applications drawn at random, and the same work in every layout.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from foundation.errors import ClusterError, OsubError
from foundation.files import write_whole
from foundation.records import load_run
from foundation.units import counted_of
from osub.live.forward import AskedReplay
from osub.physical.cluster_provider import Bed, Beds, Follow, Say
from osub.physical.folder import INPUTS, StudyFolder
from osub.physical.layouts import DEDICATED, SharingLayout, places_trace
from osub.physical.pair import GRID_CLASS, Work, pair_table, pair_trace
from osub.physical.plan import DAY, FIRST, PAIR, PLACES, PlannedReplay, StudyPlan, fitted_trace
from workloads.rrba.drawn_applications import FALLBACK, legal_applications
from workloads.swf import SwfTrace, write_swf
from workloads.trace.scaling import INTERACTIVE_QUEUE

Rerun = Callable[[PlannedReplay, Bed], None]
_TRIES = 2
_MOST = 5.0
"""A replay that takes so many times as long as it should is given up, and its jobs are cancelled."""
_LEAST_MOST_S = 300.0

KNOWN_APPS = {2909: "sp", 2980: "lu", 3000: "lu", 3026: "lu", 3028: "sp", 3030: "lu", 3045: "sp"}
"""Table 7.7."""


class InterruptedStudyError(KeyboardInterrupt):
    """The user ended the study; what is finished is kept."""


def carry_out(plan: StudyPlan, folder: StudyFolder, beds: Beds, replay: Rerun, say: Say) -> None:
    """Make every replay that lacks, on the cluster of its layout.

    Parameters
    ----------
    plan, folder
        What is to be run, and where it is kept.
    beds
        The clusters.
    replay
        Makes one replay on a cluster.
    say
        Called with the next step.

    Raises
    ------
    OsubError
        A cluster could not be started twice in a row, or a replay could not be made.
    """
    sessions = plan.sessions()
    for number, (layout, items) in enumerate(sessions, start=1):
        for attempt in range(1, _TRIES + 1):
            lacking = [item for item in items if not folder.is_done(item)]
            if not lacking:
                break
            names = ", ".join(dict.fromkeys(item.workload for item in lacking))
            say(f"{number} of {len(sessions)}: {layout}, trial {lacking[0].trial} ({names})")
            try:
                with beds(layout) as bed:
                    for item in lacking:
                        folder.remove_run(folder.run(item))
                        replay(item, bed)
            except OsubError as error:
                if attempt == _TRIES:
                    raise
                say(f"{layout}: {error}; once more on a new cluster")


@dataclass(frozen=True, slots=True)
class StudyReplays:
    """Makes replays of the study's workloads.

    Parameters
    ----------
    plan, folder, layouts
        The study.
    traces
        The thesis's traces for N12C12: ``first``, and ``day`` by seed.
    follow
        Carries a replay out and shows it.
    """

    plan: StudyPlan
    folder: StudyFolder
    layouts: Mapping[str, SharingLayout]
    traces: Mapping[tuple[str, int], SwfTrace]
    follow: Follow

    def __call__(self, item: PlannedReplay, bed: Bed) -> None:
        """Make one replay.

        Raises
        ------
        InterruptedStudyError
            The user ended it.
        OsubError
            It could not be made, or a job of the dedicated layout did not complete.
        """
        trace, table, label = self._of(item)
        swf, apps = self._files(item, trace, table)
        last_s = max(job.submit_s + (job.run_s or 0) for job in trace.jobs)
        out = self.folder.run(item)
        asked = AskedReplay(
            swf=swf,
            apps=apps,
            out=out,
            title=f"{item.workload}, {label}, trial {item.trial}",
            label=f"{label}, trial {item.trial}",
            trial=item.trial,
            most_s=max(_LEAST_MOST_S, _MOST * last_s),
        )
        if not bed.replay(asked, self.follow):
            raise InterruptedStudyError("finished runs are kept, the same command goes on")
        if item.layout == DEDICATED.key:
            self._keep_work(item, trace, load_run(out).jobs)

    def _keep_work(self, item: PlannedReplay, trace: SwfTrace, jobs: pl.DataFrame) -> None:
        """Keep how many steps the jobs of a dedicated replay made; raises ClusterError where one lacks."""
        unfinished = jobs.filter(pl.col("state") != "COMPLETED").height
        if unfinished:
            self.folder.remove_run(self.folder.run(item))
            raise ClusterError(
                f"{counted_of(unfinished, jobs.height, 'job')} of {item.name} did not complete, so "
                "their work is unknown: this host is too busy, or jobs fail; the same command tries again"
            )
        if draw_of(item) not in self.folder.work():
            made = jobs.filter(pl.col("steps") > 0).select("trace_job", "steps").rows()
            ranks = {job.job_number: job.procs or 1 for job in trace.jobs}
            self.folder.keep_work(draw_of(item), {job: (ranks[job], steps) for job, steps in made})

    def _of(self, item: PlannedReplay) -> tuple[SwfTrace, str, str]:
        """Return trace, table of applications and label of a replay."""
        if item.workload == PLACES:
            trace = places_trace()
            return trace, sleepers(trace), "Table 7.8 on N12C12"
        layout = self.layouts[item.layout]
        known = self.folder.work().get(draw_of(item), {})
        work = {int(number): steps for number, steps in known.items()}
        if item.workload == PAIR:
            trace = pair_trace(self.plan, item.layout)
            return trace, pair_table(trace, work), layout.label
        original = self.traces[item.workload, item.seed]
        compression = self.plan.compression(item.workload)
        trace = fitted_trace(original, self.plan, layout, compression)
        # Drawn for the sizes of a single queue: a job has the same application in every layout.
        widest = fitted_trace(original, self.plan, DEDICATED, compression)
        return trace, apps_table(trace, applications(widest, item.seed), work), layout.label

    def _files(self, item: PlannedReplay, trace: SwfTrace, table: str) -> tuple[Path, Path]:
        place = self.folder.path / INPUTS
        place.mkdir(exist_ok=True)
        swf, apps = place / f"{item.name}.swf.gz", place / f"{item.name}.csv"
        write_swf(swf, trace)
        write_whole(apps, table)
        return swf, apps


def draw_of(item: PlannedReplay) -> str:
    """Return the name under which the work of a workload's jobs is kept."""
    return f"{item.workload}-{item.seed}"


def traces_of(
    plan: StudyPlan, first: SwfTrace, day: Callable[[int], SwfTrace]
) -> dict[tuple[str, int], SwfTrace]:
    """Return the traces that a plan replays, for N12C12."""
    return {(FIRST, 1): first} | {(DAY, seed): day(seed) for seed in plan.draws}


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


def sleepers(trace: SwfTrace) -> str:
    """Return the table for jobs that only hold their cores."""
    rows = [f"{job.job_number},sleep,{job.run_s}" for job in trace.jobs]
    return "\n".join(["trace_job,app,args", *rows]) + "\n"
