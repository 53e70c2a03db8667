"""Watching a replay: a progress bar, and what Ctrl-C means."""

from __future__ import annotations

import math
import signal
import sys

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from foundation.interruption import note, on_signals
from foundation.units import counted_of, duration
from osub.cli.terminal import Console
from submitter.replay import Collect, Look, Replay, Wish
from submitter.replay import ReplayProgress as Standing


def watch_replay(
    session: Replay,
    title: str = "replay",
    collect: Collect | None = None,
    most_s: float = math.inf,
    *,
    outlives_us: bool = True,
    look: Look | None = None,
) -> bool:
    """Carry a replay out under a progress bar; returns whether it finished.

    A signal after which it was detached or cancelled is noted, for the command's exit status.
    After ``most_s`` seconds the jobs that are left are cancelled. A cluster that does not outlive the command
    is nothing to detach from. ``look`` tells who uses the host, once a second; None: nodes are elsewhere.
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
    asked: list[int] = []
    with on_signals(asked.append), bar:
        task = bar.add_task(escape(title), total=len(session.plan.jobs), rest="")

        def watch(now: Standing) -> Wish:
            left = duration(now.left_s, rough=True)
            rest = f"{now.running} running {now.waiting} waiting, about {left} left"
            if now.blocked:
                rest += f", {now.blocked} may never start ({escape(str(now.blocked_by))})"
            bar.update(task, completed=now.done, rest=rest + (", Slurm is away" if now.slurm_away else ""))
            if not asked:
                return Wish.CANCEL if now.now_s > most_s else Wish.GO_ON
            bar.stop()
            wish = _ask(now, polite=asked[-1] == signal.SIGINT, outlives_us=outlives_us)
            if wish is not Wish.GO_ON:
                note(asked[-1])
            asked.clear()
            bar.start()
            return wish

        return session.run(watch, collect, look)


def _ask(now: Standing, *, polite: bool, outlives_us: bool) -> Wish:
    """Ask what to do until there is an answer; detach without a terminal, for that loses nothing."""
    if not polite or not sys.stdin.isatty():
        return Wish.DETACH
    if outlives_us:
        ways = {"detach": Wish.DETACH, "cancel": Wish.CANCEL, "go on": Wish.GO_ON}
        choice = "[d]etach, [c]ancel all jobs, or [g]o on? "
    else:
        ways = {"end": Wish.DETACH, "go on": Wish.GO_ON}
        choice = "[e]nd here, or [g]o on? "
    question = f"{counted_of(now.done, now.total, 'job')} done. {choice}"
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        while True:
            answer = input(question).strip().lower()
            for word, wish in ways.items():
                if answer and word.startswith(answer):
                    return wish
    except (EOFError, KeyboardInterrupt):
        return Wish.DETACH
    finally:
        signal.signal(signal.SIGINT, ours)
