"""SWF: header, patterns, reader, writer."""

from __future__ import annotations

import gzip
import math
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from foundation.errors import InputError, OutputError
from workloads import swf

HEAD = b"; Version: 2.2\n; MaxProcs: 8\n"
JOB_1 = b"1 0 5 10 4 -1 -1 4 60 -1 1 7 1 -1 0 -1 -1 -1\n"
JOB_2 = b"2 30 -1 7.5 1 6.25 2048 1 60 4096 0 8 1 3 1 2 1 15\n"


def write(tmp_path: Path, content: bytes, name: str = "t.swf") -> Path:
    (path := tmp_path / name).write_bytes(content)
    return path


def test_fields_are_typed_and_minus_one_is_none(tmp_path: Path) -> None:
    first, second = swf.read_swf(write(tmp_path, HEAD + JOB_1 + JOB_2)).jobs
    assert (first.job_number, first.submit_s, first.wait_s, first.run_s) == (1, 0, 5, 10)
    assert first.cpu_s is None
    assert first.used_memory_kib is None
    assert first.partition is None
    assert first.queue == 0
    assert (second.wait_s, second.run_s, second.cpu_s) == (None, 7.5, 6.25)
    assert (second.preceding_job, second.think_s) == (1, 15)


def test_processors_and_memory_fall_back_to_the_other_field(tmp_path: Path) -> None:
    first, second = swf.read_swf(write(tmp_path, JOB_1 + JOB_2)).jobs
    assert replace(first, allocated_procs=None, requested_procs=3).procs == 3
    assert second.memory_kib == 4096
    assert replace(second, requested_memory_kib=None).memory_kib == 2048
    assert first.memory_kib is None


def test_gzip_is_known_by_its_bytes_not_its_name(tmp_path: Path) -> None:
    plain_named_gz = write(tmp_path, HEAD + JOB_1, "plain.swf.gz")
    packed_named_plain = write(tmp_path, gzip.compress(HEAD + JOB_1), "packed.swf")
    assert swf.read_swf(plain_named_gz).jobs == swf.read_swf(packed_named_plain).jobs
    assert swf.load_columns(packed_named_plain).frame["run_s"].to_list() == [10.0]


def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(gzip.compress(HEAD + JOB_1),))
    writer.start()
    jobs = swf.read_swf(fifo).jobs
    writer.join()
    assert len(jobs) == 1


def test_trace_is_named_after_its_file(tmp_path: Path) -> None:
    assert swf.read_swf(write(tmp_path, JOB_1, "KTH-SP2.swf.gz")).name == "KTH-SP2"
    assert swf.load_columns(write(tmp_path, JOB_1, "KTH-SP2.swf")).name == "KTH-SP2"


MALFORMED = [
    (b"1 2 3\n", "too few fields", "field 4 (run time) is missing"),
    (JOB_1.replace(b" 10 ", b" abc "), "not a number", "field 4 (run time): 'abc' is not a number"),
    (JOB_1.replace(b" 10 ", b" 1-0 "), "not a number", "field 4 (run time): '1-0' is not a number"),
    (JOB_1.replace(b" 10 ", b" 1_0 "), "not a number", "field 4 (run time): '1_0' is not a number"),
    (JOB_1.replace(b" 10 ", b" -- "), "not a number", "field 4 (run time): '--' is not a number"),
    (JOB_1.replace(b" 10 ", b" nan "), "not a number", "field 4 (run time): 'nan' is not a number"),
    (JOB_1.replace(b" 10 ", b" 1e999 "), "number too large", "field 4 (run time): 1e999 is too large"),
    (JOB_1.replace(b" 10 ", b" 9" + b"9" * 30 + b" "), "number too large", "is too large"),
    (JOB_1.replace(b" 10 ", b" -10 "), "negative number", "field 4 (run time): -10 is negative"),
    (JOB_1.replace(b"1 0 5", b"1 -1 5"), "negative number", "field 2 (submit time): -1 is negative"),
    (JOB_1.replace(b" 4 60", b" 2.5 60"), "fraction", "field 8 (requested number of processors): 2.5"),
    (JOB_1.replace(b" 10 ", b" 1\x000 "), "NUL byte", "NUL byte at character 8"),
    (JOB_1.replace(b"-1\n", b"-1 1 2 x\n"), "not a number", "column 21: 'x' is not a number"),
    (b"1" * (1 << 20) + b" " + b"1" * (1 << 20) + b"\n", "line too long", "longer than 1048576 characters"),
]


