"""Which of Slurm's folders are found, in every form of their names, and that none is missed in silence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangd.freezer import slurm_layout
from gangd.freezer.membership import step_of_title
from gangd.freezer.procfs import is_slurm_daemon, is_slurmstepd
from gangd.freezer.tree import CGROUP1, CGROUP2
from osub.live.job_folders import job_folders
from tests.fixtures.looks import until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make folders of another user")
SCOPE = "system.slice/a_slurmstepd.scope"
SLUID = "sEKNKTV3WPV500"
USER = 1500


class Host:
    """A unified hierarchy and a /proc on plain files."""

    def __init__(self, folder: Path) -> None:
        self.root, self.proc = folder / "cgroup", folder / "proc"
        self._bin = folder / "bin/slurmstepd-wlm"
        for made in (self.root, self.proc, self._bin.parent):
            made.mkdir()
        self._bin.write_text("")
        (self.root / "cgroup.procs").write_text("")
        self._pid = 100

    def group(self, path: str, *pids: int) -> Path:
        """Make a cgroup, its parents, and put processes into it."""
        folder = self.root
        for part in path.split("/"):
            folder /= part
            folder.mkdir(exist_ok=True)
            if not (folder / "cgroup.procs").exists():
                (folder / "cgroup.procs").write_text("")
        (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        return folder

    def process(self, title: str, *, comm: str = "slurmstepd", uid: int = 0, exe: Path | None = None) -> int:
        """Make a process; its executable is slurmstepd's, unless another is named."""
        self._pid += 1
        (folder := self.proc / str(self._pid)).mkdir()
        (folder / "comm").write_text(f"{comm}\n")
        (folder / "cmdline").write_bytes(title.replace(" ", "\0").encode() + b"\0\0")
        (folder / "exe").symlink_to(exe or self._bin)
        if uid:
            os.chown(folder, uid, uid)
        return self._pid

    def step(self, job: str, step: str, title: str | None = None) -> None:
        """Make a step with a task, and the slurmstepd that serves it if it has a title."""
        self.group(f"{job}/step_{step}/user/task_0", 1)
        stepd = [] if title is None else [self.process(f"slurmstepd: [{title}]")]
        self.group(f"{job}/step_{step}/slurm", *stepd)

    def found(self, node: str = "a") -> set[str]:
        bases = slurm_layout.slurm_roots(self.root, CGROUP2, node)
        return {str(step.key) for step in slurm_layout.find_steps(self.root, CGROUP2, bases, None, self.proc)}

    def unknown(self, node: str = "a") -> dict[str, str]:
        bases = slurm_layout.slurm_roots(self.root, CGROUP2, node)
        found = slurm_layout.unknown_folders(self.root, CGROUP2, bases, None, self.proc)
        return {one.path: one.why for one in found}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_every_form_of_a_jobs_folder_is_found(host: Host) -> None:
    host.step(f"{SCOPE}/job_11", "batch")
    host.step(f"{SCOPE}/{SLUID}", "0", "12.0")
    host.step(f"{SCOPE}/{SLUID}", "extern", "12.extern stepmgr")
    host.step(f"{SCOPE}/s0000000000010", "0+1", "13.0+1")
    host.step(f"{SCOPE}/sFNDM35NQ39R00", "interactive", "14.interactive")
    host.group(f"{SCOPE}/system", host.process("slurmstepd infinity"))
    assert host.found() == {"11.batch", "12.0", "12.extern", "13.0+1", "14.interactive"}
    assert host.unknown() == {}
    assert slurm_layout.recognise(host.root, CGROUP2, ("a",), host.proc).named == {"number": 1, "SLUID": 3}


@pytest.mark.parametrize(
    "scope",
    [
        "slurmstepd.scope",
        "system.slice/slurmstepd.scope",
        "slurm.slice/a_slurmstepd.scope",
        "machine.slice/docker-1.scope/system.slice/a_slurmstepd.scope",
    ],
)
def test_every_place_of_a_scope_is_found(host: Host, scope: str) -> None:
    host.step(f"{scope}/{SLUID}", "0", "12.0")
    assert host.found() == {"12.0"}
    assert slurm_layout.nodes_with_scopes(host.root) == ["a" if "a_" in scope else ""]


