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
import psutil
import typer
from rich.live import Live

from deploy.local import Gang
from deploy.local.found import live_clusters
from deploy.local.gang import status_folder
from deploy.local.state import read_state
from foundation.errors import ClusterError, UsageError
from foundation.slurm import CommandSlurm
from gangd.controller.status import Status, read_status
from osub.cli.terminal import Console
from osub.cli.top_frame import Pulse, Screen, frame
from osub.cli.top_job import about
from osub.cli.top_queue import QueueEye

LOOK_S = 0.25
SLURM_S = 3.0
"""So long an answer of Slurm may take."""


def top(
    state: Annotated[
        Path | None,
        typer.Option(
            "--state", help="Folder of an embedded cluster; by default the one that runs.", metavar="DIR"
        ),
    ] = None,
    gangd: Annotated[
        Path | None,
        typer.Option("--gangd", help="State folder of a gangd (with status.json).", metavar="DIR"),
    ] = None,
    job: Annotated[
        int | None,
        typer.Option("--job", "-j", min=1, help="Only this job and who shares its cores.", metavar="ID"),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one picture and leave.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status as JSON and leave.")] = False,
) -> None:
    """Show who runs in this time slice and who is held, by node and core; q or Ctrl-C leaves.

    Printed once (also where the output is no terminal) it exits with 1 if the controller writes no more.
    """
    folder, conf = find_gangd(state, gangd)
    status = about(read_status(folder), job)
    console = Console()
    eye = QueueEye(CommandSlurm(conf, tries=1, timeout_s=SLURM_S).jobs)
    if as_json:
        typer.echo(msgspec.json.encode(status).decode())
    elif once or not console.is_terminal:
        console.print(frame(status, pulse_of(status), Screen(console.width), eye.once(), time.time()))
    else:
        _watch(folder, console, eye, job)
        return
    raise typer.Exit(1 if pulse_of(status).is_stale else 0)


def find_status(state: Path | None, gangd: Path | None) -> Path:
    """Return the folder with the status; raises as ``find_gangd``."""
    return find_gangd(state, gangd)[0]


def find_gangd(state: Path | None, gangd: Path | None) -> tuple[Path, Path | None]:
    """Return the folder with the status, and the embedded cluster's slurm.conf (None: this host's Slurm).

    Raises
    ------
    UsageError
        Both were given; or neither, and not exactly one embedded cluster of this user's runs with gangd.
    ClusterError
        There is no embedded cluster in ``state``, or none with gangd.
    """
    either = "give either --state (an embedded cluster's folder) or --gangd (a state folder)"
    if state is not None and gangd is not None:
        raise UsageError(either)
    if gangd is not None:
        return gangd, None
    if state is None:
        running = [one.folder for one in live_clusters() if one.state.shape.gang is Gang.OSUB]
        if len(running) != 1:
            told = f": {', '.join(map(str, running))} run" if running else "; no cluster with gangd runs here"
            raise UsageError(f"{either}{told}")
        state = running[0]
    cluster = read_state(state)
    if cluster is None:
        raise ClusterError(f"no cluster in {state}: `osub cluster up --state {state} --gang osub` makes one")
    if cluster.shape.gang is not Gang.OSUB:
        raise ClusterError(
            f"the cluster in {state} runs without gangd: take it down, and up again with --gang osub"
        )
    return status_folder(cluster.layout), cluster.layout.conf


def pulse_of(status: Status) -> Pulse:
    """Return whether the controller that wrote the status lives."""
    return Pulse(max(0.0, time.time() - status.time_ms / 1000), psutil.pid_exists(status.pid))


def _watch(folder: Path, console: Console, eye: QueueEye, job: int | None) -> None:
    with (
        suppress(KeyboardInterrupt),
        eye,
        _quiet_keys() as keys,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            status = about(read_status(folder), job)
            screen = Screen(console.width, console.height)
            live.update(frame(status, pulse_of(status), screen, eye.latest, time.time()), refresh=True)
            if _asked_to_leave(keys):
                return


def _asked_to_leave(keys: int | None) -> bool:
    """Wait until it is time to look again; True if q was pressed before, or the keyboard has gone."""
    if keys is None:
        time.sleep(LOOK_S)
        return False
    ready, _, _ = select.select([keys], [], [], LOOK_S)
    if not ready:
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
