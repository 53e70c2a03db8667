"""Following a slice record that is being written, over the change from one file to the next.

A follower keeps the file that it reads open, whatever its name becomes. When it has read it to the end and
another file is written by then, it goes on with the next one: nothing is read twice, and nothing is left out
but what was removed before the follower came to it, which it tells.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from foundation.errors import InputError
from foundation.trust import open_entry
from gangd.controller.slice_record.slicefiles import NAME, part_name, parts_in
from gangd.controller.slice_record.slicelog import Row, SliceLines


class SliceFollower:
    """Reads what a record has, and what comes.

    Parameters
    ----------
    folder
        Of the record.
    from_end
        Whether to begin at the end of what is there.

    Attributes
    ----------
    missed
        How often files were removed before they were read.

    Raises
    ------
    InputError
        The folder cannot be read.
    """

    def __init__(self, folder: Path, *, from_end: bool = False) -> None:
        self.missed = 0
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._lines = SliceLines(str(folder))
        self._torn = b""
        self._last = 0  # number of the last closed file that was read to its end
        try:
            self._folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise InputError(f"cannot follow slice record {folder}: {error.strerror}") from error
        self._last = min(parts_in(self._folder_fd), default=1) - 1
        if from_end:
            for _ in self.poll():
                pass

    def poll(self) -> Iterator[tuple[Row, float]]:
        """Yield what has come since the last time: rows, and when their slices began (s since the epoch)."""
        while True:
            if self._file is None and not self._go_on():
                return
            assert self._file is not None
            is_closed = not self._is_written(self._file)  # asked first: what comes later is in the next one
            yield from self._read(self._file)
            if not is_closed:
                return
            self._leave(self._file)

    def close(self) -> None:
        """Let the files go."""
        if self._file is not None:
            self._file.close()
        os.close(self._folder_fd)

    def _read(self, file: IO[bytes]) -> Iterator[tuple[Row, float]]:
        for line in file:
            if not line.endswith(b"\n"):
                self._torn += line  # the rest of it comes
                return
            found = self._lines.take(self._torn + line)
            self._torn = b""
            if found is not None:
                yield found

    def _leave(self, file: IO[bytes]) -> None:
        """Note which number the file has that was read to its end, and close it."""
        inode = os.fstat(file.fileno()).st_ino
        numbers = [number for number, name in parts_in(self._folder_fd).items() if self._inode(name) == inode]
        self._last = numbers[0] if numbers else self._last + 1
        file.close()
        self._file, self._torn = None, b""
        self._lines = SliceLines(str(self._folder))

    def _go_on(self) -> bool:
        """Open the next file; False if there is none yet."""
        for _ in range(8):  # it may get its number, or be removed, while we look
            later = [number for number in parts_in(self._folder_fd) if number > self._last]
            name = part_name(later[0]) if later else NAME
            with suppress(FileNotFoundError):
                fd = open_entry(self._folder_fd, name, os.O_RDONLY | os.O_NONBLOCK)
                if not later and any(number > self._last for number in parts_in(self._folder_fd)):
                    os.close(fd)  # a file was closed between the two looks: that one comes first
                    continue
                if later and later[0] > self._last + 1:
                    self.missed += 1
                    self._last = later[0] - 1
                self._file = os.fdopen(fd, "rb")
                return True
        return False

    def _is_written(self, file: IO[bytes]) -> bool:
        """Whether a file is the one that is written."""
        return os.fstat(file.fileno()).st_ino == self._inode(NAME)

    def _inode(self, name: str) -> int | None:
        with suppress(FileNotFoundError):
            return os.stat(name, dir_fd=self._folder_fd, follow_symlinks=False).st_ino
        return None
