"""Traces in and out of the ``osub trace`` commands, and their progress."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from foundation.errors import UsageError
from foundation.id_list import read_ids
from foundation.units import counted, verb
from osub.cli.out_file import Force as Force
from osub.cli.out_file import check_free as check_free
from osub.cli.terminal import Console
from workloads.swf import SwfTrace, read_swf, write_swf

TraceFile = Annotated[Path, typer.Argument(help="SWF file, plain or gzip.", metavar="TRACE")]
OutFile = Annotated[
    Path, typer.Option("--out", help="SWF file to write; gzip where the name ends in .gz.", metavar="FILE")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Lenient = Annotated[
    bool, typer.Option("--lenient", help="Skip and count malformed lines instead of stopping at the first.")
]
InteractiveQueue = Annotated[
    int, typer.Option(min=-1, help="SWF queue of interactive jobs; -1: there are none.")
]
Seed = Annotated[int, typer.Option(min=0, help="For whatever is drawn at random.")]


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
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    drawn_s = 0.0
    with bar:
        task = bar.add_task(escape(what), total=None)

        def step(done: int, total: int) -> None:
            nonlocal drawn_s
            now_s = time.monotonic()
            if now_s - drawn_s > 0.05 or done == total:
                drawn_s = now_s
                bar.update(task, completed=done, total=total)

        yield step
