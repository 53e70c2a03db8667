"""Which processes belong to a cluster: by the kernel's word, and not by what a file says.

A process belongs to a cluster if it is

* a daemon: of the cluster's own user, started with the cluster's mark in its environment, and with a path of
  the cluster's home in its command line (or called ``slurm...``, for those that write a title over it);
* a task: in the cgroup of one of its nodes, which only root can bring about; or of the cluster's own user,
  with the environment that slurmstepd gives to a task on one of its nodes;
* a guardian of one of its agents: of the cluster's own user, with the agent's state file open;
* the child of one that does.

What the process of another user claims in its environment counts for nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deploy.local.layout import Names
from deploy.local.processes import ProcessFacts, all_facts, end, pin, read_facts
from foundation.errors import ClusterError
from foundation.in_memory import live_folder, stand_in

MARK = "OSUB_CLUSTER"
MOST_PINNED = 500
"""Processes that are ended at once; each takes a descriptor, of which a user has 1,024 by default."""
_GUARDIAN = "gangd.guardian.guardian_process"


@dataclass(frozen=True, slots=True)
class Kin:
    """What tells a cluster's processes from all others.

    Attributes
    ----------
    names
        Of the cluster and its nodes.
    folders
        Its home, and the stand-in with the short path.
    ledgers
        Folders in which its agents may keep their state files.
    user
        Whose cluster it is.
    """

    names: Names
    folders: tuple[Path, ...]
    ledgers: tuple[Path, ...]
    user: int


def kin_of(names: Names, home: Path, short: Path) -> Kin:
    """Return what tells the processes of this user's cluster in ``home``."""
    agents = home / "gang" / "agents"
    ledgers = tuple(dict.fromkeys((agents, live_folder(agents), stand_in(agents))))
    return Kin(names, tuple(dict.fromkeys((home, short))), ledgers, os.geteuid())


def is_daemon(facts: ProcessFacts, kin: Kin) -> bool:
    """Whether a process is one that `up` started, or one that slurmd or slurmctld started for itself."""
    if facts.user != kin.user or f"{MARK}={kin.names.cluster}" not in facts.environment:
        return False
    return facts.name.startswith("slurm") or any(_names_one(word, kin.folders) for word in facts.words)


def find_members(facts: Iterable[ProcessFacts], kin: Kin) -> dict[int, ProcessFacts]:
    """Return the processes that belong to a cluster, by pid."""
    known = {one.pid: one for one in facts}
    members = {
        pid: one
        for pid, one in known.items()
        if is_daemon(one, kin) or _is_task(one, kin) or _is_guardian(one, kin)
    }
    grown = True
    while grown:
        children = {
            pid: one
            for pid, one in known.items()
            if pid not in members
            and (parent := members.get(one.parent)) is not None
            and parent.start_ticks <= one.start_ticks  # else its parent has died, and the pid is another's
        }
        members |= children
        grown = bool(children)
    return members


def living_members(kin: Kin) -> dict[int, ProcessFacts]:
    """Return the members that live now.

    Raises
    ------
    ClusterError
        This very process is one, or the child of one: it would end itself.
    """
    _refuse_own(kin)
    return find_members(all_facts(), kin)


def living_daemons(kin: Kin) -> dict[int, ProcessFacts]:
    """Return the daemons that run now, by pid; quick with tens of thousands of tasks. Raises as above."""
    _refuse_own(kin)
    marked = all_facts(variable=f"{MARK}={kin.names.cluster}")
    return {one.pid: one for one in marked if is_daemon(one, kin)}


def _refuse_own(kin: Kin) -> None:
    pid = os.getpid()
    while (one := read_facts(pid)) is not None:
        if find_members([one], kin):
            raise ClusterError(f"this command runs in a job of {kin.names.cluster}: run it outside of it")
        pid = one.parent


def end_all(members: Iterable[ProcessFacts], within_s: float) -> None:
    """End members as ``end`` does, some at a time: a user may have more processes than this one may open."""
    waiting = list(members)
    for first in range(0, len(waiting), MOST_PINNED):
        some = waiting[first : first + MOST_PINNED]
        pinned = (pin(one.pid, one.start_ticks) for one in some)
        end([one for one in pinned if one is not None], within_s)


def _is_task(facts: ProcessFacts, kin: Kin) -> bool:
    nodes = re.escape(kin.names.letters) + "-n[0-9]+"
    if any(
        re.search(rf"/(slurm_{nodes}|gangd_{nodes}_job_[0-9]+|{nodes}_slurmstepd\.scope)(/|$)", path)
        for path in facts.cgroups
    ):
        return True
    return (
        facts.user == kin.user
        and f"SLURM_CLUSTER_NAME={kin.names.cluster}" in facts.environment
        and any(re.fullmatch(f"SLURMD_NODENAME={nodes}", word) for word in facts.environment)
    )


def _is_guardian(facts: ProcessFacts, kin: Kin) -> bool:
    if facts.user != kin.user or not any(_GUARDIAN in word for word in facts.words):
        return False
    return any(facts.opens_below(folder) for folder in kin.ledgers)


def _names_one(word: str, folders: tuple[Path, ...]) -> bool:
    """Whether a word is a path below one of the folders, or an option with one (``--socket=PATH``)."""
    path = word.partition("=")[2] if word.startswith("--") else word
    return path.startswith("/") and any(Path(path).is_relative_to(folder) for folder in folders)
