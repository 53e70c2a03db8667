"""``osub replay --pairing``: which pairs of applications must not meet, by what is known of their losses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foundation.errors import UsageError
from simulator.pairing import read_pair_table
from submitter.plan import ConflictPairs, checked_threshold


def danger_of(path: Path, threshold: float | None, multiplicity: int) -> ConflictPairs:
    """Return the pairs of which one loses more than the threshold to the other.

    Raises
    ------
    InputError
        The table cannot be read.
    UsageError
        The threshold is no share, or cores are not shared.
    """
    if multiplicity < 2:
        raise UsageError("--pairing has nothing to do where a core has one job: this partition shares none")
    least = checked_threshold(threshold, multiplicity)
    table = read_pair_table(path)
    names = table.applications
    pairs = {
        (names[min(one, other)], names[max(one, other)])
        for one in range(len(names))
        for other in range(one, len(names))
        if max(table.loss[one, other], table.loss[other, one]) > least
    }
    return ConflictPairs(frozenset(names), frozenset(pairs))


def check_pairing(options: Sequence[str], apps: Path | None, fit: float | None) -> None:
    """Refuse what does not go with ``--pairing``; raises UsageError."""
    if fit is not None:
        raise UsageError("--pairing does not go with --fit: a scaled log does not say what its jobs run")
    if apps is None:
        raise UsageError(
            "--pairing needs --apps: a log does not say which applications its jobs run "
            "(CSV trace_job,app,args,application)"
        )
    if any(option.partition("=")[0] in {"exclude", "nodelist"} for option in options):
        raise UsageError("--pairing chooses nodes itself: leave out --sbatch-option exclude and nodelist")
