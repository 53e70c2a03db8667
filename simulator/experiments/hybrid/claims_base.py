"""H1 to H6: EASY alone, and what the six mechanisms change."""

from __future__ import annotations

from analysis.claims import Judgement, Row, magnitude, over_settings
from simulator.experiments.hybrid.hybrid_measures import Measured
from simulator.experiments.hybrid.hybrid_survey import Survey
from simulator.experiments.hybrid.hybrid_words import (
    OTHER_TRACE,
    Value,
    against_base,
    by_setting,
    claim,
    spread,
)


def base_rows(survey: Survey) -> list[Row]:
    """Return the rows of H1 to H6."""
    return [*_table_ii(survey), _h4(survey), _h5(survey), _h6(survey)]


def _table_ii(survey: Survey) -> list[Row]:
    found: tuple[tuple[str, str, str, float, Value, str], ...] = (
        ("H1", "mean turnaround", "15.6 h", 15.6, lambda one: one.turnaround, "h"),
        ("H2", "utilisation", "83.93%", 0.8393, lambda one: one.utilisation, ""),
        ("H3", "instant-start rate", "22.69%", 0.2269, lambda one: one.instant, ""),
    )
    rows = []
    for name, quantity, told, paper, value, unit in found:
        judged = magnitude([value(one) for one in survey.base], paper, other_data=OTHER_TRACE)
        rows.append(Row.of(claim(name, "Table II", "baseline", quantity, told), judged, unit=unit))
    return rows


def _useful(one: Measured) -> float:
    return one.utilisation


def _h4(survey: Survey) -> Row:
    said = claim("H4", "Obs. 1", "six mechanisms, W1-W5", "utilisation against H2", "rises, up to 90%")
    judged = over_settings(against_base(survey, _useful))
    cause = "all jobs come to their end, so useful node time is the trace's: only the last end can differ"
    note = f"{judged.note}; {cause}"
    found = Judgement(verdict=judged.verdict, estimate=judged.estimate, note=note)
    return Row.of(said, found, spread(by_setting(survey, _useful), "%"))


def _h5(survey: Survey) -> Row:
    said = claim("H5", "Obs. 1", "six mechanisms", "instant-start rate against H3", "22% to 98%")
    judged = over_settings(against_base(survey, lambda one: one.instant))
    return Row.of(said, judged, spread(by_setting(survey, lambda one: one.instant), "%"))


def _h6(survey: Survey) -> Row:
    said = claim(
        "H6",
        "Obs. 1",
        "six mechanisms",
        "mean turnaround against H1",
        "worse, 15 h to as much as 22 h",
    )
    judged = over_settings(against_base(survey, lambda one: one.turnaround))
    return Row.of(said, judged, spread(by_setting(survey, lambda one: one.turnaround), "h"))
