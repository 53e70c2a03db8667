"""``osub replay``: a trace on a real Slurm."""

from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from deploy.local import Gang
from deploy.local.gang import record_folder
from deploy.local.state import ClusterState, read_state
from gangd.controller.slicelog import read_slices
from osub.errors import ClusterError, UsageError
from osub.records import GangSettings
from osub.slurm import CommandSlurm
from submitter.options import ReplayOptions
from submitter.plan import Oversize
from submitter.replay import Collect, Replay, Wish
from submitter.replay import Progress as Standing


def replay(
    trace: Annotated[Path, typer.Argument(help="Trace in SWF, plain or gzip.")],
    out: Annotated[Path, typer.Option("--out", help="RUN folder to write.")],
    cluster: Annotated[
        Path | None, typer.Option("--cluster", help="Folder with slurm.conf (an embedded cluster's).")
    ] = None,
    start: Annotated[float | None, typer.Option(help="First second of the trace to replay.")] = None,
    length: Annotated[float | None, typer.Option(help="How many seconds of it.")] = None,
    speedup: Annotated[float, typer.Option(help="Divide every time of the trace by this.")] = 1.0,
    interactive_queue: Annotated[
        int, typer.Option(help="SWF queue of interactive jobs; -1: there are none.")
    ] = 0,
    apps: Annotated[Path | None, typer.Option(help="CSV trace_job,app,args.")] = None,
    oversize: Annotated[Oversize, typer.Option(help="Jobs larger than the cluster.")] = Oversize.FAIL,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Ask Slurm for the trace's memory.")
    ] = True,
    seed: Annotated[int, typer.Option(help="For interactive periods that the trace lacks.")] = 1,
    label: Annotated[str | None, typer.Option(help="Name of the run in tables.")] = None,
    trial: Annotated[int, typer.Option(min=1, help="Number of the repetition.")] = 1,
    calibration: Annotated[Path | None, typer.Option(help="rrba's stored step times.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a killed or detached replay.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Submit each job of TRACE to Slurm at its instant, follow it, and write the RUN.

    Ctrl-C asks whether to detach (the jobs go on, --resume follows them) or to cancel them all.
    """
    client, embedded = find_cluster(cluster)
    if resume:
        if not out.exists():
            raise UsageError(f"--resume: there is no RUN in {out}")
        session = Replay.resume(out, client)
    else:
        options = ReplayOptions(
            start_s=start,
            length_s=length,
            speedup=speedup,
            interactive_queue=None if interactive_queue < 0 else interactive_queue,
            seed=seed,
            oversize=oversize,
            use_memory=memory,
            gang=gang_of(embedded, client),
            pin=embedded is not None and not embedded.shape.virtual and embedded.shape.cores > 1,
            calibration=calibration.resolve() if calibration else None,
            label=label,
            trial=trial,
        )
        session = Replay.begin(trace, out, client, options, apps)
    finished = watch_replay(session, collect=collector_of(embedded))
    outcome = {"run": str(out), "finished": finished, "jobs": len(session.plan.jobs)}
    if as_json:
        typer.echo(json.dumps(outcome))
    elif finished:
        jobs = len(session.plan.jobs)
        typer.echo(f"{jobs} jobs are in {out}; `osub report {out} --html report.html` draws them")
    else:
        again = f"--cluster {cluster} " if cluster else ""
        typer.echo(f"detached; `osub replay {trace} {again}--out {out} --resume` goes on")


def find_cluster(folder: Path | None) -> tuple[CommandSlurm, ClusterState | None]:
    """Return a client, and the embedded cluster's state where ``folder`` holds one.

    Raises
    ------
    ClusterError
        The folder has no slurm.conf.
    """
    if folder is None:
        return CommandSlurm(), None
    conf = folder.resolve() / "slurm.conf"
    if not conf.exists():
        raise ClusterError(f"{folder} has no slurm.conf: `osub cluster up --state {folder}` makes a cluster")
    return CommandSlurm(conf), read_state(folder)


def gang_of(embedded: ClusterState | None, client: CommandSlurm) -> GangSettings:
    """Return who takes turns on shared cores there."""
    if embedded is not None and embedded.shape.gang is Gang.OSUB:
        return GangSettings(kind="osub", quantum_ms=embedded.shape.quantum_ms)
    config = client.config()
    if "GANG" in config.get("PreemptMode", ""):
        return GangSettings(kind="slurm", quantum_ms=1000.0 * int(config["SchedulerTimeSlice"].split()[0]))
    return GangSettings(kind="none")


def collector_of(embedded: ClusterState | None) -> Collect | None:
    """Return what adds the time slices of an embedded gangd to a RUN; nothing where there is none."""
    if embedded is None or embedded.shape.gang is not Gang.OSUB:
        return None
    folder = record_folder(embedded.layout)

    return lambda jobs, origin: (row for row in read_slices(folder, origin) if row.job in jobs)


def watch_replay(
    session: Replay,
    title: str = "replay",
    collect: Collect | None = None,
    most_s: float = math.inf,
) -> bool:
    """Carry a replay out under a progress bar; returns whether it finished.

    After ``most_s`` seconds the jobs that are left are cancelled.
    """
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} done {task.fields[rest]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with _interrupts() as asked, bar:
        task = bar.add_task(title, total=len(session.plan.jobs), rest="")

        def watch(now: Standing) -> Wish:
            rest = f"{now.running} running {now.waiting} waiting, about {now.left_s:.0f} s left"
            bar.update(task, completed=now.done, rest=rest + (", Slurm is away" if now.slurm_away else ""))
            if not asked:
                return Wish.CANCEL if now.now_s > most_s else Wish.GO_ON
            bar.stop()
            wish = _ask(now, polite=asked[-1] == signal.SIGINT)
            asked.clear()
            bar.start()
            return wish

        return session.run(watch, collect)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list while the context lasts."""
    caught: list[int] = []

    def catch(number: int, _: FrameType | None) -> None:
        caught.append(number)

    before = {number: signal.signal(number, catch) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ask(now: Standing, *, polite: bool) -> Wish:
    """Ask what to do; detach where nobody can answer, for that loses nothing."""
    if not polite or not sys.stdin.isatty():
        return Wish.DETACH
    question = f"{now.done} of {now.total} jobs done. [d]etach, [c]ancel all jobs, or [g]o on? "
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        answer = input(question).strip().lower()[:1]
    except (EOFError, KeyboardInterrupt):
        return Wish.DETACH
    finally:
        signal.signal(signal.SIGINT, ours)
    return {"d": Wish.DETACH, "c": Wish.CANCEL}.get(answer, Wish.GO_ON)
