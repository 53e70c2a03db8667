"""An agent's lines to its controllers: how and by which keys they are reached.

An agent's lines to its controllers: two sockets each, what comes over them, whether they are sound.

How an agent reaches its controllers, and by which keys: read at the start, and again on SIGHUP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import zmq

from foundation.errors import UsageError
from foundation.toml_file import load_toml
from foundation.trust import read_trusted
from gangd.agent.agent_options import KEYS_DIR, endpoints
from gangd.curve_keys import AgentKeys, load_agent_keys
from gangd.wire.messages import Message
from gangd.wire.sockets import AgentSockets, connect_agent
from gangd.wire.wire_frames import encode, topic

MOST_CONTROLLERS = 4
Address = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class AgentConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an agent's TOML file may say; the command line comes first.

    Parameters
    ----------
    controllers
        ``HOST``, ``HOST:PORT`` or ``PUBLISH,REPORTS`` of the controller and of its standbys, in any order.
    keys
        Key folder.
    extern
        Whether ``step_extern`` is held: ``hold`` or ``run``.
    """

    controllers: Annotated[tuple[Address, ...], msgspec.Meta(max_length=MOST_CONTROLLERS)] = ()
    keys: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    extern: Literal["hold", "run"] | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """Keys, the endpoints of each controller (plans, reports), and whether ``step_extern`` is held."""

    keys: AgentKeys
    controllers: tuple[tuple[str, str], ...]
    hold_extern: bool


def read_reach(
    node: str,
    config_file: Path | None,
    said_controllers: tuple[str, ...],
    said_keys: Path | None,
    said_extern: str | None,
) -> Reach:
    """Read the file, if there is one, and the keys; what the command line says goes before the file.

    Raises
    ------
    InputError
        The file or the keys cannot be read.
    TrustError
        Another user could have put them there, or may write to them.
    UsageError
        A value is not possible, or there is no controller.
    """
    config = _read(config_file)
    try:
        addresses = said_controllers or config.controllers
        controllers = tuple(dict.fromkeys(map(endpoints, addresses)))
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not 1 <= len(controllers) <= MOST_CONTROLLERS:
        raise UsageError(
            f"{len(controllers)} controllers: name one and its standbys, {MOST_CONTROLLERS} at most, by "
            "--controller or controllers in the --config file"
        )
    folder = said_keys or (KEYS_DIR if config.keys is None else Path(config.keys))
    hold_extern = (said_extern or config.extern or "hold") == "hold"
    return Reach(load_agent_keys(folder, node), controllers, hold_extern)


def _read(path: Path | None) -> AgentConfig:
    if path is None:
        return AgentConfig()
    table = load_toml(path, frozenset(AgentConfig.__struct_fields__))
    read_trusted(path)
    try:
        return msgspec.convert(table, AgentConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"configuration {path}: {error}") from error


DEAF_NS, UNANSWERED_NS = 5_000_000_000, 7_000_000_000
"""A socket on which no plan, or no answer, for this node came so long is connected anew. A sound one has
plans or beats four times in a lease, and an answer every three to four seconds: so often the clock is probed
at least."""


class ControllerLine:
    """The sockets to one controller."""

    def __init__(self, sockets: AgentSockets, node: str) -> None:
        self.sockets = sockets
        self._own = topic(node)
        self._plans_ns = self._replies_ns = time.monotonic_ns()

    def fds(self) -> tuple[int, int]:
        """Return the descriptors that tell of messages."""
        return _option(self.sockets.plans, zmq.FD), _option(self.sockets.reports, zmq.FD)

    def plans(self) -> Iterator[list[bytes]]:
        """Yield what the controller published, as far as it waits."""
        while _option(self.sockets.plans, zmq.EVENTS) & zmq.POLLIN:
            frames = self.sockets.plans.recv_multipart(zmq.NOBLOCK)
            if frames[0] == self._own:
                # Of two subscriptions one may be lost on its way: what goes to all proves little.
                self._plans_ns = time.monotonic_ns()
            yield frames

    def replies(self) -> Iterator[bytes]:
        """Yield its answers, as far as they wait."""
        while _option(self.sockets.reports, zmq.EVENTS) & zmq.POLLIN:
            body = self.sockets.reports.recv_multipart(zmq.NOBLOCK)[-1]
            self._replies_ns = time.monotonic_ns()
            yield body

    def send(self, message: Message, version: int) -> bool:
        """Send a message; False without a controller: what it misses it asks for, or it is too old."""
        try:
            self.sockets.reports.send(encode(message, version), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def is_readable(self) -> bool:
        """Whether a message waits."""
        sockets = (self.sockets.plans, self.sockets.reports)
        return any(_option(socket, zmq.EVENTS) & zmq.POLLIN for socket in sockets)

    def is_writable(self) -> bool:
        """Whether a report would be taken."""
        return bool(_option(self.sockets.reports, zmq.EVENTS) & zmq.POLLOUT)

    def look_after(self, now_ns: int, lease_ns: int, *, speaks: bool) -> None:
        """Connect a socket anew on which nothing comes: the library may have given it up.

        Who is not meant to speak (a standby) may be silent.
        """
        if not speaks:
            self._plans_ns = self._replies_ns = now_ns
        if now_ns - self._plans_ns > max(DEAF_NS, lease_ns):
            self._plans_ns = now_ns
            self.sockets.connect_plans()
        if now_ns - self._replies_ns > UNANSWERED_NS:
            self._replies_ns = now_ns
            self.sockets.connect_reports()

    def close(self) -> None:
        """Close both."""
        self.sockets.close()


class ControllerLines:
    """The lines to all controllers that there may be: an active one and its standbys.

    Parameters
    ----------
    node
        Slurm's name of the node.
    reach
        How they are reached.
    read
        Reads that again, for SIGHUP; raises ``OsubError``.
    """

    def __init__(self, node: str, reach: Reach, read: Callable[[], Reach]) -> None:
        self._node = node
        self._read = read
        self.reach = reach
        self._all = self._connected()

    def __iter__(self) -> Iterator[ControllerLine]:
        return iter(self._all)

    def fds(self) -> set[int]:
        """Return the descriptors that tell of messages."""
        return {fd for line in self._all for fd in line.fds()}

    def in_use(self, place: int | None) -> list[ControllerLine]:
        """Return the line of the controller that is spoken with; all of them where that is not known."""
        return self._all if place is None else self._all[place : place + 1]

    def look_after(self, now_ns: int, place: int | None, lease_ns: int) -> None:
        """Connect anew what is not sound under such a lease; ``place`` as for ``in_use``."""
        for number, line in enumerate(self._all):
            line.look_after(now_ns, lease_ns, speaks=place in (None, number))

    def reload(self) -> bool:
        """Read keys and addresses again; True if they are others, and all is connected anew.

        Raises ``OsubError`` and changes nothing where they cannot be used.
        """
        reach, before = self._read(), self.reach
        self.reach = reach
        if (reach.keys, reach.controllers) == (before.keys, before.controllers):
            return False
        former, self._all = self._all, self._connected()
        for line in former:
            line.close()
        return True

    def close(self) -> None:
        """Close all."""
        for line in self._all:
            line.close()

    def _connected(self) -> list[ControllerLine]:
        keys, node = self.reach.keys, self._node
        return [ControllerLine(connect_agent(keys, node, *where), node) for where in self.reach.controllers]


def _option(socket: zmq.Socket[bytes], option: int) -> int:
    return int(socket.getsockopt(option))
