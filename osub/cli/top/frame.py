"""What ``osub top`` draws: a ``ControllerStatus`` and the size of the terminal in, lines out; no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from foundation.errors import ClusterError
from foundation.one_line import one_line
from foundation.slurm.hosts import fold_hosts
from foundation.units import counted, duration
from gangd.controller.controller_status import (
    AlarmStatus,
    ControllerStatus,
    JobStatus,
    NodeStatus,
    OrderStatus,
)
from gangd.core.demand import Level
from gangd.core.states import AgentState
from osub.live.gangd_state import StatusFreshness
from osub.live.queue import LiveQueue, QueuedJob

SLURM_LATE_S = 5.0
LEAST_UNATTENDED_S = 1.0
WIDE = 180
MEDIUM = 88
MEDIUM_FOR_NODES = 120
"""What is on the cores comes before the figures of agents."""
BOUNDLESS = 500
"""So wide is no terminal, but a pipe: nothing is put side by side or filled up with blanks."""
MOST_ALARMS = 5
MOST_WAITING = 8
"""Of the jobs that wait so many are named."""
MOST_ORDERS = 4
LEAST_ROWS = 3

_ROLE_ORDER = ("run", "free", "yields", "held", "idle")
_STYLES = {"run": "bold green", "free": "cyan", "yields": "green", "held": "yellow", "idle": "dim"}
_MARKS = {"run": "{}", "free": "+{}", "yields": "<{}>", "held": "({})", "idle": "~{}"}
_LEGEND = "on cores: 12 runs, (12) is frozen, <12> yields, ~12 is idle, +12 runs, too"


T = TypeVar("T")
JobRow = tuple[JobStatus, QueuedJob | None, float]
"""A job of gangd's, what Slurm says of it, and the epoch second."""
NAME_LETTERS = 20


@dataclass(frozen=True, slots=True)
class TopColumn(Generic[T]):
    """A column of a table: ``always`` is False where only a roomy terminal has it."""

    heading: str
    cell: Callable[[T], Text]
    right: bool = False
    always: bool = True


@dataclass(frozen=True, slots=True)
class Screen:
    """Where a frame goes: columns, and lines (None: as many as there are to say)."""

    width: int
    height: int | None = None


def complaint_of(pulse: StatusFreshness, pid: int) -> str | None:
    """Return what is wrong with a controller in a sentence, None if nothing is."""
    if not pulse.is_stale:
        return None
    silent = _duration(pulse.age_s)
    if pulse.process:
        return f"the controller (process {pid}) has not written for {silent}: it hangs, and all jobs run"
    return f"the controller (process {pid}) is dead or left {silent} ago; all jobs run; below its last words"


def frame(
    status: ControllerStatus,
    pulse: StatusFreshness,
    screen: Screen,
    queue: LiveQueue | None = None,
    now_s: float = 0.0,
) -> RenderableType:
    """Return one picture of the status, no longer than the screen; what does not fit is counted.

    ``queue`` is what Slurm says of its jobs, None where it says nothing; ``now_s`` the epoch second.
    """
    head = [*_head(status, pulse), *_waiting(queue, now_s), *_alarms(status.alarms), *_orders(status)]
    rest = None if screen.height is None else max(0, screen.height - len(head))
    if WIDE <= screen.width < BOUNDLESS:
        half = (screen.width - 2) // 2
        both = Table.grid(padding=(0, 1), expand=True)
        both.add_column(width=half, no_wrap=True)
        both.add_column(width=half, no_wrap=True)
        both.add_row(_nodes(status, Screen(half, rest)), _jobs(status, Screen(half, rest), queue, now_s))
        return Group(*head, both)
    above, below = _split(rest, len(status.nodes), len(status.jobs) + bool(status.jobs_left_out))
    return Group(
        *head,
        _nodes(status, Screen(screen.width, above)),
        _jobs(status, Screen(screen.width, below), queue, now_s),
    )


