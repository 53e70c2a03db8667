"""The thesis's chapters 5 and 6 as wholes: on whose trace, what is simulated, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from foundation.errors import InputError
from foundation.units import counted
from simulator.experiment_page import ExperimentTable
from simulator.experiments import thesis_comparisons as comparisons
from simulator.experiments.claim_study import Step
from simulator.experiments.thesis_cases import (
    DATA_SETS,
    ThesisStudy,
    cleaned,
    in_blocks,
    run_all,
    with_interactive_jobs,
    with_patterns,
)
from simulator.experiments.thesis_comparisons import survey as find_best
from simulator.model.system import System
from simulator.setting_choices import setting_of
from simulator.simulation import SimulationSetting
from simulator.simulation_spec import SimulationSpec
from workloads.swf import load_columns

if TYPE_CHECKING:
    from simulator.experiment_page import Drawing

_JOBS = 51_871
"""Of the thesis's trace, UniLu-Gaia-2014-1 (Table 5.1); data sets made of it differ by what was added."""
_ALIKE = 0.05

MARKED = "* differs from the thesis by more than a fifth; docs/experiments.md tells the causes"


class ChapterRules(NamedTuple):
    """The words for the rules of an experiment."""

    policy: str
    placement: str
    overhead: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """What came of a chapter.

    Attributes
    ----------
    title
        Of the page.
    tables
        The thesis's tables with our figures next to its own.
    outcomes
        Every simulation's figures.
    remarks
        What is to be said of the trace.
    facts
        For the page: the main finding in sentences, then its evidence, beginning with "Evidence:".
    figures
        Draws the page's figures.
    """

    title: str
    tables: list[ExperimentTable]
    outcomes: Sequence[object]
    remarks: list[str]
    facts: list[str]
    figures: Callable[[], Sequence[Drawing]]


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
        Called with the number of steps; returns a function to call at each of them.

    Raises
    ------
    InputError
        A trace cannot be used, or is not the thesis's.
    UsageError
        The words name no rules.
    """
    rules = ChapterRules(policy, placement, comparisons.CHAPTER_5.overhead)
    study = _study_of(
        trace, rules, comparisons.CHAPTER_5.system, patterns=False, examples=comparisons.EXAMPLES
    )
    remarks = _about_trace(study, any_trace=any_trace)
    other = None if kit is None else _kit_study(kit, rules, kit_queue)
    cases = comparisons.CHAPTER_5.cases()
    more = [] if other is None else comparisons.KIT.cases()
    done = steps(len(cases) + len(more))
    outcomes = run_all(study, cases, done)
    kit_outcomes = {} if other is None else run_all(other, more, done)
    tables = comparisons.tables_5(outcomes) + ([] if other is None else comparisons.tables_kit(kit_outcomes))

    def figures() -> Sequence[Drawing]:
        from simulator.experiments.thesis_charts import figures_5

        drawn = figures_5(list(outcomes.values()), "(a)", comparisons.CHAPTER_5.waited)
        if other is not None:
            drawn += figures_5(list(kit_outcomes.values()), "(b)", comparisons.KIT.waited)
        return drawn

    return Chapter(
        title="Chapter 5 again",
        tables=tables,
        outcomes=[*outcomes.values(), *kit_outcomes.values()],
        remarks=remarks,
        facts=[
            *remarks,
            *comparisons.main_finding(outcomes),
            f"Evidence: {_facts_of(study, rules)}",
            *([] if other is None else [_facts_of(other, rules)]),
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
    rules = ChapterRules(policy, placement, comparisons.CHAPTER_6.overhead)
    plain = _study_of(trace, rules, comparisons.CHAPTER_6.system, patterns=True)
    remarks = _about_trace(plain, any_trace=any_trace)
    if interleaved:
        plain = plain.with_trace(in_blocks(plain.trace))
    sets = [with_interactive_jobs(plain.trace, DATA_SETS[number - 1], seed) for number in data_sets]
    cases = comparisons.CHAPTER_6.cases()
    done = steps(len(cases) + len(data_sets) * len(comparisons.SHARES))
    study = plain.with_trace(with_patterns(plain.trace, seed))
    outcomes = run_all(study, cases, done)
    found = [
        find_best(plain.with_trace(with_patterns(more, seed)), number, done)
        for number, more in zip(data_sets, sets, strict=True)
    ]

    def figures() -> Sequence[Drawing]:
        from simulator.experiments.thesis_charts import figures_6

        return figures_6(list(outcomes.values()), found)

    return Chapter(
        title="Chapter 6 again",
        tables=[*comparisons.tables_6(outcomes), *(comparisons.survey_tables(found) if found else [])],
        outcomes=[*outcomes.values(), *found],
        remarks=remarks,
        facts=[
            *remarks,
            *comparisons.main_finding(outcomes),
            f"Evidence: {_facts_of(study, rules)} Seed {seed}.",
            MARKED,
        ],
        figures=figures,
    )


def _study_of(
    trace: Path, rules: ChapterRules, system: System, *, patterns: bool, examples: tuple[int, ...] = ()
) -> ThesisStudy:
    """Return the study of a trace on a system; raises InputError for a file that is no trace."""
    columns = cleaned(load_columns(trace), system.cores)
    return ThesisStudy(columns, system, _setting(rules, system).rules, patterns, examples)


def _kit_study(trace: Path, rules: ChapterRules, queue: int | None) -> ThesisStudy:
    """Return the study of the second trace (KIT-FH2); without ``queue`` the smaller one is interactive."""
    columns = load_columns(trace)
    queue = comparisons.smaller_queue(columns) if queue is None else queue
    columns = cleaned(columns, None, queue)
    return ThesisStudy(
        columns,
        comparisons.KIT.system,
        _setting(rules, comparisons.KIT.system).rules,
        patterns=False,
        interactive_queue=queue,
    )


def _facts_of(study: ThesisStudy, rules: ChapterRules) -> str:
    """Return what was simulated, in two sentences."""
    frame = study.trace.frame
    interactive = int((frame["queue"] == study.interactive_queue).sum())
    return (
        f"{study.trace.name}: {counted(frame.height, 'job')}, {interactive:,} interactive (queue "
        f"{study.interactive_queue}), {frame['user'].drop_nulls().n_unique()} users, on {study.system}. "
        f"Policy {rules.policy}, placement {rules.placement}, C_o = {rules.overhead}."
    )


def _about_trace(study: ThesisStudy, *, any_trace: bool) -> list[str]:
    """Return what is to be said where the trace is not the thesis's; refuse it unless ``any_trace``."""
    jobs = study.trace.frame.height
    if abs(jobs - _JOBS) <= _ALIKE * _JOBS:
        return []
    what = f"{study.trace.name} is not the thesis's trace: {counted(jobs, 'job')} that run, not {_JOBS:,}"
    if any_trace:
        return [f"{what}; the thesis's numbers are of another machine and cannot be compared here."]
    raise InputError(f"{what} (UniLu-Gaia-2014-1); --any-trace runs the experiment all the same")


def _setting(rules: ChapterRules, system: System) -> SimulationSetting:
    return setting_of(
        SimulationSpec(
            system=str(system),
            policy=rules.policy,
            overhead=rules.overhead,
            placement=rules.placement,
            instants="one-by-one",
        )
    )
