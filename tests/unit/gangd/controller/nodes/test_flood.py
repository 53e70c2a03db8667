"""One key that says more than can be read: others are heard and told, and little of it is kept."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import msgspec
import pytest
import zmq

from gangd.controller.intake import MOST_OF_ONE
from gangd.wire import Report, SliceReport, encode
from tests.fixtures.gang_loop import Stage, two_jobs

pytestmark = pytest.mark.slow

MIB = 1 << 20
MOST_MIB = 100
"""More than interpreter and libraries grow by themselves, and a small part of what is sent."""


def resident_mib() -> float:
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def test_jobs_take_turns_and_memory_is_bounded_while_one_key_floods(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs())
    one, two, mad = stage.agent("n1"), stage.agent("n2"), stage.agent("n77")
    stage.agents.remove(mad)
    over = threading.Event()
    sent_bytes = most_waiting = 0
    grown_mib: list[float] = []
    held: list[tuple[frozenset[int], frozenset[int]]] = []

    def flood() -> None:
        nonlocal sent_bytes
        slices = tuple([SliceReport(number, 1, 0, 0, 0, tuple(range(1, 400)), ()) for number in range(8)])
        report = Report(
            node="n77",
            incarnation=mad.incarnation,
            follows=None,
            seq=1,
            offset_ns=0,
            rtt_us=0,
            slices=slices,
        )
        while not over.is_set():
            body = encode(report)
            try:
                mad.sockets.reports.send(body, zmq.NOBLOCK)
            except zmq.Again:
                time.sleep(0.001)
                continue
            report = msgspec.structs.replace(report, seq=report.seq + 1)
            sent_bytes += len(body)

    def scene() -> None:
        nonlocal most_waiting
        for agent in (one, two):
            stage.welcome(agent)
        stage.until(lambda: bool(one.timeline.jobs(one.timeline.horizon)))
        before_mib = resident_mib()
        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            first = one.timeline.horizon

            def goes_on() -> bool:
                nonlocal most_waiting
                most_waiting = max(most_waiting, len(stage.loop._intake._waiting))
                grown_mib.append(resident_mib() - before_mib)
                return one.timeline.horizon > first + 60 and sent_bytes > 20 * MIB

            stage.until(goes_on)
            number = min(one.timeline.horizon, two.timeline.horizon)
            held.extend(
                [(one.timeline.held(past), two.timeline.held(past)) for past in range(number - 8, number)]
            )
        finally:
            over.set()
            flooding.join()

    with stage.play(scene):
        mad.sockets.close()
    assert stage.failure is None, stage.failure
    assert most_waiting <= 3 * MOST_OF_ONE
    assert max(grown_mib) < MOST_MIB
    assert all(here == there for here, there in held)
    assert {job for here, _ in held for job in here} == {1, 2}, "they take turns"
    status = stage.status()
    assert status is not None
    assert {node.node for node in status.nodes if node.agent == "joined"} == {"n1", "n2"}
