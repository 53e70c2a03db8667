"""Sockets: cadence, loss, reconnection."""

from __future__ import annotations

import contextlib
import random
import stat
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest
import zmq

from foundation.errors import HostError, InputError, UsageError
from gangd.agent.report_buffer import MAX_SLICES
from gangd.curve_keys import SHARED_AGENT, load_agent_keys, load_controller_keys, make_keys
from gangd.wire import messages as wire
from gangd.wire.messages import WireError, WrongNodeError
from gangd.wire.slice_schedule import (
    CALM_NS,
    LOOK_NS,
    is_look,
    looks_a_calm_look,
    next_look,
    silence_ns,
    silence_of,
    slices_a_look,
)
from gangd.wire.sockets import REPORT_QUEUE, UNREAD_MS, AgentSockets, ControllerSockets, connect_agent
from gangd.wire.wire_frames import decode_down, decode_up, encode, encode_down, topic
from tests.chaos.forger import client
from tests.chaos.proxy import Proxy, ProxyThread, Weather
from tests.fixtures.looks import until

DEADLINE_S = 10.0
LOCAL = "tcp://127.0.0.1:*"
T = TypeVar("T")


def poll(take: Callable[[], T | None]) -> T:
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        taken = take()
        if taken is not None:
            return taken
        time.sleep(0.005)
    raise AssertionError("nothing came in time")


def beat(node: str, seq: int) -> wire.Beat:
    return wire.Beat(
        controller=wire.ControllerIdentity(b"c" * 16, 1), node=node, epoch=1, seq=seq, sent_ns=1,
        lease_ns=2_000_000_000, horizon=2,
    )  # fmt: skip


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", ["node1", "node10"])
    return tmp_path / "keys"


@pytest.fixture
def controller(keys: Path) -> Iterator[ControllerSockets]:
    with ControllerSockets(load_controller_keys(keys), LOCAL, LOCAL) as sockets:
        yield sockets


def agent(controller: ControllerSockets, keys: Path, node: str, *, speaks_as: str = "") -> AgentSockets:
    return connect_agent(
        load_agent_keys(keys, node),
        speaks_as or node,
        controller.publish_endpoint,
        controller.report_endpoint,
    )


def received(sockets: AgentSockets) -> list[bytes] | None:
    return sockets.plans.recv_multipart(zmq.NOBLOCK) if sockets.plans.poll(0) else None


def test_an_agent_hears_its_own_topic_only(controller: ControllerSockets, keys: Path) -> None:
    with agent(controller, keys, "node1") as one, agent(controller, keys, "node10") as ten:
        seq = 0

        def both_hear() -> bool | None:
            nonlocal seq
            seq += 1
            for node in ("node1", "node10"):
                controller.publish.send_multipart(encode_down(beat(node, seq)))
            heard_one, heard_ten = received(one), received(ten)
            for frames, node in ((heard_one, "node1"), (heard_ten, "node10")):
                if frames is not None:
                    assert decode_down(frames, node).node == node
            heard.update({"node1"} if heard_one else set(), {"node10"} if heard_ten else set())
            return len(heard) == 2 or None

        heard: set[str] = set()
        assert poll(both_hear)


def test_a_report_arrives_under_the_name_of_its_key(controller: ControllerSockets, keys: Path) -> None:
    with agent(controller, keys, "node1") as one:
        one.reports.send(encode(wire.Ping(node="node1", agent_ns=5)))
        got = poll(controller.receive)
        assert decode_up(got.body, got.node) == wire.Ping(node="node1", agent_ns=5)


def test_an_agent_cannot_speak_for_another_node(controller: ControllerSockets, keys: Path) -> None:
    with agent(controller, keys, "node1", speaks_as="node10") as liar:
        liar.reports.send(encode(wire.Ping(node="node10", agent_ns=5)))
        got = poll(controller.receive)
        with pytest.raises(WrongNodeError, match="the key of node1 speaks for node node10"):
            decode_up(got.body, got.node)


def test_a_key_that_was_removed_says_nothing_any_more(controller: ControllerSockets, keys: Path) -> None:
    with agent(controller, keys, "node1") as one:
        one.reports.send(encode(wire.Ping(node="node1", agent_ns=5)))
        poll(controller.receive)
        (keys / "agents" / "node1.key").unlink()
        controller.reload_keys()
        one.reports.send(encode(wire.Ping(node="node1", agent_ns=6)))
        with pytest.raises(WrongNodeError, match="a key of node1 that was removed speaks"):
            poll(controller.receive)


