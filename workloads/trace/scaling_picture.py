"""The picture of a scaled trace: submissions before and after, as one HTML page usable without a network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from analysis.charts import KIND_COLOURS, MUTED, RUN_COLOURS, Chart, arrange
from analysis.pages import Page, PageBlock, PageTable, Section, VerdictParagraph, write_page
from foundation.units import counted, verb
from workloads.swf import SwfJob
from workloads.trace.models import by_kind
from workloads.trace.scaling import Experiment
from workloads.trace.transforms import SLOT_S, BusyWindow

_BEFORE, _AFTER = RUN_COLOURS[0], RUN_COLOURS[1]

Hours = NDArray[np.float64]


def write_picture(
    target: Path, experiment: Experiment, window: BusyWindow, from_procs: int, interactive_queue: int | None
) -> None:
    """Draw ``experiment`` to the HTML file ``target``.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    to_procs = experiment.scaled.header.system_procs or 1
    charts = [
        ("Cores of batch jobs by half hour", _slots(experiment, from_procs, to_procs, window)),
        ("Submitted cores over time", _course(experiment, window, interactive_queue)),
        ("Sizes of batch jobs", _sizes(experiment, interactive_queue)),
        ("Submissions of interactive jobs", _sessions(experiment, window, interactive_queue)),
    ]
    blocks = [PageBlock(heading, chart.caption, chart=chart) for heading, chart in charts]
    grid = PageTable(columns=("", "before", "after"), rows=_rows(experiment), texts=1, heads=True)
    page = Page(
        title=f"Trace {experiment.original.name}, scaled from {from_procs} to {counted(to_procs, 'core')}",
        subtitle="",
        verdict=[VerdictParagraph("", charts[0][1].caption)],
        sections=[
            Section("picture", "Picture", blocks[:1]),
            Section("figures", "Before and after", [PageBlock("", "", grid=grid), *blocks[1:]]),
        ],
    )
    write_page(target, page)


def _rows(experiment: Experiment) -> list[tuple[str, str, str]]:
    report = experiment.report
    errors = [abs(error) for error in report.slot_errors]
    return [
        ("batch jobs", f"{report.jobs_before:,}", f"{report.jobs_after:,}"),
        ("serial jobs", f"{report.serial_before:.1%}", f"{report.serial_after:.1%}"),
        ("power-of-two jobs", f"{report.power_of_two_before:.1%}", f"{report.power_of_two_after:.1%}"),
        ("cores in all (asked for, reached)", f"{report.target_cores:,.1f}", f"{report.cores:,}"),
        ("half hours within the tolerance", str(len(report.slot_targets)), str(report.slots_within)),
        ("mean error of a half hour", "", f"{np.mean(errors):.1%}" if errors else "none"),
        (
            "Kolmogorov-Smirnov distance by cores, by jobs",
            f"{report.arrival_distance:.4f}",
            f"{report.job_distance:.4f}",
        ),
    ]


def _hours(jobs: list[SwfJob]) -> Hours:
    return np.array([job.submit_s / 3600 for job in jobs], dtype=np.float64)


def _over_time(figure: go.Figure, window: BusyWindow, height_px: int, title: str, **layout: str) -> None:
    """Lay out a figure over the window, with the active phase; before it is warm-up, after it cool-down."""
    start, end = ((at - window.start_s) / 3600 for at in (window.active_start_s, window.active_end_s))
    if start > 0 or end < window.length_s / 3600:
        figure.add_vrect(
            x0=start,
            x1=end,
            fillcolor="#56B4E9",
            opacity=0.10,
            line_width=0,
            layer="below",
            annotation={"text": "active phase", "font": {"color": MUTED, "size": 12}},
            annotation_position="top left",
        )
    arrange(figure, height_px, xaxis_title="hours since the window's start", yaxis_title=title, **layout)


def _slots(experiment: Experiment, from_procs: int, to_procs: int, window: BusyWindow) -> Chart:
    report = experiment.report
    hours = [slot * SLOT_S / 3600 for slot in report.slots]
    figure = go.Figure()
    for name, cores, colour, system in (
        ("before", report.slot_before, _BEFORE, from_procs),
        ("after", report.slot_cores, _AFTER, to_procs),
    ):
        figure.add_bar(
            name=f"{name} ({counted(system, 'core')})",
            x=hours,
            y=[100 * value / system for value in cores],
            offset=0 if name == "before" else 0.25,
            width=0.25,
            marker_color=colour,
            customdata=list(cores),
            hovertemplate="%{x:.1f} h: %{customdata} cores, %{y:.1f} % of the system",
        )
    _over_time(figure, window, 380, "cores submitted [% of the system]", barmode="overlay")
    return Chart(
        figure,
        f"{report.slots_within} of {len(report.slot_targets)} half hours are within the tolerance of their "
        "target, or within one core of it.",
    )


def _course(experiment: Experiment, window: BusyWindow, queue: int | None) -> Chart:
    figure = go.Figure()
    pairs = (("before", experiment.original, _BEFORE), ("after", experiment.scaled, _AFTER))
    for name, trace, colour in pairs:
        batch = sorted(by_kind(trace, queue)[1], key=lambda job: job.submit_s)
        cores = np.cumsum([job.procs or 0 for job in batch], dtype=np.float64)
        figure.add_scatter(
            name=name,
            x=_hours(batch),
            y=100 * cores / cores[-1] if len(cores) else cores,
            line={"shape": "hv", "color": colour, "width": 2, "dash": "solid" if name == "before" else "dot"},
        )
    _over_time(figure, window, 380, "cores of batch jobs submitted so far [%]")
    report = experiment.report
    return Chart(
        figure,
        f"The largest gap is the Kolmogorov-Smirnov distance {report.arrival_distance:.4f}, "
        f"and with every job counted alike it is {report.job_distance:.4f}.",
    )


def _sizes(experiment: Experiment, queue: int | None) -> Chart:
    figure = go.Figure()
    for name, trace, colour in (
        ("before", experiment.original, _BEFORE),
        ("after", experiment.scaled, _AFTER),
    ):
        widths = [job.procs or 0 for job in by_kind(trace, queue)[1]]
        sizes, counts = np.unique(np.array(widths, dtype=np.int64), return_counts=True)
        figure.add_scatter(
            name=name,
            x=sizes,
            y=100 * np.cumsum(counts) / max(1, len(widths)),
            line={"shape": "hv", "color": colour, "width": 2},
        )
    arrange(figure, 320)
    figure.update_xaxes(title="cores a job", type="log")
    figure.update_yaxes(title="jobs of at most this size [%]")
    return Chart(figure, "Sizes shrink with the system; the shares of serial and power-of-two jobs stay.")


def _sessions(experiment: Experiment, window: BusyWindow, queue: int | None) -> Chart:
    figure = go.Figure()
    edges = np.arange(0, window.length_s + SLOT_S, SLOT_S) / 3600
    total = 0
    for name, trace, colour in (
        ("before", experiment.original, MUTED),
        ("after", experiment.scaled, KIND_COLOURS["interactive"]),
    ):
        sessions = by_kind(trace, queue)[0]
        total = len(sessions)
        counts, _ = np.histogram(_hours(sessions), bins=edges)
        offset = 0 if name == "before" else 0.25
        figure.add_bar(name=name, x=edges[:-1], y=counts, marker_color=colour, width=0.25, offset=offset)
    _over_time(figure, window, 280, "interactive jobs", barmode="overlay")
    return Chart(
        figure,
        f"{counted(total, 'interactive job')} {verb(total)} in the scaled trace, each within one node.",
    )
