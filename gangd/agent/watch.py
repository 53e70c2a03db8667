"""Watching Slurm's cgroups: steps that come and go, and strangers who write a step's control file.

Our own writes raise events too. A write of ours is followed at once by a look at the events (the loop wakes
after each switch), so an event for a file that we have not written since the last look is a stranger's.
"""

from __future__ import annotations

from collections.abc import Iterable

from gangd.agent.kernel import IN_IGNORED, IN_MODIFY, IN_Q_OVERFLOW, Inotify
from gangd.freezer.model import StepKey


class Watch:
    """An inotify descriptor over folders and control files; ``fd`` goes into the loop's poll set."""

    def __init__(self) -> None:
        self._inotify = Inotify()
        self.fd = self._inotify.fd
        self._folders: dict[str, int] = {}
        self._files: dict[str, tuple[int, StepKey]] = {}
        self._keys: dict[int, StepKey] = {}

    def set_folders(self, folders: Iterable[str]) -> bool:
        """Watch exactly these folders (absolute); returns whether one is new, and may have changed before."""
        wanted = set(folders)
        for path in [path for path in self._folders if path not in wanted]:
            self._inotify.remove(self._folders.pop(path))
        new = False
        for path in wanted - self._folders.keys():
            watch = self._inotify.add_folder(path)
            if watch is not None:
                self._folders[path] = watch
                new = True
        return new

    def set_files(self, files: dict[str, StepKey]) -> bool:
        """Watch exactly these control files; returns whether all could be watched."""
        for path in [path for path in self._files if path not in files]:
            ended, _ = self._files.pop(path)
            self._keys.pop(ended, None)
            self._inotify.remove(ended)
        complete = True
        for path, key in files.items():
            if path not in self._files:
                watch = self._inotify.add_file(path)
                if watch is None:
                    complete = False
                    continue
                self._files[path] = (watch, key)
                self._keys[watch] = key
        return complete

    def read(self) -> tuple[bool, dict[StepKey, int]]:
        """Return whether folders changed, and how often the control files of each step were written."""
        changed = False
        writes: dict[StepKey, int] = {}
        for notice in self._inotify.read():
            if notice.mask & IN_MODIFY:
                key = self._keys.get(notice.watch)
                if key is not None:
                    writes[key] = writes.get(key, 0) + 1
            elif notice.mask & IN_IGNORED:
                changed = self._ended(notice.watch) or changed
            else:
                changed = changed or bool(notice.mask & IN_Q_OVERFLOW) or bool(notice.name)
        return changed, writes

    def close(self) -> None:
        """End all watches."""
        self._inotify.close()

    def _ended(self, watch: int) -> bool:
        """Forget a watch that the kernel ended; returns whether what it watched is gone."""
        before = len(self._folders) + len(self._files)
        self._keys.pop(watch, None)
        self._folders = {path: known for path, known in self._folders.items() if known != watch}
        self._files = {path: entry for path, entry in self._files.items() if entry[0] != watch}
        return len(self._folders) + len(self._files) < before
