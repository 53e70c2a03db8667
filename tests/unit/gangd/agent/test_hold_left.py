from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gangd.agent.thaw_tool import ThawReport, find_low, low_groups, raise_scanned
from gangd.freezer.holder import Did
from gangd.freezer.tree import own_group
from gangd.guardian.guardian_watch import thaw_held
from gangd.guardian.statefile import StateFile, Word
from gangd.hold.cpu_priority import IDLE1, IDLE2, KNOBS, CpuWeightControl
from gangd.hold.own_groups import OwnGroups
from tests.fixtures.gang_yield import CPU1, PIN, FakeCpu1, a_cpu, remove_groups
from tests.fixtures.looks import until

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
