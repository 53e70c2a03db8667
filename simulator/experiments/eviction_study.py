"""CoSim's study: tables, Figs. 5 to 8 again, and the judges of its claims.

The judges of the V claims of CoSim.

V7 to V10 are what greedy and the optimum lose; V2 to V6 and V11 how long the solvers take. Times are compared
by their ratios, in orders of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

import numpy as np
import plotly.graph_objects as go
from msgspec.structs import replace
from plotly.subplots import make_subplots

from analysis import claims as rules
from analysis.charts import arrange, run_style
from analysis.claims import ClaimRow, ClaimVerdict, Judgement, estimate, fact, figures
from foundation.units import counted
from simulator.experiment_page import Drawing, ExperimentTable
from simulator.experiments.claim_study import Judged, StudyFindings, StudyRequest, WorldFigure, judged_rows
from simulator.experiments.eviction_scenarios import (
    JOBS,
    NEEDS,
    NODES,
    Theta,
    TraceFacts,
    facts_of,
    instant_of,
)
from simulator.experiments.eviction_survey import (
    FILE_SYSTEMS_GB_S,
    QUICK,
    SETTINGS,
    WHOLE,
    EvictionSetting,
    EvictionSurvey,
    MeasuredEviction,
    steps_of,
    survey,
)
from workloads.swf import load_columns

Values = dict[str, list[float]]
Judge = Callable[[EvictionSurvey], Judged]

NO_TRACE = "no trace was named"
TIMES_FASTER = 30.0
MILLISECONDS = 10.0
"""Up to here it is "milliseconds"."""
_MS = 1000.0
SMALLER = "our table is bounded by K and counts nodes in units; as Algorithm 1 is printed"
"""Why our programme is faster, before what the printed one comes to."""


def claim_rows(survey: EvictionSurvey, facts: TraceFacts | None) -> list[ClaimRow]:
    """Return the rows of V1 to V16; without a trace V12 to V14 are not comparable."""
    of_trace: dict[str, Judge] = {name: _of_trace(facts, judge) for name, judge in _JUDGES_OF_TRACE.items()}
    return judged_rows(JUDGES | of_trace | {"V15": _v15, "V16": _v16}, survey)


def by_setting(
    survey: EvictionSurvey,
    value: Callable[[MeasuredEviction], float],
    settings: Iterable[EvictionSetting] = SETTINGS,
) -> Values:
    """Return a value for each seed, by the name of the setting."""
    return {str(setting): [value(one) for one in survey.settings[setting]] for setting in settings}


def spread(values: Values) -> str:
    """Return the least and the largest mean over the seeds."""
    means = [estimate(of).mean for of in values.values()]
    return f"{figures(min(means))} to {figures(max(means))}"


def every(survey: EvictionSurvey, settings: Iterable[EvictionSetting] = SETTINGS) -> list[MeasuredEviction]:
    """Return all measurements of some settings."""
    return [one for setting in settings for one in survey.settings[setting]]


def _of(need: int) -> list[EvictionSetting]:
    return [setting for setting in SETTINGS if setting.need == need]


def _v1(survey: EvictionSurvey) -> Judged:
    alike = ended = 0
    for one in every(survey):
        ended += one.ended
        pairs = zip(one.optimum, one.backtracking, strict=False)
        alike += one.ended and all(math.isclose(best, found, abs_tol=1e-4) for best, found in pairs)
    ours = (
        f"equal in {survey.worlds_alike:,} of {survey.worlds:,} random worlds and in {alike} of the {ended} "
        "questions of which backtracking came to an end"
    )
    return fact(holds=survey.worlds_alike == survey.worlds and alike == ended), ours


def _v2(survey: EvictionSurvey) -> Judged:
    times = spread(by_setting(survey, lambda one: _MS * one.table_s))
    return fact(holds=True, note="by construction"), f"one run for all deadlines, {times} ms"


def _v3(survey: EvictionSurvey) -> Judged:
    """Judge greedy against the programme as it is printed; our table and backtracking are in the note."""

    def beyond(seconds: Callable[[MeasuredEviction], float]) -> Judgement:
        return rules.over_settings(
            by_setting(survey, lambda one: math.log10(seconds(one) / one.greedy_s / TIMES_FASTER))
        )

    judged = beyond(lambda one: one.printed_s)
    table, search = beyond(lambda one: one.table_s), beyond(lambda one: one.backtracking_s)
    whole = spread(by_setting(survey, lambda one: one.printed_s / one.greedy_s))
    tables = spread(by_setting(survey, lambda one: one.table_s / one.greedy_s))
    searches = by_setting(survey, lambda one: one.backtracking_s / one.greedy_s)
    least = figures(min(estimate(of).mean for of in searches.values()))
    note = (
        f"than our table, which is bounded by K and counts nodes in units, {tables} times: "
        f"{table.verdict}; than backtracking {least} times and more: {search.verdict}, {search.note}"
    )
    return rules.noted(judged, note), f"than the programme as printed {whole} times"


def _v4(survey: EvictionSurvey) -> Judged:
    measured = survey.settings[SETTINGS[0]]
    judged = rules.direction([math.log10(one.table_s / one.backtracking_s) for one in measured])
    printed = rules.direction([math.log10(one.printed_s / one.backtracking_s) for one in measured])
    searched, table, whole = (
        estimate([_MS * getattr(one, name) for one in measured])
        for name in ("backtracking_s", "table_s", "printed_s")
    )
    ours = f"backtracking {searched.text('ms')}, programme {table.text('ms')}"
    return replace(judged, note=f"{SMALLER} {whole.text('ms')}: {printed.verdict}"), ours


def _v5(survey: EvictionSurvey) -> Judged:
    larger = [setting for setting in SETTINGS if setting.scenario > 0 and setting.need > SETTINGS[0].need]
    judged = rules.over_settings(
        by_setting(survey, lambda one: math.log10(one.backtracking_s / one.table_s), larger)
    )
    measured = every(survey, larger)
    most = max(one.backtracking_s / one.table_s for one in measured)
    cut = sum(not one.ended for one in measured)
    ours = f"up to 10^{math.log10(most):.1f} times" + (" and more" if cut else "")
    note = f"{cut} of {len(measured)} searches were given up, their values are lower bounds"
    return rules.noted(judged, note), ours


def _v6(survey: EvictionSurvey) -> Judged:
    by_seed = zip(*survey.settings.values(), strict=True)
    worst = [max(_MS * one.whole_s for one in of) for of in by_seed]
    judged = rules.direction([MILLISECONDS - value for value in worst])
    ours = f"{estimate(worst).text('ms')}, choices in Python included; the worst {figures(max(worst))} ms"
    return replace(judged, note="on this host; the paper's is not named"), ours


def _v7(survey: EvictionSurvey) -> Judged:
    losses = by_setting(survey, lambda one: float(np.mean(one.relative)))
    most = [max(max(one.relative) for one in every(survey, _of(need))) for need in NEEDS]
    largest = ", ".join(map(figures, most))
    ours = f"{spread(losses)} node-hours in the mean over deadlines; the largest {largest}"
    return rules.over_settings(losses), ours


def _v8(survey: EvictionSurvey) -> Judged:
    slopes = {str(setting): list(survey.slopes[FILE_SYSTEMS_GB_S[0]][setting]) for setting in SETTINGS}
    judged = rules.over_settings(slopes)
    measured = every(survey)
    first = [_first_fit(one) for one in measured]
    rising = sum(one.relative[at - 1] > one.relative[0] for one, at in zip(measured, first, strict=True))
    fitting = sum(at < len(one.greedy) for one, at in zip(measured, first, strict=True))
    note = (
        f"{judged.note}; it rises in {rising} of {len(measured)} cases until greedy's dearest job can be "
        f"checkpointed in time, and falls then; in {fitting} cases that is within 15 min"
    )
    ours = f"{spread(slopes)} node-hours a minute"
    if judged.verdict is ClaimVerdict.FAILS:
        why = "fails here; the paper's jobs are in a drawing only, and the size of the dearest decides"
        judged = replace(judged, verdict=ClaimVerdict.NOT_COMPARABLE)
        note = f"{why}; {note}"
    return replace(judged, note=note), ours


def _first_fit(one: MeasuredEviction) -> int:
    """Return the first deadline at which greedy loses less than at 0; one past the last if there is none."""
    losses = enumerate(one.greedy)
    return next((at for at, loss in losses if loss < one.greedy[0] - 1e-9), len(one.greedy))


def _v9(survey: EvictionSurvey) -> Judged:
    optimum = by_setting(survey, lambda one: one.optimum[0] - one.optimum[-1])
    greedy = by_setting(survey, lambda one: one.greedy[0] - one.greedy[-1])
    falls = {f"{name}, optimum": of for name, of in optimum.items()}
    falls |= {f"{name}, greedy": of for name, of in greedy.items()}
    judged = rules.over_settings(falls)
    measured = every(survey)
    rising = sum(_rises(one.optimum) for one in measured)
    more = sum(_rises(one.greedy) for one in measured)
    note = f"{judged.note}; in between it rises in {rising} of {len(measured)} cases, greedy's in {more}"
    verdict = ClaimVerdict.FAILS if rising else judged.verdict
    ours = f"the optimum by {spread(optimum)} node-hours from 0 to 15 min; backtracking as the optimum"
    return replace(judged, verdict=verdict, note=note), ours


def _rises(losses: Sequence[float]) -> bool:
    return bool(np.any(np.diff(losses) > 1e-6))


def _v10(survey: EvictionSurvey) -> Judged:
    nothing = by_setting(survey, lambda one: float(one.optimum[-1] == 0))
    shares = [float(np.mean(of)) for of in zip(*nothing.values(), strict=True)]
    by_need = ", ".join(
        f"{np.mean([np.mean(nothing[str(setting)]) for setting in _of(need)]):.0%} for K={need:,}"
        for need in NEEDS
    )
    judged = replace(
        rules.direction([share - 0.5 for share in shares]),
        note="read as: in more than half of all cases at 15 min",
    )
    return judged, f"0 in {np.mean(shares):.0%} at 15 min: {by_need}"


def _v11(survey: EvictionSurvey) -> Judged:
    """Judge that the time is a power of each size, and the power is one."""
    judged = {name: rules.magnitude(values, 1.0) for name, values in survey.growth.items()}
    letters = {"jobs": "N", "nodes": "M", "deadline": "T"}
    ours = ", ".join(f"{letters[name]}^{one.estimate.text()}" for name, one in judged.items() if one.estimate)
    holds = all(one.verdict is ClaimVerdict.HOLDS for one in judged.values())
    return fact(holds=holds, note="exponents of the time of a whole table, over doublings of one size"), ours


def _of_trace(facts: TraceFacts | None, judge: Callable[[TraceFacts, str], Judged]) -> Judge:
    """Return the judge of a claim on the trace itself."""
    if facts is None:
        return lambda _: (rules.not_comparable(NO_TRACE), "-")
    other = f"another trace: {facts.name}, {counted(facts.jobs, 'job')} in {facts.days:.0f} days"
    return lambda _: judge(facts, other)


def _v12(facts: TraceFacts, other: str) -> Judged:
    judged = rules.not_comparable(other)
    if facts.busiest == NODES:
        judged = fact(holds=True, note=f"{other}; judged is which is the most frequent")
    busiest = f"{counted(facts.busiest, 'node')}, {facts.busiest_days:.1f} days"
    return judged, f"{busiest}; all 4,392 {facts.full_days:.1f} days"


def _v13(facts: TraceFacts, other: str) -> Judged:
    return rules.not_comparable(other), f"up to {facts.most_jobs}, 99% of the time up to {facts.common_jobs}"


def _v14(facts: TraceFacts, other: str) -> Judged:
    return rules.not_comparable(other), f"{facts.short:.0%}"


def _v15(survey: EvictionSurvey) -> Judged:
    ours = f"{survey.needs_alike:,} of {survey.needs:,} answered as by a table of their own"
    return fact(holds=survey.needs_alike == survey.needs), ours


def _v16(survey: EvictionSurvey) -> Judged:
    rests_on = [judge(survey)[0].verdict for judge in (_v6, _v7)]
    judged = Judgement(verdict=rules.worst_of(rests_on), note="the lesser of both")
    return judged, f"V6 {rests_on[0]}, V7 {rests_on[1]}"


JUDGES: dict[str, Judge] = {
    "V1": _v1,
    "V2": _v2,
    "V3": _v3,
    "V4": _v4,
    "V5": _v5,
    "V6": _v6,
    "V7": _v7,
    "V8": _v8,
    "V9": _v9,
    "V10": _v10,
    "V11": _v11,
}
_JUDGES_OF_TRACE = {"V12": _v12, "V13": _v13, "V14": _v14}


_SHOWN_MIN = (0, 5, 10, 15)


def examine(request: StudyRequest) -> StudyFindings:
    """Run the study and judge every claim."""
    theta = Theta(load_columns(request.traces[0])) if request.traces else None
    effort = QUICK if request.quick else WHOLE
    found = survey(theta, request.seeds, effort, request.steps(steps_of(request.seeds)))
    source = (
        "no trace: the jobs of all scenarios are generated"
        if theta is None
        else f"{theta.name}: scenarios 1 and 2 are instants of it, scenario 3 is generated from its sizes"
    )
    facts = [
        *learnt(found),
        f"Evidence: Eviction of K of about 4,352 nodes within 0 to 15 minutes; {source}.",
        (
            f"Memory, times and instants are drawn anew for each of the {counted(request.seeds, 'seed')}; "
            f"B_a = 250 GB/s, B_c = 1 GB/s. Backtracking has {effort.limit_s:g} s a question, "
            f"{effort.hardest_s:g} s for the first of the hardest."
        ),
    ]

    known = None if theta is None else facts_of(theta)
    return StudyFindings(
        title="CoSim again: eviction for an on-demand job",
        facts=facts,
        claims=claim_rows(found, known),
        tables=tables(found),
        figures=lambda: drawings(found),
        world=world_of(theta, known, request.seeds),
    )


def learnt(survey: EvictionSurvey) -> list[str]:
    """Return what greedy loses beyond the optimum, what each takes, and what a deadline saves."""
    lost = spread(by_setting(survey, lambda one: float(np.mean(one.relative))))
    greedy = spread(by_setting(survey, lambda one: 1e3 * _MS * one.greedy_s))
    table = spread(by_setting(survey, lambda one: _MS * one.table_s))
    search = spread(by_setting(survey, lambda one: _MS * one.backtracking_s))
    saved = spread(by_setting(survey, lambda one: one.optimum[0] - one.optimum[-1]))
    times = (
        f"Greedy eviction loses {lost} node-hours more than the optimum, by scenario and number of nodes, in "
        f"the mean over deadlines. It takes {greedy} \N{MICRO SIGN}s; the optimum for all deadlines takes "
        f"{table} ms as one table and {search} ms by backtracking."
    )
    return [times, f"A deadline of 15 minutes, which leaves time for checkpoints, saves {saved} node-hours."]


def world_of(theta: Theta | None, facts: TraceFacts | None, seeds: int) -> list[WorldFigure]:
    """Return what the paper prints of its jobs, and ours; run times are those of the trace's jobs."""
    held = [
        float(instant_of(theta, scenario, np.random.default_rng([seed, scenario])).nodes.sum())
        for seed in range(1, seeds + 1)
        for scenario in range(len(JOBS))
    ]
    found = [WorldFigure("nodes that the jobs of a scenario hold", NODES, estimate(held).mean)]
    if facts is None:
        return found
    return [
        *found,
        WorldFigure("busy nodes, most often", NODES, facts.busiest, "", frozenset({"V12"})),
        WorldFigure("jobs under 30 minutes", 61, 100 * facts.short, "%", frozenset({"V13", "V14"})),
    ]


