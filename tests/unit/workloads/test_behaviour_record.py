from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from foundation.errors import HostError, UsageError
from osub.cli.main import run
from workloads.behaviour.behaviour_sampler import (
    BehaviourSample,
    CgroupsUsage,
    CgroupUsage,
    TreeUsage,
    job_cgroups,
    record,
)
from workloads.behaviour.utilisation_series import read_series

BUSY = "import time\nend = time.process_time() + 60\nwhile time.process_time() < end: pass"


class Stage:
    """A clock that waiting moves on, and a job that uses ``cores`` at every moment."""

    def __init__(self, cores: list[float], late_s: float = 0.0, stop_after: int | None = None) -> None:
        self.now_s = 100.0
        self.cores, self.late_s, self.stop_after = cores, late_s, stop_after
        self.waits = 0

    def clock(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> bool:
        self.waits += 1
        self.now_s += seconds + self.late_s
        return self.stop_after is not None and self.waits > self.stop_after

    def cpu_s(self) -> float | None:
        gone_s = self.now_s - 100.0
        whole = int(gone_s // 5)
        if whole >= len(self.cores):
            return None
        return 5 * sum(self.cores[:whole]) + self.cores[whole] * (gone_s % 5)


def taken(stage: Stage, **arguments: float) -> list[BehaviourSample]:
    return list(record(stage, stage.clock, stage.wait, **arguments))


def test_samples_are_the_cores_in_use_since_the_one_before() -> None:
    samples = taken(Stage([1, 0, 14, 0.5, 0]))
    assert [round(sample.cores, 6) for sample in samples] == [1, 0, 14, 0.5]
    assert [sample.elapsed_s for sample in samples] == [5, 10, 15, 20]


def test_samples_stay_on_their_grid_when_one_is_late() -> None:
    samples = taken(Stage([1] * 8, late_s=0.5), most_s=25.0)
    assert [round(sample.elapsed_s, 6) for sample in samples] == [5.5, 10.5, 15.5, 20.5, 25.5]
    assert all(round(sample.cores, 6) == 1 for sample in samples)


def test_recording_ends_on_request_when_time_is_up_and_with_the_job() -> None:
    assert len(taken(Stage([1] * 50, stop_after=3))) == 3
    assert len(taken(Stage([1] * 50), most_s=30.0)) == 6
    assert taken(Stage([])) == []


@pytest.mark.parametrize("arguments", [{"every_s": 0.0}, {"every_s": 5.0, "most_s": 1.0}])
def test_impossible_sampling_is_a_usage_error(arguments: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="samples of"):
        taken(Stage([1]), **arguments)


def test_both_generations_of_cgroups_are_read(tmp_path: Path) -> None:
    second, first = tmp_path / "v2", tmp_path / "v1"
    for folder in (second, first):
        folder.mkdir()
    (second / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (first / "cpuacct.usage").write_text("1500000000\n")
    # v1 has a cpu.stat, too, that does not count CPU time
    (first / "cpu.stat").write_text("nr_periods 0\n")
    assert (CgroupUsage(second).cpu_s(), CgroupUsage(first).cpu_s()) == (2.5, 1.5)
    both = CgroupsUsage([second, first])
    assert both.cpu_s() == 4
    (second / "cpu.stat").unlink()
    assert both.cpu_s() == 4
    (first / "cpuacct.usage").unlink()
    assert both.cpu_s() is None
    with pytest.raises(UsageError, match="is no cgroup"):
        CgroupUsage(tmp_path)


def test_cgroups_of_a_slurm_job_are_found_wherever_slurm_puts_them(tmp_path: Path) -> None:
    modern = tmp_path / "a" / "system.slice" / "n1_slurmstepd.scope" / "job_7"
    old = tmp_path / "b" / "cpuacct" / "slurm_n1" / "uid_5" / "job_7"
    freezer = tmp_path / "b" / "freezer" / "slurm_n1" / "uid_5" / "job_7"
    for folder in (modern, old, freezer, modern.with_name("job_77")):
        folder.mkdir(parents=True)
    (modern / "cpu.stat").write_text("usage_usec 1\n")
    (old / "cpuacct.usage").write_text("1\n")
    assert job_cgroups(7, tmp_path / "a") == [modern]
    assert job_cgroups(7, tmp_path / "b") == [old]
    with pytest.raises(HostError, match="no cgroup of Slurm job 8"):
        job_cgroups(8, tmp_path)


@contextmanager
def process(code: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", code]) as started:
        try:
            yield started
        finally:
            started.kill()


def until(condition: object, deadline_s: float = 60.0) -> None:
    end_s = time.monotonic() + deadline_s
    while time.monotonic() < end_s:
        if callable(condition) and condition():
            return
        time.sleep(0.02)
    pytest.fail("it did not happen in time")


def test_tree_counts_descendants_also_after_they_ended() -> None:
    child = "x = sum(range(30_000_000))"
    code = f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {child!r}])\ntime.sleep(60)"
    with process(code) as started:
        usage = TreeUsage(started.pid)
        until(lambda: (usage.cpu_s() or 0) > 0.2)
        seen = usage.cpu_s()
        assert seen is not None
        started.kill()
        started.wait()
        until(lambda: usage.cpu_s() is None)


def test_process_that_is_not_there_is_a_usage_error() -> None:
    with process("pass") as started:
        started.wait()
        with pytest.raises(UsageError, match="there is no process"):
            TreeUsage(started.pid)


def test_record_writes_a_series_of_a_busy_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p.csv"
    with process(BUSY) as started:
        words = [
            "trace",
            "record",
            "--pid",
            str(started.pid),
            "--every",
            "0.2",
            "--for",
            "1",
            "--out",
            str(out),
        ]
        assert run([*words, "--name", "solver", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (series,) = read_series(out)
    assert (series.name, len(series.cores)) == ("solver", found["samples"])
    assert found["busy_periods"] >= 1
    assert found["mean_cores"] > 0.05


def test_record_says_what_it_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "p.csv")]
    assert run(["trace", "record", *out]) == 2
    assert run(["trace", "record", *out, "--pid", "1", "--job", "2"]) == 2
    assert "one of --job, --pid and --cgroup" in capsys.readouterr().err
    assert run(["trace", "record", *out, "--cgroup", str(tmp_path)]) == 2
    assert run(["trace", "record", *out, "--job", "99999999"]) == 1
    assert "no cgroup of Slurm job" in capsys.readouterr().err
    assert not (tmp_path / "p.csv").exists()
