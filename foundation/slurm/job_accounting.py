"""What became of jobs, by Slurm's accounting (sacct(1), slurmdbd), which forgets none that has ended.

Only fields are asked for in which no user writes, and a line that is not exactly of their form counts for
nothing, as if accounting had not told of that job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from foundation.slurm.slurm_types import JobState

FIELDS = ("JobIDRaw", "State", "ExitCode", "Submit", "Start", "End")
MOST_AT_ONCE = 500

_LINE = re.compile(
    r"([1-9][0-9]{0,9})\|([A-Z_]{1,20})(?: by [0-9]{1,10})?\|([0-9]{1,3}):([0-9]{1,3})"
    r"\|([0-9T:-]{19}|Unknown|None)\|([0-9T:-]{19}|Unknown|None)\|([0-9T:-]{19}|Unknown|None)"
)
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
_STATES = {str(state): state for state in JobState}


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounted:
    """A job as accounting has it; times in epoch seconds, None for what has not happened.

    ``exit_code`` and ``exit_signal`` are the batch script's, the signal None for none.
    """

    job_id: int
    state: JobState
    exit_code: int
    exit_signal: int | None
    submit_time: int | None
    start_time: int | None
    end_time: int | None


def accounting_words(job_ids: Iterable[int]) -> tuple[str, ...]:
    """Return the command that tells what became of jobs, the lives of those that were requeued included."""
    return (
        *("sacct", "--noheader", "--parsable2", "--allocations", "--duplicates"),
        f"--format={','.join(FIELDS)}",
        f"--jobs={','.join(map(str, job_ids))}",
    )


def read_accounting(text: str) -> dict[int, Accounted]:
    """Return the last life of each job in what ``accounting_words`` prints under TZ=UTC."""
    found: dict[int, Accounted] = {}
    for line in text.split("\n"):
        parts = _LINE.fullmatch(line)
        state = None if parts is None else _STATES.get(parts[2])
        if parts is None or state is None:
            continue
        one = Accounted(
            job_id=int(parts[1]),
            state=state,
            exit_code=int(parts[3]),
            exit_signal=int(parts[4]) or None,
            submit_time=_instant(parts[5]),
            start_time=_instant(parts[6]),
            end_time=_instant(parts[7]),
        )
        before = found.get(one.job_id)
        if before is None or (one.submit_time or 0) >= (before.submit_time or 0):
            found[one.job_id] = one
    return found


def _instant(text: str) -> int | None:
    if _TIME.fullmatch(text) is None:
        return None
    try:
        return int(datetime.fromisoformat(f"{text}+00:00").timestamp())
    except ValueError:
        return None
