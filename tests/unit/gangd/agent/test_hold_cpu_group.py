from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foundation.errors import UsageError
from gangd.agent.thaw_tool import ThawReport, find_low, low_groups, raise_scanned
from gangd.freezer.holder import Did, StepKey
from gangd.freezer.tree import own_group
from gangd.guardian.guardian_watch import thaw_held
from gangd.guardian.statefile import StateFile, Word
from gangd.hold.cpu_group import CpuGroup, Turner, cpu_group, cpu_path
from gangd.hold.cpu_priority import IDLE1, IDLE2, KNOBS, SHARES1, WEIGHT2, CpuWeightControl
from gangd.hold.deprioritizer_choice import SlurmLimits, choose_way
from gangd.hold.own_groups import OwnGroups
from tests.fixtures.gang_yield import CPU1, PIN, FakeCpu1, a_cpu, remove_groups
from tests.fixtures.looks import until
from tests.fixtures.no_ledger import NoLedger

KEY = StepKey(1, "0")
EACH_KNOB = pytest.mark.parametrize("knob", [IDLE1, SHARES1, IDLE2, WEIGHT2])


class Record(NoLedger):
    """Remembers one slot."""

    marked = False

    def hold(self, slot: int) -> None:
        del slot
        self.marked = True

    def release(self, slot: int) -> None:
        del slot
        self.marked = False


class World:
    """A group whose writes are listed; those that ``failing`` has the place of fail."""

    def __init__(self, knob: CpuWeightControl, weight: int) -> None:
        self.written: list[tuple[str, bytes]] = []
        self.failing: dict[int, int] = {}
        self.ledger = Record()
        self.names = [*dict.fromkeys((knob.file, knob.weight_file))]
        self.turner = Turner(knob, self.ledger, self.write)
        fds = {name: fd for fd, name in enumerate(self.names)}
        self.group = CpuGroup(path="job_1", fds=fds, weight=weight, slot=1)

    def write(self, fd: int, data: bytes, at: int) -> int:
        assert at == 0
        number = self.failing.pop(len(self.written), None)
        if number is not None:
            raise OSError(number, os.strerror(number))
        self.written.append((self.names[fd], data))
        return len(data)


@EACH_KNOB
@pytest.mark.parametrize("weight", [None, 250])
def test_what_is_planned_is_what_would_be_written(knob: CpuWeightControl, weight: int | None) -> None:
    for low in (True, False):
        world = World(knob, weight or knob.usual)
        if not low:
            world.turner.turn(world.group, low=True)
            world.written.clear()
        ours: dict[int, bool] = {}
        planned = world.turner.plan(world.group, KEY, ours, holds=low)
        assert planned is not None
        assert [write.completes for write in planned] == [False] * (len(planned) - 1) + [True]
        assert world.turner.plan(world.group, KEY, ours, holds=low) == []  # another step of the job
        assert ours == {1: low}
        assert world.turner.turn(world.group, low=low).did is Did.WROTE
        assert [(world.names[write.fd], write.data) for write in planned] == world.written


@EACH_KNOB
def test_planned_writes_that_were_made_are_as_if_python_had_made_them(knob: CpuWeightControl) -> None:
    world = World(knob, 250)
    for low in (True, False):
        for write in world.turner.plan(world.group, KEY, {}, holds=low) or ():
            write.target.note(write)
        assert (world.group.low, world.group.torn) == (low, False)
        assert world.turner.turn(world.group, low=low).did is Did.NOTHING
    assert not world.written


@pytest.mark.parametrize("by_native_code", [True, False])
@pytest.mark.parametrize("following", [True, False])
def test_release_that_stopped_half_way_is_made_anew(by_native_code: bool, following: bool) -> None:
    world = World(IDLE1, 2048)
    world.turner.turn(world.group, low=True)
    if by_native_code:
        planned = world.turner.plan(world.group, KEY, {}, holds=False)
        assert planned is not None
        planned[0].target.note(planned[0])
    else:
        world.failing = {2: errno.EIO}
        assert world.turner.turn(world.group, low=False).did is Did.FAILED
    assert world.ledger.marked
    assert world.turner.plan(world.group, KEY, {}, holds=following) is None
    world.written.clear()
    assert world.turner.turn(world.group, low=following).did is Did.WROTE
    assert world.written == (
        [("cpu.idle", b"1")] if following else [("cpu.idle", b"0"), ("cpu.shares", b"2048")]
    )
    assert world.ledger.marked is following
    assert world.turner.turn(world.group, low=following).did is Did.NOTHING


