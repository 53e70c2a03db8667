"""The whole daemon as a process, against a controller over sockets, real cgroups and real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from foundation.files import live_folder
from gangd.freezer.procfs import read_stat
from gangd.guardian.state_folders import state_path
from gangd.guardian.statefile import StateFile, Word
from gangd.wire.messages import ExemptJobs
from tests.fixtures.gang_host import SPIN, TICK, RealCgroups, is_suspended, runs
from tests.fixtures.gang_puppet import Puppet, farewells
from tests.fixtures.looks import until

pytestmark = pytest.mark.slow
STEP = "slurm_a/uid_0/job_{}/step_0"


class Daemon:
    """A running gang-agent of node ``a``; its log is a list of dictionaries."""

    def __init__(self, puppet: Puppet, folder: Path, *words: str) -> None:
        self.state_dir = folder / "state"
        self.log_path = folder / f"agent-{time.monotonic_ns()}.log"
        common = ["--node", "a"]
        if "--config" not in words:
            common += ["--controller", puppet.address, "--keys", str(puppet.keys)]
        with self.log_path.open("wb") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "gangd.agent.main", *common, "--state", str(self.state_dir), *words],
                stderr=log,
            )

    def log(self, event: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self.log_path.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def state(self) -> StateFile:
        return StateFile.open(state_path(self.state_dir, "a"))

    def guardian_pid(self) -> int:
        state = self.state()
        pid = state.word(Word.GUARDIAN_PID)
        state.close()
        return pid

    def end(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)
            self.child.terminate()
            try:
                self.child.wait(5)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


class Stage:
    """Two jobs that compute, a controller, and agents as the test starts them."""

    def __init__(self, cgroups: RealCgroups, puppet: Puppet, folder: Path) -> None:
        self.cgroups = cgroups
        self.puppet = puppet
        self.folder = folder
        self.steps = {job: cgroups.make(STEP.format(job)) for job in (1, 2)}
        self.pids = {job: cgroups.spawn(path, TICK) for job, path in self.steps.items()}
        self.daemons: list[Daemon] = []

    def start(self, *words: str) -> Daemon:
        root = ["--freezer", "cgroup1", "--root", str(self.cgroups.root), "--hold-by", "freeze"]
        daemon = Daemon(self.puppet, self.folder, *root, *words)
        self.daemons.append(daemon)
        return daemon

    def state(self, job: int) -> str:
        return (self.steps[job] / "freezer.state").read_text().strip()

    def write(self, job: int, state: bytes) -> None:
        """Write as Slurm does: once, and without truncating."""
        fd = os.open(self.steps[job] / "freezer.state", os.O_WRONLY)
        os.write(fd, state)
        os.close(fd)

    def held(self, job: int, within_s: float = 60.0) -> None:
        until(lambda: self.state(job) == "FROZEN", within_s, f"job {job} held")

    def free(self, within_s: float) -> None:
        """Wait until both jobs are thawed and stay so for several slices."""
        until(lambda: all(self.state(job) == "THAWED" for job in self.steps), within_s, "everything thawed")
        for _ in range(50):
            time.sleep(0.01)
            assert [self.state(job) for job in self.steps] == ["THAWED", "THAWED"]


@pytest.fixture
def puppet(tmp_path: Path) -> Iterator[Puppet]:
    puppet = Puppet(tmp_path)
    yield puppet
    puppet.close()
    shutil.rmtree(live_folder(tmp_path / "state"), ignore_errors=True)


@pytest.fixture
def stage(real_v1: RealCgroups, puppet: Puppet, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(real_v1, puppet, tmp_path)
    yield stage
    for daemon in stage.daemons:
        daemon.end()
    for daemon in stage.daemons:
        until(lambda daemon=daemon: not guardian_runs(daemon), what="end of the guardian")  # type: ignore[misc]


def guardian_runs(daemon: Daemon) -> bool:
    if not state_path(daemon.state_dir, "a").exists():
        return False
    try:
        stat = read_stat(daemon.guardian_pid())
    except FileNotFoundError:  # it took the state file with it
        return False
    return stat is not None and stat.alive and stat.comm == "gang-guardian"


def test_two_jobs_alternate_and_are_reported(stage: Stage) -> None:
    stage.puppet.rotate((1,), (2,))
    stage.start()
    until(lambda: len(stage.puppet.slices()) > 20, 60, "twenty slices")
    slices = [each for report in stage.puppet.reports for each in report.slices][2:]
    for each in slices:
        assert set(each.held) == ({1} if each.number % 2 == 0 else {2})
    sampled = {sample.job: sample for each in slices for sample in each.samples}
    assert sampled.keys() == {1, 2}
    assert all(sample.span_us > 0 and sample.cpu_us > 0 and sample.tasks == 1 for sample in sampled.values())


def test_a_job_whose_prolog_rings_is_reported_before_it_has_a_process(stage: Stage) -> None:
    stage.puppet.rotate((1,), (2,))
    daemon = stage.start()
    until(lambda: bool(stage.puppet.reports), 60, "a report")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ringer:
        folder_fd = os.open(daemon.state_dir, os.O_RDONLY)
        ringer.sendto(b"begin 4711", f"/proc/self/fd/{folder_fd}/bell-a")
        os.close(folder_fd)
    until(lambda: any(4711 in report.born for report in stage.puppet.reports), 60, "the job is reported")
    daemon.child.terminate()
    assert daemon.child.wait(5) == 0
    assert not (daemon.state_dir / "bell-a").exists()


def test_reports_what_it_chose_and_takes_leave(stage: Stage) -> None:
    stage.puppet.rotate((1,), (1,))
    daemon = stage.start()
    stage.held(1)
    (start,) = daemon.log("start")
    assert start["freezer"] == "cgroup1"
    daemon.child.terminate()
    assert daemon.child.wait(5) == 0
    assert stage.state(1) == "THAWED"
    until(lambda: len(farewells(stage.puppet)) == 1, what="farewell")
    assert farewells(stage.puppet)[0].reason == "SIGTERM"


def test_silence_of_the_controller_thaws(stage: Stage) -> None:
    stage.puppet.rotate((1,), (1,))
    stage.start()
    stage.held(1)
    stage.puppet.silent = True
    stage.free(within_s=3.0)
    stage.puppet.silent = False
    stage.puppet.rotate((1,), (1,))
    stage.held(1)


def test_line_on_which_nothing_for_this_node_comes_is_made_anew(stage: Stage) -> None:
    """As where of the agent's two subscriptions one was lost: what goes to all nodes still comes."""
    publish = stage.puppet.sockets.publish
    accepted = publish.get_monitor_socket(zmq.EVENT_ACCEPTED)
    try:
        stage.puppet.only_to_all = True
        stage.start()
        for _ in range(2):
            assert accepted.poll(20_000), "no connection, or no second one"
            accepted.recv_multipart()
    finally:
        publish.disable_monitor()
        accepted.close()
    stage.puppet.only_to_all = False
    stage.puppet.rotate((1,), (1,))
    stage.held(1)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGQUIT])
