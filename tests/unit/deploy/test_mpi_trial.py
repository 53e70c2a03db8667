"""Two ranks are started for real, and what became of them is said in one line."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import pytest

from deploy.checks import Grade, judge_binding, judge_start
from deploy.mpi_trial import Bound, try_binding, try_here, try_on_slurm
from tests.fixtures.looks import until

CUT = "slurmstepd-n2: error: mpi/pmi2: invalid client request"


@pytest.fixture
def srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that takes srun's place, whose answer a test writes."""
    for name in ("MPIR_CVAR_CH4_NETMOD", "FI_PROVIDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path / "srun"


def answers(program: Path, *lines: str, code: int = 0) -> None:
    program.write_text("#!/bin/sh\n" + "".join(f"echo {line!r}\n" for line in lines) + f"exit {code}\n")
    program.chmod(0o755)


def test_a_start_is_said_with_library_netmod_and_pmi(srun: Path) -> None:
    answers(srun, "srun: job 1 queued", "trial: 2 ranks on 2 nodes, MPICH Version: 5.0.2")
    trial = try_on_slurm(None, 2)
    assert trial.is_started
    reported = "2 ranks on 2 nodes, MPICH Version: 5.0.2; netmod ofi over tcp, PMI-1 of srun --mpi=pmi2"
    assert trial.found == reported
    assert judge_start(trial).grade is Grade.GOOD
    assert "ofi over shm" in try_on_slurm(None, 2, one_host=True).found


@pytest.mark.parametrize(
    ("lines", "code", "started", "said"),
    [
        ((CUT, "trial: MPI_Init did not end within 20 s"), 137, False, "mpi/pmi2 cut a message"),
        (("trial: MPI_Init did not end within 20 s",), 137, False, "did not end within 20 s"),
        ((), 1, False, "code 1"),
        (("srun: error: Unable to allocate resources: Requested nodes are busy",), 1, None, "busy"),
    ],
)
def test_a_start_that_fails_is_distinguished_from_one_that_was_not_tried(
    srun: Path, lines: tuple[str, ...], code: int, started: bool | None, said: str
) -> None:
    answers(srun, *lines, code=code)
    trial = try_on_slurm(None, 2)
    assert trial.is_started is started
    assert said in trial.found
    assert judge_start(trial).grade is (Grade.WARNING if started is False else Grade.GOOD)


def test_a_launcher_that_is_not_there_tries_nothing(tmp_path: Path) -> None:
    trial = try_here(tmp_path / "mpiexec")
    assert trial.is_started is None
    assert "No such file" in trial.found


@pytest.mark.slow
def test_two_real_ranks_start_on_this_host() -> None:
    trial = try_here(Path(sys.executable).with_name("mpiexec"))
    assert trial.is_started, trial
    assert "2 ranks on 1 node, MPICH Version:" in trial.found
    assert trial.found.endswith("PMI-1 of mpiexec")


def test_an_interrupted_trial_leaves_no_launcher(srun: Path, tmp_path: Path) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    srun.write_text(f"#!/bin/sh\ntrap ': >{ended}; exit' TERM\n: >{begun}\nwhile :; do sleep 0.05; done\n")
    srun.chmod(0o755)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def wait_and_interrupt() -> None:
        until(begun.exists, 60, "the launcher begins")
        until(lambda: "wait" in sys._current_frames()[main].f_code.co_name, 60, "its end is waited for")
        signal.pthread_kill(main, signal.SIGUSR1)

    before, main = signal.signal(signal.SIGUSR1, interrupt), threading.get_ident()
    thread = threading.Thread(target=wait_and_interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            try_on_slurm(None, 2)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert ended.exists()


def test_a_user_s_choice_of_network_is_named(srun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPIR_CVAR_CH4_NETMOD", "ucx")
    srun.write_text("#!/bin/sh\necho trial: $MPIR_CVAR_CH4_NETMOD$FI_PROVIDER $*\n")
    srun.chmod(0o755)
    found = try_on_slurm(None, 1).found
    assert found.startswith("ucx --job-name=osub-doctor --ntasks=2 --nodes=1 --overcommit")
    assert found.endswith("netmod ucx, PMI-1 of srun --mpi=pmi2")


def binds(program: Path, two: str, launcher: str) -> None:
    """Let srun say which CPUs its tasks may use."""
    line = "Cpus_allowed_list:\\t"
    one, _, other = two.partition(" ")
    tasks = f"*ntasks=2*) printf '{line}{one}\\n{line}{other}\\n' ;;"
    program.write_text(f"#!/bin/sh\ncase $* in\n{tasks}\n*) printf '{line}{launcher}\\n' ;;\nesac\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("two", "launcher", "grade"),
    [
        ("0 1", "0-1", "good"),
        ("0-3 0-3", "0-3", "good"),  # nothing binds: the kernel spreads them
        ("0,4 0,4", "0,4", "good"),
        ("0 0", "0-1", "warning"),
        ("0 1", "0", "warning"),  # mpiexec in one task: its ranks are on one CPU
    ],
)
def test_ranks_of_one_job_on_one_cpu_are_warned_of(srun: Path, two: str, launcher: str, grade: str) -> None:
    binds(srun, two, launcher)
    bound = try_binding(None)
    assert bound == Bound(tuple(two.split()), launcher)
    advice = judge_binding(bound)
    assert advice.grade == grade
    assert advice.found == f"srun -n2: {two.replace(' ', ' and ')}; mpiexec under srun -n1 -c2: {launcher}"
    assert ("pinning" in advice.why) == ("TaskPlugin=" in advice.write) == (grade == "warning")


def test_cpus_of_tasks_that_did_not_start_are_not_judged(srun: Path) -> None:
    answers(srun, "srun: error: Unable to allocate resources: Requested nodes are busy", code=1)
    assert try_binding(None) == Bound()
    assert judge_binding(Bound()).grade is Grade.GOOD
    assert judge_binding(Bound()).found == "not tried"
