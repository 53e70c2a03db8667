from __future__ import annotations

import contextlib
import random
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import zmq

from foundation.errors import HostError, InputError, UsageError
from gangd.curve_keys import SHARED_AGENT, load_agent_keys, load_controller_keys, make_keys
from gangd.wire import (
    AccessRefused,
    Beat,
    ControllerIdentity,
    Ping,
    decode_down,
    decode_up,
    encode,
    encode_down,
)
from gangd.wire.messages import WireError, WrongNodeError
from gangd.wire.sockets import REPORT_QUEUE, UNREAD_MS, AgentSockets, ControllerSockets, connect_agent
from tests.chaos.forger import client

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


def beat(node: str, seq: int) -> Beat:
    return Beat(
        controller=ControllerIdentity(b"c" * 16, 1),
        node=node,
        epoch=1,
        seq=seq,
        sent_ns=1,
        lease_ns=2_000_000_000,
        horizon=2,
    )


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
        one.reports.send(encode(Ping(node="node1", agent_ns=5)))
        got = poll(controller.receive)
        assert decode_up(got.body, got.node) == Ping(node="node1", agent_ns=5)


def test_an_agent_cannot_speak_for_another_node(controller: ControllerSockets, keys: Path) -> None:
    with agent(controller, keys, "node1", speaks_as="node10") as liar:
        liar.reports.send(encode(Ping(node="node10", agent_ns=5)))
        got = poll(controller.receive)
        with pytest.raises(WrongNodeError, match="the key of node1 speaks for node node10"):
            decode_up(got.body, got.node)


def test_a_key_that_was_removed_says_nothing_any_more(controller: ControllerSockets, keys: Path) -> None:
    with agent(controller, keys, "node1") as one:
        one.reports.send(encode(Ping(node="node1", agent_ns=5)))
        poll(controller.receive)
        (keys / "agents" / "node1.key").unlink()
        controller.reload_keys()
        one.reports.send(encode(Ping(node="node1", agent_ns=6)))
        with pytest.raises(WrongNodeError, match="a key of node1 that was removed speaks"):
            poll(controller.receive)


def test_whatever_a_client_calls_itself_it_gets_its_own_answers(
    controller: ControllerSockets, keys: Path
) -> None:
    known = load_agent_keys(keys, "node10")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with agent(controller, keys, "node1") as one:
        one.reports.send(encode(Ping(node="node1", agent_ns=5)))
        got = poll(controller.receive)
        liar = client(context, zmq.DEALER, known.own, known.controller_public, got.connection)
        liar.connect(controller.report_endpoint)
        liar.send(encode(Ping(node="node10", agent_ns=6)))
        assert not liar.poll(300)
        assert controller.receive() is None, "a name that is taken makes nobody heard"
        assert controller.reply(got.connection, AccessRefused(node="node1", reason="for one alone"))
        assert one.reports.poll(int(DEADLINE_S * 1000))
        assert not liar.poll(0)
    context.destroy(linger=0)


def test_the_shared_key_speaks_for_any_node(tmp_path: Path) -> None:
    make_keys(tmp_path, [SHARED_AGENT])
    with (
        ControllerSockets(load_controller_keys(tmp_path), LOCAL, LOCAL) as controller,
        agent(controller, tmp_path, "whoever") as one,
    ):
        one.reports.send(encode(Ping(node="whoever", agent_ns=5)))
        got = poll(controller.receive)
        assert decode_up(got.body, got.node).node == "whoever"
        assert controller.has_shared_key


def test_a_stranger_hears_and_says_nothing(controller: ControllerSockets, keys: Path, tmp_path: Path) -> None:
    make_keys(tmp_path / "strange", ["node1"])
    (tmp_path / "strange" / "controller.key").write_bytes((keys / "controller.key").read_bytes())
    with (
        agent(controller, tmp_path / "strange", "node1") as stranger,
        agent(controller, keys, "node1") as friend,
    ):
        friend.reports.send(encode(Ping(node="node1", agent_ns=7)))
        with pytest.raises(zmq.Again):  # IMMEDIATE: no handshake, no queue
            stranger.reports.send(encode(Ping(node="node1", agent_ns=666)), zmq.NOBLOCK)
        seq = 0

        def friend_hears() -> list[bytes] | None:
            nonlocal seq
            seq += 1
            controller.publish.send_multipart(encode_down(beat("node1", seq)))
            return received(friend)

        poll(friend_hears)
        assert received(stranger) is None
        got = poll(controller.receive)
        assert decode_up(got.body, got.node) == Ping(node="node1", agent_ns=7)
        assert controller.receive() is None


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
        one.reports.send(encode(Ping(node="node1", agent_ns=5)))
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
