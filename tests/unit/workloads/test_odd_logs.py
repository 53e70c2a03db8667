"""Odd logs, of SWF and of sacct."""

from __future__ import annotations

import itertools
import json
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from foundation.errors import InputError
from osub.cli.trace.command import app
from tests.fixtures.golden import SHARED
from tests.fixtures.tier import examples
from workloads import swf
from workloads.importers.assemble_trace import ImportOptions
from workloads.importers.detect_log import read_any
from workloads.importers.slurm_words import LocalClock, NotKnownError, count, instant_s, length_s, memory_kib
from workloads.trace.trace_summary import summarize
from workloads.trace.transforms import TraceConversion, converted, find_window

FIELD = SHARED / "field"
HEAD = "; MaxNodes: 64\n; MaxProcs: 64\n; UnixStartTime: 800000000\n"
LINE = "{number} {submit} {wait} {run} 16 {cpu} -1 16 900 -1 {status} 4 1 1 1 1 -1 -1\n"


def line(number: int, submit: int, wait: int, run: int, status: int, cpu: int = -1) -> str:
    return LINE.format(number=number, submit=submit, wait=wait, run=run, status=status, cpu=cpu)


def read_both(tmp_path: Path, text: str, strict: bool = True) -> swf.SwfTrace:
    """Return what ``read_swf`` reads; ``load_columns`` must read the same."""
    (path := tmp_path / "log.swf").write_text(text)
    trace, columns = swf.read_swf(path, strict), swf.load_columns(path, strict)
    assert columns.frame.rows() == [job.values() for job in trace.jobs]
    assert (columns.report, columns.header) == (trace.report, trace.header)
    assert columns.extensions == {row: job.extension for row, job in enumerate(trace.jobs) if job.extension}
    return trace


WHOLE = line(7, 50, 3, 120, 1)
PARTS = line(7, 50, 3, 20, 2) + line(7, -1, 30, 60, 2) + line(7, -1, 9, 40, 3)
OTHERS = (line(6, 0, 0, 10, 1), line(8, 60, 0, 10, 0))


@pytest.mark.parametrize(
    ("lines", "joined"),
    [
        ((WHOLE, PARTS), 3),
        ((PARTS,), 2),
        ((PARTS.replace(" -1 30", " 110 0").replace(" -1 9", " 400 0"),), 2),
        ((PARTS, WHOLE), 3),
        ((WHOLE, *PARTS.splitlines(keepends=True)[:2], OTHERS[1], PARTS.splitlines(keepends=True)[2]), 3),
    ],
    ids=["summary", "no-summary", "parts-submitted-again", "summary-last", "others-between"],
)
def test_the_parts_of_a_job_are_one_job(tmp_path: Path, lines: tuple[str, ...], joined: int) -> None:
    others = [text for text in OTHERS if text not in lines]
    trace = read_both(tmp_path, HEAD + others[0] + "".join(lines) + "".join(others[1:]))
    assert sorted(job.job_number for job in trace.jobs) == [6, 7, 8]
    whole = next(job for job in trace.jobs if job.job_number == 7)
    assert (whole.submit_s, whole.wait_s, whole.run_s, whole.status, whole.procs) == (50, 3, 120, 1, 16)
    assert (trace.report.joined, trace.report.parted, trace.report.duplicates) == (joined, 1, 0)


@pytest.mark.parametrize(("last", "status"), [(3, 1), (4, 0), (2, None)])
def test_the_last_part_says_how_the_job_ended(tmp_path: Path, last: int, status: int | None) -> None:
    text = line(7, 50, 3, 20, 2, cpu=15) + line(7, 90, 0, 40, last, cpu=30)
    (job,) = read_both(tmp_path, text).jobs
    assert (job.run_s, job.cpu_s, job.status) == (60, 45, status)


def test_a_number_used_again_after_the_last_part_is_another_job(tmp_path: Path) -> None:
    again = line(7, 9000, 0, 5, 2) + line(7, 9100, 0, 6, 3)
    trace = read_both(tmp_path, WHOLE + PARTS + again)
    assert [(job.job_number, job.run_s) for job in trace.jobs] == [(7, 120), (7, 11)]
    assert trace.report.duplicates == 1
    made = converted(trace, TraceConversion())
    assert [job.job_number for job in made.jobs] == [7, 8]
    assert "joined 4 lines that are part of 2 jobs" in made.header.notes[0]


def test_a_lone_part_with_a_submit_time_is_a_job_as_it_is(tmp_path: Path) -> None:
    text = line(1, 0, 0, 10, 2) + line(2, 5, 0, 10, 3)
    trace = read_both(tmp_path, text)
    assert b"".join(swf.swf_lines(trace.header, trace.jobs)).decode() == text
    assert trace.report.joined == 0