def tables(survey: EvictionSurvey) -> list[ExperimentTable]:
    """Return what is lost, how long it takes, and what the bandwidth of a node does."""
    return [_losses(survey), _times(survey), _bandwidths(survey), _slopes(survey)]


def _losses(survey: EvictionSurvey) -> ExperimentTable:
    rows = [
        (str(setting), *(_three(survey.settings[setting], at) for at in _SHOWN_MIN)) for setting in SETTINGS
    ]
    return ExperimentTable(
        name="Loss",
        title="optimum / greedy / greedy that skips, node-hours, mean over the seeds with its 95% interval",
        columns=("setting", *(f"{at} min" for at in _SHOWN_MIN)),
        rows=rows,
        notes=("Greedy that skips passes over a job whose checkpoint does not fit, and tries the next.",),
    )


def _three(measured: Sequence[MeasuredEviction], at: int) -> str:
    solvers = (lambda one: one.optimum[at], lambda one: one.greedy[at], lambda one: one.skipping[at])
    return " / ".join(_brief(measured, losses) for losses in solvers)


_TIMES = {
    "programme": "table_s",
    "as printed": "printed_s",
    "whole answer": "whole_s",
    "greedy": "greedy_s",
    "backtracking": "backtracking_s",
}


def _times(survey: EvictionSurvey) -> ExperimentTable:
    rows = []
    for setting in SETTINGS:
        of = survey.settings[setting]
        ended = sum(one.ended for one in of)
        rows.append(
            (
                str(setting),
                *(_brief(of, attrgetter(name), _MS) for name in _TIMES.values()),
                f"{ended} of {len(of)}",
            )
        )
    return ExperimentTable(
        name="Time",
        title="ms for all deadlines, mean over the seeds with its 95% interval",
        columns=("setting", *_TIMES, "which ended"),
        rows=rows,
        notes=(
            "As printed: the table for all nodes, one by one, as Algorithm 1 has it.",
            "Whole answer: with choices, in Python.",
        ),
    )


