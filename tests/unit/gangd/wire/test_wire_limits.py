"""Limits on clients: connections, keys, rates."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from gangd.controller.alarms import alarm_of
from gangd.controller.intake import A_SECOND, AT_ONCE, Quota
from gangd.curve_keys import KeyPair, load_agent_keys, load_controller_keys, make_keys
from gangd.daemon_process import Death
from gangd.wire import access_control
from gangd.wire.access_control import MOST_ORIGINS as MOST_FILTERED
from gangd.wire.access_control import News, attach, origin_of, program
from gangd.wire.connection_limiter import (
    A_FEW,
    CONNECTIONS,
    CONNECTIONS_A_KEY,
    CONNECTIONS_NOWHERE,
    FIRST_NS,
    LONGEST_NS,
    LONGEST_WITH_KEYS_NS,
    MEMORY_NS,
    MOST_ORIGINS,
    NOWHERE,
    SECOND_NS,
    ConnectionLimiter,
    Denied,
    ShutOut,
)
from gangd.wire.messages import AccessRefused, Ping, WrongNodeError
from gangd.wire.sockets import AgentSockets, ControllerSockets, Received, connect_agent
from gangd.wire.wire_frames import encode, topic
from tests.chaos.forger import client
from tests.fixtures.looks import until

DEADLINE_S = 20.0
LOCAL = "tcp://127.0.0.1:*"


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
        until(lambda: hears_and_is_answered(controller, agent), what="the agent is in")
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
    unknown_peers = []
    try:
        for number in range(1_500):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", ports[number % 2]))
            unknown_peers.append(one)
            if said:
                with suppress(OSError):
                    one.send(said)
        if not said:  # who babbles is cut off at once, and need not be shut out
            until(lambda: news_of(controller, ShutOut, taken), what="a peer is shut out")
        until(lambda: hears_and_is_answered(controller, agent), what="the agent is served")
        origins = {one.origin for one in news_of(controller, ShutOut, taken) if isinstance(one, ShutOut)}
        assert origins <= {"127.0.0.1", NOWHERE}
        until(lambda: controller.access.keeper.open <= CONNECTIONS, what="who says nothing is cut off soon")
        assert files() - before - len(unknown_peers) < 1_000, "most were never let in"
    finally:
        for one in unknown_peers:
            one.close()
    until(lambda: hears_and_is_answered(controller, agent), what="the agent is served still")


@pytest.mark.slow
def test_an_agent_comes_in_again_when_the_flood_is_over(
    controller: ControllerSockets, agent: AgentSockets
) -> None:
    taken: list[News] = []
    port = port_of(controller.report_endpoint)
    unknown_peers = []
    for _ in range(500):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
        unknown_peers.append(one)
    until(lambda: news_of(controller, ShutOut, taken), what="a peer is shut out")
    for one in unknown_peers:
        one.close()
    agent.connect_reports()
    agent.connect_plans()
    until(lambda: hears_and_is_answered(controller, agent), what="the agent is in again")


@pytest.mark.slow
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

        until(shut, what="who sends that much is cut off")
        [news, *_] = news_of(controller, ShutOut, taken)
        assert isinstance(news, ShutOut)
        assert "bytes over one connection" in news.why
    finally:
        context.destroy(linger=0)
    until(lambda: hears_and_is_answered(controller, agent), what="the agent is served")


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

        until(came, what="a message of it comes")
        controller.cut(received[0], "it sends too much")
        until(lambda: gone.poll(100), what="it is cut")
        until(lambda: news_of(controller, ShutOut, taken), what="its origin is shut out")
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

        until(lambda: says("n1"), what="it is heard")
        for path in keys.rglob("n1.*"):
            path.unlink()
        make_keys(keys, ["n1"])
        controller.reload_keys()
        until(lambda: says("a key of n1 that was removed"), what="it is named")
        former.connect_reports()
        until(lambda: news_of(controller, Denied, taken), what="it is denied")
    assert news_of(controller, Denied, taken)[0] == Denied("127.0.0.1", 1, "n1")
    until(lambda: heard() is None, what="all that it said is read")
    again = load_agent_keys(keys, "n1")
    with connect_agent(again, "n1", controller.publish_endpoint, controller.report_endpoint) as agent:
        until(lambda: hears_and_is_answered(controller, agent), what="the new key is heard")


def test_a_key_that_is_not_on_the_list_is_reported(controller: ControllerSockets, keys: Path) -> None:
    server, taken = load_agent_keys(keys, "n1").controller_public, []  # type: ignore[var-annotated]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        peer = client(context, zmq.DEALER, KeyPair(*zmq.curve_keypair()), server, None)
        peer.connect(controller.report_endpoint)
        until(lambda: news_of(controller, Denied, taken), what="the key is denied")
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
}  # what is said at once, and then byte by byte


@pytest.mark.slow
def test_who_proves_no_key_is_cut_off_within_seconds_and_an_agent_comes_in_meanwhile(
    controller: ControllerSockets, keys: Path
) -> None:
    began_s, cut_s = time.monotonic(), dict[str, float]()
    unknown_peers = {}
    for endpoint in (controller.publish_endpoint, controller.report_endpoint):
        for name, (said, drips) in SLOW.items():
            for number in range(5):
                one = socket.create_connection(("127.0.0.1", port_of(endpoint)))
                one.setblocking(False)
                one.send(said)
                unknown_peers[f"{name}, {port_of(endpoint)}, {number}"] = (one, drips)
    known = load_agent_keys(keys, "n1")
    try:
        with connect_agent(known, "n1", controller.publish_endpoint, controller.report_endpoint) as agent:
            until(lambda: hears_and_is_answered(controller, agent), what="an agent comes in meanwhile")
            second = 0
            while len(cut_s) < len(unknown_peers):
                assert time.monotonic() < began_s + DEADLINE_S, unknown_peers.keys() - cut_s.keys()
                for name, (one, drips) in unknown_peers.items():
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
        for one, _ in unknown_peers.values():
            one.close()
    assert max(cut_s.values()) < 25, "the library alone takes half a minute"


STRANGERS = 2 * MOST_ORIGINS + 1
OUTSIDE, HOST = "10.0.0.9", "10.0.0.1"


def crowd(keeper: ConnectionLimiter, origin: str, count: int, now_ns: int, first: int = 0) -> list[ShutOut]:
    """Open connections from an origin; returns the news."""
    news = [keeper.opened(("reports", first + number), origin, now_ns) for number in range(count)]
    return [one for one in news if one is not None]


def test_an_origin_with_too_many_connections_is_shut_out_and_others_are_not() -> None:
    keeper = ConnectionLimiter(10_000)
    assert crowd(keeper, OUTSIDE, CONNECTIONS, 0) == []
    assert crowd(keeper, HOST, 4, 0, first=1_000) == []
    [news] = crowd(keeper, OUTSIDE, 5, 0, first=CONNECTIONS)
    assert (news.origin, news.for_ns, news.times) == (OUTSIDE, FIRST_NS, 1)
    assert news.why == f"{CONNECTIONS + 1} connections, limit {CONNECTIONS}"
    assert keeper.shut(FIRST_NS - 1) == {OUTSIDE}
    assert keeper.due_ns() == FIRST_NS
    assert keeper.shut(FIRST_NS) == frozenset()
    assert keeper.due_ns() is None


def test_connections_that_come_and_go_too_fast_count_as_open_ones() -> None:
    keeper = ConnectionLimiter(10_000)
    news = []
    for number in range(2 * CONNECTIONS):
        news.append(keeper.opened(("reports", 5), OUTSIDE, number))
        keeper.closed(("reports", 5))
    assert sum(one is not None for one in news) == 1
    assert keeper.open == 0


def test_an_agent_that_connects_anew_now_and_then_is_never_too_much() -> None:
    keeper = ConnectionLimiter(10_000)
    for number in range(1_000):
        assert crowd(keeper, HOST, 2, number * SECOND_NS, first=2 * number) == []
        keeper.closed(("reports", 2 * number))
        keeper.closed(("reports", 2 * number + 1))


def test_who_does_it_again_is_shut_out_for_longer_each_time_up_to_a_bound() -> None:
    keeper, now_ns, times = ConnectionLimiter(10**6), 0, []
    for _ in range(10):
        [news] = crowd(keeper, OUTSIDE, 3 * CONNECTIONS, now_ns)
        times.append(news.for_ns)
        now_ns += news.for_ns
        assert keeper.shut(now_ns) == frozenset()
        for number in range(3 * CONNECTIONS):
            keeper.closed(("reports", number))
    assert times[:4] == [FIRST_NS, 2 * FIRST_NS, 4 * FIRST_NS, 8 * FIRST_NS]
    assert max(times) == LONGEST_NS
    [news] = crowd(keeper, OUTSIDE, 3 * CONNECTIONS, now_ns + MEMORY_NS + 1)
    assert news.for_ns == FIRST_NS, "that was long ago"


def test_where_an_agent_runs_no_peer_is_shut_out_for_long() -> None:
    keeper, now_ns = ConnectionLimiter(10**6), 0
    keeper.admitted(HOST, "key", 0)
    for _ in range(8):
        [news] = crowd(keeper, HOST, 3 * CONNECTIONS, now_ns)
        now_ns += news.for_ns
        keeper.shut(now_ns)
    assert news.for_ns == LONGEST_WITH_KEYS_NS


def test_a_host_of_many_agents_gets_space_for_each_key() -> None:
    keeper, now_ns, shut = ConnectionLimiter(10**6), 0, 0
    joined = 0
    while joined < 1_000:  # each wave, as many agents come in as there is capacity for
        for number in range(joined, 1_000):
            for which in range(2):
                if keeper.opened(("reports", 2 * number + which), HOST, now_ns) is not None:
                    shut += 1
            if HOST in keeper.shut(now_ns):
                break
            keeper.admitted(HOST, str(number), now_ns)
            joined = number + 1
        due_ns = keeper.due_ns()
        now_ns = now_ns + 1 if due_ns is None else due_ns
    assert now_ns < 10 * SECOND_NS, "they wait for seconds at most"


def test_all_are_shut_out_before_files_run_out_and_until_there_is_space() -> None:
    keeper = ConnectionLimiter(100)
    for number in range(99):
        keeper.opened(("reports", number), f"10.0.0.{number}", 0)
    assert not keeper.is_full
    keeper.opened(("publish", 99), "10.0.1.1", 0)
    assert keeper.is_full
    for number in range(25):
        keeper.closed(("reports", number))
    assert keeper.is_full
    keeper.closed(("reports", 30))
    assert not keeper.is_full


def test_a_number_that_is_used_again_ends_what_had_it_before() -> None:
    keeper = ConnectionLimiter(100)
    for _ in range(50):
        keeper.opened(("reports", 7), HOST, 0)
    assert keeper.open == 1
    keeper.opened(("publish", 7), HOST, 0)
    assert keeper.open == 2
    keeper.closed(("reports", 8))
    assert keeper.open == 2


def test_who_cannot_be_distinguished_is_shut_out_for_a_second_only() -> None:
    keeper, now_ns = ConnectionLimiter(10**6), 0
    for _ in range(5):
        [news] = crowd(keeper, NOWHERE, CONNECTIONS_NOWHERE + 1, now_ns)
        assert news.for_ns == FIRST_NS
        now_ns += FIRST_NS
        keeper.shut(now_ns)


def test_of_those_that_are_gone_at_once_the_one_that_is_seen_most_is_shut_out() -> None:
    keeper = ConnectionLimiter(10**6)
    crowd(keeper, HOST, 4, 0)
    crowd(keeper, OUTSIDE, A_FEW + 1, 0, first=100)
    [news] = crowd(keeper, NOWHERE, CONNECTIONS_NOWHERE + 1, 0, first=1_000)
    assert news.origin == OUTSIDE
    assert keeper.shut(1) == {OUTSIDE}
    assert crowd(keeper, NOWHERE, CONNECTIONS_NOWHERE, 1, first=10_000) == []


def test_wrong_keys_are_reported_seldom() -> None:
    keeper = ConnectionLimiter(100)
    news = [keeper.denied(OUTSIDE, 0) for _ in range(100)]
    assert [one.times for one in news if one is not None] == [1, 2, 4, 8, 16, 32, 64]


def test_what_is_long_ago_is_forgotten() -> None:
    keeper = ConnectionLimiter(10**6)
    for number in range(1_000):
        keeper.opened(("reports", 1), f"10.1.{number // 256}.{number % 256}", 0)
    keeper.closed(("reports", 1))
    keeper.opened(("reports", 2), HOST, 0)
    keeper.forget(MEMORY_NS)
    assert len(keeper._origins) == 1_001
    keeper.forget(MEMORY_NS + 1)
    assert list(keeper._origins) == [HOST], "it still has a connection"


@pytest.mark.slow
def test_origins_without_number_are_not_remembered() -> None:
    keeper = ConnectionLimiter(10**6)
    keeper.admitted(HOST, "key", 0)
    crowd(keeper, OUTSIDE, CONNECTIONS + 1, 0)
    for number in range(STRANGERS):
        keeper.opened(("publish", 1), f"2001:db8:{number >> 16:x}:{number & 0xFFFF:x}::/64", 0)
    assert len(keeper._origins) <= MOST_ORIGINS
    assert {HOST, OUTSIDE} <= keeper._origins.keys()
    assert keeper.shut(1) == {OUTSIDE}


def test_space_for_keys_is_space_for_keys() -> None:
    keeper = ConnectionLimiter(10**6)
    for key in ("one", "two", "two"):
        keeper.admitted(HOST, key, 0)
    assert crowd(keeper, HOST, CONNECTIONS + 2 * CONNECTIONS_A_KEY, 0) == []
    assert len(crowd(keeper, HOST, 1, 0, first=1_000)) == 1
    for _ in range(10):
        keeper.admitted(OUTSIDE, "all", 0, shared=True)
    assert crowd(keeper, OUTSIDE, CONNECTIONS + 10 * CONNECTIONS_A_KEY, 0, first=5_000) == []


# Filter


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_address_is_counted_under_its_origin(address: str, origin: str) -> None:
    assert origin_of(address) == origin


def comes_through(listener: socket.socket, source: str) -> bool:
    """Whether a connection from a local address is made."""
    own = socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET)
    with own:
        own.settimeout(0.3)
        own.bind((source, 0))
        try:
            own.connect(("::1" if ":" in source else "127.0.0.1", listener.getsockname()[1]))
        except TimeoutError:
            return False
        other, _ = listener.accept()
        with other:
            own.sendall(b"hi")
            return other.recv(2) == b"hi"


@pytest.mark.slow
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_drops_what_comes_from_who_is_shut_out(family: socket.AddressFamily) -> None:
    sources = ["127.0.0.1", "127.0.0.2", *(["::1"] if family is socket.AF_INET6 else [])]
    with socket.socket(family) as listener:
        if family is socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("", 0))
        listener.listen()
        try:
            attach(listener, set())
        except PermissionError:
            pytest.skip("this kernel lets root alone filter what comes to a socket")
        many = {f"10.0.{number // 200}.{number % 200}" for number in range(MOST_FILTERED - 1)}
        for shut in ({"127.0.0.2"}, {"127.0.0.1", "2001:db8::/64"}, {origin_of("::1")}, many | {"127.0.0.2"}):
            attach(listener, shut)
            found = {source: comes_through(listener, source) for source in sources}
            assert found == {source: origin_of(source) not in shut for source in sources}, shut
        attach(listener, set())
        assert all(comes_through(listener, source) for source in sources)
        attach(listener, set(), everybody=True)
        assert not any(comes_through(listener, source) for source in sources)


def test_more_origins_than_the_kernel_takes_are_everybody() -> None:
    assert len(program({f"10.0.{number // 200}.{number % 200}" for number in range(1_000)})) == 8
    six = {f"2001:db8:{number:x}::/64" for number in range(MOST_FILTERED)}
    assert len(program(six)) // 8 <= 4_096


# Quota


def test_a_sender_has_so_many_messages_at_once_and_so_many_a_second() -> None:
    quota = Quota()
    assert all(quota.takes("n1", 0) for _ in range(AT_ONCE))
    assert not quota.takes("n1", 0)
    assert quota.takes("n2", 0), "others have their own"
    assert sum(quota.takes("n1", SECOND_NS) for _ in range(2 * A_SECOND)) == A_SECOND
    assert sum(quota.takes("n1", 3600 * SECOND_NS) for _ in range(2 * AT_ONCE)) == AT_ONCE


def test_senders_without_number_are_forgotten() -> None:
    quota = Quota()
    for number in range(50_000):
        quota.takes(number, number * SECOND_NS // 1_000)
    assert len(quota._left) < 30_000


# Alarms


@pytest.mark.parametrize(
    ("news", "kind", "text"),
    [
        (
            ShutOut("10.0.0.9", "70 connections, limit 64", 2 * SECOND_NS, 2),
            "blocked",
            "10.0.0.9: 70 connections, limit 64; new connections from there are refused for 2 s",
        ),
        (ShutOut(NOWHERE, "x", SECOND_NS, 1), "blocked", "unknown addresses: x; new connections"),
        (Denied("10.0.0.9", 4), "unknown key", "10.0.0.9: a key that is not in the key folder, 4 times"),
        (Denied("10.0.0.9", 1, "n1"), "unknown key", "10.0.0.9: a key of n1 that was removed, 1 time"),
        (
            Death("access control", "KeyError: 1", 1),
            "thread",
            "thread access control died and was started again: KeyError: 1",
        ),
    ],
)
def test_what_happens_at_the_limit_is_an_alarm(news: ShutOut | Denied | Death, kind: str, text: str) -> None:
    alarm = alarm_of(news)
    assert alarm.kind == kind
    assert alarm.text.startswith(text)
