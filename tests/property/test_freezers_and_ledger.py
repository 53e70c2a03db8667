"""What stands still for our sake is on record at any instant, whatever becomes of steps, writes and room.

Each machine has one rule, which draws what happens by weight: of many rules hypothesis leaves some out of
each example, and a freeze that is lost takes several things, one after the other.
"""

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

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from gangd.freezer.cgroup_freezer import CgroupFreezer
from gangd.freezer.holder import Step, StepKey
from gangd.freezer.membership import Members
from gangd.freezer.procfs import read_stat
from gangd.freezer.signal_freezer import SignalFreezer, send_signal
from gangd.freezer.tree import CGROUP1, CGROUP2, Dialect
from gangd.guardian.guardian_watch import thaw_held
from gangd.guardian.statefile import StateFile
from tests.fixtures.cgroup_tree import BASES, CgroupTree
from tests.fixtures.gang_host import V1_MOUNT, V2_MOUNTS, RealCgroups, until
from tests.fixtures.tier import choose

JOBS = st.sampled_from((1, 2))
STEPS = st.sampled_from(("0", "batch"))
KEYS = st.builds(StepKey, JOBS, STEPS)
WHICH = st.integers(0, 9)
NUMBERS = st.sampled_from((None, None, errno.EIO, errno.EPERM))
ROOM = st.sampled_from((0, 1, 2, 9, 9, 9))


def weighted(weights: dict[str, int]) -> st.SearchStrategy[str]:
    """Draw names by weight."""
    return st.sampled_from([name for name, times in weights.items() for _ in range(times)])


class SmallLedger(StateFile):
    """A state file with room for a few records only."""

    room: int = 9

    def claim_cgroup(self, kind: int, path: str, job: int) -> int | None:
        return super().claim_cgroup(kind, path, job) if self._has_room() else None

    def claim_process(self, pid: int, start_ticks: int, job: int) -> int | None:
        return super().claim_process(pid, start_ticks, job) if self._has_room() else None

    def _has_room(self) -> bool:
        marks = self._view[4096::256].tobytes()
        return len(marks) - marks.count(0) < self.room


class Machine(RuleBasedStateMachine):
    """An agent's freezer and ledger in a world that changes under it, as a subclass says."""

    acts: ClassVar[dict[str, int]] = {
        "look": 1,
        "adopt": 1,
        "look_and_adopt": 3,
        "freeze": 2,
        "freeze_all": 5,
        "thaw": 2,
        "disown": 2,
        "thaw_all": 1,
        "die": 1,
        "trouble": 1,
    }
    """What the agent does, and how often, beside what happens in its world."""

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
        """What stands still for our sake."""
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

    def act(self, act: str, key: StepKey, number: int | None, room: int) -> None:
        """Let the agent act, or writes and ledger fail."""
        if act == "trouble":
            self.set_failing(number)
            self.ledger.room = room
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
    def what_stands_still_is_on_record(self) -> None:
        assert self.frozen() <= self.recorded()


class CgroupMachine(Machine):
    """Slurm makes and removes folders, and sets the bit that it shares with us."""

    dialect: ClassVar[Dialect]
    mount: ClassVar[Path | None] = None
    events: ClassVar[dict[str, int]] = {
        "begin_step": 4,
        "begin_task": 3,
        "enter": 2,
        "leave": 1,
        "end_step": 1,
        "end_task": 1,
        "requeue": 1,
        "suspend": 1,
        "resume": 1,
    }

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
        room=ROOM,
        which=WHICH,
        base=st.sampled_from((0, 1, 1, 1)),
        task=st.sampled_from(("task_0", "task_special")),
    )
    def happens(
        self, event: str, key: StepKey, number: int | None, room: int, which: int, base: int, task: str
    ) -> None:
        if event in self.acts:
            self.act(event, key, number, room)
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

    @rule(event=weighted(Machine.acts | events), key=KEYS, number=NUMBERS, room=ROOM, which=WHICH)
    def happens(self, event: str, key: StepKey, number: int | None, room: int, which: int) -> None:
        strangers = sorted(set(self.children) - self.ours)
        children = sorted(self.children)
        if event in self.acts:
            self.act(event, key, number, room)
        elif event == "begin" and len(self.children) < 5:
            child = subprocess.Popen(["sleep", "1000"])
            self.children[child.pid] = child
            self.members[child.pid] = key
        elif event == "stop" and children:
            pid = children[which % len(children)]
            os.kill(pid, signal.SIGSTOP)
            self.ours.discard(pid)  # it stays stopped, whatever becomes of our own stop
        elif event == "continue" and strangers:
            os.kill(strangers[which % len(strangers)], signal.SIGCONT)
        elif event in ("end", "leave") and self.members:
            pid = sorted(self.members)[which % len(self.members)]
            if event == "end":
                self.kill(pid)
            else:
                del self.members[pid]


class PuppetSignals(SignalFreezer):
    """Finds what it is told."""

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

    run(World, choose(25, 60, 3000))


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
