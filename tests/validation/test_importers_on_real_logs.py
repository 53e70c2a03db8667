"""The importers on real accounting, against figures counted from the files with other tools."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from pathlib import Path

import pytest

from tests.fixtures.golden import TRACES, named, small_and_whole
from workloads.importers.assemble_trace import ImportOptions
from workloads.importers.detect_log import LogKind, read_any
from workloads.swf import read_swf, write_swf

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
        assert job.run_s == float(row["run_time"])
        assert job.requested_s == float(row["wallclock_req"])
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
