"""Freezing through cgroups of either generation, with control files kept open.

A write to an open control file costs tens of microseconds; opening one costs as much again, so files are
opened when a step is discovered. The kernel freezes asynchronously: ``freeze`` does not wait for it.

What we froze stays known, and in the ledger, until it is thawed or the kernel says that it is gone: a step
may get other folders while it is held, or drop out of sight, and is still frozen by us.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from foundation.errors import HostError
from foundation.trust import closing_fd, open_below, open_entry
from gangd.freezer.holder import (
    CpuTimeFile,
    Did,
    HoldOutcome,
    Ledger,
    Step,
    StepKey,
    StepState,
    Traits,
    Trouble,
    Unknown,
    Write,
)
from gangd.freezer.job_accounts import JobAccounts
from gangd.freezer.procfs import WORK, has_spare_files, is_shortage
from gangd.freezer.slurm_layout import find_steps, slurm_roots, unknown_folders, watched_folders
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
        with closing_fd(open_below(root_fd, path)) as dir_fd:
            opened.append(open_entry(dir_fd, dialect.control, os.O_RDWR))
            opened.append(open_entry(dir_fd, "cgroup.procs", os.O_RDONLY))
            if dialect is not CGROUP1:
                opened.append(open_entry(dir_fd, "cgroup.events", os.O_RDONLY))
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


LIST_EVERY = 8


@dataclass(slots=True)
class _Known:
    """A step, and its open cgroups."""

    step: Step
    handles: dict[str, OpenCgroup] = field(default_factory=dict)


class CgroupFreezer:
    """Freezes the cgroups that Slurm made for the steps of one node.

    Parameters
    ----------
    root
        Mount of the freezer hierarchy (v1) or of the unified one (v2), or a copy of its shape in a test.
    dialect
        ``CGROUP1`` or ``CGROUP2``.
    node
        Slurm's name of this node: only its cgroups are touched.
    ledger
        Remembers what we froze, for the guardian.
    cpuacct_root
        Mount of the v1 ``cpuacct`` hierarchy; None if there is none. v2 accounts by itself.
    write, read
        How control files are written and read, as ``os.pwrite`` and ``os.pread``.

    Raises
    ------
    HostError
        ``root`` is no directory.
    """

    traits = Traits(in_folders=True, stops_are_strange=True)

    def __init__(
        self,
        root: Path,
        dialect: Dialect,
        node: str,
        ledger: Ledger,
        cpuacct_root: Path | None = None,
        *,
        write: Callable[[int, bytes, int], int] = os.pwrite,
        read: Callable[[int, int, int], bytes] = os.pread,
    ) -> None:
        self.name = dialect.name
        self.root = root
        self.dialect = dialect
        self._node = node
        self._ledger = ledger
        self._pwrite = write
        self._pread = read
        self._bases: tuple[str, ...] = ()
        self._folders: list[Path] = []
        self._links: list[int] | None = None
        self._found: tuple[Step, ...] = ()
        self._looks = 0
        self._sluids: dict[str, int] = {}
        self._known: dict[StepKey, _Known] = {}
        version2 = dialect is not CGROUP1
        self._accounts = JobAccounts(root if version2 else cpuacct_root, in_lines=version2)
        self._folder_of: dict[int, str] = {}
        self.unseen: frozenset[int] = frozenset()
        try:
            self._root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise HostError(
                f"cannot open the {dialect.name} hierarchy {root}: {error.strerror}; give its mount as --root"
            ) from error

    def look(self) -> tuple[Step, ...]:
        """See ``Holder``.

        Listing every folder costs tens of microseconds each. A folder's link count tells how many folders
        it has, for a tenth of that: while no count has changed, the listing is only made now and then.
        """
        self._looks += 1
        if (
            self._bases
            and self._looks % LIST_EVERY
            and self._links is not None
            and _links(self._folders) == self._links
        ):
            return self._found
        self._bases = slurm_roots(self.root, self.dialect, self._node)
        below = watched_folders(self.root, self.dialect, self._bases)
        self._folders = [self.root, *(self.root / path for path in below)]
        self._links = _links(self._folders)
        self._found = find_steps(self.root, self.dialect, self._bases, self._sluids)
        return self._found

    def expect(self, jobs: Iterable[int]) -> None:
        """See ``Holder``: steps are found, not expected."""

    def folders(self) -> list[str]:
        """See ``Holder``."""
        return [str(path) for path in self._folders]

    def unknown(self) -> list[Unknown]:
        """See ``Holder``."""
        bases = slurm_roots(self.root, self.dialect, self._node)
        return list(unknown_folders(self.root, self.dialect, bases, self._sluids))

    def troubles(self) -> list[Trouble]:
        """See ``Holder``: cgroups that jobs have frozen themselves."""
        found = []
        for key, known in self._known.items():
            WORK.pause_if_spent()
            nested = [each for each in known.handles.values() if each.has_frozen_below(self.dialect)]
            found += [Trouble("nested_freeze", key.job, _nested(key, one, self.dialect)) for one in nested]
        return found

    def adopt(
        self, found: tuple[Step, ...], pause: Callable[[], object] = WORK.pause_if_spent
    ) -> tuple[Step, ...]:
        """See ``Holder``."""
        steps = {step.key: step for step in found}
        unseen = set()
        for key, known in self._known.items():
            pause()
            step = steps.get(key)
            self._close_old(known, () if step is None else step.paths)
        for key, step in steps.items():
            pause()
            known = self._known.setdefault(key, _Known(step))
            known.step = step
            try:
                self._open_new(known)
            except OSError:  # descriptors or memory are used up
                unseen.add(key.job)
        self.unseen = frozenset(unseen)
        for key in [key for key, known in self._known.items() if not known.handles]:
            if key not in steps or not steps[key].is_empty:
                del self._known[key]
        self._folder_of = {
            key.job: path.partition("/step_")[0]
            for key, known in self._known.items()
            for path in known.handles
        }
        self._accounts.follow(self._folder_of, pause)
        return tuple(known.step for known in self._known.values())

    def hold(self, key: StepKey) -> HoldOutcome:
        """See ``Holder``. Refuses, as a failure, what does not fit in the ledger."""
        return self._write(key, ours=True)

    def release(self, key: StepKey) -> HoldOutcome:
        """See ``Holder``."""
        return self._write(key, ours=False)

    def plan(self, key: StepKey, ours: dict[int, bool], *, holds: bool) -> list[Write] | None:
        """See ``Holder``."""
        known = self._known.get(key)
        if known is None:
            return None
        writes = []
        for handle in known.handles.values():
            if handle.slot is None or handle.owed:
                return None
            if ours.get(handle.slot, handle.ours) is not holds:
                ours[handle.slot] = holds
                data = self.dialect.freeze if holds else self.dialect.thaw
                writes.append(Write(key, holds, handle.control_fd, data, handle.slot, handle))
        return writes

    def note(self, write: Write) -> None:
        """See ``Holder``."""
        write.target.note(write)

    def account(self, job: int) -> CpuTimeFile | None:
        """See ``Holder``."""
        return self._accounts.account(job)

    def disown(self, key: StepKey) -> None:
        """See ``Holder``. A v2 task has a bit of its own besides Slurm's: ours is cleared, Slurm's stays."""
        for handle in self._handles(key):
            if not handle.ours:
                continue
            if self.dialect is CGROUP1 or handle.path.endswith("/user"):
                self._settle(handle)
            else:
                self._thaw_late(handle)

    def state(self, key: StepKey) -> StepState:
        """See ``Holder``. A step whose cgroups differ is FREEZING."""
        states = {handle.state(self.dialect, self._pread) for handle in self._handles(key)} - {StepState.GONE}
        if not states:
            return StepState.GONE
        return states.pop() if len(states) == 1 else StepState.FREEZING

    def pids(self, key: StepKey) -> tuple[int, ...]:
        """See ``Holder``. Cgroups that the job made below its own are included."""
        return tuple(pid for handle in self._handles(key) for pid in handle.pids())

    def cpu_ns(self, job: int) -> int | None:
        """See ``Holder``."""
        return self._accounts.cpu_ns(job)

    def daemon_ns(self, job: int) -> int:
        """See ``Holder``: with v1 slurmstepd is in the job's freezer cgroup, and in no account."""
        folder = self._folder_of.get(job)
        if folder is None or self.dialect is not CGROUP1:
            return 0
        try:
            pids = [int(word) for word in (self.root / folder / "cgroup.procs").read_bytes().split()]
        except OSError:
            pids = []
        return self._accounts.daemon_ns(job, pids)

    def control_files(self, key: StepKey) -> tuple[str, ...]:
        """See ``Holder``."""
        return tuple(str(handle.folder / self.dialect.control) for handle in self._handles(key))

    def close(self) -> None:
        """See ``Holder``."""
        self._accounts.close()
        for known in self._known.values():
            for handle in known.handles.values():
                self._discard(handle)
        self._known.clear()
        os.close(self._root_fd)

    def _handles(self, key: StepKey) -> Iterable[OpenCgroup]:
        known = self._known.get(key)
        return () if known is None else known.handles.values()

    def _discard(self, handle: OpenCgroup) -> None:
        """Close the files. The ledger keeps what we still hold, for a later thaw."""
        handle.close()
        if handle.slot is not None and not handle.ours:
            self._ledger.drop(handle.slot)

    def _close_old(self, known: _Known, paths: tuple[str, ...]) -> None:
        """Close what is gone and what is not wanted; a cgroup of the same name may be a new one (requeue)."""
        for path, handle in list(known.handles.items()):
            if handle.owed:
                self._thaw_late(handle)
            if handle.state(self.dialect, self._pread) is StepState.GONE:
                handle.ours = False
            elif handle.ours or path in paths:
                continue
            self._discard(known.handles.pop(path))
            self._accounts.end(known.step.key.job)

    def _open_new(self, known: _Known) -> None:
        job = known.step.key.job
        for path in known.step.paths:
            handle = known.handles.get(path) or open_cgroup(self._root_fd, self.root, path, self.dialect)
            if handle is None:
                continue
            known.handles[path] = handle
            if handle.slot is None:  # also one that did not fit in the ledger before
                handle.slot = self._ledger.claim_cgroup(self.dialect.kind, path, job)

    def _thaw_late(self, handle: OpenCgroup) -> None:
        """Thaw what is not held any more; what cannot be written is tried again at each look."""
        try:
            self._pwrite(handle.control_fd, self.dialect.thaw, 0)
        except OSError as error:
            handle.owed = not is_gone(error)
        if not handle.owed:
            self._settle(handle)

    def _settle(self, handle: OpenCgroup) -> None:
        """Note that a cgroup is not frozen by us any more."""
        handle.ours = handle.owed = False
        if handle.slot is not None:
            self._ledger.release(handle.slot)

    def _write(self, key: StepKey, *, ours: bool) -> HoldOutcome:
        known = self._known.get(key)
        if known is None:
            return HoldOutcome(key, Did.GONE)
        did, text = Did.NOTHING, None
        gone = 0
        for handle in known.handles.values():
            handle.owed = False
            if handle.ours is ours:
                continue
            if handle.slot is None:
                did, text = Did.FAILED, "the ledger is full: not frozen"
                continue
            if ours:  # noted before it is so
                self._ledger.hold(handle.slot)
                handle.ours = True
            try:
                self._pwrite(handle.control_fd, self.dialect.freeze if ours else self.dialect.thaw, 0)
            except OSError as error:
                if not is_gone(error):
                    did, text = Did.FAILED, f"{handle.path}/{self.dialect.control}: {error.strerror}"
                    if ours:
                        self._settle(handle)
                    continue
                gone += 1
            else:
                did = did if did is Did.FAILED else Did.WROTE
            if not ours:
                self._settle(handle)
        if gone == len(known.handles):
            return HoldOutcome(key, Did.GONE)
        return HoldOutcome(key, did, text)


def _nested(key: StepKey, handle: OpenCgroup, dialect: Dialect) -> str:
    """Explain a job's own frozen cgroup; its name is the user's, and is left out."""
    lasts = " and does not end when Slurm kills the job" if dialect is CGROUP1 else ""
    return (
        f"step {key} froze a cgroup of its own: what is in it stays frozen when the job is resumed{lasts}. "
        f"To thaw it write {dialect.thaw.decode()} to the {dialect.control} below {handle.folder}"
    )


def _links(folders: list[Path]) -> list[int] | None:
    """Link counts of folders; None if one is gone or the file system does not count."""
    try:
        counts = [path.stat().st_nlink for path in folders]
    except OSError:
        return None
    return counts if min(counts, default=0) >= 2 else None
