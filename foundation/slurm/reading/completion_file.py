"""The file of Slurm's completion log: read once, and from then on what is new of it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from foundation.errors import OsubError
from foundation.slurm.reading.completions import LONGEST_LINE, Completions
from foundation.trust import folder_of, open_own

MOST_BYTES = 64 << 20
"""So much of the end of a log is read at once: some hundred thousand jobs."""


class CompletionFile:
    """A log that grows.

    Parameters
    ----------
    path
        ``JobCompLoc``; a file of root's, of Slurm's user, or of the caller.
    slurm_user
        Slurm's user by name; None where that is not known.
    """

    def __init__(self, path: Path, slurm_user: str | None = None) -> None:
        self._path = path
        self._also = _uid_of(slurm_user)
        self._which: tuple[int, int] | None = None
        self._at = 0
        self._rest = b""
        self._read = Completions()

    def read(self) -> Completions | None:
        """Return all that was read of the log; None where it is not here, or is nothing to be believed."""
        try:
            with folder_of(self._path, self._also) as folder:
                fd = open_own(folder, self._path.name, os.O_RDONLY, also=self._also)
        except (OSError, OsubError):
            return None
        with os.fdopen(fd, "rb") as log:
            now = os.fstat(fd)
            if self._which != (now.st_dev, now.st_ino) or now.st_size < self._at:  # begun, or put aside
                self._which, self._at, self._rest = (now.st_dev, now.st_ino), 0, b""
            begin = max(self._at, now.st_size - MOST_BYTES)
            skipped = begin > self._at
            log.seek(begin)
            grown = (b"" if skipped else self._rest) + log.read(MOST_BYTES)
            self._at = log.tell()
        *lines, self._rest = grown.split(b"\n")
        if skipped:
            lines = lines[1:]
        if len(self._rest) > LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        self._read.read(line.decode("utf-8", "backslashreplace") for line in lines if line)
        return self._read


def _uid_of(name: str | None) -> frozenset[int]:
    if name is None:
        return frozenset()
    try:
        return frozenset({pwd.getpwnam(name).pw_uid})
    except (KeyError, ValueError):
        return frozenset()
