"""Supervisor of an embedded cluster: keeps the controller and the agents of gangd alive, as systemd does.

It starts them as its children, so that it knows how each ended; what a former supervisor or `up` has left
running it takes over. A daemon that ended is started again after a back-off. One that left with exit code 0
was stopped by an operator: it stays away until `up` (SIGHUP). ``supervisor.json`` in the cluster's folder
says which process each is, how often it was started again, and how it ended last.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from deploy.backoff import Backoff, ended_by
from deploy.local.daemons import Daemon, daemon_environment, log_of, start_daemon
from deploy.local.gang import SUPERVISOR_SIGNALS, gang_daemons
from deploy.local.host import look_at_host
from deploy.local.layout import ClusterLayout
from deploy.local.members import Pinned, pin
from deploy.local.state import SUPERVISED, read_listed, read_supervised
from foundation.errors import ClusterError, OsubError
from foundation.files import write_in
from foundation.trust import closing_fd, open_folder

_LOOK_S = 0.5
"""Daemons that are not its children are looked at so often."""
_QUIET_S = 3600.0

log = logging.getLogger("supervisor")


class Supervised:
    """One daemon: its process, and when to start it again.

    Parameters
    ----------
    layout, words, environment
        Where it logs, its command, and the environment that it gets.
    known
        What was known of it before, whether it runs or not.

    Attributes
    ----------
    daemon
        What is known of it now.
    due_s
        When to start it (monotonic clock); None while it runs, or is not to be started.
    """

    def __init__(
        self, layout: ClusterLayout, words: Sequence[str], environment: Mapping[str, str], known: Daemon
    ) -> None:
        self.daemon = known
        self.due_s: float | None = None
        self._layout, self._words, self._environment = layout, words, environment
        self._backoff = Backoff()
        self._pinned: Pinned | None = pin(known.pid, known.start_ticks)
        self._is_child = False
        self._began_s = time.monotonic()
        if self._pinned is None:
            self.due_s = self._began_s

    def look(self, now_s: float) -> bool:
        """Note its end, and start it where it is time to; returns whether anything changed."""
        if self._pinned is not None and not self._pinned.is_alive():
            self._note_end(now_s)
        elif self._pinned is None and self.due_s is not None and now_s >= self.due_s:
            self._start(now_s)
        else:
            return False
        return True

    def start_soon(self) -> None:
        """Let it be started at the next look, if it does not run."""
        if self._pinned is None:
            self.due_s = time.monotonic()

    @property
    def is_adopted(self) -> bool:
        """Whether it runs and is not a child of this process, which would be signalled of its end."""
        return self._pinned is not None and not self._is_child

    def _note_end(self, now_s: float) -> None:
        assert self._pinned is not None
        code = None
        with suppress(ChildProcessError):
            code = os.waitstatus_to_exitcode(os.waitpid(self._pinned.pid, 0)[1])
        os.close(self._pinned.pidfd)
        self._pinned, ended = None, ended_by(code)
        self.daemon = msgspec.structs.replace(self.daemon, ended=ended, ended_s=time.time())
        wait_s = self._backoff.after(now_s - self._began_s)
        self.due_s = None if code == 0 else now_s + wait_s
        what = "it was stopped, `up` starts it" if code == 0 else f"started again in {wait_s:g} s"
        log.warning("%s (process %d) ended: %s; %s", self.daemon.role, self.daemon.pid, ended, what)

    def _start(self, now_s: float) -> None:
        role, known = self.daemon.role, self.daemon
        try:
            fresh = start_daemon(role, self._words, log_of(self._layout, role), self._environment)
            self._pinned = Pinned(fresh.pid, os.pidfd_open(fresh.pid))
        except OSError as error:
            self.due_s = now_s + self._backoff.after(0.0)
            log.error("%s cannot be started: %s", role, error)
            return
        self._began_s, self.due_s, self._is_child = now_s, None, True
        restarts = known.restarts + (1 if known.pid else 0)
        self.daemon = msgspec.structs.replace(
            known, pid=fresh.pid, start_ticks=fresh.start_ticks, restarts=restarts
        )
        log.info("%s started: process %d", role, fresh.pid)


def supervise(folder: Path) -> None:
    """Keep the daemons of the cluster in ``folder`` alive until SIGTERM or SIGINT; they live on then."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SUPERVISOR_SIGNALS)
    state = read_listed(folder)
    if state is None:
        raise ClusterError(f"no cluster in {folder}")
    layout, environment = state.layout, daemon_environment(state.layout)
    known = {daemon.role: daemon for daemon in read_supervised(folder)}
    known |= {one.role: _newest(known.get(one.role), one) for one in state.daemons}
    ours = [
        Supervised(layout, words, environment, known.get(role, Daemon(role=role, pid=0, start_ticks=0)))
        for role, words in gang_daemons(layout, look_at_host()).items()
    ]
    has_changed = True
    while True:
        now_s = time.monotonic()
        for one in ours:
            has_changed = one.look(now_s) or has_changed
        if has_changed:
            has_changed = not _write(folder, [one.daemon for one in ours])
        due_s = [one.due_s - now_s for one in ours if one.due_s is not None]
        pause_s = min([*due_s, _LOOK_S if has_changed or any(one.is_adopted for one in ours) else _QUIET_S])
        got = signal.sigtimedwait(SUPERVISOR_SIGNALS, max(0.0, pause_s))
        if got is not None and got.si_signo in (signal.SIGINT, signal.SIGTERM):
            return
        if got is not None and got.si_signo == signal.SIGHUP:
            for one in ours:
                one.start_soon()


def _newest(known: Daemon | None, listed: Daemon) -> Daemon:
    """Return the process that `up` found running with what is known of its earlier ends."""
    if known is None:
        return listed
    return msgspec.structs.replace(known, pid=listed.pid, start_ticks=listed.start_ticks)


def _write(folder: Path, daemons: Sequence[Daemon]) -> bool:
    try:
        with closing_fd(open_folder(folder)) as fd:
            write_in(fd, SUPERVISED, msgspec.json.format(msgspec.json.encode(daemons), indent=1), 0o644)
    except (OSError, OsubError) as error:
        log.error("cannot write %s: %s", folder / SUPERVISED, error)
        return False
    return True


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        supervise(Path(sys.argv[1]))
    except OsubError as error:
        sys.exit(f"supervisor: {error}")
