"""What operators order at run time: pause, resume, drain, weight; by node, partition and job.

The messages on the control socket: one request, one answer, both JSON of a typed struct with bounds.

The orders in force, and their effect on a job. Pure.

* *Pause* (all, node, partition, job): a job there is not suspended, and suspends no other; it runs along with
  the jobs that share its cores. A job of several nodes is paused if one of them is, for it must not run here
  and be suspended there.
* *Drain* (all, node, partition): the same for jobs that start after the order. Those that took turns go on
  until they end.
* *Weight* (partition, job): in the place of what the configuration says; a job's before its partition's.
* *Own weight* (job): what the job's owner asks for. The lesser of the two counts, so he can only stand back.
* *Resume* takes pause and drain of the very target back. What another order says still holds.

Pause and drain of one target replace each other. An order about a job ends with the job; all others stand
until they are taken back, over restarts of the controller.

Whether a request is allowed: who asks, for what, and whether there is such a thing. Pure.

Root and the daemon's own user may order anything. The owner of a job may give it less weight, and take that
back. No other user may do anything. The kernel says who asks (``SO_PEERCRED``), not what is claimed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import ceil
from typing import Annotated, Literal

import msgspec

from foundation.errors import UsageError
from foundation.slurm import SlurmJob

MOST_TARGETS = 4_096
MOST_BYTES = 192 << 10
"""Longest message; a Unix socket of Linux takes a little more in one piece."""
MOST_SHOWN = 200

Verb = Literal["pause", "drain", "resume", "weight"]
Kind = Literal["all", "node", "partition", "job"]
What = Literal["pause", "drain", "weight", "own weight"]
"""What an order in force says; ``own weight`` is one by which a job's owner asks for less."""
Weight = Annotated[float, msgspec.Meta(ge=1 / 1024, le=1024)]
_LONGEST_NAME = 255
_NAME = r"[A-Za-z0-9_.+$@-]*"
Name = Annotated[str, msgspec.Meta(max_length=_LONGEST_NAME, pattern=rf"\A{_NAME}\Z")]
JobName = r"[0-9]{1,10}(_[0-9]{1,10})?"


class OrderTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True, order=True):
    """What an order is about.

    ``name`` is a node's or partition's name, a job's raw id or ``ARRAY_TASK``; empty for ``all``.
    """

    kind: Kind
    name: Name = ""

    def __str__(self) -> str:
        return "everything" if self.kind == "all" else f"{self.kind} {self.name}"


class OrderRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a user orders. ``weight`` belongs to the verb ``weight``; None takes the order back."""

    version: Literal[1] = 1
    verb: Verb
    targets: Annotated[tuple[OrderTarget, ...], msgspec.Meta(min_length=1, max_length=MOST_TARGETS)]
    weight: Weight | None = None


class ActiveOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An order in force.

    Parameters
    ----------
    what
        ``own weight`` is one by which a job's owner asks for less.
    weight
        Of a weight, else None.
    since_s
        Wall clock: jobs that start later are kept out by a drain.
    uid, by
        Who gave it.
    """

    what: What
    target: OrderTarget
    weight: Weight | None = None
    since_s: float
    uid: int
    by: Annotated[str, msgspec.Meta(max_length=64)]


class OrderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request: ``done`` or not, in one line; the newest orders on its targets."""

    done: bool
    text: str
    orders: tuple[ActiveOrder, ...] = ()


_request = msgspec.json.Decoder(OrderRequest)
_answer_decoder = msgspec.json.Decoder(OrderAnswer)


def is_name(text: str) -> bool:
    """Return whether a node, a partition or a job can be called so."""
    return 0 < len(text) <= _LONGEST_NAME and re.fullmatch(_NAME, text) is not None


def read_request(body: bytes) -> OrderRequest:
    """Decode a request.

    Raises
    ------
    UsageError
        It is none.
    """
    if len(body) > MOST_BYTES:
        raise UsageError(f"a request is {MOST_BYTES} bytes long at most")
    try:
        return _request.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"no request of this version: {error}") from error


def read_answer(body: bytes) -> OrderAnswer:
    """Decode an answer; raises as ``read_request``."""
    try:
        return _answer_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the answer of gangd is none of this version: {error}") from error


MOST_ORDERS = 20_000
STOPS = frozenset({"pause", "drain"})


@dataclass(frozen=True, slots=True)
class JobOrders:
    """What the orders say of a job: which lets it run (None: it may be held), its weight (None: as ruled)."""

    free: ActiveOrder | None = None
    weight: float | None = None
    own_weight: float | None = None

    def weigh(self, ruled: float) -> float:
        """Return the job's weight, where the configuration says ``ruled``."""
        weight = ruled if self.weight is None else self.weight
        return weight if self.own_weight is None else min(weight, self.own_weight)


