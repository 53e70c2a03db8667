"""When a claim holds, fails, is a tie, or cannot be compared.

The papers give no tests of significance, so one rule judges all claims. A *direction* holds when the mean
difference over the seeds, at least ten of them, has that sign and its 95% confidence interval excludes zero;
it fails when the interval lies on the other side; else it is a tie. *The best of several* is first in the
mean, and a tie if the interval of its difference to the next includes zero. *In most cases* means in more
than half of the settings. *No significant difference* means that the interval includes zero, or that the
difference is under one percentage point. A *magnitude* is printed with its relative difference, and judged
only on the paper's own data: it holds when it lies in our interval or within a fifth. A failure is a result:
its row tells the setting that comes nearest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.claims.claim_row import ClaimVerdict, Judgement
from analysis.claims.estimate import Estimate, estimate, figures
from foundation.units import counted_of

LEAST_SEEDS = 10
"""Fewer seeds than these give verdicts that are provisional."""
NEAR = 0.2
"""A magnitude within this share of the paper's is as good as the paper's."""
ONE_POINT = 0.01
"""A difference of shares below it is no significant one."""
ONE_SEED = "one seed has no interval"


def direction(differences: Sequence[float]) -> Judgement:
    """Judge a direction by one difference a seed, positive where the paper is right."""
    found = estimate(differences)
    return Judgement(verdict=_side(found), estimate=found, note=ONE_SEED if found.low is None else "")


def over_settings(settings: Mapping[str, Sequence[float]], *, most: bool = False) -> Judgement:
    """Judge a direction in several settings.

    Parameters
    ----------
    settings
        One difference a seed for each setting, positive where the paper is right.
    most
        Whether more than half of the settings suffice ("in most cases"); else all must hold.

    Returns
    -------
    Judgement
        Its estimate is that of the setting that comes nearest where the claim fails, and else of the setting
        where it is least clear.
    """
    judged = {name: direction(values) for name, values in settings.items()}
    verdict = _together([one.verdict for one in judged.values()], most=most)
    pick = max if verdict is ClaimVerdict.FAILS else min
    name, shown = pick(judged.items(), key=lambda item: _clearness(item[1]))
    held = sum(one.verdict is ClaimVerdict.HOLDS for one in judged.values())
    word = "nearest" if verdict is ClaimVerdict.FAILS else "least clear"
    note = f"{counted_of(held, len(judged), 'setting')}; {word}: {name}"
    return Judgement(verdict=verdict, estimate=shown.estimate, note=note)


def best_of(values: Mapping[str, Sequence[float]], named: str, *, lowest: bool) -> Judgement:
    """Judge whether the named one is the lowest (or highest) of several; seeds are paired.

    The estimate is the named one's lead over the best other, negative if it is behind.
    """
    sign = -1.0 if lowest else 1.0
    means = {name: sign * estimate(of).mean for name, of in values.items()}
    rival = max((name for name in values if name != named), key=lambda name: means[name])
    pairs = zip(values[named], values[rival], strict=True)
    judged = direction([sign * (mine - other) for mine, other in pairs])
    word = "next" if means[named] >= means[rival] else "first"
    return Judgement(verdict=judged.verdict, estimate=judged.estimate, note=f"{word}: {rival}")


def no_difference(differences: Sequence[float], margin: float = ONE_POINT) -> Judgement:
    """Judge that there is no significant difference, by one difference a seed."""
    found = estimate(differences)
    alike = abs(found.mean) < margin or _side(found) is ClaimVerdict.TIE
    return Judgement(verdict=ClaimVerdict.HOLDS if alike else ClaimVerdict.FAILS, estimate=found)


def magnitude(values: Sequence[float], paper: float, *, other_data: str = "") -> Judgement:
    """Judge a magnitude against the paper's; ``other_data`` says why it is not to be judged, if so."""
    found = estimate(values)
    off = found.mean - paper if paper == 0 else (found.mean - paper) / abs(paper)
    difference = f"{figures(off)} more" if paper == 0 else f"{off:+.0%}"
    if other_data:
        return Judgement(
            verdict=ClaimVerdict.NOT_COMPARABLE, estimate=found, note=f"{difference}; {other_data}"
        )
    inside = found.low is not None and found.high is not None and found.low <= paper <= found.high
    near = inside or abs(off) <= (0 if paper == 0 else NEAR)
    return Judgement(
        verdict=ClaimVerdict.HOLDS if near else ClaimVerdict.FAILS, estimate=found, note=difference
    )


def fact(*, holds: bool, note: str = "", found: Estimate | None = None) -> Judgement:
    """Judge what has no chance in it: it holds or it fails."""
    return Judgement(verdict=ClaimVerdict.HOLDS if holds else ClaimVerdict.FAILS, estimate=found, note=note)


def not_comparable(reason: str, values: Sequence[float] = ()) -> Judgement:
    """Say why a claim cannot be judged, and what we have all the same."""
    return Judgement(
        verdict=ClaimVerdict.NOT_COMPARABLE, estimate=estimate(values) if values else None, note=reason
    )


def _side(found: Estimate) -> ClaimVerdict:
    if found.low is None or found.high is None:
        return ClaimVerdict.NOT_COMPARABLE
    if found.low > 0:
        return ClaimVerdict.HOLDS
    return ClaimVerdict.FAILS if found.high < 0 else ClaimVerdict.TIE


def _together(verdicts: Sequence[ClaimVerdict], *, most: bool) -> ClaimVerdict:
    if ClaimVerdict.NOT_COMPARABLE in verdicts:
        return ClaimVerdict.NOT_COMPARABLE
    holds = verdicts.count(ClaimVerdict.HOLDS)
    ties = verdicts.count(ClaimVerdict.TIE)
    enough = len(verdicts) / 2 if most else len(verdicts) - 1
    if holds > enough:
        return ClaimVerdict.HOLDS
    return ClaimVerdict.TIE if holds + ties > enough else ClaimVerdict.FAILS


def _clearness(judged: Judgement) -> float:
    """Return how far a setting is on the paper's side, in half-widths of its interval."""
    found = judged.estimate
    if found is None or found.low is None or found.high is None:
        return 0.0
    half = (found.high - found.low) / 2
    if half == 0:
        return 0.0 if found.mean == 0 else float("inf") if found.mean > 0 else float("-inf")
    return found.mean / half