def test_a_part_without_a_job_is_refused_or_counted(tmp_path: Path) -> None:
    text = HEAD + WHOLE + line(9, -1, 0, 5, 2)
    with pytest.raises(InputError, match=r":5: field 2 \(submit time\): -1 is for a part of a job"):
        read_both(tmp_path, text)
    trace = read_both(tmp_path, text, strict=False)
    assert (len(trace.jobs), trace.report.skipped) == (1, {"part of an unknown job": 1})


def test_periods_and_comments_keep_their_jobs_when_parts_are_joined(tmp_path: Path) -> None:
    periods = OTHERS[1].replace("\n", " -1 -1 -1 2 3 1 5\n")
    trace = read_both(tmp_path, HEAD + WHOLE + PARTS + "; before the last\n" + periods)
    assert [job.extension for job in trace.jobs] == [(), (-1, -1, -1, 2, 3, 1, 5)]
    assert trace.header.comments[-1].after_jobs == 1


def test_the_load_of_parts_counts_once_and_info_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(HEAD + OTHERS[0] + WHOLE + PARTS + line(9, 100, 0, 10, 1))
    summary = summarize(swf.load_columns(path))
    assert summary.offered_load == pytest.approx(16 * (10 + 120 + 10) / (64 * 100))
    assert "3 lines are part of 1 job: joined, so that the load counts once" in summary.remarks
    out = tmp_path / "out.swf"
    result = CliRunner().invoke(app, ["convert", str(path), "--out", str(out)], catch_exceptions=False)
    assert "joined 3 lines that are part of 1 job" in result.output
    assert len(swf.read_swf(out).jobs) == 3


number = st.integers(1, 3)
second = st.sampled_from([-1, 0, 5, 10, 40, 2**53])
any_line = st.builds(line, number, second, second, second, st.integers(0, 5), second)


@given(st.lists(any_line | st.just("; note\n") | st.just("1 2\n"), min_size=1, max_size=8), st.booleans())
@examples(60)
def test_any_mix_of_parts_is_read_alike_and_can_be_read_again(lines: list[str], strict: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "log.swf").write_text("".join(lines))
        said: list[str] = []
        for read in (swf.read_swf, swf.load_columns):
            try:
                said.append(str(read(path, strict).report))
            except InputError as error:
                said.append(str(error))
        assert said[0] == said[1]
        if not said[0].startswith("ReadReport"):
            return
        trace = read_both(Path(folder), "".join(lines), strict)
        path.write_bytes(b"".join(swf.swf_lines(trace.header, trace.jobs)))
        once_more = swf.read_swf(path)
    assert len(once_more.jobs) <= len(trace.jobs)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4,360 (KNL)", 4360),
        ("279,040", 279_040),
        ("1e4", 10_000),
        ("1.6e3", 1600),
        ("151 (100,51)", 151),
        ("64; 60 for batch", 64),
        ("10.0", 10),
        ("279.040", None),
        ("1,2", None),
        ("1e99", None),
        ("many", None),
        ("-1", None),
    ],
)
def test_header_numbers_are_whole_or_not_known(text: str, value: int | None) -> None:
    header = swf.SwfHeader((swf.SwfComment(f"; MaxProcs: {text}\n".encode()),))
    assert header.max_procs == value
    assert header.unreadable_numbers == ({} if value or text == "-1" else {"MaxProcs": text})


def test_info_names_header_numbers_that_cannot_be_read(tmp_path: Path) -> None:
    (path := tmp_path / "log.swf").write_text("; MaxProcs: 64 or so\n; MaxNodes: 3.5e0\n" + WHOLE)
    (remark,) = summarize(swf.load_columns(path)).remarks
    assert "MaxNodes does not begin with a whole number" in remark


@pytest.mark.parametrize("tail", ["\x1a", "\x1a\n", "\r\n\x1a\r\n"])
def test_a_final_end_of_file_mark_of_dos_does_no_harm(tmp_path: Path, tail: str) -> None:
    trace = read_both(tmp_path, OTHERS[0].replace("\n", "\r\n") + WHOLE.rstrip() + tail)
    assert [job.job_number for job in trace.jobs] == [6, 7]
    assert b"\x1a" not in b"".join(swf.swf_lines(trace.header, trace.jobs))


