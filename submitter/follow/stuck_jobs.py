"""Jobs that can never start: which of Slurm's reasons pass, and how long a job waits for the others.

Pure. The reasons are those of Slurm 22.05 (squeue(1), JOB REASON CODES; ``job_reason_string`` and the texts
of ``state_desc`` in its source), compared without regard to case, with spaces or underscores.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from foundation.slurm import SlurmJob, SlurmJobState, SlurmNode
from foundation.units import counted, verb
from submitter.plan import Timing

# A reason that Slurm gives for a moment, before it has looked at a job, is none.
_NOTABLE_S = 5.0


class Hope(Enum):
    """What a waiting job may hope for."""

    PASSES = "its reason passes by itself"
    NODES = "it starts when enough nodes are up"
    OPERATOR = "an operator must act"
    NEVER = "nothing but another job would do"


# The job, as it is, breaks a limit or a rule.
_NEVER = (
    "dependencyneversatisfied",
    "badconstraints",
    "invalidaccount",
    "invalidqos",
    "partitiontimelimit",
    "partitionnodelimit",
    "accountnotallowed",
    "qosnotallowed",
    "reservationdeleted",
)
# A limit on one job or one node of it; limits of groups and users pass when other jobs end.
_JOBS_OWN_LIMIT = re.compile(
    r"(?:assoc|qos)max\w*per(?:job|node)(?:limit)?|(?:assoc|qos)maxwall\w*|(?:assoc|qos)min\w+|maxmemperlimit"
)
_OPERATOR = (
    "jobheldadmin",
    "jobhelduser",
    "jobholdmaxrequeue",
    "partitiondown",
    "partitioninactive",
    "job requeued in held state",
    "launch failed requeued held",
    "systemfailure",
    "joblaunchfailure",
    "association",
    "qosusagethreshold",
    "qostimelimit",
    "qosresourcelimit",
)
_NODES = ("reqnodenotavail, unavailablenodes", "nodes required for job are down", "nodedown")
# These wait for a clock, or for something beyond this cluster, even where nothing runs.
_PATIENT = ("begintime", "reservation", "licenses", "dependency", "prolog", "cleaning", "jobarraytasklimit")


def hope_of(job: SlurmJob) -> Hope:
    """Return what a job in the queue may hope for."""
    if job.state in {SlurmJobState.REQUEUE_HOLD, SlurmJobState.SPECIAL_EXIT, SlurmJobState.RESV_DEL_HOLD}:
        return Hope.OPERATOR
    reason = _plain(job.reason)
    if reason.startswith(_NEVER) or _JOBS_OWN_LIMIT.fullmatch(reason):
        return Hope.NEVER
    if reason.startswith(_OPERATOR):
        return Hope.OPERATOR
    return Hope.NODES if reason.startswith(_NODES) else Hope.PASSES


@dataclass(frozen=True, slots=True)
class Blocked:
    """A job that does not start: why, for how long Slurm has said so, and whether that is long enough."""

    job: SlurmJob
    reason: str
    waited_s: float
    is_hopeless: bool

    @property
    def is_notable(self) -> bool:
        """Whether it has lasted long enough to be reported."""
        return self.is_hopeless or self.waited_s >= _NOTABLE_S


class StuckJobs:
    """Remembers for how long Slurm has given each job a reason that does not pass.

    Parameters
    ----------
    timing
        How long is long enough.
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._waited: dict[int, float] = {}

    def look(
        self,
        waiting: Mapping[int, SlurmJob],
        passed_s: float,
        *,
        is_idle: bool,
        up_nodes: Mapping[str, Collection[str]] | None,
    ) -> dict[int, Blocked]:
        """Return the jobs that are blocked, by trace job.

        Parameters
        ----------
        waiting
            The jobs in the queue, by trace job.
        passed_s
            Seconds since the last look that Slurm answered.
        is_idle
            Whether no job at all runs on the cluster.
        up_nodes
            The nodes of each partition that take jobs; None where that was not asked.
        """
        blocked: dict[int, Blocked] = {}
        waited: dict[int, float] = {}
        for key, job in waiting.items():
            reason, most_s = self._reason(job, is_idle=is_idle, up_nodes=up_nodes)
            if reason is None:
                continue
            waited[key] = self._waited.get(key, 0.0) + (passed_s if key in self._waited else 0.0)
            blocked[key] = Blocked(job, reason, waited[key], waited[key] >= most_s)
        self._waited = waited
        return blocked

    def _reason(
        self, job: SlurmJob, *, is_idle: bool, up_nodes: Mapping[str, Collection[str]] | None
    ) -> tuple[str | None, float]:
        hope, patience_s = hope_of(job), self._timing.patience_s
        if hope is Hope.NEVER:
            return job.reason, min(self._timing.never_s, patience_s)
        if hope is Hope.OPERATOR:
            return job.reason, patience_s
        if hope is Hope.NODES and up_nodes is not None:
            up = len(up_nodes.get(job.partition, ()))
            if up < job.num_nodes:
                take = f"{counted(up, 'node')} {verb(up, 'takes', 'take')} jobs"
                return f"{job.reason} ({take}, it needs {job.num_nodes})", patience_s
        if is_idle and not _plain(job.reason).startswith(_PATIENT):
            return f"{job.reason} although no job runs", patience_s
        return None, patience_s


def nodes_up(nodes: Collection[SlurmNode], partitions: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Return the nodes of each partition that take jobs."""
    up = {node.name for node in nodes if node.is_up}
    return {name: [node for node in members if node in up] for name, members in partitions.items()}


def _plain(reason: str) -> str:
    return " ".join(reason.replace("_", " ").split()).strip("()").lower()
