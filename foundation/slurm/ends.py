"""Moving the ends of many jobs by one command: ``scontrol`` reads what it is to do from its standard input.

Each job has a line of its own, because each has another end. After it comes a word that ``scontrol`` does not
know: it says so on standard error, which tells where the complaints of one job end and those of the next
begin, and that the line before was carried out. Nothing that a user writes goes in: numbers alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

MARK = "end-of-"
"""What comes before the number of a job whose line is over."""
_UNKNOWN = f"invalid keyword: {MARK}"


def moving_script(ends: Mapping[int, int]) -> str:
    """Return what gives jobs these ends, seconds since the epoch, when ``scontrol`` reads it with TZ=UTC."""
    lines = []
    for job_id, end_time in ends.items():
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(end_time))
        lines.append(f"update JobId={job_id:d} EndTime={stamp}\n{MARK}{job_id:d}\n")
    return "".join(lines)


def read_outcomes(errors: str) -> dict[int, str]:
    """Return what was said of each job, in one line, empty if nothing was: its end was moved.

    A job that is missing was not come to: the command was ended before.
    """
    outcomes: dict[int, str] = {}
    said: list[str] = []
    for line in errors.splitlines():
        if not line.startswith(_UNKNOWN):
            said.append(line.strip())
            continue
        number = line.removeprefix(_UNKNOWN).strip()
        if number.isascii() and number.isdigit():
            outcomes[int(number)] = "; ".join(filter(None, said))
        said = []
    return outcomes
