"""Which processes belong to which job step, when no cgroup says so: pure, from a table of processes.

A process belongs to the step of

1. the nearest slurmstepd among its ancestors;
2. else the session that a member leads or led;
3. else what it belonged to when it was last seen (it may have been orphaned since);
4. else what its environment says (``SLURM_JOB_ID``, ``SLURM_STEP_ID``), if it runs on this node as the
   user who owns that step's tasks: a double fork into a session of its own ends here.

slurmstepd and Slurm's other daemons are never members, nor are init and the agent's own processes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gangd.freezer.holder import StepKey
from gangd.freezer.procfs import WORK, ProcStat

Identity = tuple[int, int]
JOB_VARIABLES = frozenset({b"SLURM_JOB_ID", b"SLURM_STEP_ID", b"SLURMD_NODENAME"})
_TITLE = re.compile(r"slurmstepd: \[(\d+)\.([a-z]+|\d+(?:\+\d+)?)(?: stepmgr)?\]")


@dataclass(frozen=True, slots=True)
class MembershipClaim:
    """What the environment and the owner of a process say about it; None where they say nothing."""

    uid: int | None
    node: str | None = None
    key: StepKey | None = None


@dataclass(slots=True)
class Members:
    """Result of ``assign``: processes by step, parents before children, and the sessions they lead or led."""

    steps: dict[StepKey, list[ProcStat]] = field(default_factory=dict)
    sessions: dict[int, StepKey] = field(default_factory=dict)
    uids: dict[StepKey, int] = field(default_factory=dict)

    def identities(self) -> dict[Identity, StepKey]:
        """Step of every member."""
        return {stat.identity: key for key, stats in self.steps.items() for stat in stats}


def step_of_title(title: str) -> StepKey | None:
    """Step that a slurmstepd serves, by its process title (``slurmstepd: [12.batch]``).

    The one that manages its job's steps adds a word (``[12.extern stepmgr]``, Slurm 24.05).
    """
    match = _TITLE.match(title)
    return None if match is None else StepKey(int(match[1]), match[2])


def claim_of(variables: Mapping[bytes, bytes], uid: int | None) -> MembershipClaim:
    """Read a claim from ``JOB_VARIABLES``; the batch script is the step without a number."""
    job, step, node = (
        variables.get(name) for name in (b"SLURM_JOB_ID", b"SLURM_STEP_ID", b"SLURMD_NODENAME")
    )
    key = None
    if job is not None and job.isdigit() and node is not None and (step is None or step.isdigit()):
        key = StepKey(int(job), "batch" if step is None else step.decode())
    return MembershipClaim(uid, None if node is None else node.decode("utf-8", "replace"), key)


def assign(
    table: Mapping[int, ProcStat],
    stepds: Mapping[int, StepKey],
    before: Members,
    claim: Callable[[ProcStat], MembershipClaim],
    node: str,
    spare: frozenset[int],
    *,
    one_node: bool = False,
) -> Members:
    """Assign every living process of ``table`` that belongs to a step of ``node``.

    Parameters
    ----------
    table
        All processes by pid.
    stepds
        Pids of slurmstepd processes and the step each serves.
    before
        The previous result, for rules 2 and 3.
    claim
        Gives a process's environment and owner; called only where a rule needs them.
    node
        Steps of other nodes on this host are left out: the first task that names its node decides.
    spare
        Pids that are never members: Slurm's daemons among them.
    one_node
        Whether no other node of Slurm's is on this host: then a step whose tasks name none is of ``node``.
    """
    above = _steps_above(table, stepds)
    by_ancestry: dict[StepKey, list[ProcStat]] = {key: [] for key in stepds.values()}
    rest: list[ProcStat] = []
    for stat in table.values():
        if stat.pid in spare or stat.pid in stepds or not stat.alive:
            continue
        WORK.pause_if_spent()
        key = above[stat.pid]
        if key is None:
            rest.append(stat)
        else:
            by_ancestry[key].append(stat)
    result = Members()
    for key, stats in by_ancestry.items():
        if key in before.steps or _is_here(stats, claim, node, otherwise=one_node):
            result.steps[key] = stats
    earlier = before.identities()
    result.sessions = _sessions(result.steps, before.sessions, table)
    result.uids = {
        key: uid for key, stats in result.steps.items() if stats and (uid := claim(stats[0]).uid) is not None
    }
    for key, uid in before.uids.items():
        result.uids.setdefault(key, uid)
    for stat in rest:
        owner = (
            result.sessions.get(stat.session)
            or earlier.get(stat.identity)
            or _claimed(claim(stat), node, result.uids)
        )
        if owner is not None:
            result.steps.setdefault(owner, []).append(stat)
    for stats in result.steps.values():
        stats.sort(key=lambda stat: (stat.start_ticks, stat.pid))
    result.steps = {key: stats for key, stats in result.steps.items() if stats or key in by_ancestry}
    return result


def _steps_above(table: Mapping[int, ProcStat], stepds: Mapping[int, StepKey]) -> dict[int, StepKey | None]:
    """Step of the nearest slurmstepd among the ancestors of each process, however far above it is."""
    found: dict[int, StepKey | None] = dict(stepds)
    for pid in table:
        WORK.pause_if_spent()
        way, at = [], pid
        while at not in found:
            found[at] = None  # also ends a circle: parents are read one after the other
            way.append(at)
            stat = table.get(at)
            at = at if stat is None else stat.parent
        found.update(dict.fromkeys(way, found[at]))
    return found


def _is_here(
    stats: list[ProcStat], claim: Callable[[ProcStat], MembershipClaim], node: str, *, otherwise: bool
) -> bool:
    """Whether a step runs on ``node``: a task without the variable proves nothing, one with it decides."""
    for stat in stats:
        name = claim(stat).node
        if name is not None:
            return name == node
    return bool(stats) and otherwise


def _sessions(
    steps: Mapping[StepKey, list[ProcStat]], before: Mapping[int, StepKey], table: Mapping[int, ProcStat]
) -> dict[int, StepKey]:
    """Sessions that a member leads, and earlier ones that still have a process: their number isn't reused."""
    in_use = {stat.session for stat in table.values()}
    kept = {session: key for session, key in before.items() if session in in_use}
    return kept | {
        stat.pid: key for key, stats in steps.items() for stat in stats if stat.session == stat.pid
    }


def _claimed(claim: MembershipClaim, node: str, uids: Mapping[StepKey, int]) -> StepKey | None:
    if claim.key is None or claim.node != node or claim.uid is None:
        return None
    owners = {uid for key, uid in uids.items() if key.job == claim.key.job}
    return claim.key if claim.uid in owners else None
