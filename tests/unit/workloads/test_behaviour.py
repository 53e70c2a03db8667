from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foundation.errors import InputError, OutputError, UsageError
from workloads.behaviour.recording_library import (
    Recording,
    behaviour_statistics,
    busy_idle,
    embed_recordings,
    read_library,
    sampled,
)
from workloads.behaviour.utilisation_series import UtilisationSeries, read_series, write_series
from workloads.swf import InteractivePattern, SwfHeader, SwfJob, SwfTrace, write_swf
from workloads.trace.models.interactive_jobs import synthesize_patterns


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
    with pytest.raises(OutputError):
        write_series(tmp_path / "no" / "x.csv", [first])


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
    path = tmp_path / "job7.csv"
    path.write_text(text)
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
    path = tmp_path / "bad.csv"
    path.write_text(text)
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
    assert library.recordings[0].pattern == pattern
    assert len(library.skipped) == 1
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


def test_default_generator_is_near_the_published_figures() -> None:
    rng = np.random.default_rng(1)
    found = behaviour_statistics(synthesize_patterns(rng.integers(600, 20_000, 4000).astype(np.float64), rng))
    assert found is not None
    assert found.under_10_percent == pytest.approx(0.71, abs=0.03)
    assert found.under_1_percent == pytest.approx(0.37, abs=0.03)
