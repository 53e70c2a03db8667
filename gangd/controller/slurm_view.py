"""From what Slurm says to what the core wants to know, and back: marks on jobs that share cores.

From what Slurm says to what the core wants to know: gangs, cores in numbers, weights, opt-outs, ends.

How late a job may end (``latest_end``) is for the sake of reservations: maintenance, and nodes that users
wait for. Slurm lets an operator move the end of a running job to any instant, into a reservation too, and
then starts nothing there until the job is over. So an end that is moved stops where the first reservation of
one of the job's nodes begins. A job that runs in a reservation may use that one up.

Marks jobs that share cores in Slurm: each once, few at a time. Pure.

A job waits here from when it begins to share until Slurm has been looked at again. It is marked if it runs
then and the field is empty; else it is left as it is, for good. Ten thousand jobs that begin at
once are 50 updates every five seconds for slurmctld, no flood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from foundation.slurm import JobSnapshot, Reservation, SlurmJob, SlurmNode
from foundation.slurm import SlurmJobState as SlurmState
from foundation.slurm.slurm_client import MarkField
from gangd.controller.job_policy import Policy, Seat, Seats
from gangd.controller.orders import OrderBook
from gangd.core.cores import CoreMap, InvalidEvent
from gangd.core.scheduler_events import GangJobState, HoldMode, JobView

STATES = {
    SlurmState.RUNNING: GangJobState.RUNNING,
    SlurmState.CONFIGURING: GangJobState.RUNNING,
    SlurmState.RESIZING: GangJobState.RUNNING,
    SlurmState.SIGNALING: GangJobState.RUNNING,
    SlurmState.SUSPENDED: GangJobState.SUSPENDED,
    SlurmState.STOPPED: GangJobState.RUNNING,
    SlurmState.COMPLETING: GangJobState.TERMINATING,
    SlurmState.STAGE_OUT: GangJobState.TERMINATING,
}


class ClusterView:
    """Makes ``JobView``s, the same object again while nothing changed.

    Attributes
    ----------
    book
        What operators ordered; call ``forget_views`` after a change.
    seats
        Of jobs that must not run at the same time.
    unusable
        Jobs of the last call that run on nodes that are not known, or on no cores that Slurm tells of.
    refused
        User and job of opt-outs that were refused since this was emptied; of each user the latest job.
    """

    def __init__(self, cores: CoreMap, policy: Policy) -> None:
        self.policy = policy
        self.unusable: tuple[int, ...] = ()
        self.refused: dict[str, int] = {}
        self._cores = cores
        self._views: dict[int, tuple[SlurmJob | None, JobView]] = {}
        self._number: int | None = None
        self._unread = False
        self._reserved: tuple[Reservation, ...] = ()
        self.seats = Seats()
        self.seats.set_rule(policy.pairing)
        self._seated: Mapping[int, Seat] = {}
        self.book = OrderBook()

    def know_nodes(self, nodes: Iterable[SlurmNode]) -> None:
        """Make nodes known; if one has more cores than before, its jobs are numbered anew."""
        renumbered = [node.name for node in nodes if node.cores and self._cores.add(node.name, node.cores)]
        if renumbered:
            self._views.clear()
        if renumbered or self.unusable:  # what could not be placed may be now
            self._number = None

    def know_reservations(self, reservations: Sequence[Reservation]) -> None:
        """Make reservations known: ends of jobs don't move into them."""
        if tuple(reservations) != self._reserved:
            self._reserved = tuple(reservations)
            self.forget_views()

    def set_policy(self, policy: Policy) -> None:
        """Apply another policy from the next call on."""
        if policy.pairing != self.policy.pairing:
            self.seats.set_rule(policy.pairing)
        self.policy = policy
        self.forget_views()

    def forget_views(self) -> None:
        """Judge every job anew in the next call."""
        self._views = {key: (None, view) for key, (_, view) in self._views.items()}
        self._number = None

    def user_of(self, key: int) -> str | None:
        """Return the user of a job of the last call; None if that is not known."""
        job, _ = self._views.get(key, (None, None))
        return None if job is None else job.user

    def changes(self, snapshot: JobSnapshot) -> tuple[tuple[JobView, ...], tuple[int, ...]] | None:
        """Return the views of jobs that are not as they were, and the jobs that are gone.

        The cost is that of what changed. None where all jobs must be looked at: the snapshot does not say how
        it differs from the one before, a job cannot be read, or every job is to be judged anew.
        """
        difference = snapshot.difference
        whole = bool(snapshot.unreadable) or self._unread or self.policy.pairing.is_active
        if difference is None or difference.since != self._number or whole:
            return None
        self._number = difference.number
        views: list[JobView] = []
        gone: list[int] = []
        unusable = set(self.unusable)
        for job in difference.changed:
            view = self._usable(job, unusable)
            if view is not None:
                self._views[job.job_id] = (job, view)
                views.append(view)
            elif self._views.pop(job.job_id, None) is not None:
                gone.append(job.job_id)
        for key in difference.gone:
            unusable.discard(key)
            if self._views.pop(key, None) is not None:
                gone.append(key)
        self.unusable = tuple(sorted(unusable))
        return tuple(views), tuple(gone)

    def _usable(self, job: SlurmJob, unusable: set[int]) -> JobView | None:
        """Return the view of a job that holds cores that are known; notes one that runs on others."""
        unusable.discard(job.job_id)
        if job.state in STATES and job.cores:
            try:
                return self._view(job)
            except InvalidEvent:
                unusable.add(job.job_id)
        elif job.state is SlurmState.RUNNING:
            unusable.add(job.job_id)
        return None

    def views(self, snapshot: JobSnapshot) -> tuple[JobView, ...]:
        """Return the views of the jobs that hold cores.

        A job that was known and cannot be read any more keeps what it was known for, and is not held: it may
        have ended, moved or begun anew.
        """
        views: dict[int, tuple[SlurmJob | None, JobView]] = {}
        unusable = []
        before, self._seated = (
            self._seated,
            self.seats.of(job for job in snapshot.jobs if job.state in STATES and job.cores),
        )
        for job in snapshot.jobs:
            if job.state not in STATES or not job.cores:
                if job.state is SlurmState.RUNNING:
                    unusable.append(job.job_id)
                continue
            known = self._views.get(job.job_id)
            same_seats = before.get(job.job_id) == self._seated.get(job.job_id)
            if known is not None and same_seats and (known[0] is job or known[0] == job):
                views[job.job_id] = known
                continue
            try:
                views[job.job_id] = (job, self._view(job))
            except InvalidEvent:
                unusable.append(job.job_id)
        views |= {key: self._unreadable(key) for key in self._views if snapshot.is_unreadable(key)}
        self._views = views
        self._unread = bool(snapshot.unreadable)
        self._number = None if snapshot.difference is None else snapshot.difference.number
        self.unusable = tuple(unusable)
        return tuple([view for _, view in views.values()])

    def _unreadable(self, job_id: int) -> tuple[None, JobView]:
        view = self._views[job_id][1]
        return None, view if view.opt_out else replace(view, opt_out=True)

    def _view(self, job: SlurmJob) -> JobView:
        standing = self.book.standing(job)
        limited = job.time_limit_s is not None and job.end_time is not None
        if self.policy.refuses(job):
            self.refused[job.user or "unknown"] = job.job_id
        seats = self._seated.get(job.job_id, {})
        for node in seats:
            self._cores.add_seats(node, self.seats.most(node))
        return JobView(
            job=job.job_id,
            gang=job.het_job_id if job.het_job_id is not None else job.job_id,
            cores=self._cores.pack({held.node: held.cores for held in job.cores}, seats),
            state=STATES[job.state],
            start_s=float(job.start_time or 0),
            end_s=float(job.end_time) if limited and job.end_time is not None else None,
            latest_s=latest_end(job, self._reserved),
            weight=standing.weigh(self.policy.weight(job)),
            # A job that must not run together with another may not use what the other leaves idle: that is
            # whole cores.
            hold=HoldMode.FREEZE if seats else self.policy.way(job),
            # `scancel --signal=STOP` reaches some steps only: ours to thaw and to leave alone, all of them.
            opt_out=(
                standing.free is not None or self.policy.opts_out(job) or job.state is SlurmState.STOPPED
            ),
            quantum_ns=self.policy.quantum_ns(job),
            may_freeze=self.policy.tunes(job),
            memory_kib=max((held.memory_mib or 0 for held in job.cores), default=0) * 1024 or None,
        )


