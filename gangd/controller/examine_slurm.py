"""A configuration held against a live Slurm: what forbids it (raised), and what deserves a warning.

``check_slurm`` looks at what must be right before the controller may act, ``examine`` at all of it. Names
that nothing knows are warnings and no errors: an account that does not exist yet must not keep the scheduler
from starting.
"""

from __future__ import annotations

import pwd
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from foundation.errors import ClusterError
from foundation.slurm import Partition, SlurmClient
from foundation.slurm.pyslurm_library import release
from foundation.slurm.slurm_client import EXTRA_SINCE, MarkField
from foundation.units import counted
from gangd.controller.controller_config import Config, JobRule
from gangd.core.gang_settings import CoreSettings

FREE_TO_NAME = (
    "accounts has rules, and Slurm does not enforce accounts (AccountingStorageEnforce): "
    "a user can name any account"
)
WORDS = ("partition", "QOS", "account", "user")

CLASHING = ("GANG", "SUSPEND")
MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Examined:
    """Warnings, whether Slurm shows a user his own jobs only, its partitions, and the cluster's name."""

    warnings: tuple[str, ...]
    hides_jobs: bool
    partitions: frozenset[str]
    cluster: str | None = None


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
    warnings += unknown_names(config.rules(), known, is_user)
    if config.accounts and not enforces(found, "associations"):
        warnings += (FREE_TO_NAME,)
    return Examined(warnings, hides_jobs(found), there, found.get("ClusterName"))


def check_marks(config: Config, version: str) -> None:
    """Raise ClusterError where jobs are to be marked in a field that this release of Slurm does not have."""
    known = release(version)
    if config.mark_field() is MarkField.EXTRA and known is not None and known < EXTRA_SINCE:
        raise ClusterError(
            f'mark_jobs = "extra": jobs of Slurm {version} have no Extra (from 23.02 on); use "admin_comment"'
        )


def unknown_names(
    rules: Iterable[Mapping[str, JobRule]],
    known: Iterable[frozenset[str] | None],
    is_user: Callable[[str], bool],
) -> tuple[str, ...]:
    """Return a warning for each name that is none.

    Parameters
    ----------
    rules
        What is said of partitions, QOS, accounts, users.
    known
        Slurm's partitions, QOS and accounts; None where it does not tell.
    is_user
        Whether this host knows a user.
    """
    *partitions_said, users = rules
    warnings = []
    for word, names, there in zip(WORDS, partitions_said, known, strict=False):
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


def _everywhere(partition: str) -> bool:  # noqa: ARG001 - as its callers have it
    return True


def check_slurm(
    config: Mapping[str, str],
    partitions: Sequence[Partition],
    settings: CoreSettings,
    may_freeze: Callable[[str], bool] = _everywhere,
    longest_quantum_ms: Callable[[str], float] | None = None,
) -> tuple[str, ...]:
    """Return warnings.

    Parameters
    ----------
    config
        ``scontrol show config``.
    partitions
        All partitions.
    may_freeze
        Whether jobs of a partition may be frozen; where all of them yield, no job is frozen too long.
    longest_quantum_ms
        For how long a job of a partition may run at a stretch; None for one slice everywhere.

    Raises
    ------
    ClusterError
        Slurm's own gang scheduler is on, or jobs would be frozen for longer than Slurm bears.
    """
    modes = {"PreemptMode": config.get("PreemptMode", "")}
    modes |= {f"PreemptMode of partition {one.name}": one.preempt_mode for one in partitions}
    for where, mode in modes.items():
        if any(word in re.split(r"[,\s]+", mode.upper()) for word in CLASHING):
            raise ClusterError(f"{where} is {mode}: set it to OFF, Slurm and gangd would fight over freezes")
    cap_ms = settings.freeze_cap_ns / MS
    for one in partitions:
        quantum_ms = settings.quantum_ns / MS if longest_quantum_ms is None else longest_quantum_ms(one.name)
        frozen_ms = (one.multiplicity - 1) * quantum_ms
        if may_freeze(one.name) and frozen_ms > cap_ms:
            raise ClusterError(
                f"partition {one.name}: {counted(one.multiplicity, 'job')} a core at slices of "
                f"{quantum_ms:g} ms freeze a job for {frozen_ms:g} ms, longer than freeze_cap_ms = "
                f"{cap_ms:g}: make quantum_ms shorter"
            )
    timeout_s = seconds_of(config.get("MessageTimeout", ""))
    if timeout_s is not None and cap_ms > timeout_s * 1000 / 2:
        raise ClusterError(
            f"freeze_cap_ms = {cap_ms:g} is more than half of Slurm's MessageTimeout of {timeout_s:g} s: "
            "lower it, or a frozen srun loses its step"
        )
    return tuple(_warnings(config, partitions))


def hides_jobs(config: Mapping[str, str]) -> bool:
    """Whether Slurm shows a user his own jobs only (``PrivateData`` of ``scontrol show config``)."""
    return bool({"jobs", "nodes"} & set(re.split(r"[,\s]+", config.get("PrivateData", "").lower())))


def seconds_of(text: str) -> float | None:
    """Return the number of seconds of a value like ``10 sec``; None if it has no number."""
    match = re.match(r"\s*(\d+(?:\.\d+)?)", text)
    return None if match is None else float(match.group(1))


def _warnings(config: Mapping[str, str], partitions: Sequence[Partition]) -> list[str]:
    warnings = []
    parameters = {word.strip() for word in config.get("SelectTypeParameters", "").upper().split(",")}
    shared = [one.name for one in partitions if one.multiplicity > 1]
    if shared and not any(word.endswith("_MEMORY") for word in parameters):
        warnings.append(
            "SelectTypeParameters has no _Memory: jobs that share cores may not fit into memory together; "
            "use CR_Core_Memory and DefMemPerCPU"
        )
    if not shared:
        warnings.append("no partition shares cores (OverSubscribe=FORCE:2 or more): there is nothing to do")
    return warnings
