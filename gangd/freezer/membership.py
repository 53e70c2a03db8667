"""Which processes belong to which job step, when no cgroup says so: pure, from a table of processes.

A process belongs to the step of

1. the nearest slurmstepd among its ancestors;
2. else the session that a member leads or led;
3. else what it belonged to when it was last seen (it may have been orphaned since);
4. else what its environment says (``SLURM_JOB_ID``, ``SLURM_STEP_ID``), if it runs on this node as the
   user who owns that step's tasks: a double fork into a session of its own ends here;
5. else the job of its user's in whose cgroup it is: one that Slurm made, for accounts or limits, or the
   agent itself. So a process is found that has left tree and session, and cleared its environment.

What none of these finds, is of a user with jobs here and began as tasks do (``Origin.as_tasks``; an orphan,
in no login session), is a stray of that user's oldest job (``STRAY``). That is likely and not certain.

What belongs to a job without a slurmstepd here was left behind (``LEFT``): the job has ended, or is between
two steps.

slurmstepd and Slurm's other daemons are never members, nor are init and the agent's own processes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gangd.freezer.holder import StepKey
from gangd.freezer.procfs import WORK, ProcStat
from gangd.freezer.tree import OF_JOBS

Identity = tuple[int, int]
JOB_VARIABLES = frozenset({b"SLURM_JOB_ID", b"SLURM_STEP_ID", b"SLURMD_NODENAME"})
FIRST_USER = 1000
"""Users below are the system's: they have no strays."""
STRAY = "stray"
"""Step of the strays of a job: never frozen, but the job yields while it has any."""
LEFT = "left"
"""Step of what a job left behind: never frozen, it yields all the time."""
NEVER_FROZEN = frozenset({STRAY, LEFT})
_TITLE = re.compile(r"slurmstepd: \[(\d+)\.([a-z]+|\d+(?:\+\d+)?)(?: stepmgr)?\]")


@dataclass(frozen=True, slots=True)
class MembershipClaim:
    """What the environment and the owner of a process say about it; None where they say nothing."""

    uid: int | None
    node: str | None = None
    key: StepKey | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a process began, by what its user cannot change.

    Attributes
    ----------
    job, step
        In whose cgroup it is; None where none tells.
    as_tasks
        Whether it has the cgroups and the login session of Slurm's daemons here: a task does that Slurm keeps
        in no cgroup of its own, a login does not.
    """

    job: int | None = None
    step: str | None = None
    as_tasks: bool = False


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


def job_of_cgroups(lines: str, node: str) -> tuple[int | None, str | None]:
    """Job and step in whose cgroups a process of ``node`` is, by the lines of ``/proc/PID/cgroup``."""
    for pattern in OF_JOBS:
        for match in pattern.finditer(lines):
            if match["node"] in (None, node) and match["job"] is not None:
                return int(match["job"]), match["step"] or None
    return None, None


def assign(
    table: Mapping[int, ProcStat],
    stepds: Mapping[int, StepKey],
    before: Members,
    claim: Callable[[ProcStat], MembershipClaim],
    node: str,
    spare: frozenset[int],
    origin: Callable[[ProcStat], Origin] = lambda _: Origin(),
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
    origin
        Tells where a process of a job's user began.
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
    earlier = {identity: key for identity, key in before.identities().items() if key.step != STRAY}
    result.sessions = _sessions(result.steps, before.sessions, table)
    result.uids = {
        key: uid for key, stats in result.steps.items() if stats and (uid := claim(stats[0]).uid) is not None
    }
    for key, uid in before.uids.items():
        result.uids.setdefault(key, uid)
    births = _Births(table, claim, origin, frozenset(key.job for key in by_ancestry))
    for key in sorted(result.steps):
        births.keys.setdefault(result.uids.get(key), []).append(key)
    for stat in rest:
        owner = (
            result.sessions.get(stat.session)
            or earlier.get(stat.identity)
            or _claimed(claim(stat), node, result.uids)
            or births.step_of(stat)
        )
        if owner is not None:
            result.steps.setdefault(births.present(owner), []).append(stat)
    for stats in result.steps.values():
        stats.sort(key=lambda stat: (stat.start_ticks, stat.pid))
    result.steps = {key: stats for key, stats in result.steps.items() if stats or key in by_ancestry}
    jobs = {key.job for key in result.steps}
    result.uids = {key: uid for key, uid in result.uids.items() if key.job in jobs}
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


@dataclass(slots=True)
class _Births:
    """Finds steps of processes by where they began.

    Attributes
    ----------
    served
        Jobs with a slurmstepd here.
    keys
        Their steps by user, in order.
    """

    table: Mapping[int, ProcStat]
    claim: Callable[[ProcStat], MembershipClaim]
    origin: Callable[[ProcStat], Origin]
    served: frozenset[int]
    keys: dict[int | None, list[StepKey]] = field(default_factory=dict)
    _orphans: dict[int, bool] = field(default_factory=dict)

    def present(self, owner: StepKey) -> StepKey:
        """Return the step that counts: ``LEFT`` for a job without any, the first if there are some again."""
        if owner.job not in self.served:
            return StepKey(owner.job, LEFT)
        if owner.step != LEFT:
            return owner
        return min(
            (key for keys in self.keys.values() for key in keys if key.job == owner.job), default=owner
        )

    def step_of(self, stat: ProcStat) -> StepKey | None:
        """Return the step of a process: the first of its job where its cgroup tells none."""
        uid = self.claim(stat).uid
        keys = self.keys.get(uid, [])
        if uid is None or not (keys or uid >= FIRST_USER):
            return None
        origin = self.origin(stat)
        if origin.job is not None and origin.job not in self.served:
            return StepKey(origin.job, LEFT)
        if not keys:
            return None
        of_job = [key for key in keys if key.job == origin.job]
        if of_job:
            return next((key for key in of_job if key.step == origin.step), of_job[0])
        others = origin.job is not None  # another user's
        if others or (origin.as_tasks and uid >= FIRST_USER and self._is_orphan(stat, uid)):
            return StepKey(keys[0].job, STRAY)
        return None

    def _is_orphan(self, stat: ProcStat, uid: int) -> bool:
        """Whether init adopted a process, or the topmost of its ancestors that are of the same user.

        Daemons that start processes for users are their parents (sshd, cron, su), or give them a login.
        """
        way, at, known = [], stat, self._orphans
        while at.pid not in known:
            WORK.pause_if_spent()
            known[at.pid] = at.parent == 1
            way.append(at.pid)
            above = self.table.get(at.parent)
            if above is None or above.pid == 1 or self.claim(above).uid != uid:
                break
            at = above
        known.update(dict.fromkeys(way, known[at.pid]))
        return known[stat.pid]
