"""What a paper claims, what we measure over several seeds, and the verdict.

``estimate`` makes a mean with its 95% interval (Student's t), rules make a judgement of estimates, and a
``ClaimRow`` is one line of the table that ``analysis.claims_table`` shows.

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

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import TypeVar

import msgspec

from foundation.units import counted_of

CONFIDENCE = 0.95
_MOST_FREEDOM = 1000
_LARGEST_T = 1000.0


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over ``count`` seeds; ``low`` and ``high`` bound it, None for a single seed."""

    mean: float
    low: float | None
    high: float | None
    count: int

    def text(self, unit: str = "") -> str:
        """Return the mean and its interval, such as ``84 [82, 86] h``."""
        after = f" {unit}" if unit and unit != "%" else unit
        if self.low is None or self.high is None or self.low == self.high:
            return f"{figures(self.mean)}{after}"
        return f"{figures(self.mean)} [{figures(self.low)}, {figures(self.high)}]{after}"

    def brief(self, show: Callable[[float], str] | None = None) -> str:
        """Return the mean and half the length of its interval, such as ``84 ±2``, for a narrow column.

        ``show`` makes a text of each, as ``figures`` does.
        """
        show = show or figures
        if self.high is None or self.high == self.mean:
            return show(self.mean)
        return f"{show(self.mean)} \N{PLUS-MINUS SIGN}{show(self.high - self.mean)}"


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of one value a seed, with its 95% confidence interval.

    Raises
    ------
    ValueError
        There is no value, or one of them is not finite.
    """
    if not values or not all(map(math.isfinite, values)):
        raise ValueError(f"an estimate needs finite values, not {list(values)}")
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean=mean, low=None, high=None, count=1)
    # Equal values have a mean that may be off by a rounding; their interval is a point all the same.
    if min(values) == max(values):
        return Estimate(mean=values[0], low=values[0], high=values[0], count=count)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = student_t(count - 1) * math.sqrt(variance / count)
    return Estimate(mean=mean, low=mean - half, high=mean + half, count=count)


@cache
def student_t(freedom: int) -> float:
    """Return the t that a variable of so many degrees of freedom stays within with 95% probability.

    Found by halving intervals from the closed form (Abramowitz and Stegun, 26.7.3 and 26.7.4).
    """
    freedom = min(freedom, _MOST_FREEDOM)
    low, high = 0.0, _LARGEST_T
    while high - low > 1e-9:
        middle = (low + high) / 2
        if _within(middle, freedom) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def _within(t: float, freedom: int) -> float:
    """Return the probability that Student's t lies between -t and t."""
    angle = math.atan(t / math.sqrt(freedom))
    square = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for power in range(2 + odd, freedom + 1, 2):
        total += term
        term *= square * (power - 1) / power
    inner = math.sin(angle) * total
    return 2 / math.pi * (angle + inner) if odd else inner


def figures(value: float) -> str:
    """Return a number with three significant digits, or whole from 100 on."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


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


class ClaimRow(Claim, frozen=True, kw_only=True):
    """A judged claim; ``ours`` is our value in words and figures."""

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
            **msgspec.structs.asdict(claim),
            ours=ours,
            **{name: getattr(judgement, name) for name in judgement.__struct_fields__},
        )


WORST_FIRST = (ClaimVerdict.FAILS, ClaimVerdict.NOT_COMPARABLE, ClaimVerdict.TIE, ClaimVerdict.HOLDS)
"""Of several parts of a claim the first of these that occurs is the claim's verdict."""
LEAST_SEEDS = 10
"""Fewer seeds than these give verdicts that are provisional."""
NEAR = 0.2
"""A magnitude within this share of the paper's is as good as the paper's."""
ONE_POINT = 0.01
"""A difference of shares below it is no significant one."""
ONE_SEED = "one seed has no interval"
NameT = TypeVar("NameT")


def differences(more: Sequence[float], less: Sequence[float], sign: float = 1.0) -> list[float]:
    """Return the differences seed by seed, each times ``sign``."""
    return [sign * (one - other) for one, other in zip(more, less, strict=True)]


def worst_of(verdicts: Iterable[ClaimVerdict]) -> ClaimVerdict:
    """Return the verdict of a claim that has several parts, all of which must hold."""
    return min(verdicts, key=WORST_FIRST.index)


def weakest(parts: Mapping[NameT, Judgement]) -> tuple[NameT, Judgement]:
    """Return the first part of a claim that has its verdict; all of the parts must hold."""
    return min(parts.items(), key=lambda part: WORST_FIRST.index(part[1].verdict))


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
    judged = direction(differences(values[named], values[rival], sign))
    word = "next" if means[named] >= means[rival] else "first"
    return msgspec.structs.replace(judged, note=f"{word}: {rival}")


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


def noted(judged: Judgement, note: str) -> Judgement:
    """Return a judgement with more to say."""
    return msgspec.structs.replace(judged, note="; ".join(filter(None, (judged.note, note))))


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