def test_death_of_the_agent_thaws(stage: Stage, number: signal.Signals) -> None:
    stage.puppet.rotate((1,), (1,))
    if number == signal.SIGQUIT:  # ignored if a shell has started us in the background
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    daemon = stage.start()
    stage.held(1)
    daemon.child.send_signal(number)
    stage.free(within_s=3.0)  # at once as a rule; lease + 1 s is what is promised


def test_agent_that_computes_without_a_pause_resumes_all_jobs_and_goes_on(stage: Stage) -> None:
    stage.puppet.rotate((1,), (1,))
    daemon = stage.start()
    stage.held(1)
    daemon.child.send_signal(signal.SIGXCPU)  # as the kernel does for RLIMIT_RTTIME
    until(lambda: stage.state(1) == "THAWED", 60, "job 1 resumed")
    until(lambda: "exhausted" in stage.puppet.faults(), 60, "report of the fault")
    [said] = daemon.log("exhausted")
    assert "gangd.agent.agent_loop._serve:" in str(said["at"])
    assert daemon.child.poll() is None
    assert daemon.log("reloaded") == []


def test_stopped_agent_loses_its_lease_and_holds_again_when_it_goes_on(stage: Stage) -> None:
    stage.puppet.rotate((1,), (1,))
    daemon = stage.start()
    stage.held(1)
    daemon.child.send_signal(signal.SIGSTOP)
    stage.free(within_s=3.0)
    daemon.child.send_signal(signal.SIGCONT)
    stage.held(1)
    until(lambda: "thawed_by_guardian" in stage.puppet.faults(), what="report of the guardian's thaw")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_guardian_that_dies_or_sleeps_is_replaced(stage: Stage, number: signal.Signals) -> None:
    stage.puppet.rotate((1,), (1,))
    daemon = stage.start()
    stage.held(1)
    first = daemon.guardian_pid()
    os.kill(first, number)
    until(lambda: daemon.guardian_pid() != first, 10, "another guardian")
    until(lambda: (stat := read_stat(first)) is None or not stat.alive, 5, "end of the first guardian")
    stage.held(1)
    daemon.child.kill()
    stage.free(within_s=1.0)


