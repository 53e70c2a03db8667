"""Where Slurm keeps the tasks of job steps, for both generations of cgroups.

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
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gangd.freezer.holder import Step, StepKey
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
    below ``bases`` and is no step of any job that is known is reported by ``gangd.freezer.recognise``.
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
