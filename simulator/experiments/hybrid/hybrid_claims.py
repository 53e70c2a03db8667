"""Every H claim of Fan et al., judged."""

from __future__ import annotations

from analysis.claims import Judgement, Row
from simulator.experiments.hybrid.claims_base import base_rows
from simulator.experiments.hybrid.claims_instant import instant_rows
from simulator.experiments.hybrid.claims_mechanisms import mechanism_rows
from simulator.experiments.hybrid.claims_notices import notice_rows
from simulator.experiments.hybrid.hybrid_survey import Survey
from simulator.experiments.hybrid.hybrid_words import claim, together


def claim_rows(survey: Survey) -> list[Row]:
    """Return the rows of H1 to H30, in order."""
    found = [
        *base_rows(survey),
        *mechanism_rows(survey),
        *instant_rows(survey),
        *notice_rows(survey),
    ]
    rows = {row.id: row for row in found}
    rows["H30"] = _h30(rows)
    return sorted(rows.values(), key=lambda row: int(row.id[1:]))


def _h30(rows: dict[str, Row]) -> Row:
    said = claim(
        "H30",
        "VI",
        "summary",
        "preference",
        "CUA over CUP; SPAA over PAA in general; N&SPAA for rigid jobs",
    )
    rests_on = ("H9", "H13", "H14", "H16")
    parts = {name: Judgement(verdict=rows[name].verdict) for name in rests_on}
    judged = together(parts)
    told = ", ".join(f"{name} {rows[name].verdict.value}" for name in rests_on)
    return Row.of(said, Judgement(verdict=judged.verdict, note="the least of those that it rests on"), told)
