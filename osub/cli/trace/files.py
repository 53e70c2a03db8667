"""Traces in and out of the ``osub trace`` commands: options, progress, and tables of what they hold."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from typer import Argument, Option

from foundation.errors import UsageError
from foundation.id_list import read_ids
from foundation.units import counted, duration, durations, verb
from osub.cli.out_file import Force as Force
from osub.cli.out_file import check_free as check_free
from osub.cli.terminal import Console, progress_bar
from workloads.behaviour.recording_library import BehaviourStatistics
from workloads.swf import SwfTrace, read_swf, write_swf
from workloads.trace.trace_summary import PERCENTILES, JobKindSummary, TraceSummary

BAR_CELLS = 40


def summary_tables(summary: TraceSummary) -> Iterator[RenderableType]:
    """Yield the parts to print, from general to particular."""
    yield _facts(summary)
    yield _spreads(summary)
    sizes = {name: float(count) for name, count in summary.size_counts.items()}
    yield _bars("Processors a job", sizes, lambda jobs: counted(int(jobs), "job"))
    yield _queues(summary)
    hours = {f"{hour:02d}:00": rate for hour, rate in enumerate(summary.arrivals_by_hour)}
    where = "local hour of day" if summary.first_submit else "hour since the trace's start, modulo 24"
    yield _bars(f"Submissions by {where}", hours, lambda rate: f"{rate:,.2f} an hour")
    for remark in summary.remarks or ("nothing to remark",):
        yield f"[yellow]Remark:[/yellow] {_plain(remark)}" if summary.remarks else f"Remarks: {remark}"
    for thanks in summary.acknowledge:
        yield f"Acknowledge where you publish: {_plain(thanks)}"


def _plain(text: str) -> str:
    """Return ``text`` for the terminal: no markup, no control characters from a file."""
    return escape("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text))


def _percent(share: float | None) -> str:
    return "not known" if share is None else f"{share:.1%}"


def _facts(summary: TraceSummary) -> Table:
    table = Table(title=f"Trace {_plain(summary.name)}", show_header=False, title_justify="left")
    system = " · ".join(part for part in (summary.installation, summary.computer) if part)
    size = [f"{counted(summary.max_nodes, 'node')}"] if summary.max_nodes else []
    size += [f"{counted(summary.max_procs, 'processor')}"] if summary.max_procs else []
    table.add_row("System", _plain(system) or "not named")
    table.add_row("Size", ", ".join(size) or "not known")
    table.add_row("Jobs", f"{summary.jobs:,}")
    table.add_row("Users", "not known" if summary.users is None else f"{summary.users:,}")
    if summary.first_submit and summary.last_submit:
        table.add_row("First submission", summary.first_submit)
        table.add_row("Last submission", summary.last_submit)
    table.add_row("Span", duration(summary.span_s))
    table.add_row("Offered load", _percent(summary.offered_load))
    table.add_row("Serial jobs", _percent(summary.serial_share))
    table.add_row("Power of two (2, 4, 8, ...)", _percent(summary.power_of_two_share))
    table.add_row("With requested time", _percent(summary.requested_time_share))
    table.add_row("With requested memory", _percent(summary.requested_memory_share))
    table.add_row("With CPU time", _percent(summary.cpu_time_share))
    table.add_row("With busy and idle periods", f"{summary.interactive_patterns:,}")
    table.add_row("Status", ", ".join(f"{name} {count:,}" for name, count in summary.status_counts.items()))
    return table


def table_of(title: str, *columns: str, left: int = 0) -> Table:
    """Return a table without rows: the first ``left`` columns are names, the others are numbers."""
    table = Table(title=title, title_justify="left")
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place < left else "right", no_wrap=place < left)
    return table


def _spreads(summary: TraceSummary) -> Table:
    quantities = (
        ("run time", summary.run_s, duration),
        ("waiting time", summary.wait_s, duration),
        ("processors", summary.size, _count),
    )
    columns = [(name, spread, shown) for name, spread, shown in quantities if spread is not None]
    table = table_of("Spread over the jobs", "percentile", *(name for name, _, _ in columns))
    for percentile in PERCENTILES:
        named = {0: "smallest", 50: "median", 100: "largest"}.get(percentile, f"{percentile} %")
        table.add_row(named, *(shown(spread.percentiles[percentile]) for _, spread, shown in columns))
    table.add_row("mean", *(shown(spread.mean) for _, spread, shown in columns))
    table.add_row("jobs with it", *(f"{spread.known:,}" for _, spread, _ in columns))
    return table


def _count(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.1f}"


def _queues(summary: TraceSummary) -> Table:
    table = table_of("Queues", "queue", "jobs", "share", "processor hours")
    table.add_column("description")
    for queue in summary.queues:
        table.add_row(
            "not known" if queue.queue is None else str(queue.queue),
            f"{queue.jobs:,}",
            _percent(queue.jobs / summary.jobs),
            f"{queue.processor_s / 3600:,.0f}",
            _plain(queue.description),
        )
    return table


def _bars(title: str, values: dict[str, float], shown: Callable[[float], str]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column("", justify="right")
    table.add_column("", justify="right")
    table.add_column("")
    largest = max(values.values(), default=0.0) or 1.0
    for name, value in values.items():
        table.add_row(name, shown(value), "█" * round(BAR_CELLS * value / largest))
    return table


def kinds_table(
    kinds: Mapping[str, JobKindSummary], published: Mapping[str, JobKindSummary] | None = None
) -> Table:
    """Return interactive and batch jobs in the columns of thesis Table 7.2, with its figures if given."""
    columns = ("", "jobs", "widest", "run, max", "mean", "busy, max", "mean")
    table = table_of("Jobs by kind (columns of thesis Table 7.2)", *columns, left=1)
    rows = [(name, kind) for name, kind in kinds.items()]
    if published is not None:
        rows = [row for name in kinds for row in ((name, kinds[name]), (f"{name}, thesis", published[name]))]
    for name, kind in rows:
        seconds = (kind.max_run_s, kind.mean_run_s, kind.max_busy_s, kind.mean_busy_s)
        table.add_row(
            name,
            f"{kind.jobs:,}",
            "none" if kind.max_procs is None else f"{kind.max_procs:,}",
            *("none" if value is None else f"{value:,.0f} s" for value in seconds),
        )
    return table


def behaviour_table(
    found: BehaviourStatistics, other: tuple[str, BehaviourStatistics] | None = None
) -> Table:
    """Return statistics of interactive jobs next to the published ones, and to those of ``other``."""
    names, columns = ([], [found]) if other is None else ([other[0]], [found, other[1]])
    table = table_of("Interactive behaviour", "", "here", *names, "published", left=1)
    rows = (
        ("jobs", [f"{one.jobs:,}" for one in columns], "193"),
        ("execution time, 90th percentile", durations(*(one.length_p90_s for one in columns)), "5.2 h"),
        ("shorter than 2 h", [f"{one.short_share:.1%}" for one in columns], "most"),
        ("end at 1, 2, 4, 6 or 12 h", [f"{one.peak_share:.1%}" for one in columns], "peaks"),
        ("under 10 % utilisation", [f"{one.under_10_percent:.1%}" for one in columns], "71 %"),
        ("under 1 % utilisation", [f"{one.under_1_percent:.1%}" for one in columns], "37 %"),
        ("fewer than 10 busy periods", [f"{one.few_periods_share:.1%}" for one in columns], "common"),
        ("most busy periods", [f"{one.most_periods:,}" for one in columns], "94"),
        (
            "longest busy period, 54th percentile",
            [f"{one.longest_busy_p54_s:,.0f} s" for one in columns],
            "30 s",
        ),
        ("longest busy period", [f"{one.longest_busy_s:,.0f} s" for one in columns], "46,715 s"),
    )
    for name, cells, published in rows:
        table.add_row(name, *cells, published)
    return table


TraceFile = Annotated[Path, Argument(help="SWF file, plain or gzip.", metavar="TRACE")]
OutFile = Annotated[
    Path, Option("--out", help="SWF file to write; gzip where the name ends in .gz.", metavar="FILE")
]
AsJson = Annotated[bool, Option("--json", help="Print JSON instead of tables.")]
Lenient = Annotated[
    bool, Option("--lenient", help="Skip and count malformed lines instead of stopping at the first.")
]
InteractiveQueue = Annotated[int, Option(min=-1, help="SWF queue of interactive jobs; -1: there are none.")]
Seed = Annotated[int, Option(min=0, help="For whatever is drawn at random.")]


MOST_NUMBERS = 10_000_000
"""Numbers that an option such as ``--users`` may name."""


def queue_of(number: int) -> int | None:
    """Return the interactive queue that an option names, ``None`` for -1."""
    return None if number < 0 else number


def load(path: Path, lenient: bool) -> SwfTrace:
    """Read a trace with a sign of life, and say what was skipped."""
    with working(f"reading {path.name}"):
        trace = read_swf(path, strict=not lenient)
    if trace.report.skipped_lines:
        typer.echo(f"osub: {path} has lines that were skipped: {skipped_in_words(trace)}", err=True)
    say_joined(path, trace)
    return trace


def say_joined(path: Path, trace: SwfTrace) -> None:
    """Say how many lines were parts of a job."""
    if joined := trace.report.joined:
        jobs = counted(trace.report.parted, "job")
        typer.echo(
            f"osub: {path}: joined {counted(joined, 'line')} that {verb(joined)} part of {jobs}", err=True
        )


def skipped_in_words(trace: SwfTrace) -> str:
    """Return why how many lines and jobs were left out when a trace was read."""
    return ", ".join(f"{reason} {count:,}" for reason, count in trace.report.skipped.items())


def deliver(trace: SwfTrace, out: Path) -> None:
    """Write a trace with a sign of life."""
    with working(f"writing {out.name}"):
        write_swf(out, trace)


def print_json(document: dict[str, Any]) -> None:
    """Print a document as JSON."""
    typer.echo(json.dumps(document, indent=2))


def parse_numbers(text: str | None, option: str) -> frozenset[int] | None:
    """Read ``1,4,7-9`` as a set of numbers; ``None`` stays.

    Raises
    ------
    UsageError
        The text is no such list.
    """
    if text is None:
        return None
    try:
        return frozenset(read_ids(text.replace(" ", ""), 10**9, MOST_NUMBERS))
    except ValueError as error:
        shown = text if len(text) <= 80 else text[:80] + "..."
        raise UsageError(
            f"{option} takes numbers and ranges such as 1,4,7-9, not {shown!r}: {error}"
        ) from error


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner on a terminal while something of unknown length goes on."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(escape(what)):
        yield


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal; yields a function of (done, in all)."""
    drawn_s = 0.0
    with progress_bar("", transient=True) as bar:
        task = bar.add_task(escape(what), total=None)

        def step(done: int, total: int) -> None:
            nonlocal drawn_s
            now_s = time.monotonic()
            if now_s - drawn_s > 0.05 or done == total:
                drawn_s = now_s
                bar.update(task, completed=done, total=total)

        yield step
