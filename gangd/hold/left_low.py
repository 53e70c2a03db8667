"""Cpu cgroups that yield although no agent says so: found by their names, for the operator's hammer.

Standard library only. Threads with SCHED_IDLE are not looked for: any user may give it to his own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gangd.freezer.tree import subdirectories
from gangd.hold.knob import IDLE1, IDLE2, Knob, job_of_own

MOUNT = Path("/sys/fs/cgroup")
_SCOPE_DEPTH = 4


def low_groups(node: str | None, mount: Path = MOUNT) -> Iterator[tuple[Path, str, Knob]]:
    """Every cgroup of a job or a user that yields: its hierarchy, its path there, and its knob.

    Parameters
    ----------
    node
        Only those of this node; None for all.
    mount
        Where cgroups are mounted.
    """
    for name in ("cpu", "cpu,cpuacct"):
        if (mount / name).is_dir() and not (mount / name).is_symlink():
            for path in _paths1(mount / name, node):
                if _is_low(mount / name / path, IDLE1):
                    yield mount / name, path, IDLE1
    if (mount / "cgroup.controllers").exists():
        for path in _paths2(mount, "", node, _SCOPE_DEPTH):
            if _is_low(mount / path, IDLE2):
                yield mount, path, IDLE2


def _paths1(root: Path, node: str | None) -> Iterator[str]:
    for top in subdirectories(str(root)):
        if top.startswith("gangd_"):
            if IDLE1.allows(top) and (node is None or job_of_own(top, node) is not None):
                yield top
        elif top in ("slurm", f"slurm_{node}") or (node is None and top.startswith("slurm_")):
            for user in subdirectories(f"{root}/{top}"):
                for path in (
                    f"{top}/{user}",
                    *(f"{top}/{user}/{job}" for job in subdirectories(f"{root}/{top}/{user}")),
                ):
                    if IDLE1.allows(path):
                        yield path


def _paths2(root: Path, base: str, node: str | None, depth: int) -> Iterator[str]:
    for name in subdirectories(f"{root}/{base}"):
        path = f"{base}/{name}" if base else name
        if name.endswith("slurmstepd.scope"):
            if node is None or name in ("slurmstepd.scope", f"{node}_slurmstepd.scope"):
                yield from (
                    f"{path}/{job}"
                    for job in subdirectories(f"{root}/{path}")
                    if IDLE2.allows(f"{path}/{job}")
                )
        elif depth > 1:
            yield from _paths2(root, path, node, depth - 1)


def _is_low(folder: Path, knob: Knob) -> bool:
    return _number(folder / "cpu.idle") == 1 or _number(folder / knob.weight_file) == knob.least


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
