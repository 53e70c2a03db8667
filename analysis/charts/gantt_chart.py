"""The Gantt chart of a run: every job on its nodes and cores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
import polars as pl

from analysis.charts.chart_style import GRID, MUTED, Chart, arrange, safe, time_unit
from analysis.charts.gantt_bars import Bar, Drawn, add_bars, bars, described, legend_px
from analysis.charts.system_use import load_map
from analysis.metrics import core_lists, node_entries, stretches
from foundation.records import RunInfo
from foundation.units import counted

BARS_LIMIT = 4_000
ENTRIES_LIMIT = 20_000
ROWS_LIMIT = 400


def gantt(
    jobs: pl.DataFrame,
    info: RunInfo,
    last_s: float | None = None,
    held: pl.DataFrame | None = None,
    *,
    most_a_core: int | None = None,
    most_px: int = 900,
) -> Chart | None:
    """Draw the jobs on their nodes and cores, or, if they are too many, how full the nodes were.

    None if no job has a place and a time.

    Parameters
    ----------
    jobs
        The jobs with their derived columns.
    info
        The run's description.
    last_s
        Right end of the time axis, so that several runs are drawn to the same scale.
    held
        The jobs' allocation intervals (``metrics.stretches``); None: one attempt each.
    most_a_core
        Upper end of the colours for jobs a core, so that several runs are drawn to the same scale; None: the
        run's own most.
    most_px
        Greatest height.
    """
    held = stretches(jobs) if held is None else held
    nodes = node_entries(held)
    if not nodes.height:
        return None
    lists = core_lists(nodes)
    names = _node_names(info, nodes)
    ids = [core for core_ids in lists.get_column("core").to_list() for core in core_ids]
    cores = max(int(info.system.split("C")[1]), max(ids) + 1)
    counted = nodes.join(lists, on="cores", maintain_order="left")
    total = counted.get_column("core").list.len().sum()
    if total <= ENTRIES_LIMIT and len(names) * cores <= ROWS_LIMIT:
        drawn, lanes = bars(counted)
        if len(drawn) <= BARS_LIMIT:
            until_s = last_s or max(bar.end_s for bar in drawn)
            return _bar_chart(described(drawn, jobs, held), _Frame(names, cores, lanes, until_s, most_px))
    most = most_a_core or info.most_a_core
    return load_map(counted, names, cores, most, last_s, most_px)


def _node_names(info: RunInfo, nodes: pl.DataFrame) -> list[str]:
    """Return the nodes in the system's order, then any others that a job was on."""
    known = list(info.node_names or ())
    used = nodes.get_column("node").unique().to_list()
    return known + sorted(set(used) - set(known), key=lambda name: (len(name), name))


@dataclass(frozen=True, slots=True)
class _Frame:
    """The drawing area: a row of one core's height for each core of each node.

    Parameters
    ----------
    names
        The nodes from the top.
    cores, lanes
        Cores of each node, and lanes in the band of a core that jobs share.
    until_s
        Right end of the time axis.
    most_px
        Greatest height.
    """

    names: Sequence[str]
    cores: int
    lanes: int
    until_s: float
    most_px: int

    @property
    def rows(self) -> int:
        return len(self.names) * self.cores

    @property
    def height_px(self) -> int:
        return int(min(max(140 + self.rows * max(22, 17 * self.lanes), 240), self.most_px))

    @property
    def row_px(self) -> float:
        return (self.height_px - 92) / self.rows

    def band(self, bar: Bar) -> tuple[float, float]:
        """Return middle and height of a bar, in rows; a small gap parts neighbours."""
        top = self.names.index(bar.node) * self.cores + bar.core
        if bar.lane is None:
            return round(top + bar.cores / 2, 4), bar.cores - 0.1
        part = 0.9 / self.lanes
        return round(top + 0.05 + part * (bar.lane + 0.5), 4), round(part, 4)


def _bar_chart(drawn: Sequence[Drawn], frame: _Frame) -> Chart:
    figure = go.Figure()
    unit = time_unit(frame.until_s)
    add_bars(figure, drawn, frame.band, unit, line_px=0.8 if frame.row_px / frame.lanes > 4 else 0.2)
    legend = legend_px(one.stretch["why"] for one in drawn)
    arrange(figure, frame.height_px + legend, barmode="overlay", bargap=0)
    figure.update_layout(uniformtext={"minsize": 8, "mode": "hide"}, margin={"t": 40 + legend})
    _label_nodes(figure, frame)
    figure.update_xaxes(title=unit.title, range=[0, frame.until_s / unit.seconds])
    caption = "Each bar is a job on its cores. Point at a bar for its job."
    if any(one.stretch["why"] != "start" for one in drawn):
        caption += (
            " A job has a bar for each time that it held the same cores; 7 (2) is the second life of job 7."
            " Time that did not count is hatched."
        )
    if frame.lanes > 1:
        caption += " Jobs that share a core lie one above the other in its band."
    return Chart(figure, caption)


def _label_nodes(figure: go.Figure, frame: _Frame) -> None:
    """Label nodes, and cores where the label fits, from the top; a line parts the nodes."""
    if frame.row_px >= 14:
        positions = [row + 0.5 for row in range(frame.rows)]
        labels = [f"{safe(name)} · {core}" for name in frame.names for core in range(frame.cores)]
        title = "node · core"
    else:
        step = max(1, math.ceil(14 / (frame.row_px * frame.cores)))
        positions = [(node + 0.5) * frame.cores for node in range(0, len(frame.names), step)]
        labels = [safe(name) for name in frame.names[::step]]
        title = f"node ({counted(frame.cores, 'core')} each)"
    figure.update_yaxes(
        tickvals=positions, ticktext=labels, range=[frame.rows, 0], title=title, showgrid=False, ticks=""
    )
    for row in range(1, frame.rows):
        is_node = row % frame.cores == 0
        if is_node or frame.row_px >= 8:
            line = {"color": MUTED if is_node else GRID, "width": 1}
            figure.add_hline(y=row, line=line, layer="below")
