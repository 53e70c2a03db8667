"""The report: one self-contained HTML page for one or several runs, usable without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from osub.analysis.charts import Chart, fragment, run_style
from osub.analysis.curves import Measured
from osub.analysis.derived import MetricOptions, with_derived
from osub.analysis.lives import stretches
from osub.analysis.metrics import RunMetrics, measure
from osub.analysis.page import Section, Subject, sections
from osub.analysis.plotly_script import plotly_script
from osub.analysis.provenance import provenance_rows
from osub.analysis.rows import metric_rows
from osub.analysis.verdict import Verdict, verdict_of
from osub.analysis.verdict.show import heading
from osub.errors import OutputError
from osub.records import Run
from osub.records.journal import output_error
from osub.version import VERSION
from osub.whole_file import write_whole

HIGHLIGHTS = (
    ("System", "makespan"),
    ("Interactive jobs", "wait, max"),
    ("All jobs", "waited over"),
    ("All jobs", "S_OSub, mean"),
    ("All jobs", "degradation, mean"),
    ("System", "cores in use"),
    ("Host", "CPU time that others used"),
    ("Host", "pace of the jobs"),
)
"""Rows of the metrics table that stand in each run's card at the top: group, and how the name begins."""
_NO_TWINS: Mapping[str, str] = MappingProxyType({})


def write_report(
    runs: Sequence[Run],
    target: Path,
    options: MetricOptions = MetricOptions(),  # noqa: B008
    first: Sequence[Section] = (),
    twins: Mapping[str, str] = _NO_TWINS,
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

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    if target.is_dir():
        raise OutputError(f"{target} is a folder; name a file, such as {target / 'report.html'}")
    numbers = colour_numbers([run.info.label for run in runs], twins)
    subjects = [_subject(numbers[run.info.label], run, options) for run in runs]
    _write(target, render(subjects, first))
    return [subject.metrics for subject in subjects]


def render(subjects: Sequence[Subject], first: Sequence[Section] = ()) -> str:
    """Return the page; the same runs give the same page."""
    environment = Environment(
        loader=PackageLoader("osub.analysis"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    metrics = [subject.metrics for subject in subjects]
    rows = metric_rows(metrics)
    numbers = iter(range(1_000_000))

    def draw(chart: Chart) -> Markup:
        # Plotly's JSON encoder escapes <, > and /, and texts from files went through safe().
        return Markup(fragment(chart.figure, f"chart-{next(numbers)}"))  # noqa: S704

    return environment.get_template("report.html.j2").render(
        verdict=_told(verdict_of([subject.run for subject in subjects], metrics[0].options)),
        title="osub report: " + ", ".join(subject.measured.label for subject in subjects),
        traces=sorted({subject.run.info.trace_name for subject in subjects}),
        labels=[subject.measured.label for subject in subjects],
        colours=[run_style(subject.measured.number)["color"] for subject in subjects],
        simulated=[subject.measured.simulated for subject in subjects],
        cards=[_card(number, subjects) for number in range(len(subjects))],
        provenance=provenance_rows([subject.run for subject in subjects]),
        groups=[(name, list(members)) for name, members in groupby(rows, key=lambda row: row.group)],
        states=[_states(subject.metrics) for subject in subjects],
        notes=[(subject.measured.label, note) for subject in subjects for note in subject.metrics.notes],
        options=metrics[0].options,
        sections=[*first, *sections(subjects)],
        draw=draw,
        version=VERSION,
        plotly=Markup(plotly_script()),  # noqa: S704 - Plotly's own script
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


def _card(number: int, subjects: Sequence[Subject]) -> list[tuple[str, str, bool]]:
    """Return the run's highlights: name, text, and whether it is the best."""
    rows = metric_rows([subject.metrics for subject in subjects])
    found = []
    for group, start in HIGHLIGHTS:
        row = next((row for row in rows if row.group == group and row.name.startswith(start)), None)
        if row is not None:
            prefix = "interactive " if group == "Interactive jobs" else ""
            found.append((prefix + row.name, row.cells[number], row.best[number]))
    return found


def _told(verdict: Verdict) -> list[tuple[str, str, str]]:
    """Return heading, answer and words of each finding, and the evidence without a heading."""
    findings = [(heading(one), one.answer, " ".join(one.sentences)) for one in verdict.findings]
    return findings + [("", "evidence", sentence) for sentence in verdict.evidence]


def _states(metrics: RunMetrics) -> str:
    states = metrics.kinds["all"].states
    return ", ".join(f"{count:,} {state}" for state, count in states.items())


def _write(target: Path, page: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error("write", target, error) from error
    write_whole(target, page)