def test_counts_written_with_a_point_are_written_as_counts(tmp_path: Path) -> None:
    text = "1.0 1e1 5.0 60.5 8.0 -1.0 -1.0 8.0 3600.0 -1.0 1.0 3.0 1.0 -1.0 1.0 -1.0 -1.0 -1.0\n"
    trace = read_both(tmp_path, text)
    written = b"".join(swf.swf_lines(trace.header, trace.jobs))
    assert written == b"1 10 5 60.5 8 -1 -1 8 3600 -1 1 3 1 -1 1 -1 -1 -1\n"


def test_a_nineteenth_column_is_kept_and_is_no_pattern(tmp_path: Path) -> None:
    (job,) = read_both(tmp_path, WHOLE.replace("\n", " 0\n")).jobs
    assert (job.extension, job.pattern) == ((0,), None)


def test_a_word_for_a_number_leaves_no_empty_trace(tmp_path: Path) -> None:
    text = HEAD + WHOLE.replace(" 900 -1 ", " 900 Polaris ")
    with pytest.raises(InputError, match=r":4: field 10 \(requested memory\): 'Polaris' is not a number"):
        read_both(tmp_path, text)
    with pytest.raises(InputError, match="no readable job"):
        read_both(tmp_path, text, strict=False)


def test_jobs_long_before_the_rest_are_named_and_do_not_hide_the_load(tmp_path: Path) -> None:
    day_s = 86_400
    early = [line(one, 5 * one, 0, 60, 1) for one in range(1, 3)]
    rest = [line(10 + one, 100 * day_s + 600 * one, 0, 1200, 1) for one in range(300)]
    (path := tmp_path / "log.swf").write_text(HEAD + "".join(early + rest))
    remark = summarize(swf.load_columns(path)).remarks[-1]
    assert "for 100.0 days, between the first 2 jobs and the last 300" in remark
    assert "the offered load 50.2%" in remark
    assert "--start 8640000" in remark
    assert find_window(swf.read_swf(path)).start_s > 99 * day_s
    cut = ["convert", str(path), "--start", "8640000", "--out", str(tmp_path / "cut.swf")]
    CliRunner().invoke(app, cut, catch_exceptions=False)
    assert len(swf.read_swf(tmp_path / "cut.swf").jobs) == 300


def test_several_gaps_are_counted_and_a_late_stray_is_cut_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    days = (0, 1, 2, 40, 41, 400)
    path.write_text("".join(line(one, 86_400 * day, 0, 9, 1) for one, day in enumerate(days)))
    (remark,) = summarize(swf.load_columns(path)).remarks
    assert "359.0 days, between the first 5 jobs and the last 1 (and in 1 gap more)" in remark
    assert "--length 3542401" in remark


def test_use_beyond_request_and_machine_is_counted(tmp_path: Path) -> None:
    (path := tmp_path / "log.swf").write_text(
        "; MaxProcs: 8\n"
        "1 0 0 90 12 130 -1 8 90 -1 1 1 1 1 1 1 -1 -1\n"
        "2 0 0 90 8 90.5 -1 8 90 -1 1 1 1 1 1 1 -1 -1\n"
        "3 9 0 450 2 -1 -1 2 90 -1 1 1 1 1 1 1 -1 -1\n"
    )
    assert set(summarize(swf.load_columns(path)).remarks) == {
        "ran with more processors than the machine has: 1 job",
        "used more CPU time than its processors had while it ran: 1 job",
        "ran longer than asked for: 1 job",
    }


@pytest.mark.skipif(not FIELD.is_dir(), reason="needs field inputs in OSUB_SHARED/field")
def test_logs_of_the_field_have_their_jobs() -> None:
    counts = {
        "10-swf-rolls-of-one-job/rolls.swf": 3,
        "10-swf-rolls-of-one-job/rolls_without_summary.swf": 3,
        "11-swf-made-by-scripts/floats.swf": 2,
        "11-swf-made-by-scripts/nineteen_columns.swf": 2,
        "11-swf-made-by-scripts/queue_user_in_header.swf": 2,
        "12-swf-prelude-and-overuse/overuse.swf": 5,
        "12-swf-prelude-and-overuse/prelude.swf": 203,
    }
    for name, jobs in counts.items():
        trace = swf.read_swf(FIELD / name)
        assert len(trace.jobs) == jobs, name
        assert swf.load_columns(FIELD / name).frame.rows() == [job.values() for job in trace.jobs]
    header = swf.read_swf(FIELD / "11-swf-made-by-scripts/queue_user_in_header.swf").header
    assert (header.max_nodes, header.max_procs, header.unix_start_time_s) == (4360, 279_040, 1_600_000_000)
    rolls = (swf.read_swf(FIELD / name).jobs for name in itertools.islice(counts, 2))
    assert [[job.run_s for job in jobs] for jobs in rolls] == [[600, 900, 60]] * 2


