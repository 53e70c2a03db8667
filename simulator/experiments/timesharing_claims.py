"""The judges of the T claims of Hofmeyr et al.

T1 to T10: what schedulers do with load. T11 to T18: where which scheduler is better, and what applications
that strong scale have of it. T19 to T28: noise, and jobs that are not SPMD. T29 to T32: the trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from analysis import claims as rules
from analysis.claims import ClaimRow, Judgement, estimate, figures, not_comparable, noted
from foundation.units import counted
from simulator.experiments import timesharing_survey as ts
from simulator.experiments.claim_study import Judged, WorldFigure, judged_rows
from simulator.experiments.edison import APPLICATIONS, FEWEST, sizes_to
from simulator.experiments.timesharing_survey import TimesharingOutcome, TimesharingSetting, TimesharingSurvey
from simulator.timeshare.timeshare_pool import HIGH
from simulator.timeshare.timeshare_state import MEMORY, SPAN_US, TimeshareDemands

Judge = Callable[[TimesharingSurvey], Judged]

OTHER_TRACE = "another trace than the paper's"
NO_SUCH_JOBS = "too few jobs of that kind"
NOT_PUBLIC = "when Edison's jobs really started is not public"
SOME, KNEE, MUCH = (
    TimesharingSetting(overhead=0.05),
    TimesharingSetting(overhead=0.08),
    TimesharingSetting(overhead=0.13),
)
NEARLY = 0.2
"""Slowdown under time-sharing is nearly uniform if it changes by no more than that part of batch's change."""
MAJORITY = 0.9
ALMOST = 0.9
"""Almost everywhere: in more of the bins with ten jobs."""
ORDERS = 100.0
"""Orders of magnitude: at least two."""
TIMES = 500.0
"""How much better the shortest jobs fare under time-sharing (section V)."""
SMALL, LARGE, ALL = range(3)
"""Rows of ``TimesharingOutcome.classes``."""


def claim_rows(survey: TimesharingSurvey) -> list[ClaimRow]:
    """Return the rows of T1 to T32, in order."""
    return judged_rows(JUDGES, survey)


def shown(value: float) -> str:
    """Return a number as text; a dash where there is none."""
    return figures(value) if math.isfinite(value) else "-"


def with_interval(values: Sequence[float]) -> str:
    """Return a mean with its interval, as text."""
    return estimate(list(values)).text() if all(map(math.isfinite, values)) else "-"


def direction(values: Sequence[float]) -> Judgement:
    """Judge a direction; where a seed has no such jobs it cannot be judged."""
    if not all(map(math.isfinite, values)):
        return not_comparable(NO_SUCH_JOBS)
    return rules.direction([float(value) for value in values])


def over_settings(settings: Mapping[str, Sequence[float]]) -> Judgement:
    """Judge a direction in several settings; where a seed has no such jobs it cannot be judged."""
    if not all(math.isfinite(value) for values in settings.values() for value in values):
        return not_comparable(NO_SUCH_JOBS)
    return rules.over_settings({name: [float(value) for value in of] for name, of in settings.items()})


def against_paper(judged: Judgement, ours: float, paper: float) -> Judgement:
    """Return a judgement that says how far ours is from the paper's value, which is not judged."""
    if not math.isfinite(ours):
        return judged
    return noted(
        judged, f"ours is {(ours - paper) / paper:+.0%} from the paper's {figures(paper)}, not judged"
    )


def upper_quartile(one: TimesharingOutcome) -> float:
    """Return the 75th percentile of the slowdown."""
    return one.quarters[2]


def _t1(survey: TimesharingSurvey) -> Judged:
    return not_comparable(NOT_PUBLIC), f"simulated: {ts.mean(survey, ts.BATCH, 'utilisation'):.1%}"


def _t2(survey: TimesharingSurvey) -> Judged:
    average, largest = (shown(ts.mean(survey, ts.BATCH, metric)) for metric in ("mean", "largest"))
    return not_comparable(NOT_PUBLIC), f"simulated: mean {average}, largest {largest}"


def _slopes(survey: TimesharingSurvey, setting: TimesharingSetting) -> tuple[list[float], list[float], str]:
    """Return by how much the slowdown's logarithm changes with nodes and with length; and that in words."""
    nodes, length = ([one.slopes[at] for one in survey.outcomes[setting]] for at in (0, 1))
    words = (
        f"its logarithm changes by {with_interval(nodes)} with a decade of nodes, by "
        f"{with_interval(length)} with one of length"
    )
    return nodes, length, words


