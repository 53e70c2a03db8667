"""What a paper claims, what we measure over several seeds, and the verdict; for terminal, page and JSON.

``estimate`` makes a mean with its interval, ``rules`` says when a claim holds, ``row`` is one line of the
table, ``table`` and ``page`` show it.
"""

from analysis.claims.claim_row import Claim, ClaimRow, ClaimVerdict, Judgement
from analysis.claims.claim_rules import (
    LEAST_SEEDS,
    best_of,
    direction,
    fact,
    magnitude,
    no_difference,
    not_comparable,
    over_settings,
)
from analysis.claims.estimate import Estimate, estimate

__all__ = [
    "LEAST_SEEDS",
    "Claim",
    "ClaimRow",
    "ClaimVerdict",
    "Estimate",
    "Judgement",
    "best_of",
    "direction",
    "estimate",
    "fact",
    "magnitude",
    "no_difference",
    "not_comparable",
    "over_settings",
]