BERLIN = ZoneInfo("Europe/Berlin")

HEADING = (
    "JobID|JobIDRaw|User|State|Submit|Start|End|ElapsedRaw|NNodes|NCPUS|ReqMem|TotalCPU|MaxRSS|NTasks|JobName"
)

ROW = {
    "JobID": "40", "JobIDRaw": "40", "User": "kim", "State": "COMPLETED",
    "Submit": "2023-05-08T09:00:00", "Start": "2023-05-08T09:02:00", "End": "2023-05-08T09:12:00",
    "ElapsedRaw": "600", "NNodes": "1", "NCPUS": "4", "ReqMem": "2Gc", "JobName": "fold",
}  # fmt: skip


def row(heading: str = HEADING, mark: str = "|", **cells: str) -> str:
    """Return a line of accounting: ``ROW`` with other cells."""
    known = ROW | cells
    return mark.join(known.get(name, "") for name in heading.split("|"))


def read(*rows: str, heading: str = HEADING, strict: bool = True) -> swf.SwfTrace:
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "dump.txt").write_text("\n".join([heading, *rows]) + "\n")
        return read_any(path, ImportOptions("dump", zone=BERLIN), strict)[0]


def only(*rows: str, heading: str = HEADING) -> swf.SwfJob:
    (job,) = read(*rows, heading=heading).jobs
    return job


def day(time: str, date: str = "2023-05-08") -> str:
    return f"{date}T{time}"


CANCELLED = {"State": "CANCELLED by 77", "Start": day("09:30:00"), "End": day("09:30:00"), "ElapsedRaw": "0"}


@pytest.mark.parametrize(
    ("columns", "cells", "ran"),
    [
        ("", {}, False),
        ("|ReqCPUS", {"ReqCPUS": "4"}, False),
        ("|NodeList", {"NodeList": "None assigned"}, False),
        ("|NodeList", {"NodeList": "n7"}, True),
        ("|AllocNodes", {"AllocNodes": "0"}, False),
        ("|AllocNodes", {"AllocNodes": "1"}, True),
        ("|AllocCPUS|ReqCPUS", {"AllocCPUS": "0", "ReqCPUS": "4"}, False),
        ("|AllocTRES", {"AllocTRES": "cpu=4,node=1"}, True),
        ("|AllocTRES", {"AllocTRES": ""}, False),
        ("|NodeList", {"NodeList": "None assigned", "State": "FAILED"}, False),
        ("", {"State": "FAILED"}, True),
        ("", {"State": "DEADLINE"}, False),
    ],
)
def test_a_job_that_was_cancelled_while_it_waited_never_started(
    columns: str, cells: dict[str, str], ran: bool
) -> None:
    heading = HEADING + columns
    real = {"NodeList": "n1", "AllocNodes": "1", "AllocCPUS": "4", "AllocTRES": "cpu=4", "ReqCPUS": "4"}
    other = row(heading, JobID="39", JobIDRaw="39", **real)
    trace = read(other, row(heading, **(CANCELLED | cells)), heading=heading)
    assert [job.job_number for job in trace.jobs] == ([39, 40] if ran else [39])
    assert trace.report.skipped == ({} if ran else {"never started": 1})
    assert trace.header.max_procs == 4


def test_a_step_proves_that_a_cancelled_job_started() -> None:
    job = only(row(**CANCELLED), row(JobID="40.batch", JobIDRaw="40.batch", JobName="batch"))
    assert (job.run_s, job.wait_s, job.status) == (0, 1800, 5)


@pytest.mark.parametrize(("nodes", "ran"), [(0, False), (1, True)])
def test_json_reports_by_its_nodes_whether_a_job_started(nodes: int, ran: bool, tmp_path: Path) -> None:
    times = {"submission": 100, "start": 200, "end": 200, "elapsed": 0}
    jobs: list[dict[str, Any]] = [
        {"job_id": 3, "time": times | {"end": 300, "elapsed": 100}, "required": {"CPUs": 2}},
        {"job_id": 4, "time": times, "required": {"CPUs": 2}, "state": {"current": "CANCELLED"}},
    ]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"jobs": [job | {"allocation_nodes": nodes or 0} for job in jobs]}))
    trace, _ = read_any(path, ImportOptions("dump"))
    assert [job.job_number for job in trace.jobs] == ([3, 4] if ran else [3])


@pytest.mark.parametrize("column", ["Comment", "SubmitLine", "WorkDir"])
def test_what_users_write_may_hold_the_mark_in_the_last_column(column: str) -> None:
    heading = f"{HEADING}|{column}"
    assert only(row(heading, **{column: "one | two"}), heading=heading).run_s == 600


