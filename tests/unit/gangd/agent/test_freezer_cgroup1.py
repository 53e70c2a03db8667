from __future__ import annotations

from pathlib import Path

import pytest

from foundation.errors import HostError
from gangd.freezer.cgroup_freezer import CgroupFreezer
from gangd.freezer.holder import Did, StepKey, StepState
from gangd.freezer.tree import CGROUP1
from tests.fixtures.gang_host import SLEEP, SPIN, FakeV1, RealCgroups, is_suspended, runs
from tests.fixtures.looks import until
from tests.fixtures.no_ledger import NoLedger

BATCH = StepKey(12, "batch")


def freezer_on(root: Path, node: str = "a") -> CgroupFreezer:
    return CgroupFreezer(root, CGROUP1, node, NoLedger())


def seen(freezer: CgroupFreezer) -> list[str]:
    return sorted(str(step.key) for step in freezer.adopt(freezer.look()))


def test_finds_the_steps_of_its_node_and_no_others(fake_v1: FakeV1) -> None:
    fake_v1.step(12, "batch")
    fake_v1.step(12, "0")
    fake_v1.step(13, "extern")
    fake_v1.step(14, "0", node="b")
    (fake_v1.root / "slurm_a/uid_7/job_12/task_0").mkdir()
    (fake_v1.root / "slurm_a/uid_7/job_x/step_0").mkdir(parents=True)
    (fake_v1.root / "system.slice/job_1/step_0").mkdir(parents=True)
    assert seen(freezer_on(fake_v1.root)) == ["12.0", "12.batch", "13.extern"]


def test_takes_the_unnamed_folder_only_without_one_of_its_own_name(fake_v1: FakeV1) -> None:
    (path := fake_v1.root / "slurm/uid_7/job_3/step_0").mkdir(parents=True)
    (path / "freezer.state").write_text("THAWED")
    (path / "cgroup.procs").write_text("")
    assert seen(freezer_on(fake_v1.root)) == ["3.0"]
    fake_v1.step(4, "0")
    assert seen(freezer_on(fake_v1.root)) == ["4.0"]


def test_account_that_is_made_after_the_step_is_found_when_it_is_asked_for(
    fake_v1: FakeV1, tmp_path: Path
) -> None:
    step = fake_v1.step(12, "batch")
    freezer = CgroupFreezer(fake_v1.root, CGROUP1, "a", NoLedger(), tmp_path / "cpuacct")
    freezer.adopt(freezer.look())
    assert freezer.cpu_ns(12) is None
    assert freezer.account(12) is None
    account = tmp_path / "cpuacct" / step.parent.relative_to(fake_v1.root) / "cpuacct.usage"
    account.parent.mkdir(parents=True)
    account.write_text("17\n")
    assert freezer.cpu_ns(12) == 17
    assert freezer.account(12) is not None
    account.write_text("torn")
    assert freezer.cpu_ns(12) is None
    freezer.close()


def test_writes_only_differences(fake_v1: FakeV1) -> None:
    path = fake_v1.step(12, "batch")
    freezer = freezer_on(fake_v1.root)
    seen(freezer)
    assert freezer.release(BATCH).did is Did.NOTHING
    assert freezer.hold(BATCH).did is Did.WROTE
    assert (path / "freezer.state").read_text() == "FROZEN"
    assert freezer.hold(BATCH).did is Did.NOTHING
    assert freezer.release(BATCH).did is Did.WROTE
    assert (path / "freezer.state").read_text() == "THAWED"


def test_does_not_thaw_what_it_did_not_freeze(fake_v1: FakeV1) -> None:
    (fake_v1.step(12, "batch") / "freezer.state").write_text("FROZEN")
    freezer = freezer_on(fake_v1.root)
    seen(freezer)
    assert freezer.release(BATCH).did is Did.NOTHING
    assert freezer.state(BATCH) is StepState.FROZEN


def test_disowned_step_stays_frozen(fake_v1: FakeV1) -> None:
    path = fake_v1.step(12, "batch")
    freezer = freezer_on(fake_v1.root)
    seen(freezer)
    freezer.hold(BATCH)
    freezer.disown(BATCH)
    assert freezer.release(BATCH).did is Did.NOTHING
    assert (path / "freezer.state").read_text() == "FROZEN"


def test_follows_no_symbolic_link(fake_v1: FakeV1, tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    (outside / "freezer.state").write_text("THAWED")
    (outside / "cgroup.procs").write_text("")
    path = fake_v1.step(12, "batch")
    (path.parent / "step_5").symlink_to(outside)
    freezer = freezer_on(fake_v1.root)
    found = freezer.look()
    assert [str(step.key) for step in found] == ["12.batch"]
    path.rename(tmp_path / "moved")
    path.symlink_to(outside)  # swapped between look and open
    assert freezer.adopt(found) == ()
    assert freezer.hold(BATCH).did is Did.GONE
    assert (outside / "freezer.state").read_text() == "THAWED"


def test_vanished_step_is_a_value(fake_v1: FakeV1) -> None:
    path = fake_v1.step(12, "batch")
    freezer = freezer_on(fake_v1.root)
    seen(freezer)
    fake_v1.remove(path)
    assert seen(freezer) == []
    assert freezer.hold(BATCH).did is Did.GONE
    assert freezer.state(BATCH) is StepState.GONE
    assert freezer.pids(BATCH) == ()


def test_missing_hierarchy_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="--root"):
        freezer_on(tmp_path / "absent")


