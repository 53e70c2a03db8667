"""Which messages the controller trusts: keys, fuzzed frames, shifted clocks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq

from foundation.errors import InputError
from foundation.slurm import SubmitRequest
from gangd.controller.controller_status import ControllerStatus, read_status
from gangd.curve_keys import load_agent_keys, make_keys
from gangd.wire import messages as wire
from gangd.wire.wire_frames import encode
from tests.chaos.forger import client
from tests.fixtures.fake_slurm import FakeSlurm
from tests.fixtures.gang_company import Company
from tests.fixtures.gang_loop import ScriptedAgent, Stage, no_jobs, played
from tests.fixtures.tier import choose


def two_jobs_on_each_node() -> FakeSlurm:
    """Jobs 1 and 3 share n1, jobs 2 and 4 share n2."""
    slurm = no_jobs()
    for name in ("one", "two", "three", "four"):
        slurm.submit(SubmitRequest(script="#!/bin/sh\n", name=name, nodes=1, time_limit_minutes=10))
    return slurm


def lie(agent: ScriptedAgent, **claims: Any) -> None:
    """Report as this agent, with claims that it would not make by itself."""
    agent.seq += 1
    controller = agent.timeline.controller
    agent.say(
        wire.Report(
            node=agent.node, incarnation=agent.incarnation,
            follows=None if controller is None else controller.incarnation, seq=agent.seq,
            offset_ns=0, rtt_us=1, **claims,
        )
    )  # fmt: skip


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
@played(two_jobs_on_each_node)
def test_a_nodes_key_reports_nothing_of_jobs_that_are_elsewhere(
    stage: Stage, one: ScriptedAgent, two: ScriptedAgent
) -> None:
    stage.welcome(one, two)
    take_turns(stage, one, {1, 3})
    take_turns(stage, two, {2, 4})
    idle = wire.JobSample(1, 0, 0, 50_000, 1)

    def lie_on() -> bool:
        """Lie once more; returns whether two dozen lies are known to have been dropped."""
        last = wire.SliceReport(two.timeline.horizon - 3, 1, time.monotonic_ns(), 0, 0, (3,), (idle,))
        lie(
            two, dying=(1,), ended=(1, 3), found=(wire.FoundState(3, "frozen", "thawed"),), slices=(last,),
            leaks=(wire.Leak(1, 1_000),), faults=(wire.AgentFault("stuck", 1, "no", 3),),
        )  # fmt: skip
        status = stage.status()
        return status is not None and status.dropped.get("foreign_job", 0) >= 24

    stage.until(lie_on)  # a busy controller does not take every message of a node in
    exempt = one.timeline.exempt
    assert (exempt.never_freeze, exempt.opt_out, exempt.suspended) == ((), (), ())
    take_turns(stage, one, {1, 3})
    stage.until(lambda: "foreign job" in stage.alarms())
    assert "n2 tells of job" in stage.alarms()["foreign job"]
    nodes = {node.node: node for node in stage.known().nodes}
    assert (nodes["n2"].leaked_us, nodes["n2"].faults) == (0, {})


@pytest.mark.slow
@played(two_jobs_on_each_node)
def test_what_a_node_says_of_its_own_jobs_counts(
    stage: Stage, one: ScriptedAgent, two: ScriptedAgent
) -> None:
    stage.welcome(one, two)
    take_turns(stage, one, {1, 3})
    lie(one, dying=(3,), leaks=(wire.Leak(1, 1_000),), faults=(wire.AgentFault("stuck", 1, "no", 1),))
    stage.until(lambda: 3 in one.timeline.exempt.opt_out)
    stage.until_status(lambda status: status.nodes[0].leaked_us == 1_000)
    assert stage.known().nodes[0].faults == {"stuck": 1}
    assert "foreign_job" not in stage.known().dropped


@played(two_jobs_on_each_node, ["n1"])
def test_the_answers_to_a_node_cannot_be_taken_over(stage: Stage, one: ScriptedAgent) -> None:
    def answers() -> set[int]:
        return {reply.agent_ns for reply in one.replies if isinstance(reply, wire.Pong)}

    stage.welcome(one)
    with socket_of(stage, "n2", b"n1") as liar:
        for stamp in range(1, 41):  # each asked once: what is lost on the way stays so
            liar.send(encode(wire.Ping(node="n1", agent_ns=1_000 + stamp)))
            one.say(wire.Ping(node="n1", agent_ns=stamp))
            stage.until(lambda stamp=stamp: stamp in answers())  # type: ignore[misc]
        stage.until_status(lambda status: "wrong_node" in status.dropped)
        assert not liar.poll(0), "what is meant for n1 went to n2"
    assert answers() == set(range(1, 41))


@pytest.mark.slow
@played(two_jobs_on_each_node, ["n1"])
def test_two_that_speak_with_the_key_of_one_node_are_reported(stage: Stage, one: ScriptedAgent) -> None:
    stage.welcome(one)
    with socket_of(stage, "n1", b"thief") as thief:

        def both_speak() -> bool:
            one.say(wire.Ping(node="n1", agent_ns=1))
            thief.send(encode(wire.Ping(node="n1", agent_ns=2)))
            return "key" in stage.alarms()

        stage.until(both_speak)
        assert "two connections speak with the key of n1" in stage.alarms()["key"]
        take_turns(stage, one, {1, 3})
        while thief.poll(0):
            assert b"\x02" in thief.recv(), "each has its own answers"


@played(two_jobs_on_each_node, ["n1"])
def test_an_agent_that_connects_anew_is_no_second_one(stage: Stage, one: ScriptedAgent) -> None:
    stage.welcome(one)
    for _ in range(3):
        one.sockets.connect_reports()
        one.replies.clear()

        def has_come() -> bool:
            one.say(wire.Ping(node="n1", agent_ns=1))
            return bool(one.replies)

        stage.until(has_come)
    take_turns(stage, one, {1, 3})
    assert "key" not in stage.alarms()


NODES = 12  # two jobs on n1 and n2, two on n3 and n4, ...
HONEST = ("n1", "n2")
LIARS = tuple(f"n{number}" for number in range(3, 11))
DEADLINE_S = 60.0
FEW = choose(500, 4_000, 4_000)
MILLION = 1_000_000
GROWTH_BYTES = 64 << 20
ENVIRONMENT = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@dataclass
class Scene:
    """A controller as a program, and two honest agents."""

    folder: Path
    controller: subprocess.Popen[bytes]
    publish: str
    reports: str
    agents: list[ScriptedAgent]
    looks: int = 0
    leaseless: int = 0

    def look(self) -> None:
        """Let the honest agents live for a moment."""
        for agent in self.agents:
            agent.listen()
            agent.report()
            self.looks += 1
            self.leaseless += agent.timeline.lease_over(time.monotonic_ns())
        time.sleep(0.02)

    def until(self, condition: object, what: str) -> None:
        """Let the honest agents live until something is so."""
        deadline = time.monotonic() + DEADLINE_S
        while not (callable(condition) and condition()):
            assert time.monotonic() < deadline, what
            self.look()

    def status(self) -> ControllerStatus | None:
        try:
            return read_status(self.folder / "state")
        except InputError:
            return None

    def memory_bytes(self) -> int:
        return int(psutil.Process(self.controller.pid).memory_info().rss)

    def take_turns(self) -> None:
        """See that the jobs of the honest nodes are held in turns, from now on."""
        for agent in self.agents:
            first = agent.timeline.horizon

            def turns(agent: ScriptedAgent = agent, first: int = first) -> bool:
                held = [agent.timeline.held(number) for number in range(first + 2, agent.timeline.horizon)]
                return set().union(*held) == {1, NODES // 2 + 1}

            self.until(turns, f"the jobs of {agent.node} take turns")
            exempt = agent.timeline.exempt
            assert (exempt.never_freeze, exempt.opt_out, exempt.suspended) == ((), (), ())

    def fuzz(self, *words: str) -> dict[str, float]:
        """Run a fuzzer to its end while honest agents run; returns its output."""
        program = [sys.executable, "-m", "tests.fixtures.gang_fuzz", *words]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as child:
            try:
                while child.poll() is None:
                    self.look()
            finally:
                child.kill()
            out, _ = child.communicate()
        document: dict[str, float] = json.loads(out)
        return document


@contextmanager
def live_controller(folder: Path) -> Iterator[Scene]:
    make_keys(folder / "keys", [f"n{number}" for number in range(1, NODES + 1)])
    program = [sys.executable, "-m", "tests.fixtures.gang_controller", str(folder), str(NODES), "100"]
    with (folder / "log").open("wb") as log:
        controller = subprocess.Popen(program, stderr=log, env=ENVIRONMENT)
    scene = None
    try:
        address, deadline = folder / "address", time.monotonic() + DEADLINE_S
        while not (address.exists() and "," in address.read_text()):
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        publish, _, reports = address.read_text().partition(",")
        agents = [ScriptedAgent(node, folder / "keys", publish, reports) for node in HONEST]
        scene = Scene(folder, controller, publish, reports, agents)

        def welcomed() -> bool:
            for agent in agents:
                if not any(isinstance(reply, wire.Welcome) for reply in agent.replies):
                    agent.hello()
            return all(any(isinstance(reply, wire.Welcome) for reply in agent.replies) for agent in agents)

        scene.until(welcomed, "the honest agents are welcomed")
        scene.take_turns()
        scene.looks = scene.leaseless = 0
        yield scene
    finally:
        if scene is not None:
            for agent in scene.agents:
                agent.sockets.close()
        controller.terminate()
        controller.wait(20)


def check(scene: Scene, incarnation: str, before_bytes: int) -> ControllerStatus:
    """What must hold after any number of frames."""
    assert scene.controller.poll() is None, (scene.folder / "log").read_text()[-2_000:]
    scene.take_turns()
    status = scene.status()
    assert status is not None
    assert status.controller == incarnation
    assert [alarm.text for alarm in status.alarms if alarm.kind == "thread"] == []
    assert scene.memory_bytes() - before_bytes < GROWTH_BYTES
    assert scene.leaseless <= scene.looks // 10, "honest agents kept their leases"
    return status


def begin(scene: Scene) -> tuple[str, int]:
    """Fuzz a little, so that what is made once is made; return who the controller is and what it takes."""
    scene.fuzz("keyed", str(scene.folder / "keys"), scene.reports, "200", "0", *LIARS)
    scene.until(lambda: scene.status() is not None, "a status is written")
    status = scene.status()
    assert status is not None
    return status.controller, scene.memory_bytes()


def fuzz_with_keys(scene: Scene, count: int) -> None:
    incarnation, before_bytes = begin(scene)
    counts = scene.fuzz("keyed", str(scene.folder / "keys"), scene.reports, str(count), "1", *LIARS)
    scene.until(lambda: dropped(scene) >= count // 4, "frames are refused and counted")
    status = check(scene, incarnation, before_bytes)
    assert {"malformed", "foreign_job"} <= status.dropped.keys()
    grown_mib = (scene.memory_bytes() - before_bytes) / (1 << 20)
    print(f"\n{counts}; refused: {status.dropped}; {grown_mib:.1f} MiB; {scene.leaseless} of {scene.looks}")


def fuzz_without_key(scene: Scene, count: int) -> None:
    incarnation, before_bytes = begin(scene)
    seen: dict[str, float] = {}
    for endpoint, share in ((scene.publish, count // 2), (scene.reports, count - count // 2)):
        seen |= scene.fuzz("bare", endpoint.rpartition(":")[2], str(share), "2")
    check(scene, incarnation, before_bytes)
    grown_mib = (scene.memory_bytes() - before_bytes) / (1 << 20)
    print(f"\n{seen} at each port; {grown_mib:.1f} MiB more")
    print(f"without a lease in {scene.leaseless} of {scene.looks} looks")


def dropped(scene: Scene) -> int:
    status = scene.status()
    return 0 if status is None else sum(status.dropped.values())


@pytest.mark.slow
def test_frames_with_the_keys_of_nodes_and_without_any_do_no_harm(tmp_path: Path) -> None:
    with live_controller(tmp_path) as scene:
        fuzz_with_keys(scene, FEW)
        fuzz_without_key(scene, FEW)


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("fuzz", [fuzz_with_keys, fuzz_without_key])
def test_a_million_frames_do_no_harm(tmp_path: Path, fuzz: Callable[[Scene, int], None]) -> None:
    with live_controller(tmp_path) as scene:
        fuzz(scene, MILLION)


SECOND_NS = 1_000_000_000
SHIFTS_S = (10_000_000, (1 << 31) - 1_000_000, 0, 86_400)
"""CLOCK_MONOTONIC of one controller after the other; beyond 2^31 s pyzmq cannot poll."""


AGENTS_SHIFT_S = 1 << 31


@pytest.mark.long
def test_controllers_whose_clocks_are_decades_apart_follow_each_other(tmp_path: Path) -> None:
    shifted = ["unshare", "--time", "--monotonic"]
    if subprocess.run([*shifted, "1", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can make a time namespace")
    company, followed = Company(tmp_path, nodes=2), None
    try:
        company.board(prefix=[*shifted, str(AGENTS_SHIFT_S)])
        for shift_s in SHIFTS_S:
            child = company.lead(
                prefix=["unshare", "--time", "--kill-child", "--fork", "--monotonic", str(shift_s)]
            )
            followed = company.all_hold(but=followed)
            child.send_signal(signal.SIGKILL)
            child.wait(20)
        seen = company.seen()
    finally:
        company.close()
    assert max(one.beyond_ns for one in seen) < SECOND_NS, "nothing is held beyond the lease"


@pytest.mark.slow
@played()
def test_a_wall_clock_that_is_set_by_an_hour_ends_no_lease_and_no_turn(
    stage: Stage, one: ScriptedAgent, two: ScriptedAgent
) -> None:
    stage.welcome(one, two)
    stage.until(lambda: bool(one.timeline.jobs(one.timeline.horizon)))
    for step_s in (3_600, -3_600, 0):
        stage.loop._wall = lambda step_s=step_s: time.time_ns() + step_s * SECOND_NS  # type: ignore[misc]
        first = one.timeline.horizon

        def passed(first: int = first) -> bool:
            assert not one.timeline.lease_over(time.monotonic_ns())
            return one.timeline.horizon > first + 12

        stage.until(passed)
        last = one.timeline.horizon
        held = [one.timeline.held(number) for number in range(last - 8, last)]
        assert set().union(*held) == {1, 2}
        assert not any(jobs == {1, 2} for jobs in held)