def test_a_line_break_in_what_users_write_is_named_or_skipped() -> None:
    heading = f"{HEADING}|SubmitLine"
    rows = [row(heading, SubmitLine="sh -c one &&\ntwo | three"), row(heading, JobID="41", JobIDRaw="41")]
    with pytest.raises(InputError, match=r":3: 2 columns instead of 16; is a line break in submitline"):
        read(*rows, heading=heading)
    trace = read(*rows, heading=heading, strict=False)
    assert [job.job_number for job in trace.jobs] == [40, 41]
    assert trace.report.skipped == {"number of columns": 1}


@pytest.mark.parametrize("mark", ["^|^", "\N{SNOWMAN}", "%%", "~"])
def test_any_mark_between_columns_is_found_in_the_heading(mark: str) -> None:
    heading = HEADING.replace("|", mark)
    assert only(row(mark=mark, JobName="left|right"), heading=heading).procs == 4


@pytest.mark.parametrize("mark", ["|", "^|^", "\N{SNOWMAN}", ","])
@pytest.mark.parametrize("job", ["40", "40_1", "40+0"])
def test_accounting_without_a_heading_is_named(mark: str, job: str) -> None:
    with pytest.raises(InputError, match="without a heading: make it without --noheader") as caught:
        read(row(mark=mark), heading=row(mark=mark, JobID=job))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "text"),
    [("ReqMem", text) for text in ("16?c", "16?", "-1", "99999999P", "8000000Ec")]
    + [("TotalCPU", text) for text in ("213503982334-14:25:51", "-1", "4294967295")]
    + [("JobIDRaw", "-1"), ("NNodes", "4294967294")],
)
def test_a_value_that_cannot_be_is_not_known_and_counted(column: str, text: str) -> None:
    trace = read(row(**{column: text}))
    (job,) = trace.jobs
    expected = 2 * 1024**2 if column != "ReqMem" else None
    assert (job.run_s, job.requested_memory_kib, job.cpu_s) == (600, expected, None)
    assert any(f"{column} 1" in note for note in trace.header.notes)


def test_memory_beyond_slurms_units_is_not_bytes() -> None:
    steps = [row(JobID=f"40.{step}", MaxRSS=rss, NTasks="1") for step, rss in (("0", "16?"), ("1", "4M"))]
    assert only(row(), steps[0]).used_memory_kib is None
    assert only(row(), *steps).used_memory_kib == 1024
    assert memory_kib("1Mc", 4, 1) == 4096
    assert memory_kib("0.0001E", 4, 1) == pytest.approx(0.0001 * 1024**5)
    for broken in ("4Zn", "c", "1.2.3M", "9" * 60):
        with pytest.raises(ValueError, match=r".") as caught:
            memory_kib(broken, 1, 1)
        assert not isinstance(caught.value, NotKnownError)


def test_cpu_time_of_steps_is_added_where_the_job_has_none() -> None:
    steps = [row(JobID=f"40.{step}", TotalCPU=f"00:{step}0:00", NTasks="1") for step in (1, 2)]
    assert only(row(), *steps).cpu_s == 1800 / 4
    assert only(row(TotalCPU="00:20:00"), *steps).cpu_s == 1200 / 4


def test_more_cpu_time_than_run_time_is_a_remark(tmp_path: Path) -> None:
    swf.write_swf(tmp_path / "t.swf", read(row(TotalCPU="1-00:00:00")))
    (remark,) = summarize(swf.load_columns(tmp_path / "t.swf")).remarks
    assert remark == "used more CPU time than its processors had while it ran: 1 job"


LATER = {"Submit": day("09:00:00", "2024-11-03"), "Start": day("09:05:00", "2024-11-03")}


LATER |= {"End": day("09:15:00", "2024-11-03")}


AGAIN = {"Submit": day("09:12:00"), "Start": day("09:20:00"), "End": day("09:30:00")}


@pytest.mark.parametrize(
    ("first", "second", "jobs"),
    [
        ({"State": "NODE_FAIL"}, AGAIN, 1),
        ({"State": "PREEMPTED"}, AGAIN | {"Submit": ROW["Submit"]}, 1),
        ({"State": "NODE_FAIL"}, AGAIN | {"User": "lee"}, 2),
        ({"State": "NODE_FAIL"}, AGAIN | {"JobName": "other"}, 2),
        ({"State": "NODE_FAIL"}, LATER, 2),
        ({}, LATER, 2),
    ],
)
def test_a_number_used_again_is_another_job_and_a_requeue_is_not(
    first: dict[str, str], second: dict[str, str], jobs: int
) -> None:
    trace = read(row(**first), row(**second))
    assert [job.job_number for job in trace.jobs] == [40, 41][:jobs]
    assert trace.report.skipped == ({"earlier run of a requeued job": 1} if jobs == 1 else {})
    assert any("1 job with the number of an earlier one" in note for note in trace.header.notes) == (
        jobs == 2
    )
    assert not any("array" in note for note in trace.header.notes)


