"""What the tests of freezers, guardian and agent stand on: fake and real cgroups, and real processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

V1_MOUNT = Path("/sys/fs/cgroup/freezer")
V2_MOUNTS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
SPIN = ["sh", "-c", "while :; do :; done"]
SLEEP = ["sleep", "1000"]


def until(condition: Callable[[], bool], timeout_s: float = 10.0, what: str = "condition") -> None:
    """Poll ``condition`` until it holds; fails with ``what`` after the deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true within {timeout_s} s"
        time.sleep(0.002)


def cpu_ns(pid: int) -> int:
    """CPU time that a process has used, all threads."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def runs(pid: int, within_s: float = 5.0) -> bool:
    """Whether a spinning process makes progress."""
    start, deadline = cpu_ns(pid), time.monotonic() + within_s
    while time.monotonic() < deadline:
        if cpu_ns(pid) - start > 1_000_000:
            return True
        time.sleep(0.002)
    return False


def stands(pid: int) -> bool:
    """Whether a spinning process makes no progress over a while that is many time slices long."""
    time.sleep(0.02)  # a core that is just leaving user mode
    start = cpu_ns(pid)
    time.sleep(0.1)
    return cpu_ns(pid) == start


class FakeV1:
    """Folders and plain files in the shape of Slurm's cgroup v1 freezer hierarchy."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()

    def step(self, job: int, step: str, *, node: str = "a", uid: int = 7, pids: tuple[int, ...] = ()) -> Path:
        path = self.root / f"slurm_{node}/uid_{uid}/job_{job}/step_{step}"
        path.mkdir(parents=True)
        (path / "freezer.state").write_text("THAWED")
        (path / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        return path

    def remove(self, path: Path) -> None:
        shutil.rmtree(path)


class RealCgroups:
    """Own cgroups below a real hierarchy, with real processes in them; undone by ``clean``."""

    def __init__(self, root: Path, thaw_file: str, thaw: str) -> None:
        self.root = root
        self._thaw = (thaw_file, thaw)
        self._children: list[subprocess.Popen[bytes]] = []
        root.mkdir()

    def make(self, path: str) -> Path:
        full = self.root / path
        full.mkdir(parents=True)
        return full

    def spawn(self, path: Path, argv: list[str], **kwargs: object) -> int:
        """Start a process inside the cgroup ``path``."""

        def enter() -> None:
            (path / "cgroup.procs").write_text("0")

        child = subprocess.Popen(argv, preexec_fn=enter, **kwargs)  # type: ignore[call-overload]
        self._children.append(child)
        return int(child.pid)

    def clean(self) -> None:
        folders = [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]
        for folder in folders:
            with contextlib.suppress(OSError):
                (folder / self._thaw[0]).write_text(self._thaw[1])
        for folder in folders:
            for pid in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        for child in self._children:
            child.kill()
            child.wait()
        for folder in sorted(folders, key=lambda path: -len(path.parts)):
            until(lambda folder=folder: _removed(folder), what=f"removal of {folder}")  # type: ignore[misc]


def _removed(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not folder.exists()
