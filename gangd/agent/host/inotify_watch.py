"""Watching Slurm's cgroups: steps that come and go, and strangers who write a step's control file.

Two descriptors with different readers. ``FolderWatch`` wakes the loop. ``FileWatch`` wakes nobody: the gate
reads it under its lock, before it writes and again after, so that it always knows whose event is whose, and
never thaws what a stranger has frozen on top of us.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gangd.agent.host.linux_calls import IN_IGNORED, IN_Q_OVERFLOW, Inotify, Notice, parse_notices
from gangd.freezer.holder import StepKey


class FolderWatch:
    """Folders in which entries may come and go; ``fd`` goes into the loop's poll set.

    Attributes
    ----------
    complete
        Whether inotify had room for all folders that exist.
    """

    def __init__(self) -> None:
        self.complete = False
        self._inotify = Inotify()
        self.fd = self._inotify.fd
        self._folders: dict[str, int] = {}

    def set_folders(self, folders: Iterable[str]) -> bool:
        """Watch exactly these folders (absolute); returns whether one is new, and may have changed before."""
        wanted = set(folders)
        for path in [path for path in self._folders if path not in wanted]:
            self._inotify.remove(self._folders.pop(path))
        new, self.complete = False, True
        for path in wanted - self._folders.keys():
            watch = self._inotify.add_folder(path)
            if watch is not None:
                self._folders[path] = watch
                new = True
            elif Path(path).exists():
                self.complete = False
        return new

    def changed(self) -> bool:
        """Whether anything came or went since the last call."""
        changed = False
        for notice in self._inotify.read():
            if notice.mask & IN_IGNORED:
                known = len(self._folders)
                self._folders = {
                    path: watch for path, watch in self._folders.items() if watch != notice.watch
                }
                changed = changed or len(self._folders) < known  # else we ended the watch ourselves
            else:
                changed = changed or bool(notice.mask & IN_Q_OVERFLOW) or bool(notice.name)
        return changed

    def close(self) -> None:
        """End all watches."""
        self._inotify.close()


class FileWatch:
    """Control files of steps, and who is written."""

    def __init__(self) -> None:
        self._inotify = Inotify()
        self._files: dict[str, tuple[int, StepKey]] = {}
        self._keys: dict[int, StepKey] = {}

    def set_files(self, files: dict[str, StepKey]) -> bool:
        """Watch exactly these files (absolute); returns whether inotify had room for all that exist."""
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

    def written(self) -> set[StepKey]:
        """Return the steps whose control files were written since the last call, by whomever."""
        return self._judge(self._inotify.read())

    def take(self, raw: bytes) -> None:
        """Take in events that somebody else has read."""
        self._judge(parse_notices(raw))

    @property
    def fd(self) -> int:
        """Descriptor that is readable when something was written."""
        return self._inotify.fd

    def _judge(self, notices: Iterable[Notice]) -> set[StepKey]:
        keys: set[StepKey] = set()
        for notice in notices:
            if notice.mask & IN_IGNORED:
                self._keys.pop(notice.watch, None)
                self._files = {path: entry for path, entry in self._files.items() if entry[0] != notice.watch}
                continue
            key = self._keys.get(notice.watch)
            if key is not None:
                keys.add(key)
        return keys

    def close(self) -> None:
        """End all watches."""
        self._inotify.close()
