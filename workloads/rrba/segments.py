"""Shared memory that the message-passing library leaves on the host when a job is ended from outside.

MPICH removes the files that its ranks share in ``MPI_Finalize`` only. A rank that is ended before that leaves
a megabyte of memory until the host is rebooted, and a later job whose name for it is the same finds it there.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

SEGMENTS = "/dev/shm/mpich_shm_"  # noqa: S108


def discard_segments(maps: Path = Path("/proc/self/maps"), prefix: str = SEGMENTS) -> None:
    """Remove the segments that this process has mapped; whoever has mapped them, too, keeps what it has.

    Calls nothing of the library, so that it may be called whatever the library is doing.
    """
    with contextlib.suppress(OSError):
        for line in maps.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            *_, path = line.split(maxsplit=5)
            if path.startswith(prefix):
                with contextlib.suppress(OSError):  # mapped in several pieces, or another rank was first
                    Path(path).unlink()
