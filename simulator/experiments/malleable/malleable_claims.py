"""Every M claim, judged on the windows that there are: here those on THETA and on all systems together.

THETA is a system of few large jobs; ``claims_many_jobs`` has the others. None of the windows is the paper's,
so directions are judged and magnitudes are told; the rows say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import fmean

import msgspec

from analysis.claims import Judgement, Row, best_of, fact, not_comparable, over_settings
from simulator.experiments.malleable import claims_many_jobs
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
    Judge,
    Judged,
    Settings,
    best,
    better_by,
    change_text,
    compared,
    gains,
    table_text,
    together,
    within_steady,
)
from simulator.experiments.malleable.malleable_survey import SHARES, STRATEGIES, Outcomes
from simulator.experiments.malleable.malleable_words import OF_ALL, OF_ONE, THETA

MADE = "without TRACE a window is made"
NO_TRACE = "no window of THETA: name a trace that stands for it"


def claim_rows(found: Mapping[str, Outcomes]) -> list[Row]:
    """Return the rows of M1 to M32, from the outcomes of the systems' windows."""
    judges = claims_many_jobs.JUDGES | _JUDGES_OF_THETA
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
            judgement, ours = _JUDGES_OF_ALL[claim.id](found)
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


_JUDGES_OF_THETA: dict[str, Judge] = {
    "M21": _m21,
    "M22": _m22,
    "M23": _m23,
    "M24": _m24,
    "M25": _m25,
    "M26": _m26,
}


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


_JUDGES_OF_ALL: dict[str, Callable[[Mapping[str, Outcomes]], Judged]] = {
    "M27": _m27,
    "M28": _m28,
    "M29": _m29,
    "M30": _m30,
    "M31": _m31,
    "M32": _m32,
}
