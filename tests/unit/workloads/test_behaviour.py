"""Behaviour of interactive jobs: recorded and synthesised."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from foundation.errors import HostError, InputError, UsageError
from osub.cli.main import run
from tests.fixtures.cli import Cli
from tests.fixtures.looks import until
from tests.fixtures.recordings import sampled, write_series
from workloads.behaviour import behaviour_sampler, pattern_synthesis
from workloads.behaviour.recording_library import (
    Recording,
    behaviour_statistics,
    busy_idle,
    embed_recordings,
    pattern_trace,
    read_library,
)
from workloads.behaviour.utilisation_series import UtilisationSeries, read_series
from workloads.swf import InteractivePattern, SwfHeader, SwfJob, SwfTrace, write_swf
from workloads.trace.models.interactive_jobs import sample_sessions_s, synthesize_patterns


def series(*cores: float) -> UtilisationSeries:
    return UtilisationSeries("job", (5,) * len(cores), cores)


def test_samples_above_the_threshold_are_busy_and_neighbours_join() -> None:
    pattern = busy_idle(series(0, 0.2, 0.21, 14, 0, 0.05, 1, 0))
    assert pattern == InteractivePattern(10, 5, (10, 5), (10,))
    assert busy_idle(series(0.2, 0.3), threshold_cores=0.1) == InteractivePattern(0, 0, (10,), ())


def test_job_that_is_never_busy_is_all_prologue_and_a_busy_one_has_no_idle_ends() -> None:
    assert busy_idle(series(0, 0.1, 0)) == InteractivePattern(15, 0, (), ())
    assert busy_idle(series(1, 1)) == InteractivePattern(0, 0, (10,), ())
    with pytest.raises(UsageError, match="threshold"):
        busy_idle(series(1), threshold_cores=-1)


def test_sampling_a_pattern_and_modelling_the_samples_gives_the_pattern_back() -> None:
    pattern = InteractivePattern(10, 20, (5, 30), (15,))
    assert busy_idle(sampled("x", pattern)) == pattern
    short = sampled("x", InteractivePattern(3, 0, (2, 1), (1,)))
    assert (short.lengths_s, short.cores) == ((5, 2), (0.4, 0.5))


def test_series_come_back_from_the_file_they_were_written_to(tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    first, second = series(0, 0.5, 1), UtilisationSeries("other", (5, 5), (2, 0))
    write_series(path, [first, second])
    assert read_series(path) == [first, second]


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("time_s,cores\n0,1\n5,0\n10,2\n", (1, 0, 2)),
        ("host,Timestamp,CPU_percent\na,2022-09-09T10:00:00,150\na,2022-09-09T10:00:05,0\n", (1.5, 0)),
        ("timestamp,utilization_percent\n1662717600,20\n1662717605,30\n", (0.2, 0.3)),
    ],
)
def test_columns_are_found_by_name_in_the_usual_units(
    text: str, cores: tuple[float, ...], tmp_path: Path
) -> None:
    (path := tmp_path / "job7.csv").write_text(text)
    (found,) = read_series(path)
    assert (found.name, found.cores, set(found.lengths_s)) == ("job7", cores, {5})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no column for elapsed_s"),
        ("elapsed_s,load\n1,2\n", "no column for cpu_percent"),
        ("elapsed_s,cores\n", "no sample"),
        ("elapsed_s,cores\n1,x\n", ":2: a sample needs"),
        ("elapsed_s,cores\n1\n", ":2: a sample needs"),
        ("elapsed_s,cores\n1,-2\n", "no utilisation"),
        ("elapsed_s,cores\n1,nan\n", "no utilisation"),
        ("elapsed_s,cores\n5,1\n5,1\n", "do not increase"),
        ("elapsed_s,cores\n5,1\n10,1\n15,1\n900,1\n", "gap of 885 s"),
        ("elapsed_s,cores\n5,1\0\n", "a sample needs|cannot read"),
    ],
)
def test_bad_series_are_reported_in_one_line(text: str, words: str, tmp_path: Path) -> None:
    (path := tmp_path / "bad.csv").write_text(text)
    with pytest.raises(InputError, match=words) as raised:
        read_series(path)
    assert "\n" not in str(raised.value)


def test_folder_of_recordings_is_read_in_order_and_bad_files_are_skipped_with_reasons(tmp_path: Path) -> None:
    write_series(tmp_path / "b.csv", [series(0, 1, 0)])
    (tmp_path / "c.csv").write_text("nothing\n")
    (tmp_path / "readme.txt").write_text("no recording")
    pattern = InteractivePattern(1, 2, (3,), ())
    jobs = (SwfJob(7, 0, run_s=6, extension=pattern.to_extension()), SwfJob(8, 1, run_s=3))
    write_swf(tmp_path / "a.swf", SwfTrace(SwfHeader(), jobs))
    library = read_library(tmp_path)
    assert [recording.name for recording in library.recordings] == ["a 7", "job"]
    assert (library.recordings[0].pattern, len(library.skipped)) == (pattern, 1)
    assert "c.csv" in library.skipped[0]


def test_folder_without_recordings_is_an_error_that_says_how_to_get_some(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="osub trace record"):
        read_library(tmp_path)
    with pytest.raises(InputError, match="no folder"):
        read_library(tmp_path / "none")
    (tmp_path / "c.csv").write_text("nothing\n")
    with pytest.raises(InputError, match="no column"):
        read_library(tmp_path)


def recordings() -> list[Recording]:
    return [Recording(str(n), InteractivePattern(n, n, (n,), ())) for n in range(100, 1100, 10)]


def test_recordings_of_nearest_length_are_embedded_with_variety() -> None:
    jobs = tuple(SwfJob(n, n, run_s=1500, queue=0) for n in range(1, 101))
    embedded, report = embed_recordings(SwfTrace(SwfHeader(), jobs), recordings(), nearest=5)
    assert (report.jobs, report.recordings_used) == (100, 5)
    assert report.most_used < 50
    for job in embedded.jobs:
        assert job.pattern is not None
        assert job.pattern.total_s == 1500
        # each recording is a third busy, so what is embedded is, too
        assert job.pattern.busy_s == pytest.approx(500, abs=0.01)
    assert embedded == embed_recordings(SwfTrace(SwfHeader(), jobs), recordings(), nearest=5)[0]


def test_nearest_recording_is_the_nearest_also_at_the_ends() -> None:
    for run_s, name in ((1, 100), (614, 200), (99_999, 1090)):
        trace = SwfTrace(SwfHeader(), (SwfJob(1, 0, run_s=run_s, queue=0),))
        embedded, _ = embed_recordings(trace, recordings(), nearest=1)
        pattern = embedded.jobs[0].pattern
        assert pattern is not None
        assert pattern.total_s == run_s
        assert pattern.busy_s == pytest.approx(run_s / 3, abs=0.01), name


def test_jobs_with_periods_or_without_run_time_stay_as_they_are() -> None:
    own = InteractivePattern(1, 1, (1,), ()).to_extension()
    jobs = (
        SwfJob(1, 0, run_s=3, queue=0, extension=own),
        SwfJob(2, 0, queue=0),
        SwfJob(3, 0, run_s=9, queue=1),
    )
    embedded, report = embed_recordings(SwfTrace(SwfHeader(), jobs), recordings())
    assert embedded.jobs == jobs
    assert (report.jobs, report.kept, report.without_run_time, report.most_used) == (0, 1, 1, 0)
    with pytest.raises(UsageError, match="at least one recording"):
        embed_recordings(SwfTrace(SwfHeader(), jobs), [])


def test_statistics_are_those_of_the_patterns() -> None:
    patterns = [
        InteractivePattern(3590, 10, (), ()),
        InteractivePattern(50, 45, (5,), ()),
        InteractivePattern(0, 0, (30_000,), ()),
        InteractivePattern(0, 0, (), ()),
    ]
    found = behaviour_statistics(patterns)
    assert found is not None
    assert (found.jobs, found.under_10_percent, found.under_1_percent) == (3, 2 / 3, 1 / 3)
    assert (found.peak_share, found.most_periods, found.longest_busy_s) == (1 / 3, 1, 30_000)
    assert behaviour_statistics([]) is None


@pytest.mark.slow
def test_default_generator_is_near_the_published_figures() -> None:
    rng = np.random.default_rng(1)
    found = behaviour_statistics(synthesize_patterns(rng.integers(600, 20_000, 4000).astype(np.float64), rng))
    assert found is not None
    assert found.under_10_percent == pytest.approx(0.71, abs=0.03)
    assert found.under_1_percent == pytest.approx(0.37, abs=0.03)


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


def taken(stage: Stage, **arguments: float) -> list[behaviour_sampler.BehaviourSample]:
    return list(behaviour_sampler.record(stage, stage.clock, stage.wait, **arguments))


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
    assert (
        behaviour_sampler.CgroupUsage([second]).cpu_s(),
        behaviour_sampler.CgroupUsage([first]).cpu_s(),
    ) == (
        2.5,
        1.5,
    )
    both = behaviour_sampler.CgroupUsage([second, first])
    assert both.cpu_s() == 4
    (second / "cpu.stat").unlink()
    assert both.cpu_s() == 4
    (first / "cpuacct.usage").unlink()
    assert both.cpu_s() is None
    with pytest.raises(UsageError, match="is no cgroup"):
        behaviour_sampler.CgroupUsage([tmp_path])


def test_cgroups_of_a_slurm_job_are_found_wherever_slurm_puts_them(tmp_path: Path) -> None:
    modern = tmp_path / "a" / "system.slice" / "n1_slurmstepd.scope" / "job_7"
    old = tmp_path / "b" / "cpuacct" / "slurm_n1" / "uid_5" / "job_7"
    freezer = tmp_path / "b" / "freezer" / "slurm_n1" / "uid_5" / "job_7"
    for folder in (modern, old, freezer, modern.with_name("job_77")):
        folder.mkdir(parents=True)
    (modern / "cpu.stat").write_text("usage_usec 1\n")
    (old / "cpuacct.usage").write_text("1\n")
    assert behaviour_sampler.job_cgroups(7, tmp_path / "a") == [modern]
    assert behaviour_sampler.job_cgroups(7, tmp_path / "b") == [old]
    with pytest.raises(HostError, match="no cgroup of Slurm job 8"):
        behaviour_sampler.job_cgroups(8, tmp_path)


@contextmanager
def process(code: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", code]) as started:
        try:
            yield started
        finally:
            started.kill()


def test_tree_counts_descendants_also_after_they_ended() -> None:
    child = "x = sum(range(30_000_000))"
    code = f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {child!r}])\ntime.sleep(60)"
    with process(code) as started:
        usage = behaviour_sampler.TreeUsage(started.pid)
        until(lambda: (usage.cpu_s() or 0) > 0.2)
        assert usage.cpu_s() is not None
        started.kill()
        started.wait()
        until(lambda: usage.cpu_s() is None)


def test_process_that_is_not_there_is_a_usage_error() -> None:
    with process("pass") as started:
        started.wait()
        with pytest.raises(UsageError, match="there is no process"):
            behaviour_sampler.TreeUsage(started.pid)


@pytest.mark.slow
def test_record_writes_a_series_of_a_busy_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p.csv"
    with process(BUSY) as started:
        words = [
            "trace", "record", "--pid", str(started.pid), "--every", "0.2", "--for", "1", "--out",
            str(out),
        ]  # fmt: skip
        for _ in range(10):  # on a loaded host it may have too little of a core to look busy
            assert run([*words, "--force", "--name", "solver", "--json"]) == 0
            found = json.loads(capsys.readouterr().out)
            (series,) = read_series(out)
            assert (series.name, len(series.cores)) == ("solver", found["samples"])
            if found["busy_periods"] >= 1:
                break
        else:
            raise AssertionError(found)
    assert found["mean_cores"] > 0.05


def test_record_says_what_it_needs(tmp_path: Path, cli: Cli) -> None:
    out = ["--out", str(tmp_path / "p.csv")]
    assert run(["trace", "record", *out]) == 2
    printed = cli("trace", "record", *out, "--pid", "1", "--job", "2", code=2)
    assert "one of --job, --pid and --cgroup" in printed.err
    assert run(["trace", "record", *out, "--cgroup", str(tmp_path)]) == 2
    assert "no cgroup of Slurm job" in cli("trace", "record", *out, "--job", "99999999", code=1).err
    assert not (tmp_path / "p.csv").exists()


def recorded(count: int = 60) -> list[InteractivePattern]:
    rng = np.random.default_rng(11)
    return synthesize_patterns(sample_sessions_s(count, rng), rng)


def short_and_long() -> list[InteractivePattern]:
    """Two kinds: a minute with three short busy periods, and hours with a single long one."""
    short = [InteractivePattern(20 + n, 20, (5, 6, 5), (4, 5)) for n in range(10)]
    return short + [InteractivePattern(100, 50, (9000 + 10 * n,), ()) for n in range(10)]


@pytest.mark.parametrize(
    "pattern",
    [
        InteractivePattern(10, 20, (5, 30), (15,)),
        InteractivePattern(0, 0, (7,), ()),
        InteractivePattern(3600, 0, (), ()),
    ],
)
def test_encoded_patterns_come_back(pattern: InteractivePattern) -> None:
    assert pattern_synthesis.decode(pattern_synthesis.encode(pattern)) == pattern


def test_averages_that_lose_a_period_get_the_shortest_one() -> None:
    series = pattern_synthesis.encode(InteractivePattern(10, 20, (5, 30), (15,)))
    series[1], series[2] = -0.5, 0.3
    assert pattern_synthesis.decode(series, 5000) == InteractivePattern(10, 20, (5, 30), (5,))


def test_new_patterns_are_of_the_recorded_kinds_and_not_mixtures_of_them() -> None:
    pytest.importorskip("dtaidistance", reason="needs the extra 'traces'")
    made = pattern_synthesis.synthesize(short_and_long(), 40, seed=3, clusters=2)
    assert made.cluster_sizes == (10, 10)
    kinds = {(len(pattern.activations_s), pattern.total_s > 1000) for pattern in made.patterns}
    assert kinds == {(3, False), (1, True)}
    assert len(set(made.patterns)) > 20


def test_statistics_of_new_patterns_are_near_those_of_their_sources() -> None:
    pytest.importorskip("dtaidistance", reason="needs the extra 'traces'")
    sources = recorded()
    made = behaviour_statistics(pattern_synthesis.synthesize(sources, 200, seed=1).patterns)
    source = behaviour_statistics(sources)
    assert made is not None
    assert source is not None
    print(source, made)
    assert made.under_10_percent == pytest.approx(source.under_10_percent, abs=0.12)
    assert made.few_periods_share == pytest.approx(source.few_periods_share, abs=0.12)
    assert made.length_p90_s == pytest.approx(source.length_p90_s, rel=0.3)
    assert made.most_periods <= source.most_periods


def test_samples_of_a_pattern_give_it_back_where_its_periods_are_whole_samples() -> None:
    pattern = InteractivePattern(30, 60, (15, 45), (90,))
    series = pattern_synthesis.samples_of(pattern)
    assert (len(series), series.sum()) == (
        pattern_synthesis.SAMPLES,
        pytest.approx(pattern_synthesis.SAMPLES * 60 / 240),
    )
    assert pattern_synthesis.from_samples(series, pattern, 240_000) == pattern
    idle = InteractivePattern(100, 0, (), ())
    assert pattern_synthesis.from_samples(pattern_synthesis.samples_of(idle), idle, 100_000) == idle
    busy = InteractivePattern(0, 0, (100,), ())
    assert pattern_synthesis.from_samples(pattern_synthesis.samples_of(busy), busy, 100_000) == busy


def test_new_patterns_may_be_averages_of_the_utilisation() -> None:
    pytest.importorskip("dtaidistance", reason="needs the extra 'traces'")
    sources = recorded(12)
    made = pattern_synthesis.synthesize(
        sources, 8, seed=4, aligned=pattern_synthesis.AlignedSeries.UTILISATION
    )
    lengths_s = [pattern.total_s for pattern in sources]
    assert all(min(abs(one.total_s - length_s) for length_s in lengths_s) < 0.01 for one in made.patterns)
    assert all(0 <= pattern.busy_s <= pattern.total_s for pattern in made.patterns)
    assert made != pattern_synthesis.synthesize(sources, 8, seed=4)


def test_same_seed_same_patterns_and_the_global_generators_are_left_alone() -> None:
    pytest.importorskip("dtaidistance", reason="needs the extra 'traces'")
    random.seed(5)
    state = random.getstate()
    numpy_state = str(np.random.get_state())
    first = pattern_synthesis.synthesize(recorded(20), 10, seed=4)
    assert random.getstate() == state
    assert str(np.random.get_state()) == numpy_state
    assert first == pattern_synthesis.synthesize(recorded(20), 10, seed=4)
    assert first != pattern_synthesis.synthesize(recorded(20), 10, seed=5)


def test_patterns_that_are_all_alike_can_be_synthesized() -> None:
    pytest.importorskip("dtaidistance", reason="needs the extra 'traces'")
    alike = [InteractivePattern(10, 20, (5, 30), (15,))] * 6
    assert set(pattern_synthesis.synthesize(alike, 5).patterns) == {alike[0]}


@pytest.mark.parametrize(("count", "clusters"), [(0, None), (3, 0), (3, 99)])
def test_impossible_syntheses_are_usage_errors(count: int, clusters: int | None) -> None:
    with pytest.raises(UsageError):
        pattern_synthesis.synthesize(recorded(5), count, clusters=clusters)
    with pytest.raises(UsageError, match="at least 2"):
        pattern_synthesis.synthesize(recorded(1), 3)


def test_without_the_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("dtaidistance")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dtaidistance", None)
    with pytest.raises(HostError, match=r"osub\[traces\]"):
        pattern_synthesis.synthesize(recorded(5), 3)


@pytest.mark.slow
def test_command_prints_statistics_and_makes_a_file_that_is_a_recording(tmp_path: Path, cli: Cli) -> None:
    pytest.importorskip("dtaidistance", reason="needs the extra 'traces'")
    (folder := tmp_path / "recorded").mkdir()
    write_swf(folder / "a.swf", pattern_trace(recorded(12), "recorded"))
    write_series(folder / "b.csv", [sampled("s", InteractivePattern(10, 20, (5, 30), (15,)))])
    assert "71 %" in cli("trace", "patterns", folder).out
    out = tmp_path / "new.swf"
    words = ["trace", "patterns", str(folder), "--synthesize", "20", "--out", str(out)]
    found = cli.json(*words, "--json")
    assert (found["recordings"], found["synthesized"]["jobs"], sum(found["clusters"])) == (13, 20, 13)
    assert "recorded" in cli(*words, "--force").out
    out.rename(folder / "new.swf")
    assert len(read_library(folder).recordings) == 33


def test_command_refuses_half_a_request(tmp_path: Path, cli: Cli) -> None:
    assert "go together" in cli("trace", "patterns", tmp_path, "--synthesize", "3", code=2).err
    assert run(["trace", "patterns", str(tmp_path / "none")]) == 1
