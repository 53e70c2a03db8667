"""Whatever is frozen or deprioritised is on record, and comes back."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gangd.freezer.cgroup_freezer import CgroupFreezer
from gangd.freezer.holder import Step, StepKey, Write
from gangd.freezer.membership import Members
from gangd.freezer.procfs import read_stat
from gangd.freezer.signal_freezer import SignalFreezer, send_signal
from gangd.freezer.tree import CGROUP1, CGROUP2, Dialect, own_group
from gangd.guardian.guardian_watch import thaw_held
from gangd.guardian.statefile import StateFile
from gangd.hold.cpu_priority import (
    IDLE1,
    IDLE2,
    KNOBS,
    SHARES1,
    WEIGHT2,
    CpuWeightControl,
    policy_of,
    set_policy,
    threads,
)
from gangd.hold.deprioritizer import Deprioritizer
from gangd.hold.own_groups import OwnGroups
from gangd.hold.sched_idle import SchedIdle
from gangd.hold.slurm_job_folders import JobFolders
from tests.fixtures.cgroup_tree import BASES, CgroupTree
from tests.fixtures.gang_host import SLEEP, V1_MOUNT, V2_MOUNTS, RealCgroups
from tests.fixtures.gang_yield import CPU1, UNIFIED, knob_of_unified, remove_groups
from tests.fixtures.looks import until
from tests.fixtures.tier import choose

JOBS = st.sampled_from((1, 2))
STEPS = st.sampled_from(("0", "batch"))
KEYS = st.builds(StepKey, JOBS, STEPS)
WHICH = st.integers(0, 9)
NUMBERS = st.sampled_from((None, None, errno.EIO, errno.EPERM))
CAPACITY = st.sampled_from((0, 1, 2, 9, 9, 9))


def weighted(weights: dict[str, int]) -> st.SearchStrategy[str]:
    """Draw names by weight."""
    return st.sampled_from([name for name, times in weights.items() for _ in range(times)])


class SmallLedger(StateFile):
    """A state file that holds a few records only."""

    capacity: int = 9

    def claim_cgroup(self, kind: int, path: str, job: int) -> int | None:
        return super().claim_cgroup(kind, path, job) if self._has_capacity() else None

    def claim_process(self, pid: int, start_ticks: int, job: int) -> int | None:
        return super().claim_process(pid, start_ticks, job) if self._has_capacity() else None

    def claim_idle(self, pid: int, start_ticks: int, job: int) -> int | None:
        return super().claim_idle(pid, start_ticks, job) if self._has_capacity() else None

    def _has_capacity(self) -> bool:
        marks = self._view[4096::256].tobytes()
        return len(marks) - marks.count(0) < self.capacity


class Machine(RuleBasedStateMachine):
    """An agent's freezer and ledger in a world that changes under it, as a subclass says."""

    acts: ClassVar[dict[str, int]] = {
        "look": 1, "adopt": 1, "look_and_adopt": 3, "freeze": 2, "freeze_all": 5, "thaw": 2,
        "disown": 2, "thaw_all": 1, "die": 1, "trouble": 1,
    }  # fmt: skip
    """Acts of the agent by weight, without the events of its world."""

    def __init__(self) -> None:
        super().__init__()
        self.undo = contextlib.ExitStack()
        shm = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.folder = Path(self.undo.enter_context(tempfile.TemporaryDirectory(prefix="osub-", dir=shm)))
        try:
            self.build()
            self.begin()
        except BaseException:
            self.undo.close()
            raise

    def build(self) -> None:
        """Make the world."""

    def make_freezer(self) -> CgroupFreezer | SignalFreezer:
        raise NotImplementedError

    def frozen(self) -> set[str]:
        """Names of what we froze."""
        raise NotImplementedError

    def recorded(self) -> set[str]:
        """What the ledger lists, in the words of ``frozen``."""
        raise NotImplementedError

    def left_to_others(self, names: set[str]) -> None:
        """Take note that the freezer left these to others."""
        raise NotImplementedError

    def set_failing(self, number: int | None) -> None:
        """Let every write fail, or none."""
        raise NotImplementedError

    def begin(self) -> None:
        """Start an agent's freezer with a ledger of its own."""
        ledger = SmallLedger.create(self.folder / "ledger", "a", str(self.folder / "tree"))
        assert isinstance(ledger, SmallLedger)
        self.ledger = ledger
        self.freezer = self.make_freezer()
        self.found: tuple[Step, ...] = ()
        self.known: tuple[Step, ...] = ()

    def teardown(self) -> None:
        try:
            self.thaw_all()
            self.freezer.close()
            self.ledger.close()
        finally:
            self.undo.close()

    def act(self, act: str, key: StepKey, number: int | None, capacity: int) -> None:
        """Let the agent act, or writes and ledger fail."""
        if act == "trouble":
            self.set_failing(number)
            self.ledger.capacity = capacity
        elif act in ("freeze", "thaw", "disown"):
            getattr(self, act)(key)
        else:
            getattr(self, act)()

    def look(self) -> None:
        self.found = self.freezer.look()

    def adopt(self) -> None:
        self.known = self.freezer.adopt(self.found)

    def look_and_adopt(self) -> None:
        self.look()
        self.adopt()

    def freeze(self, key: StepKey) -> None:
        self.freezer.hold(key)

    def freeze_all(self) -> None:
        self.look_and_adopt()
        for step in self.known:
            self.freeze(step.key)

    def thaw(self, key: StepKey) -> None:
        self.freezer.release(key)

    def disown(self, key: StepKey) -> None:
        before = self.recorded()
        self.freezer.disown(key)
        self.left_to_others(before - self.recorded())

    def thaw_all(self) -> None:
        self.set_failing(None)
        for step in self.known:
            self.freezer.release(step.key)
        assert not self.frozen(), "frozen, and unknown to the freezer"

    def die(self) -> None:
        """The agent dies, and its guardian thaws."""
        self.set_failing(errno.EIO)  # SIGKILL leaves no time for farewells
        self.freezer.close()
        self.ledger.close()
        self.set_failing(None)
        ledger = StateFile.open(self.folder / "ledger")
        revived = thaw_held(ledger)
        ledger.close()
        assert not revived.failures
        self.check_revived()
        self.begin()

    def check_revived(self) -> None:
        assert not self.frozen(), "frozen, and unknown to the guardian"

    @invariant()
    def each_held_process_is_on_record(self) -> None:
        assert self.frozen() <= self.recorded()


