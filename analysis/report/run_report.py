"""The report: one self-contained HTML page for one or several runs, usable without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from analysis.charts import Measured
from analysis.metrics import MetricOptions, RunMetrics, measure, stretches, with_derived
from analysis.pages.page_content import Page, Section
from analysis.pages.page_frame import write_page
from analysis.report.report_page import Subject, picture, sections
from analysis.report.report_parts import (
    answered,
    cards,
    facts_section,
    metrics_section,
    of_one,
    terms_section,
    told,
)
from analysis.verdict import verdict_of
from analysis.verdict.verdict_page import differences_section
from foundation.records import Run
from foundation.units import counted

_NO_TWINS: Mapping[str, str] = MappingProxyType({})


def write_report(
    runs: Sequence[Run],
    target: Path,
    options: MetricOptions = MetricOptions(),
    first: Sequence[Section] = (),
    twins: Mapping[str, str] = _NO_TWINS,
    title: str | None = None,
) -> list[RunMetrics]:
    """Write the page, whole or not at all, and return the metrics on it.

    Parameters
    ----------
    runs
        At least one run, loaded with its placements.
    target
        The HTML file; an existing one is replaced.
    options
        Thresholds of the metrics.
    first
        Further sections, before all others.
    twins
        Runs that have the colour of another one, by label: a simulated run that of the real one.
    title
        Of the page; by default the command ``osub report`` and the names of the real runs.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    numbers = colour_numbers([run.info.label for run in runs], twins)
    subjects = [_subject(numbers[run.info.label], run, options) for run in runs]
    write_page(target, page_of(subjects, first, title), makes_folder=True)
    return [subject.metrics for subject in subjects]


def page_of(subjects: Sequence[Subject], first: Sequence[Section] = (), title: str | None = None) -> Page:
    """Return what stands on the page: verdict, picture, tables and curves, and last what ran where."""
    metrics = [subject.metrics for subject in subjects]
    measured = [subject.measured for subject in subjects]
    verdict = verdict_of([subject.run for subject in subjects], metrics[0].options)
    real = [run.label for run in measured if not run.simulated]
    simulated = len(measured) - len(real)
    labels = " \N{MIDDLE DOT} ".join(real or [run.label for run in measured])  # commas are in labels, too
    counts = counted(len(subjects), "run")
    if real and simulated:
        counts += f", {simulated} of them simulated"
    traces = ", ".join(sorted({subject.run.info.trace_name for subject in subjects}))
    return Page(
        title=title or f"osub report: {labels}",
        subtitle=f"Trace {traces} · {counts}",
        answer=answered(verdict) + (of_one(metrics[0]) if len(metrics) == 1 else []),
        verdict=told(verdict),
        cards=cards(measured, metrics),
        alerts=[
            (one.label, note)
            for one in metrics
            for note in one.notes
            # The verdict has said it.
            if not (one.label in verdict.unfit and verdict.unfit[one.label] in note)
        ],
        sections=[
            *filter(None, [picture(subjects), differences_section(verdict)]),
            metrics_section(measured, metrics),
            *first,
            *sections(subjects),
            terms_section(metrics[0].options),
            facts_section(measured, [subject.run for subject in subjects], metrics),
        ],
    )


def colour_numbers(labels: Sequence[str], twins: Mapping[str, str]) -> dict[str, int]:
    """Return a number for the colour of each run: in order, but a twin has that of its run."""
    own = [label for label in labels if twins.get(label) not in labels]
    numbers = {label: number for number, label in enumerate(own)}
    return numbers | {label: numbers[twins[label]] for label in labels if label not in numbers}


def _subject(number: int, run: Run, options: MetricOptions) -> Subject:
    held = stretches(run.jobs, run.allocations)
    jobs = with_derived(run.jobs, options, held)
    return Subject(
        run,
        held,
        measure(run, options, held),
        Measured(run.info.label, jobs, number, run.info.kind == "simulated"),
    )
