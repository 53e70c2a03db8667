"""Taking the lead: at once where there is one controller, else when the one that leads is gone.

A standby has its sockets bound, so that agents are connected to it before they need it, and answers nothing
(``take_the_lead``).

When it begins, agents may go by the former controller's plan, up to their lease. A plan that is sent too
early thaws what should go on: before Slurm has answered it names no job, and a gang runs freely while the
agent of one of its nodes has not said hello. So plans are held back (``FailoverGrace``) until Slurm has
answered and all agents that the former had are back; for a lease at most, for by then nothing is held.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import zmq

from foundation.errors import OsubError, OutputError
from foundation.notify import Notifier
from foundation.trust import closing_fd, make_folder
from gangd.controller.controller_config import MS, Config
from gangd.controller.intake import Quota
from gangd.controller.state_directory import Candidate, Lead, LeadFile, StateDirectory
from gangd.core.states import AgentState
from gangd.wire.messages import WireError
from gangd.wire.sockets import ControllerSockets

log = logging.getLogger("gangd")

LOOKS = 10
"""A standby looks so many times in the time after which it takes over."""

ANNOUNCE_NS = 50_000_000
"""Announcements come so often meanwhile: agents that connect anew must hear one soon."""


def take_the_lead(config: Config, sockets: ControllerSockets) -> StateDirectory | None:
    """Wait until this controller may lead, and return the state folder; None if a signal ends it before.

    Raises
    ------
    HostError
        Another controller uses the folder, and it is not shared.
    OutputError, TrustError
        The folder cannot be written, or others may write to it.
    """
    if config.takeover_ms is None:
        return StateDirectory(config.state)
    takeover_ns = round(config.takeover_ms * MS)
    try:
        folder_fd, _ = make_folder(config.state, 0o755)
    except OSError as error:
        raise OutputError(f"cannot write to state folder {config.state}: {error.strerror}") from error
    file = LeadFile(folder_fd, config.state)
    lead = _wait(file, takeover_ns, sockets, config.state)
    if lead is None:
        os.close(folder_fd)
        return None
    return StateDirectory(config.state, lead)


def _wait(file: LeadFile, takeover_ns: int, sockets: ControllerSockets, folder: Path) -> Lead | None:
    candidate, quota = Candidate(takeover_ns), Quota()
    poller = zmq.Poller()
    poller.register(sockets.reports, zmq.POLLIN)
    is_logged = False
    with signal_pipe() as pipe, closing(Notifier()) as notifier:
        poller.register(pipe, select.POLLIN)
        while True:
            now_ns = time.monotonic_ns()
            try:
                leader = file.read()
                if candidate.may_lead(leader, now_ns):
                    mine = file.claim(leader)
                    if mine is not None:
                        log.info("term %d: this controller leads", mine.term)
                        return Lead(file, mine, takeover_ns, now_ns)
            except (OSError, OsubError) as error:  # the shared file system may be away for a while
                log.warning("cannot look who leads in %s: %s", folder, error)
            else:
                if not is_logged and leader is not None:
                    is_logged = True
                    log.info("standby: %s, process %d, leads (term %d)", leader.host, leader.pid, leader.term)
                    notifier.ready()
                    notifier.status(f"standby; {leader.host} leads")
            notifier.alive(now_ns)
            poller.poll(max(1, takeover_ns // LOOKS // MS))
            for number in read_signals(pipe):
                if number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
                    notifier.leaving()
                    return None
                if number == signal.SIGHUP:
                    _read_keys(sockets)
            drop_messages(sockets, quota, time.monotonic_ns())


def drop_messages(sockets: ControllerSockets, quota: Quota, now_ns: int) -> None:
    """Read what agents say and forget it: what waits when this controller leads would be out of date.

    The connection of a sender that says far more than an agent does is cut, as the leader does it.
    """
    sockets.access.turned()
    for _ in range(10_000):
        try:
            taken = sockets.receive()
        except WireError:
            continue
        if taken is None:
            return
        quota.admits(taken, sockets, now_ns)


def _read_keys(sockets: ControllerSockets) -> None:
    try:
        sockets.reload_keys()
    except OsubError as error:
        log.error("keys not reloaded: %s", error)


@contextmanager
def signal_pipe() -> Iterator[int]:
    """Yield a descriptor from which the numbers of a controller's signals can be read as they come."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    pipe, pipe_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    with closing_fd(pipe), closing_fd(pipe_in):
        old_fd = signal.set_wakeup_fd(pipe_in, warn_on_full_buffer=False)
        old = {number: signal.signal(number, lambda *_: None) for number in numbers}
        try:
            yield pipe
        finally:
            signal.set_wakeup_fd(old_fd)
            for number, handler in old.items():
                signal.signal(number, handler)


def read_signals(pipe: int) -> bytes:
    """Return the numbers of the signals that came, from a wake-up pipe."""
    try:
        return os.read(pipe, 64)
    except BlockingIOError:
        return b""


class FailoverGrace:
    """Decides when plans go out.

    Parameters
    ----------
    nodes
        Those whose agents the former controller had; none: nothing is waited for.
    start_ns, lease_ns
        When this controller began, and for how long agents hold jobs without a word.
    """

    def __init__(self, nodes: Iterable[str], start_ns: int, lease_ns: int) -> None:
        self._missing = set(nodes)
        self._until_ns = start_ns + lease_ns
        self.waits = bool(self._missing)

    def look(self, now_ns: int, looked: bool, state: Callable[[str], AgentState]) -> bool:
        """Say whether plans are still held back."""
        if self.waits:
            self._missing = {node for node in self._missing if state(node) is not AgentState.JOINED}
            self.waits = now_ns < self._until_ns and (bool(self._missing) or not looked)
        return self.waits
