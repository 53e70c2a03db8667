"""The orders in force, and their effect on a job. Pure.

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
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from foundation.slurm import SlurmJob
from gangd.control.order_requests import ActiveOrder, Kind, OrderRequest, OrderTarget, What

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
                self._enter(order)
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

    def _enter(self, order: ActiveOrder) -> None:
        self._orders[_slot(order), order.target] = order


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
