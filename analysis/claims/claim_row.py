"""One line of a table of claims: what the paper says, what we have, and the verdict."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from analysis.claims.estimate import Estimate


class ClaimVerdict(StrEnum):
    """What becomes of a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    TIE = "tie"
    NOT_COMPARABLE = "not comparable"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of a paper.

    Parameters
    ----------
    id
        Such as ``V1``.
    where
        Section, table or figure.
    setting, quantity
        Of what it speaks.
    paper
        The paper's value or direction.
    """

    id: str
    where: str
    setting: str
    quantity: str
    paper: str


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict, what it rests on, and why or how near."""

    verdict: ClaimVerdict
    estimate: Estimate | None = None
    note: str = ""


class ClaimRow(msgspec.Struct, frozen=True, kw_only=True):
    """A judged claim; ``ours`` is our value in words and figures."""

    id: str
    where: str
    setting: str
    quantity: str
    paper: str
    ours: str
    estimate: Estimate | None
    verdict: ClaimVerdict
    note: str

    @classmethod
    def of(cls, claim: Claim, judgement: Judgement, ours: str = "", unit: str = "") -> ClaimRow:
        """Return the row of a judged claim; without words of ours it shows the estimate."""
        if not ours:
            ours = judgement.estimate.text(unit) if judgement.estimate else "-"
        return cls(
            id=claim.id,
            where=claim.where,
            setting=claim.setting,
            quantity=claim.quantity,
            paper=claim.paper,
            ours=ours,
            estimate=judgement.estimate,
            verdict=judgement.verdict,
            note=judgement.note,
        )
