from __future__ import annotations

from pathlib import Path

import pytest

from workloads.swf import load_columns
from workloads.trace.trace_summary import TraceSummary, summarize

TRACE = b"""\
; Version: 2.2
; Installation: Lab
; MaxProcs: 8
; MaxRecords: 9
; UnixStartTime: 1400749079
; TimeZoneString: Europe/Luxembourg
; Queue: 0 interactive
 1    0 -1  10  1 -1 -1 -1  20 -1 1 1 1 -1 0 -1 -1 -1 -1 -1 -1 5 5 1 0
 2  100  5   0  4 -1 -1 -1  -1 -1 0 1 1 -1 1 -1 -1 -1
 3   50  5  30 -1 -1 -1  3  20 10 1 2 1 -1 1 -1 -1 -1
 3  200 -1  -1 16 -1 -1 -1  20 -1 5 2 1 -1 -1 -1 -1 -1
 4  broken
"""


@pytest.fixture
def summary(tmp_path: Path) -> TraceSummary:
    path = tmp_path / "lab.swf"
    path.write_bytes(TRACE)
    return summarize(load_columns(path, strict=False))


def test_figures_are_those_of_the_jobs(summary: TraceSummary) -> None:
    assert (summary.name, summary.installation, summary.max_procs) == ("lab", "Lab", 8)
    assert (summary.jobs, summary.users, summary.span_s) == (4, 2, 200.0)
    assert summary.first_submit == "2014-05-22 10:57:59+02:00"
    assert summary.size_counts == {"1": 1, "3-4": 2, "9-16": 1}
    assert (summary.serial_share, summary.power_of_two_share) == (0.25, 0.5)
    assert (summary.requested_time_share, summary.requested_memory_share, summary.cpu_time_share) == (
        0.75,
        0.25,
        0,
    )
    assert summary.interactive_patterns == 1
    assert summary.run_s is not None
    assert (summary.run_s.known, summary.run_s.percentiles[100]) == (3, 30)
    assert summary.status_counts == {"failed": 1, "completed": 2, "cancelled": 1}
    assert summary.offered_load == pytest.approx((10 + 0 + 90) / (8 * 200))
    assert sum(summary.arrivals_by_hour) == 4
    assert summary.arrivals_by_hour[10] == 3


def test_queues_have_their_jobs_and_descriptions(summary: TraceSummary) -> None:
    assert [(queue.queue, queue.description, queue.jobs, queue.processor_s) for queue in summary.queues] == [
        (None, "", 1, 0),
        (0, "interactive", 1, 10),
        (1, "", 2, 90),
    ]


def test_remarks_name_what_to_clean(summary: TraceSummary) -> None:
    remarks = "\n".join(summary.remarks)
    for expected in (
        "run time is 0: 1 job",
        "run time is not known: 1 job",
        "larger than the machine (8 processors): 1 job",
        "ran longer than asked for: 1 job",
        "submitted earlier than the job before: 1 job",
        "has the number of an earlier job: 1 job",
        "skipped, not a number: 1",
        "field 2 (submit time): 'broken' is not a number",
        "the header announces 9 records, the file has 4",
    ):
        assert expected in remarks


def test_trace_that_knows_nothing_but_submissions_has_a_summary(tmp_path: Path) -> None:
    path = tmp_path / "bare.swf"
    path.write_bytes(b"1 0" + b" -1" * 16)
    summary = summarize(load_columns(path))
    assert (summary.size, summary.run_s, summary.wait_s) == (None, None, None)
    assert (summary.serial_share, summary.offered_load, summary.users) == (None, None, None)
    assert summary.first_submit is None
    assert summary.remarks == ("run time is not known: 1 job", "number of processors is not known: 1 job")


def test_a_remark_counts_jobs_that_name_a_preceding_one(tmp_path: Path) -> None:
    path = tmp_path / "linked.swf"
    rest = "-1 10 1 -1 -1 1 20 -1 1 1 1 -1 1 -1"
    path.write_text(f"1 0 {rest} 1 5\n2 1 {rest} 1 5\n3 2 {rest} 9 5\n4 3 {rest} 2 -1\n")
    assert summarize(load_columns(path)).remarks == (
        "submitted after the end of a preceding job (fields 17 and 18): 2 jobs",
        "to be submitted after a preceding job that is not in the trace: 1 job",
        "to be submitted after a preceding job that is not on an earlier line: 1 job",
    )
