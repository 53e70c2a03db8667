from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from gangd.freezer.cgroup_freezer import CgroupFreezer
from gangd.freezer.holder import Did, StepKey, StepState
from gangd.freezer.tree import CGROUP2
from gangd.guardian.guardian_watch import thaw_held
from gangd.guardian.statefile import StateFile
from tests.fixtures.gang_host import SLEEP, SPIN, RealCgroups, is_suspended, runs
from tests.fixtures.looks import until
from tests.fixtures.no_ledger import NoLedger

SCOPE = "system.slice/a_slurmstepd.scope"
KEY = StepKey(12, "0")


def freezer_on(root: Path) -> CgroupFreezer:
    return CgroupFreezer(root, CGROUP2, "a", NoLedger())


def test_only_task_cgroups_below_user_may_be_frozen() -> None:
    assert CGROUP2.allows(f"{SCOPE}/job_1/step_0/user/task_0")
    assert CGROUP2.allows(f"{SCOPE}/job_1/step_extern/user/task_special")
    assert CGROUP2.allows("slurmstepd.scope/job_1/step_0/user")
    for path in (
        f"{SCOPE}/job_1/step_0/slurm",
        f"{SCOPE}/job_1/step_0",
        f"{SCOPE}/job_1",
        f"{SCOPE}/system",
        "system.slice/sshd.service",
        f"{SCOPE}/job_1/step_0/user/../slurm",
        f"../{SCOPE}/job_1/step_0/user",
        f"{SCOPE}/job_1/step_0/user/task_0\n",
    ):
        assert CGROUP2.allows(path) is None, path


def test_freezes_tasks_and_leaves_slurmstepds_cgroup_alone(real_v2: RealCgroups) -> None:
    first = real_v2.spawn(real_v2.make(f"{SCOPE}/job_12/step_0/user/task_0"), SPIN)
    second = real_v2.spawn(real_v2.make(f"{SCOPE}/job_12/step_0/user/task_1"), SPIN)
    stepd = real_v2.spawn(real_v2.make(f"{SCOPE}/job_12/step_0/slurm"), SPIN)
    freezer = freezer_on(real_v2.root)
    (step,) = freezer.adopt(freezer.look())
    assert (step.key, len(step.paths)) == (KEY, 2)
    assert set(freezer.pids(KEY)) == {first, second}
    assert freezer.hold(KEY).did is Did.WROTE
    until(lambda: freezer.state(KEY) is StepState.FROZEN)
    assert is_suspended(first)
    assert is_suspended(second)
    assert runs(stepd)
    freezer.release(KEY)
    until(lambda: freezer.state(KEY) is StepState.THAWED)
    assert runs(first)
    assert runs(second)
    freezer.close()


def test_task_that_starts_in_a_held_step_is_caught_by_the_next_look(real_v2: RealCgroups) -> None:
    real_v2.spawn(real_v2.make(f"{SCOPE}/job_12/step_0/user/task_0"), SPIN)
    freezer = freezer_on(real_v2.root)
    freezer.adopt(freezer.look())
    freezer.hold(KEY)
    until(lambda: freezer.state(KEY) is StepState.FROZEN)
    late = real_v2.spawn(real_v2.make(f"{SCOPE}/job_12/step_0/user/task_1"), SPIN)
    assert runs(late)
    freezer.adopt(freezer.look())
    assert freezer.hold(KEY).did is Did.WROTE
    until(lambda: freezer.state(KEY) is StepState.FROZEN)
    assert is_suspended(late)
    freezer.close()


def test_suspension_by_slurm_outlives_our_thaw(real_v2: RealCgroups) -> None:
    spinner = real_v2.spawn(real_v2.make(f"{SCOPE}/job_12/step_0/user/task_0"), SPIN)
    freezer = freezer_on(real_v2.root)
    freezer.adopt(freezer.look())
    freezer.hold(KEY)
    (real_v2.root / SCOPE / "job_12/step_0/user/cgroup.freeze").write_text("1")  # as Slurm suspends
    freezer.release(KEY)
    until(lambda: freezer.state(KEY) is StepState.FROZEN)
    assert is_suspended(spinner)
    freezer.close()


