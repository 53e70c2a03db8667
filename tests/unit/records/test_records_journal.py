from __future__ import annotations

from pathlib import Path

import pytest

from osub.errors import InputError, OutputError
from osub.records import JOBS, RowJournal
from osub.records.journal import AppendFile, frame, good_length, read_frames
from osub.records.row_journal import read_journal, read_rows
from tests.fixtures.records import make_job

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


def test_reopening_cuts_a_torn_row_off(tmp_path: Path) -> None:
    path = tmp_path / "jobs.journal"
    journal = RowJournal(path, JOBS)
    journal.append(make_job(1), make_job(2))
    journal.close()
    path.write_bytes(path.read_bytes()[:-5])
    journal = RowJournal(path, JOBS)
    journal.append(make_job(3))
    journal.close()
    assert list(read_rows(path, JOBS)) == [make_job(1), make_job(3)]


def test_rows_of_another_table_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.journal"
    path.write_bytes(frame(b"\x93\x01\x02\x03"))
    with pytest.raises(InputError, match="not one of jobs"):
        read_journal(path, JOBS)


def test_a_full_disk_is_said_and_no_row_follows_the_damage() -> None:
    file = AppendFile(Path("/dev/full"))
    with pytest.raises(OutputError, match="the disk is full; free some space"):
        file.append(b"row")


def test_no_journal_is_an_empty_table(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "none", JOBS).schema == JOBS.schema
