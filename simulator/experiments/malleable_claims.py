"""Every M claim, judged on the windows that there are.

HASWELL, KNL and EAGLE are systems of many small jobs, THETA is one of few large jobs; the last claims are on
all systems together. None of the windows is the paper's, so directions are judged and magnitudes are printed;
the rows say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean

from analysis import claims as rules
from analysis.claims import ClaimRow, Judgement
from simulator.experiments.claim_study import Judged, rows_of
from simulator.experiments.malleable_survey import SHARES, STRATEGIES, Outcomes

HASWELL, KNL, EAGLE, THETA = SYSTEMS = ("HASWELL", "KNL", "EAGLE", "THETA")
NAMES = {
    "malleable-min": "MIN",
    "malleable-pref": "PREF",
    "malleable-avg": "AVG",
    "malleable-keep-pref": "KEEPPREF",
}
"""As the paper calls them."""
OTHERS = MIN, PREF, AVG = STRATEGIES[:3]
KEEP = STRATEGIES[3]
RIGID_SHARE, FEW, ALL = 0, SHARES[0], SHARES[-1]
NEAR = 0.2
"""What changes by less than this share of itself is steady."""
HIGHER_IS_BETTER = ("utilisation",)
METRICS = ("turnaround_s", "run_s", "wait_s", "utilisation")
OPERATIONS = ("expansions", "shrinks")

Settings = dict[str, list[float]]
Judge = Callable[[Outcomes], Judged]
Term = Callable[[Outcomes, str], Settings]
"""Returns the settings in which a metric is judged."""


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
    change = rules.estimate(gains(found, metric, policy)).text("%")
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
    return rules.over_settings(
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
    verdict = rules.worst_of(one.verdict for one in judged)
    decisive = [one for one in judged if one.verdict is verdict]
    notes = "; ".join(one.note for one in decisive if one.note)
    return Judgement(verdict=verdict, estimate=decisive[0].estimate, note=notes)


MADE = "without TRACE a window is made"


def claim_rows(found: Mapping[str, Outcomes]) -> list[ClaimRow]:
    """Return the rows of M1 to M32, from the outcomes of the systems' windows."""
    judged: dict[str, Judged] = {}
    for system, judges in JUDGES.items():
        missing = rules.not_comparable(f"no window of {system}: {MADE}")
        one = found.get(system)
        judged |= {
            name: (missing, "") if one is None else _on(judge(one), [one]) for name, judge in judges.items()
        }
    for name, judge_all in JUDGES_OF_ALL.items():
        why = _missing(name, found)
        judged[name] = (rules.not_comparable(why), "") if why else _on(judge_all(found), found.values())
    return rows_of(judged)


def _missing(claim: str, found: Mapping[str, Outcomes]) -> str:
    """Return why a claim on several systems cannot be judged; empty if it can be."""
    if claim == "M28" and THETA not in found:
        return f"no window of THETA: {MADE}"
    if claim == "M29" and set(found) == {THETA}:
        return f"no window but THETA's: {MADE}"
    return ""


def _on(judged: Judged, windows: Iterable[Outcomes]) -> Judged:
    """Return the judgement with what it was judged on."""
    judgement, ours = judged
    names = ", ".join(f"{one.window.name} {'made' if one.window.is_made else 'for THETA'}" for one in windows)
    return rules.noted(judgement, f"direction only, on {names}"), ours


UNEXPLAINED = "the paper's counts, up to tens of times ours, are not explained"


def unexplained(judge: Judge) -> Judge:
    """Return our counts of operations, unjudged: why the paper has so many more is not known."""

    def judged(found: Outcomes) -> Judged:
        would, ours = judge(found)
        return rules.not_comparable(f"{UNEXPLAINED}; read as printed it {would.verdict.value}"), ours

    return judged


def best_gain(metric: str, *, steps: bool = False) -> Judge:
    """Judge the change from rigid to all malleable under the strategy that is best then."""

    def judge(found: Outcomes) -> Judged:
        policy = best(found, metric)
        parts = [rules.direction(better_by(found, metric, policy))]
        if steps:
            parts.append(every_step(found, metric, policy))
        return together(*parts), change_text(found, metric, policy)

    return judge


