"""Ends of jobs from Slurm's completion log (``JobCompType=jobcomp/filetxt``): one line for each attempt.

Users write names, work directories, accounts and keys into these lines, line breaks and all, so that a job
can be called like a whole line about another job; and Slurm 22.05 cuts a line at 1,023 bytes, its end too,
so that the next one goes on in it. So form alone proves nothing. A job that has ended has a line
of Slurm's own here, and a forged line is a second: several lines about one job count only where they are
its attempts, each but the last put back in the queue. A line that is not wholly of the form taints every
job whose number it contains. A forger can thereby make a job count as unknown, and nothing else.

Times in the log are the local ones of slurmctld. Its zone is found from a job's submit time, which the
caller knows.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from foundation.errors import OsubError
from foundation.slurm.slurm_client import Accounted
from foundation.slurm.slurm_types import STATES, SlurmJobState, instant_of
from foundation.trust import folder_of, open_own

TYPE = "jobcomp/filetxt"
LONGEST_LINE = 64 << 10
SLACK_S = 120
"""How far apart an instant of a submission may be here and where it was asked for."""
QUARTER_S = 900
"""Zones are whole quarters of an hour away from universal time."""
FARTHEST_ZONE_S = 15 * 3600

_KEYS = (
    "JobId|UserId|GroupId|Name|JobState|Partition|TimeLimit|StartTime|EndTime|NodeList|NodeCnt|ProcCnt|WorkDir|"
    "ReservationName|Tres|Account|QOS|WcKey|Cluster|SubmitTime|EligibleTime|ArrayJobId|ArrayTaskId|HetJobId|"
    "HetJobOffset|DerivedExitCode|ExitCode"
)
_KEY = re.compile(rf"(?:^|(?<= ))({_KEYS})=")
_TIME = r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}|[Uu]nknown)"
_OWNER = r"[^ ()]*(?:\(null\))?"
_LINE = re.compile(
    rf"JobId=([1-9][0-9]{{0,9}}) UserId={_OWNER}\(([0-9]{{1,10}})\) GroupId={_OWNER}\([0-9]{{1,10}}\) "
    rf"Name=.* JobState=([A-Z_]{{1,20}}) Partition=.* TimeLimit=[^ ]* StartTime={_TIME} EndTime={_TIME} "
    r"NodeList=[^ ]* NodeCnt=[0-9]{1,10} ProcCnt=[0-9]{1,10} WorkDir=.* ReservationName=.* Tres=[^ ]* "
    rf"Account=.* QOS=.* WcKey=.* Cluster=[^ ]* SubmitTime={_TIME} EligibleTime={_TIME}"
    r"(?: ArrayJobId=[0-9]+ ArrayTaskId=[0-9]+)?(?: HetJobId=[0-9]+ HetJobOffset=[0-9]+)? "
    r"DerivedExitCode=[0-9]{1,3}:[0-9]{1,3} ExitCode=([0-9]{1,3}):([0-9]{1,3}) *"
)
_NUMBER = re.compile(r"JobId=([1-9][0-9]{0,9})(?![0-9])")
_PUT_BACK = frozenset(
    {
        SlurmJobState.PENDING,
        SlurmJobState.REQUEUED,
        SlurmJobState.REQUEUE_HOLD,
        SlurmJobState.NODE_FAIL,
        SlurmJobState.PREEMPTED,
        SlurmJobState.BOOT_FAIL,
        SlurmJobState.RESIZING,
    }
)
"""States of an attempt after which another one follows."""


@dataclass(frozen=True, slots=True)
class CompletionLine:
    """A line; times in seconds of slurmctld's own clock face, as if that were universal time."""

    uid: int
    record: Accounted