def _bandwidths(survey: EvictionSurvey) -> ExperimentTable:
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


def _slopes(survey: EvictionSurvey) -> ExperimentTable:
    rows = []
    for width, of in survey.slopes.items():
        verdicts = [rules.direction(slopes).verdict for slopes in of.values()]
        means = [estimate(slopes).mean for slopes in of.values()]
        rows.append(
            (
                f"{width:g} GB/s",
                f"{figures(min(means))} to {figures(max(means))}",
                *(
                    str(verdicts.count(verdict))
                    for verdict in (ClaimVerdict.HOLDS, ClaimVerdict.TIE, ClaimVerdict.FAILS)
                ),
            )
        )
    return ExperimentTable(
        name="Bandwidth of the file system",
        title="by how much greedy's relative loss rises a minute, node-hours; in how many settings it rises",
        columns=("B_a", "means", "rises", "not clear", "falls"),
        rows=rows,
    )


def _brief(
    measured: Sequence[MeasuredEviction], value: Callable[[MeasuredEviction], float], scale: float = 1
) -> str:
    return estimate([scale * value(one) for one in measured]).brief()


def drawings(survey: EvictionSurvey) -> list[Drawing]:
    """Return the figures of the page."""
    return [
        ("Figure 8: greedy's loss beyond the optimum, mean over the seeds", _lines(survey, "relative")),
        ("The optimum over the deadline, mean over the seeds", _lines(survey, "optimum")),
        ("Figures 5 to 7: time for all deadlines, mean over the seeds", _times_figure(survey)),
    ]


