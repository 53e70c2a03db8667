"""A live controller under frames that no agent sends, with the keys of nodes and without any."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from foundation.errors import InputError
from gangd.controller.controller_status import ControllerStatus, read_status
from gangd.curve_keys import make_keys
from gangd.wire import Welcome
from tests.fixtures.gang_loop import ScriptedAgent
from tests.fixtures.tier import choose

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
        """Run a fuzzer to its end beside the honest agents; returns what it tells."""
        program = [sys.executable, "-m", "tests.fixtures.gang_fuzz", *words]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as child:
            try:
                while child.poll() is None:
                    self.look()
            finally:
                child.kill()
            out, _ = child.communicate()
        told: dict[str, float] = json.loads(out)
        return told


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
                if not any(isinstance(reply, Welcome) for reply in agent.replies):
                    agent.hello()
            return all(any(isinstance(reply, Welcome) for reply in agent.replies) for agent in agents)

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
    told = scene.fuzz("keyed", str(scene.folder / "keys"), scene.reports, str(count), "1", *LIARS)
    scene.until(lambda: dropped(scene) >= count // 4, "frames are refused and counted")
    status = check(scene, incarnation, before_bytes)
    assert {"malformed", "foreign_job"} <= status.dropped.keys()
    grown_mib = (scene.memory_bytes() - before_bytes) / (1 << 20)
    print(
        f"\n{told}; refused: {status.dropped}; {grown_mib:.1f} MiB more; {scene.leaseless} of {scene.looks}"
    )


def fuzz_without_key(scene: Scene, count: int) -> None:
    incarnation, before_bytes = begin(scene)
    told: dict[str, float] = {}
    for endpoint, share in ((scene.publish, count // 2), (scene.reports, count - count // 2)):
        told |= scene.fuzz("bare", endpoint.rpartition(":")[2], str(share), "2")
    check(scene, incarnation, before_bytes)
    grown_mib = (scene.memory_bytes() - before_bytes) / (1 << 20)
    print(f"\n{told} at each port; {grown_mib:.1f} MiB more")
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
def test_a_million_frames_with_the_keys_of_nodes_do_no_harm(tmp_path: Path) -> None:
    with live_controller(tmp_path) as scene:
        fuzz_with_keys(scene, MILLION)


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_a_million_frames_without_any_key_do_no_harm(tmp_path: Path) -> None:
    with live_controller(tmp_path) as scene:
        fuzz_without_key(scene, MILLION)
