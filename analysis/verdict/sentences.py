"""Puts differences into words. A sentence never says more than its interval does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.tables import number
from analysis.verdict.paired_differences import Difference, Paired

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
NEGLIGIBLE = 0.01
"""A change by less than this share of the reference is called none, however certain it is."""
_LEAST_COST = 0.02


def duration(seconds: float) -> str:
    """Return a duration in the unit that a reader thinks in."""
    for unit, length, from_s in (("days", _DAY, 3 * _DAY), ("h", _HOUR, 3 * _HOUR), ("min", _MINUTE, 180.0)):
        if abs(seconds) >= from_s:
            return f"{number(seconds / length)} {unit}"
    return f"{number(seconds)} s"


def percent(difference: Difference) -> str:
    """Return the change in per cent of the reference with its interval, such as ``79% [70, 88]``.

    Without a sign: the words beside it say which way. Empty where the reference is nothing.
    """
    share = difference.share
    if share is None:
        return ""
    change = difference.change
    text = _whole_percent(abs(share))
    if change.low is None or change.high is None or not difference.clear:
        return text
    ends = sorted(100 * abs(end) / difference.reference for end in (change.low, change.high))
    return f"{text} [{ends[0]:.0f}, {ends[1]:.0f}]"


def about_wait(wait: Difference | None) -> str:
    """Say whether waiting got shorter."""
    if wait is None:
        return "Nothing is known of the waiting."
    one, two = duration(wait.reference), duration(wait.other)
    way = _way(wait)
    if way is None:
        return f"Waiting: {_unclear(wait)} ({two} on average against {one})."
    if wait.other == 0 or wait.reference == 0:
        return f"Waiting {'ended' if way < 0 else 'began'}: {two} on average instead of {one}."
    return (
        f"Waiting got {'shorter' if way < 0 else 'longer'} by {percent(wait)}: {two} on average, not {one}."
    )


def about_cost(degradation: Difference | None) -> str:
    """Say what jobs paid for it: time on cores, as a multiple of the time that they need alone."""
    if degradation is None:
        return "What the jobs paid for it is not known: their dedicated times are not."
    one, two = number(degradation.reference), number(degradation.other)
    way = _way(degradation)
    if way is None:
        return f"On cores: {_unclear(degradation)} ({two} times what jobs need alone against {one})."
    if way > 0:
        return f"It cost them time on cores: {two} times what they need alone, not {one}."
    return f"They ran faster: {two} times what they need alone, not {one}."


def about_whole(turnaround: Difference | None) -> str:
    """Say whether jobs were done sooner, wait and run together."""
    if turnaround is None:
        return ""
    one, two = duration(turnaround.reference), duration(turnaround.other)
    way = _way(turnaround)
    if way is None:
        return f"In all: {_unclear(turnaround)} (a job was done after {two} against {one})."
    return (
        f"In all, a job was done {'sooner' if way < 0 else 'later'} by {percent(turnaround)}: "
        f"after {two}, not {one}."
    )


def about_gang(degradation: Difference | None) -> str:
    """Say whether taking turns together took the cost of sharing away."""
    if degradation is None:
        return "Whether gang scheduling helps is not known: the jobs' dedicated times are not."
    one, two = number(degradation.reference), number(degradation.other)
    way = _way(degradation)
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


def _taken(degradation: Difference) -> str:
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


def about_unfit(unfit: Mapping[str, str]) -> list[str]:
    """Say which runs are unfit to judge by, and why: one sentence, or none."""
    if not unfit:
        return []
    if len(unfit) == 1:
        ((label, why),) = unfit.items()
        return [f"{label} is unfit to judge by: {why}. Run it again on a calm host."]
    several = "; ".join(f"{label} ({why})" for label, why in unfit.items())
    return [f"Unfit to judge by: {several}. Run them again on a calm host."]


def about_strangers(reference: str, others: Sequence[str]) -> list[str]:
    """Say which runs are of another trace than the first one: one sentence, or none."""
    if not others:
        return []
    are = "is of another trace" if len(others) == 1 else "are of other traces"
    return [
        f"{' and '.join(others)} {are} than {reference}: their jobs are not the same, so nothing is compared."
    ]


def _unclear(difference: Difference) -> str:
    return "too few jobs to tell" if difference.change.low is None else "no clear difference"


def _way(difference: Difference) -> int | None:
    """Return -1 or 1 where it is clear that something changed, and None otherwise."""
    share = difference.share
    if difference.change.low is None:
        return None
    if not difference.clear or (share is not None and abs(share) < NEGLIGIBLE):
        return None
    return 1 if difference.change.mean > 0 else -1


def _whole_percent(share: float) -> str:
    return f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.1f}%"