def latest_end(job: SlurmJob, reservations: Iterable[Reservation]) -> float | None:
    """Return the wall-clock instant beyond which a job's end must not be moved, seconds; None for none."""
    nodes = frozenset(job.nodes)
    bounds = [
        one.end_s if one.name == job.reservation else one.start_s
        for one in reservations
        if one.name == job.reservation or nodes & one.nodes
    ]
    return float(min(bounds)) if bounds else None


AT_ONCE = 50
"""Jobs marked by one command, some 0.2 s of it."""
EVERY_S = 5.0
MOST_WAITING = 200_000
DENIED = "denied"


class Marks:
    """The jobs that wait.

    Attributes
    ----------
    where
        The field that is written; None: no job is marked.
    """

    def __init__(self, where: MarkField | None = None) -> None:
        self.where = where
        self._waiting: dict[int, None] = {}
        self._done: dict[int, None] = {}
        self._next_s = float("-inf")

    def set_field(self, where: MarkField | None) -> None:
        """Write in another field from now on, or again in one that Slurm denied."""
        self.where = where
        if where is None:
            self._waiting.clear()

    def add(self, jobs: Iterable[int]) -> None:
        """Note jobs that begin to share."""
        if self.where is not None and len(self._waiting) < MOST_WAITING:
            self._waiting.update((job, None) for job in jobs if job not in self._done)

    def take(self, jobs: Mapping[int, SlurmJob], now_s: float) -> list[int]:
        """Take those that are marked now, by what Slurm has just said of jobs that hold cores."""
        where = self.where
        if where is None or not self._waiting or now_s < self._next_s:
            return []
        self._next_s = now_s + EVERY_S
        taken: list[int] = []
        for number in list(self._waiting):
            if len(taken) >= AT_ONCE:
                break
            del self._waiting[number]
            job = jobs.get(number)
            if job is not None and job.state in STATES and where.is_empty(job):
                taken.append(number)
                self._done[number] = None
        while len(self._done) > MOST_WAITING:
            del self._done[next(iter(self._done))]
        return taken

    def refused(self, why: Iterable[str]) -> bool:
        """Note what Slurm said of jobs that it did not mark; True if it lets us mark none."""
        if not any(DENIED in text for text in why):
            return False
        self.set_field(None)
        return True
