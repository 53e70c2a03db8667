"""Several daemons in one container: started one after the other, started anew when they end, ended in order.

The engine's init (``init: true``) reaps what daemons leave; this is its only child. It ends when it is told
to, or when a daemon ends at once several times in a row: then the engine starts the container anew.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deploy.compose.inside.waiting import say

_AGAIN_AFTER_S = 1.0
_SHORT_LIFE_S = 10.0
_MOST_SHORT_LIVES = 5
_END_WITHIN_S = 8.0


@dataclass(slots=True, kw_only=True)
class Daemon:
    """A daemon that runs in the foreground.

    Attributes
    ----------
    name, words
        What it is, and its command.
    user
        As whom it runs; None for root.
    nice
        Added to its niceness.
    """

    name: str
    words: Sequence[str]
    user: str | None = None
    nice: int = 0
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    short_lives: int = 0


@dataclass(slots=True)
class Supervisor:
    """Starts and ends daemons; ``is_told_to_end`` after SIGTERM or SIGINT."""

    daemons: list[Daemon] = field(default_factory=list)
    is_told_to_end: bool = False

    def __post_init__(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def start(self, daemon: Daemon) -> None:
        """Start a daemon, and watch over it from now on."""
        self.daemons.append(daemon)
        _start(daemon)

    def watch(self, tick: Callable[[], None] = lambda: None, poll_s: float = 0.2) -> bool:
        """Keep daemons alive until told to end (True), or until one of them cannot be kept alive (False)."""
        while not self.is_told_to_end:
            for daemon in self.daemons:
                has_ended = daemon.process is not None and daemon.process.poll() is not None
                if has_ended and not _again(daemon):
                    return False
            tick()
            time.sleep(poll_s)
        return True

    def end(self) -> None:
        """End the daemons, the last that was started first."""
        for daemon in reversed(self.daemons):
            _end(daemon)

    def end_one(self, name: str) -> None:
        """End the daemon of a name, if there is one."""
        for daemon in self.daemons:
            if daemon.name == name:
                _end(daemon)

    def _note(self, *_: object) -> None:
        self.is_told_to_end = True


def now_and_then(call: Callable[[], None], every_s: float) -> Callable[[], None]:
    """Return a tick that makes the call at most each so many seconds."""
    due_s = float("-inf")

    def tick() -> None:
        nonlocal due_s
        if time.monotonic() >= due_s:
            due_s = time.monotonic() + every_s
            call()

    return tick


def _end(daemon: Daemon) -> None:
    if daemon.process is None or daemon.process.poll() is not None:
        return
    daemon.process.terminate()
    try:
        daemon.process.wait(_END_WITHIN_S)
    except subprocess.TimeoutExpired:
        say(f"{daemon.name} does not end: killed")
        daemon.process.kill()
        daemon.process.wait()


def _start(daemon: Daemon) -> None:
    daemon.started_s = time.monotonic()
    words = list(daemon.words)
    if daemon.user is not None:
        words = ["setpriv", f"--reuid={daemon.user}", f"--regid={daemon.user}", "--init-groups", *words]
    if daemon.nice:  # as root, for no other user may lower it
        words = ["nice", "-n", str(daemon.nice), *words]
    say(f"starting {daemon.name}")
    daemon.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)


def _again(daemon: Daemon) -> bool:
    """Start a daemon that ended anew; False where it never lives long."""
    assert daemon.process is not None
    lived_s = time.monotonic() - daemon.started_s
    daemon.short_lives = daemon.short_lives + 1 if lived_s < _SHORT_LIFE_S else 0
    say(f"{daemon.name} ended (exit code {daemon.process.returncode})")
    if daemon.short_lives >= _MOST_SHORT_LIVES:
        say(f"{daemon.name} ended {daemon.short_lives} times in a row: giving up")
        return False
    time.sleep(_AGAIN_AFTER_S)
    _start(daemon)
    return True
