"""The Gantt chart of a run: every job on its nodes and cores.

Bars are coloured by kind of job, by what the stretch began with (where jobs have several), or by job. Hatched
is time that did not count. A job that is alone on a core all its life fills the core's band. The others have
a lane of it each: the first one that is free on all of the job's cores of the node, or, where these have none
in common, each core's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import plotly.graph_objects as go
import polars as pl

from analysis.charts.chart_style import (
    GRID,
    INK,
    KIND_COLOURS,
    KIND_NAMES,
    MUTED,
    PAPER,
    Chart,
    TimeUnit,
    arrange,
    job_colour,
    safe,
    time_unit,
)
from analysis.charts.run_curves import load_map
from analysis.metrics import core_lists, node_entries, stretches
from foundation.records import RunInfo
from foundation.units import counted


@dataclass(frozen=True, slots=True)
class Bar:
    """One job on neighbouring cores of one node.

    Parameters
    ----------
    row
        Row of the job in the ``jobs`` table.
    node
        Name of the node.
    core
        Core id, the least one if the bar spans several.
    cores
        How many cores it spans; more than one only where the job is alone on them.
    lane
        Its lane, from 0; None if it is alone on the core and fills the band.
    start_s, end_s
        Its time.
    """

    row: int
    node: str
    core: int
    cores: int
    lane: int | None
    start_s: float
    end_s: float


def bars(entries: pl.DataFrame) -> tuple[list[Bar], int]:
    """Return the bars and the number of lanes in a band.

    Parameters
    ----------
    entries
        ``row``, ``start_s``, ``end_s``, ``node`` and ``core`` (a list of ids): each job on each of its nodes.
    """
    found: list[Bar] = []
    lanes = 1
    columns = ("node", "start_s", "end_s", "row", "core")
    ordered = entries.sort("node", "start_s", "end_s", "row").select(columns)
    for node, group in groupby(ordered.iter_rows(), key=lambda entry: str(entry[0])):
        on_node: list[Bar] = []
        free_from_s: dict[int, list[float]] = {}
        for _, start_s, end_s, row, cores in group:
            for core, lane in zip(cores, _take(free_from_s, cores, start_s, end_s), strict=True):
                lanes = max(lanes, lane + 1)
                on_node.append(Bar(row, node, core, 1, lane, start_s, end_s))
        shared = _shared(on_node)
        found.extend(
            _joined(bar if (bar.row, bar.core) in shared else replace(bar, lane=None) for bar in on_node)
        )
    return found, lanes


def _shared(on_node: Iterable[Bar]) -> set[tuple[int, int]]:
    """Return (row, core) of the bars of a node, ordered by start, that overlap another one."""
    shared: set[tuple[int, int]] = set()
    active: dict[int, list[Bar]] = {}
    for bar in on_node:
        others = [other for other in active.get(bar.core, ()) if other.end_s > bar.start_s]
        if others:
            shared.update((other.row, other.core) for other in (*others, bar))
        active[bar.core] = [*others, bar]
    return shared


def _take(
    free_from_s: dict[int, list[float]], cores: Sequence[int], start_s: float, end_s: float
) -> list[int]:
    """Return the lane of each core that a job takes, and note until when it has it."""
    for core in cores:
        free_from_s.setdefault(core, [])
    most = max(len(free_from_s[core]) for core in cores)
    free = [
        {lane for lane in range(most + 1) if lane >= len(ends) or ends[lane] <= start_s}
        for ends in (free_from_s[core] for core in cores)
    ]
    firsts = [min(lanes) for lanes in free]
    common = min(set.intersection(*free))
    # A common lane beyond those in use would make every band higher for nothing.
    taken = [common] * len(cores) if common < most or common == max(firsts) else firsts
    for core, lane in zip(cores, taken, strict=True):
        ends = free_from_s[core]
        ends.extend([start_s] * (lane + 1 - len(ends)))
        ends[lane] = end_s
    return taken


def _joined(parts: Iterable[Bar]) -> Iterator[Bar]:
    """Join the bars of a job on neighbouring cores that it has to itself."""
    last: Bar | None = None
    for part in parts:
        alone = last is not None and last.lane is None and part.lane is None
        if last and alone and (last.row, last.core + last.cores) == (part.row, part.core):
            last = replace(last, cores=last.cores + 1)
            continue
        if last:
            yield last
        last = part
    if last:
        yield last


WHY_COLOURS = {
    "start": "#0072B2",
    "resize": "#00795A",
    "requeue": "#B85000",
    "checkpoint": "#8A6A00",
    "preemption": "#B0508A",
}
WHY_NAMES = {
    "start": "first start",
    "resize": "resize",
    "requeue": "again after a requeue",
    "checkpoint": "again from a checkpoint",
    "preemption": "again after a preemption",
}
"""What a stretch began with; colours after Okabe and Ito, dark enough for white numbers."""
_HATCHES = (("lost_s", "lost", "/", "#B00020"), ("again_s", "set up again", ".", INK))

Row = dict[str, object]
Place = Callable[[Bar], tuple[float, float]]
"""Returns middle and height of a bar."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A bar with its allocation interval (``metrics.stretches``) and its job (with the derived columns)."""

    bar: Bar
    stretch: Row
    job: Row

    @property
    def label(self) -> str:
        """The job's number; from its second life on with the life's."""
        life = int(str(self.stretch["life"]))
        return f"{self.job['trace_job']}" + (f" ({life + 1})" if life else "")