def test_of_several_nodes_on_a_host_each_finds_its_own(host: Host) -> None:
    for node, job in (("a", 11), ("b", 12)):
        host.step(f"system.slice/{node}_slurmstepd.scope/job_{job}", "0")
    assert (host.found("a"), host.found("b")) == ({"11.0"}, {"12.0"})
    assert slurm_layout.nodes_with_scopes(host.root) == ["a", "b"]


def test_a_job_whose_stepd_has_ended_is_remembered(host: Host) -> None:
    host.step(f"{SCOPE}/{SLUID}", "0", "12.0")
    bases, sluids = slurm_layout.slurm_roots(host.root, CGROUP2, "a"), dict[str, int]()
    slurm_layout.find_steps(host.root, CGROUP2, bases, sluids, host.proc)
    host.group(f"{SCOPE}/{SLUID}/step_0/slurm")
    steps = slurm_layout.find_steps(host.root, CGROUP2, bases, sluids, host.proc)
    assert [str(step.key) for step in steps] == ["12.0"]
    assert not list(slurm_layout.unknown_folders(host.root, CGROUP2, bases, sluids, host.proc))
    assert list(host.unknown().values()) == ["no slurmstepd tells which job it is"]


@pytest.mark.parametrize(
    "name",
    [
        "sEKNKTV3WPV50",
        "sEKNKTV3WPV5000",
        "SEKNKTV3WPV500",
        "seknktv3wpv500",
        "sGKNKTV3WPV500",
        "sEKNKTV3WPVI00",
        "sEKNKTV3WPVL00",
        "sEKNKTV3WPVO00",
        "sEKNKTV3WPVU00",
        "job_",
        "job_1x",
        "job_-1",
        "j12",
        "job-12",
    ],
)
def test_what_is_named_as_no_job_is_reported_if_something_runs_there(host: Host, name: str) -> None:
    host.step(f"{SCOPE}/{name}", "0", "12.0")
    assert host.found() == set()
    assert list(host.unknown()) == [f"{SCOPE}/{name}"]
    host.group(f"{SCOPE}/{name}/step_0/user/task_0")
    host.group(f"{SCOPE}/{name}/step_0/slurm")
    assert host.unknown() == {}


def test_a_step_that_is_named_as_none_is_reported(host: Host) -> None:
    host.step(f"{SCOPE}/job_11", "0")
    host.step(f"{SCOPE}/job_11", "TBD", "11.0")
    host.group(f"{SCOPE}/job_11/phase_1/user/task_0", 1)
    assert host.found() == {"11.0"}
    assert set(host.unknown()) == {f"{SCOPE}/job_11/step_TBD", f"{SCOPE}/job_11/phase_1"}


def test_two_stepds_that_disagree_are_believed_neither(host: Host) -> None:
    host.step(f"{SCOPE}/{SLUID}", "0")
    host.group(
        f"{SCOPE}/{SLUID}/step_0/slurm",
        host.process("slurmstepd: [12.0]"),
        host.process("slurmstepd: [13.0]"),
    )
    assert host.found() == set()
    assert len(host.unknown()) == 1


@needs_root
def test_a_users_process_that_calls_itself_slurmstepd_names_no_job(host: Host, tmp_path: Path) -> None:
    (own := tmp_path / "slurmstepd").write_text("")
    os.chown(own, USER, USER)
    host.step(f"{SCOPE}/{SLUID}", "0", "12.0")
    for title, more in (
        ("slurmstepd: [99.0]", {"uid": USER}),
        ("slurmstepd: [99.0]", {"uid": USER, "exe": own}),
        ("slurmstepd: [99.0]", {"uid": USER, "exe": tmp_path / "gone"}),
        ("slurmstepd: [99.0]", {"uid": USER, "comm": "slurmd"}),
    ):
        pid = host.process(title, **more)
        host.group(f"{SCOPE}/{SLUID}/step_0/user/task_0", pid)
        assert not is_slurmstepd(pid, host.proc)
        assert host.found() == {"12.0"}
        host.group(f"{SCOPE}/s0000000000010/step_0/user/task_0", pid)
        host.group(f"{SCOPE}/s0000000000010/step_0/slurm", pid)  # Slurm alone puts processes there
        assert host.found() == {"12.0"}


