"""The verdict on runs of one trace: the first setting against each other one, gangs against their absence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from analysis.metrics import MetricOptions, host_use
from analysis.verdict.compared_settings import Group, are_of_one_trace, grouped, layout_key
from analysis.verdict.paired_differences import Difference, Evidence, Paired, paired
from analysis.verdict.sentences import (
    about_cost,
    about_evidence,
    about_gang,
    about_strangers,
    about_unfit,
    about_wait,
    about_whole,
)
from foundation.records import Run

Question = Literal["setting", "gang"]
Answer = Literal["better", "worse", "unclear"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one setting does against another.

    Parameters
    ----------
    question
        ``setting``: are jobs done sooner? ``gang``: does gang scheduling lower the cost of sharing?
    reference, other
        Labels of the two.
    answer
        For the other one; ``unclear`` where the interval has zero in it, or there is none, or where a run of
        either is unfit to judge by.
    sentences
        The same in words.
    jobs, evidence, runs
        What it stands on; see ``Paired``.
    differences
        The figures: ``wait_s``, ``turnaround_s`` (seconds of the run), ``degradation``, ``slowdown_osub``.
    """

    question: Question
    reference: str
    other: str
    answer: Answer
    sentences: tuple[str, ...]
    jobs: int
    evidence: Evidence
    runs: tuple[int, int]
    differences: dict[str, Difference]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison says, the most important first.

    Parameters
    ----------
    findings
        One for each pair of settings.
    evidence
        A sentence on the runs that are unfit to judge by, and what it all stands on.
    unfit
        Why a run is unfit, by its label.
    """

    findings: tuple[Finding, ...]
    evidence: tuple[str, ...]
    unfit: dict[str, str] = {}


def verdict_of(
    runs: Sequence[Run],
    options: MetricOptions = MetricOptions(),
) -> Verdict:
    """Return the verdict on runs of one trace; the first one is what the others are held against.

    A real run and its simulation are no two settings: their differences are errors (``job_by_job``), and
    there is no finding on them. Nor is there one on a run of another trace.
    """
    groups = grouped(runs)
    unfit = _unfit(runs, options)
    spoiled = {group.label for group in groups if any(run.info.label in unfit for run in group.runs)}
    findings = [
        replace(one, answer="unclear") if spoiled & {one.reference, one.other} else one
        for one in (*_of_settings(groups), *_of_gangs(groups))
    ]
    simulated = all(run.info.kind == "simulated" for run in runs)
    strangers = [group.label for group in groups[1:] if not _of_one_trace(groups[0], group)]
    told = (*about_strangers(groups[0].label, strangers), *_evidence(findings, simulated=simulated))
    return Verdict(findings=tuple(findings), evidence=(*about_unfit(unfit), *told), unfit=unfit)


def _of_one_trace(reference: Group, other: Group) -> bool:
    return are_of_one_trace(reference.runs[0], other.runs[0])


def _evidence(findings: Sequence[Finding], *, simulated: bool) -> Iterator[str]:
    """Yield what the findings stand on; where that differs, with what it is said of."""
    about: dict[str, list[str]] = {}
    for one in findings:
        sentence = about_evidence(_found(one), simulated=simulated)
        about.setdefault(sentence, []).append(f"{one.other} against {one.reference}")
    for sentence, pairs in about.items():
        whose = f"Evidence for {' and '.join(pairs)}:"
        yield sentence if len(about) == 1 else sentence.replace("Evidence:", whose, 1)


def _unfit(runs: Sequence[Run], options: MetricOptions) -> dict[str, str]:
    """Return why runs are unfit to judge by, by label; those that are fit, or unknown, are left out."""
    whys = {
        run.info.label: host_use(run, options.most_taken, options.most_spread).unfit
        for run in runs
        if run.info.kind == "real"
    }
    return {label: why for label, why in whys.items() if why is not None}


def _found(finding: Finding) -> Paired:
    return Paired(
        jobs=finding.jobs, evidence=finding.evidence, runs=finding.runs, differences=finding.differences
    )


def _of_settings(groups: Sequence[Group]) -> Iterator[Finding]:
    for other in groups[1:]:
        reference = groups[0]
        if reference.info.kind != other.info.kind or not _of_one_trace(reference, other):
            continue
        found = paired(reference, other)
        if not found.jobs:
            continue
        differences = found.differences
        sentences = (
            about_wait(differences.get("wait_s")),
            about_cost(differences.get("degradation")),
            about_whole(differences.get("turnaround_s")),
        )
        yield _finding("setting", reference, other, found, "turnaround_s", sentences)


def _of_gangs(groups: Sequence[Group]) -> Iterator[Finding]:
    for naive in groups:
        if not naive.is_shared or naive.info.gang.kind != "none" or naive.info.kind != groups[0].info.kind:
            continue
        for gang in groups:
            alike = layout_key(naive.info) == layout_key(gang.info) and naive.info.kind == gang.info.kind
            if not alike or gang.info.gang.kind == "none":
                continue
            found = paired(naive, gang)
            if found.jobs:
                sentences = (about_gang(found.differences.get("degradation")),)
                yield _finding("gang", naive, gang, found, "degradation", sentences)


def _finding(
    question: Question,
    reference: Group,
    other: Group,
    found: Paired,
    judged: str,
    sentences: tuple[str, ...],
) -> Finding:
    return Finding(
        question=question,
        reference=reference.label,
        other=other.label,
        answer=_answer(found.differences.get(judged)),
        sentences=tuple(filter(None, sentences)),
        jobs=found.jobs,
        evidence=found.evidence,
        runs=found.runs,
        differences=found.differences,
    )


def _answer(difference: Difference | None) -> Answer:
    if difference is None or not difference.clear:
        return "unclear"
    return "better" if difference.change.mean < 0 else "worse"
