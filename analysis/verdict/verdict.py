"""The verdict on runs of one trace: the first setting against each other one, gangs against their absence.

A sentence never says more than its interval does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from analysis.metrics import MetricOptions, Unfit, unfit
from analysis.verdict.paired_differences import (
    NEGLIGIBLE,
    Evidence,
    Paired,
    QuantityDifference,
    RunGroup,
    are_of_one_trace,
    grouped,
    layout_key,
    paired,
)
from foundation.records import Run, RunInfo
from foundation.units import counted, durations, number, several

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


class MeasureSentences(NamedTuple):
    """What is said of a measure: where it is not known, not clear, fell, and rose; to zero, and from it.

    In them ``{one}`` and ``{two}`` are the means of reference and other, ``{by}`` is the change.
    """

    unknown: str
    unclear: str
    fell: str
    rose: str
    ended: str = ""
    began: str = ""
    is_time: bool = False


_SENTENCES = {
    "wait_s": MeasureSentences(
        "Nothing is known of the waiting.",
        "Waiting: {unclear} ({two} on average against {one}).",
        "Waiting got shorter by {by}: {two} on average, not {one}.",
        "Waiting got longer by {by}: {two} on average, not {one}.",
        "Waiting ended: {two} on average instead of {one}.",
        "Waiting began: {two} on average instead of {one}.",
        is_time=True,
    ),
    "degradation": MeasureSentences(
        "What the jobs paid for it is not known: their dedicated times are not.",
        "On cores: {unclear} ({two} times what jobs need alone against {one}).",
        "They ran faster: {two} times what they need alone, not {one}.",
        "It cost them time on cores: {two} times what they need alone, not {one}.",
    ),
    "turnaround_s": MeasureSentences(
        "",
        "In all: {unclear} (a job was done after {two} against {one}).",
        "In all, a job was done sooner by {by}: after {two}, not {one}.",
        "In all, a job was done later by {by}: after {two}, not {one}.",
        is_time=True,
    ),
    "bounded_slowdown": MeasureSentences(
        "",
        "Mean bounded slowdown: {unclear} ({two} against {one}).",
        "The mean bounded slowdown fell by {by}: {two}, not {one}.",
        "The mean bounded slowdown rose by {by}: {two}, not {one}.",
    ),
}
"""Of one setting against another, in the order in which they are said."""
_OF_GANGS = MeasureSentences(
    "Whether gang scheduling helps is not known: the jobs' dedicated times are not.",
    "Gang scheduling, in the jobs' time on cores: {unclear} ({two} times what they need alone against {one} "
    "without).",
    "Gang scheduling took {taken}: jobs took {two} times what they need alone, {one} without it ({by} less).",
    "Gang scheduling made it worse: jobs took {two} times what they need alone, {one} without it "
    "({by} more).",
)
"""Of the degradation under gangs against that without."""


def about_measure(sentences: MeasureSentences, found: QuantityDifference | None) -> str:
    """Say what became of a measure."""
    if found is None:
        return sentences.unknown
    texts = durations if sentences.is_time else lambda *values: map(number, values)
    one, two = texts(found.reference, found.other)
    if found.way is None:
        return sentences.unclear.format(one=one, two=two, unclear=_unclear(found))
    if sentences.ended and 0 in (found.other, found.reference):
        return (sentences.ended if found.way < 0 else sentences.began).format(one=one, two=two)
    said = sentences.fell if found.way < 0 else sentences.rose
    return said.format(one=one, two=two, by=percent(found), taken=_taken(found))


def _taken(degradation: QuantityDifference) -> str:
    cost = degradation.reference - 1
    if cost < _LEAST_COST:
        return "some time off"
    share = min(1.0, (degradation.reference - degradation.other) / cost)
    return f"{_whole_percent(share)} of the cost of sharing away"


def about_evidence(found: SettingFinding, *, simulated: bool) -> str:
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


def about_other_traces(reference: str, others: Sequence[str]) -> list[str]:
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


Question = Literal["setting", "gang"]
Answer = Literal["better", "worse", "mixed", "unclear"]
_BEST_FIRST: tuple[Answer, ...] = ("better", "mixed", "unclear", "worse")
_SHARED_BY = {"osub": " under gangd", "slurm": " under Slurm's gang scheduler"}


class SettingFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What one setting does against another.

    Parameters
    ----------
    question
        ``setting``: are jobs done sooner, or slowed down less? ``gang``: does gang scheduling lower the cost
        of sharing?
    reference, other
        Labels of the two.
    answer
        For the other one. Of a setting it is that of the time from submission to end and of the bounded
        slowdown: ``mixed`` where one is better and the other worse, ``unclear`` where both intervals have
        zero in them, or there is none, or where a run of either is unfit to judge by.
    sentences
        The same in words.
    jobs, evidence, runs
        Its evidence; see ``Paired``.
    differences
        The figures: ``wait_s``, ``turnaround_s`` (seconds of the run), ``degradation``, ``slowdown_osub``,
        ``bounded_slowdown``.
    """

    question: Question
    reference: str
    other: str
    answer: Answer
    sentences: tuple[str, ...]
    jobs: int
    evidence: Evidence
    runs: tuple[int, int]
    differences: dict[str, QuantityDifference]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison says, the most important first.

    Parameters
    ----------
    findings
        One for each pair of settings.
    evidence
        A sentence on the runs that are unfit to judge by, and on the evidence as a whole.
    unfit
        Why a run is unfit, by its label.
    answer
        All of it in one sentence: what the best of the settings does, and whether that helps; empty where no
        fit runs are compared.
    best
        The finding that ``answer`` is of; None where it is empty.
    """

    findings: tuple[SettingFinding, ...]
    evidence: tuple[str, ...]
    unfit: dict[str, str] = {}
    answer: str = ""
    best: SettingFinding | None = None


def verdict_of(runs: Sequence[Run], options: MetricOptions = MetricOptions()) -> Verdict:
    """Return the verdict on runs of one trace; the first one is what the others are held against.

    A real run and its simulation are no two settings: their differences are errors (``job_by_job``), and
    there is no finding on them. Nor is there one on a run of another trace.
    """
    groups = grouped(runs)
    reasons = {run.info.label: why for run in runs if (why := unfit(run, options))}
    spoiled = {group.label for group in groups if any(run.info.label in reasons for run in group.runs)}
    findings = [
        replace(one, answer="unclear") if spoiled & {one.reference, one.other} else one
        for one in (*_of_settings(groups, options), *_of_gangs(groups, options))
    ]
    simulated = all(run.info.kind == "simulated" for run in runs)
    others = [group.label for group in groups[1:] if not _of_one_trace(groups[0], group)]
    remarks = (*about_other_traces(groups[0].label, others), *_evidence(findings, simulated=simulated))
    best, answer = _best(groups, [one for one in findings if not spoiled & {one.reference, one.other}])
    return Verdict(
        findings=tuple(findings),
        evidence=(*about_unfit(reasons), *remarks),
        unfit={label: "; and ".join(one.why for one in whys) for label, whys in reasons.items()},
        answer=answer,
        best=best,
    )


def _best(
    groups: Sequence[RunGroup], findings: Sequence[SettingFinding]
) -> tuple[SettingFinding | None, str]:
    """Return the finding on the setting that serves the jobs best, and the answer in a sentence."""
    settings = [one for one in findings if one.question == "setting"]
    if not settings:
        return None, ""

    def rank(one: SettingFinding) -> tuple[int, float]:
        whole = one.differences.get("turnaround_s")
        return _BEST_FIRST.index(one.answer), 0.0 if whole is None else whole.change.mean

    best = min(settings, key=rank)
    reference = groups[0]
    other = next(group for group in groups if group.label == best.other)
    is_sharing = other.is_shared and not reference.is_shared and _differ_in_m(reference.info, other.info)
    subject = f"{other.label} instead of {reference.label}"
    if is_sharing:
        by_system = other.info.kind == "real" and any(group.info.gang.kind != "none" for group in groups)
        by = _SHARED_BY.get(other.info.gang.kind, ", left to the operating system" if by_system else "")
        subject = jobs_a_core(other.info.multiplicity) + by
    if (assumed := _assumed(reference, other)) is not None:
        subject += f", assuming C_o = {assumed}"
    if len(settings) > 1:
        subject += f", the best of {counted(len(settings), 'setting')} against {reference.label}"
    few = best.evidence == "too few jobs"
    return best, about_answer(
        best.differences, subject=subject, sharing=is_sharing, answer=best.answer, few=few
    )


def _differ_in_m(one: RunInfo, other: RunInfo) -> bool:
    """Whether two settings differ in how many jobs share a core, and how they do, alone."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("system", "queues", "policy", "speedup", "multiplicity_interactive", "interactive_nodes")
    )


