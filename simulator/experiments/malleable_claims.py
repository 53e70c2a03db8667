"""Every M claim, judged on the windows that there are.

HASWELL, KNL and EAGLE are systems of many small jobs, THETA is one of few large jobs; the last claims are on
all systems together. None of the windows is the paper's, so directions are judged and magnitudes are printed;
the rows say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

import msgspec

from analysis.claims import (
    ClaimRow,
    ClaimVerdict,
    Judgement,
    best_of,
    direction,
    estimate,
    fact,
    no_difference,
    not_comparable,
    over_settings,
)
from simulator.experiments.claim_study import claim_of
from simulator.experiments.malleable_survey import SHARES, STRATEGIES, Outcomes

HASWELL, KNL, EAGLE, THETA = SYSTEMS = ("HASWELL", "KNL", "EAGLE", "THETA")
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
    return [sign * (mine - other) for other, mine in _pairs(found, metric, policy, than, share)]


def _pairs(
    found: Outcomes, metric: str, policy: str, since: int = FEW, until: int = ALL
) -> Iterable[tuple[float, float]]:
    """Return a metric at two shares, a pair a seed."""
    return zip(found.values(metric, policy, since), found.values(metric, policy, until), strict=True)


def gains(found: Outcomes, metric: str, policy: str, share: int = ALL) -> list[float]:
    """Return the change of a metric in percent of its value with rigid jobs, a value a seed."""
    pairs = _pairs(found, metric, policy, RIGID_SHARE, share)
    return [100 * (mine / rigid - 1) if rigid else 0.0 for rigid, mine in pairs]


def best(found: Outcomes, metric: str, share: int = ALL) -> str:
    """Return the strategy with the best mean of a metric."""
    return max(STRATEGIES, key=lambda policy: fmean(better_by(found, metric, policy, share)))


def change_text(found: Outcomes, metric: str, policy: str) -> str:
    """Return a metric with rigid jobs and with all malleable, and the change, with its interval, in words."""
    rigid, mine = (fmean(found.values(metric, policy, share)) for share in (RIGID_SHARE, ALL))
    change = estimate(gains(found, metric, policy)).text("%")
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
    return [before - after for before, after in _pairs(found, metric, policy, since, until)]


def beyond_steady(found: Outcomes, metric: str, policy: str) -> list[float]:
    """Return by how much a metric falls from few to all malleable beyond what is steady."""
    return [(1 - NEAR) * before - after for before, after in _pairs(found, metric, policy)]


def within_steady(found: Outcomes, metric: str, policy: str) -> list[float]:
    """Return by how much a metric stays within what is steady from few to all malleable."""
    return [NEAR * before - abs(after - before) for before, after in _pairs(found, metric, policy)]


def changes_text(found: Outcomes, metric: str) -> str:
    """Return ``change_text`` of every strategy."""
    return "; ".join(change_text(found, metric, policy) for policy in STRATEGIES)


def table_text(found: Outcomes, metric: str, shares: Sequence[int]) -> str:
    """Return the means of a metric at some shares for each strategy, in words."""
    return "; ".join(
        f"{NAMES[policy]} "
        + ", ".join(value_text(metric, fmean(found.values(metric, policy, share))) for share in shares)
        for policy in STRATEGIES
    )


def together(*judged: Judgement) -> Judgement:
    """Judge a claim of several parts, all of which must hold; the estimate is that of a weak part, if any."""
    for verdict in (ClaimVerdict.FAILS, ClaimVerdict.NOT_COMPARABLE, ClaimVerdict.TIE):
        weak = [one for one in judged if one.verdict is verdict]
        if weak:
            notes = [one.note for one in weak if one.note]
            return Judgement(verdict=verdict, estimate=weak[0].estimate, note="; ".join(notes))
    notes = [one.note for one in judged if one.note]
    return Judgement(verdict=ClaimVerdict.HOLDS, estimate=judged[0].estimate, note="; ".join(notes))


MADE = "without TRACE a window is made"


def claim_rows(found: Mapping[str, Outcomes]) -> list[ClaimRow]:
    """Return the rows of M1 to M32, from the outcomes of the systems' windows."""
    rows = []
    for system, judges in JUDGES.items():
        for name, judge in judges.items():
            if system in found:
                judgement, ours = judge(found[system])
                rows.append(ClaimRow.of(claim_of(name), _on(judgement, [found[system]]), ours))
            else:
                rows.append(ClaimRow.of(claim_of(name), not_comparable(f"no window of {system}: {MADE}")))
    for name, judge_all in JUDGES_OF_ALL.items():
        why = _missing(name, found)
        if why:
            rows.append(ClaimRow.of(claim_of(name), not_comparable(why)))
        else:
            judgement, ours = judge_all(found)
            rows.append(ClaimRow.of(claim_of(name), _on(judgement, found.values()), ours))
    return rows


def _missing(claim: str, found: Mapping[str, Outcomes]) -> str:
    """Return why a claim on several systems cannot be judged; empty if it can be."""
    if claim == "M28" and THETA not in found:
        return f"no window of THETA: {MADE}"
    if claim == "M29" and set(found) == {THETA}:
        return f"no window but THETA's: {MADE}"
    return ""


