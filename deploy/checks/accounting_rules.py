"""Who may move the end of a job, and how long it is known what came of one.

Sources: slurm.conf(5), AccountingStorageType, MinJobAge, JobCompType; Slurm's page on accounting.
"""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks.configuration import Advice, Configuration, Grade

LEAST_AGE_S = 60


def judge(found: Configuration) -> Iterator[Advice]:
    """Yield what there is to say."""
    yield _storage(found)
    yield _age(found)


def _has_database(found: Configuration) -> bool:
    return found.value("AccountingStorageType") == "accounting_storage/slurmdbd"


def _storage(found: Configuration) -> Advice:
    kind = found.value("AccountingStorageType") or "accounting_storage/none"
    if _has_database(found):
        why = "gangd's user may be an operator, and move ends of held jobs"
        return Advice("accounting", Grade.GOOD, kind, why)
    why = "only root and Slurm's user may move ends of held jobs: run gangd as one, or move_ends = false"
    return Advice("accounting", Grade.WARNING, kind, why, "AccountingStorageType=accounting_storage/slurmdbd")


def _age(found: Configuration) -> Advice:
    seconds = found.number("MinJobAge")
    told = "not told" if seconds is None else f"MinJobAge={seconds:g} s"
    logged = found.value("JobCompType") == "jobcomp/filetxt"
    if _has_database(found) or logged or seconds is None or seconds >= LEAST_AGE_S:
        return Advice("finished jobs", Grade.GOOD, told, "what came of a job is known when it is asked for")
    why = "slurmctld forgets what came of a job before a replay, or anybody, asks"
    return Advice("finished jobs", Grade.WARNING, told, why, "MinJobAge=300\nJobCompType=jobcomp/filetxt")
