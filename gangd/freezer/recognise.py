"""What Slurm keeps below its folders that we cannot read: never taken for "nothing runs here".

A later Slurm may name its folders anew, as 26.05 did. Then jobs would not be found, not be held, without any
sign. So whatever has processes below Slurm's own folders and is no step of a known job is reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gangd.freezer.holder import Unknown
from gangd.freezer.procfs import PROC, WORK
from gangd.freezer.slurm_layout import find_steps, nodes_with_scopes, slurm_roots
from gangd.freezer.tree import CGROUP1, CGROUP2, JOB2, Dialect, subdirectories

MOST_NAMED = 8
_NUMBERED = re.compile(r"job_[0-9]+")
_JOB2 = re.compile(JOB2)
_NOT_JOBS = frozenset({"system", "slurmd"})
"""Slurm's own places besides the jobs: where slurmstepds wait (``cgroup_v2.c``), and the daemon's."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """What is below Slurm's folders: how many jobs by how their folders are named, and what is unknown."""

    roots: tuple[str, ...]
    named: dict[str, int]
    unknown: tuple[Unknown, ...]


def unknown_folders(
    root: Path,
    dialect: Dialect,
    bases: tuple[str, ...],
    sluids: dict[str, int] | None = None,
    proc: Path = PROC,
) -> Iterator[Unknown]:
    """Yield what has processes below ``bases`` and cannot be assigned to a job.

    Parameters
    ----------
    root, dialect, bases
        As for ``gangd.freezer.slurm_layout.find_steps``.
    sluids
        Jobs of folders that are named by SLUID, as far as they are known.
    proc
        Where processes are looked up.
    """
    if dialect is CGROUP1:
        for base in bases:
            yield from _unknown1(root, base)
        return
    known = dict(sluids or {})
    find_steps(root, dialect, bases, known, proc)
    for base in bases:
        yield from _unknown2(root, base, known)


def recognise(root: Path, dialect: Dialect, nodes: tuple[str, ...], proc: Path = PROC) -> Recognised:
    """Look at everything that Slurm keeps for ``nodes`` in a hierarchy."""
    bases = tuple(dict.fromkeys(base for node in nodes for base in slurm_roots(root, dialect, node)))
    named: Counter[str] = Counter()
    for base in bases:
        jobs = [f"{base}/{name}" for name in subdirectories(str(root / base))]
        if dialect is CGROUP1:
            jobs = [f"{user}/{name}" for user in jobs for name in subdirectories(str(root / user))]
        for job in jobs:
            name = job.rsplit("/", 1)[-1]
            if _NUMBERED.fullmatch(name):
                named["number"] += 1
            elif dialect is CGROUP2 and _JOB2.fullmatch(name):
                named["SLUID"] += 1
    return Recognised(bases, dict(named), tuple(unknown_folders(root, dialect, bases, None, proc)))


def recognise_host(mount: Path) -> dict[Path, Recognised]:
    """Look at every hierarchy below ``mount`` in which Slurm has folders, those of all nodes of this host."""
    found: dict[Path, Recognised] = {}
    for root, dialect in ((mount / "freezer", CGROUP1), (mount, CGROUP2), (mount / "unified", CGROUP2)):
        if dialect is CGROUP1:
            names = [name for name in subdirectories(str(root)) if name.startswith("slurm_")]
            nodes = ["", *(name.removeprefix("slurm_") for name in names)]
        else:
            nodes = nodes_with_scopes(root) if (root / "cgroup.procs").exists() else []
        one = recognise(root, dialect, tuple(nodes))
        if one.roots:
            found[root] = one
    return found


def _unknown1(root: Path, base: str) -> Iterator[Unknown]:
    for user in subdirectories(str(root / base)):
        for job in subdirectories(str(root / base / user)):
            path = f"{base}/{user}/{job}"
            steps = [f"{path}/{step}" for step in subdirectories(str(root / path)) if step.startswith("step")]
            for step in steps:
                if CGROUP1.allows(step) is None and _is_populated(root / step):
                    yield Unknown(step, "it is named as no step of Slurm's is")


def _unknown2(root: Path, base: str, sluids: dict[str, int]) -> Iterator[Unknown]:
    for folder in subdirectories(str(root / base)):
        path = f"{base}/{folder}"
        if folder in _NOT_JOBS:
            continue
        if not _JOB2.fullmatch(folder):
            if _is_populated(root / path):
                yield Unknown(path, "it is named as no job of Slurm's is, neither by number nor by SLUID")
            continue
        if not _NUMBERED.fullmatch(folder) and folder not in sluids:
            if any(_is_populated(root / path / step / "user") for step in subdirectories(str(root / path))):
                yield Unknown(path, "no slurmstepd tells which job it is")
            continue
        for step in subdirectories(str(root / path)):
            if CGROUP2.allows(f"{path}/{step}/user") is None and _is_populated(root / path / step):
                yield Unknown(f"{path}/{step}", "it is named as no step of Slurm's is")


def _is_populated(folder: Path) -> bool:
    """Whether a process is in a folder, or in one below it."""
    WORK.pause_if_spent()
    try:
        if (folder / "cgroup.procs").read_bytes().strip():
            return True
    except OSError:  # gone, or a threaded one: its processes stand elsewhere
        pass
    return any(_is_populated(folder / name) for name in subdirectories(str(folder)))