def _t3(survey: TimesharingSurvey) -> Judged:
    nodes, length, words = _slopes(survey, ts.BATCH)
    return over_settings({"nodes": nodes, "length": [-slope for slope in length]}), words


def over_memory(judge: Callable[[TimesharingSurvey, TimesharingSetting], Judged]) -> Judge:
    """Judge where memory is as the paper prints it, and say for which memory else the claim holds.

    How memory is distributed is not printed, so it is judged in two forms; the worse one counts.
    """

    def judged(survey: TimesharingSurvey) -> Judged:
        found = {setting: judge(survey, setting)[0] for setting in ts.MEMORY_SETTINGS}
        printed = [TimesharingSetting(memory=(ts.PRINTED_BELOW, form)) for form in ts.FORMS]
        worst, judged_there = rules.weakest({setting: found[setting] for setting in printed})
        assumed, ours = judge(survey, ts.SHARE)
        held = [
            f"{share:.0%} ({form})"
            for setting in ts.MEMORY_SETTINGS
            if setting.memory is not None and found[setting].verdict is rules.ClaimVerdict.HOLDS
            for share, form in (setting.memory,)
        ]
        if assumed.verdict is rules.ClaimVerdict.HOLDS:
            held.insert(0, "99% (hardly any)")
        where = ", ".join(held) or "none of what was tried"
        words = f"{judge(survey, worst)[1]}; with 99%: {ours}"
        return noted(judged_there, f"holds with so many node-hours under 60% of the memory: {where}"), words

    return judged


def _t4(survey: TimesharingSurvey, share: TimesharingSetting) -> Judged:
    *batch, _ = _slopes(survey, ts.BATCH)
    *sharing, words = _slopes(survey, share)
    uniform = over_settings(
        {
            name: [NEARLY * abs(before) - abs(now) for before, now in zip(was, new, strict=True)]
            for name, was, new in zip(("nodes", "length"), batch, sharing, strict=True)
        }
    )
    return noted(uniform, f"read as: it changes by at most {NEARLY:.0%} of batch's change"), words


def _t5(survey: TimesharingSurvey, share: TimesharingSetting) -> Judged:
    used = [ts.mean(survey, setting, "utilisation") for setting in (share, ts.BATCH)]
    judged = rules.no_difference(ts.differences(survey, share, ts.BATCH, "utilisation"))
    return judged, f"{used[0]:.3f}, batch {used[1]:.3f}"


def _t6(survey: TimesharingSurvey) -> Judged:
    much, none = (ts.mean(survey, setting, "utilisation") for setting in (MUCH, ts.SHARE))
    judged = direction(ts.differences(survey, ts.SHARE, MUCH, "utilisation"))
    return against_paper(judged, much, 0.83), f"{much:.3f} against {none:.3f}"


def _t7(survey: TimesharingSurvey) -> Judged:
    """Judge that both are without a significant change."""
    use = rules.no_difference(ts.differences(survey, ts.SHARE, SOME, "utilisation"))
    slow = rules.no_difference(ts.changes(survey, SOME, ts.SHARE))
    worst = slow if slow.verdict is not rules.ClaimVerdict.HOLDS else use
    used = [ts.mean(survey, setting, "utilisation") for setting in (ts.SHARE, SOME)]
    slowed = [shown(ts.mean(survey, setting, "mean")) for setting in (ts.SHARE, SOME)]
    return (
        noted(worst, f"utilisation {use.verdict}, slowdown {slow.verdict}"),
        f"utilisation {used[0]:.3f} to {used[1]:.3f}, slowdown {slowed[0]} to {slowed[1]}",
    )


def _t8(survey: TimesharingSurvey) -> Judged:
    climbs = [
        (after - before) / 5 - (before - first) / 8
        for first, before, after in zip(
            *(survey.by_seed(setting, "mean") for setting in (ts.SHARE, KNEE, MUCH)), strict=True
        )
    ]
    course = ", ".join(
        f"{shown(ts.mean(survey, TimesharingSetting(overhead=overhead), 'mean'))} at {overhead:.0%}"
        for overhead in (0.0, *ts.OVERHEADS)
    )
    return noted(direction(climbs), "a point from 8 to 13% costs more than one up to 8%"), course


