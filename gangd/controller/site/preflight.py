"""What must be right about Slurm before the controller may act, and what deserves a warning."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from foundation.errors import ClusterError
from foundation.slurm import Partition
from gangd.core import Settings

CLASHING = ("GANG", "SUSPEND")
MS = 1_000_000


def _everywhere(partition: str) -> bool:  # noqa: ARG001
    return True


def check_slurm(
    config: Mapping[str, str],
    partitions: Sequence[Partition],
    settings: Settings,
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
        Whether jobs of a partition may be frozen; where all of them yield, nothing stands still too long.
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
                f"partition {one.name}: {one.multiplicity} jobs a core at slices of {quantum_ms:g} ms freeze "
                f"a job for {frozen_ms:g} ms, longer than freeze_cap_ms = {cap_ms:g}: make quantum_ms shorter"
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
