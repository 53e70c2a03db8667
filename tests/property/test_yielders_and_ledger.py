"""What yields for our sake is on record at any instant, whatever becomes of jobs, writes and room."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import tempfile
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gangd.freezer.holder import Step, StepKey, Write
from gangd.guardian.guardian_watch import thaw_held
from gangd.guardian.statefile import StateFile
from gangd.hold.cpu_priority import (
    IDLE1,
    IDLE2,
    SHARES1,
    WEIGHT2,
    CpuWeightControl,
    own_group,
    policy_of,
    set_policy,
    threads,
)
from gangd.hold.deprioritizer import Deprioritizer
from gangd.hold.own_groups import OwnGroups
from gangd.hold.sched_idle import SchedIdle
from gangd.hold.slurm_job_folders import JobFolders
from tests.fixtures.gang_host import SLEEP
from tests.fixtures.gang_yield import CPU1, remove_groups
from tests.fixtures.tier import choose

JOBS = (1, 2, 3)
SCOPE = "system.slice/a_slurmstepd.scope"
ACTS = (
    *("begin", "end", "gather", "gather", "adopt", "hold", "hold", "hold", "release", "die", "trouble"),
    *("switch", "switch", "switch"),
)


class SmallLedger(StateFile):
    """A state file with room for a few records only."""

    room: int = 9

    def claim_cgroup(self, kind: int, path: str, job: int) -> int | None:
        return super().claim_cgroup(kind, path, job) if self._has_room() else None

    def claim_idle(self, pid: int, start_ticks: int, job: int) -> int | None:
        return super().claim_idle(pid, start_ticks, job) if self._has_room() else None

    def _has_room(self) -> bool:
        marks = self._view[4096::256].tobytes()
        return len(marks) - marks.count(0) < self.room


class Machine(RuleBasedStateMachine):
    """An agent's yielder and ledger; the world is a subclass's."""

    cpu_root: Path

    def __init__(self) -> None:
        super().__init__()
        self.undo = contextlib.ExitStack()
        self.folder = Path(self.undo.enter_context(tempfile.TemporaryDirectory(prefix="osub-")))
        self.failing: int | None = None
        self.jobs: set[int] = set()
        try:
            self.build()
            self.start()
        except BaseException:
            self.undo.close()
            raise

    def build(self) -> None:
        """Make the world."""

    def make(self) -> Deprioritizer:
        raise NotImplementedError

    def begin(self, job: int) -> None:
        """Let a job begin."""
        raise NotImplementedError

    def end(self, job: int) -> None:
        """Let a job end."""
        raise NotImplementedError

    def steps(self) -> tuple[Step, ...]:
        return ()

    def pids(self, job: int) -> tuple[int, ...]:
        raise NotImplementedError

    def low(self) -> set[str]:
        """What yields for our sake."""
        raise NotImplementedError

    def recorded(self) -> set[str]:
        """What the ledger lists, in the words of ``low``."""
        raise NotImplementedError

    def start(self) -> None:
        """Start an agent with a ledger of its own."""
        ledger = SmallLedger.create(self.folder / "agent-a.state", "a", "/", str(self.cpu_root))
        assert isinstance(ledger, SmallLedger)
        self.ledger = ledger
        self.yielder = self.make()

    def teardown(self) -> None:
        self.failing = None
        try:
            self.yielder.close()
            assert not self.low()
            self.ledger.close()
        finally:
            for job in list(self.jobs):
                self.end(job)
            self.undo.close()

    def fail(self) -> None:
        if self.failing is not None:
            raise OSError(self.failing, os.strerror(self.failing))

    @rule(
        act=st.sampled_from(ACTS),
        job=st.sampled_from(JOBS),
        among=st.sets(st.sampled_from(JOBS)),
        number=st.sampled_from((None, None, errno.EIO, errno.EPERM)),
        room=st.sampled_from((0, 1, 2, 9, 9, 9)),
        ends_after=st.sampled_from((0, 1, 2, 3, 9, 9)),
    )
    def act(
        self, act: str, job: int, among: set[int], number: int | None, room: int, ends_after: int
    ) -> None:
        if act == "begin" and job not in self.jobs:
            self.begin(job)
            self.jobs.add(job)
        elif act == "end" and job in self.jobs:
            self.end(job)
            self.jobs.discard(job)
        elif act == "gather":
            self.yielder.adopt(self.steps())
            self.yielder.gather({one: (lambda one=one: self.pids(one)) for one in among & self.jobs})  # type: ignore[misc]
        elif act == "adopt":
            self.yielder.adopt(self.steps())
        elif act in ("hold", "release"):
            getattr(self.yielder, act)(job)
        elif act == "switch":
            self.switch(among, ends_after)
        elif act == "trouble":
            self.failing, self.ledger.room = number, room
        elif act == "die":
            self.failing = None
            assert not thaw_held(self.ledger).failures
            assert not self.low(), "what the ledger says is enough to release everything"
            self.ledger.close()
            self.start()

    def switch(self, held: set[int], ends_after: int) -> None:
        """Make planned writes as native code makes them, but for a failure or an end after so many."""
        ours: dict[int, bool] = {}
        writes: list[Write] = []
        for job in sorted(JOBS, key=lambda job: job not in held):
            planned = self.yielder.plan(StepKey(job, "0"), ours, holds=job in held)
            if planned is not None:
                writes += planned
        for write in writes[:ends_after]:
            if write.holds:
                self.ledger.hold(write.slot)
            self.what_yields_is_on_record()
            try:
                self.write(write.fd, write.data)
            except OSError:
                break
            self.what_yields_is_on_record()
            if not write.holds and write.completes:
                self.ledger.release(write.slot)
            self.what_yields_is_on_record()
            write.target.note(write)

    def write(self, fd: int, data: bytes, at: int = 0) -> int:
        """Write to a control file."""
        raise NotImplementedError

    @invariant()
    def what_yields_is_on_record(self) -> None:
        assert self.low() <= self.recorded()


class FoldersMachine(Machine):
    """Slurm's folders in a tree of plain files."""

    knob: ClassVar[CpuWeightControl]

    def build(self) -> None:
        self.cpu_root = self.folder / "cpu"
        self.cpu_root.mkdir()

    def make(self) -> Deprioritizer:
        return JobFolders(self.cpu_root, self.knob, self.ledger, write=self.write)

    def write(self, fd: int, data: bytes, at: int = 0) -> int:
        self.fail()
        os.ftruncate(fd, 0)
        return os.pwrite(fd, data, at)

    def path(self, job: int) -> str:
        nested = self.knob.weight_file == "cpu.shares"
        return f"slurm_a/uid_{7 + job % 2}/job_{job}" if nested else f"{SCOPE}/job_{job}"

    def begin(self, job: int) -> None:
        folder = self.cpu_root / self.path(job)
        folder.mkdir(parents=True)
        for one in (folder, folder.parent):
            if not (one / "cpu.idle").exists():
                (one / "cpu.idle").write_text("0")
                (one / self.knob.weight_file).write_text(str(250 if job == 2 else self.knob.usual))

    def end(self, job: int) -> None:
        folder = self.cpu_root / self.path(job)
        for name in ("cpu.idle", self.knob.weight_file):
            (folder / name).unlink()
        folder.rmdir()

    def steps(self) -> tuple[Step, ...]:
        return tuple(
            Step(StepKey(job, "0"), None, (f"{self.path(job)}/step_0",)) for job in sorted(self.jobs)
        )

    def pids(self, job: int) -> tuple[int, ...]:
        return ()

    def low(self) -> set[str]:
        low = str(self.knob.low.decode())
        return {
            str(path.parent.relative_to(self.cpu_root))
            for path in self.cpu_root.rglob(self.knob.file)
            if path.read_text() == low
        }

    def recorded(self) -> set[str]:
        return {held.path for held in self.ledger.held()}


