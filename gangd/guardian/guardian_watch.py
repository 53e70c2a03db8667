"""The guardian's loop: wait for the agent's death or the end of its lease, and thaw.

Rules:

* The pipe closes without a word, or the agent's pidfd becomes readable: it is dead. Thaw until nothing can be
  left, clear the marks, and leave. (The kernel closes the pipe a little before the pidfd tells.)
* The pipe says ``b"q"``: the agent has thawed everything itself and leaves. Leave too.
* The lease is over and something is marked held: thaw, count a trip, and look again soon, because an
  agent that wakes up between its check and its write may freeze once more.
"""

from __future__ import annotations

import enum
import os
import select
import time
from collections.abc import Callable

from gangd.guardian.revive import Revived, thaw_held
from gangd.guardian.statefile import StateFile, Word

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
    # Counted first: an agent that sees our writes must be able to tell them from a stranger's.
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