def _lines(survey: EvictionSurvey, what: str) -> go.Figure:
    titles = [f"K={need:,}" for need in NEEDS]
    figure = make_subplots(cols=len(NEEDS), subplot_titles=titles, horizontal_spacing=0.07)
    for column, need in enumerate(NEEDS, start=1):
        for scenario in range(len(JOBS)):
            losses = np.mean(
                [getattr(one, what) for one in survey.settings[EvictionSetting(scenario, need)]], axis=0
            )
            line = go.Scatter(
                x=list(range(len(losses))),
                y=losses.tolist(),
                name=f"scenario {scenario + 1}",
                mode="lines+markers",
                line=run_style(scenario),
                showlegend=column == 1,
            )
            figure.add_trace(line, row=1, col=column)
    arrange(figure, 380, margin={"l": 64, "r": 24, "t": 76, "b": 52})
    figure.update_layout(legend={"y": 1.12})
    figure.update_xaxes(title="deadline [min]")
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title="loss [node-hours]", col=1)
    return figure


def _times_figure(survey: EvictionSurvey) -> go.Figure:
    pairs = list(zip(range(len(JOBS)), NEEDS, strict=True))
    titles = [f"scenario {scenario + 1}, K={need:,}" for scenario, need in pairs]
    figure = make_subplots(cols=len(pairs), subplot_titles=titles, horizontal_spacing=0.07)
    for column, (scenario, need) in enumerate(pairs, start=1):
        measured = survey.settings[EvictionSetting(scenario, need)]
        for number, name in enumerate(("programme", "greedy", "backtracking")):
            value_us = 1e6 * float(np.mean([getattr(one, _TIMES[name]) for one in measured]))
            cut = name == "backtracking" and not all(one.ended for one in measured)
            bar = go.Bar(
                x=[name],
                y=[value_us],
                marker={"color": run_style(number)["color"]},
                text=[f"\N{GREATER-THAN OR EQUAL TO} {figures(value_us)}" if cut else figures(value_us)],
                textposition="outside",
                cliponaxis=False,
                showlegend=False,
            )
            figure.add_trace(bar, row=1, col=column)
    arrange(figure, 380, margin={"l": 64, "r": 24, "t": 60, "b": 52})
    figure.update_yaxes(type="log", dtick=1, exponentformat="power", range=[-1, 8])
    figure.update_yaxes(title="time [\N{MICRO SIGN}s]", col=1)
    return figure