class CgroupMachine(Machine):
    """Slurm makes and removes folders, and sets the bit that it shares with us."""

    dialect: ClassVar[Dialect]
    mount: ClassVar[Path | None] = None
    events: ClassVar[dict[str, int]] = {
        "begin_step": 4, "begin_task": 3, "enter": 2, "leave": 1, "end_step": 1, "end_task": 1,
        "requeue": 1, "suspend": 1, "resume": 1,
    }  # fmt: skip

    def build(self) -> None:
        real = None
        root = self.folder / "tree"
        if self.mount is not None:
            real = RealCgroups(
                self.mount / f"osubtest_{os.getpid()}", self.dialect.control, self.dialect.thaw.decode()
            )
            self.undo.callback(real.clean)
            root.symlink_to(real.root)
        self.left: set[str] = set()
        self.tree = CgroupTree(root if real is None else real.root, self.dialect, real=real)
        self.undo.callback(self.tree.close)

    def make_freezer(self) -> CgroupFreezer:
        self.tree.ledger = self.ledger
        return CgroupFreezer(
            self.tree.root, self.dialect, "a", self.ledger, write=self.tree.write, read=self.tree.read
        )

    def frozen(self) -> set[str]:
        return self.tree.frozen_by_us()

    def recorded(self) -> set[str]:
        return {held.path for held in self.ledger.held()}

    def set_failing(self, number: int | None) -> None:
        self.tree.failing = number

    def left_to_others(self, names: set[str]) -> None:
        """What Slurm and we share is Slurm's now, as it is; a task's bit was ours alone, and is cleared."""
        self.tree.ours -= names & set(self.tree.steps())

    def of(self, key: StepKey) -> set[str]:
        """Freeze bits of a step."""
        return {path for path in self.tree.bits() if f"job_{key.job}/step_{key.step}" in path}

    def freeze(self, key: StepKey) -> None:
        self.left -= self.of(key)
        super().freeze(key)

    def disown(self, key: StepKey) -> None:
        super().disown(key)
        self.left |= self.of(key)

    def adopt(self) -> None:
        super().adopt()
        if self.tree.failing is None:
            assert not self.frozen() & self.left, "left to others, and frozen by a bit of ours"

    def check_revived(self) -> None:
        self.tree.ours = {path for path in self.tree.ours if path in self.frozen()}
        super().check_revived()

    @rule(
        event=weighted(Machine.acts | events),
        key=KEYS,
        number=NUMBERS,
        capacity=CAPACITY,
        which=WHICH,
        base=st.sampled_from((0, 1, 1, 1)),
        task=st.sampled_from(("task_0", "task_special")),
    )
    def happens(
        self, event: str, key: StepKey, number: int | None, capacity: int, which: int, base: int, task: str
    ) -> None:
        if event in self.acts:
            self.act(event, key, number, capacity)
            return
        tree, steps = self.tree, self.tree.steps()
        tasks = [path for path in tree.bits() if path not in steps]
        if event == "begin_step":
            tree.make(BASES[self.dialect.kind][base], key.job, key.step)
        elif event == "end_task" and tasks:
            tree.remove(tasks[which % len(tasks)])
        elif steps:
            step = steps[which % len(steps)]
            if event == "begin_task" and self.dialect is CGROUP2:
                tree.make_folder(f"{step}/{task}")
            elif event in ("enter", "leave") and self.dialect is CGROUP2:
                tree.populate(step, populated=event == "enter")
            elif event in ("suspend", "resume"):
                tree.slurm_sets(step, frozen=event == "suspend")
            elif event in ("end_step", "requeue"):
                tree.remove(step)
                if event == "requeue":
                    tree.make_folder(step)


