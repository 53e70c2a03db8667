"""V2 to V6 and V11: how long the solvers take. Times are compared by their ratios, in orders of magnitude."""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec.structs import replace

from analysis.claims import Row, Verdict, direction, estimate, fact, magnitude, over_settings
from analysis.claims.estimate import figures
from simulator.experiments.eviction.eviction_survey import SETTINGS, Survey
from simulator.experiments.eviction.eviction_words import by_setting, claim, means
from simulator.experiments.eviction.solver_measures import Measured

TIMES_FASTER = 30.0
MILLISECONDS = 10.0
"""Up to here it is "milliseconds"."""
_MS = 1000.0
SMALLER = "our table is bounded by K and counts nodes in units; as Algorithm 1 is printed"
"""Why our programme is faster, before what the printed one comes to."""


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