def _of_one_trace(reference: RunGroup, other: RunGroup) -> bool:
    return are_of_one_trace(reference.runs[0], other.runs[0])


def _evidence(findings: Sequence[SettingFinding], *, simulated: bool) -> Iterator[str]:
    """Yield what the findings stand on; where that differs, with what it is said of."""
    about: dict[str, list[str]] = {}
    for one in findings:
        sentence = about_evidence(one, simulated=simulated)
        about.setdefault(sentence, []).append(f"{one.other} against {one.reference}")
    for sentence, pairs in about.items():
        whose = f"Evidence for {' and '.join(pairs)}:"
        yield sentence if len(about) == 1 else sentence.replace("Evidence:", whose, 1)


def _of_settings(groups: Sequence[RunGroup], options: MetricOptions) -> Iterator[SettingFinding]:
    for other in groups[1:]:
        reference = groups[0]
        if reference.info.kind != other.info.kind or not _of_one_trace(reference, other):
            continue
        found = paired(reference, other, options)
        if not found.jobs:
            continue
        differences = found.differences
        sentences = (
            *(about_measure(said, differences.get(name)) for name, said in _SENTENCES.items()),
            _on_overhead(reference, other, differences),
        )
        yield _finding("setting", reference, other, found, ("turnaround_s", "bounded_slowdown"), sentences)