def _t9(survey: TimesharingSurvey) -> Judged:
    if survey.world.spell_us is None:
        return not_comparable("this trace has no such spike"), "-"
    some, much = (
        [_drop(one, survey, seed) for seed, one in enumerate(survey.outcomes[setting])]
        for setting in (SOME, MUCH)
    )
    falls = [with_interval(drops) for drops in (some, much)]
    return (
        over_settings({"5%": some, "13%": [-drop for drop in much]}),
        f"from the spike to the last day it falls by {falls[0]} at 5%, {falls[1]} at 13%",
    )


def _drop(one: TimesharingOutcome, survey: TimesharingSurvey, seed: int) -> float:
    """Return by how much the load of a day falls from the spike to the last submission."""
    spell = int(survey.world.spell_us or 0) // SPAN_US
    last = int(survey.jobs[seed].submit_us.max()) // SPAN_US
    daily = ts.smooth(one.course, 1)
    around = daily[spell - 2 * ts.SPANS_A_DAY : spell + 4 * ts.SPANS_A_DAY]
    if not len(around) or last - ts.SPANS_A_DAY >= len(daily):
        return float("nan")
    return float(around.max() - daily[last - ts.SPANS_A_DAY])


def _t10(survey: TimesharingSurvey) -> Judged:
    days = min(7, max(1, int(survey.world.days // 60)))
    peak = ts.mean(survey, ts.SHARE, lambda one: float(ts.smooth(one.course, days).max()))
    average = shown(ts.mean(survey, ts.SHARE, "load"))
    ours = f"{average} in the mean, mean over {counted(days, 'day')} at most {shown(peak)}"
    return not_comparable("it follows from how arrivals cluster"), ours


def _t11(survey: TimesharingSurvey) -> Judged:
    hours = ts.crossings_h(survey, SMALL)
    judged = not_comparable("a magnitude, on another trace")
    return against_paper(judged, float(np.mean(hours)), 2.0), f"{with_interval(hours)} h (under 32 nodes)"


def _later(before: Sequence[float], after: Sequence[float], than: str) -> Judgement:
    later = direction([np.log(last / first) for first, last in zip(before, after, strict=True)])
    return noted(later, f"judged is that it is later than for {than} jobs")


def _t12(survey: TimesharingSurvey) -> Judged:
    hours = ts.crossings_h(survey, LARGE)
    judged = _later(ts.crossings_h(survey, SMALL), hours, "small")
    ours = f"{with_interval(hours)} h (100 nodes and more)"
    return against_paper(judged, float(np.mean(hours)), 4.0), ours


def _t13(survey: TimesharingSurvey) -> Judged:
    ahead = ts.differences(survey, ts.SHARE, ts.BATCH, lambda one: float(np.log(one.very_long_mean)))
    best = _extremes(survey)[0]
    judged = noted(direction(ahead), "judged is that there is one")
    ours = f"{shown(float(np.exp(np.mean(ahead))))} times from 8 h on; in a bin up to {shown(best)} times"
    return against_paper(judged, best, 8.0), ours


def _t14(survey: TimesharingSurvey) -> Judged:
    behind = ts.differences(survey, ts.BATCH, ts.SHARE, lambda one: float(np.log10(one.short_mean)))
    most = [_best_bin(survey, seed) for seed in range(len(survey.grids))]
    judged = direction([math.log10(value / TIMES) if value > 0 else math.nan for value in most])
    ours = (
        f"{with_interval(most)} times in the best bin of sizes and lengths; "
        f"{shown(float(10 ** np.mean(behind)))} times under 100 s"
    )
    judged = noted(judged, f"read as: over {TIMES:g} times in a bin of Fig. 7")
    return against_paper(judged, float(np.mean(most)), TIMES), ours


def _best_bin(survey: TimesharingSurvey, seed: int) -> float:
    """Return the largest advantage of time-sharing in a bin of a seed that has ten jobs; NaN without one."""
    batch, share = (survey.outcomes[setting][seed].bins for setting in (ts.BATCH, ts.SHARE))
    enough = batch.counts >= FEWEST
    return float((batch.sums[enough] / share.sums[enough]).max()) if enough.any() else math.nan


def _extremes(survey: TimesharingSurvey) -> tuple[float, float]:
    """Return the largest advantage of batch, and of time-sharing, in a bin of all seeds with ten jobs."""
    ratio = ts.ratios(survey, ts.BATCH, ts.SHARE)
    known = ratio[np.isfinite(ratio)]
    if not len(known):
        return float("nan"), float("nan")
    return float(1 / known.min()), float(known.max())


def _curves(
    survey: TimesharingSurvey, setting: TimesharingSetting
) -> tuple[dict[str, list[list[float]]], str]:
    """Return the turnarounds of the applications, and their ends in words."""
    found = {name: ts.turnaround_curves(survey, setting, serial) for name, serial in APPLICATIONS.items()}

    def hours(values: Sequence[list[float]], at: int) -> str:
        return shown(float(np.mean([of[at] for of in values])) / ts.HOUR_S)

    return found, "; ".join(f"{name}: {hours(of, 0)} h to {hours(of, -1)} h" for name, of in found.items())


def _t15(survey: TimesharingSurvey) -> Judged:
    found, words = _curves(survey, ts.SHARE)
    return over_settings({name: [np.log(of[0] / of[-1]) for of in found[name]] for name in found}), words


def _t16(survey: TimesharingSurvey) -> Judged:
    found, words = _curves(survey, ts.BATCH)
    rises = {
        f"{name}, {word}": [np.log(of[-1] / of[at]) for of in found[name]]
        for name in found
        for word, at in (("largest against smallest", 0), ("against a quarter of it", -3))
    }
    return over_settings(rises), words


def _t17(survey: TimesharingSurvey) -> Judged:
    batch, share = (_curves(survey, setting)[0] for setting in (ts.BATCH, ts.SHARE))
    apart = {
        name: [one[-1] / other[-1] for one, other in zip(batch[name], share[name], strict=True)]
        for name in APPLICATIONS
    }
    judged = over_settings({name: [np.log10(of / ORDERS) for of in apart[name]] for name in apart})
    times = " and ".join(shown(float(np.mean(of))) for of in apart.values())
    nodes = counted(sizes_to(survey.world.nodes)[-1], "node")
    return noted(judged, f"read as: {ORDERS:g} times and more"), f"{times} times on {nodes}"


def _t18(_: TimesharingSurvey) -> Judged:
    why = "their measurements are not public; a perfect and an Amdahl one replace them"
    return not_comparable(why), "-"


def rise(
    none: TimesharingSetting, little: TimesharingSetting, much: TimesharingSetting, paper: float
) -> Judge:
    """Judge that the mean slowdown rises with noise."""

    def judge(survey: TimesharingSurvey) -> Judged:
        values = [ts.mean(survey, setting, "mean") for setting in (none, little, much)]
        judged = direction(ts.differences(survey, much, none, "mean"))
        quiet, some, loud = map(shown, values)
        ours = f"{quiet} to {loud}; with the printed p, {little.noise:g}, {some}"
        return against_paper(judged, values[2], paper), ours

    return judge


def change_of(
    metric: ts.Metric,
    before: TimesharingSetting,
    after: TimesharingSetting,
    *,
    rises: bool,
    paper: float = math.nan,
) -> Judge:
    """Judge that a metric rises, or falls, from one setting to another; ``paper`` is its value there."""
    more, less = (after, before) if rises else (before, after)

    def judge(survey: TimesharingSurvey) -> Judged:
        values = [ts.mean(survey, setting, metric) for setting in (before, after)]
        judged = direction(ts.differences(survey, more, less, metric))
        ours = " to ".join(map(shown, values))
        return (judged if math.isnan(paper) else against_paper(judged, values[1], paper)), ours

    return judge


def _t22(survey: TimesharingSurvey) -> Judged:
    parts = {name: _parts(survey, least_s) for name, least_s in (("all", 0.0), ("4 h and more", ts.LONG_S))}
    judged = over_settings({name: [part - ALMOST for part in of] for name, of in parts.items()})
    ours = ", ".join(f"{np.mean(of):.0%} of the bins ({name})" for name, of in parts.items())
    return noted(judged, f"read as: in more than {ALMOST:.0%} of the bins"), ours


def _parts(survey: TimesharingSurvey, least_s: float) -> list[float]:
    """Return in which part of the bins with ten jobs time-sharing is better under noise, for each seed."""
    found = []
    both = zip(survey.outcomes[ts.NOISY_BATCH], survey.outcomes[ts.NOISY_SHARE], survey.grids, strict=True)
    for one, other, grid in both:
        enough = (one.bins.counts >= FEWEST) & (grid.lengths[:-1] >= least_s)[np.newaxis, :]
        found.append(float((one.bins.sums[enough] > other.bins.sums[enough]).mean()) if enough.any() else 0.0)
    return found


def _t23(survey: TimesharingSurvey) -> Judged:
    batch, share = (survey.by_seed(setting, _skew) for setting in (ts.NOISY_BATCH, ts.NOISY_SHARE))
    apart = {"time-sharing": [1 - value for value in share], "batch": [value - 2 for value in batch]}
    note = "read as: time-sharing under 1, batch over 2 orders, 1,000 nodes against 1 to 9"
    ours = f"orders of magnitude: time-sharing {with_interval(share)}, batch {with_interval(batch)}"
    return noted(over_settings(apart), note), ours


def _skew(one: TimesharingOutcome) -> float:
    """Return by how many orders of magnitude the largest jobs' mean slowdown is above the smallest ones'."""
    means = one.sizes.means[:, 0]
    known = means[~np.isnan(means)]
    return float(np.log10(known[-1] / known[0]))


def _t25(survey: TimesharingSurvey) -> Judged:
    before, hours = ts.crossings_h(survey, ALL), ts.crossings_h(survey, ALL, ts.ANY_BATCH, ts.ANY_SHARE)
    judged = against_paper(_later(before, hours, "SPMD"), float(np.mean(hours)), 16.0)
    return judged, f"from {with_interval(hours)} h on; SPMD: {with_interval(before)} h"


def _t26(survey: TimesharingSurvey) -> Judged:
    change = {
        "batch": ts.changes(survey, ts.NOISY_ANY_BATCH, ts.ANY_BATCH),
        "time-sharing": ts.changes(survey, ts.NOISY_ANY_SHARE, ts.ANY_SHARE),
    }
    _, judged = rules.weakest({name: rules.no_difference(of) for name, of in change.items()})
    note = "read as: no significant relative change of the mean"
    ours = ", ".join(f"{name} {np.mean(of):+.1%}" for name, of in change.items())
    return noted(judged, note), ours


def _t27(survey: TimesharingSurvey) -> Judged:
    pairs = zip(survey.outcomes[ts.BATCH], survey.outcomes[ts.ANY_BATCH], strict=True)
    alike = all(one.mean == other.mean and one.largest == other.largest for one, other in pairs)
    return rules.fact(holds=alike), "job by job the same" if alike else "not the same"


def _t28(survey: TimesharingSurvey, sharing: TimesharingSetting) -> Judged:
    over = over_settings(
        {
            "batch": survey.by_seed(ts.BATCH, lambda one: one.mean - one.quarters[2]),
            "time-sharing": survey.by_seed(sharing, lambda one: one.quarters[2] - one.mean),
        }
    )
    (batch, top), (share, high) = (
        [shown(ts.mean(survey, setting, metric)) for metric in ("mean", upper_quartile)]
        for setting in (ts.BATCH, sharing)
    )
    ours = f"batch {batch}, quartile {top}; time-sharing {share}, {high}"
    return noted(over, "read as: above, and within, the upper quartile"), ours


def _t29(survey: TimesharingSurvey, share: TimesharingSetting) -> Judged:
    shares = survey.by_seed(share, "at_once")
    judged = direction([one - MAJORITY for one in shares])
    return noted(judged, f"read as: more than {MAJORITY:.0%}"), f"{np.mean(shares):.2%}"


def _drawn(survey: TimesharingSurvey) -> Judgement:
    return not_comparable("drawn to be so" if survey.world.spell_us is not None else OTHER_TRACE)


def _node_share(jobs: TimeshareDemands, chosen: npt.NDArray[np.bool_]) -> float:
    """Return the share of the node time that some jobs have."""
    node_us = (jobs.nodes * jobs.run_us).astype(float)
    return float(node_us[chosen].sum() / node_us.sum())


def _t30(survey: TimesharingSurvey) -> Judged:
    jobs = survey.jobs[0]
    part = [_node_share(jobs, jobs.nodes > over) for over in (100, 1000)]
    small = float((jobs.nodes < 32).mean())
    return _drawn(survey), f"{small:.0%} under 32; {part[0]:.0%} over 100, {part[1]:.0%} over 1,000"


def _t31(survey: TimesharingSurvey) -> Judged:
    jobs = survey.jobs[0]
    low = _node_share(jobs, jobs.memory < HIGH * MEMORY)
    return _drawn(survey), f"{len(jobs.nodes) / survey.world.days:,.0f} jobs a day; {low:.0%} under 60%"


def _t32(survey: TimesharingSurvey) -> Judged:
    ends = over_settings(
        {
            "largest": ts.differences(survey, ts.BATCH, ts.SHARE, "largest"),
            "mean of 4 h and more": ts.differences(survey, ts.SHARE, ts.BATCH, "long_mean"),
        }
    )
    largest, long = (
        [shown(ts.mean(survey, setting, metric)) for setting in (ts.BATCH, ts.SHARE)]
        for metric in ("largest", "long_mean")
    )
    ours = f"largest {largest[0]}, time-sharing {largest[1]}; from 4 h on {long[0]}, time-sharing {long[1]}"
    return ends, ours


JUDGES: dict[str, Judge] = {
    "T1": _t1,
    "T2": _t2,
    "T3": _t3,
    "T4": over_memory(_t4),
    "T5": over_memory(_t5),
    "T6": _t6,
    "T7": _t7,
    "T8": _t8,
    "T9": _t9,
    "T10": _t10,
    "T11": _t11,
    "T12": _t12,
    "T13": _t13,
    "T14": _t14,
    "T15": _t15,
    "T16": _t16,
    "T17": _t17,
    "T18": _t18,
    "T19": rise(ts.BATCH, ts.LITTLE_BATCH, ts.NOISY_BATCH, 1009.0),
    "T20": change_of(upper_quartile, ts.BATCH, ts.NOISY_BATCH, rises=True),
    "T21": rise(ts.SHARE, ts.LITTLE_SHARE, ts.NOISY_SHARE, 13.0),
    "T22": _t22,
    "T23": _t23,
    "T24": change_of("mean", ts.SHARE, ts.ANY_SHARE, rises=False, paper=3.3),
    "T25": _t25,
    "T26": _t26,
    "T27": _t27,
    "T28": over_memory(_t28),
    "T29": over_memory(_t29),
    "T30": _t30,
    "T31": _t31,
    "T32": _t32,
}


MEMORY_CLAIMS = frozenset({"T4", "T5", "T28", "T29"})
"""What follows from memory, and is judged over a range of it."""
UTILISATION_CLAIMS = frozenset({"T5", "T6", "T7"})
"""What follows from the number of days: work that the last of them leaves counts for neither scheduler."""


def world_of(survey: TimesharingSurvey) -> list[WorldFigure]:
    """Return what the paper prints of Edison's jobs, and ours, the mean over the seeds."""

    def of(figure: Callable[[TimeshareDemands], float]) -> float:
        return float(np.mean([figure(jobs) for jobs in survey.jobs]))

    def use(chosen: Callable[[TimeshareDemands], npt.NDArray[np.bool_]]) -> float:
        return of(lambda jobs: 100 * _node_share(jobs, chosen(jobs)))

    rest = frozenset(JUDGES) - MEMORY_CLAIMS
    return [
        WorldFigure("utilisation under batch", 89, 100 * ts.mean(survey, ts.BATCH, "utilisation"), "%"),
        WorldFigure("jobs under 32 nodes", 90, of(lambda jobs: 100 * float((jobs.nodes < 32).mean())), "%"),
        WorldFigure("node-hours of jobs over 100 nodes", 50, use(lambda jobs: jobs.nodes > 100), "%"),
        WorldFigure("node-hours of jobs over 1,000 nodes", 20, use(lambda jobs: jobs.nodes > 1000), "%"),
        WorldFigure("jobs a day", 4000, of(lambda jobs: len(jobs.nodes) / survey.world.days)),
        WorldFigure("days", 600, survey.world.days, "", UTILISATION_CLAIMS),
        WorldFigure(
            "node-hours under 60% of a node's memory",
            90,
            use(lambda jobs: jobs.memory < HIGH * MEMORY),
            "%",
            rest,
        ),
    ]