def test_next_agent_thaws_what_one_without_guardian_left_and_not_what_slurm_suspended(stage: Stage) -> None:
    stage.puppet.rotate((1,), (1,))
    daemon = stage.start()
    stage.held(1)
    (stage.steps[2] / "freezer.state").write_text("FROZEN")  # Slurm suspends job 2
    os.kill(daemon.guardian_pid(), signal.SIGSTOP)
    daemon.child.kill()
    daemon.child.wait()
    assert stage.state(1) == "FROZEN"
    os.kill(daemon.guardian_pid(), signal.SIGKILL)
    stage.puppet.rotate()
    again = stage.start()
    until(lambda: stage.state(1) == "THAWED", 30, "thaw at the start")
    until(lambda: again.log("thawed_at_start") != [], 30, "log line")
    assert stage.state(2) == "FROZEN"


def test_second_agent_of_a_node_is_refused(stage: Stage) -> None:
    first = stage.start()
    until(lambda: state_path(first.state_dir, "a").exists(), 30, "the first agent")
    second = stage.start()
    assert second.child.wait(30) == 1
    assert "already runs" in second.log_path.read_text()


def test_suspension_in_the_off_slice_outlives_the_next_on_slices(stage: Stage) -> None:
    stage.puppet.quantum_ns = 500_000_000
    stage.puppet.rotate((1,), (2,))
    stage.start()
    stage.held(1)
    until(lambda: _freeze_on_top(stage, 1), 60, "suspension in the middle of a hold")
    for _ in range(100):
        time.sleep(0.01)
        assert stage.state(1) == "FROZEN"
    until(
        lambda: stage.puppet.last(lambda report: report.found) is not None,
        what="report of the external change",
    )
    stage.write(1, b"THAWED")  # resumed: it takes part again
    until(lambda: stage.state(1) == "FROZEN", 30, "held again after its resumption")
    until(lambda: stage.state(1) == "THAWED", 5, "its own slice")


def _freeze_on_top(stage: Stage, job: int) -> bool:
    """Freeze on top of the agent's freeze, as Slurm would; True if that was surely within one slice."""
    before, state = stage.puppet.phase(), stage.state(job)
    if state != "FROZEN" or not 0.2 < before < 0.5:
        return False
    stage.write(job, b"FROZEN")
    if before < stage.puppet.phase() < 0.7:
        return True
    stage.write(job, b"THAWED")
    return False


def test_cancelled_job_dies_although_held(stage: Stage) -> None:
    stage.puppet.rotate((1,), (1,))
    stage.start()
    stage.held(1)
    os.kill(stage.pids[1], signal.SIGTERM)
    until(lambda: (stat := read_stat(stage.pids[1])) is None or not stat.alive, 2, "death of the held job")
    until(lambda: any(1 in report.dying for report in stage.puppet.reports), 5, "report")


def test_step_with_slurmstepd_is_not_frozen(stage: Stage) -> None:
    stepd = stage.folder / "slurmstepd"
    shutil.copy(shutil.which("dash") or "/bin/sh", stepd)
    step = stage.cgroups.make("slurm_a/uid_0/job_1/step_batch")
    pid = stage.cgroups.spawn(step, ["slurmstepd: [1.batch]", *SPIN[1:]], executable=str(stepd))
    stage.puppet.rotate((1,), (1,))
    stage.start()
    stage.held(1)
    assert (step / "freezer.state").read_text() == "THAWED\n"
    assert runs(pid)


