"""The files of a slice record: the one that is written, and those before it, a bounded number.

``slices.jsonl`` is written; when it is large or old enough it becomes ``slices.0000000001.jsonl``, the next
one 2 and so on, and the oldest go. A rename is all or nothing, and every file begins with an anchor of its
own: whatever a crash leaves is a record.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from foundation.errors import InputError
from foundation.trust import closing_fd, names_in, open_entry

NAME = "slices.jsonl"
_PART = re.compile(r"slices\.([0-9]{10})\.jsonl")
MIB = 1 << 20
HOUR_NS = 3_600_000_000_000


@dataclass(frozen=True, slots=True)
class Retention:
    """When a file is closed, by size and age, and how many closed ones are kept."""

    bytes: int = 256 * MIB
    age_ns: int = 24 * HOUR_NS
    parts: int = 8


def part_name(number: int) -> str:
    """Return the name of a closed file."""
    return f"slices.{number:010d}.jsonl"


def parts_in(folder_fd: int) -> dict[int, str]:
    """Return the closed files of a folder by their numbers, oldest first."""
    # A descriptor with O_PATH, as a folder's is that may be searched only, cannot be listed.
    with closing_fd(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder_fd)) as here:
        found = [_PART.fullmatch(name) for name in names_in(here)]
    return dict(sorted((int(match[1]), match[0]) for match in found if match is not None))


def rotate(folder_fd: int, retention: Retention) -> None:
    """Close the file that is written: give it its number, and remove the oldest beyond what is kept.

    Raises OSError if it cannot be renamed; then it is written on.
    """
    parts = list(parts_in(folder_fd))
    number = parts[-1] + 1 if parts else 1
    with suppress(FileNotFoundError):  # it has its number already, and no new file could be made then
        os.rename(NAME, part_name(number), src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    prune(folder_fd, retention)


def prune(folder_fd: int, retention: Retention) -> None:
    """Remove the oldest closed files beyond what is kept."""
    parts = list(parts_in(folder_fd).values())
    for name in parts[: max(0, len(parts) - retention.parts)]:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder_fd)


def size_of_parts(folder_fd: int) -> int:
    """Return the size of all closed files."""
    sizes = []
    for name in parts_in(folder_fd).values():
        with suppress(FileNotFoundError):
            sizes.append(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_size)
    return sum(sizes)


def open_record(folder: Path) -> Iterator[IO[bytes]]:
    """Open the files of a record one after the other, oldest first, as they were at one moment.

    A file that is closed and gets its number meanwhile is read once; one that is removed meanwhile is not
    there. No link is followed.

    Raises
    ------
    InputError
        The folder cannot be read, or has no record.
    """
    try:
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"cannot read slice record {folder}: {error.strerror}") from error
    with ExitStack() as opened:
        opened.callback(os.close, folder_fd)
        try:
            newest = _open(folder_fd, NAME)  # first: whatever is closed from now on is this one or later
            if newest is not None:
                opened.enter_context(newest)
            parts = list(parts_in(folder_fd).values())
            if newest is None and not parts:
                raise InputError(f"cannot read slice record {folder}: it has no {NAME}")
            seen = None if newest is None else os.fstat(newest.fileno()).st_ino
            for name in parts:
                part = _open(folder_fd, name)
                if part is None:
                    continue
                with part:
                    if os.fstat(part.fileno()).st_ino == seen:  # it was being written when we began
                        break
                    yield part
            if newest is not None:
                yield newest
        except OSError as error:
            raise InputError(f"cannot read slice record {folder}: {error.strerror}") from error


def _open(folder_fd: int, name: str) -> IO[bytes] | None:
    try:
        return os.fdopen(open_entry(folder_fd, name, os.O_RDONLY | os.O_NONBLOCK), "rb")
    except FileNotFoundError:
        return None
