"""Sources of jobs that are asked less often while nothing changes: a cheap look spares the full one.

Once two full answers in a row were the same, something short is asked before the next one, and from then on
it alone: as long as it tells of no change, the answer is the one before. What it cannot tell is seen by a
full look now and then.

* ``QuietSource``: ``squeue --json`` writes a hundred fields of every job, six times the work of a short list.
  So a short list is taken, and compared to the byte, never read: it may hold what users write. What changes
  and changes back between two looks waits for the full one.
* ``QuietLibrary``: ``slurm_load_jobs`` takes the instant of an earlier answer, by slurmctld's own clock, and
  says that nothing has changed since (``SLURM_NO_CHANGE_IN_DATA``) without packing a job. pyslurm (22.5 to
  25.11) never gives that instant; so this one function is called beside it, in the library that pyslurm has
  loaded. What is relied on (slurm.h) is the same from 22.05 to 26.05: its prototype, that number, and that an
  answer begins with two instants of which the second is its own. Nothing else of an answer is looked at. What
  is no plausible instant, or a library that cannot be found, means that nothing is known, and all jobs are
  read.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from foundation.slurm.reading.job_sources import Ask, JobSource
from foundation.slurm.reading.nodebook import NodeBook
from foundation.slurm.reading.record_faults import AnswerTooLongError
from foundation.slurm.reading.text_jobs import FACTS, SEPARATOR
from foundation.slurm.slurm_types import JobSnapshot

FULL_EVERY_S = 30.0
"""A full look comes so often all the same."""
_WRITTEN = ("Name", "Comment", "Feature", "Reason", "Account", "QOS")
_WORDS = (
    "squeue",
    "--noheader",
    "--all",
    "--states=all",
    "--noconvert",
    f"--Format={','.join(f'{field}:0{SEPARATOR}' for field in (*FACTS, *_WRITTEN))}",
)

NO_CHANGE = 1900
_SHOW_ALL, _SHOW_DETAIL = 0x0001, 0x0002
_PLAUSIBLE_S = 86_400.0
_LIBRARY = re.compile(r"(/\S+/libslurm(?:full)?(?:-[0-9.]+)?\.so(?:\.[0-9.]+)?)$", re.MULTILINE)


class QuietSource:
    """Another source, asked less often while nothing changes.

    Parameters
    ----------
    source
        What is asked for full answers.
    ask
        Runs a command.
    """

    def __init__(self, source: JobSource, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._ask = ask
        self._clock = clock
        self._last: JobSnapshot | None = None
        self._last_s = float("-inf")
        self._pulse: str | None = None
        self._quiet = False

    def read(self, nodes: NodeBook) -> JobSnapshot:
        """Return all jobs."""
        pulse = self._take() if self._quiet else None
        recent = self._clock() < self._last_s + FULL_EVERY_S
        if self._last is not None and pulse is not None and pulse == self._pulse and recent:
            return self._last
        now_s = self._clock()
        snapshot = self._source.read(nodes)
        self._quiet = snapshot == self._last
        self._last, self._last_s, self._pulse = snapshot, now_s, pulse
        return snapshot

    def _take(self) -> str | None:
        try:
            return self._ask(*_WORDS)
        except AnswerTooLongError:
            return None


class Pulse(Protocol):
    """Asks slurmctld whether anything has changed."""

    def since(self, instant_s: int) -> int | None:
        """Return 0 if no job has changed since an answer's instant; else the instant of this answer.

        With 0 for ``instant_s`` an answer always comes. None where it cannot be told.
        """
        ...


class _Head(ctypes.Structure):
    _fields_ = (("last_backfill", ctypes.c_long), ("last_update", ctypes.c_long))


class LibraryPulse:
    """The pulse by ``libslurm``, as this process has loaded it.

    Parameters
    ----------
    library
        Path of the library; None for the one that is loaded.
    """

    def __init__(self, library: Path | None = None, wall: Callable[[], float] = time.time) -> None:
        self._path = library
        self._library: ctypes.CDLL | None = None
        self._wall = wall

    def since(self, instant_s: int) -> int | None:
        """See ``Pulse``."""
        library = self._loaded()
        if library is None:
            return None
        answer = ctypes.POINTER(_Head)()
        ctypes.set_errno(0)
        flags = ctypes.c_uint16(_SHOW_ALL | _SHOW_DETAIL)
        code = library.slurm_load_jobs(ctypes.c_long(instant_s), ctypes.byref(answer), flags)
        if code:
            return 0 if instant_s and ctypes.get_errno() == NO_CHANGE else None
        try:
            told = int(answer.contents.last_update)
        except ValueError:  # no answer, and no error
            return None
        library.slurm_free_job_info_msg(answer)
        return told if abs(told - self._wall()) < _PLAUSIBLE_S else None

    def _loaded(self) -> ctypes.CDLL | None:
        if self._library is None:
            try:
                path = self._path or _path_of_loaded()
                if path is None:
                    return None
                library = ctypes.CDLL(str(path), use_errno=True)
                library.slurm_load_jobs.restype = ctypes.c_int
                library.slurm_free_job_info_msg.restype = None
            except (OSError, AttributeError):
                return None
            self._library = library
        return self._library


def _path_of_loaded(maps: Path = Path("/proc/self/maps")) -> Path | None:
    """Return the Slurm library that this process has loaded; None for none."""
    found = _LIBRARY.search(maps.read_text(errors="replace"))
    return None if found is None else Path(found[1])


class QuietLibrary:
    """The library's source, asked for jobs only when some have changed.

    Once two full answers in a row were the same, slurmctld is asked for its instant, and all jobs are read
    once more, so that they are no older than that; from then on it is asked whether anything has changed.
    """

    def __init__(
        self,
        source: JobSource,
        pulse: Pulse,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._pulse = pulse
        self._clock = clock
        self._last: JobSnapshot | None = None
        self._last_s = float("-inf")
        self._instant_s: int | None = None
        self._quiet = False

    def read(self, nodes: NodeBook) -> JobSnapshot:
        """Return all jobs; raises as the source."""
        recent = self._clock() < self._last_s + FULL_EVERY_S
        if (
            self._quiet
            and self._instant_s
            and self._last is not None
            and recent
            and self._pulse.since(self._instant_s) == 0
        ):
            return self._last
        self._instant_s = self._pulse.since(0) if self._quiet and self._instant_s is None else None
        now_s = self._clock()
        snapshot = self._source.read(nodes)
        self._quiet = snapshot == self._last
        self._last, self._last_s = snapshot, now_s
        return snapshot
