"""One cgroup of a step with its files open: what its tasks do, who they are, whether we hold them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from foundation.trust import open_below, open_entry
from gangd.freezer.holder import StepState, Write
from gangd.freezer.procfs import WORK, has_spare_files, is_shortage
from gangd.freezer.tree import CGROUP1, Dialect, is_gone, read_anew, subdirectories

_STATES1 = {b"THAWED": StepState.THAWED, b"FREEZING": StepState.FREEZING, b"FROZEN": StepState.FROZEN}


@dataclass(slots=True)
class OpenCgroup:
    """The open files of one cgroup.

    ``ours``: we froze it and have not thawed it yet. ``owed``: and should have, but a write failed.
    """

    path: str
    folder: Path
    control_fd: int
    state_fd: int
    procs_fd: int
    slot: int | None
    ours: bool = False
    owed: bool = False

    def note(self, write: Write) -> None:
        """See ``WriteTarget``."""
        self.ours = write.holds

    def close(self) -> None:
        """Close the files; what is frozen stays so."""
        for fd in {self.control_fd, self.state_fd, self.procs_fd}:
            os.close(fd)

    def state(self, dialect: Dialect, read: Callable[[int, int, int], bytes] = os.pread) -> StepState:
        """State of its tasks, as the kernel tells it."""
        try:
            raw = read(self.state_fd, 256, 0)
        except OSError as error:
            if is_gone(error):
                return StepState.GONE
            raise
        if dialect is CGROUP1:
            return _STATES1.get(raw.strip(), StepState.FREEZING)
        if b"frozen 1" in raw:
            return StepState.FROZEN
        return StepState.FREEZING if self.ours and b"populated 1" in raw else StepState.THAWED

    def pids(self) -> list[int]:
        """Return its processes, and those of cgroups that the job made below it."""
        try:
            found = [int(word) for word in read_anew(self.procs_fd).split()]
            if self.folder.stat().st_nlink > 2:
                found += _pids_below(self.folder)
        except OSError as error:
            if is_gone(error):
                return []
            raise
        return found

    def has_frozen_below(self, dialect: Dialect) -> bool:
        """Whether the job has made a cgroup below it and frozen that itself."""
        try:
            return self.folder.stat().st_nlink > 2 and _has_frozen_below(self.folder, dialect)
        except OSError:  # it ended meanwhile
            return False


def open_cgroup(root_fd: int, root: Path, path: str, dialect: Dialect) -> OpenCgroup | None:
    """Open one cgroup; None if it vanished, or a component of its path is not what it seems.

    Raises OSError if descriptors or memory are used up.
    """
    opened: list[int] = []
    try:
        dir_fd = open_below(root_fd, path)
        try:
            opened.append(open_entry(dir_fd, dialect.control, os.O_RDWR))
            opened.append(open_entry(dir_fd, "cgroup.procs", os.O_RDONLY))
            if dialect is not CGROUP1:
                opened.append(open_entry(dir_fd, "cgroup.events", os.O_RDONLY))
        finally:
            os.close(dir_fd)
        if not has_spare_files(max(opened)):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
    except OSError as error:
        for fd in opened:
            os.close(fd)
        if is_shortage(error):
            raise
        return None
    state_fd = opened[0] if dialect is CGROUP1 else opened[2]
    return OpenCgroup(path, root / path, opened[0], state_fd, opened[1], None)


def _has_frozen_below(path: Path, dialect: Dialect) -> bool:
    for name in subdirectories(str(path)):
        WORK.pause_if_spent()
        below = path / name
        if (below / dialect.own).read_bytes().strip() == b"1" or _has_frozen_below(below, dialect):
            return True
    return False


def _pids_below(path: Path) -> list[int]:
    found: list[int] = []
    for name in subdirectories(str(path)):
        WORK.pause_if_spent()
        try:
            found += [int(word) for word in (path / name / "cgroup.procs").read_bytes().split()]
        except OSError as error:
            if not is_gone(error):
                raise
        found += _pids_below(path / name)
    return found