def test_accounts_the_cpu_time_of_ended_processes_too(real_v2: RealCgroups) -> None:
    task = real_v2.make(f"{SCOPE}/job_12/step_0/user/task_0")
    freezer = freezer_on(real_v2.root)
    freezer.adopt(freezer.look())
    real_v2.spawn(task, ["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"])
    until(lambda: freezer.pids(KEY) == (), what="the end of the task")
    until(lambda: (freezer.cpu_ns(12) or 0) > 1_000_000, what="accounted CPU time")
    freezer.close()


def test_a_job_has_one_account_which_its_ended_tasks_stay_in(real_v2: RealCgroups) -> None:
    tasks = [real_v2.make(f"{SCOPE}/job_12/step_0/user/task_{number}") for number in range(2)]
    real_v2.spawn(tasks[1], SLEEP)
    freezer = freezer_on(real_v2.root)
    freezer.adopt(freezer.look())
    account = freezer.account(12)
    assert account is not None
    assert account.in_lines
    pid = real_v2.spawn(tasks[0], SPIN)
    until(lambda: (freezer.cpu_ns(12) or 0) > 10_000_000, what="accounted CPU time")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not (tasks[0] / "cgroup.procs").read_text(), what="the end of the task")
    used_ns = freezer.cpu_ns(12)
    assert used_ns is not None
    tasks[0].rmdir()
    freezer.adopt(freezer.look())
    assert (freezer.cpu_ns(12) or 0) >= used_ns
    freezer.close()


def test_killed_while_frozen_dies(real_v2: RealCgroups) -> None:
    """Unlike in v1: a kill of a frozen job needs no thaw."""
    spinner = real_v2.spawn(real_v2.make(f"{SCOPE}/job_12/step_0/user/task_0"), SPIN)
    freezer = freezer_on(real_v2.root)
    freezer.adopt(freezer.look())
    freezer.hold(KEY)
    until(lambda: freezer.state(KEY) is StepState.FROZEN)
    (real_v2.root / SCOPE / "job_12/cgroup.kill").write_text("1")
    until(lambda: spinner not in freezer.pids(KEY), what="death of the frozen task")
    freezer.close()


def test_look_is_quick_enough_for_every_slice(real_v2: RealCgroups) -> None:
    for job in range(20):
        real_v2.make(f"{SCOPE}/job_{job}/step_0/user/task_0")
    freezer = freezer_on(real_v2.root)
    start = time.perf_counter()
    assert len(freezer.adopt(freezer.look())) == 20
    print(f"first look at 20 steps: {1e3 * (time.perf_counter() - start):.2f} ms")
    freezer.close()


USER = f"{SCOPE}/job_12/step_0/user"


def late_task(cgroups: RealCgroups, task: str) -> int:
    """Start a task outside and move it in, as slurmstepd does."""
    pid = cgroups.spawn(cgroups.root, SPIN)
    (cgroups.make(task) / "cgroup.procs").write_text(str(pid))
    return pid


def test_task_that_comes_late_leaves_what_is_frozen_on_record(real_v2: RealCgroups, tmp_path: Path) -> None:
    """A step without task folders is held through ``user``; a task that appears changes nothing of that."""
    first = real_v2.spawn(real_v2.make(USER), SPIN)
    ledger = StateFile.create(tmp_path / "ledger", "a", str(real_v2.root))
    freezer = CgroupFreezer(real_v2.root, CGROUP2, "a", ledger)
    freezer.adopt(freezer.look())
    assert freezer.hold(KEY).did is Did.WROTE
    late = late_task(real_v2, f"{USER}/task_0")
    freezer.adopt(freezer.look())
    assert [held.path for held in ledger.held()] == [USER]
    assert freezer.hold(KEY).did is Did.WROTE  # the task itself
    assert is_suspended(late)
    assert freezer.release(KEY).did is Did.WROTE
    assert (real_v2.root / USER / "cgroup.freeze").read_text() == "0\n"
    assert runs(late)
    assert runs(first)
    assert not list(ledger.held())
    freezer.close()
    ledger.close()


def test_guardian_knows_of_a_step_with_a_late_task(real_v2: RealCgroups, tmp_path: Path) -> None:
    first = real_v2.spawn(real_v2.make(USER), SPIN)
    ledger = StateFile.create(tmp_path / "ledger", "a", str(real_v2.root))
    freezer = CgroupFreezer(real_v2.root, CGROUP2, "a", ledger)
    freezer.adopt(freezer.look())
    freezer.hold(KEY)
    late = late_task(real_v2, f"{USER}/task_0")
    freezer.adopt(freezer.look())
    freezer.hold(KEY)
    freezer.close()  # what is frozen stays on record
    assert thaw_held(ledger).jobs == {12}
    assert runs(first)
    assert runs(late)
    ledger.close()