def wait_gain(few_s: float) -> Judge:
    """As ``best_gain`` of the wait; tell from which share on it is below some seconds."""

    def judge(found: Outcomes) -> Judged:
        policy = best(found, "wait_s")
        judgement = rules.direction(better_by(found, "wait_s", policy))
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
            for other in OTHERS
        }
        parts = [rules.over_settings(settings, most=True)]
        text = table_text(found, "wait_s", shares)
        if soon:
            share = fmean(found.values("soon", KEEP, FEW))
            parts.append(rules.fact(holds=share > 0.5))
            text += f"; {share:.0%} of the jobs under 1 s at {FEW}%"
        if wider:
            spread = {
                policy: sum(_range(found.values("wait_s", policy, share)) for share in shares)
                for policy in STRATEGIES
            }
            widest = max(STRATEGIES, key=spread.__getitem__)
            parts.append(rules.fact(holds=widest == KEEP, note=f"widest range: {NAMES[widest]}"))
        return together(*parts), text

    return judge


def _m5(found: Outcomes) -> Judged:
    policy = best(found, "utilisation")
    most = SHARES[-2]  # with all jobs malleable nothing is drawn
    spread = [_range(found.values("utilisation", policy, share)) for share in (FEW, most)]
    note = f"range over the seeds {spread[0]:.2%} at {FEW}%, {spread[1]:.2%} at {most}%"
    narrows = rules.fact(holds=spread[1] < spread[0], note=note)
    judgement = together(rules.direction(better_by(found, "utilisation", policy)), narrows)
    return judgement, change_text(found, "utilisation", policy)


def _range(values: tuple[float, ...]) -> float:
    return max(values) - min(values)


def _m6(found: Outcomes) -> Judged:
    most = rules.best_of(
        {policy: found.values("expansions", policy, ALL) for policy in STRATEGIES}, KEEP, lowest=False
    )
    steady = rules.direction(within_steady(found, "expansions", AVG))
    return together(most, steady), table_text(found, "expansions", (FEW, ALL))


def _m12(found: Outcomes) -> Judged:
    policy = best(found, "utilisation")
    rises = rules.direction(better_by(found, "utilisation", policy, 60))
    flat = rules.no_difference(better_by(found, "utilisation", policy, ALL, 60))
    means = [
        value_text("utilisation", fmean(found.values("utilisation", policy, share))) for share in (0, 60, ALL)
    ]
    return together(rises, flat), f"{NAMES[policy]}: {means[0]}, {means[1]} at 60%, {means[2]} at 100%"


def mostly_early(found: Outcomes, metric: str, policy: str) -> list[float]:
    """Return by how much more a metric falls up to 40% malleable than after."""
    whole, first = falls(found, metric, policy), falls(found, metric, policy, FEW, 40)
    return [2 * early - late for early, late in zip(first, whole, strict=True)]


def better_at_best(found: Outcomes, metric: str, policy: str) -> list[float]:
    """Return by how much a metric is better than with rigid jobs at the share at which it is best."""
    best_share = max(SHARES, key=lambda share: fmean(better_by(found, metric, policy, share)))
    return better_by(found, metric, policy, best_share)


def term(label: str, value: Callable[..., list[float]], *policies: str, sign: float = 1.0) -> Term:
    """Return the settings of some strategies, or of all: a value a seed, above 0 where the paper is right."""

    def settings(found: Outcomes, metric: str) -> Settings:
        return {
            label.format(NAMES[policy]): [sign * one for one in value(found, metric, policy)]
            for policy in policies or STRATEGIES
        }

    return settings


def exceeds(label: str, share: int, more: Sequence[str], less: Sequence[str], factor: float = 1.0) -> Term:
    """Return the settings in which each of some strategies is to exceed each of others at a share."""

    def settings(found: Outcomes, metric: str) -> Settings:
        return {
            label.format(NAMES[one], NAMES[other]): compared(found, metric, share, one, other, factor)
            for one in more
            for other in less
        }

    return settings


def over_terms(metric: str, *terms: Term, shares: Sequence[int] = ()) -> Judge:
    """Judge a metric in the settings of all terms; the means at ``shares`` are ours, or else all changes."""

    def judge(found: Outcomes) -> Judged:
        settings = {name: values for one in terms for name, values in one(found, metric).items()}
        ours = table_text(found, metric, shares) if shares else changes_text(found, metric)
        return rules.over_settings(settings), ours

    return judge


