"""Updates of many jobs by one command: ``scontrol`` reads what it is to do from its standard input.

Each job has a line of its own. After it comes a word that ``scontrol`` does not know: it says so on standard
error, which tells where the complaints of one job end and those of the next begin, and that the line before
was carried out. Nothing that a user writes goes in. Two things are written so:

* The *end* of a job: each has another one.
* A *mark*, a word about a job where its user sees it, once and in a field that is empty. Slurm has two fields
  for it (slurmctld/job_mgr.c). ``AdminComment`` is in every release, and takes the rights of root, of Slurm's
  user, or of an administrator in slurmdbd (an operator's do not suffice). ``Extra`` of jobs is there from
  23.02 on; operators may write it, and so may the job's owner. What is written replaces what was there: who
  marks has looked whether the field is empty, and who writes between the look and the mark loses.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from enum import StrEnum

from foundation.slurm.slurm_types import Job

MARK = "end-of-"
"""What comes before the number of a job whose line is over."""
_UNKNOWN = f"invalid keyword: {MARK}"

EXTRA_SINCE = (23, 2)
"""The first release in which jobs have an ``Extra``."""

_TEXT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:=_-]{0,127}")


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


class MarkField(StrEnum):
    """Where the word is written, as ``scontrol`` names it."""

    ADMIN_COMMENT = "AdminComment"
    EXTRA = "Extra"

    def is_empty(self, job: Job) -> bool:
        """Whether the field is known to be empty."""
        return job.admin_comment is None if self is MarkField.ADMIN_COMMENT else job.extra == ""


def sharing_text(wall_s: float) -> str:
    """Return what is written of a job that shares its cores since an instant, seconds since the epoch."""
    return f"gangd-shares-cores={time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(wall_s))}"


def marking_script(job_ids: Iterable[int], where: MarkField, text: str) -> str:
    """Return what marks jobs when ``scontrol`` reads it; ``foundation.slurm.ends`` reads the outcome.

    Raises
    ------
    ValueError
        The text has characters that could be something else for ``scontrol``.
    """
    if not _TEXT.fullmatch(text):
        raise ValueError(f"{text!r} cannot be written with a job")
    return "".join(f"update JobId={job_id:d} {where}={text}\n{MARK}{job_id:d}\n" for job_id in job_ids)
