"""Judges the claims on HASWELL, KNL and EAGLE, systems of many small jobs."""

from __future__ import annotations

from statistics import fmean

from analysis.claims import best_of, direction, fact, no_difference, over_settings
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
    Settings,
    best,
    better_by,
    beyond_steady,
    change_text,
    compared,
    every_step,
    falls,
    table_text,
    together,
    value_text,
    within_steady,
)
from simulator.experiments.malleable.malleable_survey import SHARES, STRATEGIES, Outcomes


def best_gain(metric: str, *, steps: bool = False) -> Judge:
    """Judge the change from rigid to all malleable under the strategy that is best then."""

    def judge(found: Outcomes) -> Judged:
        policy = best(found, metric)
        parts = [direction(better_by(found, metric, policy))]
        if steps:
            parts.append(every_step(found, metric, policy))
        return together(*parts), change_text(found, metric, policy)

    return judge


def wait_gain(metric: str, few_s: float) -> Judge:
    """As ``best_gain``; tell from which share on the wait is below some seconds."""

    def judge(found: Outcomes) -> Judged:
        policy = best(found, metric)
        judgement = direction(better_by(found, metric, policy))
        short = [share for share in SHARES if fmean(found.values(metric, policy, share)) < few_s]
        since = f"under {few_s:g} s from {min(short)}% on" if short else f"never under {few_s:g} s"
        return judgement, f"{change_text(found, metric, policy)}; {since}"

    return judge


def keep_waits(shares: tuple[int, ...], *, soon: bool = False, wider: bool = False) -> Judge:
    """Judge that KEEPPREF waits longer than the others.

    Perhaps also that most jobs hardly wait at 20%, and that its means spread wider over the seeds.
    """

    def judge(found: Outcomes) -> Judged:
        settings = {
            f"{share}%, {NAMES[other]}": compared(found, "wait_s", share, KEEP, other)
            for share in shares
            for other in (MIN, PREF, AVG)
        }
        parts = [over_settings(settings, most=True)]
        text = table_text(found, "wait_s", shares)
        if soon:
            share = fmean(found.values("soon", KEEP, FEW))
            parts.append(fact(holds=share > 0.5))
            text += f"; {share:.0%} of the jobs under 1 s at {FEW}%"
        if wider:
            spread = {
                policy: sum(_range(found.values("wait_s", policy, share)) for share in shares)
                for policy in STRATEGIES
            }
            widest = max(STRATEGIES, key=spread.__getitem__)
            parts.append(fact(holds=widest == KEEP, note=f"widest range: {NAMES[widest]}"))
        return together(*parts), text

    return judge


def _m5(found: Outcomes) -> Judged:
    policy = best(found, "utilisation")
    most = SHARES[-2]  # with all jobs malleable nothing is drawn
    spread = [_range(found.values("utilisation", policy, share)) for share in (FEW, most)]
    told = f"range over the seeds {spread[0]:.2%} at {FEW}%, {spread[1]:.2%} at {most}%"
    narrows = fact(holds=spread[1] < spread[0], note=told)
    judgement = together(direction(better_by(found, "utilisation", policy)), narrows)
    return judgement, change_text(found, "utilisation", policy)


def _range(values: tuple[float, ...]) -> float:
    return max(values) - min(values)


def _m6(found: Outcomes) -> Judged:
    most = best_of(
        {policy: found.values("expansions", policy, ALL) for policy in STRATEGIES}, KEEP, lowest=False
    )
    steady = direction(within_steady(found, "expansions", AVG))
    return together(most, steady), table_text(found, "expansions", (FEW, ALL))


def _m7(found: Outcomes) -> Judged:
    settings = {NAMES[policy]: beyond_steady(found, "shrinks", policy) for policy in (AVG, PREF)}
    for policy in (MIN, KEEP):
        settings[NAMES[policy]] = [-value for value in beyond_steady(found, "shrinks", policy)]
    return over_settings(settings), table_text(found, "shrinks", (FEW, ALL))


def _m12(found: Outcomes) -> Judged:
    policy = best(found, "utilisation")
    rises = direction(better_by(found, "utilisation", policy, 60))
    flat = no_difference(better_by(found, "utilisation", policy, ALL, 60))
    means = [
        value_text("utilisation", fmean(found.values("utilisation", policy, share))) for share in (0, 60, ALL)
    ]
    return together(rises, flat), f"{NAMES[policy]}: {means[0]}, {means[1]} at 60%, {means[2]} at 100%"


def _m13(found: Outcomes) -> Judged:
    settings = {f"{NAMES[policy]} falls": falls(found, "expansions", policy) for policy in STRATEGIES}
    settings |= {
        f"{NAMES[more]} over twice {NAMES[less]}": compared(found, "expansions", ALL, more, less, 2)
        for more in (KEEP, AVG)
        for less in (MIN, PREF)
    }
    return over_settings(settings), table_text(found, "expansions", (FEW, ALL))


def _m14(found: Outcomes) -> Judged:
    settings = {
        f"{NAMES[policy]} steady": within_steady(found, "shrinks", policy) for policy in (PREF, AVG, KEEP)
    }
    settings["MIN rises"] = [-value for value in falls(found, "shrinks", MIN)]
    return over_settings(settings), table_text(found, "shrinks", (FEW, ALL))


def _m19(found: Outcomes) -> Judged:
    settings = {f"{NAMES[policy]} falls": falls(found, "expansions", policy) for policy in STRATEGIES}
    settings |= {
        f"{NAMES[more]} over {NAMES[less]} at {share}%": compared(found, "expansions", share, more, less)
        for more in (KEEP, AVG)
        for less in (MIN, PREF)
        for share in (FEW, ALL)
    }
    return over_settings(settings), table_text(found, "expansions", (FEW, ALL))


def _m20(found: Outcomes) -> Judged:
    settings: Settings = {}
    for policy in STRATEGIES:
        whole, first = falls(found, "shrinks", policy), falls(found, "shrinks", policy, FEW, 40)
        settings[f"{NAMES[policy]} falls"] = whole
        settings[f"{NAMES[policy]} mostly before 40%"] = [
            2 * early - late for early, late in zip(first, whole, strict=True)
        ]
    return over_settings(settings), table_text(found, "shrinks", (FEW, 40, ALL))


JUDGES: dict[str, Judge] = {
    "M1": best_gain("turnaround_s", steps=True),
    "M2": best_gain("run_s"),
    "M3": wait_gain("wait_s", 10),
    "M4": keep_waits(SHARES, soon=True),
    "M5": _m5,
    "M6": _m6,
    "M7": _m7,
    "M8": best_gain("turnaround_s"),
    "M9": best_gain("run_s"),
    "M10": wait_gain("wait_s", 20),
    "M11": keep_waits((40, 60), wider=True),
    "M12": _m12,
    "M13": _m13,
    "M14": _m14,
    "M15": best_gain("turnaround_s"),
    "M16": best_gain("run_s"),
    "M17": best_gain("wait_s"),
    "M18": best_gain("utilisation"),
    "M19": _m19,
    "M20": _m20,
}
