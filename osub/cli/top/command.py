"""``osub top``: a live view of the gang scheduler."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text
from typer import Option

from foundation.errors import ClusterError
from foundation.interruption import on_signals
from foundation.slurm import CommandSlurm
from gangd.controller.controller_status import about, read_status
from osub.cli.completion import clusters
from osub.cli.terminal import Console
from osub.cli.top.frame import Screen, frame
from osub.live.forward import GANGD, forward_to_gangd, is_in_containers
from osub.live.gangd_state import find_gangd, pulse_of
from osub.live.queue import QueueEye

LOOK_S = 0.25
SLURM_S = 3.0
"""So long an answer of Slurm may take."""


def top(
    state: Annotated[
        Path | None,
        Option(
            "--state",
            "--cluster",
            help="Folder of an embedded cluster, or one in containers; by default the one that runs.",
            metavar="DIR",
            autocompletion=clusters,
        ),
    ] = None,
    gangd: Annotated[
        Path | None, Option(help="State folder of a gangd (with status.json).", metavar="DIR")
    ] = None,
    job: Annotated[
        int | None, Option("--job", "-j", min=1, help="Only this job and who shares its cores.", metavar="ID")
    ] = None,
    once: Annotated[bool, Option("--once", help="Print one picture and leave.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print the status as JSON and leave.")] = False,
) -> None:
    """Show who runs in this time slice and who is held, by node and core; q or Ctrl-C leaves.

    Printed once (also where the output is no terminal, or one that cannot be redrawn) it exits with 1 if the
    controller writes no more.
    """
    if state is not None and is_in_containers(state):
        shown = [*(["--once"] if once else []), *(["--json"] if as_json else [])]
        about_job = [] if job is None else ["--job", str(job)]
        words = ["top", "--gangd", GANGD, *about_job, *shown]
        raise typer.Exit(forward_to_gangd(state, on_signals, words))
    folder, conf = find_gangd(state, gangd)
    status = about(read_status(folder), job)
    console = Console()
    eye = QueueEye(CommandSlurm(conf, tries=1, timeout_s=SLURM_S).jobs)
    if as_json:
        typer.echo(msgspec.json.encode(status).decode())
    elif once or not console.is_terminal or console.is_dumb_terminal:
        console.print(frame(status, pulse_of(status), Screen(console.width), eye.once(), time.time()))
    else:
        _watch(folder, console, eye, job)
        return
    raise typer.Exit(1 if pulse_of(status).is_stale else 0)


def _watch(folder: Path, console: Console, eye: QueueEye, job: int | None) -> None:
    with (
        suppress(KeyboardInterrupt),
        eye,
        _quiet_keys() as keys,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(_picture(folder, console, eye, job), refresh=True)
            if _asked_to_leave(keys):
                return


def _picture(folder: Path, console: Console, eye: QueueEye, job: int | None) -> RenderableType:
    """Return what is to be seen now; of a job that is alone on its cores meanwhile that it is."""
    status = read_status(folder)
    try:
        status = about(status, job)
    except ClusterError as error:
        return Text(f"{error}; q leaves")
    screen = Screen(console.width, console.height)
    return frame(status, pulse_of(status), screen, eye.latest, time.time())


def _asked_to_leave(keys: int | None) -> bool:
    """Wait until it is time to look again; True if q was pressed before, or the keyboard has gone."""
    if keys is None:
        time.sleep(LOOK_S)
        return False
    poller = select.poll()
    poller.register(keys, select.POLLIN)
    if not poller.poll(LOOK_S * 1000):
        return False
    pressed = os.read(keys, 64)
    return not pressed or b"q" in pressed


@contextmanager
def _quiet_keys() -> Iterator[int | None]:
    """Give the keyboard, key by key and without echo; None where there is none."""
    if not sys.stdin.isatty():
        yield None
        return
    keys = sys.stdin.fileno()
    before = termios.tcgetattr(keys)
    try:
        tty.setcbreak(keys)
        yield keys
    finally:
        termios.tcsetattr(keys, termios.TCSADRAIN, before)
