"""Slurm's job completion log, of ``JobCompType=jobcomp/filetxt``: a line of ``Key=Value`` for each job."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import tzinfo
from pathlib import Path

from foundation.errors import InputError
from workloads.importers.accounting_record import AccountingJob, AccountingLog
from workloads.importers.slurm_words import LocalClock, count, is_absent, length_s, resources, state_word

# A value may hold blanks and equals signs, so only the keys that Slurm writes part a line. Names and work
# directories are the users': where a key stands twice, nobody knows which of the two Slurm wrote.
_KEY = re.compile(
    r"(?:^|(?<= ))(JobId|UserId|GroupId|Name|JobState|Partition|TimeLimit|StartTime|EndTime|NodeList|NodeCnt|"
    r"ProcCnt|WorkDir|ReservationName|Tres|Gres|Account|QOS|WcKey|Cluster|SubmitTime|EligibleTime|ArrayJobId|"
    r"ArrayTaskId|HetJobId|HetJobOffset|PackJobId|PackJobOffset|DerivedExitCode|ExitCode)="
)
_USER = re.compile(r"(.*)\((\d+)\)")


def is_completion_line(line: str) -> bool:
    """Return whether ``line`` is one of a job completion log."""
    return line.startswith("JobId=") and "UserId=" in line


def read_completions(path: Path, lines: Iterable[str], zone: tzinfo | None, strict: bool) -> AccountingLog:
    """Read a job completion log.

    Raises
    ------
    InputError
        A line is malformed (``strict``); the message names file and line.
    """
    log, clock = AccountingLog("jobcomp"), LocalClock(zone)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        keys = _KEY.findall(line)
        if len(set(keys)) < len(keys):
            log.skip("a key of Slurm's in a user's words", f"{path}:{number}: a key stands twice")
            continue
        try:
            log.jobs.append(_job(line, clock))
        except (ValueError, KeyError) as error:
            message = f"{path}:{number}: no completed job in it: cannot make sense of {error}"
            if strict:
                raise InputError(f"{message}; --lenient skips such lines") from error
            log.skip("malformed line", message)
    return log


def _job(line: str, clock: LocalClock) -> AccountingJob:
    parts = _KEY.split(line.rstrip("\r\n"))
    values = {key: value.strip() for key, value in zip(parts[1::2], parts[2::2], strict=True)}
    user = _USER.fullmatch(values.get("UserId", ""))
    tres = resources(values.get("Tres", ""))
    procs = count(values["ProcCnt"] if "ProcCnt" in values else tres["cpu"])
    (submit_s, start_s, end_s), sure = clock.read(
        values["SubmitTime"], values["StartTime"], values["EndTime"], None
    )
    nodes, of = values.get("NodeList"), values.get("HetJobId") or values.get("PackJobId")
    offset = values.get("HetJobOffset") or values.get("PackJobOffset")
    return AccountingJob(
        job_id=f"{of}+{offset}" if of and offset and not is_absent(offset) else values["JobId"],
        raw_id=count(values["JobId"]),
        state=state_word(values.get("JobState", "")),
        submit_s=submit_s,
        start_s=start_s,
        end_s=end_s,
        procs=procs,
        nodes=count(values.get("NodeCnt", "")),
        requested_s=length_s(values.get("TimeLimit", ""), 60),
        user=user[1] if user else _text(values.get("UserId")),
        account=_text(values.get("Account")) or _text(values.get("GroupId")),
        partition=_text(values.get("Partition")),
        qos=_text(values.get("QOS")),
        name=_text(values.get("Name")),
        had_nodes=None if nodes is None else not is_absent(nodes),
        sure=sure,
    )


def _text(text: str | None) -> str | None:
    return None if text is None or is_absent(text) else text
