"""Jobs from the plain text of ``squeue`` and ``scontrol``, for a Slurm whose commands print no JSON.

What many jobs are listed by has no field in which a user writes (``FACTS``), so every line of it is Slurm's.
A field that a user writes is asked for by itself and for one job, whose whole answer it is. Cores are only in
``scontrol show job -d``, among texts of the user's; the answer for one job counts if it names the very nodes
that Slurm lists, each once, and holds nothing else that looks like it. A user who writes such a thing gets a
job that cannot be read, and no more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from foundation.errors import ClusterError
from foundation.slurm.hosts import BadRecordError, FindNode, each_once, expand_hosts, expand_ids, place
from foundation.slurm.slurm_types import STATES, NodeCores, SlurmJob, SlurmJobState, instant_of

FACTS = (
    "JobID",
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "HetJobOffset",
    "State",
    "UserID",
    "UserName",
    "Partition",
    "NumNodes",
    "NumCPUs",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "RestartCnt",
    "exit_code",
    "BatchHost",
    "NodeList",
)
"""Fields of ``squeue -O`` in which no user writes."""

SEPARATOR = "|"
_LONGEST_IDS = 120
"""``scontrol`` cuts a list of CPU ids at 127 characters (slurm_sprint_job_info of src/api/job_info.c)."""

_NUMBER = re.compile(r"[0-9]{1,18}")
_NAME = re.compile(r"[\w.+$@\\-]{1,255}")
_CORES = re.compile(r" Nodes=([^ \n]+) CPU_IDs=([^ \n]+) Mem=([0-9]{1,18})(?= )")
_EXIT = re.compile(r"([0-9]{1,9})(?::([0-9]{1,5}))?")
_LIMIT = re.compile(r"(?:([0-9]{1,9})-)?(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{2})")
_ABSENT = frozenset({"", "N/A", "n/a", "(null)", "None", "NONE", "Unknown"})
_ENDLESS = frozenset({"UNLIMITED", "NOT_SET", "INVALID", "Partition_Limit"})


@dataclass(frozen=True, slots=True)
class Written:
    """What the user of a job, and operators, write of it, asked for by itself."""

    comment: str | None = None
    admin_comment: str | None = None
    features: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None


def facts_words() -> tuple[str, ...]:
    """Return the command that lists the facts of all jobs."""
    fields = [f"{field}:0{SEPARATOR}" for field in FACTS[:-1]] + [f"{FACTS[-1]}:0"]
    return ("squeue", "--noheader", "--all", "--states=all", "--noconvert", f"--Format={','.join(fields)}")


def read_facts(text: str) -> Iterator[tuple[int | None, dict[str, str] | None]]:
    """Yield the id and the facts of each line; None for what cannot be read."""
    for line in text.split("\n"):
        values = line.rstrip(" ").split(SEPARATOR)
        number = _NUMBER.fullmatch(values[0].strip())
        if len(values) == len(FACTS) and number:
            yield int(values[0]), dict(zip(FACTS, (value.strip() for value in values), strict=True))
        elif line.strip():
            yield int(values[0]) if number else None, None


def address_of(facts: dict[str, str]) -> str:
    """Return the words for one job: the id of an array or of a heterogeneous job covers all of it."""
    array, task = facts["ArrayJobID"], facts["ArrayTaskID"]
    if _NUMBER.fullmatch(array) and _NUMBER.fullmatch(task):
        return f"{array}_{task}"
    leader, offset = facts["HetJobID"], facts["HetJobOffset"]
    if _NUMBER.fullmatch(leader) and _NUMBER.fullmatch(offset):
        return f"{leader}+{offset}"
    return facts["JobID"]


def job_of(
    facts: dict[str, str], cores: tuple[NodeCores, ...], written: Written, name: str | None, reason: str
) -> SlurmJob:
    """Return a job; raises BadRecordError where a fact is none."""
    state = state_of(facts)
    code, signal = _exit(facts["exit_code"])
    array_task = facts["ArrayTaskID"]
    in_array = bool(_NUMBER.fullmatch(array_task)) and facts["ArrayJobID"] not in _ABSENT
    pending_array = state is SlurmJobState.PENDING and array_task not in _ABSENT
    limit_s = _limit_s(facts["TimeLimit"])
    begun = state.holds_cores or state.is_over
    endless = limit_s is None and not state.is_over
    return SlurmJob(
        job_id=_whole(facts, "JobID"),
        name=name,
        user=_word(facts, "UserName"),
        uid=_whole(facts, "UserID"),
        partition=facts["Partition"].partition(",")[0],
        state=state,
        reason=reason,
        num_nodes=_whole(facts, "NumNodes"),
        cores=cores,
        array_job_id=_whole(facts, "ArrayJobID") if in_array or pending_array else None,
        array_task_id=_whole(facts, "ArrayTaskID") if in_array else None,
        het_job_id=_maybe(facts, "HetJobID"),
        het_job_offset=_maybe(facts, "HetJobOffset"),
        submit_time=_instant(facts["SubmitTime"]),
        start_time=_instant(facts["StartTime"]) if begun else None,
        end_time=_instant(facts["EndTime"]) if begun and not endless else None,
        time_limit_s=limit_s,
        restarts=_whole(facts, "RestartCnt"),
        exit_code=code,
        exit_signal=signal,
        features=written.features,
        comment=written.comment,
        admin_comment=written.admin_comment,
        account=written.account,
        qos=written.qos,
        reservation=written.reservation,
        batch_host=None if facts["BatchHost"] in _ABSENT else _word(facts, "BatchHost"),
    )


def state_of(facts: dict[str, str]) -> SlurmJobState:
    """Return a job's state; raises BadRecordError for a word that is none."""
    state = STATES.get(facts["State"])
    if state is None:
        raise BadRecordError("its state is none that is known")
    return state


