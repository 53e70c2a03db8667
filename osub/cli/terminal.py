"""The terminal: consoles, questions, and a sign that something is still at work."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import rich.console
import rich.markup
import typer
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.status import Status

from foundation.errors import OsubError
from foundation.one_line import one_line

if TYPE_CHECKING:
    from rich.progress import Progress

_CLEAR = "\r\x1b[K"


@contextmanager
def waiting(what: str, after_s: float = 2.0, every_s: float = 1.0) -> Iterator[None]:
    """Say on a terminal's standard error what goes on and how long, once it has gone on for ``after_s``.

    The line is written by a thread of its own and removed at the end. Where standard error is no terminal
    nothing is written.
    """
    stream = sys.stderr
    if not stream.isatty():
        yield
        return
    done = threading.Event()
    began = time.monotonic()
    shown = False

    def tell() -> None:
        nonlocal shown
        pause_s = after_s
        while not done.wait(pause_s):
            shown, pause_s = True, every_s
            stream.write(f"{_CLEAR}osub: {one_line(what, 200)}, {time.monotonic() - began:.0f} s")
            stream.flush()

    teller = threading.Thread(target=tell, name="osub-waiting", daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
        if shown:
            stream.write(_CLEAR)
            stream.flush()


PIPED_WIDTH = 1_000
"""Width without a terminal: lines are for another program, and none is broken."""


class Console(rich.console.Console):
    """A Rich console that shows what cannot be printed as U+FFFD; its own colours and cursor moves stay.

    No text is an emoji (``log.swf.gz:1234:``), and what goes to a file or a pipe is not broken into lines.
    """

    def __init__(self, *, stderr: bool = False, **settings: Any) -> None:
        super().__init__(stderr=stderr, emoji=False, **settings)
        if not self.is_terminal and "width" not in settings and "COLUMNS" not in os.environ:
            self.width = PIPED_WIDTH

    def say(self, text: str, *, soft_wrap: bool = False) -> None:
        """Print a text as it is: nothing in it is markup, no number has a colour."""
        self.print(text, markup=False, highlight=False, soft_wrap=soft_wrap)

    def status(self, status: RenderableType, **settings: Any) -> Status:
        """Return a spinner; without a terminal it prints nothing."""
        if self.is_terminal:
            return super().status(status, **settings)
        return rich.console.Console(quiet=True).status(status, **settings)

    @contextmanager
    def stages(self, first: str) -> Iterator[Callable[[str], None]]:
        """Give what shows stages of long work: a spinner, or without a terminal a line for each on stderr."""
        if self.is_terminal:
            with self.status(rich.markup.escape(first)) as spinner:
                yield lambda what: spinner.update(rich.markup.escape(what))
            return
        began_s, said = time.monotonic(), set[str]()

        def say(what: str) -> None:
            if what not in said:
                said.add(what)
                typer.echo(f"osub: {time.monotonic() - began_s:.0f} s: {one_line(what, 300)}", err=True)

        yield say

    def on_broken_pipe(self) -> None:
        """Leave a closed pipe to the command line."""
        raise

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable, with nothing in their texts that a terminal obeys."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(shown(segment.text), segment.style)


def shown(text: str) -> str:
    """Return a text with U+FFFD for each character that cannot be printed; line ends stay."""
    return "".join(one if one.isprintable() or one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in text)


def echo_json(document: object) -> None:
    """Print a document as indented JSON."""
    typer.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def progress_bar(counted: str, *, transient: bool = False) -> Progress:
    """Return a bar on standard error, silent where that is no terminal; ``counted`` follows what is done."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{{task.completed}}/{{task.total}}{counted}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=transient,
    )


def ask_first(question: str, otherwise: str) -> None:
    """Ask on standard error whether to go on.

    Parameters
    ----------
    question
        What is asked, to be answered with yes or no.
    otherwise
        What is said where it is no.

    Raises
    ------
    OsubError
        The answer is no, or there is none; Ctrl-C is what it is everywhere.
    """
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as error:
        if isinstance(error.__context__, EOFError):
            raise OsubError(f"no answer: {otherwise}; --yes does not ask") from None
        raise
    if not agreed:
        raise OsubError(otherwise)
