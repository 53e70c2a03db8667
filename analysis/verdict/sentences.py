"""Puts differences into words. A sentence never says more than its interval does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.metrics import Unfit
from analysis.verdict.paired_differences import NEGLIGIBLE, Paired, QuantityDifference
from foundation.units import durations, number, several

_LEAST_COST = 0.02
_COUNTS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight")
_SHARING = {
    "better": "sharing helps this workload",
    "worse": "sharing does not help this workload",
    "mixed": "sharing helps by one measure and harms by another",
    "unclear": "whether sharing helps is not clear",
    "too few": "too few jobs to tell whether sharing helps",
}
_LIKES = {
    "better": "better for this workload",
    "worse": "worse for this workload",
    "mixed": "better by one measure, worse by another",
    "unclear": "which is better is not clear",
    "too few": "too few jobs to tell which is better",
}


def about_answer(
    differences: Mapping[str, QuantityDifference], *, subject: str, sharing: bool, answer: str, few: bool
) -> str:
    """Say in one sentence what a setting does to waiting, run times and ends, and what follows.

    Parameters
    ----------
    differences
        By measure.
    subject
        What is judged, such as ``Two jobs a core``.
    sharing
        Whether the question is if sharing cores helps; else which of two settings is better.
    answer
        Of the finding.
    few
        Whether there are too few jobs for an interval.
    """
    clauses = (
        _clause(differences.get("wait_s"), "waits", "shorter", "longer"),
        _run_times(differences.get("degradation")),
        _clause(differences.get("turnaround_s"), "jobs done", "sooner", "later"),
        _clause(differences.get("bounded_slowdown"), "mean bounded slowdown", "lower", "higher", clear=True),
    )
    last = (_SHARING if sharing else _LIKES)["too few" if few and answer == "unclear" else answer]
    return f"{subject}: {', '.join(filter(None, clauses)) or 'nothing is known'}: {last}."


def about_overhead(
    assumed: str, turnaround: QuantityDifference | None, elsewhere: Mapping[str, tuple[float, float, float]]
) -> str:
    """Say that C_o is assumed, and what would change at others.

    Parameters
    ----------
    assumed
        C_o of the simulation.
    turnaround
        What became of the time from submission to end.
    elsewhere
        By another C_o: mean time from submission to end of the reference and of the other, and how many times
        as long the other's jobs run as the reference's. Empty where it was not simulated.
    """
    if not elsewhere or turnaround is None:
        return (
            f"C_o = {assumed} is assumed, not measured; at 1.0 and 1.4 it was not simulated (osub sweep with "
            "overhead = [1.0, 1.4] does)."
        )
    shares = {
        overhead: (two - one) / one if one > 0 else 0.0 for overhead, (one, two, _) in elsewhere.items()
    }
    costs = [
        f"at {overhead} run times would be {number(times)} times as long and jobs done "
        f"{_whole_percent(abs(shares[overhead]))} {'sooner' if shares[overhead] < 0 else 'later'}"
        for overhead, (_, _, times) in elsewhere.items()
    ]
    ways = {share > 0 for share in (*shares.values(), turnaround.share or 0.0) if abs(share) >= NEGLIGIBLE}
    hangs = " So the answer depends on C_o: measure it." if len(ways) > 1 else ""
    return f"C_o = {assumed} is assumed, not measured: by means alone, {', '.join(costs)}.{hangs}"


def jobs_a_core(most: int) -> str:
    """Return how many jobs share a core at most, to begin a sentence with: Two jobs a core."""
    return f"{_COUNTS[most] if most < len(_COUNTS) else most} {several(most, 'job')} a core"


def _clause(found: QuantityDifference | None, what: str, less: str, more: str, *, clear: bool = False) -> str:
    """Return what became of a quantity; nothing where that must be ``clear`` and is not."""
    if found is None or (clear and found.way is None):
        return ""
    share, change = found.share, found.change
    if share is None:
        return "" if found.other == found.reference else f"{what} {more}"
    if found.way is None and change.low is not None and change.high is not None:
        low, high = (100 * end / found.reference for end in (change.low, change.high))
        return f"{what} not clearly different [{round(low):+d}%, {round(high):+d}%]"
    return f"{what} {percent(found)} {less if share < 0 else more}"


def _run_times(found: QuantityDifference | None) -> str:
    share = None if found is None else found.share
    if found is None or share is None or abs(share) < NEGLIGIBLE:
        return ""
    low, high = found.change.low, found.change.high
    if low is None or high is None:
        return f"run times {number(1 + share)} times as long"
    ends = [number(1 + end / found.reference) for end in (low, high)]
    return f"run times {number(1 + share)} [{ends[0]}, {ends[1]}] times as long"


def percent(difference: QuantityDifference) -> str:
    """Return the change in per cent of the reference with its interval, such as ``79% [70%, 88%]``.

    Without a sign: the words next to it say which way. Empty where the reference is nothing.
    """
    share = difference.share
    if share is None:
        return ""
    change = difference.change
    text = _whole_percent(abs(share))
    if change.low is None or change.high is None or not difference.clear:
        return text
    ends = sorted(100 * abs(end) / difference.reference for end in (change.low, change.high))
    if change.mean < 0:
        ends = [min(100.0, end) for end in ends]  # nothing falls by more than all of it
    return f"{text} [{ends[0]:.0f}%, {ends[1]:.0f}%]"


def about_wait(wait: QuantityDifference | None) -> str:
    """Say whether waiting got shorter."""
    if wait is None:
        return "Nothing is known of the waiting."
    one, two = durations(wait.reference, wait.other)
    way = wait.way
    if way is None:
        return f"Waiting: {_unclear(wait)} ({two} on average against {one})."
    if wait.other == 0 or wait.reference == 0:
        return f"Waiting {'ended' if way < 0 else 'began'}: {two} on average instead of {one}."
    return (
        f"Waiting got {'shorter' if way < 0 else 'longer'} by {percent(wait)}: {two} on average, not {one}."
    )


def about_cost(degradation: QuantityDifference | None) -> str:
    """Say what jobs paid for it: time on cores, as a multiple of the time that they need alone."""
    if degradation is None:
        return "What the jobs paid for it is not known: their dedicated times are not."
    one, two = number(degradation.reference), number(degradation.other)
    way = degradation.way
    if way is None:
        return f"On cores: {_unclear(degradation)} ({two} times what jobs need alone against {one})."
    if way > 0:
        return f"It cost them time on cores: {two} times what they need alone, not {one}."
    return f"They ran faster: {two} times what they need alone, not {one}."


def about_whole(turnaround: QuantityDifference | None) -> str:
    """Say whether jobs were done sooner, wait and run together."""
    if turnaround is None:
        return ""
    one, two = durations(turnaround.reference, turnaround.other)
    way = turnaround.way
    if way is None:
        return f"In all: {_unclear(turnaround)} (a job was done after {two} against {one})."
    return (
        f"In all, a job was done {'sooner' if way < 0 else 'later'} by {percent(turnaround)}: "
        f"after {two}, not {one}."
    )


def about_slowdown(slowdown: QuantityDifference | None) -> str:
    """Say whether the mean bounded slowdown fell or rose; nothing where it is not known."""
    if slowdown is None:
        return ""
    one, two = number(slowdown.reference), number(slowdown.other)
    way = slowdown.way
    if way is None:
        return f"Mean bounded slowdown: {_unclear(slowdown)} ({two} against {one})."
    return (
        f"The mean bounded slowdown {'fell' if way < 0 else 'rose'} by {percent(slowdown)}: {two}, not {one}."
    )


def about_gang(degradation: QuantityDifference | None) -> str:
    """Say whether taking turns together took the cost of sharing away."""
    if degradation is None:
        return "Whether gang scheduling helps is not known: the jobs' dedicated times are not."
    one, two = number(degradation.reference), number(degradation.other)
    way = degradation.way
    if way is None:
        return (
            f"Gang scheduling, in the jobs' time on cores: {_unclear(degradation)} "
            f"({two} times what they need alone against {one} without)."
        )
    if way > 0:
        return (
            f"Gang scheduling made it worse: jobs took {two} times what they need alone, {one} without it "
            f"({percent(degradation)} more)."
        )
    return (
        f"Gang scheduling took {_taken(degradation)}: jobs took {two} times what they need alone, "
        f"{one} without it ({percent(degradation)} less)."
    )


def _taken(degradation: QuantityDifference) -> str:
    cost = degradation.reference - 1
    if cost < _LEAST_COST:
        return "some time off"
    share = min(1.0, (degradation.reference - degradation.other) / cost)
    return f"{_whole_percent(share)} of the cost of sharing away"


def about_evidence(found: Paired, *, simulated: bool) -> str:
    """Say what the intervals are of, and whether that is enough."""
    jobs = f"{found.jobs:,} job{'' if found.jobs == 1 else 's'}"
    gives = "gives" if found.jobs == 1 else "give"
    if found.evidence == "repeats":
        return f"Evidence: {found.runs[0]} and {found.runs[1]} runs of {jobs}; 95% intervals over runs."
    if found.evidence == "too few jobs":
        return (
            f"Evidence: not enough. {jobs} in one run each {gives} no interval: repeat the runs or add jobs."
        )
    over = "95% intervals over batches of them"
    if found.evidence == "blocks":
        over = "95% intervals over the times that the same few were repeated"
    if simulated:
        return f"Evidence: {jobs} in one simulation each; {over}."
    return f"Evidence: {jobs} in one run each; {over}. A repeated run may differ by more."


def about_unfit(unfit: Mapping[str, Sequence[Unfit]]) -> list[str]:
    """Say which runs are unfit to judge by, why, and what to do: all of the first run, a word on others."""
    if not unfit:
        return []
    (label, reasons), *others = unfit.items()
    said = f"{label} is unfit to judge by: {'; and '.join(one.why for one in reasons)}."
    if others:
        briefs = (f"{name} ({' and '.join(one.brief for one in whys)})" for name, whys in others)
        said += f" Unfit, too: {'; '.join(briefs)}."
    # Jobs that hang on a host that is busy may hang for that.
    remedies = dict.fromkeys(whys[-1].remedy for whys in unfit.values())
    return [" ".join((said, *remedies))]


def about_strangers(reference: str, others: Sequence[str]) -> list[str]:
    """Say which runs are of another trace than the first one: one sentence, or none."""
    if not others:
        return []
    are = "is of another trace" if len(others) == 1 else "are of other traces"
    return [
        f"{' and '.join(others)} {are} than {reference}: their jobs are not the same, so nothing is compared."
    ]


def _unclear(difference: QuantityDifference) -> str:
    return "too few jobs to tell" if difference.change.low is None else "no clear difference"


def _whole_percent(share: float) -> str:
    return f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.1f}%"