def test_whatever_a_client_calls_itself_it_gets_its_own_answers(
    controller: ControllerSockets, keys: Path
) -> None:
    known = load_agent_keys(keys, "node10")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with agent(controller, keys, "node1") as one:
        one.reports.send(encode(wire.Ping(node="node1", agent_ns=5)))
        got = poll(controller.receive)
        liar = client(context, zmq.DEALER, known.own, known.controller_public, got.connection)
        liar.connect(controller.report_endpoint)
        liar.send(encode(wire.Ping(node="node10", agent_ns=6)))
        assert not liar.poll(300)
        assert controller.receive() is None, "a peer with a taken name is not heard"
        assert controller.reply(got.connection, wire.AccessRefused(node="node1", reason="for one alone"))
        assert one.reports.poll(int(DEADLINE_S * 1000))
        assert not liar.poll(0)
    context.destroy(linger=0)


def test_the_shared_key_speaks_for_any_node(tmp_path: Path) -> None:
    make_keys(tmp_path, [SHARED_AGENT])
    with (
        ControllerSockets(load_controller_keys(tmp_path), LOCAL, LOCAL) as controller,
        agent(controller, tmp_path, "anynode") as one,
    ):
        one.reports.send(encode(wire.Ping(node="anynode", agent_ns=5)))
        got = poll(controller.receive)
        assert decode_up(got.body, got.node).node == "anynode"
        assert controller.has_shared_key


def test_a_stranger_hears_and_says_nothing(controller: ControllerSockets, keys: Path, tmp_path: Path) -> None:
    make_keys(tmp_path / "strange", ["node1"])
    (tmp_path / "strange" / "controller.key").write_bytes((keys / "controller.key").read_bytes())
    with (
        agent(controller, tmp_path / "strange", "node1") as outsider,
        agent(controller, keys, "node1") as friend,
    ):
        friend.reports.send(encode(wire.Ping(node="node1", agent_ns=7)))
        with pytest.raises(zmq.Again):  # IMMEDIATE: no handshake, no queue
            outsider.reports.send(encode(wire.Ping(node="node1", agent_ns=666)), zmq.NOBLOCK)
        seq = 0

        def friend_hears() -> list[bytes] | None:
            nonlocal seq
            seq += 1
            controller.publish.send_multipart(encode_down(beat("node1", seq)))
            return received(friend)

        poll(friend_hears)
        assert received(outsider) is None
        got = poll(controller.receive)
        assert decode_up(got.body, got.node) == wire.Ping(node="node1", agent_ns=7)
        assert controller.receive() is None


@pytest.mark.slow
def test_random_frames_at_a_live_socket_are_refused_and_do_no_harm(
    controller: ControllerSockets, keys: Path
) -> None:
    dice = random.Random(1)
    with agent(controller, keys, "node1") as one:
        refused = 0
        for _ in range(500):
            frames = [dice.randbytes(dice.randrange(64)) for _ in range(dice.randrange(1, 4))]
            one.reports.send_multipart(frames)

            def outcome() -> bool | None:
                try:
                    taken = controller.receive()
                    if taken is None:
                        return None
                    decode_up(taken.body, taken.node)
                except WireError:
                    return True
                return False

            refused += poll(outcome)
        assert refused == 500
        one.reports.send(encode(wire.Ping(node="node1", agent_ns=5)))
        assert poll(controller.receive).node == "node1"


def test_a_second_controller_cannot_bind(controller: ControllerSockets, keys: Path) -> None:
    with pytest.raises(HostError, match="is another gangd running"):
        ControllerSockets(load_controller_keys(keys), controller.publish_endpoint, LOCAL)


def test_secret_keys_are_for_their_owner_alone(keys: Path) -> None:
    secrets = list(keys.rglob("*.key_secret"))
    assert len(secrets) == 3
    for path in secrets:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (keys / "controller.key_secret").chmod(0o640)
    with pytest.raises(UsageError, match="can be read by others"):
        load_controller_keys(keys)


