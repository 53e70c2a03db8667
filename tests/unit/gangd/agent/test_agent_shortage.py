"""Descriptors, memory, watches or processes are used up: a fault, and no job ends or idles by it."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import HostError
from gangd.agent import linux_host
from gangd.agent.agenda import Agenda, AgendaItem
from gangd.agent.hold_controller import HoldController, Lease
from gangd.agent.linux_host import FolderWatch
from gangd.agent.process_scan import ProcessScan
from gangd.agent.switch_thread import SwitchThread
from gangd.freezer import cgroup_freezer
from gangd.freezer.cgroup_freezer import CgroupFreezer, open_cgroup
from gangd.freezer.freezer_choice import RecordingFreezer
from gangd.freezer.holder import StepKey
from gangd.freezer.procfs import is_slurmstepd
from gangd.freezer.tree import CGROUP1
from tests.fixtures.gang_host import FakeV1
from tests.fixtures.gang_simulated import SECOND, SimulatedAgent
from tests.fixtures.no_ledger import NoLedger

NO_FILES = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def fail(*_: object, **__: object) -> Any:
    raise NO_FILES


def faults(agent: SimulatedAgent) -> dict[str, set[int | None]]:
    found: dict[str, set[int | None]] = {}
    for report in agent.reports:
        for fault in report.faults:
            found.setdefault(fault.kind, set()).add(fault.job)
    return found


def test_step_that_cannot_be_opened_is_unseen_and_others_are_held(
    fake_v1: FakeV1, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in (1, 2, 3):
        fake_v1.step(job, "0", pids=(5_000_000 + job,))
    freezer = CgroupFreezer(fake_v1.root, CGROUP1, "a", NoLedger())
    monkeypatch.setattr(
        cgroup_freezer, "open_cgroup", lambda *words: fail() if "job_2" in words[2] else open_cgroup(*words)
    )
    assert [step.key.job for step in freezer.adopt(freezer.look())] == [1, 3]
    assert freezer.unseen == {2}
    monkeypatch.undo()
    assert sorted(step.key.job for step in freezer.adopt(freezer.look())) == [1, 2, 3]
    assert freezer.unseen == frozenset()
    freezer.close()


def test_a_few_descriptors_are_left_for_looks(fake_v1: FakeV1, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_v1.step(1, "0")
    freezer = CgroupFreezer(fake_v1.root, CGROUP1, "a", NoLedger())
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    assert freezer.adopt(freezer.look()) == ()
    assert freezer.unseen == {1}
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    freezer.close()


def test_unseen_job_is_reported_and_neither_sampled_nor_ended() -> None:
    agent = SimulatedAgent(StepKey(1, "0"), StepKey(2, "0"))
    for key in tuple(agent.freezer.steps):
        agent.freezer.members[key] = (5_000_000 + key.job,)
    agent.join()
    agent.rotate((1,), (2,))
    agent.run(2 * SECOND)
    agent.freezer.unseen = frozenset({1})
    agent.sent.clear()
    agent.freezer.steps.discard(StepKey(1, "0"))
    agent.run(3 * SECOND)
    assert faults(agent)["unseen"] == {1}
    assert not {job for report in agent.reports for job in report.ended}
    assert not {one.job for each in agent.reports for part in each.slices for one in part.samples} & {1}


def test_failed_look_is_reported_and_slices_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = SimulatedAgent(StepKey(1, "0"), StepKey(2, "0"))
    for key in tuple(agent.freezer.steps):
        agent.freezer.members[key] = (5_000_000 + key.job,)
    agent.join()
    agent.rotate((1,), (2,))
    agent.run(2 * SECOND)
    monkeypatch.setattr(agent.freezer, "look", fail)
    agent.run(2 * SECOND)
    agent.sent.clear()  # with what was seen before
    agent.run(3 * SECOND)
    assert faults(agent)["unseen"] == {None}
    assert not {job for report in agent.reports for job in report.ended}
    assert not [one for each in agent.reports for part in each.slices for one in part.samples]
    assert {job for report in agent.reports for part in report.slices for job in part.held} == {1, 2}
    monkeypatch.undo()
    agent.run(2 * SECOND)
    agent.sent.clear()
    agent.run(3 * SECOND)
    assert "unseen" not in faults(agent)
    assert agent.node._looks._meters.unseen == frozenset()


def test_other_errors_of_a_look_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = SimulatedAgent(StepKey(1, "0"))
    error = OSError(errno.EIO, "broken")
    monkeypatch.setattr(agent.freezer, "look", lambda: (_ for _ in ()).throw(error))
    with pytest.raises(OSError, match="broken"):
        agent.node.look(agent.now_ns)


def test_process_is_not_taken_for_a_task_where_that_cannot_be_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_slurmstepd(1, tmp_path)  # it has ended
    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        is_slurmstepd(1, tmp_path)


def test_census_begins_anew_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agenda = Agenda()
    census = ProcessScan("a", agenda, tmp_path, cpu_clock=lambda: 0)
    monkeypatch.setattr(os, "scandir", fail)
    assert census.walk(frozenset({1000}), 0, stepds=True) is None
    assert agenda.at(AgendaItem.CENSUS) is not None
    monkeypatch.undo()
    assert census.walk(frozenset({1000}), 0, stepds=True) is not None


def test_start_without_inotify_or_threads_says_what_to_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux_host, "_check", fail)
    with pytest.raises(HostError, match="max_user_instances"):
        FolderWatch()
    monkeypatch.undo()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(HostError, match="limit of processes"):
        SwitchThread(HoldController(RecordingFreezer(), Lease(None)), lambda: None)


NOBODY = 65_534
WATCH = """
import sys
from foundation.errors import HostError
from gangd.agent.linux_host import FolderWatch
try:
    watch = FolderWatch()
except HostError as error:
    print(error)
else:
    watch.set_folders(["/proc/self"])
    print(watch.complete)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_a_user_who_takes_all_of_inotify_takes_nothing_of_roots_agent() -> None:
    taken_read, taken_write = os.pipe()
    over_read, over_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(over_write)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            while linux_host._libc.inotify_init1(0) >= 0:
                pass
            os.write(taken_write, str(ctypes.get_errno()).encode())
            os.read(over_read, 1)
        finally:
            os._exit(0)
    try:
        assert int(os.read(taken_read, 8)) == errno.EMFILE
        watch = FolderWatch()
        watch.set_folders(["/proc/self"])
        assert watch.complete
        watch.close()
    finally:
        for fd in (over_write, over_read, taken_read, taken_write):
            os.close(fd)
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("limit", "told"),
    [("max_inotify_instances", "fs.inotify.max_user_instances"), ("max_inotify_watches", "False")],
)
def test_an_agent_whose_own_inotify_budget_is_taken_says_so(limit: str, told: str) -> None:
    script = f'echo 0 > /proc/sys/user/{limit} && exec "$@"'
    words = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh", sys.executable, "-c", WATCH]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        pytest.skip(f"no user namespace with a limit of its own: {done.stderr.strip()}")
    assert told in done.stdout
