"""The guardian's work: to watch, and to release.

The guardian's loop: wait for the agent's death or the end of its lease, and thaw.

Rules:

* The pipe closes without a word, or the agent's pidfd becomes readable: it is dead. Thaw until nothing can be
  left, clear the marks, and leave. (The kernel closes the pipe a little before the pidfd tells.)
* The pipe says ``b"q"``: the agent has thawed everything itself and leaves. Leave too.
* The lease is over and something is marked held: thaw, count a trip, and look again soon, because an
  agent that wakes up between its check and its write may freeze once more.

Releasing from the records of a state file: what guardian, operator and a restarted agent have in common.

Only what the records mark as held is touched, only through the validated way to a control file, and only
processes whose start time is the recorded one. FREEZING is thawed like FROZEN; what yields gets its priority
back.
"""

from __future__ import annotations

import enum
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from foundation.trust import closing_fd
from gangd.freezer.procfs import ProcStat, read_stat, signals_to_continue
from gangd.freezer.tree import DIALECTS, write_control
from gangd.guardian.statefile import IDLE_KIND, PROCESS_KIND, Held, StateFile, Word
from gangd.hold.cpu_priority import KNOBS, restore


@dataclass(frozen=True, slots=True)
class Revived:
    """What one pass did: jobs thawed, records whose cgroup or process was gone, and failures as text."""

    jobs: frozenset[int] = frozenset()
    gone: int = 0
    failures: tuple[str, ...] = ()


def thaw_held(state: StateFile) -> Revived:
    """Thaw everything that ``state`` marks as held. The marks stay: they belong to the agent."""
    jobs: set[int] = set()
    gone = 0
    failures: list[str] = []
    table: dict[int, ProcStat] = {}
    # Children are continued before their parents: later records first.
    for held in sorted(state.held(), key=lambda held: (held.start_ticks, held.pid), reverse=True):
        try:
            done = _release(state, held, table)
        except OSError as error:
            failures.append(f"job {held.job}: {held.path or held.pid}: {error.strerror}")
            continue
        if done:
            jobs.add(held.job)
        else:
            gone += 1
    return Revived(frozenset(jobs), gone, tuple(failures))


def _release(state: StateFile, held: Held, table: dict[int, ProcStat]) -> bool:
    if held.kind == PROCESS_KIND:
        return _continue(held)
    if held.kind == IDLE_KIND:
        return restore(held.pid, held.start_ticks, table)
    knob = KNOBS.get(held.kind)
    if knob is not None:
        return knob.restore(state.cpu_root(), held.path)
    dialect = DIALECTS.get(held.kind)
    return dialect is not None and write_control(state.root(), dialect, held.path, dialect.thaw)


def _continue(held: Held) -> bool:
    """End our stop of a process if it is still the recorded one.

    The pidfd pins it before its start is compared.
    """
    with suppress(ProcessLookupError), closing_fd(os.pidfd_open(held.pid)) as pidfd:
        stat = read_stat(held.pid)
        if stat is not None and stat.start_ticks == held.start_ticks:
            for number in signals_to_continue(held.pid):
                signal.pidfd_send_signal(pidfd, number)
            return True
    return False


BEAT_NS = 1_000_000_000
"""The guardian looks, and says that it is alive, at least this often."""
EXPIRED_LOOK_NS = 50_000_000
_FAREWELL = b"q"
_LAST_PASSES = 20


class WatchEnd(enum.Enum):
    """Why the guardian stopped watching."""

    FAREWELL = "farewell"
    AGENT_DIED = "agent died"


def watch(
    state: StateFile, agent_pidfd: int | None, pipe_fd: int, say: Callable[[str, Revived], None]
) -> WatchEnd:
    """Watch one agent to its end; returns after the last thaw.

    Parameters
    ----------
    state
        The agent's state file.
    agent_pidfd
        Readable once the agent is dead; None where the kernel has no pidfds (the pipe then tells).
    pipe_fd
        Read end of a pipe whose only write end the agent holds.
    say
        Called with what happened and what was thawed.
    """
    poller = select.poll()
    poller.register(pipe_fd, select.POLLIN)
    if agent_pidfd is not None:
        poller.register(agent_pidfd, select.POLLIN)
    while True:
        wait_ns = _look(state, say)
        events = dict(poller.poll(wait_ns / 1e6))
        if agent_pidfd in events:
            break
        if pipe_fd in events:
            word = os.read(pipe_fd, 16)
            if word.startswith(_FAREWELL):
                return WatchEnd.FAREWELL
            break
    _last_thaw(state, say)
    return WatchEnd.AGENT_DIED


def _look(state: StateFile, say: Callable[[str, Revived], None]) -> int:
    """Beat, thaw if the lease is over, and return how long (ns) to wait before the next look."""
    state.set_word(Word.GUARDIAN_BEAT_NS, time.monotonic_ns())
    left_ns = state.word(Word.LEASE_NS) - time.monotonic_ns()
    if left_ns > 0:
        return min(left_ns + 1_000_000, BEAT_NS)
    if not any(state.held()):
        return BEAT_NS
    # Counted first: an agent that sees our writes must be able to tell them from those of others.
    state.set_word(Word.GUARDIAN_TRIPS, state.word(Word.GUARDIAN_TRIPS) + 1)
    say("lease over", thaw_held(state))
    return EXPIRED_LOOK_NS


def _last_thaw(state: StateFile, say: Callable[[str, Revived], None]) -> None:
    """Thaw until a pass has no failure, and clear the marks once the agent is surely dead.

    With marks left, a later agent would thaw again what Slurm may have suspended by then.
    """
    for turn in range(_LAST_PASSES):
        revived = thaw_held(state)
        if turn == 0 or revived.failures:
            say(WatchEnd.AGENT_DIED.value, revived)
        if not revived.failures and not state.agent_alive():
            state.void()
            return
        time.sleep(0.05)
