"""The workers of one node: forked processes that compute on request and otherwise sleep.

The coordinator (the process that was started) computes nothing. Each worker blocks on a pipe to it, so
a barrier is: all have answered. A worker that dies closes its pipe, and the wait ends with an error.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from typing import NoReturn

from foundation.errors import HostError
from workloads.eiba.busy_work import Kernel, consume
from workloads.eiba.inbox import Channel, Inbox, Message, PeerGoneError, Terminated, receive, send
from workloads.task.slurm_task import Pin, apply_pin


@dataclass(frozen=True, slots=True)
class BusyPeriod:
    """What the workers of a node did in one busy period.

    Attributes
    ----------
    cpu_s
        CPU time of the worker that consumed most, which is within one kernel of every other's.
    skew_s
        From the first worker's end to the last one's, in wall time.
    """

    cpu_s: float
    skew_s: float


class WorkerPool:
    """Forked workers and the pipes to them.

    Parameters
    ----------
    inbox
        Where the workers' answers arrive; the workers own it from now on.
    pins
        One for each worker: what it is to be bound to.
    make_kernel
        Makes a worker's computation, in the worker and on its core, so that its memory is that core's.

    Attributes
    ----------
    cpu_s
        CPU seconds that all workers have consumed up to the latest busy period's end.
    """

    def __init__(self, inbox: Inbox, pins: Sequence[Pin], make_kernel: Callable[[], Kernel]) -> None:
        self._inbox = inbox
        self._pids: dict[str, int] = {}
        self._channels: dict[str, Channel] = {}
        self.cpu_s = 0.0
        try:
            for index, pin in enumerate(pins):
                self._fork(f"worker {index}", pin, make_kernel)
            greetings = list(inbox.gather(self._channels).values())
        except PeerGoneError as error:
            reason = self.explain(error)
            self.kill()
            raise reason from error
        except BaseException:
            self.kill()
            raise
        self._greetings = greetings

    def _fork(self, name: str, pin: Pin, make_kernel: Callable[[], Kernel]) -> None:
        try:
            ours, theirs = Pipe()
            pid = os.fork()
        except OSError as error:
            raise HostError(f"cannot start {name}: {error.strerror}; ask for fewer workers") from error
        if pid == 0:
            self._serve(ours, theirs, pin, make_kernel)
        theirs.close()
        self._pids[name] = pid
        self._channels[name] = ours
        self._inbox.watch(name, ours)

    def _serve(self, ours: Channel, theirs: Channel, pin: Pin, make_kernel: Callable[[], Kernel]) -> NoReturn:
        """Be a worker until the coordinator closes the pipe or dies."""
        code = 1
        try:
            coordinator = os.getppid()
            self._inbox.become_worker()
            ours.close()
            applied = apply_pin(pin)
            affinity = sorted(os.sched_getaffinity(0))
            pinned = applied.cpu is not None
            kernel = make_kernel()
            send(theirs, {"affinity": affinity, "pinned": pinned, "warning": applied.warning})
            while True:
                order = receive(theirs, "the coordinator")
                # Asked between kernels: a worker whose coordinator was killed must not compute on.
                cpu_s = consume(order["busy_s"], kernel, lambda: os.getppid() == coordinator)
                ended_s = time.monotonic()
                send(theirs, {"cpu_s": cpu_s, "ended_s": ended_s, "all_cpu_s": time.process_time()})
        except (PeerGoneError, Terminated, OSError):
            code = 0
        finally:
            # Nothing of the coordinator's (buffers, exit handlers) may run a second time here.
            os._exit(code)

    def describe(self) -> Message:
        """Return where the workers may run: their CPUs, whether all are pinned, warnings."""
        return {
            "affinity": [greeting["affinity"] for greeting in self._greetings],
            "pinned": all(greeting["pinned"] for greeting in self._greetings),
            "warnings": [greeting["warning"] for greeting in self._greetings if greeting["warning"]],
        }

    def busy(self, cpu_s: float) -> BusyPeriod:
        """Have every worker consume ``cpu_s`` seconds of its CPU time; return when all have.

        Raises
        ------
        PeerGoneError
            A worker died, which ``explain`` tells more of, or another node of the job is gone.
        Terminated
            A signal asks the job to stop.
        """
        for channel in self._channels.values():
            # A worker that is gone is noticed, and named, by the wait for its answer.
            with contextlib.suppress(OSError):
                send(channel, {"busy_s": cpu_s})
        answers = self._inbox.gather(self._channels).values()
        self.cpu_s = math.fsum(answer["all_cpu_s"] for answer in answers)
        ends_s = [answer["ended_s"] for answer in answers]
        return BusyPeriod(max(answer["cpu_s"] for answer in answers), max(ends_s) - min(ends_s))

    def explain(self, error: PeerGoneError) -> PeerGoneError | HostError:
        """Return ``error``, or how the worker that it is about came to its end."""
        pid = self._pids.get(error.who)
        if pid is None:
            return error
        del self._pids[error.who]
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return HostError(f"{error.who} (pid {pid}) {how}; look for an out-of-memory or operator's kill")

    def kill(self) -> None:
        """End and reap every worker, at once; the pool is empty afterwards."""
        for name in self._channels:
            self._inbox.forget(name)
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
        for pid in self._pids.values():
            os.waitpid(pid, 0)
        self._channels.clear()
        self._pids.clear()
