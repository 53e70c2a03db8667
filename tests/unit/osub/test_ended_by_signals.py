"""Ctrl-C and SIGTERM end commands that compute: in time, with their status, and nothing is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from foundation.interruption import SignalInterrupt
from simulator.experiments.claim_study import run_trials
from tests.fixtures.cli import Cli
from tests.fixtures.golden import SHARED
from tests.fixtures.looks import Deadline

pytestmark = pytest.mark.slow

CURIE = SHARED / "traces" / "CEA-Curie-2011-2.1-cln.swf.gz"
GAIA = CURIE.with_name("UniLu-Gaia-2014-1.swf.gz")
MARK = "OSUB_TEST_OF_SIGNALS"


@pytest.fixture(autouse=True)
def signals_reach_children() -> Iterator[None]:
    """A suite that runs in the background may ignore SIGINT, and its children with it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Jobs that simulate for a minute in plain Python."""
    (path := tmp_path / "log.swf").write_text(
        "; MaxProcs: 64\n"
        + "".join(
            f"{number} {number} -1 {300 + 7 * (number % 50)} {1 + number % 16} -1 -1 -1 2000 -1 1 "
            f"{number % 4} 1 -1 1 -1 -1 -1\n"
            for number in range(1, 20_001)
        )
    )
    return path


def end(
    command: subprocess.Popen[str], number: signal.Signals, host: Deadline, *, whole_group: bool = False
) -> str:
    """Have a signal end a command, in time; return what the command wrote on standard error."""
    asked_s = time.monotonic()
    (os.killpg if whole_group else os.kill)(command.pid, number)
    _, said = command.communicate(timeout=60)
    took_s = time.monotonic() - asked_s
    assert command.returncode == (-number if number == signal.SIGKILL else 128 + number), said
    assert "Traceback" not in said
    assert took_s < host.within_s(2, busy=20)
    return said


@contextmanager
def begin(tmp_path: Path, *words: str, jit: str = "0") -> Iterator[subprocess.Popen[str]]:
    """Run a command in a group of its own, of which nothing is left behind."""
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "osub.command", *words],
        cwd=tmp_path,
        env=os.environ | {"OSUB_JIT": jit, "TMPDIR": str(tmp_path / "tmp"), MARK: str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as command:
        try:
            yield command
        except BaseException:
            for process in processes_of(tmp_path):
                process.kill()
            raise


def processes_of(tmp_path: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(tmp_path) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_until_nothing_runs(tmp_path: Path) -> None:
    deadline_s = time.monotonic() + 60
    while left := processes_of(tmp_path):
        assert time.monotonic() < deadline_s, left
        time.sleep(0.05)


def wait_until_caught(pid: int) -> None:
    """Wait until a command has begun to take signals itself, after its interpreter's start."""
    deadline_s = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline_s
        (line,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
        if int(line, 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.02)


def wait_for_workers(tmp_path: Path, count: int) -> None:
    deadline_s = time.monotonic() + 60
    while len(processes_of(tmp_path)) < 1 + count:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_a_signal_while_a_class_is_made_ends_the_command_as_any(
    monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """CPython 3.11 wraps what is raised in ``__set_name__``, as in the fields of a dataclass."""

    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            raise SignalInterrupt

    def call(_: list[str]) -> None:
        type("Made", (), {"field": Field()})

    monkeypatch.setattr("osub.cli.main._called", call)
    assert cli(code=128 + signal.SIGINT).err == "osub: interrupted\n"


def test_an_interrupted_study_waits_for_no_other_trial() -> None:
    """A thread that compiles would have a command end ten seconds late."""
    over, ended = threading.Event(), threading.Event()

    def run(number: int) -> None:
        if number:
            raise SignalInterrupt
        over.wait(60)
        ended.set()

    with pytest.raises(SignalInterrupt):
        run_trials((1, 0), run, lambda _: None, "trial", workers=2)
    was_waited_for = ended.is_set()
    over.set()
    assert not was_waited_for


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_simulation(number: signal.Signals, trace: Path, tmp_path: Path) -> None:
    words = ("simulate", trace.name, "--system", "N16C4", "--multiplicity", "2", "--out", "run")
    host = Deadline()
    with begin(tmp_path, *words) as command:
        wait_until_caught(command.pid)
        time.sleep(1)
        assert end(command, number, host).split() == ["osub:", "interrupted"]
    assert not (tmp_path / "run").exists()
    assert not list(tmp_path.glob(".*.partial"))


BATSIM = ("--format", "batsim")
LONG = {
    "simulate": ("simulate", "log.swf.gz", "--system", "N5544C16", "--multiplicity", "2", "--out", "out"),
    "sweep": ("sweep", "sweep.toml", "--out", "out"),
    "tune": ("sweep", "tune", "log.swf.gz", "--system", "N5544C16", "--out", "out"),
    "convert": ("trace", "convert", "log.swf.gz", "--out", "out.swf.gz"),
    "scale": ("trace", "scale", "log.swf.gz", "--system", "N12C12", "--out", "out.swf.gz"),
    "generate": ("trace", "generate", "--jobs", "5000000", "--system", "N100C12", "--out", "out.swf.gz"),
    "compile": ("workloads", "compile"),
    "eviction": ("experiment", "eviction"),
    "pairing": ("experiment", "pairing"),
    "thesis-5": ("experiment", "thesis-5", "log.swf.gz", "--any-trace"),
    "thesis-6": ("experiment", "thesis-6", "gaia.swf.gz"),
    "hybrid": ("experiment", "hybrid"),
    "malleable": ("experiment", "malleable"),
    "timesharing": ("experiment", "timesharing", "log.swf.gz"),
    "advise": ("advise", "log.swf.gz", "--system", "N5544C16"),
    "merge": ("trace", "merge", *["log.swf.gz"] * 6, "--out", "out.swf.gz"),
    "interactive": ("trace", "interactive", "log.swf.gz", "--jobs", "50000", "--out", "out.swf.gz"),
    "export": ("trace", "export", "log.swf.gz", *BATSIM, "--out", "out.json"),
    "import": ("trace", "import", "batsim.json", *BATSIM, "--system", "N5544C16", "--out", "out.swf.gz"),
    "measure": ("predict", "measure", "--out", "pairs"),
    "report": ("report", "run", "--html", "out.html"),
    "compare": ("compare", "run", "same", "--html", "out.html"),
}  # commands that compute for long; ``test_replay_on_slurm`` ends replays
FOR_SECONDS = {"compile", "convert", "scale", "interactive", "export", "import"}
"""Those of them that may take less than 12 s on a calm host."""


@pytest.fixture(scope="module")
def run_of_curie(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated RUN of some 300,000 jobs, and next to it its trace as Batsim has it."""
    run = tmp_path_factory.mktemp("curie") / "run"
    made = ("simulate", str(CURIE), "--system", "N5544C16", "--out", str(run))
    batsim = str(run.with_name("batsim.json"))
    exported = ("trace", "export", str(CURIE), *BATSIM, "--system", "N5544C16", "--out", batsim)
    for words in (made, exported):
        subprocess.run([sys.executable, "-m", "osub.command", *words], check=True, capture_output=True)
    return run


@pytest.mark.long
@pytest.mark.skipif(not CURIE.exists(), reason="needs CEA-Curie-2011-2.1-cln.swf.gz in OSUB_SHARED/traces")
@pytest.mark.parametrize(
    ("number", "after_s"), [(signal.SIGTERM, 1), (signal.SIGINT, 4), (signal.SIGTERM, 12)]
)
@pytest.mark.parametrize("command", LONG)
def test_long_commands_compiled_anew(
    command: str,
    number: signal.Signals,
    after_s: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_of_curie: Path,
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    (tmp_path / "log.swf.gz").symlink_to(CURIE)
    (tmp_path / "gaia.swf.gz").symlink_to(GAIA)
    for name in ("run", "same"):
        (tmp_path / name).symlink_to(run_of_curie)
    (tmp_path / "batsim.json").symlink_to(run_of_curie.with_name("batsim.json"))
    (tmp_path / "sweep.toml").write_text(
        '[base]\ntrace = "log.swf.gz"\nsystem = "N5544C16"\n[grid]\nmultiplicity = [2, 3]\n'
    )
    host = Deadline()
    with begin(tmp_path, *LONG[command], jit="1") as process:
        wait_until_caught(process.pid)
        time.sleep(after_s / 4 if command in FOR_SECONDS else after_s)
        end(process, number, host)
    wait_until_nothing_runs(tmp_path)
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_and_its_workers(number: signal.Signals, trace: Path, tmp_path: Path) -> None:
    """As a terminal does it: the signal is the whole group's. Workers have their own, and write nothing."""
    (tmp_path / "sweep.toml").write_text(
        f'[base]\ntrace = "{trace.name}"\nsystem = "N16C4"\n[grid]\nmultiplicity = [2, 3]\nseed = [1, 2]\n'
    )
    host = Deadline()
    with begin(tmp_path, "sweep", "sweep.toml", "--out", "out", "--workers", "2") as command:
        wait_for_workers(tmp_path, 2)
        said = end(command, number, host, whole_group=True)
    wait_until_nothing_runs(tmp_path)
    if number == signal.SIGKILL:
        assert said == ""
    else:
        assert "0 of 4 points are done and kept" in said
    assert not list((tmp_path / "tmp").iterdir())
