"""The cgroups of a container: which hierarchy Slurm can use, and how it is made ready for it.

With v2 a container sees its own cgroup as the root of a file system that is mounted read-only. It is mounted
anew, to be written, in this container's name space alone (for that it needs CAP_SYS_ADMIN). A cgroup that has
processes gives no controllers to others (kernel, cgroup-v2, "No Internal Process Constraint"), so all
processes move into a leaf. With v1 one folder of the host's freezer is bound into the container.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from deploy.compose.inside.conf import Hierarchy
from foundation.errors import HostError

ROOT = Path("/sys/fs/cgroup")
_LEAF = "init"
_PASSES = 10


def hierarchy_of(root: Path = ROOT) -> Hierarchy:
    """Return the hierarchy below ``root``."""
    return "v2" if (root / "cgroup.controllers").exists() else "v1"


def is_own(own_cgroup: str) -> bool:
    """Whether ``/proc/self/cgroup`` is of a process that sees its container's cgroup as the root (v2)."""
    return any(line in ("0::/", f"0::/{_LEAF}") for line in own_cgroup.splitlines())


def refuse_shared(own_cgroup: Path = Path("/proc/self/cgroup"), root: Path = ROOT) -> None:
    """Raise HostError where this container sees the host's cgroups (v2): it would empty their root."""
    if hierarchy_of(root) == "v2" and not is_own(own_cgroup.read_text()):
        raise HostError(
            "this container has no name space of its own for cgroups: of Docker, "
            'daemon.json should not say "default-cgroupns-mode": "host"'
        )


def refuse_missing_plugin(root: Path = ROOT, libraries: Path = Path("/usr")) -> None:
    """Raise HostError where Slurm has no plugin for this hierarchy: slurmd would say so in its log alone."""
    plugin = f"cgroup_{hierarchy_of(root)}.so"
    places = ("lib*/slurm*", "lib*/*/slurm*", "local/lib*/slurm*")
    folders = {path.parent for place in places for path in libraries.glob(f"{place}/select_*.so")}
    if folders and not any((folder / plugin).exists() for folder in folders):
        raise HostError(
            f"Slurm of this image has no {plugin} in {min(folders)}, which this host's cgroups need: use an "
            "image whose Slurm was built with it (`osub cluster up --debian 12`, or 13, has one)"
        )


def make_ready(root: Path = ROOT) -> None:
    """Make the container's cgroups ready for slurmd.

    Raises
    ------
    HostError
        They cannot be written; the message says what is missing.
    """
    if hierarchy_of(root) == "v1":
        if not os.access(root / "freezer" / "cgroup.procs", os.W_OK):
            raise HostError(
                "cgroup v1's freezer cannot be written here: compose.cgroup1.yaml is missing among the files"
            )
        return
    if not os.access(root / "cgroup.procs", os.W_OK):
        done = subprocess.run(
            ["mount", "-o", "remount,rw", str(root)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise HostError(
                f"cgroups cannot be written here ({done.stderr.strip()}): compose.cgroup2.yaml is missing "
                "among the files"
            )
    empty_root(root)


def empty_root(root: Path) -> None:
    """Move every process of the root into a leaf, and give all controllers to what lies below the root."""
    leaf = root / _LEAF
    leaf.mkdir(exist_ok=True)
    for _ in range(_PASSES):  # what is forked meanwhile is found the next time
        pids = (root / "cgroup.procs").read_text().split()
        if not pids:
            break
        for pid in pids:
            with suppress(OSError):  # it has ended
                (leaf / "cgroup.procs").write_text(pid)
    for controller in (root / "cgroup.controllers").read_text().split():
        with suppress(OSError):  # one that the host keeps to itself
            (root / "cgroup.subtree_control").write_text(f"+{controller}")


def clear_left(node: str, root: Path = ROOT, within_s: float = 5.0) -> list[Path]:
    """End and remove what a killed container of this node left in the host's freezer (v1).

    Folders that stay would add up until the kernel can make no other. Returns those that could not be
    removed.
    """
    top = root / "freezer" / f"slurm_{node}"
    if hierarchy_of(root) == "v2" or not top.is_dir():
        return []
    deadline_s = time.monotonic() + within_s
    while True:
        below = (path for path in top.rglob("*") if path.is_dir() and not path.is_symlink())
        folders = [*sorted(below, reverse=True), top]
        for folder in folders:
            with suppress(OSError):
                if (folder / "freezer.state").exists():
                    (folder / "freezer.state").write_text("THAWED")
        for folder in folders:
            _kill(folder)
            with suppress(OSError):
                folder.rmdir()
        left = [folder for folder in folders if folder.exists()]
        if not left or time.monotonic() > deadline_s:
            return left
        time.sleep(0.05)


def _kill(folder: Path) -> None:
    """Kill what is in a cgroup and visible from here; 0 means a process of another name space."""
    with suppress(OSError):
        for word in (folder / "cgroup.procs").read_text().split():
            if int(word) > 1 and int(word) != os.getpid():
                with suppress(OSError):
                    os.kill(int(word), signal.SIGKILL)
