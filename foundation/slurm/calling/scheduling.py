"""Which of Slurm's configuration says when jobs start: what a RUN keeps of it."""

from __future__ import annotations

from collections.abc import Mapping

from foundation.one_line import one_line

_KEYS = frozenset(
    {
        "AccountingStorageType",
        "CompleteWait",
        "Epilog",
        "EpilogMsgTime",
        "EpilogSlurmctld",
        "KillWait",
        "OverTimeLimit",
        "PreemptMode",
        "PreemptType",
        "Prolog",
        "PrologFlags",
        "PrologSlurmctld",
        "SelectType",
        "SelectTypeParameters",
    }
)
_PREFIXES = ("Scheduler", "Priority")
_LONGEST = 2048


def scheduling_config(config: Mapping[str, str]) -> dict[str, str]:
    """Return what of ``scontrol show config`` says when jobs start, in the order of its keys.

    Parameters
    ----------
    config
        All of it; what an operator wrote in it comes as one printable line of bounded length.
    """
    return {
        key: one_line(value, _LONGEST)
        for key, value in sorted(config.items())
        if key in _KEYS or key.startswith(_PREFIXES)
    }