def _split(rest: int | None, nodes: int, jobs: int) -> tuple[int | None, int | None]:
    """Share lines among two tables, each with a line of headings, such that neither starves."""
    if rest is None:
        return None, None
    need = nodes + 1
    above = min(need, max(rest - (jobs + 1), rest // 2, min(LEAST_ROWS, rest)))
    return above, rest - above


def _head(status: ControllerStatus, pulse: StatusFreshness) -> list[Text]:
    lines = [
        _line(
            f"gangd {status.controller[:12]}, process {status.pid}: slice {status.slice} "
            f"of {_slices(status)}, lease {status.lease_ms / 1000:g} s",
            "bold",
        )
    ]
    complaint = complaint_of(pulse, status.pid)
    if complaint is not None:
        lines.append(_line(complaint.upper()[:1] + complaint[1:], "bold white on red"))
    if status.dry_run:
        lines.append(_line("Dry run: nothing is held", "bold black on yellow"))
    facts = Text(overflow="ellipsis", no_wrap=True)
    facts.append(f"{counted(status.running_jobs, 'job')}, {status.shared_jobs} on shared cores; status ")
    facts.append(f"{_duration(pulse.age_s)} old", "bold red" if pulse.is_stale else "")
    facts.append("; ")
    facts.append(*_slurm(status.slurm_age_s, pulse.age_s))
    facts.append(f"; tick {status.tick_us / 1000:.1f} ms")
    if status.lost_share is not None:
        facts.append(f"; switches take {status.lost_share:.1%}")
    lines.append(facts)
    if status.dropped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(status.dropped.items()))
        lines.append(_line(f"messages refused: {kinds}", "dim"))
    alone = [node for node in status.nodes if node.unattended_s >= LEAST_UNATTENDED_S]
    if alone:
        worst = max(alone, key=lambda node: node.unattended_s)
        text = f"no agent acted on {worst.node} for {_duration(worst.unattended_s)}"
        more = f", on {counted(len(alone) - 1, 'other node')} for less" if alone[1:] else ""
        lines.append(_line(f"{text}{more} since the controller began: all jobs ran there", "yellow"))
    lines.append(_line(_LEGEND, "dim"))
    return lines


def _slices(status: ControllerStatus) -> str:
    """Length of slices; while they grew, with what was asked for."""
    if status.quantum_ms == status.asked_quantum_ms:
        return f"{status.quantum_ms:g} ms"
    return f"{status.quantum_ms:g} ms (asked for: {status.asked_quantum_ms:g}), {status.lookahead} final"


def _slurm(known_s: float | None, status_s: float) -> tuple[str, str]:
    if known_s is None:
        return "Slurm has not answered yet", "bold red"
    age_s = known_s + status_s
    return f"Slurm {_duration(age_s)} old", "bold red" if age_s > SLURM_LATE_S else ""


def _alarms(alarms: Sequence[AlarmStatus]) -> list[Text]:
    shown = alarms if len(alarms) <= MOST_ALARMS else alarms[: MOST_ALARMS - 1]
    lines = [
        _line(f"! {alarm.text} ({_duration(alarm.for_s)}{_times(alarm.count)})", "red") for alarm in shown
    ]
    if len(alarms) > len(shown):
        lines.append(_line(f"! and {len(alarms) - len(shown)} more alarms", "red"))
    return lines


def _orders(status: ControllerStatus) -> list[Text]:
    """Tell what operators ordered: pause and drain by name, weights by number."""
    stops = [order for order in status.orders if order.weight is None]
    shown = stops if len(stops) <= MOST_ORDERS else stops[: MOST_ORDERS - 1]
    lines = [_line(f"* {order_line(order)}", "magenta") for order in shown]
    weights = len(status.orders) - len(stops)
    rest = len(stops) - len(shown) + status.orders_left_out
    if weights:
        lines.append(_line(f"* {counted(weights, 'weight')} ordered (osub gang status)", "magenta"))
    if rest:
        lines.append(_line(f"* and {counted(rest, 'more order')} (osub gang status)", "magenta"))
    return lines


def order_line(order: OrderStatus) -> str:
    """Return an order in a line."""
    since = f"by {order.by}, {_duration(order.for_s)} ago"
    if order.weight is not None:
        most = " at most" if order.what == "own weight" else ""
        return f"{order.target}: weight {order.weight:g}{most} ({since})"
    stop = "paused" if order.what == "pause" else "drained"
    run = "runs" if order.jobs == 1 else "run"
    line = f"{order.target} is {stop}: {counted(order.jobs, 'job')} {run} freely"
    if order.left is not None:
        line += (
            f", {order.left} from before still take turns" if order.left else ", none takes turns any more"
        )
    return f"{line} ({since})"


def _times(count: int) -> str:
    return f", {count} times" if count > 1 else ""


def _nodes(status: ControllerStatus, screen: Screen) -> Table:
    columns = _NODE_COLUMNS if screen.width >= MEDIUM_FOR_NODES else [c for c in _NODE_COLUMNS if c.always]
    on_node: dict[str, list[JobStatus]] = {}
    for job in status.jobs:
        for name in job.cores:
            on_node.setdefault(name, []).append(job)
    # Trouble first, then sharing: where not all fit, these are the ones to look at.
    ordered = sorted(
        status.nodes, key=lambda node: (node.agent == AgentState.JOINED, node.node not in on_node)
    )
    rows = [(node, on_node.get(node.node, ())) for node in _fitting(ordered, screen.height)]
    return _table(columns, rows, len(ordered) - len(rows), "nodes", fills=screen.width < BOUNDLESS)


def _cores(node: NodeStatus, jobs: Iterable[JobStatus]) -> Text:
    """Return who is on the cores; successive cores with the same jobs are merged."""
    on_core: dict[int, list[JobStatus]] = {}
    for job in jobs:
        for core in job.cores[node.node]:
            on_core.setdefault(core, []).append(job)
    text = _line("")
    numbered = enumerate(sorted(on_core))
    # A run of successive cores has one difference between core and position.
    for _, run in groupby(numbered, key=lambda at: (at[1] - at[0], tuple(job.job for job in on_core[at[1]]))):
        cores = [core for _, core in run]
        if text.plain:
            text.append("  ")
        text.append(f"{cores[0]}" if len(cores) == 1 else f"{cores[0]}-{cores[-1]}", "dim")
        text.append(":", "dim")
        for job in sorted(on_core[cores[0]], key=lambda job: (_ROLE_ORDER.index(job.role), job.job)):
            text.append(" ").append(_MARKS[job.role].format(job.job), _STYLES[job.role])
    return text


def _waiting(queue: LiveQueue | None, now_s: float) -> list[Text]:
    """Return a line on the queue; none where Slurm says nothing of it."""
    if queue is None:
        return []
    if not queue.waiting:
        return [_line("queue: no job waits", "dim")]
    named = ", ".join(_waits(one, now_s) for one in queue.waiting[:MOST_WAITING])
    more = len(queue.waiting) - MOST_WAITING
    return [_line(f"queue: {counted(len(queue.waiting), 'job')}: {named}" + f" and {more} more" * (more > 0))]


def _waits(one: QueuedJob, now_s: float) -> str:
    since = "" if one.since_s is None else f", {_duration(now_s - one.since_s)}"
    return f"{one.job_id} {one_line(one.name or '', NAME_LETTERS)} ({one.reason}{since})"


def _jobs(status: ControllerStatus, screen: Screen, queue: LiveQueue | None, now_s: float) -> Table:
    columns = [c for c in _JOB_COLUMNS if c.always or screen.width >= MEDIUM]
    if queue is None:
        columns = [c for c in columns if c.heading not in _FROM_SLURM]
    left_out = status.jobs_left_out
    shown = _fitting(status.jobs, screen.height, more=bool(left_out))
    running = {} if queue is None else queue.running
    rows = [(job, running.get(job.job), now_s) for job in shown]
    rest = len(status.jobs) - len(shown) + left_out
    return _table(columns, rows, rest, "jobs", fills=screen.width < BOUNDLESS)


def _elapsed(at: JobRow) -> Text:
    entry = at[1]
    return _line("" if entry is None or entry.since_s is None else _duration(at[2] - entry.since_s))


def _places(job: JobStatus) -> str:
    cores = sorted({len(held) for held in job.cores.values()})
    each = "-".join(map(str, dict.fromkeys((cores[0], cores[-1])))) if cores else "0"
    try:
        nodes = fold_hosts(job.cores)
    except ClusterError:  # gangd has none of other names, but the file may be anybody's
        nodes = ",".join(job.cores)
    return f"{nodes} x {each} core{'' if each == '1' else 's'}"


def _fitting(rows: Sequence[T], height: int | None, *, more: bool = False) -> Sequence[T]:
    """Return the rows that fit below a line of headings, with a line to spare for the count of the rest."""
    if height is None or len(rows) + more <= height - 1:
        return rows
    return rows[: max(0, height - 2)]


def _table(columns: Sequence[TopColumn[T]], rows: Iterable[T], rest: int, what: str, *, fills: bool) -> Table:
    """Return a table of one line a row, and below it how many more there are; ``fills``: the whole width."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, expand=fills, header_style="reverse")
    for column in columns:
        last = column is columns[-1]
        table.add_column(
            column.heading,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if last else None,
        )
    for row in rows:
        table.add_row(*(column.cell(row) for column in columns))
    if rest > 0:
        table.add_row(*[Text()] * (len(columns) - 1), _line(f"and {rest} more {what}", "dim"))
    return table


def _line(text: str, style: str = "") -> Text:
    """Return one line; what could steer a terminal is replaced."""
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return Text(clean, style=style, overflow="ellipsis", no_wrap=True)


def _cut(text: str | None) -> Text:
    return _line(one_line(text or "", NAME_LETTERS))


def _number(value: float | None, style: str = "") -> Text:
    return _line("" if value is None else f"{value:.0f}", style)


def _duration(seconds: float) -> str:
    return duration(max(0.0, seconds), rough=True)


_NODE_COLUMNS: list[TopColumn[tuple[NodeStatus, Sequence[JobStatus]]]] = [
    TopColumn("node", lambda at: _line(at[0].node)),
    TopColumn("agent", lambda at: _line(at[0].agent, "" if at[0].agent == AgentState.JOINED else "bold red")),
    TopColumn("freezer", lambda at: _line(at[0].freezer or ""), always=False),
    TopColumn("yields by", lambda at: _line(at[0].yields or ""), always=False),
    TopColumn("skew us", lambda at: _number(at[0].skew_us), right=True),
    TopColumn("freeze us", lambda at: _number(at[0].freeze_us), right=True, always=False),
    TopColumn("clock us", lambda at: _number(at[0].offset_us), right=True, always=False),
    TopColumn(
        "leak ms", lambda at: _number(at[0].leaked_us / 1000 or None, "yellow"), right=True, always=False
    ),
    TopColumn("faults", lambda at: _number(sum(at[0].faults.values()) or None, "yellow"), right=True),
    TopColumn("cores", lambda at: _cores(*at)),
]

_FROM_SLURM = frozenset({"name", "runs", "for"})
_JOB_COLUMNS: list[TopColumn[JobRow]] = [
    TopColumn("job", lambda at: _line(str(at[0].job)), right=True),
    TopColumn("name", lambda at: _cut(at[1].name if at[1] else None)),
    TopColumn("runs", lambda at: _cut(at[1].application if at[1] else None), always=False),
    TopColumn("for", _elapsed, right=True),
    TopColumn("does", lambda at: _line(at[0].role, _STYLES[at[0].role])),
    TopColumn("demand", lambda at: _line(at[0].demand, "dim" if at[0].demand == Level.IDLE else "")),
    TopColumn("hold", lambda at: _line(at[0].hold), always=False),
    TopColumn("state", lambda at: _line(at[0].state), always=False),
    TopColumn("gang", lambda at: _line(str(at[0].gang)), right=True, always=False),
    TopColumn("weight", lambda at: _line(f"{at[0].weight:g}"), right=True, always=False),
    TopColumn("on", lambda at: _line(_places(at[0]))),
]
