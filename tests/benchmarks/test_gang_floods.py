"""What floods cost the controller: ``pytest -m benchmark -s tests/benchmarks/test_gang_floods.py``.

The controller is a process over an in-memory Slurm. Each flood lasts ``OSUB_FLOOD_S`` (30) seconds, from one
process on the same host; what is judged is the controller's CPU time and memory, and that an agent on another
connection keeps its lease.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import zmq

from gangd.curve_keys import KeyPair, load_agent_keys, make_keys
from gangd.wire.messages import Hello, Ping, Report
from gangd.wire.wire_frames import encode
from tests.chaos.forger import client
from tests.fixtures.gang_loop import ScriptedAgent
from tests.fixtures.looks import until

pytestmark = pytest.mark.benchmark

FLOOD_S = float(os.environ.get("OSUB_FLOOD_S", "30"))
MOST_SHARE, MOST_GROWTH_MIB = 0.05, 20
TOPICS = 20_000
A_SECOND = 490  # what one key may send and be read all along

Flood = Callable[[Path, threading.Event], None]


def ends(folder: Path) -> tuple[str, str]:
    publish, _, reports = (folder / "address").read_text().partition(",")
    return publish, reports


def nothing(_: Path, over: threading.Event) -> None:
    over.wait()


def connections(count: int, said_bytes: int = 0) -> Flood:
    """Keep very many connections that say nothing, or rubbish."""

    def flood(folder: Path, over: threading.Event) -> None:
        port = ends(folder)[1].rpartition(":")[2]
        words = ["tests.fixtures.gang_flood", port, str(count), "1000", str(said_bytes)]
        with subprocess.Popen([sys.executable, "-m", *words]) as child:
            over.wait()
            child.kill()

    return flood


def subscriptions(count: int, sockets: int, *, keyed: bool) -> Flood:
    """Subscribe to very many topics over each of some connections, which come back when they are cut."""

    def flood(folder: Path, over: threading.Event) -> None:
        known = load_agent_keys(folder / "keys", "n2")
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        made = []
        try:
            for _ in range(sockets):
                own = known.own if keyed else KeyPair(*zmq.curve_keypair())
                one = client(context, zmq.XSUB, own, known.controller_public, None)
                one.setsockopt(zmq.SNDHWM, 0)
                one.connect(ends(folder)[0])
                made.append(one)
                for number in range(count):
                    one.send(b"\x01%020d" % number, zmq.NOBLOCK)
            over.wait()
        finally:
            context.destroy(linger=0)

    return flood


def messages(body: Callable[[int], bytes], a_second: int | None = None) -> Flood:
    """Send messages with a node's key, as fast as they go or so many a second."""

    def flood(folder: Path, over: threading.Event) -> None:
        known = load_agent_keys(folder / "keys", "n2")
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        one = client(context, zmq.DEALER, known.own, known.controller_public, None)
        one.connect(ends(folder)[1])
        sent, began_s = 0, time.monotonic()
        try:
            while not over.is_set():
                with suppress(zmq.Again):
                    while a_second is None or sent < a_second * (time.monotonic() - began_s):
                        one.send(body(sent), zmq.NOBLOCK)
                        sent += 1
                        if sent % 256 == 0 and over.is_set():
                            break
                time.sleep(0.002)
                while one.poll(0):
                    one.recv()
        finally:
            context.destroy(linger=0)

    return flood


def ping(number: int) -> bytes:
    return encode(Ping(node="n2", agent_ns=number))


def hello(_: int) -> bytes:
    return encode(Hello(node="n2", incarnation=b"x" * 16, boot_id="b", pid=1, agent_version="1", freezer="f"))


def report(number: int) -> bytes:
    return encode(Report(node="n2", incarnation=b"x" * 16, follows=None, seq=number, offset_ns=0, rtt_us=0))


FLOODS: dict[str, Flood] = {
    "none": nothing,
    "20,000 silent connections": connections(20_000),
    "20,000 connections that say rubbish": connections(20_000, 100),
    "60 silent connections": connections(60),
    "20,000 topics, one connection with a key": subscriptions(TOPICS, 1, keyed=True),
    "20,000 topics, 50 connections with a key": subscriptions(TOPICS, 50, keyed=True),
    "20,000 topics, 50 connections without": subscriptions(TOPICS, 50, keyed=False),
    "300 topics, 60 connections with a key": subscriptions(300, 60, keyed=True),
    "probes with a key": messages(ping),
    "rubbish with a key": messages(lambda _: b"\xff" * 20),
    "reports with a key": messages(report),
    "490 probes a second with a key": messages(ping, A_SECOND),
    "490 hellos a second with a key": messages(hello, A_SECOND),
}


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[psutil.Process]:
    make_keys(tmp_path / "keys", ["n1", "n2"])
    words = [sys.executable, "-m", "tests.fixtures.gang_controller", str(tmp_path), "2", "1000"]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(words, stderr=log) as child:
        try:
            until(lambda: (tmp_path / "state" / "status.json").exists(), 60, "it serves")
            yield psutil.Process(child.pid)
        finally:
            child.terminate()


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
def test_a_flood_costs_the_controller_little(
    tmp_path: Path, controller: psutil.Process, flood: Flood, request: pytest.FixtureRequest
) -> None:
    agent = ScriptedAgent("n1", tmp_path / "keys", *ends(tmp_path))

    def live() -> bool:
        agent.listen()
        agent.report()
        return not agent.timeline.lease_over(time.monotonic_ns())

    def joined() -> bool:
        agent.hello()
        time.sleep(0.05)
        return live()

    until(joined, 60, "the agent joins")
    over, leaseless, looks = threading.Event(), 0, 0
    thread = threading.Thread(target=flood, args=(tmp_path, over))
    before, began_s = controller.cpu_times(), time.monotonic()
    start_mib = most_mib = controller.memory_info().rss / (1 << 20)
    thread.start()
    try:
        while time.monotonic() < began_s + FLOOD_S:
            leaseless, looks = leaseless + (not live()), looks + 1
            most_mib = max(most_mib, controller.memory_info().rss / (1 << 20))
            time.sleep(0.05)
    finally:
        after, took_s = controller.cpu_times(), time.monotonic() - began_s
        over.set()
        thread.join()
        agent.sockets.close()
    share = (after.user + after.system - before.user - before.system) / took_s
    name = request.node.callspec.id
    print(
        f"\n{name}: {100 * share:.1f}% of a core, {start_mib:.0f} to {most_mib:.0f} MiB, "
        f"no lease in {leaseless} of {looks} looks"
    )
    assert share < MOST_SHARE
    assert most_mib - start_mib < MOST_GROWTH_MIB
    assert leaseless <= looks // 20