def test_step_born_in_a_held_job_is_held_soon(stage: Stage) -> None:
    stage.puppet.rotate((1,), (1,))
    stage.start()
    stage.held(1)
    late = stage.cgroups.make("slurm_a/uid_0/job_1/step_7")
    pid = stage.cgroups.spawn(late, TICK)
    until(lambda: (late / "freezer.state").read_text() == "FROZEN\n", 2, "the late step held")
    assert is_suspended(pid)


def test_dry_run_writes_nothing(stage: Stage) -> None:
    stage.puppet.rotate((1,), (2,))
    stage.start("--dry-run")
    until(lambda: len(stage.puppet.slices()) > 10, 60, "ten slices")
    assert stage.state(1) == stage.state(2) == "THAWED"
    assert runs(stage.pids[1])
    assert runs(stage.pids[2])
    until(lambda: any(each.held for report in list(stage.puppet.reports) for each in report.slices))


def test_an_agent_exports_its_state_to_a_monitoring_system(stage: Stage) -> None:
    def ask(path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as page:
                return str(page.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()

    def value(name: str) -> float:
        lines = [line for line in ask("/metrics").splitlines() if line.startswith(f"{name} ")]
        return float(lines[0].split()[-1])

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    stage.puppet.rotate((1,), (2,))
    daemon = stage.start("--metrics", str(port))
    stage.held(1)
    until(lambda: value("gang_agent_switch_late_seconds_count") > 20, 30, "twenty switches")
    assert value("gang_agent_jobs") == value("gang_agent_steps") == 2
    assert value('gang_agent_held_job_seconds_total{hold="freeze"}') > 0
    until(lambda: value("gang_agent_lease_seconds") > 0, 10, "a lease")
    until(lambda: "NOT OK" not in ask("/healthz"), 10, "health")
    stage.puppet.silent = True
    until(lambda: "NOT OK controller" in ask("/healthz"), 30, "the controller is missed")
    daemon.child.terminate()
    daemon.child.wait(20)
    again = stage.start("--metrics", "127.0.0.1:nonsense")
    assert again.child.wait(20) == 2
    assert "expected PORT" in again.log_path.read_text()


def test_operators_thaw_tool_stops_a_living_agent_for_a_while(stage: Stage) -> None:
    stage.puppet.rotate((1,), (1,))
    daemon = stage.start()
    stage.held(1)
    hammer = [sys.executable, "-m", "gangd.agent.main", "thaw", "--all", "--pause", "5"]
    subprocess.run([*hammer, "--state", str(daemon.state_dir)], check=True, capture_output=True)
    stage.free(within_s=4)
    stage.held(1)


def test_opted_out_and_suspended_jobs(stage: Stage) -> None:
    stage.puppet.rotate((1, 2), (1, 2))
    stage.start()
    stage.held(1)
    stage.held(2)
    stage.puppet.set_exempt(ExemptJobs(opt_out=(1,), suspended=(2,)))
    until(lambda: stage.state(1) == "THAWED", 5, "opted-out job thawed")
    (stage.steps[2] / "freezer.state").write_text("FROZEN")  # as Slurm does that suspends it
    stage.puppet.thaw_now(None)
    time.sleep(0.3)
    assert stage.state(2) == "FROZEN"  # Slurm's now
    (stage.steps[2] / "freezer.state").write_text("THAWED")


def test_cgroup2_freezer_alternates_and_an_agents_death_thaws(
    real_v2: RealCgroups, puppet: Puppet, tmp_path: Path
) -> None:
    tasks = {
        job: real_v2.make(f"system.slice/a_slurmstepd.scope/job_{job}/step_0/user/task_0") for job in (1, 2)
    }
    for path in tasks.values():
        real_v2.spawn(path, TICK)
    puppet.rotate((1,), (2,))
    daemon = Daemon(puppet, tmp_path, "--freezer", "cgroup2", "--root", str(real_v2.root))
    try:
        until(lambda: len(puppet.slices()) > 10, 60, "ten slices")
        held = [set(each.held) for report in puppet.reports for each in report.slices]
        assert {1} in held
        assert {2} in held
        daemon.child.kill()
        until(
            lambda: all((path / "cgroup.freeze").read_text() == "0\n" for path in tasks.values()), 1, "thaw"
        )
    finally:
        daemon.end()
        until(lambda: not guardian_runs(daemon), what="end of the guardian")


def test_signal_freezer_alternates_processes(
    puppet: Puppet, tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    stepd = tmp_path / "slurmstepd"
    shutil.copy(shutil.which("dash") or "/bin/sh", stepd)
    for job in (987601, 987602):
        env = f"SLURM_JOB_ID={job} SLURM_STEP_ID=0 SLURMD_NODENAME=a PATH=$PATH"
        script = f"env -i {env} sh -c 'while :; do :; done' & wait"
        child = subprocess.Popen([f"slurmstepd: [{job}.0]", "-c", script], executable=stepd, process_group=0)
        children.append(child)
    puppet.rotate((987601,), (987602,))
    daemon = Daemon(puppet, tmp_path, "--freezer", "signals")
    try:
        held: Callable[[], list[set[int]]] = lambda: [  # noqa: E731
            set(each.held) for report in list(puppet.reports) for each in report.slices
        ]
        until(lambda: held().count({987601}) > 3 and held().count({987602}) > 3, 60, "alternation")
    finally:
        daemon.end()
        for child in children:
            os.killpg(child.pid, signal.SIGCONT)
            os.killpg(child.pid, signal.SIGKILL)


def test_task_that_comes_late_in_a_held_job_is_held_and_let_go(
    real_v2: RealCgroups, puppet: Puppet, tmp_path: Path
) -> None:
    """With cgroup v2 a step has its folder first, and those of its tasks as they begin."""
    user = "slurmstepd.scope/job_1/step_0/user"
    first = real_v2.spawn(real_v2.make(f"{user}/task_0"), TICK)
    late = real_v2.spawn(real_v2.root, TICK)
    puppet.rotate((1,), (1,))
    daemon = Daemon(puppet, tmp_path, "--freezer", "cgroup2", "--root", str(real_v2.root))
    try:
        frozen = real_v2.root / user / "task_0/cgroup.freeze"
        until(lambda: frozen.read_text() == "1\n", 30, "the first task is held")
        (real_v2.make(f"{user}/task_1") / "cgroup.procs").write_text(str(late))
        events = real_v2.root / user / "task_1/cgroup.events"
        until(lambda: "frozen 1" in events.read_text(), 10, "the late task is held")
        ledger = daemon.state()
        recorded = {held.path for held in ledger.held()}
        ledger.close()
        assert recorded == {f"{user}/task_0", f"{user}/task_1"}
        daemon.child.kill()  # the guardian knows of both
        until(lambda: "frozen 0" in events.read_text(), 10, "the late task is thawed")
        assert runs(first)
        assert runs(late)
    finally:
        daemon.end()
        until(lambda: not guardian_runs(daemon), what="end of the guardian")


def test_sighup_reads_keys_and_controllers_again_and_thaws_nothing(stage: Stage, tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"

    def write(puppet: Puppet, more: str = "") -> None:
        config.write_text(
            f"controllers = [{json.dumps(puppet.address)}]\nkeys = {json.dumps(str(puppet.keys))}\n{more}"
        )

    write(stage.puppet)
    stage.puppet.rotate((1,), (1,))
    daemon = stage.start("--config", str(config))
    stage.held(1)
    config.write_text("controllers = 7\n")
    daemon.child.send_signal(signal.SIGHUP)
    until(lambda: bool(daemon.log("reload_refused")), 30, "what cannot be used is refused")
    assert stage.state(1) == "FROZEN"
    (tmp_path / "other").mkdir()
    other = Puppet(tmp_path / "other")
    try:
        other.rotate((2,), (2,))
        write(other, 'extern = "run"\n')
        daemon.child.send_signal(signal.SIGHUP)
        until(lambda: bool(daemon.log("reloaded")), 30, "keys and controllers are read again")
        stage.held(2)
        assert daemon.log("reloaded")[0]["connected_anew"] is True
        assert daemon.child.poll() is None
    finally:
        daemon.end()
        other.close()
