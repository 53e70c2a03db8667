"""The figures behind the claims, as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analysis.claims import Verdict, direction, estimate
from analysis.claims.estimate import figures
from simulator.experiments.eviction.eviction_survey import SETTINGS, Survey
from simulator.experiments.eviction.solver_measures import Measured
from simulator.experiments.paper_tables import ExperimentTable

_SHOWN_MIN = (0, 5, 10, 15)


def tables(survey: Survey) -> list[ExperimentTable]:
    """Return what is lost, how long it takes, and what the bandwidth of a node does."""
    return [_losses(survey), _times(survey), _bandwidths(survey), _slopes(survey)]


def _losses(survey: Survey) -> ExperimentTable:
    rows = [
        (str(setting), *(_three(survey.settings[setting], at) for at in _SHOWN_MIN)) for setting in SETTINGS
    ]
    return ExperimentTable(
        name="Loss",
        title="optimum / greedy / greedy that skips, node-hours, mean over the seeds",
        columns=("setting", *(f"{at} min" for at in _SHOWN_MIN)),
        rows=rows,
        notes=("Greedy that skips passes over a job whose checkpoint does not fit, and tries the next.",),
    )


def _three(measured: Sequence[Measured], at: int) -> str:
    losses = (
        _mean(measured, lambda one: one.optimum[at]),
        _mean(measured, lambda one: one.greedy[at]),
        _mean(measured, lambda one: one.skipping[at]),
    )
    return " / ".join(map(figures, losses))


def _times(survey: Survey) -> ExperimentTable:
    rows = []
    for setting in SETTINGS:
        of = survey.settings[setting]
        ended = sum(one.ended for one in of)
        rows.append(
            (
                str(setting),
                figures(1e3 * _mean(of, lambda one: one.table_s)),
                figures(1e3 * _mean(of, lambda one: one.printed_s)),
                figures(1e3 * _mean(of, lambda one: one.whole_s)),
                figures(1e3 * _mean(of, lambda one: one.greedy_s)),
                figures(1e3 * _mean(of, lambda one: one.backtracking_s)),
                f"{ended} of {len(of)}",
            )
        )
    return ExperimentTable(
        name="Time",
        title="ms for all deadlines, mean over the seeds",
        columns=(
            "setting",
            "programme",
            "as printed",
            "whole answer",
            "greedy",
            "backtracking",
            "which ended",
        ),
        rows=rows,
        notes=(
            "As printed: the table for all nodes, one by one, as Algorithm 1 has it.",
            "Whole answer: with choices, in Python.",
        ),
    )


def _bandwidths(survey: Survey) -> ExperimentTable:
    rows = []
    for width, pairs in survey.bandwidths.items():
        name = "unlimited" if width is None else f"{width:g} GB/s"
        best, more = ([pair[place] for pair in pairs] for place in (0, 1))
        rows.append((name, estimate(best).text(), estimate(more).text()))
    return ExperimentTable(
        name="Bandwidth of a node",
        title="node-hours at 15 min, mean over the nine settings",
        columns=("B_c", "optimum", "greedy beyond it"),
        rows=rows,
    )


def _slopes(survey: Survey) -> ExperimentTable:
    rows = []
    for width, of in survey.slopes.items():
        verdicts = [direction(slopes).verdict for slopes in of.values()]
        means = [estimate(slopes).mean for slopes in of.values()]
        rows.append(
            (
                f"{width:g} GB/s",
                f"{figures(min(means))} to {figures(max(means))}",
                *(str(verdicts.count(verdict)) for verdict in (Verdict.HOLDS, Verdict.TIE, Verdict.FAILS)),
            )
        )
    return ExperimentTable(
        name="Bandwidth of the file system",
        title="by how much greedy's relative loss rises a minute, node-hours; in how many settings it rises",
        columns=("B_a", "means", "rises", "not clear", "falls"),
        rows=rows,
    )


def _mean(measured: Sequence[Measured], value: Callable[[Measured], float]) -> float:
    return estimate([value(one) for one in measured]).mean
