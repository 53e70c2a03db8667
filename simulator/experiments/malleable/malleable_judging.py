"""How findings on one window are judged: gains over rigid jobs, steps of the share, strategies compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean

from analysis.claims import Judgement, Verdict, estimate, over_settings
from simulator.experiments.malleable.malleable_survey import SHARES, STRATEGIES, Outcomes

NAMES = {
    "malleable-min": "MIN",
    "malleable-pref": "PREF",
    "malleable-avg": "AVG",
    "malleable-keep-pref": "KEEPPREF",
}
"""As the paper calls them."""
MIN, PREF, AVG, KEEP = STRATEGIES
RIGID_SHARE, FEW, ALL = 0, SHARES[0], SHARES[-1]
NEAR = 0.2
"""What changes by less than this share of itself is steady."""
HIGHER_IS_BETTER = ("utilisation",)
METRICS = ("turnaround_s", "run_s", "wait_s", "utilisation")
OPERATIONS = ("expansions", "shrinks")

Settings = dict[str, list[float]]
Judged = tuple[Judgement, str]
"""A judgement, and what we have, in words."""
Judge = Callable[[Outcomes], Judged]


def better_by(
    found: Outcomes, metric: str, policy: str, share: int = ALL, than: int = RIGID_SHARE
) -> list[float]:
    """Return by how much a metric is better at a share than at another, a value a seed."""
    sign = 1 if metric in HIGHER_IS_BETTER else -1
    pairs = zip(found.values(metric, policy, share), found.values(metric, policy, than), strict=True)
    return [sign * (mine - other) for mine, other in pairs]


def gains(found: Outcomes, metric: str, policy: str, share: int = ALL) -> list[float]:
    """Return the change of a metric in percent of its value with rigid jobs, a value a seed."""
    pairs = zip(found.values(metric, policy, share), found.values(metric, policy, RIGID_SHARE), strict=True)
    return [100 * (mine / rigid - 1) if rigid else 0.0 for mine, rigid in pairs]


def best(found: Outcomes, metric: str, share: int = ALL) -> str:
    """Return the strategy with the best mean of a metric."""
    return max(STRATEGIES, key=lambda policy: fmean(better_by(found, metric, policy, share)))


def change_text(found: Outcomes, metric: str, policy: str, share: int = ALL) -> str:
    """Return a metric with rigid jobs and at a share, and the change, with its interval, in words."""
    rigid = fmean(found.values(metric, policy, RIGID_SHARE))
    mine = fmean(found.values(metric, policy, share))
    change = estimate(gains(found, metric, policy, share)).text("%")
    return f"{NAMES[policy]}: {value_text(metric, rigid)} to {value_text(metric, mine)}, {change}"


def value_text(metric: str, value: float) -> str:
    """Return a value with its unit."""
    if metric == "utilisation":
        return f"{value:.1%}"
    if metric.endswith("_s"):
        return f"{value:,.0f} s" if value >= 10 else f"{value:.2g} s"
    return f"{value:.3g}"


def every_step(found: Outcomes, metric: str, policy: str) -> Judgement:
    """Judge that a metric gets better with every step of the share."""
    steps = pairwise((RIGID_SHARE, *SHARES))
    return over_settings(
        {f"{before} to {after}%": better_by(found, metric, policy, after, before) for before, after in steps}
    )


def compared(
    found: Outcomes, metric: str, share: int, more: str, less: str, factor: float = 1.0
) -> list[float]:
    """Return by how much one strategy's metric exceeds a multiple of another's, a value a seed."""
    pairs = zip(found.values(metric, more, share), found.values(metric, less, share), strict=True)
    return [one - factor * other for one, other in pairs]


def falls(found: Outcomes, metric: str, policy: str, since: int = FEW, until: int = ALL) -> list[float]:
    """Return by how much a metric falls from a share to another, a value a seed."""
    pairs = zip(found.values(metric, policy, since), found.values(metric, policy, until), strict=True)
    return [before - after for before, after in pairs]


def beyond_steady(found: Outcomes, metric: str, policy: str) -> list[float]:
    """Return by how much a metric falls from few to all malleable beyond what is steady."""
    pairs = zip(found.values(metric, policy, FEW), found.values(metric, policy, ALL), strict=True)
    return [(1 - NEAR) * before - after for before, after in pairs]


def within_steady(found: Outcomes, metric: str, policy: str) -> list[float]:
    """Return by how much a metric stays within what is steady from few to all malleable."""
    pairs = zip(found.values(metric, policy, FEW), found.values(metric, policy, ALL), strict=True)
    return [NEAR * before - abs(after - before) for before, after in pairs]


def table_text(
    found: Outcomes, metric: str, shares: Sequence[int], policies: Sequence[str] = STRATEGIES
) -> str:
    """Return the means of a metric at some shares for each strategy, in words."""
    return "; ".join(
        f"{NAMES[policy]} "
        + ", ".join(value_text(metric, fmean(found.values(metric, policy, share))) for share in shares)
        for policy in policies
    )


def together(*judged: Judgement) -> Judgement:
    """Judge a claim of several parts, all of which must hold; the estimate is that of a weak part, if any."""
    for verdict in (Verdict.FAILS, Verdict.NOT_COMPARABLE, Verdict.TIE):
        weak = [one for one in judged if one.verdict is verdict]
        if weak:
            notes = [one.note for one in weak if one.note]
            return Judgement(verdict=verdict, estimate=weak[0].estimate, note="; ".join(notes))
    notes = [one.note for one in judged if one.note]
    return Judgement(verdict=Verdict.HOLDS, estimate=judged[0].estimate, note="; ".join(notes))
