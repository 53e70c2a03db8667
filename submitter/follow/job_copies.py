"""Finding a replay's own jobs in Slurm, and telling the copies of a job apart.

A submission that got no answer may have arrived nevertheless, and be made again: Slurm then has two copies.
The job's script lets only the first one that starts do the work: it makes a link ``<job>.claim`` that names
itself, which no second one can make. So the copy that claimed is the job. Pure, but for the link.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from foundation.slurm import Job

# What the claim of a job says that nobody may run any more.
_NOBODY = "nobody"
_LONGEST_NUMBER = 18
CLAIM = ".claim"


def job_name(run_id: str, trace_job: int) -> str:
    """Return the name by which a replay's job is found again in Slurm."""
    return f"osub-{run_id}-{trace_job}"


def trace_job_of(name: str, run_id: str) -> int | None:
    """Return the trace's job number from a job's name, None for a job of somebody else."""
    prefix = f"osub-{run_id}-"
    number = name.removeprefix(prefix)
    plain = number.isascii() and number.isdigit() and len(number) <= _LONGEST_NUMBER
    return int(number) if name.startswith(prefix) and plain else None


def own_jobs(jobs: Iterable[Job], run_id: str, uids: Collection[int]) -> dict[int, list[Job]]:
    """Return this run's jobs by trace job, each with its copies in order of their ids.

    A name is anybody's to choose, so only jobs of the users ``uids`` are believed to be the run's.
    """
    found: dict[int, list[Job]] = {}
    for job in sorted(jobs, key=lambda job: job.job_id):
        number = trace_job_of(job.name, run_id) if job.name and job.uid in uids else None
        if number is not None:
            found.setdefault(number, []).append(job)
    return found


@dataclass(frozen=True, slots=True)
class Choice:
    """The copy that is the job, and the others."""

    job_id: int
    others: tuple[Job, ...] = ()


def choose_copy(copies: Iterable[Job], known: int | None, claimed: int | None) -> Choice | None:
    """Return which copy counts, None where there is none at all.

    Parameters
    ----------
    copies
        What Slurm has under the job's name, in order of their ids.
    known
        The id that is recorded for the job.
    claimed
        The id that the job's own start stamp tells: once there is one, it is the job.
    """
    copies = tuple(copies)
    first = min((job.job_id for job in copies), default=None)
    chosen = claimed if claimed is not None else known if known is not None else first
    if chosen is None:
        return None
    return Choice(chosen, tuple(job for job in copies if job.job_id != chosen))


def claim_path(folder: Path, trace_job: int) -> Path:
    """Return the link by which a copy claims the job; its target is the copy's id."""
    return folder / f"{trace_job}{CLAIM}"


def forbid(folder: Path, trace_job: int) -> int | None:
    """Let no copy of a job start any more; returns the id of one that has started already."""
    path = claim_path(folder, trace_job)
    try:
        path.symlink_to(_NOBODY)
    except FileExistsError:
        with suppress(OSError, ValueError):
            return int(path.readlink().name)
    except OSError:
        pass  # a file system without links: whatever turns up is cancelled when it is seen
    return None
