from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangd.freezer.holder import Did, Step, StepKey
from gangd.hold.cpu_priority import IDLE1, IDLE2, SHARES1, WEIGHT2, CpuWeightControl
from gangd.hold.slurm_job_folders import JobFolders
from tests.fixtures.gang_yield import CPU1, PIN, FakeCpu1, a_cpu, shares
from tests.fixtures.looks import until
from tests.fixtures.no_ledger import NoLedger

Children = list[subprocess.Popen[bytes]]
SCOPE = "system.slice/a_slurmstepd.scope"
NO_PROCESSES = dict.fromkeys((1, 2, 3), lambda: ())


def step2(job: int) -> Step:
    return Step(StepKey(job, "0"), None, (f"{SCOPE}/job_{job}/step_0/user/task_0",))


def step1(job: int, uid: int, node: str = "a") -> Step:
    return Step(StepKey(job, "0"), uid, (f"slurm_{node}/uid_{uid}/job_{job}/step_0",))


class FakeCpu2:
    """Folders and plain files in the shape of Slurm's cgroup v2 tree."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / SCOPE).mkdir(parents=True)
        (root / SCOPE / "cgroup.subtree_control").write_text("")

    def job(self, job: int, *, weight: str = "100", cpu: bool = True) -> Path:
        (folder := self.root / SCOPE / f"job_{job}").mkdir()
        if cpu:
            (folder / "cpu.weight").write_text(weight)
            (folder / "cpu.idle").write_text("0")
        return folder


@pytest.fixture
def fake2(tmp_path: Path) -> FakeCpu2:
    return FakeCpu2(tmp_path)


@pytest.mark.parametrize(
    ("knob", "file", "low", "back"), [(IDLE2, "idle", "1", "0"), (WEIGHT2, "weight", "1", "100")]
)
def test_job_folder_is_turned_and_turned_back(
    fake2: FakeCpu2, knob: CpuWeightControl, file: str, low: str, back: str
) -> None:
    job = fake2.job(1)
    other = fake2.job(2)
    folders = JobFolders(fake2.root, knob, NoLedger())
    assert not folders.gather(NO_PROCESSES)
    folders.adopt((step2(1), step2(2)))
    assert folders.hold(1).did is Did.WROTE
    assert folders.hold(1).did is Did.NOTHING
    assert (job / f"cpu.{file}").read_text().startswith(low)
    assert (other / f"cpu.{file}").read_text() == back
    assert folders.release(1).did is Did.WROTE
    assert (job / f"cpu.{file}").read_text().startswith(back)
    assert folders.release(1).did is Did.NOTHING
    folders.close()


def test_weight_that_the_site_gave_comes_back(fake2: FakeCpu2) -> None:
    job = fake2.job(1, weight="250")
    folders = JobFolders(fake2.root, IDLE2, NoLedger())
    folders.gather(NO_PROCESSES)
    folders.adopt((step2(1),))
    folders.hold(1)
    (job / "cpu.weight").write_text("100")  # as the kernel leaves it
    folders.release(1)
    assert (job / "cpu.weight").read_text() == "250"
    folders.close()


def test_jobs_that_do_not_yield_are_not_opened(fake2: FakeCpu2) -> None:
    fake2.job(1)
    folders = JobFolders(fake2.root, IDLE2, NoLedger())
    folders.gather({})
    folders.adopt((step2(1),))
    assert folders.hold(1).did is Did.GONE


def test_job_that_yields_no_more_or_is_gone_is_let_go(fake2: FakeCpu2) -> None:
    job = fake2.job(1)
    folders = JobFolders(fake2.root, IDLE2, NoLedger())
    folders.gather(NO_PROCESSES)
    folders.adopt((step2(1),))
    folders.hold(1)
    folders.gather({})
    folders.adopt((step2(1),))
    assert (job / "cpu.idle").read_text() == "0"
    folders.adopt(())
    assert folders.hold(1).did is Did.GONE


def test_cpu_is_enabled_in_slurms_own_scope_and_nowhere_else(fake2: FakeCpu2) -> None:
    fake2.job(1, cpu=False)
    folders = JobFolders(fake2.root, IDLE2, NoLedger())
    folders.gather(NO_PROCESSES)
    folders.adopt((step2(1),))
    assert (fake2.root / SCOPE / "cgroup.subtree_control").read_text() == "+cpu"
    assert not (fake2.root / "system.slice" / "cgroup.subtree_control").exists()
    assert "cpu.idle" in folders.troubles()[1]  # a plain file enables nothing
    assert folders.hold(1).did is Did.GONE


def test_follows_no_symbolic_link(fake2: FakeCpu2, tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    (outside / "cpu.idle").write_text("0")
    (outside / "cpu.weight").write_text("100")
    (fake2.root / SCOPE / "job_1").symlink_to(outside)
    folders = JobFolders(fake2.root, IDLE2, NoLedger())
    folders.gather(NO_PROCESSES)
    folders.adopt((step2(1),))
    assert folders.hold(1).did is Did.GONE
    assert (outside / "cpu.idle").read_text() == "0"


@pytest.mark.parametrize("knob", [IDLE1, SHARES1])
def test_users_folder_yields_while_all_of_his_jobs_do(tmp_path: Path, knob: CpuWeightControl) -> None:
    fake = FakeCpu1(tmp_path / "cpu")
    for path in ("slurm_a/uid_7/job_1", "slurm_a/uid_7/job_2", "slurm_a/uid_8/job_3"):
        fake.make(path)
    low = {"cpu.idle": "1", "cpu.shares": "2"}[knob.file]

    def is_low(path: str) -> bool:
        return fake.read(path, knob.file)[: len(low)] == low and fake.read(path, knob.file) != "1024"

    folders = JobFolders(fake.root, knob, NoLedger())
    folders.gather(NO_PROCESSES)
    steps = (step1(1, 7), step1(2, 7), step1(3, 8))
    folders.adopt(steps)
    folders.hold(1)
    assert is_low("slurm_a/uid_7/job_1")
    assert not is_low("slurm_a/uid_7")
    folders.hold(2)
    assert is_low("slurm_a/uid_7")
    assert not is_low("slurm_a/uid_8")
    folders.release(1)
    assert not is_low("slurm_a/uid_7")
    assert not is_low("slurm_a/uid_7/job_1")
    assert is_low("slurm_a/uid_7/job_2")
    folders.hold(3)
    assert is_low("slurm_a/uid_8")
    folders.close()
    for path in ("slurm_a/uid_7", "slurm_a/uid_7/job_2", "slurm_a/uid_8", "slurm_a/uid_8/job_3"):
        assert not is_low(path), path


def test_job_that_begins_lifts_its_user_up(tmp_path: Path) -> None:
    fake = FakeCpu1(tmp_path / "cpu")
    fake.make("slurm_a/uid_7/job_1")
    folders = JobFolders(fake.root, IDLE1, NoLedger())
    folders.gather({1: lambda: ()})
    folders.adopt((step1(1, 7),))
    folders.hold(1)
    assert fake.read("slurm_a/uid_7") == "1"
    fake.make("slurm_a/uid_7/job_2")  # shares nothing, so it is never gathered
    folders.adopt((step1(1, 7), step1(2, 7)))
    assert fake.read("slurm_a/uid_7") == "0"
    folders.close()


@pytest.fixture
def tree() -> Iterator[Path]:
    if os.geteuid() != 0 or not (CPU1 / "cgroup.procs").exists():
        pytest.skip("needs root and a cgroup v1 cpu hierarchy")
    (top := CPU1 / f"slurm_osubtest{os.getpid()}").mkdir()
    (top / "cpu.shares").write_text("8192")  # most of a core, whatever else this host does
    yield top
    folders = sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True)
    for folder in [*folders, top]:
        until(lambda folder=folder: not (folder / "cgroup.procs").read_text(), what="an empty group")  # type: ignore[misc]
        folder.rmdir()


def inside(children: Children, folder: Path, cpu: int) -> int:
    folder.mkdir(parents=True)
    child = subprocess.Popen([sys.executable, "-c", PIN.format(cpu=cpu)], stdout=subprocess.PIPE)
    children.append(child)
    assert child.stdout is not None
    child.stdout.readline()
    (folder / "cgroup.procs").write_text(str(child.pid))
    return child.pid


@pytest.mark.slow
def test_really_yields_to_another_user_also_while_another_job_of_his_runs(
    tree: Path, children: Children
) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    node = tree.name.removeprefix("slurm_")
    held = inside(children, tree / "uid_7/job_1/step_0/task_0", a_cpu())
    owner = inside(children, tree / "uid_8/job_3/step_0/task_0", a_cpu())
    folders = JobFolders(CPU1, IDLE1, NoLedger())
    folders.gather(NO_PROCESSES)
    folders.adopt((step1(1, 7, node), step1(3, 8, node)))
    folders.hold(1)
    assert shares([held, owner])[0] < 0.1
    if len(cpus) > 1:
        inside(children, tree / "uid_7/job_2/step_0/task_0", cpus[0])
        folders.adopt((step1(1, 7, node), step1(2, 7, node), step1(3, 8, node)))
        assert (tree / "uid_7/cpu.idle").read_text() == "0\n"
        assert shares([held, owner])[0] < 0.1
    folders.release(1)
    assert (tree / "uid_7/job_1/cpu.idle").read_text() == "0\n"
    folders.close()
    for child in children:
        child.kill()
        child.wait()
