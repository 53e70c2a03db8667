"""Chapter 6, experiment 2: SQ with M = 4 against the best MQ of a survey, for data sets 1 to 6.

The thesis does not say what its survey ranks by. Its choices are those of this rule: with M_I = 4, the least
R with which no interactive job waits, and then the least M_B with which no batch job waits. The survey goes
through all (R, M_I, M_B) and tells that choice, and the one with the least largest S_OSub of all jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from simulator.experiment_page import ExperimentTable, number
from simulator.experiments.thesis.case_runs import CaseOutcome, ThesisStudy, mq, sq
from simulator.experiments.thesis.compared_cases import CHAPTER_6

SHARES = ("1%", "2%", "3%", "4%", "5%", "6%", "9%", "12%", "15%", "18%", "21%", "24%")
MOST_INTERACTIVE = (1, 2, 3, 4, 6, 8)
MOST_BATCH = (1, 2, 3, 4, 5, 6, 7, 8)

CHOSEN = (("2%", 4, 4), ("2%", 4, 4), ("6%", 4, 5), ("12%", 4, 8), ("18%", 4, 8), ("18%", 4, 8))
"""Table 6.4: R, M_I, M_B of data sets 1 to 6."""


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
    chosen = []
    for one in found:
        thesis = CHOSEN[one.data_set - 1]
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