def read_cores(text: str, facts: dict[str, str], find: FindNode) -> tuple[NodeCores, ...]:
    """Return the cores in ``scontrol show job -d -o`` for one job.

    Raises
    ------
    BadRecordError
        The nodes are not those that Slurm lists, or there is more than one reading.
    """
    try:
        nodes = expand_hosts(facts["NodeList"])
        groups = [
            (expand_hosts(hosts), expand_ids(ids), int(memory), len(ids))
            for hosts, ids, memory in _CORES.findall(text)
        ]
    except ClusterError as error:
        raise BadRecordError("its cores cannot be separated from text that its user wrote") from error
    if not groups and "CPU_IDs=" not in text:
        return ()
    places = each_once(
        place(host, _cores_of(host, ids, find), memory, find)
        for hosts, ids, memory, _ in groups
        for host in hosts
    )
    if text.count("CPU_IDs=") != len(groups) or sorted(held.node for held in places) != sorted(nodes):
        raise BadRecordError("its cores cannot be separated from text that its user wrote")
    if any(length >= _LONGEST_IDS for _, _, _, length in groups):
        raise BadRecordError("scontrol cuts the list of its cores")
    return places


def _cores_of(host: str, ids: tuple[int, ...], find: FindNode) -> set[int]:
    node = find(host)
    return {cpu // (node.threads_per_core if node else 1) for cpu in ids}


def _whole(facts: dict[str, str], key: str) -> int:
    if not _NUMBER.fullmatch(facts[key].partition("-")[0]):
        raise BadRecordError(f"its {key} is no number")
    return int(facts[key].partition("-")[0])


def _exit(text: str) -> tuple[int, int | None]:
    """Return exit code and signal, which newer versions print as such, and 22.05 as wait(2) has them."""
    parts = _EXIT.fullmatch(text)
    if parts is None:
        raise BadRecordError("its exit_code is none")
    if parts[2] is not None:
        return int(parts[1]), int(parts[2]) or None
    status = int(parts[1]) & 0xFFFF
    return (0, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), None)


def _maybe(facts: dict[str, str], key: str) -> int | None:
    return None if facts[key] in _ABSENT else _whole(facts, key)


def _word(facts: dict[str, str], key: str) -> str:
    if not _NAME.fullmatch(facts[key]):
        raise BadRecordError(f"its {key} is no name")
    return facts[key]


def _instant(text: str) -> int | None:
    """Return an instant that Slurm printed under TZ=UTC."""
    if text in _ABSENT:
        return None
    instant = instant_of(text)
    if instant is None:
        raise BadRecordError("a time of it is none")
    return instant


def _limit_s(text: str) -> int | None:
    if text in _ENDLESS or text in _ABSENT:
        return None
    parts = _LIMIT.fullmatch(text)
    if parts is None:
        raise BadRecordError("its time limit is none")
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return days * 86_400 + hours * 3_600 + minutes * 60 + seconds
