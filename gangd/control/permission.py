"""Whether a request is allowed: who asks, for what, and whether there is such a thing. Pure.

Root and the daemon's own user may order anything. The owner of a job may give it less weight, and take that
back. No other user may do anything. The kernel says who asks (``SO_PEERCRED``), not what is claimed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from foundation.slurm import SlurmJob
from gangd.control.order_book import KINDS, MOST_ORDERS
from gangd.control.order_requests import JobName, OrderRequest, OrderTarget

_JOB = re.compile(JobName)


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of the socket, as the kernel says."""

    uid: int
    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} (uid {self.uid}, pid {self.pid})"


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What is known when a request comes.

    Attributes
    ----------
    own_uid
        The daemon's user.
    jobs
        Jobs that are not over, by all of their names; None before Slurm answered.
    nodes, partitions
        Those that there are; no partitions where Slurm did not tell.
    standing
        How many orders stand.
    """

    own_uid: int
    jobs: Mapping[str, SlurmJob] | None
    nodes: AbstractSet[str]
    partitions: AbstractSet[str]
    standing: int = 0

    def is_operator(self, peer: Peer) -> bool:
        """Whether a user may order anything."""
        return peer.uid in (0, self.own_uid)


def refusal(request: OrderRequest, peer: Peer, facts: RequestFacts) -> str | None:
    """Return why a request is refused; None if it is allowed."""
    operator = facts.is_operator(peer)
    if not operator and request.verb != "weight":
        return f"only root and the user of gangd may {request.verb}"
    if request.weight is not None and request.verb != "weight":
        return f"{request.verb} takes no weight"
    if facts.standing + len(request.targets) > MOST_ORDERS and request.verb != "resume":
        return f"{facts.standing} orders stand; {MOST_ORDERS} are possible"
    for target in request.targets:
        why = _odd(request, target, facts)
        if why is None and not operator:
            why = _not_his(target, peer, facts)
        if why is not None:
            return why
    return None


def _odd(request: OrderRequest, target: OrderTarget, facts: RequestFacts) -> str | None:
    """Why a verb cannot be about a target, or why there is none of that name."""
    kinds = KINDS[request.verb]
    if target.kind not in kinds:
        if request.verb == "drain" and target.kind == "job":
            return "a job that runs takes turns or is paused: drain keeps new jobs of a node or partition out"
        what = "everything" if target.kind == "all" else f"a {target.kind}"
        return f"{request.verb} is about {' or '.join(kinds)}, not about {what}"
    if (target.kind == "all") != (not target.name):
        return f"{target.kind} {target.name!r}: no name, or one too many"
    undoes = request.verb == "resume" or (request.verb == "weight" and request.weight is None)
    if target.kind == "job":
        if not _JOB.fullmatch(target.name):
            return f"{target.name} is the name of no job: give its number, or ARRAY_TASK"
        if facts.jobs is None:
            return "Slurm has not answered yet: which jobs there are is not known"
        if target.name not in facts.jobs and not undoes:
            return f"Slurm has no job {target.name} that waits or runs"
    elif target.kind == "node" and target.name not in facts.nodes and not undoes:
        return f"Slurm has no node {target.name}"
    elif (
        target.kind == "partition" and not undoes and facts.partitions and target.name not in facts.partitions
    ):
        return (
            f"Slurm has no partition {target.name}; after a change of its configuration reload gangd (SIGHUP)"
        )
    return None


def _not_his(target: OrderTarget, peer: Peer, facts: RequestFacts) -> str | None:
    job = None if facts.jobs is None else facts.jobs.get(target.name)
    if target.kind != "job" or job is None or job.uid != peer.uid:
        return f"only root, the user of gangd, and for less weight the owner of a job, may change {target}"
    return None