JUDGES: dict[str, dict[str, Judge]] = {
    HASWELL: {
        "M1": best_gain("turnaround_s", steps=True),
        "M2": best_gain("run_s"),
        "M3": wait_gain(10),
        "M4": keep_waits(SHARES, soon=True),
        "M5": _m5,
        "M6": unexplained(_m6),
        "M7": unexplained(
            over_terms(
                "shrinks",
                term("{}", beyond_steady, AVG, PREF),
                term("{}", beyond_steady, MIN, KEEP, sign=-1),
                shares=(FEW, ALL),
            )
        ),
    },
    KNL: {
        "M8": best_gain("turnaround_s"),
        "M9": best_gain("run_s"),
        "M10": wait_gain(20),
        "M11": keep_waits((40, 60), wider=True),
        "M12": _m12,
        "M13": unexplained(
            over_terms(
                "expansions",
                term("{} falls", falls),
                exceeds("{} over twice {}", ALL, (KEEP, AVG), (MIN, PREF), 2),
                shares=(FEW, ALL),
            )
        ),
        "M14": unexplained(
            over_terms(
                "shrinks",
                term("{} steady", within_steady, PREF, AVG, KEEP),
                term("{} rises", falls, MIN, sign=-1),
                shares=(FEW, ALL),
            )
        ),
    },
    EAGLE: {
        "M15": best_gain("turnaround_s"),
        "M16": best_gain("run_s"),
        "M17": best_gain("wait_s"),
        "M18": best_gain("utilisation"),
        "M19": unexplained(
            over_terms(
                "expansions",
                term("{} falls", falls),
                *(
                    exceeds(f"{{}} over {{}} at {share}%", share, (more,), (less,))
                    for more in (KEEP, AVG)
                    for less in (MIN, PREF)
                    for share in (FEW, ALL)
                ),
                shares=(FEW, ALL),
            )
        ),
        "M20": over_terms(
            "shrinks",
            *(
                term(label, value, policy)
                for policy in STRATEGIES
                for label, value in (("{} falls", falls), ("{} mostly before 40%", mostly_early))
            ),
            shares=(FEW, 40, ALL),
        ),
    },
    THETA: {
        "M21": over_terms(
            "turnaround_s",
            term("{} falls", better_at_best, MIN, AVG, KEEP),
            *(
                term(f"{{}} longer at {share}%", partial(better_by, share=share), PREF, sign=-1)
                for share in (60, 80, ALL)
            ),
        ),
        "M22": over_terms(
            "run_s",
            *(term(f"{{}} at {share}%", partial(better_by, share=share), KEEP) for share in SHARES),
            term("{} longer", better_by, *OTHERS, sign=-1),
        ),
        "M23": over_terms(
            "wait_s", term("{} falls", better_by), exceeds("{1} below {0}", ALL, (KEEP,), OTHERS)
        ),
        "M24": over_terms(
            "utilisation", term("{} rises", better_by, KEEP), term("{} falls", better_by, *OTHERS, sign=-1)
        ),
        "M25": unexplained(over_terms("expansions", term("{}", within_steady), shares=(FEW, ALL))),
        "M26": over_terms(
            "shrinks",
            *(exceeds(f"{share}%, {{}}", share, OTHERS, (KEEP,)) for share in SHARES),
            shares=(FEW, ALL),
        ),
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
    return rules.over_settings(settings), f"at {FEW}%: " + ", ".join(texts)


def _m28(found: Mapping[str, Outcomes]) -> Judged:
    keeps = rules.best_of(
        {policy: found[THETA].values("turnaround_s", policy, ALL) for policy in STRATEGIES}, KEEP, lowest=True
    )
    first = {system: best(one, "turnaround_s") for system, one in found.items()}
    text = ", ".join(f"{system} {NAMES[policy]}" for system, policy in first.items())
    parts = [keeps] if len(first) == 1 else [keeps, rules.fact(holds=len(set(first.values())) > 1)]
    return together(*parts), f"shortest turnaround: {text}"


def _m29(found: Mapping[str, Outcomes]) -> Judged:
    settings = {
        f"{system}, {NAMES[policy]}, {metric.removesuffix('_s')}": better_by(one, metric, policy)
        for system, one in found.items()
        if system != THETA
        for policy in STRATEGIES
        for metric in METRICS
    }
    return rules.over_settings(settings), ""


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
    return rules.over_settings(settings), f"fewest operations at {ALL}%: {text}"


def _operations(found: Outcomes, policy: str) -> float:
    return sum(fmean(found.values(metric, policy, ALL)) for metric in OPERATIONS)


def _m31(found: Mapping[str, Outcomes]) -> Judged:
    settings = {
        f"{system}, {NAMES[policy]}, {share}%": better_by(one, "turnaround_s", policy, share)
        for system, one in found.items()
        for policy in STRATEGIES
        for share in SHARES
    }
    return rules.over_settings(settings), ""


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
    return rules.over_settings(settings), ", ".join(texts)


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
