"""Reading the text of ``scontrol show -o -d``: one record a line, ``Key=value`` pairs.

Job names, commands and comments are the user's and may hold anything, text that looks like
another key included. The name comes before every key that we use and the other free texts
after ``Command=``, so keys are looked for up to the first ``Command=`` and the *last* value of
a key counts: a name can't set one. A name that holds ``Command=`` hides the keys, and a name
with a line break makes a second record of the same id; such jobs are left out and counted,
which leaves them running and unmanaged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime

from osub.errors import ClusterError
from osub.slurm.hosts import expand_hosts, expand_ids
from osub.slurm.types import Job, JobSnapshot, JobState, Node, NodeCores, Partition, UnreadableJob

_PAIR = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z_/:&]*)=(\S*)")
_NAME = re.compile(r"\sJobName=(.*?)(?: HetJobIdSet=\S+)? UserId=(\S+)\((\d+)\) GroupId=", re.DOTALL)
_CORES = re.compile(r"\sNodes=(\S+) CPU_IDs=(\S+) Mem=(\d+)")
_COMMENT = re.compile(r" Comment=(.*?) (?:WorkDir|StdErr|StdOut|Power)=")
_UNKNOWN_TIMES = frozenset({"Unknown", "None", "N/A", ""})


def read_config(text: str) -> dict[str, str]:
    """Return ``scontrol show config`` as a mapping of keys to values."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def read_jobs(text: str, threads: Mapping[str, int]) -> JobSnapshot:
    """Return the jobs in ``scontrol show -o -d job`` output, and the records that are unusable.

    Parameters
    ----------
    text
        The output.
    threads
        Hardware threads a core by node name, to turn CPU ids into core ids; 1 for others.
    """
    lines = [line for line in text.splitlines() if line.startswith("JobId=")]
    parsed = [(line, _job(line, threads)) for line in lines]
    copies = Counter(job.job_id for _, job in parsed if job is not None)
    jobs = tuple(job for _, job in parsed if job is not None and copies[job.job_id] == 1)
    bad = [line for line, job in parsed if job is None or copies[job.job_id] > 1]
    ids = [_number(line.removeprefix("JobId=").partition(" ")[0]) for line in bad]
    why = "its record is malformed, or there are two of its id"
    return JobSnapshot(jobs, tuple(UnreadableJob(job_id, why) for job_id in ids))


def _job(line: str, threads: Mapping[str, int]) -> Job | None:
    head, _, tail = line.partition(" Command=")
    keys = dict(_PAIR.findall(head))
    named = _NAME.search(head)
    try:
        if named is None:
            return None
        signal = keys.get("ExitCode", "0:0").partition(":")
        started = JobState(keys["JobState"]) is not JobState.PENDING
        return Job(
            job_id=int(keys["JobId"]),
            name=named.group(1),
            user=keys["UserId"].rpartition("(")[0],
            uid=int(keys["UserId"].rpartition("(")[2].rstrip(")")),
            partition=keys["Partition"].partition(",")[0],
            state=JobState(keys["JobState"]),
            reason=keys.get("Reason", "None"),
            num_nodes=int(keys["NumNodes"].partition("-")[0]),
            num_cpus=int(keys["NumCPUs"].partition("-")[0]),
            cores=_cores(head, threads),
            array_job_id=_number(keys.get("ArrayJobId")),
            array_task_id=_number(keys.get("ArrayTaskId")),
            het_job_id=_number(keys.get("HetJobId")),
            het_job_offset=_number(keys.get("HetJobOffset")),
            submit_time=_time(keys["SubmitTime"]),
            start_time=_time(keys["StartTime"]) if started else None,
            end_time=_time(keys["EndTime"]) if started else None,
            time_limit_s=_limit(keys["TimeLimit"]),
            restarts=int(keys.get("Restarts", "0")),
            exit_code=int(signal[0]),
            exit_signal=int(signal[2]) or None,
            features=_present(keys.get("Features")),
            comment=_comment(tail),
            batch_host=_present(keys.get("BatchHost")),
        )
    except (KeyError, ValueError, ClusterError):
        return None


def _cores(head: str, threads: Mapping[str, int]) -> tuple[NodeCores, ...]:
    return tuple(
        NodeCores(
            node,
            tuple(sorted({cpu // threads.get(node, 1) for cpu in expand_ids(cpu_ids)})),
            int(memory) or None,
        )
        for hosts, cpu_ids, memory in _CORES.findall(head)
        for node in expand_hosts(hosts)
    )


def read_nodes(text: str) -> list[Node]:
    """Return the nodes in ``scontrol show -o node`` output."""
    return [_node(line) for line in text.splitlines() if line.startswith("NodeName=")]


def _node(line: str) -> Node:
    keys = dict(_PAIR.findall(line.partition(" Comment=")[0]))
    threads = int(keys.get("ThreadsPerCore", "1"))
    reason = re.search(r" Reason=(.*?)(?: \[|$)", line)
    return Node(
        name=keys["NodeName"],
        states=frozenset(keys["State"].replace("*", "+NOT_RESPONDING").split("+")),
        cores=int(keys["CPUTot"]) // threads or 1,
        threads_per_core=threads,
        memory_mib=int(keys.get("RealMemory", "0")),
        cpus_allocated=int(keys.get("CPUAlloc", "0")),
        features=frozenset((_present(keys.get("ActiveFeatures")) or "").split(",")) - {""},
        reason=reason.group(1) if reason else None,
        address=keys.get("NodeAddr"),
    )


def read_partitions(text: str) -> list[Partition]:
    """Return the partitions in ``scontrol show -o partition`` output."""
    return list(_partitions(text))


def _partitions(text: str) -> Iterator[Partition]:
    for line in text.splitlines():
        if not line.startswith("PartitionName="):
            continue
        keys = dict(_PAIR.findall(line))
        kind, _, most = keys.get("OverSubscribe", "NO").partition(":")
        shares = kind in {"FORCE", "YES"}
        yield Partition(
            name=keys["PartitionName"],
            nodes=expand_hosts(keys.get("Nodes", "")),
            multiplicity=int(most) if shares and most else 1,
            forced=kind == "FORCE",
            is_default=keys.get("Default") == "YES",
            is_up=keys.get("State") == "UP",
            preempt_mode=keys.get("PreemptMode", "OFF"),
            priority_tier=int(keys.get("PriorityTier", "1")),
        )


def _time(text: str) -> int | None:
    """Slurm prints local time without a zone."""
    if text in _UNKNOWN_TIMES:
        return None
    return int(datetime.fromisoformat(text).astimezone().timestamp())


def _limit(text: str) -> int | None:
    """Return a limit, ``[days-]hours:minutes:seconds``, in seconds; None for UNLIMITED."""
    if text in {"UNLIMITED", "Partition_Limit", "NONE"}:
        return None
    days, _, clock = text.rpartition("-")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return int(days or 0) * 86_400 + hours * 3_600 + minutes * 60 + seconds


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _present(text: str | None) -> str | None:
    return None if text in {None, "", "(null)", "N/A"} else text


def _comment(tail: str) -> str | None:
    found = _COMMENT.search(" " + tail)
    return _present(found.group(1).strip()) if found else None
