"""The verdict on runs of one trace: the first setting against each other one, gangs against their absence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from analysis.metrics import MetricOptions, unfit
from analysis.verdict.paired_differences import (
    Evidence,
    Paired,
    QuantityDifference,
    RunGroup,
    are_of_one_trace,
    grouped,
    layout_key,
    paired,
)
from analysis.verdict.sentences import (
    about_answer,
    about_cost,
    about_evidence,
    about_gang,
    about_overhead,
    about_slowdown,
    about_strangers,
    about_unfit,
    about_wait,
    about_whole,
    jobs_a_core,
)
from foundation.records import Run, RunInfo
from foundation.units import counted

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


def verdict_of(
    runs: Sequence[Run],
    options: MetricOptions = MetricOptions(),
) -> Verdict:
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
    strangers = [group.label for group in groups[1:] if not _of_one_trace(groups[0], group)]
    remarks = (*about_strangers(groups[0].label, strangers), *_evidence(findings, simulated=simulated))
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
        sentence = about_evidence(_found(one), simulated=simulated)
        about.setdefault(sentence, []).append(f"{one.other} against {one.reference}")
    for sentence, pairs in about.items():
        whose = f"Evidence for {' and '.join(pairs)}:"
        yield sentence if len(about) == 1 else sentence.replace("Evidence:", whose, 1)


def _found(finding: SettingFinding) -> Paired:
    return Paired(
        jobs=finding.jobs, evidence=finding.evidence, runs=finding.runs, differences=finding.differences
    )


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
            about_wait(differences.get("wait_s")),
            about_cost(differences.get("degradation")),
            about_whole(differences.get("turnaround_s")),
            about_slowdown(differences.get("bounded_slowdown")),
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
                sentences = (about_gang(found.differences.get("degradation")),)
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