def test_keys_that_exist_are_left_alone(keys: Path) -> None:
    before = (keys / "controller.key_secret").read_bytes()
    assert [path.stem for path in make_keys(keys, ["node1", "node2"])] == ["node2"]
    assert (keys / "controller.key_secret").read_bytes() == before


def test_missing_or_broken_keys_say_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gangd keys --dir"):
        load_controller_keys(tmp_path)
    (tmp_path / "controller.key_secret").write_text("nothing\n")
    with pytest.raises(InputError, match="no CURVE key file"):
        load_controller_keys(tmp_path)


def test_no_timer_of_the_library_s_can_end_the_process(controller: ControllerSockets, keys: Path) -> None:
    """A heartbeat of a peer that sent too much and left aborts libzmq 4.3.5 (``!_io_error``)."""
    own = load_agent_keys(keys, "node1")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    flood = client(context, zmq.DEALER, own.own, own.controller_public, None)
    flood.connect(controller.report_endpoint)
    with contextlib.suppress(zmq.Again):
        for _ in range(50 * REPORT_QUEUE):
            flood.send(b"x" * 1000, zmq.NOBLOCK)
    assert poll(lambda: controller.reports.poll(0) or None)
    flood.close(linger=0)
    context.term()
    assert poll(lambda: controller.reports.poll(0) or None)
    for socket in (controller.publish, controller.reports):
        assert socket.getsockopt(zmq.HEARTBEAT_IVL) == 0
        assert socket.getsockopt(zmq.TCP_KEEPALIVE) == 1
        assert socket.getsockopt(zmq.TCP_MAXRT) == UNREAD_MS, "who does not read on is given up"


MS = 1_000_000


@pytest.mark.parametrize(
    ("quantum_ms", "slices"), [(5000, 1), (250, 1), (125, 3), (100, 3), (50, 5), (20, 13)]
)
def test_short_slices_share_a_look(quantum_ms: int, slices: int) -> None:
    assert slices_a_look(quantum_ms * MS) == slices


@pytest.mark.parametrize("quantum_ms", [20, 50, 100, 250])
def test_looks_are_about_as_far_apart_as_they_should(quantum_ms: int) -> None:
    looks = [number for number in range(2000) if is_look(number, quantum_ms * MS)]
    gaps_ns = [(later - earlier) * quantum_ms * MS for earlier, later in pairwise(looks)]
    assert max(gaps_ns) <= LOOK_NS + 2 * quantum_ms * MS


@pytest.mark.parametrize(
    ("quantum_ms", "calm"),
    [*((ms, False) for ms in (20, 50, 100)), *((ms, True) for ms in (20, 50, 100, 250))],
)
@pytest.mark.parametrize("turns", range(2, 9))
def test_of_jobs_that_take_turns_each_is_looked_at_while_it_is_held(
    quantum_ms: int, turns: int, *, calm: bool
) -> None:
    slices = range(6 * 13 * 13 * 8 if calm else 13 * 13 * 8 + 13)
    looks = [number for number in slices if is_look(number, quantum_ms * MS, calm=calm)]
    assert {number % turns for number in looks} == set(range(turns))


def test_next_look_is_the_first_from_there_on() -> None:
    for number in range(200):
        look = next_look(number, 50 * MS)
        assert look >= number
        assert is_look(look, 50 * MS)
        assert not any(is_look(between, 50 * MS) for between in range(number, look))


@pytest.mark.parametrize(
    ("quantum_ms", "looks"), [(5000, 1), (1000, 1), (300, 3), (250, 3), (100, 3), (50, 3), (20, 3)]
)
def test_calm_node_leaves_out_looks(quantum_ms: int, looks: int) -> None:
    assert looks_a_calm_look(quantum_ms * MS) == looks


@pytest.mark.parametrize("quantum_ms", [20, 50, 100, 250, 1000])
def test_looks_of_a_calm_node_are_looks_and_never_far_apart(quantum_ms: int) -> None:
    quantum_ns = quantum_ms * MS
    calm = [number for number in range(2000) if is_look(number, quantum_ns, calm=True)]
    assert all(is_look(number, quantum_ns) for number in calm)
    gaps_ns = [(later - earlier) * quantum_ns for earlier, later in pairwise(calm)]
    assert max(gaps_ns) <= max(CALM_NS, quantum_ns) + 2 * quantum_ns


