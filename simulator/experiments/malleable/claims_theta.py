"""Judges the claims on THETA, a system of few large jobs."""

from __future__ import annotations

from statistics import fmean

from analysis.claims import over_settings
from simulator.experiments.malleable.malleable_judging import (
    ALL,
    AVG,
    FEW,
    KEEP,
    MIN,
    NAMES,
    PREF,
    Judge,
    Judged,
    better_by,
    change_text,
    compared,
    table_text,
    within_steady,
)
from simulator.experiments.malleable.malleable_survey import SHARES, STRATEGIES, Outcomes


def _m21(found: Outcomes) -> Judged:
    settings = {
        f"{NAMES[policy]} falls": better_by(found, "turnaround_s", policy, _best_share(found, policy))
        for policy in (MIN, AVG, KEEP)
    }
    settings |= {
        f"PREF longer at {share}%": [-value for value in better_by(found, "turnaround_s", PREF, share)]
        for share in (60, 80, ALL)
    }
    text = "; ".join(change_text(found, "turnaround_s", policy) for policy in STRATEGIES)
    return over_settings(settings), text


def _best_share(found: Outcomes, policy: str) -> int:
    return max(SHARES, key=lambda share: fmean(better_by(found, "turnaround_s", policy, share)))


def _m22(found: Outcomes) -> Judged:
    settings = {f"KEEPPREF at {share}%": better_by(found, "run_s", KEEP, share) for share in SHARES}
    settings |= {
        f"{NAMES[policy]} longer": [-value for value in better_by(found, "run_s", policy)]
        for policy in (MIN, PREF, AVG)
    }
    text = "; ".join(change_text(found, "run_s", policy) for policy in STRATEGIES)
    return over_settings(settings), text


def _m23(found: Outcomes) -> Judged:
    settings = {f"{NAMES[policy]} falls": better_by(found, "wait_s", policy) for policy in STRATEGIES}
    settings |= {
        f"{NAMES[other]} below KEEPPREF": compared(found, "wait_s", ALL, KEEP, other)
        for other in (MIN, PREF, AVG)
    }
    text = "; ".join(change_text(found, "wait_s", policy) for policy in STRATEGIES)
    return over_settings(settings), text


def _m24(found: Outcomes) -> Judged:
    settings = {"KEEPPREF rises": better_by(found, "utilisation", KEEP)}
    settings |= {
        f"{NAMES[policy]} falls": [-value for value in better_by(found, "utilisation", policy)]
        for policy in (MIN, PREF, AVG)
    }
    text = "; ".join(change_text(found, "utilisation", policy) for policy in STRATEGIES)
    return over_settings(settings), text


def _m25(found: Outcomes) -> Judged:
    settings = {NAMES[policy]: within_steady(found, "expansions", policy) for policy in STRATEGIES}
    return over_settings(settings), table_text(found, "expansions", (FEW, ALL))


def _m26(found: Outcomes) -> Judged:
    settings = {
        f"{share}%, {NAMES[other]}": compared(found, "shrinks", share, other, KEEP)
        for share in SHARES
        for other in (MIN, PREF, AVG)
    }
    return over_settings(settings), table_text(found, "shrinks", (FEW, ALL))


JUDGES: dict[str, Judge] = {
    "M21": _m21,
    "M22": _m22,
    "M23": _m23,
    "M24": _m24,
    "M25": _m25,
    "M26": _m26,
}
