"""Slurm's cgroups: where the tasks of job steps are, and what there is that we cannot read.

Where Slurm keeps the tasks of job steps, for both generations of cgroups.

cgroup v1 (22.05, ``proctrack/cgroup``): ``<freezer>/slurm[_<node>]/uid_U/job_J/step_S``; slurmstepd itself
stays in ``job_J``, which is therefore never frozen.

cgroup v2: ``.../[<node>_]slurmstepd.scope/job_J/step_S/{slurm,user/task_N}``; slurmstepd runs in ``slurm``.
The ``task_*`` are frozen rather than ``user``: Slurm suspends a job through ``user``, and the two bits then
stay independent of each other. Processes that are in ``user`` itself are frozen through it. A step without
any task is not frozen: slurmstepd would wait for a task that is frozen before it has begun. Slurm 26.05 names
the job's folder by its SLUID (``sEKNKTV3WPV500``), which does not tell the job; the title of the slurmstepd
in ``slurm`` does.

Only root makes these folders. A user with a session of systemd's has cgroups of his own, in which he may make
a ``slurmstepd.scope`` as he likes: a folder that neither root nor the effective user owns is none of Slurm's.

With the node's name in a path, only the paths of this agent's node count: several nodes may share a host.

What Slurm keeps below its folders that we cannot read: never taken for "nothing runs here".

A later Slurm may name its folders anew, as 26.05 did. Then jobs would not be found, not be held, without any
sign. So whatever has processes below Slurm's own folders and is no step of a known job is reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gangd.freezer.holder import Step, StepKey, Unknown
from gangd.freezer.membership import step_of_title
from gangd.freezer.procfs import PROC, WORK, command_line, is_slurmstepd
from gangd.freezer.tree import CGROUP1, CGROUP2, JOB2, Dialect, is_made_by_root, subdirectories

_SCOPE_DEPTH = 4
_JOB2 = re.compile(JOB2)


def slurm_roots(root: Path, dialect: Dialect, node: str) -> tuple[str, ...]:
    """Folders below ``root`` that belong to Slurm's node ``node``, as relative paths.

    A folder that carries the node's name wins over the one without a name.
    """
    if dialect is CGROUP1:
        own = f"slurm_{node}"
        found = [
            name
            for name in subdirectories(str(root))
            if name in ("slurm", own) and is_made_by_root(root / name)
        ]
    else:
        own = f"{node}_slurmstepd.scope"
        found = list(_scopes(root, "", node, _SCOPE_DEPTH))
    named = [path for path in found if path.rsplit("/", 1)[-1] == own]
    return tuple(named or found)


def watched_folders(root: Path, dialect: Dialect, bases: tuple[str, ...]) -> Iterator[str]:
    """Folders below ``bases`` in which a job or a step shows up, relative to ``root``."""
    for base in bases:
        yield base
        parents = [base]
        if dialect is CGROUP1:
            parents = [f"{base}/{uid}" for uid in subdirectories(str(root / base)) if uid.startswith("uid_")]
            yield from parents
        for parent in parents:
            for job in subdirectories(str(root / parent)):
                WORK.pause_if_spent()
                if job.startswith("job_") or (dialect is CGROUP2 and _JOB2.fullmatch(job)):
                    yield f"{parent}/{job}"
                    if dialect is CGROUP2:
                        yield from _users(root, f"{parent}/{job}")


def find_steps(
    root: Path,
    dialect: Dialect,
    bases: tuple[str, ...],
    sluids: dict[str, int] | None = None,
    proc: Path = PROC,
) -> tuple[Step, ...]:
    """Return every step below the folders ``bases`` (from ``slurm_roots``), with the paths to freeze.

    ``sluids`` remembers the jobs of folders that are named by SLUID, from one call to the next. What runs
    below ``bases`` and is no step of any job that is known is reported by ``gangd.freezer.slurm_layout``.
    """
    if dialect is CGROUP1:
        return tuple(step for base in bases for step in _steps1(root, base))
    known = {} if sluids is None else sluids
    before = dict(known)
    known.clear()
    return tuple(step for base in bases for step in _steps2(root, base, before, known, proc))


def freezable_paths(root: Path, dialect: Dialect, bases: tuple[str, ...]) -> Iterator[str]:
    """Every cgroup below ``bases`` that has a freeze bit which we or Slurm may have set, empty or not."""
    if dialect is CGROUP1:
        for step in find_steps(root, dialect, bases):
            yield from step.paths
        return
    for base in bases:
        for job in subdirectories(str(root / base)):
            for user in _users(root, f"{base}/{job}") if _JOB2.fullmatch(job) else ():
                if dialect.allows(user) is not None:
                    yield from (*_tasks(root, user), user)


def nodes_with_scopes(root: Path) -> list[str]:
    """Names of the nodes that have a scope in a unified hierarchy; the empty name for one without a name."""
    found = {path.rsplit("/", 1)[-1] for path in _scopes(root, "", None, _SCOPE_DEPTH)}
    return sorted(name.removesuffix("slurmstepd.scope").removesuffix("_") for name in found)


def _scopes(root: Path, base: str, node: str | None, depth: int) -> Iterator[str]:
    for name in subdirectories(str(root / base) if base else str(root)):
        path = f"{base}/{name}" if base else name
        if name in ("slurmstepd.scope", f"{node}_slurmstepd.scope") or (
            node is None and name.endswith("_slurmstepd.scope")
        ):
            if is_made_by_root(root / path):
                yield path
        elif depth > 1 and not name.startswith("job_"):
            yield from _scopes(root, path, node, depth - 1)


def _users(root: Path, job: str) -> Iterator[str]:
    for step in subdirectories(str(root / job)):
        if step.startswith("step_"):
            yield f"{job}/{step}/user"


def _steps1(root: Path, base: str) -> Iterator[Step]:
    for uid in subdirectories(str(root / base)):
        if not uid.startswith("uid_"):
            continue
        for job in subdirectories(f"{root}/{base}/{uid}"):
            if not job.startswith("job_"):
                continue
            WORK.pause_if_spent()
            for step in subdirectories(f"{root}/{base}/{uid}/{job}"):
                path = f"{base}/{uid}/{job}/{step}"
                match = CGROUP1.allows(path)
                if match is not None:
                    key = StepKey(int(match["job"]), match["step"])
                    yield Step(key, int(match["uid"]), (path,))


def _steps2(
    root: Path, base: str, before: dict[str, int], sluids: dict[str, int], proc: Path
) -> Iterator[Step]:
    for folder in subdirectories(str(root / base)):
        if not _JOB2.fullmatch(folder):
            continue
        for user in _users(root, f"{base}/{folder}"):
            WORK.pause_if_spent()
            match = CGROUP2.allows(user)
            if match is None:
                continue
            job = before.get(folder) if match["job"] is None else int(match["job"])
            if job is None:
                job = _job_of_stepds(root / base / folder / f"step_{match['step']}" / "slurm", proc)
            if job is None:
                continue
            if match["job"] is None:
                sluids[folder] = job
            paths = tuple(_tasks(root, user))
            if not paths and _has_processes(root / user):
                paths = (user,)
            yield Step(StepKey(job, match["step"]), None, paths, is_empty=not paths)


def _job_of_stepds(cgroup: Path, proc: Path) -> int | None:
    """Job of the slurmstepds that Slurm has put into a step's ``slurm``, by their titles.

    None without one, and where they do not agree.
    """
    try:
        pids = [int(word) for word in (cgroup / "cgroup.procs").read_bytes().split()]
    except OSError:
        return None
    keys = (step_of_title(command_line(pid, proc)) for pid in pids if is_slurmstepd(pid, proc))
    jobs = {key.job for key in keys if key is not None}
    return jobs.pop() if len(jobs) == 1 else None


def _tasks(root: Path, user: str) -> list[str]:
    names = subdirectories(str(root / user))
    return sorted(f"{user}/{name}" for name in names if CGROUP2.allows(f"{user}/{name}"))


def _has_processes(cgroup: Path) -> bool:
    try:
        return bool((cgroup / "cgroup.procs").read_bytes())
    except OSError:  # gone, or a threaded one, whose processes stand above it
        return False


MOST_NAMED = 8
_NUMBERED = re.compile(r"job_[0-9]+")
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
    WORK.pause_if_spent()
    try:
        if (folder / "cgroup.procs").read_bytes().strip():
            return True
    except OSError:  # gone, or a threaded one: its processes stand elsewhere
        pass
    return any(_is_populated(folder / name) for name in subdirectories(str(folder)))
