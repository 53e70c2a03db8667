"""Models of traces against what was published or measured; scaled and imported logs."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.fixtures.golden import TRACES, named, small, small_and_whole, whole_or_small
from workloads.importers.assemble_trace import ImportOptions
from workloads.importers.detect_log import LogKind, read_any
from workloads.swf import SwfTrace, load_columns, read_swf, swf_lines, write_swf
from workloads.trace.local_clock import TraceClock
from workloads.trace.models.generated_trace import (
    BATCH,
    INTERACTIVE,
    TYPELESS,
    LublinParameters,
    follow_the_day,
    sample_gaps,
    sample_runs_s,
    sample_sizes,
    slot_weights,
)
from workloads.trace.models.interactive_jobs import sample_sessions_s, synthesize_patterns, utilisation
from workloads.trace.scaling.half_hours import scale_trace
from workloads.trace.scaling.miniature import make_miniature
from workloads.trace.scaling.replayable_trace import THESIS, ScalingTarget, is_gaia, make_experiment
from workloads.trace.trace_summary import THESIS_TABLE_7_2, summarize_kinds
from workloads.trace.transforms.busy_window import THESIS_WINDOW, cut_window, find_window

LUBLIN_256 = "lublin_256.swf.gz"
Sample = NDArray[np.float64] | NDArray[np.int64]


def distance(one: Sample, other: Sample) -> float:
    """Return the two-sample Kolmogorov-Smirnov distance."""
    points = np.unique(np.concatenate((one, other)))
    shares = [np.searchsorted(np.sort(sample), points, side="right") / len(sample) for sample in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def _gaps(submits_s: NDArray[np.float64]) -> NDArray[np.float64]:
    seconds = np.floor(submits_s)
    return seconds[1:] - seconds[:-1]


def critical(one: Sample, other: Sample) -> float:
    """Return the distance that samples of one distribution exceed once in a thousand."""
    return 1.95 * float(np.sqrt(1 / len(one) + 1 / len(other)))


@pytest.mark.parametrize("log", small_and_whole(LUBLIN_256), ids=named)
def test_lublin_model_draws_from_the_distributions_of_its_authors_program(log: Path) -> None:
    reference = load_columns(log).frame
    rng = np.random.default_rng(20)
    sizes = sample_sizes(TYPELESS, 20_000, 256, rng)
    runs_s = sample_runs_s(TYPELESS, sizes, rng)
    submits_s = follow_the_day(np.cumsum(sample_gaps(TYPELESS, 20_000, rng)), slot_weights(TYPELESS))
    samples: dict[str, tuple[Sample, Sample]] = {
        "size": (sizes, reference["allocated_procs"].to_numpy()),
        "run time": (runs_s, reference["run_s"].to_numpy()),
        "gap between arrivals": (_gaps(submits_s), _gaps(reference["submit_s"].to_numpy())),
    }
    report = {name: (distance(*pair), critical(*pair)) for name, pair in samples.items()}
    print({name: f"KS {found:.4f}, critical (0.1 %) {limit:.4f}" for name, (found, limit) in report.items()})
    assert all(found < limit for found, limit in report.values()), report


def test_lublin_model_follows_the_course_of_the_day_of_its_authors_program() -> None:
    # arrivals come in bursts, so the day's course varies much more than independent arrivals would: what the
    # model's own samples differ among each other is the measure
    submits_s = load_columns(whole_or_small(LUBLIN_256)).frame["submit_s"].to_numpy()
    # the authors' program drops the fraction of a second at every arrival while its day goes on in full,
    # so its arrivals drift by half a second each
    reference = (submits_s + 0.5 * np.arange(len(submits_s))) % 86_400
    samples = []
    for seed in range(12):
        gaps = sample_gaps(TYPELESS, len(submits_s), np.random.default_rng(seed))
        samples.append(follow_the_day(np.cumsum(gaps), slot_weights(TYPELESS)) % 86_400)
    among = [distance(one, other) for place, one in enumerate(samples) for other in samples[:place]]
    to_reference = [distance(sample, reference) for sample in samples]
    print(f"KS to the reference {np.mean(to_reference):.4f}, among own samples {np.mean(among):.4f}")
    assert np.mean(to_reference) < np.percentile(among, 95)


@pytest.mark.parametrize("model", [TYPELESS, BATCH, INTERACTIVE])
def test_sizes_have_the_published_shares(model: LublinParameters) -> None:
    sizes = sample_sizes(model, 50_000, 128, np.random.default_rng(4))
    serial = np.mean(sizes == 1)
    # two-stage uniform sizes can round to 1 or to a power of two by themselves
    assert model.serial_share - 0.01 < serial < model.serial_share + 0.08
    assert np.mean((sizes > 1) & (sizes & (sizes - 1) == 0)) > model.power_of_two_share - 0.08


@pytest.mark.parametrize("model", [TYPELESS, BATCH, INTERACTIVE])
def test_run_times_have_the_moments_of_their_gamma_distributions(model: LublinParameters) -> None:
    ones = np.ones(200_000, dtype=np.int64)
    logs = np.log(sample_runs_s(model, ones, np.random.default_rng(5)) + 0.5)
    first = min(1.0, max(0.0, model.pa + model.pb))
    mean = first * np.prod(model.gamma_run_1) + (1 - first) * np.prod(model.gamma_run_2)
    assert logs.mean() == pytest.approx(mean, rel=0.05)


def test_interactive_jobs_have_the_measured_statistics() -> None:
    rng = np.random.default_rng(6)
    sessions_s = sample_sessions_s(30_000, rng)
    patterns = synthesize_patterns(sessions_s, rng)
    shares = np.array([utilisation(pattern) for pattern in patterns])
    counts = np.array([len(pattern.activations_s) for pattern in patterns])
    longest_s = np.array([max(pattern.activations_s, default=0) for pattern in patterns])
    print(
        f"90th percentile {np.percentile(sessions_s, 90) / 3600:.2f} h (5.2), "
        f"under 10 % {np.mean(shares < 0.1):.3f} (0.71), under 1 % {np.mean(shares < 0.01):.3f} (0.37), "
        f"under 10 busy periods {np.mean(counts < 10):.3f}, most {counts.max()} (94), "
        f"longest busy period, 54th percentile {np.percentile(longest_s, 54):.0f} s (30), "
        f"longest {longest_s.max()} s (46715)"
    )
    assert np.percentile(sessions_s, 90) == pytest.approx(5.2 * 3600, rel=0.06)
    assert np.mean(shares < 0.10) == pytest.approx(0.71, abs=0.02)
    assert np.mean(shares < 0.01) == pytest.approx(0.37, abs=0.02)
    assert np.mean(counts < 10) > 0.5
    assert counts.max() == 94
    assert np.percentile(longest_s, 54) == pytest.approx(30, abs=4)
    for hours in (1, 2, 4, 6, 12):
        at_limit = np.mean((sessions_s >= hours * 3600) & (sessions_s < hours * 3600 + 60))
        after_limit = np.mean((sessions_s >= hours * 3600 + 60) & (sessions_s < hours * 3600 + 120))
        assert at_limit > 5 * after_limit


GAIA = "UniLu-Gaia-2014-1.swf.gz"

LOGS = [
    *(
        path
        for name in (GAIA, "KTH-SP2-1996-2.1-cln.swf.gz", "lublin_256.swf.gz")
        for path in small_and_whole(name)
    ),
    *TRACES.glob("theta_2022.swf.gz"),
]


@pytest.fixture(scope="module")
def gaia() -> SwfTrace:
    """The days that the thesis replays."""
    return read_swf(small(GAIA))


@pytest.fixture(scope="module", params=small_and_whole(GAIA), ids=named)
def any_gaia(request: pytest.FixtureRequest) -> SwfTrace:
    return read_swf(request.param)


def test_thesis_window_starts_with_job_2814_on_a_thursday(gaia: SwfTrace) -> None:
    window = cut_window(gaia, THESIS_WINDOW.start_s, THESIS_WINDOW.length_s)
    assert window.jobs[0].job_number == 2814
    date = TraceClock.of(window.header, 0).date(0)
    assert date is not None
    assert date.isoformat() == "2014-06-05T11:42:14+02:00"


@pytest.mark.parametrize("seed", range(5))
def test_thesis_window_scaled_to_its_cluster_keeps_its_character(gaia: SwfTrace, seed: int) -> None:
    window = cut_window(gaia, THESIS_WINDOW.start_s, THESIS_WINDOW.length_s)
    scaled, report = scale_trace(window, 12, 12, seed, from_procs=1800)
    widest = max(job.procs or 0 for job in scaled.jobs)
    # thesis Table 7.2: 68 batch jobs, the widest has 25 cores
    print(
        f"seed {seed}: {report.jobs_after} batch jobs, widest {widest}, {report.slots_within} of "
        f"{len(report.slot_targets)} slots within 10 %, KS {report.arrival_distance:.3f}"
    )
    assert 40 <= report.jobs_after <= 100
    assert widest <= 144
    assert report.slots_within >= 0.8 * len(report.slot_targets)
    assert report.cores == pytest.approx(report.target_cores, rel=0.05)
    assert report.serial_after == pytest.approx(report.serial_before, abs=0.06)
    assert report.power_of_two_after == pytest.approx(report.power_of_two_before, abs=0.06)
    assert report.arrival_distance < 0.12


def test_busy_day_of_gaia_becomes_a_minute_on_two_cores(any_gaia: SwfTrace) -> None:
    small = make_miniature(any_gaia, 2, 1, 70)
    assert small.makespan_s <= 70
    assert len(small.trace.jobs) >= 10
    assert small.made_interactive == 0
    assert small.clipping.raised <= 0.25 * len(small.trace.jobs)


def test_a_busy_weekday_is_found(any_gaia: SwfTrace) -> None:
    window = find_window(any_gaia)
    date = TraceClock.of(any_gaia.header, 0).date(window.active_start_s)
    assert date is not None
    assert date.weekday() < 5
    assert 7 <= date.hour <= 15
    assert 4 * 3600 <= window.active_end_s - window.active_start_s <= 12 * 3600


@pytest.mark.parametrize("source", LOGS, ids=named)
def test_real_traces_come_back_byte_for_byte(source: Path, tmp_path: Path) -> None:
    trace = read_swf(source)
    write_swf(tmp_path / "copy.swf", trace)
    assert (tmp_path / "copy.swf").read_bytes() == gzip.decompress(source.read_bytes())
    plain = replace(trace, jobs=tuple(replace(job) for job in trace.jobs))
    assert b"".join(swf_lines(plain.header, plain.jobs)).count(b"\n") == len(trace.jobs) + len(
        trace.header.comments
    )


def test_interactive_jobs_of_the_experiment_are_those_of_table_7_2(gaia: SwfTrace) -> None:
    experiment = make_experiment(gaia, THESIS, ScalingTarget(12, 12))
    assert is_gaia(gaia)
    found, published = summarize_kinds(experiment.scaled), THESIS_TABLE_7_2
    print(found)
    interactive = found["interactive"]
    assert (interactive.jobs, interactive.max_procs, interactive.max_run_s) == (14, 12, 43_209)
    assert round(interactive.mean_run_s or 0) == published["interactive"].mean_run_s
    assert found["batch"].max_run_s == published["batch"].max_run_s
    assert found["batch"].jobs == pytest.approx(published["batch"].jobs, abs=12)


def test_no_interactive_job_follows_until_8_the_next_morning(gaia: SwfTrace) -> None:
    """As the thesis says below its Figure 7.3: so the day is the one it took."""
    day = cut_window(gaia, THESIS_WINDOW.start_s + 6 * 86_400, 86_400)
    clock = TraceClock.of(day.header, 0)
    dates = [clock.date(job.submit_s) for job in day.jobs if job.queue == 0 and (job.procs or 0) <= 12]
    last, following = dates[13], dates[14]
    assert last is not None
    assert following is not None
    assert f"{last:%d %H:%M}" == "11 22:01"
    assert f"{following:%d %H}" == "12 08"


CIRRUS = TRACES / "cirrus_2024Q1_CPU_sacct_subset.csv.gz"
EAGLE = "eagle_sample_1000.csv.gz"
JOBCOMP = TRACES / "slurmsim_micro_real_slurm_run_jobcomp.log.gz"


def needs(path: Path) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not path.exists(), reason=f"needs {path.name} in OSUB_SHARED/traces")


def rows_of(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as stream:
        return list(csv.DictReader(stream))


@needs(CIRRUS)
def test_every_job_of_the_cirrus_export_is_there_to_the_second(tmp_path: Path) -> None:
    trace, kind = read_any(CIRRUS, ImportOptions("cirrus"))
    rows = {int(row["JobID"]): row for row in rows_of(CIRRUS) if row["JobID"].isdigit()}
    assert kind is LogKind.SACCT
    assert len(trace.jobs) + sum(trace.report.skipped.values()) == len(rows_of(CIRRUS))
    print(len(trace.jobs), trace.report.skipped, trace.header.max_procs)
    start_s = trace.header.unix_start_time_s
    assert start_s is not None
    known = [job for job in trace.jobs if job.job_number in rows]
    assert len(known) > 0.97 * len(rows)
    for job in known:
        row = rows[job.job_number]
        assert start_s + job.submit_s == int(row["Submit"])
        assert start_s + job.submit_s + (job.wait_s or 0) == int(row["Start"])
        assert (job.run_s, job.procs) == (int(row["ElapsedRaw"]), int(row["NCPUS"]))
    write_swf(tmp_path / "cirrus.swf", trace)
    assert read_swf(tmp_path / "cirrus.swf").jobs == trace.jobs


@pytest.mark.parametrize("log", small_and_whole(EAGLE), ids=named)
def test_eagle_sample_has_its_users_limits_and_sizes(log: Path) -> None:
    trace, _ = read_any(log, ImportOptions("eagle"))
    # in the whole sample 452 of 1,000 rows are tasks of one array, under one number
    counts = Counter(row["job_id"] for row in rows_of(log))
    rows = {int(row["job_id"]): row for row in rows_of(log) if counts[row["job_id"]] == 1}
    print(len(trace.jobs), trace.report.skipped)
    assert len(trace.jobs) + sum(trace.report.skipped.values()) == counts.total()
    assert (counts.total(), len(rows)) in {(1000, 548), (334, 183)}
    plain = [job for job in trace.jobs if job.job_number in rows]
    assert len(plain) == len(rows)
    for job in plain:
        row = rows[job.job_number]
        assert (job.run_s, job.requested_s) == (float(row["run_time"]), float(row["wallclock_req"]))
        assert job.procs == int(row["processors_req"])
    users = {row["user"] for row in rows_of(log)}
    assert len({job.user for job in trace.jobs}) == len(users)


@needs(JOBCOMP)
def test_completion_log_of_a_real_run_has_its_500_jobs() -> None:
    trace, kind = read_any(JOBCOMP, ImportOptions("micro"))
    assert kind is LogKind.JOBCOMP
    assert len(trace.jobs) + sum(trace.report.skipped.values()) == 500
    assert trace.jobs[0].job_number == 1001
    assert {job.procs for job in trace.jobs if job.job_number in (1001, 1003)} == {12, 1}
    assert len({job.user for job in trace.jobs}) == 5
    assert trace.header.queues[1] == "normal"
