"""A node's key speaks for its own node: what it says of others, and in others' names, comes to nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from foundation.slurm import SubmitRequest
from gangd.curve_keys import load_agent_keys
from gangd.wire import AgentFault, FoundState, JobSample, Leak, Ping, Pong, Report, SliceReport, encode
from tests.chaos.forger import client
from tests.fixtures.fake_slurm import FakeSlurm
from tests.fixtures.gang_loop import ScriptedAgent, Stage


def two_jobs_on_each_node() -> FakeSlurm:
    """Jobs 1 and 3 share n1, jobs 2 and 4 share n2."""
    slurm = FakeSlurm(nodes=2, cores=1, multiplicity=2, run_time=lambda _: 1000.0, start_time=time.time())
    for name in ("one", "two", "three", "four"):
        slurm.submit(SubmitRequest(script="#!/bin/sh\n", name=name, nodes=1, time_limit_minutes=10))
    return slurm


def lie(agent: ScriptedAgent, **claims: Any) -> None:
    """Report as this agent, with claims that it would not make by itself."""
    agent.seq += 1
    controller = agent.timeline.controller
    agent.say(
        Report(
            node=agent.node,
            incarnation=agent.incarnation,
            follows=None if controller is None else controller.incarnation,
            seq=agent.seq,
            offset_ns=0,
            rtt_us=1,
            **claims,
        )
    )


def take_turns(stage: Stage, agent: ScriptedAgent, jobs: set[int]) -> None:
    """Wait until slices that are decided from now on hold each of these jobs, and never both."""
    first = agent.timeline.horizon

    def held() -> bool:
        last = agent.timeline.horizon
        seen = [agent.timeline.held(number) for number in range(first + 4, last)]
        return last > first + 20 and set().union(*seen) == jobs and not any(one == jobs for one in seen)

    stage.until(held)


@contextmanager
def socket_of(stage: Stage, key: str, identity: bytes) -> Iterator[zmq.Socket[bytes]]:
    """A connection with a node's key that calls itself what it likes."""
    known = load_agent_keys(stage.keys, key)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        socket = client(context, zmq.DEALER, known.own, known.controller_public, identity)
        socket.connect(stage.sockets.report_endpoint)
        yield socket
    finally:
        context.destroy(linger=0)


@pytest.mark.slow
def test_a_nodes_key_reports_nothing_of_jobs_that_are_elsewhere(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs_on_each_node())
    one, two = stage.agent("n1"), stage.agent("n2")

    def scene() -> None:
        for agent in (one, two):
            stage.welcome(agent)
        take_turns(stage, one, {1, 3})
        take_turns(stage, two, {2, 4})
        idle = JobSample(1, 0, 0, 50_000, 1)

        def lie_on() -> bool:
            """Lie once more; returns whether two dozen lies are known to have been dropped."""
            lie(
                two,
                dying=(1,),
                ended=(1, 3),
                found=(FoundState(3, "frozen", "thawed"),),
                slices=(SliceReport(two.timeline.horizon - 3, 1, time.monotonic_ns(), 0, 0, (3,), (idle,)),),
                leaks=(Leak(1, 1_000),),
                faults=(AgentFault("stuck", 1, "no", 3),),
            )
            status = stage.status()
            return status is not None and status.dropped.get("foreign_job", 0) >= 24

        stage.until(lie_on)  # a busy controller does not take every message of a node in
        exempt = one.timeline.exempt
        assert (exempt.never_freeze, exempt.opt_out, exempt.suspended) == ((), (), ())
        take_turns(stage, one, {1, 3})
        stage.until(lambda: "foreign job" in stage.alarms())
        assert "n2 tells of job" in stage.alarms()["foreign job"]

    with stage.play(scene):
        pass
    status = stage.status()
    assert status is not None
    assert status.dropped["foreign_job"] >= 24
    nodes = {node.node: node for node in status.nodes}
    assert (nodes["n2"].leaked_us, nodes["n2"].faults) == (0, {})


def test_what_a_node_says_of_its_own_jobs_counts(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs_on_each_node())
    one, two = stage.agent("n1"), stage.agent("n2")

    def scene() -> None:
        for agent in (one, two):
            stage.welcome(agent)
        take_turns(stage, one, {1, 3})
        lie(one, dying=(3,), leaks=(Leak(1, 1_000),), faults=(AgentFault("stuck", 1, "no", 1),))
        stage.until(lambda: 3 in one.timeline.exempt.opt_out)
        stage.until(lambda: (status := stage.status()) is not None and status.nodes[0].leaked_us == 1_000)

    with stage.play(scene):
        pass
    status = stage.status()
    assert status is not None
    assert status.nodes[0].faults == {"stuck": 1}
    assert "foreign_job" not in status.dropped


def test_the_answers_to_a_node_cannot_be_taken_over(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs_on_each_node())
    one = stage.agent("n1")

    def answers() -> set[int]:
        return {reply.agent_ns for reply in one.replies if isinstance(reply, Pong)}

    def scene() -> None:
        stage.welcome(one)
        with socket_of(stage, "n2", b"n1") as liar:
            for stamp in range(1, 41):  # each asked once: what is lost on the way stays so
                liar.send(encode(Ping(node="n1", agent_ns=1_000 + stamp)))
                one.say(Ping(node="n1", agent_ns=stamp))
                stage.until(lambda stamp=stamp: stamp in answers())  # type: ignore[misc]
            stage.until(lambda: (status := stage.status()) is not None and "wrong_node" in status.dropped)
            assert not liar.poll(0), "what is meant for n1 went to n2"

    with stage.play(scene):
        pass
    assert answers() == set(range(1, 41))


@pytest.mark.slow
def test_two_that_speak_with_the_key_of_one_node_are_reported(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs_on_each_node())
    one = stage.agent("n1")

    def scene() -> None:
        stage.welcome(one)
        with socket_of(stage, "n1", b"thief") as thief:

            def both_speak() -> bool:
                one.say(Ping(node="n1", agent_ns=1))
                thief.send(encode(Ping(node="n1", agent_ns=2)))
                return "key" in stage.alarms()

            stage.until(both_speak)
            assert "two connections speak with the key of n1" in stage.alarms()["key"]
            take_turns(stage, one, {1, 3})
            while thief.poll(0):
                assert b"\x02" in thief.recv(), "each has its own answers"

    with stage.play(scene):
        pass


def test_an_agent_that_connects_anew_is_no_second_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs_on_each_node())
    one = stage.agent("n1")

    def scene() -> None:
        stage.welcome(one)
        for _ in range(3):
            one.sockets.connect_reports()
            one.replies.clear()

            def has_come() -> bool:
                one.say(Ping(node="n1", agent_ns=1))
                return bool(one.replies)

            stage.until(has_come)
        take_turns(stage, one, {1, 3})
        assert "key" not in stage.alarms()

    with stage.play(scene):
        pass
