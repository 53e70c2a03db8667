from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from gangd.curve_keys import load_agent_keys, load_controller_keys, make_keys
from gangd.wire import AccessRefused, Ping, encode, topic
from gangd.wire.sockets import AgentSockets, ControllerSockets, connect_agent
from tests.chaos.proxy import Proxy, ProxyThread, Weather

LOCAL = "tcp://127.0.0.1:*"
NODE = "node1"


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerSockets]:
    make_keys(tmp_path / "keys", [NODE])
    with ControllerSockets(load_controller_keys(tmp_path / "keys"), LOCAL, LOCAL) as sockets:
        yield sockets


@pytest.fixture
def proxy(controller: ControllerSockets) -> Iterator[Proxy]:
    thread = ProxyThread()
    ports = [
        int(text.rpartition(":")[2]) for text in (controller.publish_endpoint, controller.report_endpoint)
    ]
    made = Proxy(thread.loop, (ports[0], ports[1]), random.Random(1))
    yield made
    made.close()
    thread.close()


def hears_plans(controller: ControllerSockets, agent: AgentSockets) -> bool:
    controller.publish.send_multipart([topic(NODE), b"plan"])
    return bool(agent.plans.poll(20)) and bool(agent.plans.recv_multipart())


def is_answered(controller: ControllerSockets, agent: AgentSockets) -> bool:
    if not agent.reports.poll(0, zmq.POLLOUT):
        return False
    agent.reports.send(encode(Ping(node=NODE, agent_ns=1)))
    until_s = time.monotonic() + 0.05
    while time.monotonic() < until_s:
        received = controller.receive()
        if received is not None:
            controller.reply(received.connection, AccessRefused(node=NODE, reason="answer"))
            return bool(agent.reports.poll(50)) and bool(agent.reports.recv_multipart())
        time.sleep(0.002)
    return False


def test_sockets_that_a_damaged_frame_made_deaf_can_be_connected_anew(
    controller: ControllerSockets, proxy: Proxy, tmp_path: Path
) -> None:
    keys = load_agent_keys(tmp_path / "keys", NODE)
    publish, _, reports = proxy.endpoints().partition(",")
    with connect_agent(keys, NODE, publish, reports) as agent:
        until(lambda: hears_plans(controller, agent), "plans come through the proxy")
        until(lambda: is_answered(controller, agent), "answers come through the proxy")
        proxy.weather = Weather(corrupt=1.0)
        until(lambda: not hears_plans(controller, agent), "damaged plans are refused")
        until(lambda: not is_answered(controller, agent), "damaged answers are refused")
        proxy.calm()
        agent.connect_plans()
        agent.connect_reports()
        until(lambda: hears_plans(controller, agent), "plans come again")
        until(lambda: is_answered(controller, agent), "answers come again")
