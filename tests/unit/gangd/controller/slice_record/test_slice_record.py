"""The slice record over many files: bounded, readable whatever a crash leaves, and followed without a gap."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foundation.errors import InputError, OutputError
from gangd.controller.slicefiles import HOUR_NS, NAME, Retention, part_name
from gangd.controller.slicelog import SliceLog, read_slices
from gangd.core import SliceRow
from tests.fixtures.tier import choose

SMALL = Retention(bytes=2_000, age_ns=HOUR_NS, parts=3)
MANY = Retention(bytes=2_000, age_ns=HOUR_NS, parts=10_000)


class Clock:
    def __init__(self) -> None:
        self.now_ns = 5_000_000_000

    def monotonic(self) -> int:
        return self.now_ns

    def wall(self) -> int:
        return self.now_ns + 1_000_000_000_000


def row(number: int) -> SliceRow:
    return SliceRow(number, number * 1_000_000, 250_000_000, 7, "n1", "run", 1500, -3, 40)


def log(folder: Path, retention: Retention, clock: Clock | None = None) -> SliceLog:
    clock = clock or Clock()
    return SliceLog(
        folder, clock.wall() / 1e6, clock.monotonic(), 0o640, retention, clock.monotonic, clock.wall
    )


def numbers(folder: Path) -> list[int]:
    return [record.slice for record in read_slices(folder, 0.0)]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_record_goes_on_in_new_files_and_is_read_as_one(tmp_path: Path) -> None:
    written = log(tmp_path, MANY)
    for number in range(300):
        written.append([row(number)])
    written.flush()
    assert len(files(tmp_path)) > 5
    assert numbers(tmp_path) == list(range(300))
    starts = [record.start_s for record in read_slices(tmp_path, 1000.0)]
    assert starts == pytest.approx([number / 1000 for number in range(300)])
    assert all(path.stat().st_mode & 0o777 == 0o640 for path in tmp_path.iterdir())
    assert written.size_bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    written.close()


def test_the_oldest_files_go_and_size_is_bounded(tmp_path: Path) -> None:
    written = log(tmp_path, SMALL)
    for number in range(500):
        written.append([row(number)])
    written.flush()
    assert len(files(tmp_path)) == 4
    kept = numbers(tmp_path)
    assert kept == list(range(kept[0], 500))
    assert written.size_bytes < 4 * 2_200
    written.close()
    again = log(tmp_path, Retention(bytes=2_000, age_ns=HOUR_NS, parts=1))  # fewer are wanted now
    assert len(files(tmp_path)) == 2
    again.close()


def test_age_begins_a_new_file_too_with_the_clock_of_that_time(tmp_path: Path) -> None:
    clock = Clock()
    written = log(tmp_path, Retention(age_ns=HOUR_NS), clock)
    written.append([row(1)])
    clock.now_ns += HOUR_NS
    written.append([row(2)])
    written.close()
    assert files(tmp_path) == [part_name(1), NAME]
    assert numbers(tmp_path) == [1, 2]


def test_a_restart_between_rename_and_new_file_goes_on(tmp_path: Path) -> None:
    written = log(tmp_path, MANY)
    written.append([row(1)])
    written.close()
    (tmp_path / NAME).rename(tmp_path / part_name(7))
    assert numbers(tmp_path) == [1]
    written = log(tmp_path, MANY)
    written.append([row(2)])
    for number in range(3, 100):
        written.append([row(number)])
    written.close()
    assert part_name(8) in files(tmp_path)
    assert numbers(tmp_path) == list(range(1, 100))


def test_what_is_no_part_of_the_record_is_not_read(tmp_path: Path) -> None:
    written = log(tmp_path, MANY)
    written.append([row(1)])
    written.close()
    for name in ("slices.1.jsonl", "slices.00000000011.jsonl", "slices.jsonl.old", "slices.000000000x.jsonl"):
        (tmp_path / name).write_text("{")
    assert numbers(tmp_path) == [1]
    (tmp_path / part_name(3)).symlink_to(tmp_path / NAME)
    with pytest.raises(InputError, match="cannot read"):
        numbers(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no slices"):
        numbers(tmp_path / "empty")


def test_a_full_folder_is_an_error_and_the_record_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = log(tmp_path, MANY)
    real = os.rename

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)

    def fill() -> None:
        for number in range(100):
            written.append([row(number)])

    with pytest.raises(OutputError, match="No space left"):
        fill()
    monkeypatch.setattr(os, "rename", real)
    fill()
    written.close()
    found = numbers(tmp_path)
    assert found[:10] == list(range(10))
    assert found[-100:] == list(range(100))


_WRITER = """
import sys
from pathlib import Path
from gangd.controller.slicefiles import Retention
from gangd.controller.slicelog import SliceLog
from gangd.core import SliceRow
log = SliceLog(Path(sys.argv[1]), 0.0, 0, 0o600, Retention(bytes=1_000, parts=10_000))
number = int(sys.argv[2])
while True:
    log.append([SliceRow(number, number, 1, 7, "n1", "run", 1, 0, 0)])
    log.flush()
    number += 1
    if number % 50 == 0:
        print(number, flush=True)
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_record_that_reads_and_goes_on(tmp_path: Path) -> None:
    expected, first = 0, 0
    for _ in range(choose(3, 6, 40)):
        child = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path), str(first)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        told = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        found = numbers(tmp_path)
        assert found == list(range(len(found)))
        assert len(found) >= told > expected
        expected = first = len(found)