def test_a_hard_link_to_a_program_that_runs_as_root_is_no_daemon(host: Host, tmp_path: Path) -> None:
    """Where the kernel allows hard links to what another owns, a user names one as he likes."""
    for name in ("slurmstepd", "slurmd"):
        (program := tmp_path / name).write_text("su")
        program.chmod(0o755)
        pid = host.process("slurmstepd: [99.0]", comm=name, exe=program)
        assert is_slurm_daemon(pid, host.proc)
        assert is_slurmstepd(pid, host.proc) is (name == "slurmstepd")
        program.chmod(0o4755)
        assert not is_slurm_daemon(pid, host.proc)
        assert not is_slurmstepd(pid, host.proc)


@needs_root
def test_a_scope_that_a_user_made_is_none(host: Host) -> None:
    """A user's own manager lets him make cgroups; one named like Slurm's must not pass for his job's."""
    host.step(f"{SCOPE}/job_12", "0")
    mine = "user.slice/user-1500.slice/user@1500.service/slurmstepd.scope"
    host.step(f"{mine}/job_12", "0")
    host.step(f"{mine}/job_13", "0")
    named = "user.slice/user-1500.slice/user@1500.service/a_slurmstepd.scope"
    host.step(f"{named}/job_14", "0")
    for path in (mine, named):
        os.chown(host.root / path, USER, USER)
    assert host.found() == {"12.0"}
    bases = slurm_layout.slurm_roots(host.root, CGROUP2, "a")
    [step] = slurm_layout.find_steps(host.root, CGROUP2, bases)
    assert step.paths == (f"{SCOPE}/job_12/step_0/user/task_0",)
    assert slurm_layout.nodes_with_scopes(host.root) == ["a"]


@needs_root
def test_a_process_whose_first_thread_has_ended_is_not_taken_for_slurmstepd(tmp_path: Path) -> None:
    """Such a process has no executable to be read, and any name that it likes."""
    program = (
        "import ctypes, threading, time\n"
        "open('/proc/self/comm', 'w').write('slurmstepd')\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program])
    try:
        until(lambda: Path(f"/proc/{child.pid}/stat").read_text().split(") ")[1][0] == "Z", 30, "its end")
        assert Path(f"/proc/{child.pid}/comm").read_text() == "slurmstepd\n"
        assert len(list(Path(f"/proc/{child.pid}/task").iterdir())) == 2
        assert not is_slurmstepd(child.pid)
    finally:
        child.kill()
        child.wait()


def test_titles_as_slurm_writes_them() -> None:
    for title, step in (
        ("slurmstepd: [12.batch]", "12.batch"),
        ("slurmstepd: [12.extern stepmgr]", "12.extern"),
        ("slurmstepd: [12.4294967290]", "12.4294967290"),
        ("slurmstepd: [12.0+3]", "12.0+3"),
    ):
        assert str(step_of_title(title)) == step
    for title in (
        "slurmstepd: [12]",
        "slurmstepd: [sEKNKTV3WPV500.0]",
        "slurmstepd infinity",
        "x [12.0]",
        "slurmstepd: [12.batch:namespace]",
        "slurmstepd: [12.0 other]",
        "sh slurmstepd: [12.0]",
    ):
        assert step_of_title(title) is None


def test_old_hierarchies_are_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "slurm_a/uid_1/job_5/step_0").mkdir(parents=True)
    (odd := tmp_path / "slurm_a/uid_1/job_5/step.1").mkdir()
    (odd / "cgroup.procs").write_text("1\n")
    found = slurm_layout.recognise(tmp_path, CGROUP1, ("a",))
    assert found.named == {"number": 1}
    assert [one.path for one in found.unknown] == ["slurm_a/uid_1/job_5/step.1"]


def test_the_doctor_reports_what_it_cannot_recognise(host: Host) -> None:
    assert job_folders(host.root).here == "partly"
    host.step(f"{SCOPE}/job_11", "0")
    assert (job_folders(host.root).here, job_folders(host.root).found) == ("yes", "1 named by number")
    for number in range(12):
        host.step(f"{SCOPE}/new-{number}", "0")
    reported = job_folders(host.root)
    assert reported.here == "no"
    assert f"{SCOPE}/new-0: it is named as no job" in reported.found
    assert "and 4 more" in reported.found
    assert "CgroupJobIdPaths=yes" in reported.advice
    assert set(slurm_layout.recognise_host(host.root)) == {host.root}