def described(bars: Sequence[Bar], jobs: pl.DataFrame, held: pl.DataFrame) -> list[Drawn]:
    """Return the bars, whose ``row`` is that of ``held``, with what is known of them."""
    numbers = sorted({bar.row for bar in bars})
    rows = dict(zip(numbers, held.drop("placement")[numbers].iter_rows(named=True), strict=True))
    owners = sorted({int(str(row["row"])) for row in rows.values()})
    of_job = dict(zip(owners, jobs[owners].iter_rows(named=True), strict=True))
    return [Drawn(bar, rows[bar.row], of_job[rows[bar.row]["row"]]) for bar in bars]


@dataclass(frozen=True, slots=True)
class _Canvas:
    """A figure, where on it a bar lies, and the unit of its time."""

    figure: go.Figure
    place: Place
    unit: TimeUnit

    def add(self, drawn: Sequence[Drawn], spans: Sequence[tuple[float, float]], **style: object) -> None:
        """Draw a part of each bar, from so many seconds to so many."""
        places = [self.place(one.bar) for one in drawn]
        self.figure.add_bar(
            orientation="h",
            base=[round(start / self.unit.seconds, 6) for start, _ in spans],
            x=[round((end - start) / self.unit.seconds, 6) for start, end in spans],
            y=[middle for middle, _ in places],
            width=[height for _, height in places],
            **style,
        )


def _add_bars(canvas: _Canvas, drawn: Sequence[Drawn], line_px: float) -> None:
    """Draw the bars, a trace for each kind of job and beginning, and the buttons for their colours."""
    groups = list(_groups(drawn))
    for kind, why, some in groups:
        canvas.add(
            some,
            [(one.bar.start_s, one.bar.end_s) for one in some],
            name=KIND_NAMES[kind],
            legendgroup=kind,
            showlegend=(kind, why) == next((k, w) for k, w, _ in groups if k == kind),
            marker={"color": KIND_COLOURS[kind], "line": {"color": PAPER, "width": line_px}},
            customdata=[_hover(one) for one in some],
            hovertemplate="%{customdata}<extra></extra>",
        )
    for column, name, shape, colour in _HATCHES:
        _add_hatch(canvas, drawn, column, name, {"shape": shape, "fgcolor": colour})
    _add_labels(canvas, drawn)
    canvas.figure.update_layout(updatemenus=[_menu(groups)])


def legend_px(causes: Iterable[object]) -> int:
    """Return the extra height above the buttons: jobs that began in several ways have a long legend."""
    return 36 if len(set(causes)) > 1 else 0


def _groups(drawn: Sequence[Drawn]) -> Iterator[tuple[str, str, list[Drawn]]]:
    for kind in KIND_COLOURS:
        for why in WHY_COLOURS:
            some = [one for one in drawn if (one.job["kind"], one.stretch["why"]) == (kind, why)]
            if some:
                yield kind, why, some


def _add_hatch(
    canvas: _Canvas, drawn: Sequence[Drawn], column: str, name: str, pattern: dict[str, object]
) -> None:
    """Hatch what did not count of the bars: the end of what was lost, the beginning of what was set up."""
    some = [one for one in drawn if _number(one.stretch[column]) > 0]
    spans = [
        (one.bar.end_s - _number(one.stretch[column]), one.bar.end_s)
        if column == "lost_s"
        else (one.bar.start_s, one.bar.start_s + _number(one.stretch[column]))
        for one in some
    ]
    if some:
        pattern = {"fillmode": "overlay", "size": 6, "solidity": 0.35, **pattern}
        marker = {"color": "rgba(255,255,255,0.45)", "line": {"width": 0}, "pattern": pattern}
        canvas.add(some, spans, name=name, marker=marker, hoverinfo="skip")