@dataclass(slots=True)
class Completions:
    """What was read of a log: attempts by job, and jobs named in a line that cannot be read."""

    attempts: dict[int, list[CompletionLine]] = field(default_factory=dict)
    tainted: set[int] = field(default_factory=set)

    def read(self, lines: Iterable[str]) -> None:
        """Take in whole lines."""
        for line in lines:
            attempt = read_line(line)
            if attempt is None:
                self.tainted.update(int(number) for number in _NUMBER.findall(line[:LONGEST_LINE]))
            else:
                self.attempts.setdefault(attempt.record.job_id, []).append(attempt)

    def accounted(self, submitted: Mapping[int, float]) -> dict[int, Accounted]:
        """Return what became of jobs.

        Parameters
        ----------
        submitted
            When each was submitted, seconds since the epoch. A line about a job of the same number that was
            submitted at another time is about another job.
        """
        found: dict[int, Accounted] = {}
        for job_id, at_s in submitted.items():
            attempts = self.attempts.get(job_id, [])
            if not attempts or job_id in self.tainted or not _is_one_job(attempts):
                continue
            zone_s = zone_of(attempts[0].record.submit_time, at_s)
            if zone_s is not None:
                found[job_id] = _moved(attempts[-1].record, zone_s)
        return found


def read_line(line: str) -> CompletionLine | None:
    """Return what a line says; None where it is not exactly one line of Slurm's."""
    if len(line) > LONGEST_LINE:
        return None
    keys = _KEY.findall(line)
    if len(set(keys)) < len(keys):
        return None
    parts = _LINE.fullmatch(line)
    state = None if parts is None else STATES.get(parts[3])
    if parts is None or state is None:
        return None
    start, end, submit = (instant_of(parts[group]) for group in (4, 5, 6))
    return CompletionLine(
        int(parts[2]),
        Accounted(
            job_id=int(parts[1]),
            state=state,
            exit_code=int(parts[8]),
            exit_signal=int(parts[9]) or None,
            submit_time=submit,
            start_time=start,
            end_time=end,
        ),
    )


def zone_of(face_s: int | None, instant_s: float) -> int | None:
    """Return by how many seconds a clock face is ahead of universal time; None where no zone explains it."""
    if face_s is None:
        return None
    ahead_s = face_s - instant_s
    zone_s = round(ahead_s / QUARTER_S) * QUARTER_S
    return zone_s if abs(ahead_s - zone_s) <= SLACK_S and abs(zone_s) <= FARTHEST_ZONE_S else None


def _is_one_job(attempts: list[CompletionLine]) -> bool:
    return len({attempt.uid for attempt in attempts}) == 1 and all(
        attempt.record.state in _PUT_BACK for attempt in attempts[:-1]
    )


def _moved(record: Accounted, zone_s: int) -> Accounted:
    def instant(face_s: int | None) -> int | None:
        return None if face_s is None else face_s - zone_s

    return replace(
        record,
        submit_time=instant(record.submit_time),
        start_time=instant(record.start_time),
        end_time=instant(record.end_time),
    )


MOST_BYTES = 64 << 20
"""So much of the end of a log is read at once: some hundred thousand jobs."""


class CompletionFile:
    """A log that grows.

    Parameters
    ----------
    path
        ``JobCompLoc``; a file of root's, of Slurm's user, or of the caller.
    slurm_user
        Slurm's user by name; None where that is not known.
    """

    def __init__(self, path: Path, slurm_user: str | None = None) -> None:
        self._path = path
        self._also = _uid_of(slurm_user)
        self._which: tuple[int, int] | None = None
        self._at = 0
        self._rest = b""
        self._read = Completions()

    def read(self) -> Completions | None:
        """Return all that was read of the log; None where it is not here, or is nothing to be believed."""
        try:
            with folder_of(self._path, self._also) as folder:
                fd = open_own(folder, self._path.name, os.O_RDONLY, also=self._also)
        except (OSError, OsubError):
            return None
        with os.fdopen(fd, "rb") as log:
            now = os.fstat(fd)
            if self._which != (now.st_dev, now.st_ino) or now.st_size < self._at:  # begun, or put aside
                self._which, self._at, self._rest = (now.st_dev, now.st_ino), 0, b""
            begin = max(self._at, now.st_size - MOST_BYTES)
            skipped = begin > self._at
            log.seek(begin)
            grown = (b"" if skipped else self._rest) + log.read(MOST_BYTES)
            self._at = log.tell()
        *lines, self._rest = grown.split(b"\n")
        if skipped:
            lines = lines[1:]
        if len(self._rest) > LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        self._read.read(line.decode("utf-8", "backslashreplace") for line in lines if line)
        return self._read


def _uid_of(name: str | None) -> frozenset[int]:
    if name is None:
        return frozenset()
    try:
        return frozenset({pwd.getpwnam(name).pw_uid})
    except (KeyError, ValueError):
        return frozenset()