@pytest.mark.parametrize("number", [errno.EIO, errno.ENODEV])
def test_hold_that_fails_is_taken_from_the_record_unless_it_was_low(number: int) -> None:
    world = World(IDLE1, 2048)
    world.failing = {0: number}
    expected = Did.GONE if number == errno.ENODEV else Did.FAILED
    assert world.turner.turn(world.group, low=True).did is expected
    assert not world.ledger.marked
    world.turner.turn(world.group, low=True)
    world.failing = {1: errno.EIO}
    world.turner.turn(world.group, low=False)  # which may have been its first write
    world.failing = {1: number}
    assert world.turner.turn(world.group, low=True).did is expected
    assert world.ledger.marked


def test_without_a_record_nothing_is_planned_or_held() -> None:
    world = World(IDLE2, 100)
    world.group.slot = None
    assert world.turner.plan(world.group, KEY, {}, holds=True) is None
    assert world.turner.turn(world.group, low=True).did is Did.FAILED
    assert not world.written


PLAIN = SlurmLimits("proctrack/linuxproc", "jobacct_gather/none", "task/none")


def unified(mount: Path, *, enabled: str = "", top: bool = True) -> Path:
    """Make what is seen of a unified hierarchy, and of processes by one who may give any priority."""
    (mount / "proc" / "self").mkdir(parents=True)
    (mount / "proc" / "self" / "status").write_text("Name:\tx\nCapEff:\tffffffffffffffff\n")
    for name, text in (
        ("cgroup.controllers", "cpuset cpu io memory\n"),
        ("cgroup.procs", ""),
        ("cgroup.subtree_control", enabled),
    ):
        (mount / name).write_text(text)
    if not top:
        (mount / "cgroup.type").write_text("domain\n")
    return mount


def auto(mount: Path, slurm: SlurmLimits) -> str:
    return choose_way("auto", None, slurm, mount, mount / "proc").kind


def test_own_groups_where_slurm_keeps_jobs_in_no_cgroups(tmp_path: Path) -> None:
    way = choose_way("auto", None, PLAIN, unified(tmp_path))
    assert (way.kind, way.root) == ("cgroup2-own", tmp_path)
    assert way.kind != "freeze"


@pytest.mark.parametrize(
    ("slurm", "kind"),
    [
        (SlurmLimits(), "cgroup2"),
        (SlurmLimits("proctrack/cgroup", "jobacct_gather/none", "task/none"), "cgroup2"),
        (SlurmLimits("proctrack/pgid", "jobacct_gather/linux", "task/affinity"), "cgroup2-own"),
        (SlurmLimits("proctrack/linuxproc", "jobacct_gather/cgroup", "task/none"), "sched-idle"),
        (SlurmLimits("proctrack/pgid", "jobacct_gather/none", "task/affinity,task/cgroup"), "sched-idle"),
    ],
)
def test_what_slurm_has_in_cgroups_is_moved_out_of_none(
    tmp_path: Path, slurm: SlurmLimits, kind: str
) -> None:
    assert auto(unified(tmp_path), slurm) == kind


@pytest.mark.parametrize(("enabled", "kind"), [("memory", "sched-idle"), ("cpu memory", "cgroup2-own")])
def test_below_the_top_the_controller_must_be_enabled_already(
    tmp_path: Path, enabled: str, kind: str
) -> None:  # the kernel enables none where processes are
    assert auto(unified(tmp_path, enabled=enabled, top=False), PLAIN) == kind


