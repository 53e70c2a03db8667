from __future__ import annotations

import gzip
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from foundation.errors import OutputError
from workloads.swf import SwfHeader, SwfJob, SwfTrace, read_swf, write_swf

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
    write_swf(target, read_swf(source))
    assert target.read_bytes() == PADDED


def test_gzip_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    trace = SwfTrace(SwfHeader(), (SwfJob(1, 0), SwfJob(2, 1)))
    write_swf(tmp_path / "one.swf.gz", trace)
    write_swf(tmp_path / "two.swf.gz", trace)
    packed = (tmp_path / "one.swf.gz").read_bytes()
    assert packed == (tmp_path / "two.swf.gz").read_bytes()
    assert gzip.decompress(packed).count(b"\n") == 2


def test_job_without_line_end_gets_one_where_another_follows(tmp_path: Path) -> None:
    source = tmp_path / "a.swf"
    source.write_bytes(SwfJob(1, 0).line().rstrip())
    trace = read_swf(source)
    write_swf(source, replace(trace, jobs=(*trace.jobs, SwfJob(2, 5))))
    assert [job.job_number for job in read_swf(source).jobs] == [1, 2]


def test_new_jobs_are_listed_under_their_provenance(tmp_path: Path) -> None:
    source = tmp_path / "a.swf"
    source.write_bytes(PADDED)
    trace = read_swf(source).with_jobs([SwfJob(7, 0)], "only job 7")
    write_swf(source, trace)
    again = read_swf(source)
    assert again == replace(trace, header=again.header)
    assert again.header.notes == ("only job 7",)
    assert (again.header.max_jobs, again.header.max_records) == (1, 1)


@pytest.mark.parametrize("target", ["missing/t.swf", "."])
def test_unwritable_target_is_an_output_error(tmp_path: Path, target: str) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        write_swf(
            tmp_path / target / "" if target == "." else tmp_path / target,
            SwfTrace(SwfHeader(), (SwfJob(1, 0),)),
        )
    assert list(tmp_path.iterdir()) == []


def test_device_is_not_replaced_by_a_file() -> None:
    with pytest.raises(OutputError, match="not a regular file"):
        write_swf(Path("/dev/null"), SwfTrace(SwfHeader(), (SwfJob(1, 0),)))
    assert Path("/dev/null").is_char_device()


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "t.swf"
    target.write_bytes(b"old")
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