_NOTHING = JobOrders()


@dataclass(frozen=True, slots=True)
class OrdersSurvey:
    """The orders, and what becomes of the jobs that hold cores.

    Attributes
    ----------
    free
        Why a job is let run, by id.
    stopped, left
        By target: how many jobs its order lets run; how many go on that were there before a drain.
    """

    orders: tuple[ActiveOrder, ...] = ()
    free: Mapping[int, str] = field(default_factory=dict)
    stopped: Mapping[OrderTarget, int] = field(default_factory=dict)
    left: Mapping[OrderTarget, int] = field(default_factory=dict)


class OrderBook:
    """The orders by what they are about."""

    def __init__(self, orders: Iterable[ActiveOrder] = ()) -> None:
        self._orders: dict[tuple[str, OrderTarget], ActiveOrder] = {}
        for order in orders:
            self._orders[_slot(order), order.target] = order

    def __len__(self) -> int:
        return len(self._orders)

    @property
    def is_about_jobs(self) -> bool:
        """Whether an order is about a single job."""
        return any(order.target.kind == "job" for order in self._orders.values())

    @property
    def orders(self) -> tuple[ActiveOrder, ...]:
        """All of them, the oldest first."""
        return tuple(sorted(self._orders.values(), key=lambda one: (one.since_s, one.target)))

    def apply(self, request: OrderRequest, uid: int, by: str, now_s: float, *, owner: bool = False) -> str:
        """Enter a request that is allowed, and say in a line what is so now.

        An order already in force keeps its age: a drain that is ordered again keeps out who started since.

        Parameters
        ----------
        owner
            Whether it comes from the owner of the jobs, who may ask for less weight and no more.
        """
        slot = ("own weight" if owner else "weight") if request.verb == "weight" else "stop"
        wanted = _wanted(request, slot)
        changed: list[OrderTarget] = []
        for target in request.targets:
            current = self._orders.get((slot, target))
            if (None if current is None else (current.what, current.weight)) == wanted:
                continue
            changed.append(target)
            if wanted is None:
                del self._orders[slot, target]
            else:
                what, weight = wanted
                order = ActiveOrder(what=what, target=target, weight=weight, since_s=now_s, uid=uid, by=by)
                self._orders[_slot(order), order.target] = order
        return _answer(request, changed, owner=owner)

    def on(self, targets: Iterable[OrderTarget]) -> list[ActiveOrder]:
        """List the orders on these targets."""
        slots = ("stop", "weight", "own weight")
        return [
            found
            for target in targets
            for slot in slots
            if (found := self._orders.get((slot, target))) is not None
        ]

    def forget(self, jobs: Mapping[str, SlurmJob]) -> list[ActiveOrder]:
        """Drop the orders about jobs that are not among these names; returns them."""
        gone = [
            order
            for order in self._orders.values()
            if order.target.kind == "job" and order.target.name not in jobs
        ]
        for order in gone:
            del self._orders[_slot(order), order.target]
        return gone

    def standing(self, job: SlurmJob) -> JobOrders:
        """Return what the orders say of a job."""
        if not self._orders:
            return _NOTHING
        names = [OrderTarget("job", name) for name in names_of(job)]
        partition, places = OrderTarget("partition", job.partition), places_of(job)
        weights = [self._weight("weight", target) for target in (*names, partition)]
        owns = [self._weight("own weight", target) for target in names]
        return JobOrders(
            free=next((order for target in places if (order := self._stopping(target, job))), None),
            weight=next((weight for weight in weights if weight is not None), None),
            own_weight=min((weight for weight in owns if weight is not None), default=None),
        )

    def survey(self, jobs: Iterable[SlurmJob]) -> OrdersSurvey:
        """Look what becomes of these jobs."""
        if not self._orders:
            return OrdersSurvey()
        free: dict[int, str] = {}
        stopped: Counter[OrderTarget] = Counter()
        left: Counter[OrderTarget] = Counter()
        drained = [order.target for order in self._orders.values() if order.what == "drain"]
        for job in jobs:
            if not job.state.holds_cores:  # Slurm remembers the cores of those that are over
                continue
            order = self.standing(job).free
            if order is not None:
                free[job.job_id] = reason_of(order)
                stopped[order.target] += 1
            elif drained:
                left.update(set(places_of(job)).intersection(drained))
        return OrdersSurvey(self.orders, free, stopped, left)

    def _stopping(self, target: OrderTarget, job: SlurmJob) -> ActiveOrder | None:
        order = self._orders.get(("stop", target))
        if order is None or order.what == "pause":
            return order
        later = job.start_time is not None and job.start_time >= ceil(order.since_s)
        return order if later else None

    def _weight(self, what: str, target: OrderTarget) -> float | None:
        order = self._orders.get((what, target))
        return None if order is None else order.weight


