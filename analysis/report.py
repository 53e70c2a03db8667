"""The report: one self-contained HTML page for one or several runs, usable without a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from types import MappingProxyType

import polars as pl

from analysis import charts
from analysis import report_parts as parts
from analysis.metrics import (
    ATTENDED,
    MetricOptions,
    RunMetrics,
    SliceMetrics,
    measure,
    stretches,
    with_derived,
)
from analysis.pages import Page, PageBlock, PageTable, Section, write_page
from analysis.tables import ABSENT
from analysis.verdict import verdict_of
from analysis.verdict.paired_differences import grouped, layout_key
from analysis.verdict.verdict_page import differences_section
from foundation.records import Run
from foundation.units import counted, number

WORST_JOBS = 12
FIRST_PX = 440
"""Height of the first picture at most, so that it is on the first screen with the answer."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One run of the page with all that was computed from it; ``held`` is what its jobs held."""

    run: Run
    held: pl.DataFrame
    metrics: RunMetrics
    measured: charts.ChartedRun


def picture(subjects: Sequence[Subject]) -> Section | None:
    """Return the section that a reader looks at first: who ran where, in up to three runs; None without any.

    Of several runs these are the reference and what the verdict holds against it: sharing by the operating
    system and gang scheduling, else the first other setting; real ones before simulated ones.
    """
    blocks = list(_schedules(subjects, first_looked_at(subjects), FIRST_PX))
    least = 380 if len(blocks) > 2 else 480
    return Section("schedule", "Schedule by node and core", blocks, abreast=least) if blocks else None


def sections(subjects: Sequence[Subject]) -> list[Section]:
    """Return the further sections that these runs have something for."""
    looked_at = first_looked_at(subjects)
    others = [subject for subject in subjects if subject not in looked_at]
    every = [
        Section("waiting", "Waiting times", list(_waiting(subjects))),
        Section("slowdown", "Slowdown and degradation", list(_slowdown(subjects))),
        Section("completion", "Completion over time", list(_completion(subjects))),
        Section("use", "Cores in use over time", list(_use(subjects))),
        Section("slices", "Time slices", list(_slices(subjects))),
        Section("schedules", "Schedules of the other runs", list(_schedules(subjects, others)), abreast=480),
    ]
    return [section for section in every if section.blocks]


def first_looked_at(subjects: Sequence[Subject]) -> list[Subject]:
    """Return the one to three runs that are pictured first, the reference among them."""
    real = [subject for subject in subjects if not subject.measured.simulated]
    firsts = [group.runs[0] for group in grouped([subject.run for subject in real or subjects])]
    some = [subject for subject in subjects if any(subject.run is run for run in firsts)]
    for naive, gang in permutations(some, 2):
        one, other = naive.run.info, gang.run.info
        shares = one.most_a_core > 1
        if layout_key(one) == layout_key(other) and shares and one.gang.kind == "none" != other.gang.kind:
            return [*(some[:1] if some[0] not in (naive, gang) else ()), naive, gang]
    return some[:2]


def _last_s(subjects: Sequence[Subject]) -> float:
    return max((subject.metrics.makespan_s or 0.0 for subject in subjects), default=0.0)


def _schedules(
    subjects: Sequence[Subject], drawn: Sequence[Subject], most_px: int = 900
) -> Iterator[PageBlock]:
    last_s = _last_s(subjects)
    infos = [subject.run.info for subject in subjects]
    most = max(info.most_a_core for info in infos)
    for subject in drawn:
        chart = charts.gantt(
            subject.measured.jobs,
            subject.run.info,
            last_s or None,
            subject.held,
            most_a_core=most,
            most_px=most_px,
        )
        if chart is not None:
            missing = subject.metrics.placement_missing
            lacking = f" {counted(missing, 'job')} ran at a place that is not known." if missing else ""
            yield PageBlock(subject.measured.label, chart.caption + lacking, chart=chart)


def _use(subjects: Sequence[Subject]) -> Iterator[PageBlock]:
    last_s = _last_s(subjects)
    used = [(subject.measured, subject.held, subject.run.info.capacity_cores) for subject in subjects]
    in_use = charts.use_chart(used, last_s) if last_s else None
    if in_use is not None:
        yield PageBlock("", in_use.caption, chart=in_use)


def _waiting(subjects: Sequence[Subject]) -> Iterator[PageBlock]:
    runs = [subject.measured for subject in subjects]
    if any(subject.metrics.kinds["all"].wait_s.known for subject in subjects):
        chart = charts.wait_chart(runs, subjects[0].metrics.options)
        yield PageBlock("Distribution", chart.caption, chart=chart)
        chart = charts.wait_over_time_chart(runs)
        yield PageBlock("Over time", chart.caption, chart=chart)


def _slowdown(subjects: Sequence[Subject]) -> Iterator[PageBlock]:
    runs = [subject.measured for subject in subjects]
    if not any(subject.metrics.kinds["all"].degradation.known for subject in subjects):
        return
    chart = charts.slowdown_chart(runs)
    yield PageBlock("Distribution", chart.caption, chart=chart)
    columns, rows = worst_jobs(runs)
    yield PageBlock(
        "The jobs that suffered most",
        "The largest S_OSub under any setting; the wait is in seconds.",
        grid=PageTable(
            groups=(("", len(columns)), *((run.label, 3) for run in runs)),
            columns=(*columns, *("wait", "degradation", "S_OSub") * len(runs)),
            rows=rows,
            texts=3,
            marks=tuple(mark for run in runs for mark in (parts.mark_of(run),) * 3),
        ),
    )