def test_of_many_requeues_the_last_run_counts_quickly() -> None:
    runs = [
        row(
            State="REQUEUED",
            **{name: f"{1000 * n + at}" for name, at in zip(AGAIN, (0, 5, 605), strict=True)},
        )
        for n in range(1, 3000)
    ]
    trace = read(*runs)
    assert (len(trace.jobs), trace.report.skipped) == (1, {"earlier run of a requeued job": 2998})


@pytest.mark.parametrize("raw", [True, False])
def test_components_of_a_heterogeneous_job_are_named_as_such(raw: bool, tmp_path: Path) -> None:
    heading = HEADING if raw else HEADING.replace("JobIDRaw|", "")
    rows = [row(heading, JobID=f"40+{one}", JobIDRaw=str(40 + one)) for one in range(3)]
    path = tmp_path / "dump.txt"
    path.write_text("\n".join([heading, *rows, row(heading, JobID="9", JobIDRaw="9")]))
    out = tmp_path / "out.swf"
    result = CliRunner().invoke(app, ["convert", str(path), "--out", str(out)], catch_exceptions=False)
    assert "1 heterogeneous job: 3 components became jobs of their own" in result.output
    assert "array" not in result.output
    numbers = [job.job_number for job in swf.read_swf(out).jobs]
    assert numbers == ([40, 41, 42, 9] if raw else [10, 11, 12, 9])


AUTUMN = "2022-10-30"  # 03:00 in summer time is 02:00 again


@pytest.mark.parametrize(
    ("submit", "start", "end", "elapsed", "wait_s", "run_s", "sure"),
    [
        ("02:50:00", "02:05:00", "02:20:00", "900", 900, 900, True),
        ("02:40:00", "02:50:00", "02:10:00", "1200", 600, 1200, True),
        ("02:40:00", "02:50:00", "02:10:00", "", 600, 1200, True),
        ("02:30:00", "02:30:10", "02:40:10", "4200", 10, 4200, True),
        ("02:30:00", "02:30:10", "02:40:10", "", 10, 600, False),
        ("01:30:00", "01:30:10", "03:30:10", "10800", 10, 10800, True),
        ("01:50:00", "02:05:00", "03:05:00", "3600", 4500, 3600, True),
        ("01:50:00", "02:05:00", "03:05:00", "7200", 900, 7200, True),
        ("02:10:00", "02:20:00", "02:30:00", "600", 600, 600, False),
        ("00:10:00", "00:20:00", "02:30:00", "11400", 600, 11400, True),
        ("12:00:00", "12:00:10", "12:10:10", "600", 10, 600, True),
    ],
)
def test_the_hour_that_autumn_repeats_is_distinguished(
    submit: str, start: str, end: str, elapsed: str, wait_s: int, run_s: int, sure: bool
) -> None:
    cells = {"Submit": submit, "Start": start, "End": end}
    trace = read(row(**{name: day(time, AUTUMN) for name, time in cells.items()}, ElapsedRaw=elapsed))
    (job,) = trace.jobs
    assert (job.wait_s, job.run_s, trace.report.skipped) == (wait_s, run_s, {})
    assert any("autumn" in note for note in trace.header.notes) is not sure


def test_the_completion_log_distinguishes_the_repeated_hour(tmp_path: Path) -> None:
    (path := tmp_path / "jobcomp.log").write_text(
        "JobId=5 UserId=kim(7) GroupId=g(1) Name=a JobState=COMPLETED Partition=p TimeLimit=9 "
        f"StartTime={AUTUMN}T02:05:00 EndTime={AUTUMN}T02:20:00 NodeList=n1 NodeCnt=1 ProcCnt=2 WorkDir=/ "
        f"SubmitTime={AUTUMN}T02:50:00 EligibleTime={AUTUMN}T02:50:00 ExitCode=0:0 \n"
    )
    (job,) = read_any(path, ImportOptions("log", zone=BERLIN))[0].jobs
    assert (job.wait_s, job.run_s) == (900, 900)


zones = st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kolkata"])
BERLIN_CHANGE_S, LORD_HOWE_CHANGE_S = 1667091600, 1712415600
seconds = st.integers(1_577_836_800, 1_893_456_000) | st.integers(-9000, 9000).map(BERLIN_CHANGE_S.__add__)


