"""SWF logs as machines and scripts make them: parts of gang-scheduled jobs, odd headers, strays, overuse."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from foundation.errors import InputError
from osub.cli.trace.command import app
from tests.fixtures.golden import SHARED
from tests.fixtures.tier import examples
from workloads.swf import SwfComment, SwfHeader, SwfTrace, load_columns, read_swf, swf_lines
from workloads.trace.trace_summary import summarize
from workloads.trace.transforms import TraceConversion, converted, find_window

FIELD = SHARED / "field"
HEAD = "; MaxNodes: 64\n; MaxProcs: 64\n; UnixStartTime: 800000000\n"
LINE = "{number} {submit} {wait} {run} 16 {cpu} -1 16 900 -1 {status} 4 1 1 1 1 -1 -1\n"


def line(number: int, submit: int, wait: int, run: int, status: int, cpu: int = -1) -> str:
    return LINE.format(number=number, submit=submit, wait=wait, run=run, status=status, cpu=cpu)


def read_both(tmp_path: Path, text: str, strict: bool = True) -> SwfTrace:
    """Return what ``read_swf`` reads; ``load_columns`` must read the same."""
    path = tmp_path / "log.swf"
    path.write_text(text)
    trace, columns = read_swf(path, strict), load_columns(path, strict)
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
    assert b"".join(swf_lines(trace.header, trace.jobs)).decode() == text
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
    summary = summarize(load_columns(path))
    assert summary.offered_load == pytest.approx(16 * (10 + 120 + 10) / (64 * 100))
    assert "3 lines are part of 1 job: joined, so that the load counts once" in summary.remarks
    out = tmp_path / "out.swf"
    result = CliRunner().invoke(app, ["convert", str(path), "--out", str(out)], catch_exceptions=False)
    assert "joined 3 lines that are part of 1 job" in result.output
    assert len(read_swf(out).jobs) == 3


number = st.integers(1, 3)
second = st.sampled_from([-1, 0, 5, 10, 40, 2**53])
any_line = st.builds(line, number, second, second, second, st.integers(0, 5), second)


@given(st.lists(any_line | st.just("; note\n") | st.just("1 2\n"), min_size=1, max_size=8), st.booleans())
@examples(60)
def test_any_mix_of_parts_is_read_alike_and_can_be_read_again(lines: list[str], strict: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.swf"
        path.write_text("".join(lines))
        said: list[str] = []
        for read in (read_swf, load_columns):
            try:
                said.append(str(read(path, strict).report))
            except InputError as error:
                said.append(str(error))
        assert said[0] == said[1]
        if not said[0].startswith("ReadReport"):
            return
        trace = read_both(Path(folder), "".join(lines), strict)
        path.write_bytes(b"".join(swf_lines(trace.header, trace.jobs)))
        once_more = read_swf(path)
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
    header = SwfHeader((SwfComment(f"; MaxProcs: {text}\n".encode()),))
    assert header.max_procs == value
    assert header.unreadable_numbers == ({} if value or text == "-1" else {"MaxProcs": text})


def test_info_names_header_numbers_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text("; MaxProcs: 64 or so\n; MaxNodes: 3.5e0\n" + WHOLE)
    (remark,) = summarize(load_columns(path)).remarks
    assert "MaxNodes does not begin with a whole number" in remark


@pytest.mark.parametrize("tail", ["\x1a", "\x1a\n", "\r\n\x1a\r\n"])
def test_a_final_end_of_file_mark_of_dos_does_no_harm(tmp_path: Path, tail: str) -> None:
    trace = read_both(tmp_path, OTHERS[0].replace("\n", "\r\n") + WHOLE.rstrip() + tail)
    assert [job.job_number for job in trace.jobs] == [6, 7]
    assert b"\x1a" not in b"".join(swf_lines(trace.header, trace.jobs))


def test_counts_written_with_a_point_are_written_as_counts(tmp_path: Path) -> None:
    text = "1.0 1e1 5.0 60.5 8.0 -1.0 -1.0 8.0 3600.0 -1.0 1.0 3.0 1.0 -1.0 1.0 -1.0 -1.0 -1.0\n"
    trace = read_both(tmp_path, text)
    written = b"".join(swf_lines(trace.header, trace.jobs))
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
    path = tmp_path / "log.swf"
    path.write_text(HEAD + "".join(early + rest))
    summary = summarize(load_columns(path))
    remark = summary.remarks[-1]
    assert "for 100.0 days, between the first 2 jobs and the last 300" in remark
    assert "the offered load 50.2%" in remark
    assert "--start 8640000" in remark
    window = find_window(read_swf(path))
    assert window.start_s > 99 * day_s
    cut = ["convert", str(path), "--start", "8640000", "--out", str(tmp_path / "cut.swf")]
    CliRunner().invoke(app, cut, catch_exceptions=False)
    assert len(read_swf(tmp_path / "cut.swf").jobs) == 300


def test_several_gaps_are_counted_and_a_late_stray_is_cut_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    days = (0, 1, 2, 40, 41, 400)
    path.write_text("".join(line(one, 86_400 * day, 0, 9, 1) for one, day in enumerate(days)))
    (remark,) = summarize(load_columns(path)).remarks
    assert "359.0 days, between the first 5 jobs and the last 1 (and in 1 gap more)" in remark
    assert "--length 3542401" in remark


def test_use_beyond_request_and_machine_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(
        "; MaxProcs: 8\n"
        "1 0 0 90 12 130 -1 8 90 -1 1 1 1 1 1 1 -1 -1\n"
        "2 0 0 90 8 90.5 -1 8 90 -1 1 1 1 1 1 1 -1 -1\n"
        "3 9 0 450 2 -1 -1 2 90 -1 1 1 1 1 1 1 -1 -1\n"
    )
    assert set(summarize(load_columns(path)).remarks) == {
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
        trace = read_swf(FIELD / name)
        assert len(trace.jobs) == jobs, name
        assert load_columns(FIELD / name).frame.rows() == [job.values() for job in trace.jobs]
    header = read_swf(FIELD / "11-swf-made-by-scripts/queue_user_in_header.swf").header
    assert (header.max_nodes, header.max_procs, header.unix_start_time_s) == (4360, 279_040, 1_600_000_000)
    rolls = (read_swf(FIELD / name).jobs for name in itertools.islice(counts, 2))
    assert [[job.run_s for job in jobs] for jobs in rolls] == [[600, 900, 60]] * 2