def _on(judgement: Judgement, windows: Iterable[Outcomes]) -> Judgement:
    """Return the judgement with what it was judged on."""
    names = ", ".join(f"{one.window.name} {'made' if one.window.is_made else 'for THETA'}" for one in windows)
    note = f"{judgement.note}; " if judgement.note else ""
    return msgspec.structs.replace(judgement, note=f"{note}direction only, on {names}")


UNEXPLAINED = "the paper's counts, up to tens of times ours, are not explained"


def unexplained(judge: Judge) -> Judge:
    """Return our counts of operations, unjudged: why the paper has so many more is not known."""

    def judged(found: Outcomes) -> Judged:
        would, ours = judge(found)
        return not_comparable(f"{UNEXPLAINED}; read as printed it {would.verdict.value}"), ours

    return judged


def best_gain(metric: str, *, steps: bool = False) -> Judge:
    """Judge the change from rigid to all malleable under the strategy that is best then."""

    def judge(found: Outcomes) -> Judged:
        policy = best(found, metric)
        parts = [direction(better_by(found, metric, policy))]
        if steps:
            parts.append(every_step(found, metric, policy))
        return together(*parts), change_text(found, metric, policy)

    return judge


def wait_gain(few_s: float) -> Judge:
    """As ``best_gain`` of the wait; tell from which share on it is below some seconds."""

    def judge(found: Outcomes) -> Judged:
        policy = best(found, "wait_s")
        judgement = direction(better_by(found, "wait_s", policy))
        short = [share for share in SHARES if fmean(found.values("wait_s", policy, share)) < few_s]
        since = f"under {few_s:g} s from {min(short)}% on" if short else f"never under {few_s:g} s"
        return judgement, f"{change_text(found, 'wait_s', policy)}; {since}"

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
    note = f"range over the seeds {spread[0]:.2%} at {FEW}%, {spread[1]:.2%} at {most}%"
    narrows = fact(holds=spread[1] < spread[0], note=note)
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


def _m21(found: Outcomes) -> Judged:
    settings = {
        f"{NAMES[policy]} falls": better_by(found, "turnaround_s", policy, _best_share(found, policy))
        for policy in (MIN, AVG, KEEP)
    }
    settings |= {
        f"PREF longer at {share}%": [-value for value in better_by(found, "turnaround_s", PREF, share)]
        for share in (60, 80, ALL)
    }
    return over_settings(settings), changes_text(found, "turnaround_s")


def _best_share(found: Outcomes, policy: str) -> int:
    return max(SHARES, key=lambda share: fmean(better_by(found, "turnaround_s", policy, share)))


def _m22(found: Outcomes) -> Judged:
    settings = {f"KEEPPREF at {share}%": better_by(found, "run_s", KEEP, share) for share in SHARES}
    settings |= {
        f"{NAMES[policy]} longer": [-value for value in better_by(found, "run_s", policy)]
        for policy in (MIN, PREF, AVG)
    }
    return over_settings(settings), changes_text(found, "run_s")


def _m23(found: Outcomes) -> Judged:
    settings = {f"{NAMES[policy]} falls": better_by(found, "wait_s", policy) for policy in STRATEGIES}
    settings |= {
        f"{NAMES[other]} below KEEPPREF": compared(found, "wait_s", ALL, KEEP, other)
        for other in (MIN, PREF, AVG)
    }
    return over_settings(settings), changes_text(found, "wait_s")


def _m24(found: Outcomes) -> Judged:
    settings = {"KEEPPREF rises": better_by(found, "utilisation", KEEP)}
    settings |= {
        f"{NAMES[policy]} falls": [-value for value in better_by(found, "utilisation", policy)]
        for policy in (MIN, PREF, AVG)
    }
    return over_settings(settings), changes_text(found, "utilisation")


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


JUDGES: dict[str, dict[str, Judge]] = {
    HASWELL: {
        "M1": best_gain("turnaround_s", steps=True),
        "M2": best_gain("run_s"),
        "M3": wait_gain(10),
        "M4": keep_waits(SHARES, soon=True),
        "M5": _m5,
        "M6": unexplained(_m6),
        "M7": unexplained(_m7),
    },
    KNL: {
        "M8": best_gain("turnaround_s"),
        "M9": best_gain("run_s"),
        "M10": wait_gain(20),
        "M11": keep_waits((40, 60), wider=True),
        "M12": _m12,
        "M13": unexplained(_m13),
        "M14": unexplained(_m14),
    },
    EAGLE: {
        "M15": best_gain("turnaround_s"),
        "M16": best_gain("run_s"),
        "M17": best_gain("wait_s"),
        "M18": best_gain("utilisation"),
        "M19": unexplained(_m19),
        "M20": _m20,
    },
    THETA: {
        "M21": _m21,
        "M22": _m22,
        "M23": _m23,
        "M24": _m24,
        "M25": unexplained(_m25),
        "M26": _m26,
    },
}
"""The judges of the claims on one system; ``JUDGES_OF_ALL`` are those on several."""


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


JUDGES_OF_ALL: dict[str, Callable[[Mapping[str, Outcomes]], Judged]] = {
    "M27": _m27,
    "M28": _m28,
    "M29": _m29,
    "M30": _m30,
    "M31": _m31,
    "M32": _m32,
}


def claims_on(system: str) -> frozenset[str]:
    """Return the claims that are judged on a system, alone or with others."""
    return frozenset(JUDGES[system]) | frozenset(JUDGES_OF_ALL)
