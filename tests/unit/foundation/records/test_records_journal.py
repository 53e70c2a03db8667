from __future__ import annotations

from pathlib import Path

import pytest

from foundation.errors import InputError, OutputError
from foundation.records import (
    JOBS,
    AllocationRecord,
    JobEntry,
    JobJournal,
    Placement,
    job_frames,
    read_entries,
)
from foundation.records.journal import AppendFile, frame, good_length, read_frames
from tests.fixtures.records import make_ended, make_job

PAYLOADS = [b"alpha", b"b", b"gamma" * 10]


def contents(path: Path) -> list[bytes]:
    return [payload for _, payload in read_frames(path)]


def test_a_journal_cut_at_any_byte_keeps_every_whole_row(tmp_path: Path) -> None:
    frames = [frame(payload) for payload in PAYLOADS]
    data = b"".join(frames)
    ends = [len(b"".join(frames[:count])) for count in range(len(frames) + 1)]
    path = tmp_path / "j"
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        whole = sum(end <= length for end in ends) - 1
        assert contents(path) == PAYLOADS[:whole]
        assert good_length(path) == ends[whole]


def test_a_last_row_that_never_reached_the_disk_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "j"
    whole = frame(b"row")
    last = frame(b"lost" * 9)
    for kept in (0, 5, 12, 20):
        path.write_bytes(whole + last[:kept] + bytes(len(last) - kept) + bytes(100))
        assert contents(path) == [b"row"]


def test_a_tail_of_zeros_is_what_a_power_cut_leaves(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(frame(b"row") + bytes(4096))
    assert contents(path) == [b"row"]


@pytest.mark.parametrize("position", [0, 3, 4, 9, 14])
def test_damage_before_the_last_row_is_an_error(tmp_path: Path, position: int) -> None:
    data = bytearray(b"".join(frame(payload) for payload in PAYLOADS))
    data[position] ^= 0x55
    path = tmp_path / "j"
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged at byte 0"):
        contents(path)


def held(job: int = 101, from_s: float = 1.0, to_s: float | None = None) -> AllocationRecord:
    return AllocationRecord(
        job=job, from_s=from_s, to_s=to_s, placement=(Placement("n1", (0,)),), why="start"
    )


def test_reopening_cuts_a_torn_row_off(tmp_path: Path) -> None:
    path = tmp_path / "jobs.journal"
    journal = JobJournal(path)
    journal.append(JobEntry(make_job(1)), JobEntry(make_job(2)))
    journal.close()
    path.write_bytes(path.read_bytes()[:-5])
    journal = JobJournal(path)
    journal.append(JobEntry(make_job(3)))
    journal.close()
    assert [entry.job for entry in read_entries(path).values()] == [make_job(1), make_job(3)]


def test_a_job_and_its_allocations_are_cut_off_together_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "jobs.journal"
    journal = JobJournal(path)
    journal.append(JobEntry(make_job(1), (held(),)))
    first = path.stat().st_size
    journal.append(JobEntry(make_ended(1), (held(to_s=3.0),)))
    journal.close()
    data = path.read_bytes()
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        jobs, allocations = job_frames(path)
        ended = length == len(data)
        assert jobs["state"].to_list() == ([] if length < first else ["COMPLETED" if ended else None])
        ends = None if allocations is None else allocations["to_s"].to_list()
        assert ends == (None if length < first else [3.0 if ended else None])


def test_a_row_that_says_nothing_of_allocations_leaves_them(tmp_path: Path) -> None:
    journal = JobJournal(tmp_path / "jobs.journal")
    journal.append(JobEntry(make_job(1), (held(),)))
    journal.append(JobEntry(make_ended(1)))
    assert read_entries(tmp_path / "jobs.journal")[1] == JobEntry(make_ended(1), (held(),))
    journal.append(JobEntry(make_ended(1), ()))
    journal.close()
    assert read_entries(tmp_path / "jobs.journal")[1] == JobEntry(make_ended(1), ())


def test_an_allocation_of_another_job_is_refused(tmp_path: Path) -> None:
    journal = JobJournal(tmp_path / "jobs.journal")
    with pytest.raises(InputError, match="trace_job 1 is another job's"):
        journal.append(JobEntry(make_job(1), (held(job=77),)))
    journal.close()
    assert (tmp_path / "jobs.journal").read_bytes() == b""


def test_rows_of_another_table_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.journal"
    path.write_bytes(frame(b"\x93\x01\x02\x03"))
    with pytest.raises(InputError, match="not one of jobs"):
        read_entries(path)


def test_a_full_disk_is_said_and_no_row_follows_the_damage() -> None:
    file = AppendFile(Path("/dev/full"))
    with pytest.raises(OutputError, match="the disk is full; free some space"):
        file.append(b"row")


def test_no_journal_is_an_empty_table(tmp_path: Path) -> None:
    jobs, allocations = job_frames(tmp_path / "none")
    assert (jobs.schema, jobs.height, allocations) == (JOBS.schema, 0, None)