def test_real_step_stays_stopped_and_goes_on(real_v1: RealCgroups) -> None:
    spinner = real_v1.spawn(real_v1.make("slurm_a/uid_0/job_12/step_batch"), SPIN)
    other = real_v1.spawn(real_v1.make("slurm_a/uid_0/job_13/step_0"), SPIN)
    freezer = freezer_on(real_v1.root)
    assert seen(freezer) == ["12.batch", "13.0"]
    assert freezer.pids(BATCH) == (spinner,)
    freezer.hold(BATCH)
    until(lambda: freezer.state(BATCH) is StepState.FROZEN)
    assert is_suspended(spinner)
    assert runs(other)
    freezer.release(BATCH)
    assert freezer.state(BATCH) is StepState.THAWED
    assert runs(spinner)
    freezer.close()


def test_real_step_that_is_removed_while_open_is_gone(real_v1: RealCgroups) -> None:
    step = real_v1.make("slurm_a/uid_0/job_12/step_batch")
    freezer = freezer_on(real_v1.root)
    seen(freezer)
    step.rmdir()
    assert freezer.state(BATCH) is StepState.GONE
    assert freezer.hold(BATCH).did is Did.GONE
    step.mkdir()  # requeued: same name, new cgroup
    assert seen(freezer) == ["12.batch"]
    assert freezer.hold(BATCH).did is Did.WROTE
    freezer.close()


def test_real_processes_in_cgroups_of_the_job_itself_are_found(real_v1: RealCgroups) -> None:
    spinner = real_v1.spawn(real_v1.make("slurm_a/uid_0/job_12/step_batch/own"), SPIN)
    freezer = freezer_on(real_v1.root)
    seen(freezer)
    assert freezer.pids(BATCH) == (spinner,)
    freezer.hold(BATCH)
    until(lambda: freezer.state(BATCH) is StepState.FROZEN)
    assert is_suspended(spinner)
    freezer.close()


def test_real_process_born_in_a_frozen_step_is_frozen(real_v1: RealCgroups) -> None:
    step = real_v1.make("slurm_a/uid_0/job_12/step_batch")
    forking = "import os\nwhile True:\n    os.fork() or os._exit(0)\n    os.wait()"
    real_v1.spawn(step, ["python3", "-c", forking])
    freezer = freezer_on(real_v1.root)
    seen(freezer)
    for _ in range(20):
        freezer.hold(BATCH)
        until(lambda: freezer.state(BATCH) is StepState.FROZEN, what="FROZEN under a fork storm")
        freezer.release(BATCH)
    freezer.close()


def test_real_processes_that_begin_between_two_readings_are_found(real_v1: RealCgroups) -> None:
    step = real_v1.make("slurm_a/uid_0/job_12/step_batch")
    first = real_v1.spawn(step, SLEEP)
    freezer = freezer_on(real_v1.root)
    seen(freezer)
    assert freezer.pids(BATCH) == (first,)
    second = real_v1.spawn(step, SLEEP)
    assert set(freezer.pids(BATCH)) == {first, second}
    freezer.close()


def test_real_cgroup_that_the_job_froze_itself_stays_frozen_and_is_a_trouble(real_v1: RealCgroups) -> None:
    spinner = real_v1.spawn(real_v1.make("slurm_a/uid_0/job_12/step_batch"), SPIN)
    inner = real_v1.make("slurm_a/uid_0/job_12/step_batch/$(inner)")
    nested = real_v1.spawn(inner, SPIN)
    freezer = freezer_on(real_v1.root)
    freezer.adopt(freezer.look())
    assert freezer.troubles() == []
    (inner / "freezer.state").write_text("FROZEN")
    until(lambda: is_suspended(nested))
    assert freezer.state(BATCH) is StepState.THAWED  # by what gangd did, not by what is below
    for _ in range(2):
        freezer.hold(BATCH)
        until(lambda: freezer.state(BATCH) is StepState.FROZEN)
        assert [one.kind for one in freezer.troubles()] == ["nested_freeze"]
        freezer.release(BATCH)
        until(lambda: freezer.state(BATCH) is StepState.THAWED)
        assert runs(spinner)
        assert is_suspended(nested)
    (trouble,) = freezer.troubles()
    assert trouble.job == 12
    assert "inner" not in trouble.text  # a name that a user chose
    (inner / "freezer.state").write_text("THAWED")
    assert freezer.troubles() == []
    freezer.close()