def _add_labels(canvas: _Canvas, drawn: Sequence[Drawn]) -> None:
    """Write the jobs' numbers over everything else: white, and dark where the bar's middle is hatched."""
    canvas.add(
        drawn,
        [(one.bar.start_s, one.bar.end_s) for one in drawn],
        marker={"color": "rgba(0,0,0,0)", "line": {"width": 0}},
        text=[one.label for one in drawn],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"color": [INK if _is_hatched(one) else "white" for one in drawn]},
        hoverinfo="skip",
        showlegend=False,
    )


def _is_hatched(drawn: Drawn) -> bool:
    half_s = (drawn.bar.end_s - drawn.bar.start_s) / 2
    return max(_number(drawn.stretch[column]) for column, *_ in _HATCHES) > half_s


def _menu(groups: Sequence[tuple[str, str, list[Drawn]]]) -> dict[str, object]:
    kinds = [kind for kind, _, _ in groups]
    causes = [why for _, why, _ in groups]
    by_job = [[job_colour(int(str(one.job["trace_job"]))) for one in some] for _, _, some in groups]
    buttons = [_button("colour by kind", [KIND_COLOURS[kind] for kind in kinds], kinds, KIND_NAMES)]
    if legend_px(causes):
        buttons.append(_button("by beginning", [WHY_COLOURS[why] for why in causes], causes, WHY_NAMES))
    buttons.append(_button("by job", by_job, kinds, KIND_NAMES, showlegend=False))
    return {
        "type": "buttons",
        "direction": "right",
        "x": 1,
        "xanchor": "right",
        "y": 1,
        "yanchor": "bottom",
        "pad": {"b": 6 + legend_px(causes)},
        "bgcolor": PAPER,
        "bordercolor": GRID,
        "font": {"size": 12},
        "buttons": buttons,
    }


def _button(
    label: str,
    colours: Sequence[object],
    keys: Sequence[str],
    names: dict[str, str],
    *,
    showlegend: bool = True,
) -> dict[str, object]:
    """Return a button that gives each trace of jobs its colour, and the legend one entry for each key."""
    shown = [showlegend and key not in keys[:number] for number, key in enumerate(keys)]
    change = {
        "marker.color": list(colours),
        "name": [names[key] for key in keys],
        "legendgroup": list(keys),
        "showlegend": shown,
    }
    return {"label": label, "method": "restyle", "args": [change, list(range(len(keys)))]}


def _hover(drawn: Drawn) -> str:
    """Return what the pointer shows over a bar."""
    job, stretch = drawn.job, drawn.stretch
    program = " ".join(safe(job[name]) for name in ("app", "args") if job[name])
    several = (_number(job["lives"]), _number(job["resizes"])) > (1, 0)
    part = (
        f"life {_number(stretch['life']) + 1:.0f} of {_number(job['lives']):.0f} · "
        f"{WHY_NAMES[str(stretch['why'])]} · {counted(int(_number(stretch['held_cores'])), 'core')} from "
        f"{drawn.bar.start_s:.2f} to {drawn.bar.end_s:.2f} s"
        + "".join(
            f" · {name} {_number(stretch[column]):.2f} s"
            for column, name, _, _ in _HATCHES
            if _number(stretch[column]) > 0
        )
    )
    lines = [
        f"<b>job {job['trace_job']}</b> · {job['kind']}" + (f" · {_shortened(program)}" if program else ""),
        f"{counted(int(_number(job['nodes'])), 'node')}, {counted(int(_number(job['cores'])), 'core')}"
        + (f" · {safe(job['user'])}" if job["user"] else ""),
        part if several else "",
        " · ".join(
            f"{name} {value:.2f}{unit}"
            for name, value, unit in (
                ("wait", job["wait_s"], " s"),
                ("run", job["run_s"], " s"),
                ("dedicated", job["dedicated_s"], " s"),
                ("degradation", job["degradation"], ""),
            )
            if isinstance(value, float)
        ),
        str(job["state"] or "not ended"),
    ]
    return "<br>".join(line for line in lines if line)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _shortened(text: str, letters: int = 60) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"


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
    canvas = _Canvas(figure, frame.band, unit)
    _add_bars(canvas, drawn, line_px=0.8 if frame.row_px / frame.lanes > 4 else 0.2)
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
