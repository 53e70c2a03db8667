"""When the tasks of a job have begun to run, as an agent sees it."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from gangd.agent.decide import STEPD_NS
from gangd.agent.hold_controller import HoldController, Lease
from gangd.agent.steps import BATCH_NS, StepTable
from gangd.freezer.freezer_choice import RecordingFreezer
from gangd.freezer.holder import Step, StepKey
from gangd.freezer.procfs import is_launcher
from gangd.wire import ControllerIdentity
from tests.fixtures.gang_host import until
from tests.fixtures.gang_simulated import MS, SECOND, SimulatedAgent

BATCH, FIRST, EXTERN = StepKey(1, "batch"), StepKey(1, "0"), StepKey(1, "extern")
TASK, STEPD, LAUNCHER = 100, 999, 77


@pytest.fixture
def freezer() -> RecordingFreezer:
    return RecordingFreezer()


@pytest.fixture
def table(freezer: RecordingFreezer) -> StepTable:
    gate = HoldController(freezer, Lease(None))
    return StepTable(gate, is_stepd=lambda pid: pid == STEPD, is_launcher=lambda pid: pid == LAUNCHER)


def put(freezer: RecordingFreezer, key: StepKey, *pids: int) -> None:
    freezer.steps.add(key)
    freezer.members[key] = pids


def test_step_that_was_launched_runs_once_its_tasks_are_no_slurmstepd(
    table: StepTable, freezer: RecordingFreezer
) -> None:
    put(freezer, FIRST)
    assert not table.refresh(0).launched
    put(freezer, FIRST, STEPD, TASK)
    assert not table.refresh(1).launched
    put(freezer, FIRST, TASK, TASK + 1)
    assert table.refresh(2).launched == {1}
    assert not table.refresh(3).launched  # it is told once


def test_job_launches_until_the_grace_after_its_tasks_have_begun(
    table: StepTable, freezer: RecordingFreezer
) -> None:
    put(freezer, FIRST)
    table.refresh(0)
    assert table.launching_at(2 * SECOND, 200 * MS) == {1}
    assert not table.launching_at(STEPD_NS, 200 * MS)  # it is not waited for
    put(freezer, FIRST, STEPD)
    table.refresh(2 * SECOND)
    assert table.launching_at(2 * SECOND, 200 * MS) == {1}
    put(freezer, FIRST, TASK)
    table.refresh(2 * SECOND)
    assert table.launching_at(2 * SECOND + 199 * MS, 200 * MS) == {1}
    assert not table.launching_at(2 * SECOND + 200 * MS, 200 * MS)


def test_job_yields_for_as_long_as_a_task_is_slurmstepd(table: StepTable, freezer: RecordingFreezer) -> None:
    put(freezer, FIRST, STEPD)
    table.refresh(0)
    assert table.launching_at(10 * STEPD_NS, 200 * MS) == {1}


def test_step_without_a_place_for_tasks_launches_and_is_not_held(
    table: StepTable, freezer: RecordingFreezer, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(freezer, FIRST)
    monkeypatch.setattr(freezer, "look", lambda: (Step(FIRST, None, is_empty=True),))
    table.refresh(0)
    assert table.launching_at(SECOND, 200 * MS) == {1}
    assert table.views() == ()
    monkeypatch.undo()
    put(freezer, FIRST, TASK)
    table.refresh(SECOND)
    assert [view.key for view in table.views()] == [FIRST]


def test_batch_script_runs_after_a_moment_unless_it_launches(
    table: StepTable, freezer: RecordingFreezer
) -> None:
    put(freezer, BATCH, TASK)
    assert not table.refresh(0).launched
    put(freezer, BATCH, TASK, LAUNCHER)
    assert not table.refresh(BATCH_NS + 1).launched
    put(freezer, BATCH, TASK)
    assert table.refresh(BATCH_NS + 2).launched == {1}


def test_what_slurm_adopts_is_no_launch(table: StepTable, freezer: RecordingFreezer) -> None:
    put(freezer, EXTERN, TASK)
    for now_ns in (0, BATCH_NS, 10 * BATCH_NS):
        assert not table.refresh(now_ns).launched


def test_job_whose_steps_are_gone_is_launched_anew(table: StepTable, freezer: RecordingFreezer) -> None:
    put(freezer, FIRST, TASK)
    assert table.refresh(0).launched
    freezer.steps.clear()
    table.refresh(1)
    put(freezer, FIRST)
    assert not table.refresh(2).launched
    put(freezer, FIRST, TASK)
    assert table.refresh(3).launched == {1}


def test_launcher_is_known_by_its_name(tmp_path: Path, children: list[subprocess.Popen[bytes]]) -> None:
    for name in ("srun", "other"):
        program = tmp_path / name
        shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
        children.append(subprocess.Popen([program, "100"]))
    until(lambda: is_launcher(children[0].pid), what="the launcher has begun")
    assert not is_launcher(children[1].pid)
    assert not is_launcher(2**22 + 5)


@pytest.fixture
def agent() -> SimulatedAgent:
    agent = SimulatedAgent()
    agent.now_ns = (time.monotonic_ns() // SECOND + 2) * SECOND
    agent.zero_ns = agent.controller_ns()
    agent.node.is_notified = True
    agent.join()
    agent.rotate()
    agent.run(SECOND)
    agent.sent.clear()
    return agent


def launched(agent: SimulatedAgent) -> list[tuple[int, ...]]:
    return [report.launched for report in agent.reports if report.launched]


def test_launch_is_followed_closely_and_reported_at_once(agent: SimulatedAgent) -> None:
    agent.freezer.steps.add(FIRST)
    agent.node.look(agent.now_ns)  # its folder was made
    agent.run(300 * MS)
    assert launched(agent) == []
    agent.freezer.members[FIRST] = (TASK,)
    agent.run(60 * MS)
    assert launched(agent) == [(1,)]
    agent.run(3 * SECOND)
    assert launched(agent) == [(1,)]


def test_launch_that_takes_for_ever_is_not_looked_at_for_ever(agent: SimulatedAgent) -> None:
    agent.freezer.steps.add(FIRST)
    agent.node.look(agent.now_ns)
    agent.run(3 * SECOND)
    looks: list[int] = []
    look = agent.freezer.look
    agent.freezer.look = lambda: (looks.append(1), look())[1]  # type: ignore[method-assign, func-returns-value]
    agent.run(3 * SECOND)
    assert len(looks) <= 4


def test_later_controller_is_informed_what_runs(agent: SimulatedAgent) -> None:
    agent.freezer.steps.add(FIRST)
    agent.freezer.members[FIRST] = (TASK,)
    agent.node.look(agent.now_ns)
    agent.run(SECOND)
    agent.sent.clear()
    agent.controller = ControllerIdentity(b"d" * 16, 2)
    agent.rotate()
    agent.run(2 * SECOND)
    assert launched(agent) == [(1,)]
