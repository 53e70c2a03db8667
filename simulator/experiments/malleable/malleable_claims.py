"""Every M claim, judged on the windows that there are.

None of the windows is the paper's, so directions are judged and magnitudes are told; the rows say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from analysis.claims import Judgement, Row, not_comparable
from simulator.experiments.malleable import claims_all, claims_many_jobs, claims_theta
from simulator.experiments.malleable.malleable_survey import Outcomes
from simulator.experiments.malleable.malleable_words import OF_ALL, OF_ONE, THETA

MADE = "without TRACE a window is made"
NO_TRACE = "no window of THETA: name a trace that stands for it"


def claim_rows(found: Mapping[str, Outcomes]) -> list[Row]:
    """Return the rows of M1 to M32, from the outcomes of the systems' windows."""
    judges = claims_many_jobs.JUDGES | claims_theta.JUDGES
    rows = []
    for system, claims in OF_ONE.items():
        for claim in claims:
            if system in found:
                judgement, ours = judges[claim.id](found[system])
                rows.append(Row.of(claim, _on(judgement, [found[system]]), ours))
            else:
                why = NO_TRACE if system == THETA else f"no window of {system}: {MADE}"
                rows.append(Row.of(claim, not_comparable(why)))
    for claim in OF_ALL:
        why = _missing(claim.id, found)
        if why:
            rows.append(Row.of(claim, not_comparable(why)))
        else:
            judgement, ours = claims_all.JUDGES[claim.id](found)
            rows.append(Row.of(claim, _on(judgement, found.values()), ours))
    return rows


def _missing(claim: str, found: Mapping[str, Outcomes]) -> str:
    """Return why a claim on several systems cannot be judged; empty if it can be."""
    if claim == "M28" and THETA not in found:
        return NO_TRACE
    if claim == "M29" and set(found) == {THETA}:
        return f"no window but THETA's: {MADE}"
    return ""


def _on(judgement: Judgement, windows: Iterable[Outcomes]) -> Judgement:
    """Return the judgement with what it was judged on."""
    names = ", ".join(f"{one.window.name} {'made' if one.window.is_made else 'for THETA'}" for one in windows)
    told = f"{judgement.note}; " if judgement.note else ""
    return msgspec.structs.replace(judgement, note=f"{told}direction only, on {names}")