def _completion(subjects: Sequence[Subject]) -> Iterator[PageBlock]:
    if any(subject.metrics.makespan_s is not None for subject in subjects):
        chart = charts.completion_chart([subject.measured for subject in subjects])
        yield PageBlock("", chart.caption, chart=chart)


def _slices(subjects: Sequence[Subject]) -> Iterator[PageBlock]:
    sliced: list[tuple[str, SliceMetrics]] = []
    for subject in subjects:
        slices, metrics, label = subject.run.slices, subject.metrics.slices, subject.measured.label
        if slices is None or metrics is None:
            continue
        slices = slices.filter(ATTENDED)
        if not slices.height:
            continue
        sliced.append((label, metrics))
        excerpt = charts.excerpt_chart(slices, subject.run.jobs, subject.held)
        if excerpt is not None:
            yield PageBlock(f"{label}: an excerpt", excerpt.caption, chart=excerpt)
        yield PageBlock(
            f"{label}: usage intervals of the most degraded jobs",
            _fairness(metrics),
            grid=PageTable(
                groups=(("", 3), ("usage interval", charts.INTERVAL_COLUMNS)),
                columns=(
                    "job",
                    "application, cores",
                    "degradation",
                    *(str(interval) for interval in range(1, charts.INTERVAL_COLUMNS)),
                    f"{charts.INTERVAL_COLUMNS} or more",
                ),
                rows=charts.interval_rows(slices, subject.measured.jobs),
                texts=2,
            ),
        )
        lateness = charts.lateness_chart(slices)
        if lateness is not None:
            yield PageBlock(f"{label}: lateness", lateness.caption, chart=lateness)
    if sliced:
        chart = charts.interval_chart(sliced)
        yield PageBlock("Usage intervals of all jobs", chart.caption, chart=chart)


def _fairness(metrics: SliceMetrics) -> str:
    if metrics.fairness is None:
        return "No two busy jobs shared a core, so there was nothing to divide fairly."
    missing = (
        f" {counted(metrics.fairness_missing, 'job')} without a known place."
        if metrics.fairness_missing
        else ""
    )
    return (
        f"Jain's fairness index is {metrics.fairness:.4f} over "
        f"{counted(metrics.contended_jobs, 'contended job')}; 1 is perfectly fair, "
        f"{number(1 / metrics.contended_jobs)} is one job served alone.{missing}"
    )


def worst_jobs(runs: Sequence[charts.ChartedRun]) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows of a table of the jobs with the largest S_OSub in any run.

    Columns: job, kind, application, cores; then, for each run, wait, degradation and S_OSub.
    """
    ranked = pl.concat([run.jobs.select("trace_job", "slowdown_osub").drop_nulls() for run in runs]).group_by(
        "trace_job"
    )
    worst = ranked.agg(pl.col("slowdown_osub").max()).sort(
        "slowdown_osub", "trace_job", descending=[True, False]
    )
    numbers = worst.get_column("trace_job").head(WORST_JOBS).to_list()
    details = [
        {row["trace_job"]: row for row in _chosen(run.jobs, numbers).iter_rows(named=True)} for run in runs
    ]
    rows: list[list[str]] = []
    for job in numbers:
        first = next(known[job] for known in details if job in known)
        cells = [str(job), first["kind"], first["app"] or ABSENT, f"{first['cores']:,}"]
        for known in details:
            row = known.get(job, {})
            cells += [
                ABSENT if (value := row.get(name)) is None else number(value)
                for name in ("wait_s", "degradation", "slowdown_osub")
            ]
        rows.append(cells)
    return ["job", "kind", "application", "cores"], rows


def _chosen(jobs: pl.DataFrame, numbers: Sequence[int]) -> pl.DataFrame:
    columns = ["trace_job", "kind", "app", "cores", "wait_s", "degradation", "slowdown_osub"]
    return jobs.select(columns).filter(pl.col("trace_job").is_in(numbers))


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
    """Return the page: verdict, picture, tables and curves, and last what ran where."""
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
        answer=parts.answered(verdict) + (parts.of_one(metrics[0]) if len(metrics) == 1 else []),
        verdict=parts.paragraphs(verdict),
        cards=parts.cards(measured, metrics),
        alerts=[
            (one.label, note)
            for one in metrics
            for note in one.notes
            # The verdict has said it.
            if not (one.label in verdict.unfit and verdict.unfit[one.label] in note)
        ],
        sections=[
            *filter(None, [picture(subjects), differences_section(verdict)]),
            parts.metrics_section(measured, metrics),
            *first,
            *sections(subjects),
            parts.terms_section(metrics[0].options),
            parts.facts_section(measured, [subject.run for subject in subjects], metrics),
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
        charts.ChartedRun(run.info.label, jobs, number, run.info.kind == "simulated"),
    )