def test_step_whose_tasks_have_not_begun_is_not_frozen(real_v2: RealCgroups) -> None:
    """slurmstepd would wait for a task that is frozen before it begins."""
    real_v2.make(USER)
    freezer = freezer_on(real_v2.root)
    [step] = freezer.adopt(freezer.look())
    assert step.is_empty
    assert freezer.hold(KEY).did is Did.GONE
    assert runs(late_task(real_v2, f"{USER}/task_0"))
    [step] = freezer.adopt(freezer.look())
    assert not step.is_empty
    assert freezer.hold(KEY).did is Did.WROTE
    freezer.release(KEY)
    freezer.close()


def stepd(cgroups: RealCgroups, folder: Path, cgroup: Path, title: str) -> None:
    """Start what passes for the slurmstepd of a step, in a cgroup."""
    program = folder / "slurmstepd-wlm"
    if not program.exists():
        shutil.copy(shutil.which("dash") or "/bin/sh", program)
    words = [f"slurmstepd: [{title}]", "-c", "printf slurmstepd > /proc/$$/comm; sleep 1000 & wait"]
    pid = cgroups.spawn(cgroup, words, executable=program)
    until(lambda: Path(f"/proc/{pid}/comm").read_text() == "slurmstepd\n", what="a slurmstepd")


def test_finds_jobs_by_number_and_by_sluid(real_v2: RealCgroups, tmp_path: Path) -> None:
    """Slurm 26.05 names a job's folder by SLUID: its slurmstepd tells which job that is."""
    new, foreign = f"{SCOPE}/sEKNKTV3WPV500", f"{SCOPE}/sEKNKTV3WPV501"
    spinner = real_v2.spawn(real_v2.make(f"{new}/step_0/user/task_0"), SPIN)
    real_v2.make(f"{SCOPE}/job_11/step_batch/user/task_0")
    real_v2.make(f"{foreign}/step_0/user/task_0")
    real_v2.spawn(real_v2.make(f"{foreign}/step_0/slurm"), SPIN)  # no slurmstepd
    daemon = real_v2.make(f"{new}/step_0/slurm")
    stepd(real_v2, tmp_path, daemon, "12.0")
    freezer = freezer_on(real_v2.root)
    assert {str(step.key) for step in freezer.adopt(freezer.look())} == {"11.batch", "12.0"}
    freezer.hold(KEY)
    until(lambda: freezer.state(KEY) is StepState.FROZEN, 60)
    assert is_suspended(spinner)
    (daemon / "cgroup.kill").write_text("1")
    until(lambda: not (daemon / "cgroup.procs").read_text(), what="the end of slurmstepd")
    for job in range(2, 4):  # a job that was reported once is not forgotten
        real_v2.make(f"{SCOPE}/job_{job}/step_0/user/task_0")
        assert KEY in {step.key for step in freezer.adopt(freezer.look())}
    freezer.release(KEY)
    assert runs(spinner)
    freezer.close()


def test_cgroup_that_the_job_froze_itself_stays_frozen_and_is_a_trouble(real_v2: RealCgroups) -> None:
    spinner = real_v2.spawn(real_v2.make(f"{SCOPE}/job_12/step_0/user/task_0"), SPIN)
    inner = real_v2.make(f"{SCOPE}/job_12/step_0/user/task_0/inner")
    nested = real_v2.spawn(inner, SPIN)
    freezer = freezer_on(real_v2.root)
    freezer.adopt(freezer.look())
    (inner / "cgroup.freeze").write_text("1")
    until(lambda: is_suspended(nested))
    assert freezer.state(KEY) is StepState.THAWED
    freezer.hold(KEY)
    until(lambda: freezer.state(KEY) is StepState.FROZEN)
    freezer.release(KEY)
    until(lambda: freezer.state(KEY) is StepState.THAWED)
    assert runs(spinner)
    assert is_suspended(nested)
    assert [(one.kind, one.job) for one in freezer.troubles()] == [("nested_freeze", 12)]
    freezer.close()