def _assumed(reference: RunGroup, other: RunGroup) -> str | None:
    """Return the C_o that a comparison assumes; None where it plays no part, or is what differs."""
    found = {reference.overhead, other.overhead} - {None}
    return found.pop() if len(found) == 1 else None


def _on_overhead(reference: RunGroup, other: RunGroup, differences: Mapping[str, QuantityDifference]) -> str:
    """Return what would change at other C_o; empty where it plays no part."""
    assumed = _assumed(reference, other)
    if assumed is None:
        return ""
    elsewhere = {}
    for overhead in dict.fromkeys(
        one for run in (*reference.runs, *other.runs) for one in run.info.other_overheads
    ):
        one, two = (
            group.at_overhead(overhead) if group.overhead else _plain(differences, at)
            for group, at in ((reference, "reference"), (other, "other"))
        )
        if one and two and one.get("degradation"):
            times = two["degradation"] / one["degradation"]
            elsewhere[overhead] = (one["turnaround_s"], two["turnaround_s"], times)
    return about_overhead(assumed, differences.get("turnaround_s"), elsewhere)


def _plain(differences: Mapping[str, QuantityDifference], which: str) -> dict[str, float]:
    """Return the means of a setting that C_o changes nothing in."""
    return {name: getattr(one, which) for name, one in differences.items()}


def _of_gangs(groups: Sequence[RunGroup], options: MetricOptions) -> Iterator[SettingFinding]:
    for naive in groups:
        if not naive.is_shared or naive.info.gang.kind != "none" or naive.info.kind != groups[0].info.kind:
            continue
        for gang in groups:
            alike = layout_key(naive.info) == layout_key(gang.info) and naive.info.kind == gang.info.kind
            if not alike or gang.info.gang.kind == "none":
                continue
            found = paired(naive, gang, options)
            if found.jobs:
                sentences = (about_measure(_OF_GANGS, found.differences.get("degradation")),)
                yield _finding("gang", naive, gang, found, ("degradation",), sentences)


def _finding(
    question: Question,
    reference: RunGroup,
    other: RunGroup,
    found: Paired,
    judged: tuple[str, ...],
    sentences: tuple[str, ...],
) -> SettingFinding:
    return SettingFinding(
        question=question,
        reference=reference.label,
        other=other.label,
        answer=_answer([found.differences.get(name) for name in judged]),
        sentences=tuple(filter(None, sentences)),
        jobs=found.jobs,
        evidence=found.evidence,
        runs=found.runs,
        differences=found.differences,
    )


def _answer(judged: Sequence[QuantityDifference | None]) -> Answer:
    ways = {found.way for found in judged if found is not None} - {None}
    if not ways:
        return "unclear"
    return "mixed" if len(ways) > 1 else "better" if ways == {-1} else "worse"
