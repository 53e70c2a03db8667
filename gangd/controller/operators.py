"""Carries out what operators order over the control socket, keeps it over restarts, and logs who did what."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from foundation.errors import OsubError
from foundation.one_line import LONGEST_MESSAGE, one_line
from foundation.slurm import JobSnapshot, SlurmJob
from gangd.controller.orders import (
    MOST_SHOWN,
    STOPS,
    ActiveOrder,
    OrderAnswer,
    OrderBook,
    OrderRequest,
    OrdersSurvey,
    Peer,
    RequestFacts,
    by_name,
    reason_of,
    refusal,
)
from gangd.controller.state_directory import StateDirectory
from gangd.core.cores import CoreMap

log = logging.getLogger("gangd")

MOST_NAMED = 3


class Operators:
    """Judges requests and keeps the book.

    Parameters
    ----------
    keeper
        The state folder: orders are written there before they are confirmed.
    cores
        Which nodes there are.
    partitions
        Which partitions Slurm has; none where that is not known.
    own_uid
        The daemon's user.
    wall_s
        Wall clock.
    changed
        Called when other orders stand than before.

    Attributes
    ----------
    book
        The orders that stand.
    """

    def __init__(
        self,
        keeper: StateDirectory,
        cores: CoreMap,
        partitions: AbstractSet[str],
        own_uid: int,
        wall_s: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self.book = OrderBook(keeper.state.orders)
        self.partitions = partitions
        self._keeper = keeper
        self._cores = cores
        self._own_uid = own_uid
        self._wall_s = wall_s
        self._changed = changed
        self._named: dict[str, SlurmJob] | None = None
        self._seen: JobSnapshot | None = None
        self._surveyed: OrdersSurvey | None = None

    def see(self, snapshot: JobSnapshot) -> None:
        """Take in which jobs there are; orders about jobs that are over end with them."""
        if self._seen is snapshot:
            return
        self._seen, self._surveyed, self._named = snapshot, None, None
        if self.book.is_about_jobs and not snapshot.unreadable:
            for order in self.book.forget(self._jobs or {}):
                log.info("order: %s %s by %s ends with the job", order.what, order.target, order.by)

    @property
    def _jobs(self) -> dict[str, SlurmJob] | None:
        """The jobs by name, once a request comes: there may be many. None before Slurm has answered."""
        if self._named is None and self._seen is not None:
            self._named = by_name(self._seen.jobs)
        return self._named

    def survey(self) -> OrdersSurvey:
        """Say which orders stand and what becomes of the jobs."""
        if self._surveyed is None:
            self._surveyed = self.book.survey(() if self._seen is None else self._seen.jobs)
        return self._surveyed

    def handle(self, request: OrderRequest, peer: Peer) -> OrderAnswer:
        """Carry a request out, or say why not; either is logged with who asked."""
        nodes = frozenset(self._cores)
        facts = RequestFacts(self._own_uid, self._jobs, nodes, self.partitions, len(self.book))
        said = one_line(f"{request.verb} {', '.join(map(str, request.targets))}", LONGEST_MESSAGE)
        if request.weight is not None:
            said += f" = {request.weight:g}"
        why = refusal(request, peer, facts)
        if why is not None:
            log.warning("order: %s: %s: refused: %s", peer, said, why)
            return OrderAnswer(done=False, text=one_line(why))
        owner = not facts.is_operator(peer)
        answer = self.book.apply(request, peer.uid, peer.name, self._wall_s(), owner=owner)
        self._surveyed = None
        self._keeper.state.orders = list(self.book.orders)
        try:
            self._keeper.save()
        except OsubError as error:
            answer += f"; but only until gangd ends, for it cannot be written: {error}"
        log.info("order: %s: %s: done", peer, said)
        self._changed()
        answer += self._still(request)
        orders: Sequence[ActiveOrder] = self.book.on(request.targets)
        return OrderAnswer(done=True, text=answer, orders=tuple(orders[:MOST_SHOWN]))

    def _still(self, request: OrderRequest) -> str:
        """Say what of it all still keeps jobs from being held after a ``resume``."""
        if request.verb != "resume":
            return ""
        for target in request.targets:
            job = None if target.kind != "job" or self._jobs is None else self._jobs.get(target.name)
            free = None if job is None else self.book.standing(job).free
            if free is not None:
                return f"; it is not held all the same, for {reason_of(free)}"
        others = [order for order in self.book.orders if order.what in STOPS]
        if not others:
            return ""
        more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
        return f"; still, {', '.join(map(reason_of, others[:MOST_NAMED]))}{more}"