class GroupsMachine(Machine):
    """Own groups in the host's cpu hierarchy, with real processes."""

    def build(self) -> None:
        self.cpu_root = CPU1
        self.node = f"osubtest{os.getpid()}"
        self.children: dict[int, list[subprocess.Popen[bytes]]] = {}
        self.undo.callback(remove_groups, CPU1, self.node)

    def make(self) -> Deprioritizer:
        return OwnGroups(CPU1, IDLE1, self.node, self.ledger, write=self.write)

    def write(self, fd: int, data: bytes, at: int = 0) -> int:
        self.fail()
        return os.pwrite(fd, data, at)

    def begin(self, job: int) -> None:
        self.children[job] = [subprocess.Popen(SLEEP) for _ in range(2)]

    def end(self, job: int) -> None:
        for child in self.children.pop(job):
            child.kill()
            child.wait()

    def pids(self, job: int) -> tuple[int, ...]:
        return tuple(child.pid for child in self.children.get(job, ()))

    def low(self) -> set[str]:
        found = set()
        for job in JOBS:
            folder = CPU1 / own_group(self.node, job)
            with contextlib.suppress(OSError):
                if (folder / "cpu.idle").read_text() == "1\n" and (folder / "cgroup.procs").read_text():
                    found.add(folder.name)
        return found

    def recorded(self) -> set[str]:
        return {held.path for held in self.ledger.held()}


class PolicyMachine(GroupsMachine):
    """The policy of real processes."""

    def make(self) -> Deprioritizer:
        return SchedIdle(self.ledger, set_policy=self.set_policy)

    def set_policy(self, tid: int, policy: int) -> None:
        self.fail()
        set_policy(tid, policy)

    def low(self) -> set[str]:
        return {
            str(child.pid)
            for children in self.children.values()
            for child in children
            if os.SCHED_IDLE in {policy_of(tid) for tid in threads(f"/proc/{child.pid}/task")}
        }

    def recorded(self) -> set[str]:
        return {str(held.pid) for held in self.ledger.held()}


def play(machine: type[Machine], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


@pytest.mark.parametrize(
    "knob", [IDLE1, SHARES1, IDLE2, WEIGHT2], ids=["idle1", "shares1", "idle2", "weight2"]
)
def test_slurms_folders(knob: CpuWeightControl) -> None:
    play(type("Folders", (FoldersMachine,), {"knob": knob}), choose(10, 25, 1000))


@pytest.mark.parametrize("machine", [GroupsMachine, PolicyMachine])
def test_own_groups_and_policies(machine: type[Machine]) -> None:
    if os.geteuid() != 0 or not (CPU1 / "cgroup.procs").exists():
        pytest.skip("needs root and a cgroup v1 cpu hierarchy")
    play(machine, choose(2, 6, 300))