def test_without_a_controller_to_give_there_are_no_own_groups(tmp_path: Path) -> None:
    unified(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("memory pids\n")
    assert auto(tmp_path, PLAIN) == "sched-idle"


def test_what_is_asked_for_is_obeyed_where_there_is_such_a_hierarchy(tmp_path: Path) -> None:
    for kind in ("cgroup2", "cgroup2-own"):
        assert choose_way(kind, None, SlurmLimits(), tmp_path).root == tmp_path
        with pytest.raises(UsageError):
            choose_way(kind, tmp_path / "absent", SlurmLimits(), tmp_path)
    with pytest.raises(UsageError):
        choose_way("cgroup1", None, SlurmLimits(), tmp_path)


def test_cgroup_of_a_process_is_that_of_the_hierarchy_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    lines = tmp_path / "7" / "cgroup"
    lines.write_text("3:cpu,cpuacct:/one\n1:name=systemd:/two\n0::/three/inner\n")
    assert cpu_path(7, tmp_path) == "/one"
    assert cpu_path(7, tmp_path, unified=True) == "/three/inner"
    assert cpu_group(7, tmp_path, tmp_path) == "one"
    lines.write_text("0::/three/inner\n")
    assert cpu_path(7, tmp_path) is None
    (tmp_path / "three").mkdir()
    (tmp_path / "three" / "cpu.weight").write_text("100")
    assert cpu_group(7, tmp_path, tmp_path) == "three"
    assert cpu_path(8, tmp_path, unified=True) is cpu_group(8, tmp_path, tmp_path) is None


Children = list[subprocess.Popen[bytes]]


def found(mount: Path, node: str | None = None) -> list[tuple[str, str, int]]:
    return sorted((root.name, path, knob.kind) for root, path, knob in low_groups(node, mount))


def test_low_groups_of_all_kinds_are_found_and_others_are_not(tmp_path: Path) -> None:
    fake = FakeCpu1(tmp_path / "cpu")
    for path in (
        "gangd_a_job_1",
        "gangd_b_job_2",
        "gangd_a_job_3",
        "slurm_a/uid_7/job_4",
        "slurm_a/uid_8/job_5",
    ):
        fake.make(path)
    for path in ("gangd_a_job_1", "gangd_b_job_2", "slurm_a/uid_7", "slurm_a/uid_7/job_4"):
        (fake.root / path / "cpu.idle").write_text("1")
    fake.make("other")
    (fake.root / "other" / "cpu.idle").write_text("1")
    (fake.root / "gangd_a_job_3" / "cpu.shares").write_text("2")
    (tmp_path / "cpu,cpuacct").symlink_to(fake.root)
    of_a = [
        ("cpu", "gangd_a_job_1", IDLE1.kind),
        ("cpu", "gangd_a_job_3", IDLE1.kind),
        ("cpu", "slurm_a/uid_7", IDLE1.kind),
        ("cpu", "slurm_a/uid_7/job_4", IDLE1.kind),
    ]
    assert found(tmp_path, "a") == of_a
    assert found(tmp_path) == sorted([*of_a, ("cpu", "gangd_b_job_2", IDLE1.kind)])
    for root, path, knob in low_groups(None, tmp_path):
        assert knob.restore(root, path)
    assert found(tmp_path) == []
    assert fake.read("other") == "1"


def test_low_jobs_of_a_unified_hierarchy_are_found(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu")
    (job := tmp_path / "system.slice/a_slurmstepd.scope/job_5").mkdir(parents=True)
    (job / "cpu.idle").write_text("1")
    (job / "cpu.weight").write_text("0")
    for name in ("gangd_a_job_6", "gangd_x_job_7", "gangd_a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpu.weight").write_text("1")
    assert found(tmp_path, "b") == []
    assert found(tmp_path, "a") == [
        (tmp_path.name, "gangd_a_job_6", IDLE2.kind),
        (tmp_path.name, "system.slice/a_slurmstepd.scope/job_5", IDLE2.kind),
    ]
    for root, path, knob in low_groups(None, tmp_path):
        assert knob.restore(root, path)
    assert found(tmp_path) == []
    assert (tmp_path / "gangd_x_job_7" / "cpu.weight").read_text() == "100"
    assert (tmp_path / "gangd_a" / "cpu.weight").read_text() == "1"


def test_the_thaw_tool_reports_what_yields_for_no_agent_and_scan_gives_it_back(tmp_path: Path) -> None:
    fake = FakeCpu1(tmp_path / "cpu")
    for path in ("gangd_a_job_1", "gangd_a_job_2"):
        fake.make(path)
        (fake.root / path / "cpu.idle").write_text("1")
    (folder := tmp_path / "agents").mkdir(mode=0o700)
    state = StateFile.create(folder / "agent-a.state", "a", "/", str(fake.root))
    slot = state.claim_cgroup(IDLE1.kind, "gangd_a_job_1", 1)
    assert slot is not None
    state.hold(slot)
    state.set_word(Word.LEASE_NS, time.monotonic_ns() + 60_000_000_000)  # this process is the agent, and runs
    blow = ThawReport()
    find_low(folder, None, blow, mount=tmp_path)
    assert blow.low == [str(fake.root / "gangd_a_job_2")]
    raise_scanned("b", blow, mount=tmp_path)
    assert fake.read("gangd_a_job_2") == "1"
    raise_scanned("a", blow, dry_run=True, mount=tmp_path)
    assert fake.read("gangd_a_job_2") == "1"
    blow = ThawReport()
    raise_scanned("a", blow, mount=tmp_path)
    assert fake.read("gangd_a_job_1") == fake.read("gangd_a_job_2") == "0"
    assert len(blow.scanned) == 2
    find_low(folder, None, blow, mount=tmp_path)
    assert blow.low == []
    state.close()


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("knob", KNOBS.values(), ids=lambda knob: f"{knob.file} {knob.kind}")
def test_guardian_restores_by_what_the_ledger_says_alone(
    tmp_path: Path, knob: CpuWeightControl, own: bool
) -> None:
    of_slurm = "system.slice/slurmstepd.scope/job_1" if knob.unified else "slurm_a/uid_7/job_1"
    path = "gangd_a_job_1" if own else of_slurm
    (folder := tmp_path / "root" / path).mkdir(parents=True)
    (folder / "cpu.idle").write_text("1")
    (folder / knob.weight_file).write_text(str(knob.least))
    state = StateFile.create(tmp_path / "agent-a.state", "a", "/", str(tmp_path / "root"))
    slot = state.claim_cgroup(knob.kind, path, 1)
    other = state.claim_cgroup(knob.kind, "../outside", 1)
    assert slot is not None
    assert other is not None
    assert not thaw_held(state).jobs
    state.hold(slot)
    state.hold(other)
    revived = thaw_held(state)
    assert revived.jobs == {1}
    assert revived.gone == 1  # what is no such path is not touched
    assert (folder / "cpu.idle").read_text() == "0"
    assert int((folder / knob.weight_file).read_text()) == knob.usual
    state.close()


def test_killed_agents_jobs_get_their_priority_back(tmp_path: Path, children: Children) -> None:
    if os.geteuid() != 0 or not (CPU1 / "cgroup.procs").exists():
        pytest.skip("needs root and a cgroup v1 cpu hierarchy")
    node = f"osubtest{os.getpid()}"
    child = subprocess.Popen([sys.executable, "-c", PIN.format(cpu=a_cpu())], stdout=subprocess.PIPE)
    children.append(child)
    state = StateFile.create(tmp_path / "agent-a.state", node, "/", str(CPU1))
    groups = OwnGroups(CPU1, IDLE1, node, state)
    groups.gather({1: lambda: (child.pid,)})
    assert groups.hold(1).did is Did.WROTE
    file = CPU1 / own_group(node, 1) / "cpu.idle"
    assert file.read_text() == "1\n"
    assert thaw_held(state).jobs == {1}
    assert file.read_text() == "0\n"
    child.kill()
    child.wait()
    until(lambda: not (file.parent / "cgroup.procs").read_text(), what="an empty group")
    remove_groups(CPU1, node)
    state.close()
