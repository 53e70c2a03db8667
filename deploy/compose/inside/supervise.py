"""Several daemons in one container: what they wait for, how they start and end.

Several daemons in one container: started one after the other, started anew when they end, ended in order.

The engine's init (``init: true``) reaps what daemons leave; this is its only child. It ends on SIGTERM or
SIGINT, or when a daemon that the others need ends at once several times in a row: then the engine starts the
container anew.

Waiting for other containers: an engine restarts containers in no order.

munged in a container: every other daemon speaks through it.
"""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from deploy.backoff import Backoff, ended_by
from deploy.compose.inside import keys
from foundation.errors import ClusterError

T = TypeVar("T")
_POLL_S = 0.1
_SAY_EVERY_S = 10.0


def say(what: str) -> None:
    """Say it in the container's log."""
    print(f"osub: {what}", file=sys.stderr, flush=True)


def wait_for(what: str, look: Callable[[], T | None], within_s: float = 300.0, poll_s: float = _POLL_S) -> T:
    """Return the first thing found that is not None; raises ClusterError after ``within_s`` seconds.

    Between two looks is a pause of ``poll_s`` seconds, and on a slow host one as long as a look takes.
    """
    begun_s = look_s = time.monotonic()
    next_s = begun_s + _SAY_EVERY_S
    while (found := look()) is None:
        now_s = time.monotonic()
        if now_s - begun_s > within_s:
            raise ClusterError(f"{what}: not within {within_s:g} s")
        if now_s > next_s:
            next_s = now_s + _SAY_EVERY_S
            say(f"still waiting for {what}")
        time.sleep(max(poll_s, now_s - look_s))
        look_s = time.monotonic()
    return found


def answers(host: str, port: int) -> bool | None:
    """Return True where something takes connections; None where it does not."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return None
    return True


_SHORT_RUN_S = 10.0
_MOST_SHORT_RUNS = 5
_END_WITHIN_S = 8.0


@dataclass(slots=True, kw_only=True)
class ForegroundDaemon:
    """A daemon that runs in the foreground.

    Attributes
    ----------
    name, words
        What it is, and its command.
    user
        As whom it runs; None for root.
    nice
        Added to its niceness.
    is_needed
        Whether the container is of no use without it; else it is started again for ever.
    """

    name: str
    words: Sequence[str]
    user: str | None = None
    nice: int = 0
    is_needed: bool = True
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    short_runs: int = 0
    due_s: float | None = None
    backoff: Backoff = field(default_factory=Backoff)


@dataclass(slots=True)
class Supervisor:
    """Starts and ends daemons; ``is_ending`` after SIGTERM or SIGINT."""

    daemons: list[ForegroundDaemon] = field(default_factory=list)
    is_ending: bool = False

    def __post_init__(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def start(self, daemon: ForegroundDaemon) -> None:
        """Start a daemon, and watch over it from now on."""
        self.daemons.append(daemon)
        _start(daemon)

    def watch(self, tick: Callable[[], None] = lambda: None, poll_s: float = 0.2) -> bool:
        """Keep daemons alive until SIGTERM (True), or until one of them cannot be kept alive (False)."""
        while not self.is_ending:
            for daemon in self.daemons:
                if not _keep(daemon):
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
        self.is_ending = True


def now_and_then(call: Callable[[], None], every_s: float) -> Callable[[], None]:
    """Return a tick that makes the call at most each so many seconds."""
    due_s = float("-inf")

    def tick() -> None:
        nonlocal due_s
        if time.monotonic() >= due_s:
            due_s = time.monotonic() + every_s
            call()

    return tick


def _end(daemon: ForegroundDaemon) -> None:
    if daemon.process is None or daemon.process.poll() is not None:
        return
    daemon.process.terminate()
    try:
        daemon.process.wait(_END_WITHIN_S)
    except subprocess.TimeoutExpired:
        say(f"{daemon.name} does not end: killed")
        daemon.process.kill()
        daemon.process.wait()


def _start(daemon: ForegroundDaemon) -> None:
    daemon.started_s = time.monotonic()
    words = list(daemon.words)
    if daemon.user is not None:
        words = ["setpriv", f"--reuid={daemon.user}", f"--regid={daemon.user}", "--init-groups", *words]
    if daemon.nice:  # as root, for no other user may lower it
        words = ["nice", "-n", str(daemon.nice), *words]
    say(f"starting {daemon.name}")
    daemon.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)


def _keep(daemon: ForegroundDaemon) -> bool:
    """Start a daemon that ended again when it is time to; False where a needed one keeps ending early."""
    assert daemon.process is not None
    code, now_s = daemon.process.poll(), time.monotonic()
    if code is None:
        return True
    if daemon.due_s is not None:
        if now_s >= daemon.due_s:
            daemon.due_s = None
            _start(daemon)
        return True
    lived_s = now_s - daemon.started_s
    daemon.short_runs = daemon.short_runs + 1 if lived_s < _SHORT_RUN_S else 0
    if daemon.is_needed and daemon.short_runs >= _MOST_SHORT_RUNS:
        say(f"{daemon.name} ended {daemon.short_runs} times in a row, last by {ended_by(code)}: giving up")
        return False
    wait_s = daemon.backoff.after(lived_s)
    daemon.due_s = now_s + wait_s
    say(f"{daemon.name} ended: {ended_by(code)}; it is started again in {wait_s:g} s")
    return True


_SOCKET = Path("/run/munge/munge.socket.2")


def start_munged(supervisor: Supervisor) -> None:
    """Start munged once its key is there, and wait until it answers."""
    wait_for("the munge key", lambda: keys.MUNGE.is_file() or None)
    owner = pwd.getpwnam("munge")
    for folder in ("/run/munge", "/var/log/munge", "/var/lib/munge"):
        Path(folder).mkdir(mode=0o755, parents=True, exist_ok=True)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    words = ["/usr/sbin/munged", "--foreground", f"--key-file={keys.MUNGE}", "--num-threads=2"]
    supervisor.start(ForegroundDaemon(name="munged", words=words, user="munge"))
    wait_for("munged", _answers)


def _answers() -> bool | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(_SOCKET))
        except OSError:
            return None
        return True