@pytest.mark.parametrize("lease_ms", [1_500, 2_000])
def test_under_a_short_lease_no_agent_is_silent(lease_ms: int) -> None:
    assert silence_ns(lease_ms * MS, 250 * MS) == 0


@pytest.mark.parametrize("quantum_ms", [20, 50, 250, 1000, 5000])
@pytest.mark.parametrize("lease_ms", [2_001, 5_000, 12_500, 60_000])
def test_lease_has_space_for_two_reports_of_a_silent_node(lease_ms: int, quantum_ms: int) -> None:
    lease_ns, quantum_ns = lease_ms * MS, quantum_ms * MS
    looks = [number for number in range(60_000 // quantum_ms * 4) if is_look(number, quantum_ns, calm=True)]
    reported = [
        later for earlier, later in pairwise(looks) if ends_silence(earlier, later, lease_ns, quantum_ns)
    ]
    gaps = [later - earlier for earlier, later in pairwise(reported)]
    look_ns = max(CALM_NS, quantum_ns) + 2 * quantum_ns
    assert max(gaps) * quantum_ns <= silence_ns(lease_ns, quantum_ns) + look_ns
    assert max(gaps) * quantum_ns < lease_ns or look_ns >= lease_ns
    assert max(gaps) <= MAX_SLICES


def ends_silence(earlier: int, later: int, lease_ns: int, quantum_ns: int) -> bool:
    return silence_of(earlier, lease_ns, quantum_ns) != silence_of(later, lease_ns, quantum_ns)


NODE = "node1"


@pytest.fixture
def reconnect_controller(tmp_path: Path) -> Iterator[ControllerSockets]:
    make_keys(tmp_path / "keys", [NODE])
    with ControllerSockets(load_controller_keys(tmp_path / "keys"), LOCAL, LOCAL) as sockets:
        yield sockets


@pytest.fixture
def proxy(reconnect_controller: ControllerSockets) -> Iterator[Proxy]:
    thread = ProxyThread()
    ports = [
        int(text.rpartition(":")[2])
        for text in (reconnect_controller.publish_endpoint, reconnect_controller.report_endpoint)
    ]
    made = Proxy(thread.loop, (ports[0], ports[1]), random.Random(1))
    yield made
    made.close()
    thread.close()


def hears_plans(reconnect_controller: ControllerSockets, agent: AgentSockets) -> bool:
    reconnect_controller.publish.send_multipart([topic(NODE), b"plan"])
    return bool(agent.plans.poll(20)) and bool(agent.plans.recv_multipart())


def is_answered(reconnect_controller: ControllerSockets, agent: AgentSockets) -> bool:
    if not agent.reports.poll(0, zmq.POLLOUT):
        return False
    agent.reports.send(encode(wire.Ping(node=NODE, agent_ns=1)))
    until_s = time.monotonic() + 0.05
    while time.monotonic() < until_s:
        received = reconnect_controller.receive()
        if received is not None:
            reconnect_controller.reply(received.connection, wire.AccessRefused(node=NODE, reason="answer"))
            return bool(agent.reports.poll(50)) and bool(agent.reports.recv_multipart())
        time.sleep(0.002)
    return False


def test_sockets_that_a_damaged_frame_made_deaf_can_be_connected_anew(
    reconnect_controller: ControllerSockets, proxy: Proxy, tmp_path: Path
) -> None:
    keys = load_agent_keys(tmp_path / "keys", NODE)
    publish, _, reports = proxy.endpoints().partition(",")
    with connect_agent(keys, NODE, publish, reports) as agent:
        until(lambda: hears_plans(reconnect_controller, agent), what="plans come through the proxy")
        until(lambda: is_answered(reconnect_controller, agent), what="answers come through the proxy")
        proxy.weather = Weather(corrupt=1.0)
        until(lambda: not hears_plans(reconnect_controller, agent), what="damaged plans are refused")
        until(lambda: not is_answered(reconnect_controller, agent), what="damaged answers are refused")
        proxy.calm()
        agent.connect_plans()
        agent.connect_reports()
        until(lambda: hears_plans(reconnect_controller, agent), what="plans come again")
        until(lambda: is_answered(reconnect_controller, agent), what="answers come again")