def names_of(job: SlurmJob) -> tuple[str, ...]:
    """Return by which names a job is spoken of, the nearest first: itself, its array, its leader."""
    names = [str(job.job_id)]
    if job.array_job_id is not None:
        if job.array_task_id is not None:
            names.append(f"{job.array_job_id}_{job.array_task_id}")
        names.append(str(job.array_job_id))
    if job.het_job_id is not None:
        names.append(str(job.het_job_id))
    return tuple(dict.fromkeys(names))


def places_of(job: SlurmJob) -> list[OrderTarget]:
    """Return everything by which a job can be stopped, the nearest first."""
    names = [OrderTarget("job", name) for name in names_of(job)]
    nodes = [OrderTarget("node", node) for node in job.nodes]
    return [*names, OrderTarget("partition", job.partition), *nodes, OrderTarget("all")]


def reason_of(order: ActiveOrder) -> str:
    """Return why a job is let run by an order."""
    return f"{order.target} is {'paused' if order.what == 'pause' else 'drained'}"


def by_name(jobs: Iterable[SlurmJob]) -> dict[str, SlurmJob]:
    """Return jobs by all of their names; those that are over have none."""
    return {name: job for job in jobs if not job.state.is_over for name in names_of(job)}


def _slot(order: ActiveOrder) -> str:
    return "stop" if order.what in STOPS else order.what


def _wanted(request: OrderRequest, slot: str) -> tuple[What, float | None] | None:
    """Return what is to stand in a slot: its kind and weight; None for nothing."""
    if request.verb == "weight":
        what: What = "own weight" if slot == "own weight" else "weight"
        return None if request.weight is None else (what, request.weight)
    return None if request.verb == "resume" else (request.verb, None)


_DONE: dict[str, str] = {
    "pause": "paused: everything runs there",
    "drain": "drained: jobs that start from now on take no turns there",
    "resume": "resumed",
}
_IDLE: dict[str, str] = {
    "pause": "paused already, nothing changes",
    "drain": "drained already, nothing changes",
    "resume": "not paused or drained by name, nothing changes",
}


def _answer(request: OrderRequest, changed: Sequence[OrderTarget], *, owner: bool) -> str:
    """Say of which targets something changed, and of which nothing did."""
    weight = "as the configuration says" if request.weight is None else f"{request.weight:g}"
    most = " at most" if owner and request.weight is not None else ""
    done = _DONE.get(request.verb, f"weight is {weight}{most}")
    idle = _IDLE.get(
        request.verb,
        "no weight was ordered there, nothing changes"
        if request.weight is None
        else f"weight was {weight}{most} already, nothing changes",
    )
    known = frozenset(changed)
    rest = [target for target in request.targets if target not in known]
    return "; ".join(f"{_named(some)}: {what}" for some, what in ((changed, done), (rest, idle)) if some)


def _named(targets: Sequence[OrderTarget]) -> str:
    more = f" and {len(targets) - 8} more" if len(targets) > 8 else ""
    return ", ".join(map(str, targets[:8])) + more


KINDS: dict[str, tuple[Kind, ...]] = {
    "pause": ("all", "node", "partition", "job"),
    "resume": ("all", "node", "partition", "job"),
    "drain": ("all", "node", "partition"),
    "weight": ("partition", "job"),
}
"""What each verb can be about."""


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