@given(zones, seconds, st.integers(0, 7200), st.integers(0, 7200))
@example("Australia/Lord_Howe", LORD_HOWE_CHANGE_S - 600, 900, 900)
@examples(150)
def test_a_clock_reads_what_slurm_writes(name: str, submit_s: int, wait_s: int, run_s: int) -> None:
    """The run time is always right; so are all instants where the clock is sure of them."""
    zone = ZoneInfo(name)
    true = (submit_s, submit_s + wait_s, submit_s + wait_s + run_s)
    texts = [datetime.fromtimestamp(at_s, zone).strftime("%Y-%m-%dT%H:%M:%S") for at_s in true]
    clock = LocalClock(zone)
    for _ in range(2):  # the second time from memory
        times, sure = clock.read(texts[0], texts[1], texts[2], run_s)
        known = [time_s for time_s in times if time_s is not None]
        assert known == sorted(known)
        assert known[2] - known[1] == run_s
        if sure:
            assert times == true


@pytest.mark.parametrize(
    "text",
    [
        "1709535600.12345678",
        "2024-03-04T08:00+01",
        "2024-W10-1T08:00:00",
        "2024-03-04 08:00:00",
        "20240304T080000",
    ],
)
def test_a_clock_reads_all_other_forms_as_they_are_read_alone(text: str) -> None:
    clock = LocalClock(BERLIN)
    assert [clock.instant_s(text) for _ in range(2)] == [instant_s(text, BERLIN)] * 2


cells = st.sampled_from(
    ["", "-1", "0", "16?", "Unknown", "1e9", "|", ".", "²", "9" * 20, AUTUMN + "T02:30:00"]
)


@given(
    st.lists(st.dictionaries(st.sampled_from(HEADING.split("|")), cells | st.text(max_size=8)), max_size=5),
    st.booleans(),
)
@examples(100)
def test_any_cells_are_a_trace_or_one_line(changes: list[dict[str, str]], strict: bool) -> None:
    rows = [row(), *(row(**change) for change in changes)]
    try:
        trace = read(*rows, strict=strict)
    except InputError:
        trace = read(*rows, strict=False)
    with tempfile.TemporaryDirectory() as folder:
        swf.write_swf(Path(folder) / "t.swf", trace)
        assert swf.read_swf(Path(folder) / "t.swf").jobs == trace.jobs


@given(st.text("0123456789-:.?KMGTPEinfc,e+ ²", max_size=24))
@examples(200)
def test_any_word_is_a_number_within_bounds_or_a_value_error(text: str) -> None:
    for read_word in (count, length_s, lambda word: memory_kib(word, 2, 1)):
        try:
            value = read_word(text)
        except ValueError:
            continue
        assert value is None or 0 <= value <= 2 * 10**15


@pytest.mark.skipif(not FIELD.is_dir(), reason="needs field inputs in OSUB_SHARED/field")
@pytest.mark.parametrize(
    ("name", "waits_and_runs", "left_out"),
    [
        ("03-sacct-never-started/dump.txt", [(120, 0), (120, 3600)], {"never started": 3}),
        ("04-sacct-arrays/dump.txt", [(5, 600), (5, 60), (3600, 600)], {"never started": 2}),
        ("04-sacct-arrays/dump_without_raw.txt", [(5, 600), (5, 60), (3600, 600)], {"never started": 2}),
        ("05-sacct-submitline-with-newline/dump_delimiter.txt", [(5, 2)], {}),
        ("06-sacct-impossible-numbers/dump.txt", [(5, 21600), (5, 3600), (5, 1594), (5, 600)], {}),
        (
            "07-sacct-requeued-or-recycled/dump.txt",
            [(569, 3600), (600, 600), (10, 1800), (478, 2153)],
            {"earlier run of a requeued job": 3},
        ),
        ("08-sacct-het-and-interactive/dump.txt", [(1800, 3600), (1800, 3600), (7, 7)], {}),
        ("09-sacct-autumn-hour/dump.txt", [(10, 10800), (10, 4200), (600, 1200), (900, 900), (10, 600)], {}),
        (
            "09-sacct-autumn-hour/dump_without_elapsed.txt",
            [(10, 10800), (10, 600), (600, 1200), (900, 900), (10, 600)],
            {},
        ),
    ],
)
def test_dumps_of_the_field_have_their_jobs(
    name: str, waits_and_runs: list[tuple[float, float]], left_out: dict[str, int]
) -> None:
    trace, _ = read_any(FIELD / name, ImportOptions("dump", zone=BERLIN))
    assert [(job.wait_s, job.run_s) for job in trace.jobs] == waits_and_runs
    assert trace.report.skipped == left_out


