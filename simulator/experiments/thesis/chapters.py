"""The thesis's chapters 5 and 6 as wholes: what is simulated, and the tables and figures that come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.experiments.claim_study import Step
from simulator.experiments.paper_tables import ExperimentTable
from simulator.experiments.thesis import kit_trace as kit_numbers
from simulator.experiments.thesis import thesis5, thesis6
from simulator.experiments.thesis.case_runs import run_all
from simulator.experiments.thesis.layout_survey import SHARES, survey_tables
from simulator.experiments.thesis.layout_survey import survey as find_best
from simulator.experiments.thesis.thesis_datasets import (
    DATA_SETS,
    in_blocks,
    with_interactive_jobs,
    with_patterns,
)
from simulator.experiments.thesis.thesis_run import Rules, about_trace, facts_of, kit_study, study_of

if TYPE_CHECKING:
    from simulator.experiments.experiment_page import Drawing

MARKED = "* differs from the thesis by more than a fifth; docs/experiments.md tells the causes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """What came of a chapter.

    Attributes
    ----------
    title
        Of the page.
    tables
        The thesis's tables with our figures beside its own.
    outcomes
        Every simulation's figures.
    remarks
        What is to be said of the trace.
    facts
        What was simulated, for the page.
    figures
        Draws the page's figures.
    marked
        What a star in a table says.
    """

    title: str
    tables: list[ExperimentTable]
    outcomes: Sequence[object]
    remarks: list[str]
    facts: list[str]
    figures: Callable[[], Sequence[Drawing]]
    marked: str = MARKED


def chapter_5(
    trace: Path,
    policy: str,
    placement: str,
    *,
    kit: Path | None,
    kit_queue: int | None,
    any_trace: bool,
    steps: Callable[[int], Step],
) -> Chapter:
    """Simulate SQ with M 1 to 4 against MQ with R 1 to 12%, interactive jobs busy all along.

    Parameters
    ----------
    trace
        The thesis's trace; another one with ``any_trace`` only.
    policy, placement
        The words for the rules.
    kit, kit_queue
        The second trace and its queue of interactive jobs (None: the one with the fewest); None: without it.
    steps
        Told how many steps there are; returns what is to be called at each of them.

    Raises
    ------
    InputError
        A trace cannot be used, or is not the thesis's.
    UsageError
        The words name no rules.
    """
    rules = Rules(policy, placement, thesis5.OVERHEAD)
    study = study_of(trace, rules, thesis5.SYSTEM, patterns=False, examples=thesis5.EXAMPLES)
    remarks = about_trace(study, any_trace=any_trace)
    other = None if kit is None else kit_study(kit, rules, kit_queue)
    cases = thesis5.cases()
    more = [] if other is None else kit_numbers.cases()
    done = steps(len(cases) + len(more))
    outcomes = run_all(study, cases, done)
    kit_outcomes = {} if other is None else run_all(other, more, done)
    tables = thesis5.tables(outcomes) + ([] if other is None else kit_numbers.tables(kit_outcomes))

    def figures() -> Sequence[Drawing]:
        from simulator.experiments.thesis.thesis_charts import figures_5

        drawn = figures_5(list(outcomes.values()), "(a)", thesis5.WAITED)
        if other is not None:
            drawn += figures_5(list(kit_outcomes.values()), "(b)", kit_numbers.WAITED)
        return drawn

    return Chapter(
        title="Chapter 5 again",
        tables=tables,
        outcomes=[*outcomes.values(), *kit_outcomes.values()],
        remarks=remarks,
        facts=[
            *remarks,
            facts_of(study, rules),
            *([] if other is None else [facts_of(other, rules)]),
            MARKED,
        ],
        figures=figures,
    )


def chapter_6(
    trace: Path,
    policy: str,
    placement: str,
    *,
    data_sets: Sequence[int],
    seed: int,
    interleaved: bool,
    any_trace: bool,
    steps: Callable[[int], Step],
) -> Chapter:
    """Simulate interactive jobs that idle, and data sets with more and more of them.

    Parameters
    ----------
    trace, policy, placement, any_trace, steps
        As ``chapter_5``.
    data_sets
        Which of experiment 2 are surveyed, from 1.
    seed
        For patterns and for the choice of jobs.
    interleaved
        Whether columns 25 and up of the trace are busy, idle, busy, ..., not all busy first.

    Raises
    ------
    InputError, UsageError
        As ``chapter_5``.
    """
    rules = Rules(policy, placement, thesis6.OVERHEAD)
    plain = study_of(trace, rules, thesis6.SYSTEM, patterns=True)
    remarks = about_trace(plain, any_trace=any_trace)
    if interleaved:
        plain = plain.with_trace(in_blocks(plain.trace))
    sets = [with_interactive_jobs(plain.trace, DATA_SETS[number - 1], seed) for number in data_sets]
    cases = thesis6.cases()
    done = steps(len(cases) + len(data_sets) * len(SHARES))
    study = plain.with_trace(with_patterns(plain.trace, seed))
    outcomes = run_all(study, cases, done)
    found = [
        find_best(plain.with_trace(with_patterns(more, seed)), number, done)
        for number, more in zip(data_sets, sets, strict=True)
    ]

    def figures() -> Sequence[Drawing]:
        from simulator.experiments.thesis.thesis_charts import figures_6

        return figures_6(list(outcomes.values()), found)

    return Chapter(
        title="Chapter 6 again",
        tables=[*thesis6.tables(outcomes), *(survey_tables(found) if found else [])],
        outcomes=[*outcomes.values(), *found],
        remarks=remarks,
        facts=[*remarks, f"{facts_of(study, rules)} Seed {seed}.", MARKED],
        figures=figures,
    )