@pytest.mark.parametrize(
    ("line", "reason", "words"), MALFORMED, ids=[words[:30] for _, _, words in MALFORMED]
)
def test_malformed_line_is_an_error_with_place_or_is_counted(
    tmp_path: Path, line: bytes, reason: str, words: str
) -> None:
    path = write(tmp_path, HEAD + JOB_1 + line + JOB_2)
    for read in (swf.read_swf, swf.load_columns):
        with pytest.raises(InputError) as caught:
            read(path)
        message = str(caught.value)
        assert message.startswith(f"{path}:4: ")
        assert words in message
        assert "\n" not in message
        report = read(path, strict=False).report
        assert (report.jobs, report.skipped) == (2, {reason: 1})
        assert message == f"{report.examples[0]}; lenient passes over malformed lines"


@pytest.mark.slow
def test_lenient_readers_keep_what_a_truncated_gzip_still_has(tmp_path: Path) -> None:
    lines = [
        b"%d %d 0 9 1 -1 -1 1 60 -1 1 %d 1 -1 0 -1 -1 -1\n" % (i, i, i * 7919 % 1000) for i in range(1, 20000)
    ]
    packed = gzip.compress(HEAD + b"".join(lines))
    path = write(tmp_path, packed[: len(packed) // 2])
    for read in (swf.read_swf, swf.load_columns):
        with pytest.raises(InputError, match="truncated"):
            read(path)
    trace, columns = swf.read_swf(path, strict=False), swf.load_columns(path, strict=False)
    assert (trace.report, trace.report.skipped) == (columns.report, {"damaged end of file": 1})
    assert len(trace.jobs) > 5000
    assert [job.job_number for job in trace.jobs] == columns.frame["job_number"].to_list()


def test_damaged_gzip_is_an_input_error(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(HEAD + JOB_1 * 1000))
    packed[-6] ^= 0xFF
    path = write(tmp_path, bytes(packed))
    for read in (swf.read_swf, swf.load_columns):
        with pytest.raises(InputError, match="gzip file that is damaged"):
            read(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (HEAD, "has only comments"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"PK\x03\x04rest", "is a zip file: unpack it first"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_file_without_jobs_is_an_input_error(
    tmp_path: Path, content: bytes, words: str, strict: bool
) -> None:
    path = write(tmp_path, content)
    for read in (swf.read_swf, swf.load_columns):
        with pytest.raises(InputError, match=words):
            read(path, strict)


def test_binary_file_is_an_input_error_also_when_lenient(tmp_path: Path) -> None:
    path = write(tmp_path, b"\x7fELF" + bytes(range(256)) * 20000)
    for read in (swf.read_swf, swf.load_columns):
        with pytest.raises(InputError, match=r"t\.swf:1: "):
            read(path)
        with pytest.raises(InputError, match="has no readable job; skipped: "):
            read(path, strict=False)


def test_missing_file_and_folder_are_input_errors(tmp_path: Path) -> None:
    for read in (swf.read_swf, swf.load_columns):
        with pytest.raises(InputError, match=r"none\.swf: No such file"):
            read(tmp_path / "none.swf")
        with pytest.raises(InputError, match="Is a directory"):
            read(tmp_path)


def test_unsorted_and_repeated_jobs_are_accepted_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path, JOB_2 + JOB_1 + JOB_2)
    for report in (swf.read_swf(path).report, swf.load_columns(path).report):
        assert (report.jobs, report.unsorted, report.duplicates) == (3, 1, 1)
        assert report.skipped_lines == 0


def test_streaming_reader_reports_header_and_report_as_it_goes(tmp_path: Path) -> None:
    reader = swf.iter_swf(write(tmp_path, HEAD + JOB_1 + b"; mid\n" + JOB_2))
    assert next(reader).job_number == 1
    assert (reader.header.max_procs, reader.report.jobs) == (8, 1)
    assert next(reader).job_number == 2
    assert reader.header.comments[-1].after_jobs == 1
    reader.close()


def test_changed_job_loses_its_text_and_keeps_its_values(tmp_path: Path) -> None:
    job = swf.read_swf(write(tmp_path, JOB_1.replace(b" ", b"   "))).jobs[0]
    assert job.line() == JOB_1.replace(b" ", b"   ")
    assert replace(job, run_s=11).line() == JOB_1.replace(b" 10 ", b" 11 ")


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_both_readers_agree_on_odd_but_legal_files(tmp_path: Path, line_end: bytes) -> None:
    content = HEAD + JOB_1 + b"\n; between\n" + JOB_2 + JOB_1.replace(b"-1\n", b"-1 19 20 21 5 5 2 5 20 15\n")
    path = write(tmp_path, content.replace(b"\n", line_end).rstrip())
    trace, columns = swf.read_swf(path), swf.load_columns(path)
    assert_same(trace, columns.frame.rows())
    assert columns.extensions == {2: (19, 20, 21, 5, 5, 2, 5, 20, 15)}
    assert (columns.header, columns.report) == (trace.header, trace.report)


def assert_same(trace: swf.SwfTrace, rows: list[tuple[float | None, ...]]) -> None:
    assert [job.values() for job in trace.jobs] == rows


@pytest.mark.parametrize(
    ("allocated", "requested", "procs"),
    [(16, 12, 12), (16, None, 16), (16, 0, 16), (None, 12, 12), (None, None, None)],
)
def test_a_job_gets_the_processors_it_asked_for(
    tmp_path: Path, allocated: int | None, requested: int | None, procs: int | None
) -> None:
    assert swf.SwfJob(1, 0.0, allocated_procs=allocated, requested_procs=requested).procs == procs
    words = ["-1" if value is None else str(value) for value in (allocated, requested)]
    path = tmp_path / "one.swf"
    path.write_text(f"1 0 -1 60 {words[0]} -1 -1 {words[1]} 60 -1 1 1 1 -1 1 -1 -1 -1\n")
    assert swf.load_columns(path).frame.select(swf.procs_column()).item() == procs


TEXT = b"""; Version: 2.2
; Computer: Bull
;  Installation: Gaia
; Acknowledge: Jane Doe
; Information: http://one
;              http://two
; UnixStartTime: 1400749079
; TimeZoneString: Europe/Luxembourg
; MaxNodes: 151 (100,51)
; MaxProcs: 2004
; MaxQueues: 2
; Queue: 0 - Interactive jobs
; Queue: 1  batch
; Partition: 1 thin
; AllowOveruse: False
; Note: first note
;\tgoes on
; Note: second
; 1| 2| columns
; Odd\xff\x80 bytes
"""


def header(text: bytes = TEXT) -> swf.SwfHeader:
    return swf.SwfHeader(tuple(swf.SwfComment(line) for line in text.splitlines(keepends=True)))


def test_fields_are_typed() -> None:
    head = header()
    assert head.version == "2.2"
    assert (head.computer, head.installation, head.acknowledge) == ("Bull", "Gaia", ("Jane Doe",))
    assert head.fields["Information"] == ("http://one http://two",)
    assert (head.max_nodes, head.max_procs) == (151, 2004)
    assert (head.queues, head.partitions) == ({0: "Interactive jobs", 1: "batch"}, {1: "thin"})
    assert head.notes == ("first note goes on", "second")
    assert head.unix_start_time_s == 1400749079
    assert head.time_zone is not None
    assert header(b"; TimeZone: -3600\n").time_zone_offset_s == -3600


def test_absent_and_ill_typed_fields_are_none() -> None:
    head = header(b"; MaxProcs: many\n; TimeZoneString: Moon/Sea\n; UnixStartTime: 0\n")
    assert head.max_procs is None
    assert head.max_nodes is None
    assert head.time_zone is None
    assert head.unix_start_time_s == 0
    assert head.time_zone_offset_s is None
    assert head.notes == ()


def test_changing_a_field_replaces_its_line_in_place() -> None:
    changed = header().with_field("MaxProcs", 8)
    assert changed.max_procs == 8
    assert len(changed.comments) == len(header().comments)
    assert changed.comments[9].raw == b"; MaxProcs: 8\n"


def test_new_field_and_note_go_to_the_end_of_the_head() -> None:
    first = swf.SwfComment(b"; Version: 2.2\n")
    tail = swf.SwfComment(b"; end\n", after_jobs=4)
    head = swf.SwfHeader((first, tail)).with_note("made\nof words").with_field("MaxJobs", 4)
    assert [comment.text for comment in head.comments] == [
        "; Version: 2.2",
        "; Note: made of words",
        "; MaxJobs: 4",
        "; end",
    ]


EXAMPLE = (-1, -1, -1, 5, 5, 2, 5, 20, 15)  # job B of thesis section 6.3.3, as section 6.3.4 writes it


def test_thesis_example_reads_as_described() -> None:
    pattern = swf.SwfJob(1, 0, extension=EXAMPLE).pattern
    assert pattern == swf.InteractivePattern(5, 5, (5, 20), (15,))
    assert pattern.periods_s == (5, 5, 15, 20, 5)
    assert (pattern.busy_s, pattern.idle_s, pattern.total_s) == (25, 25, 50)
    assert pattern.to_extension() == EXAMPLE


def test_job_without_the_columns_has_no_pattern() -> None:
    assert swf.SwfJob(1, 0).pattern is None
    assert swf.SwfJob(1, 0, extension=(1, 2, 3)).pattern is None
    assert swf.SwfJob(1, 0, extension=(-1,) * 6).pattern is None


def test_job_that_is_never_busy_is_one_idle_period() -> None:
    pattern = swf.InteractivePattern(3, 4, (), ())
    assert pattern.periods_s == (7,)
    assert swf.InteractivePattern.from_extension(pattern.to_extension()) == pattern


@pytest.mark.parametrize(
    ("extension", "words"),
    [
        ((0, 0, 0, 5, 5), "columns 22, 23 and 24"),
        ((0, 0, 0, 5, 5, 1.5, 1), "columns 22, 23 and 24"),
        ((0, 0, 0, 5, 5, 2, 5, 20), "3 columns must follow"),
        ((0, 0, 0, 5, 5, 1, -5), "period of -5"),
    ],
)
def test_columns_that_do_not_fit_are_an_input_error(extension: tuple[float, ...], words: str) -> None:
    with pytest.raises(InputError, match=f"job 17: .*{words}"):
        _ = swf.SwfJob(17, 0, extension=extension).pattern


def test_impossible_patterns_are_refused() -> None:
    with pytest.raises(InputError, match="has 1 idle"):
        swf.InteractivePattern(0, 0, (1, 2), ())
    with pytest.raises(InputError, match="nan"):
        swf.InteractivePattern(math.nan, 0, (), ())


PADDED = b"""\
;  Odd   header \xff
; MaxJobs: 2

   10      0   -1     5    1     -1.00  -1 1  60 -1  1  87  95  -1 -1  4 -1 -1
; a remark between
    2   3.50   -1   007    1     -1  -1 1  60 -1  1  87  95  -1 -1  4 -1 -1 0 0 0 1.5 2 0\r
; last words, no line end"""


def test_well_formed_file_comes_back_byte_for_byte(tmp_path: Path) -> None:
    source, target = tmp_path / "a.swf", tmp_path / "b.swf"
    source.write_bytes(PADDED)
    swf.write_swf(target, swf.read_swf(source))
    assert target.read_bytes() == PADDED


def test_gzip_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    trace = swf.SwfTrace(swf.SwfHeader(), (swf.SwfJob(1, 0), swf.SwfJob(2, 1)))
    swf.write_swf(tmp_path / "one.swf.gz", trace)
    swf.write_swf(tmp_path / "two.swf.gz", trace)
    packed = (tmp_path / "one.swf.gz").read_bytes()
    assert packed == (tmp_path / "two.swf.gz").read_bytes()
    assert gzip.decompress(packed).count(b"\n") == 2


def test_job_without_line_end_gets_one_where_another_follows(tmp_path: Path) -> None:
    (source := tmp_path / "a.swf").write_bytes(swf.SwfJob(1, 0).line().rstrip())
    trace = swf.read_swf(source)
    swf.write_swf(source, replace(trace, jobs=(*trace.jobs, swf.SwfJob(2, 5))))
    assert [job.job_number for job in swf.read_swf(source).jobs] == [1, 2]


def test_new_jobs_are_listed_under_their_provenance(tmp_path: Path) -> None:
    (source := tmp_path / "a.swf").write_bytes(PADDED)
    trace = swf.read_swf(source).with_jobs([swf.SwfJob(7, 0)], "only job 7")
    swf.write_swf(source, trace)
    again = swf.read_swf(source)
    assert again == replace(trace, header=again.header)
    assert again.header.notes == ("only job 7",)
    assert (again.header.fields["MaxJobs"], again.header.max_records) == (("1",), 1)


@pytest.mark.parametrize("target", ["missing/t.swf", "."])
def test_unwritable_target_is_an_output_error(tmp_path: Path, target: str) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        swf.write_swf(
            tmp_path / target / "" if target == "." else tmp_path / target,
            swf.SwfTrace(swf.SwfHeader(), (swf.SwfJob(1, 0),)),
        )
    assert list(tmp_path.iterdir()) == []


def test_device_is_not_replaced_by_a_file() -> None:
    with pytest.raises(OutputError, match="not a regular file"):
        swf.write_swf(Path("/dev/null"), swf.SwfTrace(swf.SwfHeader(), (swf.SwfJob(1, 0),)))
    assert Path("/dev/null").is_char_device()


@pytest.mark.slow
def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (target := tmp_path / "t.swf").write_bytes(b"old")
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from foundation.errors import OutputError\n"
        "from workloads.swf import SwfHeader, SwfJob, SwfTrace, write_swf\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    write_swf(Path(sys.argv[1]), SwfTrace(SwfHeader(), tuple(SwfJob(i, i) for i in range(9999))))\n"
        "except OutputError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(target)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith(f"cannot write {target}: File too large")
    assert [path.name for path in tmp_path.iterdir()] == ["t.swf"]
    assert target.read_bytes() == b"old"