@pytest.mark.skipif(not FIELD.is_dir(), reason="needs field inputs in OSUB_SHARED/field")
@pytest.mark.parametrize(
    ("name", "fields", "values", "note"),
    [
        ("04-sacct-arrays/dump.txt", "status", {7001: 1, 7002: 0, 7000: 1}, None),
        (
            "04-sacct-arrays/dump_without_raw.txt",
            "status",
            {1: 1, 2: 0, 3: 1},
            "3 array tasks without own numbers",
        ),
        (
            "06-sacct-impossible-numbers/dump.txt",
            "used_memory_kib requested_memory_kib cpu_s",
            {
                9001: (-1, -1, 21540),
                9002: (2_621_440, -1, 3570),
                9003: (-1, 8_192_000, 147_587 / 2),
                9004: (-1, 1024, 135),
            },
            "values that cannot be, taken as not known: ReqMem 1, MaxRSS 1, TotalCPU 1",
        ),
        (
            "08-sacct-het-and-interactive/dump.txt",
            "queue procs",
            {500: (1, 4), 501: (1, 64), 778: (0, 2)},
            "1 heterogeneous job: 2 components became jobs of their own; a scheduler may start them apart",
        ),
        (
            "09-sacct-autumn-hour/dump_without_elapsed.txt",
            "run_s",
            {604: 10800, 603: 600, 602: 1200, 601: 900, 605: 600},
            "1 job of the hour that autumn repeats may be an hour later or longer",
        ),
    ],
)
def test_dumps_of_the_field_have_their_values(
    name: str, fields: str, values: dict[int, Any], note: str | None, tmp_path: Path
) -> None:
    trace, _ = read_any(FIELD / name, ImportOptions("dump", zone=BERLIN))
    swf.write_swf(tmp_path / "t.swf", trace)
    wanted = {job: value if isinstance(value, tuple) else (value,) for job, value in values.items()}
    names = fields.split()
    written = {
        job.job_number: tuple(-1 if getattr(job, field) is None else getattr(job, field) for field in names)
        for job in swf.read_swf(tmp_path / "t.swf").jobs
    }
    assert written == wanted
    notes = [text for text in trace.header.notes if not text.startswith(("MaxProcs is", "interactive jobs"))]
    assert [text[: len(note or "")] for text in notes] == ([note] if note else [])


@pytest.mark.skipif(not FIELD.is_dir(), reason="needs field inputs in OSUB_SHARED/field")
def test_cpu_beyond_the_run_time_of_a_field_dump_is_a_remark(tmp_path: Path) -> None:
    trace, _ = read_any(FIELD / "06-sacct-impossible-numbers/dump.txt", ImportOptions("dump", zone=BERLIN))
    swf.write_swf(tmp_path / "t.swf", trace)
    remarks = summarize(swf.load_columns(tmp_path / "t.swf")).remarks
    assert "used more CPU time than its processors had while it ran: 1 job" in remarks


@pytest.mark.skipif(not FIELD.is_dir(), reason="needs field inputs in OSUB_SHARED/field")
def test_a_line_break_in_a_field_dump_is_named_or_skipped() -> None:
    path = FIELD / "05-sacct-submitline-with-newline/dump.txt"
    with pytest.raises(
        InputError, match=r"dump\.txt:3: .* line break in submitline .* `sacct --json`"
    ) as caught:
        read_any(path, ImportOptions("dump", zone=BERLIN))
    assert "\n" not in str(caught.value)
    trace, _ = read_any(path, ImportOptions("dump", zone=BERLIN), strict=False)
    assert [(job.job_number, job.run_s, job.procs) for job in trace.jobs] == [(8101, 2, 1), (8102, 60, 2)]
    assert trace.report.skipped == {"number of columns": 2}


@pytest.mark.skipif(not FIELD.is_dir(), reason="needs field inputs in OSUB_SHARED/field")
@pytest.mark.parametrize("name", ["dump_noheader_snowman.txt", "dump_xdmod_noheader.txt"])
@pytest.mark.parametrize("more", [(), ("--lenient",)])
def test_a_field_dump_without_a_heading_is_one_line(name: str, more: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "t.swf"
    path = FIELD / "05-sacct-submitline-with-newline" / name
    result = CliRunner().invoke(app, ["convert", str(path), "--out", str(out), *more])
    assert isinstance(result.exception, InputError)
    assert "without a heading: make it without --noheader" in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not out.exists()
