"""Charts of the time slices of a gang scheduler: an excerpt of the timeline, usage intervals, lateness."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from analysis.charts.chart_style import GRID, MUTED, PAPER, RUN_COLOURS, Chart, arrange, job_colour, safe
from analysis.metrics import (
    SliceMetrics,
    busy_slices,
    core_lists,
    in_stretches,
    numbered_once,
    placed,
    stretches,
    usage_intervals,
)
from analysis.quantiles import quantile, quantiles
from foundation.units import counted, verb

EXCERPT_SLICES = 60
BARS_LIMIT = 3_000
BANDS_LIMIT = 48
INTERVAL_COLUMNS = 5
INTERVAL_ROWS = 15
OPACITY = {"held": 0.22, "leftover": 0.22, "idle": 0.07}


def excerpt_chart(slices: pl.DataFrame, jobs: pl.DataFrame, held: pl.DataFrame | None = None) -> Chart | None:
    """Draw who ran on each core in the busiest stretch of slices; None if no placement is known.

    Parameters
    ----------
    slices
        The ``slices`` table.
    jobs
        The ``jobs`` table.
    held
        The jobs' allocation intervals (``metrics.stretches``); None: one attempt each.
    """
    places = placed(jobs, stretches(jobs) if held is None else held)
    if not slices.height or not places.height:
        return None
    window = _busiest(slices)
    on_cores = (
        in_stretches(window, places)
        .join(places.drop("start_s", "end_s"), on=("job", "node", "stretch"))
        .join(core_lists(places), on="cores")
        .explode("core", empty_as_null=False)
        .sort("node", "core", "trace_job", "slice")
    )
    bands = on_cores.select("node", "core").unique(maintain_order=True)
    left_out = bands.height - BANDS_LIMIT
    bands = bands.head(BANDS_LIMIT).with_row_index("band")
    drawn = on_cores.join(bands, on=("node", "core"), maintain_order="left")
    number = drawn.get_column("slice").to_numpy()
    fits = max(1, BARS_LIMIT // int(np.bincount(number - number.min()).max()))
    drawn = drawn.filter(pl.col("slice") < int(number.min()) + fits)
    drawn = drawn.with_columns(
        lane=pl.col("job").rank("dense").over("band") - 1, lanes=pl.col("job").n_unique().over("band")
    )
    figure = _excerpt(drawn, bands)
    start_s, length_s = (drawn.get_column(name).to_numpy() for name in ("start_s", "length_s"))
    seconds = float((start_s + length_s).max() - start_s.min())
    more = f" {counted(left_out, 'more core')} {verb(left_out)} not shown." if left_out > 0 else ""
    return Chart(
        figure,
        f"The {seconds:.1f} s with the most jobs in turn. Each core's band has a line for each job on it:"
        " strong where the slice was the job's, pale where it was held, hardly to be seen where it had"
        f" nothing to do.{more}",
    )


def _busiest(slices: pl.DataFrame) -> pl.DataFrame:
    """Return the stretch of ``EXCERPT_SLICES`` slices with the most busy rows, numbered by time."""
    start_s = slices.get_column("start_s").to_numpy()
    length_s = float(np.median(slices.get_column("length_s").to_numpy()))
    turn = np.round((start_s - start_s.min()) / length_s).astype(np.int64)
    busy = np.bincount(turn[(slices.get_column("role") != "idle").to_numpy()], minlength=1)
    total = np.concatenate(([0], np.cumsum(busy)))
    span = min(EXCERPT_SLICES, len(busy))
    first = int(np.argmax(total[span:] - total[:-span]))
    inside = (turn >= first) & (turn < first + EXCERPT_SLICES)
    return slices.with_columns(slice=pl.Series(turn)).filter(pl.Series(inside))


def _excerpt(drawn: pl.DataFrame, bands: pl.DataFrame) -> go.Figure:
    figure = go.Figure()
    for (trace_job,), some in drawn.group_by("trace_job", maintain_order=True):
        number = int(trace_job)
        lanes = some.get_column("lanes").to_numpy()
        part = 0.86 / lanes
        roles = some.get_column("role").to_list()
        figure.add_bar(
            orientation="h",
            base=some.get_column("start_s").to_list(),
            x=some.get_column("length_s").to_list(),
            y=(some.get_column("band").to_numpy() + 0.07 + part * (some.get_column("lane").to_numpy() + 0.5))
            .round(4)
            .tolist(),
            width=(part * 0.94).round(4).tolist(),
            marker={
                "color": job_colour(number),
                "opacity": [OPACITY.get(role, 1.0) for role in roles],
                "line": {"color": PAPER, "width": 0.5},
            },
            name=f"job {number}",
            customdata=[f"job {number}: {role}" for role in roles],
            hovertemplate="%{customdata}<br>slice from %{base:.2f} s<extra></extra>",
        )
    height_px = int(min(max(150 + bands.height * 44, 260), 900))
    arrange(figure, height_px, barmode="overlay", bargap=0)
    labels = [f"{safe(node)} · {core}" for node, core in bands.select("node", "core").iter_rows()]
    figure.update_yaxes(
        tickvals=[band + 0.5 for band in range(bands.height)],
        ticktext=labels,
        range=[bands.height, 0],
        title="node · core",
        showgrid=False,
        ticks="",
    )
    for band in range(1, bands.height):
        figure.add_hline(y=band, line={"color": GRID, "width": 1}, layer="below")
    start_s = drawn.get_column("start_s").to_numpy()
    end_s = start_s + drawn.get_column("length_s").to_numpy()
    figure.update_xaxes(
        title="time from the first due submission [s]", range=[float(start_s.min()), float(end_s.max())]
    )
    return figure


def interval_rows(slices: pl.DataFrame, jobs: pl.DataFrame) -> list[list[str]]:
    """Return the rows of a usage interval table as the thesis's Table 7.7, the most degraded jobs first.

    Columns: job, application and cores, degradation, then how often each interval from 1 up occurred; the
    last column counts the longer ones together.
    """
    counted = usage_intervals(busy_slices(numbered_once(slices))).with_columns(
        pl.col("interval").clip(upper_bound=INTERVAL_COLUMNS)
    )
    wide = counted.group_by("job", "interval").agg(pl.col("count").sum())
    known = jobs.select(pl.col("job_id").alias("job"), "trace_job", "app", "cores", "degradation").drop_nulls(
        "job"
    )
    order = (
        known.join(wide.select("job").unique(), on="job", how="semi")
        .sort("degradation", descending=True, nulls_last=True)
        .head(INTERVAL_ROWS)
    )
    counts = {(job, interval): count for job, interval, count in wide.iter_rows()}
    return [
        [
            str(row["trace_job"]),
            f"{row['app'] or 'job'}, {row['cores']}",
            "-" if row["degradation"] is None else f"{row['degradation']:.2f}",
            *(f"{counts.get((row['job'], interval), 0):,}" for interval in range(1, INTERVAL_COLUMNS + 1)),
        ]
        for row in order.iter_rows(named=True)
    ]


def interval_chart(metrics: Sequence[tuple[str, SliceMetrics]]) -> Chart:
    """Draw the usage interval distribution of all jobs together, one bar group a run."""
    figure = go.Figure()
    for number, (label, measured) in enumerate(metrics):
        total = max(sum(measured.intervals.values()), 1)
        counts = [measured.intervals.get(str(interval), 0) for interval in range(1, INTERVAL_COLUMNS)]
        counts.append(sum(measured.intervals.values()) - sum(counts))
        figure.add_bar(
            x=[str(interval) for interval in range(1, INTERVAL_COLUMNS)] + [f"{INTERVAL_COLUMNS} or more"],
            y=[round(100 * count / total, 2) for count in counts],
            name=safe(label),
            marker={"color": RUN_COLOURS[number % len(RUN_COLOURS)]},
            hovertemplate="interval %{x}: %{y:.1f}%<extra></extra>",
        )
    arrange(figure, 300, showlegend=len(metrics) > 1, bargap=0.5)
    figure.update_xaxes(title="usage interval [busy slices]", type="category")
    figure.update_yaxes(title="share of the uses [%]", rangemode="tozero")
    return Chart(
        figure,
        "Busy slices from one use of the cores by a job to its next: 1 is every slice, 2 every other one."
        " Under full load the fairest value is the number of jobs that share the cores.",
    )


def lateness_chart(slices: pl.DataFrame) -> Chart | None:
    """Draw how late the nodes acted, and how long freezing took; None if neither was recorded."""
    columns = [
        (title, values)
        for name, title in (
            ("skew_us", "a node acts after the slice's start [µs]"),
            ("freeze_us", "until all tasks are frozen or thawed [µs]"),
        )
        if len(values := slices.get_column(name).drop_nulls())
    ]
    if not columns:
        return None
    figure = make_subplots(cols=len(columns), horizontal_spacing=0.08)
    beyond = 0
    for column, (title, values) in enumerate(columns, start=1):
        low, high = quantiles(values, (0.001, 0.999))
        inside = values.to_numpy()[(values.to_numpy() >= low) & (values.to_numpy() <= high)]
        beyond += len(values) - len(inside)
        counts, edges = np.histogram(inside, bins=60)
        figure.add_bar(
            x=((edges[1:] + edges[:-1]) / 2).round(2).tolist(),
            y=counts.tolist(),
            width=float(edges[1] - edges[0]) * 0.96,
            marker={"color": RUN_COLOURS[0]},
            hovertemplate="%{x:,.0f} µs: %{y:,}<extra></extra>",
            row=1,
            col=column,
        )
        for percent in (50, 99):
            figure.add_vline(
                x=quantile(values, percent / 100),
                line={"color": MUTED, "width": 1, "dash": "dot"},
                annotation={"text": f"p{percent}", "font": {"size": 11, "color": MUTED}},
                row=1,
                col=column,
            )
        figure.update_xaxes(title=title, row=1, col=column)
    arrange(figure, 320, showlegend=False)
    figure.update_yaxes(title="times", col=1)
    left_out = f" {beyond:,} extreme values are outside." if beyond else ""
    return Chart(figure, "Lateness is against the published instant; negative is early." + left_out)
