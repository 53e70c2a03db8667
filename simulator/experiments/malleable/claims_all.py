"""Judges the claims on all systems together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean

from analysis.claims import best_of, fact, over_settings
from simulator.experiments.malleable.malleable_judging import (
    ALL,
    AVG,
    FEW,
    KEEP,
    METRICS,
    MIN,
    NAMES,
    OPERATIONS,
    PREF,
    Judged,
    Settings,
    best,
    better_by,
    compared,
    gains,
    together,
)
from simulator.experiments.malleable.malleable_survey import SHARES, STRATEGIES, Outcomes
from simulator.experiments.malleable.malleable_words import THETA


def _m27(found: Mapping[str, Outcomes]) -> Judged:
    settings, texts = {}, []
    for system, one in found.items():
        for metric in METRICS:
            policy = best(one, metric, FEW)
            settings[f"{system}, {metric.removesuffix('_s')}"] = better_by(one, metric, policy, FEW)
        policy = best(one, "turnaround_s", FEW)
        texts.append(f"{system}: turnaround {fmean(gains(one, 'turnaround_s', policy, FEW)):+.0f}%")
    return over_settings(settings), f"at {FEW}%: " + ", ".join(texts)


def _m28(found: Mapping[str, Outcomes]) -> Judged:
    keeps = best_of(
        {policy: found[THETA].values("turnaround_s", policy, ALL) for policy in STRATEGIES}, KEEP, lowest=True
    )
    first = {system: best(one, "turnaround_s") for system, one in found.items()}
    text = ", ".join(f"{system} {NAMES[policy]}" for system, policy in first.items())
    parts = [keeps] if len(first) == 1 else [keeps, fact(holds=len(set(first.values())) > 1)]
    return together(*parts), f"shortest turnaround: {text}"


def _m29(found: Mapping[str, Outcomes]) -> Judged:
    settings = {
        f"{system}, {NAMES[policy]}, {metric.removesuffix('_s')}": better_by(one, metric, policy)
        for system, one in found.items()
        if system != THETA
        for policy in STRATEGIES
        for metric in METRICS
    }
    return over_settings(settings), ""


def _m30(found: Mapping[str, Outcomes]) -> Judged:
    settings = {
        f"{system}, {metric}, {share}%, {NAMES[other]}": compared(one, metric, share, other, PREF)
        for system, one in found.items()
        for metric in OPERATIONS
        for share in SHARES
        for other in (MIN, AVG, KEEP)
    }
    text = "; ".join(
        f"{system}: {NAMES[min(STRATEGIES, key=lambda policy: _operations(one, policy))]}"
        for system, one in found.items()
    )
    return over_settings(settings), f"fewest operations at {ALL}%: {text}"


def _operations(found: Outcomes, policy: str) -> float:
    return sum(fmean(found.values(metric, policy, ALL)) for metric in OPERATIONS)


def _m31(found: Mapping[str, Outcomes]) -> Judged:
    settings = {
        f"{system}, {NAMES[policy]}, {share}%": better_by(one, "turnaround_s", policy, share)
        for system, one in found.items()
        for policy in STRATEGIES
        for share in SHARES
    }
    return over_settings(settings), ""


def _m32(found: Mapping[str, Outcomes]) -> Judged:
    settings: Settings = {}
    texts = []
    for metric in METRICS:
        every = {system: (one, best(one, metric)) for system, one in found.items()}
        settings |= {
            f"{system}, {metric.removesuffix('_s')}": better_by(one, metric, policy)
            for system, (one, policy) in every.items()
        }
        changes = [abs(fmean(gains(one, metric, policy))) for one, policy in every.values()]
        texts.append(f"{metric.removesuffix('_s')} {min(changes):.0f} to {max(changes):.0f}%")
    return over_settings(settings), ", ".join(texts)


JUDGES: dict[str, Callable[[Mapping[str, Outcomes]], Judged]] = {
    "M27": _m27,
    "M28": _m28,
    "M29": _m29,
    "M30": _m30,
    "M31": _m31,
    "M32": _m32,
}
