"""A configuration held against a live Slurm: what forbids it (raised), and what deserves a warning.

Names that nothing knows are warnings and no errors: an account that does not exist yet must not keep the
scheduler from starting.
"""

from __future__ import annotations

import pwd
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from foundation.errors import ClusterError
from foundation.slurm import SlurmClient
from foundation.slurm.job_updates import EXTRA_SINCE, MarkField
from foundation.slurm.reading.pyslurm_library import release
from gangd.controller.site.controller_config import Config, Saying
from gangd.controller.site.preflight import check_slurm, hides_jobs

FREE_TO_NAME = (
    "accounts has rules, and Slurm does not enforce accounts (AccountingStorageEnforce): "
    "a user can name any account"
)
WORDS = ("partition", "QOS", "account", "user")


@dataclass(frozen=True, slots=True)
class Examined:
    """Warnings, whether Slurm shows a user his own jobs only, and its partitions."""

    warnings: tuple[str, ...]
    hides_jobs: bool
    partitions: frozenset[str]


def examine(client: SlurmClient, config: Config) -> Examined:
    """Ask Slurm what it bears.

    Raises
    ------
    ClusterError
        Slurm does not answer, its own gang scheduler is on, or jobs would be frozen longer than it bears.
    """
    found, partitions = client.config(), client.partitions()
    check_marks(config, found.get("SLURM_VERSION", ""))
    warnings = check_slurm(found, partitions, config.settings(), config.may_freeze, config.longest_quantum_ms)
    there = frozenset(one.name for one in partitions)
    known: list[frozenset[str] | None] = [there, None, None]
    if config.qos or config.accounts:
        with suppress(ClusterError):  # slurmdbd is away, or there is none
            names = client.accounting_names()
            known[1:] = names.qos, names.accounts
    warnings += unknown_names(config.sayings(), known, is_user)
    if config.accounts and not enforces(found, "associations"):
        warnings += (FREE_TO_NAME,)
    return Examined(warnings, hides_jobs(found), there)


def check_marks(config: Config, version: str) -> None:
    """Raise ClusterError where jobs are to be marked in a field that this release of Slurm does not have."""
    known = release(version)
    if config.mark_field() is MarkField.EXTRA and known is not None and known < EXTRA_SINCE:
        raise ClusterError(
            f'mark_jobs = "extra": jobs of Slurm {version} have no Extra (from 23.02 on); use "admin_comment"'
        )


def unknown_names(
    sayings: Iterable[Mapping[str, Saying]],
    known: Iterable[frozenset[str] | None],
    is_user: Callable[[str], bool],
) -> tuple[str, ...]:
    """Return a warning for each name that is none.

    Parameters
    ----------
    sayings
        What is said of partitions, QOS, accounts, users.
    known
        Slurm's partitions, QOS and accounts; None where it does not tell.
    is_user
        Whether this host knows a user.
    """
    *theirs, users = sayings
    warnings = []
    for word, names, there in zip(WORDS, theirs, known, strict=False):
        if there is None:
            if names:
                warnings.append(f"{word} {', '.join(names)}: Slurm does not tell which there are")
            continue
        warnings += [
            f"{word} {name} has a rule, and Slurm has no {word} {name}" for name in names if name not in there
        ]
    warnings += [
        f"user {name} has a rule, and this host has no user {name}" for name in users if not is_user(name)
    ]
    return tuple(warnings)


def enforces(config: Mapping[str, str], what: str) -> bool:
    """Whether Slurm enforces associations, or what implies them (slurm.conf(5), AccountingStorageEnforce)."""
    said = set(re.split(r"[,\s]+", config.get("AccountingStorageEnforce", "").lower()))
    return bool(said & {what, "all", "limits", "qos", "safe", "wckeys"}) or "1" in said


def is_user(name: str) -> bool:
    """Whether this host knows a user of that name."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