class SignalMachine(Machine):
    """Real processes begin, end, leave their steps, and are stopped and continued by others."""

    events: ClassVar[dict[str, int]] = {"begin": 5, "end": 1, "leave": 2, "stop": 1, "continue": 1}

    def build(self) -> None:
        self.members: dict[int, StepKey] = {}
        self.children: dict[int, subprocess.Popen[bytes]] = {}
        self.ours: set[int] = set()
        self.failing: int | None = None
        self.undo.callback(self.kill_all)

    def make_freezer(self) -> SignalFreezer:
        return PuppetSignals("a", self.ledger, self.members, self.send)

    def frozen(self) -> set[str]:
        return {str(pid) for pid in self.ours}

    def recorded(self) -> set[str]:
        return {str(held.pid) for held in self.ledger.held()}

    def set_failing(self, number: int | None) -> None:
        self.failing = number

    def left_to_others(self, names: set[str]) -> None:
        self.ours -= {int(name) for name in names}

    def check_revived(self) -> None:
        for pid in list(self.ours):
            until(lambda pid=pid: _state(pid) != "T", 2.0, f"end of the stop of {pid}")  # type: ignore[misc]
        self.ours.clear()

    def kill_all(self) -> None:
        for pid in list(self.children):
            self.kill(pid)

    def kill(self, pid: int) -> None:
        child = self.children.pop(pid)
        child.kill()
        child.wait()
        self.ours.discard(pid)
        self.members.pop(pid, None)

    def send(self, pidfd: int, number: signal.Signals) -> str | None:
        if self.failing is not None:
            return os.strerror(self.failing)
        lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines()
        pid = next(int(line.split()[1]) for line in lines if line.startswith("Pid:"))
        if number is signal.SIGSTOP:
            assert str(pid) in self.recorded(), "stopped before it is noted"
        trouble = send_signal(pidfd, number)
        if trouble is None and number is signal.SIGSTOP:
            self.ours.add(pid)
        elif trouble is None:
            self.ours.discard(pid)
        return trouble

    @rule(event=weighted(Machine.acts | events), key=KEYS, number=NUMBERS, capacity=CAPACITY, which=WHICH)
    def happens(self, event: str, key: StepKey, number: int | None, capacity: int, which: int) -> None:
        others = sorted(set(self.children) - self.ours)
        children = sorted(self.children)
        if event in self.acts:
            self.act(event, key, number, capacity)
        elif event == "begin" and len(self.children) < 5:
            child = subprocess.Popen(["sleep", "1000"])
            self.children[child.pid] = child
            self.members[child.pid] = key
        elif event == "stop" and children:
            pid = children[which % len(children)]
            os.kill(pid, signal.SIGSTOP)
            self.ours.discard(pid)  # it stays stopped, whatever becomes of our own stop
        elif event == "continue" and others:
            os.kill(others[which % len(others)], signal.SIGCONT)
        elif event in ("end", "leave") and self.members:
            pid = sorted(self.members)[which % len(self.members)]
            if event == "end":
                self.kill(pid)
            else:
                del self.members[pid]


class PuppetSignals(SignalFreezer):
    """Finds what a test sets."""

    def __init__(
        self,
        node: str,
        ledger: StateFile,
        members: dict[int, StepKey],
        send: Callable[[int, signal.Signals], str | None],
    ) -> None:
        super().__init__(node, ledger, send=send)
        self.members = members

    def look(self) -> tuple[Step, ...]:
        seen = Members()
        for pid, key in self.members.items():
            stat = read_stat(pid)
            if stat is not None:
                seen.steps.setdefault(key, []).append(stat)
        self._seen = seen
        return tuple(Step(key, None) for key in sorted(seen.steps))


