"""The cases that chapters 5 and 6 of the thesis compare, and the survey of layouts.

Chapters 5 and 6 against the thesis: which cases are simulated, and tables with both figures.

Chapter 5: interactive jobs as short batch jobs, C_o = 1.0; MQ has no oversubscribing. On the UniLu trace
Tables 5.3(a), 5.4 and 5.5, on the KIT trace 5.3(b) and 5.6, and the numbers behind Figures 5.4 to 5.7. Which
queue of KIT has the highly responsive (HRR) jobs is not said; it is the one with fewer of them, 2,349 of
114,347 jobs (Table 5.2). Chapter 6: interactive jobs that idle, C_o = 1.2, M_I = 4 (experiment 1, Tables 6.2
and 6.3, Figure 6.6); ``layout_survey`` has experiment 2.

Chapter 6, experiment 2: SQ with M = 4 against the best MQ of a survey, for data sets 1 to 6.

The thesis does not say what its survey ranks by. Its choices are those of this rule: with M_I = 4, the least
R with which no interactive job waits, and then the least M_B with which no batch job waits. The survey goes
through all (R, M_I, M_B) and tells that choice, and the one with the least largest S_OSub of all jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from foundation.errors import InputError
from simulator.experiment_page import ABSENT, ExperimentTable, against, hours, number, percent
from simulator.experiments.claim_study import published_rows
from simulator.experiments.thesis_cases import (
    CaseOutcome,
    ThesisCase,
    ThesisStudy,
    mq,
    mq_cases,
    published_label,
    sq,
)
from simulator.model.system import System
from workloads.swf import SwfColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseComparison:
    """Cases on one trace, and the thesis's numbers for them by label (``thesis_tables.csv``).

    Parameters
    ----------
    system, overhead
        Nodes, and C_o.
    most
        SQ is simulated with M from here down to 1.
    shares, multiplicity_interactive
        MQ's R, and M_I.
    waited_in, done_in
        The tables of ``waited`` and ``done_h``.
    """

    system: System
    overhead: str
    most: int = 4
    shares: tuple[str, ...]
    multiplicity_interactive: int = 1
    waited_in: str
    done_in: str

    @property
    def waited(self) -> dict[str, float]:
        """Shares of the interactive jobs that wait."""
        return {label: float(share) for label, share in published_rows(self.waited_in)}

    @property
    def done_h(self) -> dict[str, list[int]]:
        """When 90, 95 and 100% of the CPU time was done, hours."""
        return {label: list(map(int, hours)) for label, *hours in published_rows(self.done_in)}

    def cases(self) -> list[ThesisCase]:
        """Return the cases; MQ with R rounded down, and to the nearest number where that differs."""
        single = map(sq, range(self.most, 0, -1))
        return [*single, *mq_cases(self.system, self.shares, self.multiplicity_interactive)]


CHAPTER_5 = CaseComparison(
    system=System(150, 12),
    overhead="1.0",
    shares=("12%", "10%", "7%", "5%", "3%", "1%"),
    waited_in="5.3(a)",
    done_in="5.5",
)
KIT = CaseComparison(
    system=System(1152, 20),
    overhead="1.0",
    shares=("7%", "5%", "3%", "1%", "0.5%"),
    most=8,
    waited_in="5.3(b)",
    done_in="5.6",
)
CHAPTER_6 = CaseComparison(
    system=System(150, 12),
    overhead="1.2",
    shares=("3%", "2%", "1%"),
    multiplicity_interactive=4,
    waited_in="6.2",
    done_in="6.3",
)

EXAMPLES = (2819, 918, 9121)
BATCH_SLOWDOWN = {"MQ, R=3%": 18652.0, "MQ, R=2%": 12697.0}
"""Largest slowdowns of batch jobs that the text gives for Figure 6.6(b)."""
ALL_SLOWDOWN = {"SQ, M=4": 4.8}
"""The same for all jobs."""

_NOTES = (
    "Thesis, in words: with M = 4 no job waits and S_OSub is at most 4.",
    "With MQ, R=10%, S_OSub of all HRR jobs is 1.",
    "With MQ, R=5%, 1.3% of the jobs have S_OSub of at least 100.",
    "The larger R, the larger S_OSub of normal jobs.",
)
_KIT_NOTES = (
    "Thesis, in words: one HRR job waits, for about 6 minutes, with M = 6 to 8; none with MQ from R=5% on.",
    "With MQ, R=3%, 3.2% of the jobs have S_OSub of at least 100; with SQ, M=8, none has more than 6.",
)


def tables_5(outcomes: dict[str, CaseOutcome]) -> list[ExperimentTable]:
    """Return the tables of chapter 5."""
    return [
        _waited(outcomes, CHAPTER_5),
        _examples(outcomes),
        _done(outcomes, CHAPTER_5),
        figures_table("(a)", outcomes, _NOTES),
    ]


def tables_kit(outcomes: dict[str, CaseOutcome]) -> list[ExperimentTable]:
    """Return the tables of chapter 5 on the KIT trace."""
    return [_waited(outcomes, KIT), _done(outcomes, KIT), figures_table("(b)", outcomes, _KIT_NOTES)]


def tables_6(outcomes: dict[str, CaseOutcome]) -> list[ExperimentTable]:
    """Return the tables of chapter 6."""
    return [_waited(outcomes, CHAPTER_6), _done(outcomes, CHAPTER_6), _figure_6_6(outcomes)]


def smaller_queue(trace: SwfColumns) -> int:
    """Return the queue with the fewest jobs.

    Raises
    ------
    InputError
        The trace has not two queues or more.
    """
    counts = trace.frame["queue"].drop_nulls().value_counts().sort("count", "queue")
    if counts.height < 2:
        raise InputError(f"trace {trace.name} has no two queues: it cannot be the KIT trace of the thesis")
    return int(counts["queue"][0])


def _waited(outcomes: Mapping[str, CaseOutcome], comparison: CaseComparison) -> ExperimentTable:
    rows, published = [], comparison.waited
    for label, outcome in outcomes.items():
        thesis = published.get(published_label(label))
        ours = outcome.interactive_waited
        rows.append(
            (label, percent(ours), ABSENT if thesis is None else percent(thesis), against(ours, thesis))
        )
    return ExperimentTable(
        name=f"Table {comparison.waited_in}",
        title="interactive jobs that wait",
        columns=("case", "ours", "thesis", "difference"),
        rows=rows,
    )


def _done(outcomes: Mapping[str, CaseOutcome], comparison: CaseComparison) -> ExperimentTable:
    rows, published = [], comparison.done_h
    for label, outcome in outcomes.items():
        thesis = published.get(published_label(label), (None, None, None))
        cells = [
            hours(mine) if theirs is None else f"{hours(mine)} ({theirs}, {against(mine, theirs)})"
            for mine, theirs in zip(outcome.cpu_time_done_h, thesis, strict=True)
        ]
        rows.append((label, *cells))
    return ExperimentTable(
        name=f"Table {comparison.done_in}",
        title="when 90, 95 and 100% of the CPU time was done [h]; the thesis's numbers in parentheses",
        columns=("case", "90th", "95th", "100th"),
        rows=rows,
    )


def main_finding(outcomes: Mapping[str, CaseOutcome]) -> list[str]:
    """Return in sentences who waits with one job a core, with the best of SQ and of MQ, and what that costs.

    The best is the case in which the fewest interactive jobs wait, then that with the least slowdown.
    """
    alone = outcomes.get("SQ, M=1")
    if alone is None:
        return []
    rest = [one for one in outcomes.values() if one is not alone]
    kinds = ([one for one in rest if one.label.startswith(kind)] for kind in ("SQ", "MQ"))
    best = [
        min(some, key=lambda one: (one.interactive_waited, one.slowdown_batch_max)) for some in kinds if some
    ]
    waits = "; ".join(f"with {one.label} {percent(one.interactive_waited)}" for one in best)
    costs = "; ".join(f"{number(one.slowdown_batch_max)} with {one.label}" for one in best)
    waiting = (
        f"Interactive jobs: with one job a core (SQ, M=1) {percent(alone.interactive_waited)} of them wait, "
        f"for {hours(alone.interactive_wait_max_s / 3600)} h at most; {waits}."
    )
    largest = f"{number(alone.slowdown_batch_max)} with one job a core; {costs}"
    return [waiting, f"Batch jobs: the largest S_OSub is {largest}."]


def _examples(outcomes: dict[str, CaseOutcome]) -> ExperimentTable:
    rows = []
    for job, label, *printed in published_rows("5.4"):
        one = next((example for example in outcomes[label].examples if example.job == int(job)), None)
        if one is not None:
            pairs = zip((one.run_s, one.wait_s, one.slowdown_osub), map(float, printed), strict=True)
            cells = (f"{number(mine)} ({number(theirs)}, {against(mine, theirs)})" for mine, theirs in pairs)
            rows.append((job, label, *cells))
    return ExperimentTable(
        name="Table 5.4",
        title="single jobs; the thesis's numbers in parentheses",
        columns=("job", "case", "run time [s]", "wait [s]", "S_OSub"),
        rows=rows,
        notes=(
            "The run time of 20,920 s in the thesis's row of job 9121 is that of job 9087 in the trace.",
            "With a wait of 12,702 s that would make an S_OSub of 1.61, not 7.07.",
        ),
    )


def figures_table(part: str, outcomes: dict[str, CaseOutcome], notes: tuple[str, ...]) -> ExperimentTable:
    """Return the numbers behind one half of Figures 5.4 to 5.7."""
    rows = [
        (
            label,
            number(outcome.interactive_wait_max_s),
            number(outcome.slowdown_batch_max),
            number(outcome.slowdown_interactive_max),
            percent(outcome.slowdown_from_100),
            number(outcome.slowdown_long_batch_max),
        )
        for label, outcome in outcomes.items()
    ]
    return ExperimentTable(
        name=", ".join(f"{figure}{part}" for figure in ("Figures 5.4", "5.5", "5.6", "5.7")),
        title="longest wait of interactive jobs, largest S_OSub, jobs with S_OSub of at least 100",
        columns=("case", "wait [s]", "S_OSub, normal", "S_OSub, HRR", "S_OSub >= 100", "S_OSub, long normal"),
        rows=rows,
        notes=notes,
    )


def _figure_6_6(outcomes: dict[str, CaseOutcome]) -> ExperimentTable:
    rows = []
    for label, outcome in outcomes.items():
        name = published_label(label)
        largest = max(outcome.slowdown_batch_max, outcome.slowdown_interactive_max)
        published = BATCH_SLOWDOWN.get(name) or ALL_SLOWDOWN.get(name)
        rows.append(
            (
                label,
                number(outcome.interactive_wait_max_s),
                number(outcome.slowdown_batch_max),
                number(outcome.slowdown_interactive_max),
                number(published) if published else ABSENT,
                against(outcome.slowdown_batch_max if name in BATCH_SLOWDOWN else largest, published),
            )
        )
    return ExperimentTable(
        name="Figure 6.6",
        title="longest wait of interactive jobs, largest S_OSub",
        columns=("case", "wait [s]", "S_OSub, batch", "S_OSub, interactive", "thesis", "difference"),
        rows=rows,
        notes=("The thesis tells that of batch jobs for MQ, and that of all jobs for SQ, M=4.",),
    )


SHARES = ("1%", "2%", "3%", "4%", "5%", "6%", "9%", "12%", "15%", "18%", "21%", "24%")
MOST_INTERACTIVE = (1, 2, 3, 4, 6, 8)
MOST_BATCH = (1, 2, 3, 4, 5, 6, 7, 8)


class LayoutChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A choice of (R, M_I, M_B) and what comes of it."""

    share: str
    multiplicity_interactive: int
    multiplicity: int
    outcome: CaseOutcome


class SurveyOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a data set comes to: SQ with M = 4, the MQ in which no job waits, and that of least slowdown."""

    data_set: int
    interactive_jobs: int
    jobs: int
    sq: CaseOutcome
    prompt: LayoutChoice
    fair: LayoutChoice


@dataclass(frozen=True, slots=True)
class SurveyedQueue:
    """One queue of MQ under one multiplicity: the share of its jobs that wait, and their largest S_OSub."""

    share: str
    most: int
    waited: float
    worst: float


def survey(study: ThesisStudy, data_set: int, done: Callable[[str], None] | None = None) -> SurveyOutcome:
    """Go through all (R, M_I, M_B).

    The two queues share nothing, so each R needs as many simulations as there are values of M_I and of M_B,
    not of pairs.
    """
    interactive: list[SurveyedQueue] = []
    batch: list[SurveyedQueue] = []
    for share in SHARES:
        interactive += (_queue(study, share, most, interactive=True) for most in MOST_INTERACTIVE)
        batch += (_queue(study, share, most, interactive=False) for most in MOST_BATCH)
        if done is not None:
            done(f"data set {data_set}, R={share}")
    single = study.run(sq(4))
    return SurveyOutcome(
        data_set=data_set,
        interactive_jobs=single.interactive_jobs,
        jobs=single.jobs,
        sq=single,
        prompt=_choice(study, *prompt_pair(interactive, batch)),
        fair=_choice(study, *fair_pair(interactive, batch)),
    )


def prompt_pair(
    interactive: list[SurveyedQueue], batch: list[SurveyedQueue]
) -> tuple[SurveyedQueue, SurveyedQueue]:
    """Return the least R, M_I = 4, with which no interactive job waits (or the fewest), and M_B likewise."""
    candidates = [queue for queue in interactive if queue.most == CHAPTER_6.multiplicity_interactive]
    inner = min(candidates, key=lambda queue: queue.waited)
    return inner, min(
        (queue for queue in batch if queue.share == inner.share), key=lambda queue: queue.waited
    )


def fair_pair(
    interactive: list[SurveyedQueue], batch: list[SurveyedQueue]
) -> tuple[SurveyedQueue, SurveyedQueue]:
    """Return the pair of one share with the least largest S_OSub; of equals the first."""
    pairs = [(inner, outer) for inner in interactive for outer in batch if inner.share == outer.share]
    return min(pairs, key=lambda pair: max(pair[0].worst, pair[1].worst))


def _choice(study: ThesisStudy, inner: SurveyedQueue, outer: SurveyedQueue) -> LayoutChoice:
    return LayoutChoice(
        share=inner.share,
        multiplicity_interactive=inner.most,
        multiplicity=outer.most,
        outcome=study.run(mq(CHAPTER_6.system, inner.share, inner.most, outer.most)),
    )


def _queue(study: ThesisStudy, share: str, most: int, *, interactive: bool) -> SurveyedQueue:
    """Simulate one queue of MQ."""
    case = mq(CHAPTER_6.system, share, most) if interactive else mq(CHAPTER_6.system, share, 1, most)
    queues = case.queues(CHAPTER_6.system)
    workload = study.workload(queues)
    known = study.pool(workload, queues, queues.interactive if interactive else queues.batch)
    submit_us = workload.submit_us[known.members]
    slowdown = (known.end_us - submit_us) / workload.run_us[known.members]
    return SurveyedQueue(
        share, most, float((known.start_us > submit_us).mean()), float(slowdown.max(initial=1.0))
    )


def survey_tables(found: list[SurveyOutcome]) -> list[ExperimentTable]:
    """Return Table 6.4 and the numbers of Figure 6.7."""
    chosen, published = [], published_rows("6.4")
    for one in found:
        thesis = published[one.data_set - 1]
        chosen.append(
            (
                str(one.data_set),
                f"{one.interactive_jobs:,}",
                f"{one.interactive_jobs / one.jobs:.3f}",
                f"{one.prompt.share} ({thesis[0]})",
                f"{one.prompt.multiplicity_interactive} ({thesis[1]})",
                f"{one.prompt.multiplicity} ({thesis[2]})",
                f"{one.fair.share}, {one.fair.multiplicity_interactive}, {one.fair.multiplicity}",
            )
        )
    figure = [
        (
            str(one.data_set),
            *(
                number(value)
                for outcome in (one.sq, one.prompt.outcome, one.fair.outcome)
                for value in (outcome.slowdown_batch_max, outcome.slowdown_interactive_max)
            ),
        )
        for one in found
    ]
    return [
        ExperimentTable(
            name="Table 6.4",
            title="data sets and the MQ in which no job waits; the thesis's choice in parentheses",
            columns=("set", "interactive jobs", "ratio", "R", "M_I", "M_B", "least S_OSub: R, M_I, M_B"),
            rows=chosen,
            notes=(
                "No job waits: the least R for interactive jobs, at M_I = 4, then the least M_B for batch.",
                "Last column: of all (R, M_I, M_B) the one with the least largest S_OSub.",
            ),
        ),
        ExperimentTable(
            name="Figure 6.7",
            title="largest S_OSub of batch and of interactive jobs",
            columns=(
                "set",
                "SQ, M=4: batch",
                "interactive",
                "MQ, no job waits: batch",
                "interactive",
                "MQ, least S_OSub: batch",
                "interactive",
            ),
            rows=figure,
            notes=(
                "Thesis, in words: with SQ, M=4, below 5 in every set.",
                "With MQ interactive jobs are slowed a little and batch jobs more.",
            ),
        ),
    ]
