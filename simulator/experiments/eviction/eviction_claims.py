"""Every V claim of CoSim, judged.

V7 to V10 are what greedy and the optimum lose; V2 to V6 and V11 how long the solvers take. Times are compared
by their ratios, in orders of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
from msgspec.structs import replace

from analysis.claims import (
    Claim,
    Judgement,
    Row,
    Verdict,
    direction,
    estimate,
    fact,
    magnitude,
    not_comparable,
    over_settings,
)
from analysis.claims.estimate import figures
from foundation.units import counted
from simulator.experiments.eviction.eviction_survey import FILE_SYSTEMS_GB_S, SETTINGS, Setting, Survey
from simulator.experiments.eviction.scenarios import NEEDS, NODES
from simulator.experiments.eviction.solver_measures import Measured
from simulator.experiments.eviction.trace_facts import Facts

NO_TRACE = "no trace was named"

AXES = {512: 125, 1024: 400, 2048: 800}
"""Where the axes of Fig. 8 end, node-hours."""

TIMES_FASTER = 30.0
MILLISECONDS = 10.0
"""Up to here it is "milliseconds"."""
_MS = 1000.0
SMALLER = "our table is bounded by K and counts nodes in units; as Algorithm 1 is printed"
"""Why our programme is faster, before what the printed one comes to."""


def claim_rows(survey: Survey, facts: Facts | None) -> list[Row]:
    """Return the rows of V1 to V16; without a trace V12 to V14 are not comparable."""
    found = [
        _v1(survey),
        *time_rows(survey),
        *loss_rows(survey),
        growth_row(survey),
        *_trace_rows(facts),
        _v15(survey),
    ]
    verdict = {row.id: row.verdict for row in found}
    said = claim("V16", "VI", "conclusions 1 and 2", "trade-off", "optimum in ms; greedy's loss does not pay")
    rests_on = [verdict["V6"], verdict["V7"]]
    worst = next(
        (one for one in (Verdict.FAILS, Verdict.NOT_COMPARABLE, Verdict.TIE) if one in rests_on), None
    )
    judged = Judgement(verdict=worst or Verdict.HOLDS, note="the lesser of both")
    return [*found, Row.of(said, judged, f"V6 {verdict['V6']}, V7 {verdict['V7']}")]


def _v1(survey: Survey) -> Row:
    said = claim("V1", "IV-C, IV-E", "all", "loss of the programme against backtracking", "equal everywhere")
    alike = ended = 0
    for one in (one for of in survey.settings.values() for one in of):
        ended += one.ended
        pairs = zip(one.optimum, one.backtracking, strict=False)
        alike += one.ended and all(math.isclose(best, found, abs_tol=1e-4) for best, found in pairs)
    ours = (
        f"equal in {survey.worlds_alike:,} of {survey.worlds:,} random worlds and in {alike} of the {ended} "
        "questions of which backtracking came to an end"
    )
    return Row.of(said, fact(holds=survey.worlds_alike == survey.worlds and alike == ended), ours)


def _v15(survey: Survey) -> Row:
    said = claim("V15", "III-C", "one solution", "other node counts 0..M", "come with the same table")
    ours = f"{survey.needs_alike:,} of {survey.needs:,} answered as by a table of their own"
    return Row.of(said, fact(holds=survey.needs_alike == survey.needs), ours)


def _trace_rows(facts: Facts | None) -> list[Row]:
    occupancy = claim(
        "V12",
        "IV-A",
        "Theta 2019, 91,217 jobs",
        "most frequent occupancy",
        "4,352 nodes, 34 days; all 4,392 1.5 days",
    )
    running = claim("V13", "IV-A", "Theta 2019 near capacity", "running jobs", "up to about 25")
    short = claim("V14", "IV-A", "Theta 2019", "jobs under 30 minutes", "61%")
    if facts is None:
        return [Row.of(one, not_comparable(NO_TRACE)) for one in (occupancy, running, short)]
    other = f"another trace: {facts.name}, {counted(facts.jobs, 'job')} in {facts.days:.0f} days"
    same = facts.busiest == NODES
    return [
        Row.of(
            occupancy,
            fact(holds=True, note=f"{other}; judged is which is the most frequent")
            if same
            else not_comparable(other),
            f"{counted(facts.busiest, 'node')}, {facts.busiest_days:.1f} days; all 4,392 "
            f"{facts.full_days:.1f} days",
        ),
        Row.of(
            running,
            not_comparable(other),
            f"up to {facts.most_jobs}, 99% of the time up to {facts.common_jobs}",
        ),
        Row.of(short, not_comparable(other), f"{facts.short:.0%}"),
    ]


def loss_rows(survey: Survey) -> list[Row]:
    """Return the rows of V7 to V10."""
    return [_v7(survey), _v8(survey), _v9(survey), _v10(survey)]


def _v7(survey: Survey) -> Row:
    axes = ", ".join(str(end) for end in AXES.values())
    said = claim(
        "V7",
        "IV-E, Fig. 8",
        "every setting",
        "greedy's relative loss",
        f"positive; axes to {axes} node-hours",
    )
    judged = over_settings(by_setting(survey, lambda one: float(np.mean(one.relative))))
    most = {
        need: max(max(one.relative) for setting in _of(need) for one in survey.settings[setting])
        for need in NEEDS
    }
    largest = ", ".join(figures(value) for value in most.values())
    lowest = means(by_setting(survey, lambda one: float(np.mean(one.relative))))
    ours = (
        f"{figures(min(lowest.values()))} to {figures(max(lowest.values()))} node-hours in the mean over "
        f"deadlines; the largest {largest}"
    )
    return Row.of(said, judged, ours)


def _v8(survey: Survey) -> Row:
    said = claim(
        "V8",
        "IV-E, Fig. 8",
        "all but scenario 3 with T > 13",
        "greedy's relative loss over the deadline",
        "rises",
    )
    slopes = {str(setting): survey.slopes[FILE_SYSTEMS_GB_S[0]][setting] for setting in SETTINGS}
    judged = over_settings(slopes)
    every = [one for of in survey.settings.values() for one in of]
    first = [_first_fit(one) for one in every]
    rising = sum(one.relative[at - 1] > one.relative[0] for one, at in zip(every, first, strict=True))
    fitting = sum(at < len(one.greedy) for one, at in zip(every, first, strict=True))
    note = (
        f"{judged.note}; it rises in {rising} of {len(every)} cases until greedy's dearest job can be "
        f"checkpointed in time, and falls then; in {fitting} cases that is within 15 min"
    )
    found = {name: estimate(of).mean for name, of in slopes.items()}
    ours = f"{figures(min(found.values()))} to {figures(max(found.values()))} node-hours a minute"
    return Row.of(said, replace(judged, note=note), ours)


def _first_fit(one: Measured) -> int:
    """Return the first deadline at which greedy loses less than at 0; one past the last if there is none."""
    losses = enumerate(one.greedy)
    return next((at for at, loss in losses if loss < one.greedy[0] - 1e-9), len(one.greedy))


def _v9(survey: Survey) -> Row:
    said = claim("V9", "IV-E", "all three approaches", "least loss over the deadline", "falls")
    falls = {
        f"{name}, {solver}": values
        for solver, of in (
            ("optimum", by_setting(survey, lambda one: one.optimum[0] - one.optimum[-1])),
            ("greedy", by_setting(survey, lambda one: one.greedy[0] - one.greedy[-1])),
        )
        for name, values in of.items()
    }
    judged = over_settings(falls)
    every = [one for of in survey.settings.values() for one in of]
    rising = sum(bool(np.any(np.diff(one.optimum) > 1e-6)) for one in every)
    greedy = sum(bool(np.any(np.diff(one.greedy) > 1e-6)) for one in every)
    verdict = Verdict.FAILS if rising else judged.verdict
    note = f"{judged.note}; in between it rises in {rising} of {len(every)} cases, greedy's in {greedy}"
    optimum = means(by_setting(survey, lambda one: one.optimum[0] - one.optimum[-1]))
    ours = (
        f"the optimum by {figures(min(optimum.values()))} to {figures(max(optimum.values()))} node-hours "
        "from 0 to 15 min; backtracking as the optimum"
    )
    return Row.of(said, Judgement(verdict=verdict, estimate=judged.estimate, note=note), ours)


def _v10(survey: Survey) -> Row:
    said = claim("V10", "IV-E", "larger deadlines", "optimal loss", "often 0")
    nothing = by_setting(survey, lambda one: float(one.optimum[-1] == 0))
    seeds = range(len(next(iter(nothing.values()))))
    shares = [float(np.mean([of[seed] for of in nothing.values()])) for seed in seeds]
    judged = direction([share - 0.5 for share in shares])
    by_need = ", ".join(
        f"{np.mean([np.mean(nothing[str(setting)]) for setting in _of(need)]):.0%} for K={need:,}"
        for need in NEEDS
    )
    note = "read as: in more than half of all cases at 15 min"
    return Row.of(said, replace(judged, note=note), f"0 in {np.mean(shares):.0%} at 15 min: {by_need}")


def _of(need: int) -> list[Setting]:
    return [setting for setting in SETTINGS if setting.need == need]


def time_rows(survey: Survey) -> list[Row]:
    """Return the rows of V2 to V6."""
    return [_v2(survey), _v3(survey), _v4(survey), _v5(survey), _v6(survey)]


def growth_row(survey: Survey) -> Row:
    """Return the row of V11: the time is a power of each size, and the power is one."""
    said = claim("V11", "III-C", "all", "complexity", "proportional to N, to M and to T")
    judged = {name: magnitude(values, 1.0) for name, values in survey.growth.items()}
    letters = {"jobs": "N", "nodes": "M", "deadline": "T"}
    ours = ", ".join(f"{letters[name]}^{one.estimate.text()}" for name, one in judged.items() if one.estimate)
    holds = all(one.verdict is Verdict.HOLDS for one in judged.values())
    note = "exponents of the time of a whole table, over doublings of one size"
    return Row.of(said, fact(holds=holds, note=note), ours)


def _v2(survey: Survey) -> Row:
    times = means(by_setting(survey, lambda one: _MS * one.table_s))
    said = claim("V2", "IV-E, Figs. 5-7", "any scenario", "programme's response over deadlines", "constant")
    ours = f"one run for all deadlines, {figures(min(times.values()))} to {figures(max(times.values()))} ms"
    return Row.of(said, fact(holds=True, note="by construction"), ours)


def _v3(survey: Survey) -> Row:
    said = claim("V3", "IV-E", "any scenario", "greedy's accumulated response", "30 times faster than both")
    judged = over_settings(_log_ratios(survey, lambda one: one.table_s))
    printed = over_settings(_log_ratios(survey, lambda one: one.printed_s))
    tables = means(by_setting(survey, lambda one: one.table_s / one.greedy_s))
    whole = means(by_setting(survey, lambda one: one.printed_s / one.greedy_s))
    searches = means(by_setting(survey, lambda one: one.backtracking_s / one.greedy_s))
    ours = (
        f"than the programme {figures(min(tables.values()))} to {figures(max(tables.values()))} times, than "
        f"backtracking {figures(min(searches.values()))} times and more"
    )
    note = (
        f"{judged.note}; {SMALLER} {figures(min(whole.values()))} to {figures(max(whole.values()))} times: "
        f"{printed.verdict}"
    )
    return Row.of(said, replace(judged, note=note), ours)


def _log_ratios(survey: Survey, programme_s: Callable[[Measured], float]) -> dict[str, list[float]]:
    """Return by how many orders of magnitude greedy is faster than 30 times, than each of the others."""
    others = {"programme": programme_s, "backtracking": lambda one: one.backtracking_s}
    return {
        f"{name}, {other}": values
        for other, seconds in others.items()
        for name, values in by_setting(
            survey,
            lambda one, of=seconds: math.log10(of(one) / one.greedy_s / TIMES_FASTER),  # type: ignore[misc]
        ).items()
    }


def _v4(survey: Survey) -> Row:
    first = SETTINGS[0]
    said = claim(
        "V4", "IV-E, Fig. 5", str(first), "backtracking against the programme", "backtracking faster"
    )
    measured = survey.settings[first]
    judged = direction([math.log10(one.table_s / one.backtracking_s) for one in measured])
    printed = direction([math.log10(one.printed_s / one.backtracking_s) for one in measured])
    searched, table, whole = (
        estimate([_MS * getattr(one, name) for one in measured])
        for name in ("backtracking_s", "table_s", "printed_s")
    )
    ours = f"backtracking {searched.text('ms')}, programme {table.text('ms')}"
    return Row.of(said, replace(judged, note=f"{SMALLER} {whole.text('ms')}: {printed.verdict}"), ours)


def _v5(survey: Survey) -> Row:
    said = claim(
        "V5",
        "IV-E, Figs. 6, 7",
        "scenarios 2, 3, larger K",
        "the programme",
        "faster, up to 5 orders of magnitude",
    )
    larger = [setting for setting in SETTINGS if setting.scenario > 0 and setting.need > SETTINGS[0].need]
    judged = over_settings(
        by_setting(survey, lambda one: math.log10(one.backtracking_s / one.table_s), larger)
    )
    every = [one for setting in larger for one in survey.settings[setting]]
    most = max(every, key=lambda one: one.backtracking_s / one.table_s)
    cut = sum(not one.ended for one in every)
    ours = f"up to 10^{math.log10(most.backtracking_s / most.table_s):.1f} times" + (
        " and more" if cut else ""
    )
    note = f"{judged.note}; {cut} of {len(every)} searches were given up, theirs are lower bounds"
    return Row.of(said, replace(judged, note=note), ours)


def _v6(survey: Survey) -> Row:
    said = claim("V6", "IV-E, VI", "worst case", "programme's response", "milliseconds")
    seeds = range(len(next(iter(survey.settings.values()))))
    worst = [max(_MS * of[seed].whole_s for of in survey.settings.values()) for seed in seeds]
    judged = direction([MILLISECONDS - value for value in worst])
    ours = f"{estimate(worst).text('ms')}, choices in Python included; the worst {figures(max(worst))} ms"
    note = "on this host; the paper's is not named"
    return Row.of(said, replace(judged, note=note), ours)


def claim(identifier: str, where: str, setting: str, quantity: str, paper: str) -> Claim:
    """Return a claim."""
    return Claim(id=identifier, where=where, setting=setting, quantity=quantity, paper=paper)


def by_setting(
    survey: Survey, value: Callable[[Measured], float], settings: Iterable[Setting] = SETTINGS
) -> dict[str, list[float]]:
    """Return a value for each seed, by the name of the setting."""
    return {str(setting): [value(one) for one in survey.settings[setting]] for setting in settings}


def means(values: dict[str, list[float]]) -> dict[str, float]:
    """Return the means over the seeds."""
    return {name: estimate(of).mean for name, of in values.items()}