def _state(pid: int) -> str:
    stat = read_stat(pid)
    return "X" if stat is None else stat.state


def run(machine: type[RuleBasedStateMachine], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("kind", [CGROUP1, CGROUP2], ids=["v1", "v2"])
def test_what_a_cgroup_freezer_froze_is_on_record(kind: Dialect) -> None:
    class World(CgroupMachine):
        dialect = kind

    run(World, choose(10, 60, 3000))


@pytest.mark.parametrize("kind", [CGROUP1, CGROUP2], ids=["v1", "v2"])
def test_what_a_cgroup_freezer_froze_is_on_record_on_a_real_hierarchy(kind: Dialect) -> None:
    places = (V1_MOUNT,) if kind is CGROUP1 else V2_MOUNTS
    sign = "cgroup.procs" if kind is CGROUP1 else "cgroup.controllers"
    place = next((path for path in places if (path / sign).exists()), None)
    if os.geteuid() != 0 or place is None:
        pytest.skip(f"needs root and a {kind.name} hierarchy")

    class World(CgroupMachine):
        dialect = kind
        mount = place

    run(World, choose(5, 10, 300))


def test_what_the_signal_freezer_stopped_is_on_record() -> None:
    run(SignalMachine, choose(5, 20, 500))


YIELDING_JOBS = (1, 2, 3)
SCOPE = "system.slice/a_slurmstepd.scope"

ACTS = (
    *("begin", "end", "gather", "gather", "adopt", "hold", "hold", "hold", "release", "die", "trouble"),
    *("switch", "switch", "switch"),
)


class YieldMachine(RuleBasedStateMachine):
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
        job=st.sampled_from(YIELDING_JOBS),
        among=st.sets(st.sampled_from(YIELDING_JOBS)),
        number=st.sampled_from((None, None, errno.EIO, errno.EPERM)),
        capacity=st.sampled_from((0, 1, 2, 9, 9, 9)),
        ends_after=st.sampled_from((0, 1, 2, 3, 9, 9)),
    )
    def act(
        self, act: str, job: int, among: set[int], number: int | None, capacity: int, ends_after: int
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
            self.failing, self.ledger.capacity = number, capacity
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
        for job in sorted(YIELDING_JOBS, key=lambda job: job not in held):
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


class FoldersMachine(YieldMachine):
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
        unified = self.knob.unified
        return f"{SCOPE}/job_{job}" if unified else f"slurm_a/uid_{7 + job % 2}/job_{job}"

    def begin(self, job: int) -> None:
        (folder := self.cpu_root / self.path(job)).mkdir(parents=True)
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


class GroupsMachine(YieldMachine):
    """Own groups in the host's cpu hierarchy, with real processes."""

    top: ClassVar[Path] = CPU1
    knob: ClassVar[CpuWeightControl] = IDLE1

    def build(self) -> None:
        self.cpu_root = self.top
        self.node = f"osubtest{os.getpid()}"
        self.children: dict[int, list[subprocess.Popen[bytes]]] = {}
        self.undo.callback(remove_groups, self.top, self.node)
        self.undo.enter_context(patch.dict(KNOBS, {self.knob.kind: self.knob}))

    def make(self) -> Deprioritizer:
        return OwnGroups(self.top, self.knob, self.node, self.ledger, write=self.write)

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
        for job in YIELDING_JOBS:
            folder = self.top / own_group(self.node, job)
            with contextlib.suppress(OSError):
                is_low = (folder / self.knob.file).read_bytes().strip() == self.knob.low
                if is_low and (folder / "cgroup.procs").read_text():
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


def play(machine: type[YieldMachine], examples: int) -> None:
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
    play(type("Folders", (FoldersMachine,), {"knob": knob}), choose(5, 25, 1000))


@pytest.mark.parametrize("machine", [GroupsMachine, PolicyMachine])
def test_own_groups_and_policies(machine: type[YieldMachine]) -> None:
    if os.geteuid() != 0 or not (CPU1 / "cgroup.procs").exists():
        pytest.skip("needs root and a cgroup v1 cpu hierarchy")
    play(machine, choose(2, 6, 300))


def test_own_groups_of_a_unified_hierarchy() -> None:
    if os.geteuid() != 0 or UNIFIED is None:
        pytest.skip("needs root and a cgroup v2 hierarchy")
    world = {"top": UNIFIED, "knob": knob_of_unified(UNIFIED)}
    play(type("UnifiedGroups", (GroupsMachine,), world), choose(2, 6, 300))
