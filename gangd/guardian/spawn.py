"""The agent's side of its guardian: start it, notice that it is dead or asleep, and say farewell."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from foundation.errors import HostError
from gangd.guardian.guardian_watch import BEAT_NS
from gangd.guardian.statefile import StateFile, Word

START_TIMEOUT_S = 5.0
ASLEEP_NS = 3 * BEAT_NS
"""A guardian that has not looked for so long is stopped or starved: it is replaced."""

_BOOT = (
    "import signal, sys; signal.signal(signal.SIGXCPU, signal.SIG_IGN); "
    "sys.path[:0] = sys.argv.pop(1).split(':'); "
)


class Guardian:
    """A running guardian of this process.

    Attributes
    ----------
    pid
        Its process.
    pidfd
        Readable once it is dead: put it into the agent's poll set.
    """

    def __init__(self, state: StateFile, pid: int, pidfd: int, pipe_fd: int) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self._state = state
        self._pipe_fd = pipe_fd

    @classmethod
    def start(cls, state: StateFile, timeout_s: float = START_TIMEOUT_S) -> Guardian:
        """Start a guardian for ``state`` and wait until it watches.

        Raises
        ------
        HostError
            It did not report in time. The caller must not freeze anything then.
        """
        pipe_read, pipe_write = os.pipe2(os.O_CLOEXEC)
        ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
        try:
            fds = (state.fd, pipe_read, ready_write)
            child = start_helper(
                "from gangd.guardian.guardian_process import run; run(*map(int, sys.argv[1:]))",
                *map(str, (*fds, os.getpid())),
                pass_fds=fds,
            )
            os.close(ready_write)
            ready_write = -1
            word = os.read(ready_read, 1) if _is_ready(ready_read, timeout_s) else b""
            child.kill() if not word else None
            child.wait()
            if not word:
                raise HostError(
                    "the guardian process did not start within "
                    f"{timeout_s:g} s; nothing may be frozen without it (see its messages on standard error)"
                )
            pid = state.word(Word.GUARDIAN_PID)
            return cls(state, pid, os.pidfd_open(pid), pipe_write)
        except BaseException:
            os.close(pipe_write)
            raise
        finally:
            os.close(pipe_read)
            os.close(ready_read)
            if ready_write >= 0:
                os.close(ready_write)

    def well(self) -> bool:
        """Whether it is alive and has looked lately."""
        if _is_ready(self.pidfd, 0):
            return False
        return time.monotonic_ns() - self._state.word(Word.GUARDIAN_BEAT_NS) < ASLEEP_NS

    def farewell(self) -> None:
        """Tell it that everything is thawed and that we leave."""
        with contextlib.suppress(OSError):
            os.write(self._pipe_fd, b"q")
        self._close()

    def abandon(self) -> None:
        """Leave it to thaw what is still marked held: to it, we are dead."""
        self._close()

    def replace(self) -> None:
        """End it, so that a new one can be started: it is dead or asleep, and must not wake up next to it."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        self._close()

    def _close(self) -> None:
        os.close(self._pipe_fd)
        os.close(self.pidfd)


def _is_ready(fd: int, within_s: float) -> bool:
    """Wait until there is something to read; an agent of many jobs has descriptors that select() refuses."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(within_s * 1000))


def start_helper(
    code: str, *words: str, pipes: int = subprocess.DEVNULL, pass_fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a process of the agent without site-packages; ``pipes`` are its standard input and output."""
    from foundation import version

    folders = {str(Path(__file__).parents[2]), str(Path(version.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BOOT + code, ":".join(sorted(folders)), *words],
        pass_fds=pass_fds,
        stdin=pipes,
        stdout=pipes,
        cwd="/",
        env={"PATH": os.defpath},
    )
