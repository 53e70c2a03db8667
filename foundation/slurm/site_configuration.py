"""Slurm's configuration: the file, and what ``scontrol show`` says of nodes, partitions and settings.

Slurm's configuration: whose the file must be, and what of it a RUN keeps.

Slurm's commands load the plugins that a slurm.conf names, so a user who can write it can act as the user who
runs them. A RUN keeps what of it says when jobs start.

Nodes, partitions and configuration from ``scontrol show -o``: texts in which users cannot write.

Operators can, in a node's reason, comment and extra text, line breaks included. So of a key the first value
on a line counts (every key read here is printed before those texts), and a line that has not all of them is
no record.
"""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from foundation.errors import ClusterError
from foundation.one_line import one_line
from foundation.slurm.hosts import expand_hosts
from foundation.slurm.slurm_types import Partition, Reservation, SlurmNode, instant_of
from foundation.trust import behind_links, read_trusted

_SLURM_USER = "slurm"

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


def check_conf(conf: Path) -> None:
    """Make sure that only root, the account ``slurm`` or the caller could have written a slurm.conf.

    Another user who can write it can act as the caller.

    Raises
    ------
    FileNotFoundError
        It is not there.
    ClusterError
        It cannot be read.
    TrustError
        Another user can write it; the message names the user.
    """
    also = _slurm_user()
    try:
        read_trusted(behind_links(conf, also), also=also)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ClusterError(f"cannot read {conf}: {error.strerror}") from error


def _slurm_user() -> frozenset[int]:
    try:
        return frozenset({pwd.getpwnam(_SLURM_USER).pw_uid})
    except KeyError:
        return frozenset()


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


_PAIR = re.compile(r"(?:^| )([A-Za-z]+)=([^ ]*)")
_LIMIT = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{1,9}):([0-9]{1,2}):([0-9]{1,2})")
_REASON = re.compile(r" Reason=(.*?)(?: \[|$)")
_NODE_KEYS = ("NodeName", "CoresPerSocket", "Sockets", "ThreadsPerCore", "State", "RealMemory", "CPUAlloc")
_PARTITION_KEYS = ("PartitionName", "Nodes", "State")


def read_config(text: str) -> dict[str, str]:
    """Return ``scontrol show config`` as a mapping of keys to values."""
    pairs = (line.partition("=") for line in text.split("\n") if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def read_nodes(text: str) -> list[SlurmNode]:
    """Return the nodes in ``scontrol show -o node`` output."""
    found: dict[str, SlurmNode] = {}
    for line in text.split("\n"):
        keys = _first_values(line, "NodeName=")
        if not all(keys.get(key) for key in _NODE_KEYS):
            continue
        sockets, each = _count(keys["Sockets"]), _count(keys["CoresPerSocket"])
        reason = _REASON.search(line)
        node = SlurmNode(
            name=keys["NodeName"],
            states=frozenset(keys["State"].replace("*", "+NOT_RESPONDING").split("+")),
            cores=max(1, sockets * each),
            threads_per_core=max(1, _count(keys["ThreadsPerCore"])),
            memory_mib=_count(keys["RealMemory"]),
            cpus_allocated=_count(keys["CPUAlloc"]),
            features=frozenset(keys.get("ActiveFeatures", "").split(",")) - {"", "(null)", "N/A"},
            reason=reason.group(1) if reason else None,
            address=keys.get("NodeAddr"),
            sockets=max(1, sockets),
            version=keys.get("Version"),
        )
        found.setdefault(node.name, node)
    return list(found.values())


def read_partitions(text: str) -> list[Partition]:
    """Return the partitions in ``scontrol show -o partition`` output."""
    return list(_partitions(text))


def read_reservations(text: str) -> list[Reservation]:
    """Return the reservations in ``scontrol show -o reservation`` output, printed under TZ=UTC.

    One whose times cannot be read is left out; one of no nodes (of licences, say) concerns no job's end.
    """
    found = []
    for line in text.split("\n"):
        keys = _first_values(line, "ReservationName=")
        start_s, end_s = (instant_of(keys.get(key, "")) for key in ("StartTime", "EndTime"))
        nodes = keys.get("Nodes", "(null)")
        if start_s is None or end_s is None or nodes in {"", "(null)"}:
            continue
        found.append(Reservation(keys["ReservationName"], start_s, end_s, frozenset(expand_hosts(nodes))))
    return found


def _partitions(text: str) -> Iterator[Partition]:
    for line in text.split("\n"):
        keys = _first_values(line, "PartitionName=")
        if any(key not in keys for key in _PARTITION_KEYS):
            continue
        kind, _, most = keys.get("OverSubscribe", "NO").partition(":")
        shares = kind in {"FORCE", "YES"}
        yield Partition(
            name=keys["PartitionName"],
            nodes=expand_hosts(keys["Nodes"]),
            multiplicity=max(1, _count(most)) if shares else 1,
            forced=kind == "FORCE",
            is_default=keys.get("Default") == "YES",
            is_up=keys["State"] == "UP",
            preempt_mode=keys.get("PreemptMode", "OFF"),
            most_time_s=_time_s(keys.get("MaxTime", "")),
            most_nodes=_count(keys.get("MaxNodes", "")) or None,
            default_memory=bool(
                _count(keys.get("DefMemPerCPU", "")) or _count(keys.get("DefMemPerNode", ""))
            ),
        )


def _first_values(line: str, begin: str) -> dict[str, str]:
    if not line.startswith(begin):
        return {}
    return dict(reversed(_PAIR.findall(line)))


def _time_s(text: str) -> int | None:
    """Return a time as Slurm prints limits, ``[days-]hours:minutes:seconds``; None for UNLIMITED."""
    found = _LIMIT.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _count(text: str) -> int:
    """Return a whole number; 0 for what is none, and for one that no cluster has."""
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else 0
