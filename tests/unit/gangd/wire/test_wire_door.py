"""The door over real sockets: strangers by the hundred, and a key that sends more than any agent does."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from gangd.curve_keys import KeyPair, load_agent_keys, load_controller_keys, make_keys
from gangd.daemon_process import Death
from gangd.wire import AccessRefused, Ping, access_control, encode, topic
from gangd.wire.access_control import News
from gangd.wire.connection_limiter import CONNECTIONS, NOWHERE, SECOND_NS, Denied, ShutOut
from gangd.wire.messages import WrongNodeError
from gangd.wire.sockets import AgentSockets, ControllerSockets, Received, connect_agent
from tests.chaos.forger import client

DEADLINE_S = 20.0
LOCAL = "tcp://127.0.0.1:*"


def until(condition: Callable[[], object], what: str, within_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", ["n1", "n2"])
    return tmp_path / "keys"


@pytest.fixture
def controller(keys: Path) -> Iterator[ControllerSockets]:
    with ControllerSockets(load_controller_keys(keys), LOCAL, LOCAL) as sockets:
        yield sockets


@pytest.fixture
def agent(controller: ControllerSockets, keys: Path) -> Iterator[AgentSockets]:
    known = load_agent_keys(keys, "n1")
    with connect_agent(known, "n1", controller.publish_endpoint, controller.report_endpoint) as agent:
        until(lambda: hears_and_is_answered(controller, agent), "the agent is in")
        yield agent


def hears_and_is_answered(controller: ControllerSockets, agent: AgentSockets) -> bool:
    """Whether a plan comes to the agent and an answer comes back, at once."""
    with suppress(zmq.Again):
        agent.reports.send(encode(Ping(node="n1", agent_ns=1)), zmq.NOBLOCK)
    controller.publish.send_multipart([topic("n1"), b"plan"])
    until_s = time.monotonic() + 0.5
    answered = heard = False
    while time.monotonic() < until_s and not (answered and heard):
        received = controller.receive()
        if received is not None:
            controller.reply(received.connection, AccessRefused(node="n1", reason="answer"))
        heard = heard or bool(agent.plans.poll(5) and agent.plans.recv_multipart())
        answered = answered or bool(agent.reports.poll(5) and agent.reports.recv())
    return answered and heard


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


def files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def news_of(controller: ControllerSockets, kind: type[News], taken: list[News]) -> list[News]:
    taken += controller.access.take_news()
    return [one for one in taken if isinstance(one, kind)]


@pytest.mark.parametrize("said", [b"", b"\xff" + bytes(63)], ids=["silent", "babbling"])
@pytest.mark.slow
def test_strangers_without_number_cost_few_files_and_agents_are_served(
    controller: ControllerSockets, agent: AgentSockets, said: bytes
) -> None:
    before, taken = files(), []  # type: ignore[var-annotated]
    ports = [port_of(controller.publish_endpoint), port_of(controller.report_endpoint)]
    strangers = []
    try:
        for number in range(1_500):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", ports[number % 2]))
            strangers.append(one)
            if said:
                with suppress(OSError):
                    one.send(said)
        if not said:  # who babbles is cut off at once, and need not be shut out
            until(lambda: news_of(controller, ShutOut, taken), "somebody is shut out")
        until(lambda: hears_and_is_answered(controller, agent), "the agent is served")
        origins = {one.origin for one in news_of(controller, ShutOut, taken) if isinstance(one, ShutOut)}
        assert origins <= {"127.0.0.1", NOWHERE}
        until(lambda: controller.access.keeper.open <= CONNECTIONS, "who says nothing is cut off soon")
        assert files() - before - len(strangers) < 1_000, "most were never let in"
    finally:
        for one in strangers:
            one.close()
    until(lambda: hears_and_is_answered(controller, agent), "the agent is served still")


def test_an_agent_comes_in_again_when_the_flood_is_over(
    controller: ControllerSockets, agent: AgentSockets
) -> None:
    taken: list[News] = []
    port = port_of(controller.report_endpoint)
    strangers = []
    for _ in range(500):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
        strangers.append(one)
    until(lambda: news_of(controller, ShutOut, taken), "somebody is shut out")
    for one in strangers:
        one.close()
    agent.connect_reports()
    agent.connect_plans()
    until(lambda: hears_and_is_answered(controller, agent), "the agent is in again")


def test_subscriptions_without_number_are_cut_off(
    controller: ControllerSockets, agent: AgentSockets, keys: Path
) -> None:
    known, taken = load_agent_keys(keys, "n2"), []  # type: ignore[var-annotated]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        peer = client(context, zmq.XSUB, known.own, known.controller_public, None)
        peer.connect(controller.publish_endpoint)
        sent = 0

        def shut() -> bool:
            nonlocal sent
            for _ in range(200):
                sent += 1
                with suppress(zmq.Again):
                    peer.send(b"\x01" + sent.to_bytes(4) + bytes(200), zmq.NOBLOCK)
            controller.publish.send_multipart([topic("n1"), b"plan"])
            return bool(news_of(controller, ShutOut, taken))

        until(shut, "who sends that much is cut off")
        [news, *_] = news_of(controller, ShutOut, taken)
        assert isinstance(news, ShutOut)
        assert "bytes over one connection" in news.why
    finally:
        context.destroy(linger=0)
    until(lambda: hears_and_is_answered(controller, agent), "the agent is served")


@pytest.mark.parametrize("filters", ["installed", "refused by the kernel"])
def test_a_connection_that_is_to_be_cut_is_cut_and_others_go_on(
    filters: str,
    controller: ControllerSockets,
    agent: AgentSockets,
    keys: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if filters != "installed":
        monkeypatch.setattr(access_control, "attach", refuse)
    known, taken = load_agent_keys(keys, "n2"), []  # type: ignore[var-annotated]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        peer = client(context, zmq.DEALER, known.own, known.controller_public, None)
        peer.setsockopt(zmq.RECONNECT_IVL, -1)
        gone = peer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        peer.connect(controller.report_endpoint)
        peer.send(encode(Ping(node="n2", agent_ns=1)))
        received: list[Received] = []

        def came() -> bool:
            one = controller.receive()
            received.extend([one] if one is not None and one.key == "n2" else [])
            return bool(received)

        until(came, "a message of it comes")
        controller.cut(received[0], "it sends too much")
        until(lambda: gone.poll(100), "it is cut")
        until(lambda: news_of(controller, ShutOut, taken), "its origin is shut out")
        assert news_of(controller, ShutOut, taken)[0] == ShutOut(
            "127.0.0.1", "it sends too much", SECOND_NS, 1
        )
        assert hears_and_is_answered(controller, agent)
        assert not news_of(controller, Death, taken)
    finally:
        context.destroy(linger=0)


def test_a_key_that_was_replaced_is_named_when_it_speaks_and_when_it_comes_anew(
    controller: ControllerSockets, keys: Path
) -> None:
    known, taken = load_agent_keys(keys, "n1"), []  # type: ignore[var-annotated]

    def heard() -> str | None:
        try:
            received = controller.receive()
        except WrongNodeError as error:
            return str(error)
        return None if received is None else received.key

    with connect_agent(known, "n1", controller.publish_endpoint, controller.report_endpoint) as former:

        def says(what: str) -> bool:
            with suppress(zmq.Again):
                former.reports.send(encode(Ping(node="n1", agent_ns=1)), zmq.NOBLOCK)
            return what in (heard() or "")

        until(lambda: says("n1"), "it is heard")
        for path in keys.rglob("n1.*"):
            path.unlink()
        make_keys(keys, ["n1"])
        controller.reload_keys()
        until(lambda: says("a key of n1 that was removed"), "it is named")
        former.connect_reports()
        until(lambda: news_of(controller, Denied, taken), "it is denied")
    assert news_of(controller, Denied, taken)[0] == Denied("127.0.0.1", 1, "n1")
    until(lambda: heard() is None, "all that it said is read")
    again = load_agent_keys(keys, "n1")
    with connect_agent(again, "n1", controller.publish_endpoint, controller.report_endpoint) as agent:
        until(lambda: hears_and_is_answered(controller, agent), "the new key is heard")


def test_a_key_that_is_not_on_the_list_is_reported(controller: ControllerSockets, keys: Path) -> None:
    server, taken = load_agent_keys(keys, "n1").controller_public, []  # type: ignore[var-annotated]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        peer = client(context, zmq.DEALER, KeyPair(*zmq.curve_keypair()), server, None)
        peer.connect(controller.report_endpoint)
        until(lambda: news_of(controller, Denied, taken), "the key is denied")
    finally:
        context.destroy(linger=0)
    assert news_of(controller, Denied, taken)[0] == Denied("127.0.0.1", 1)


GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
"""Of ZMTP 3.0 (RFC 23), by a client."""
BIG_COMMAND = b"\x06" + (200_000).to_bytes(8)
SLOW = {
    "silent": (b"", b""),
    "one byte a second of the greeting": (b"", GREETING),
    "a greeting and no more": (GREETING, b""),
    "a greeting, and one byte a second of a long command": (GREETING + BIG_COMMAND, bytes(100)),
    "one byte a second of an old greeting": (b"\x20", bytes(100)),
}
"""What is said at once, and then byte by byte."""


@pytest.mark.slow
def test_who_proves_no_key_is_cut_off_within_seconds_and_an_agent_comes_in_meanwhile(
    controller: ControllerSockets, keys: Path
) -> None:
    began_s, cut_s = time.monotonic(), dict[str, float]()
    strangers = {}
    for endpoint in (controller.publish_endpoint, controller.report_endpoint):
        for name, (said, drips) in SLOW.items():
            for number in range(5):
                one = socket.create_connection(("127.0.0.1", port_of(endpoint)))
                one.setblocking(False)
                one.send(said)
                strangers[f"{name}, {port_of(endpoint)}, {number}"] = (one, drips)
    known = load_agent_keys(keys, "n1")
    try:
        with connect_agent(known, "n1", controller.publish_endpoint, controller.report_endpoint) as agent:
            until(lambda: hears_and_is_answered(controller, agent), "an agent comes in meanwhile")
            second = 0
            while len(cut_s) < len(strangers):
                assert time.monotonic() < began_s + DEADLINE_S, strangers.keys() - cut_s.keys()
                for name, (one, drips) in strangers.items():
                    with suppress(BlockingIOError):
                        try:
                            one.send(drips[second : second + 1])
                            over = one.recv(1_000) == b""
                        except ConnectionError:
                            over = True
                        if over:
                            cut_s.setdefault(name, time.monotonic() - began_s)
                second += 1
                time.sleep(0.5)
            assert hears_and_is_answered(controller, agent)
    finally:
        for one, _ in strangers.values():
            one.close()
    assert max(cut_s.values()) < 25, "the library alone takes half a minute"
