"""From what Slurm says to what the core wants to know: gangs, cores in numbers, weights, opt-outs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from gangd.controller.apart import PairRule, Seat, Seats
from gangd.core import CoreMap, Hold, InvalidEvent, JobState, JobView
from osub.slurm import Job, JobSnapshot, Node
from osub.slurm import JobState as SlurmState

STATES = {
    SlurmState.RUNNING: JobState.RUNNING,
    SlurmState.CONFIGURING: JobState.RUNNING,
    SlurmState.RESIZING: JobState.RUNNING,
    SlurmState.SIGNALING: JobState.RUNNING,
    SlurmState.SUSPENDED: JobState.SUSPENDED,
    SlurmState.STOPPED: JobState.RUNNING,
    SlurmState.COMPLETING: JobState.TERMINATING,
    SlurmState.STAGE_OUT: JobState.TERMINATING,
}


WEIGHT_WORD = "gangd-weight="
HOLD_WORD = "gangd-hold="
LEAST_WEIGHT, MOST_WEIGHT = 1 / 1024, 1024.0


@dataclass(frozen=True, slots=True)
class Policy:
    """What the configuration says of jobs: weights, how they are held, and how a job opts out.

    Attributes
    ----------
    weights
        By partition; 1 for those not named.
    most_job_weight
        Factor on its partition's weight that a job may ask for at most (``gangd-weight=`` in its comment).
    opt_out_comments, opt_out_features
        Words in the comment, and node features asked for, that opt a job out.
    hold, holds
        How jobs are held, and those of a partition.
    job_holds
        What a job may ask for (``gangd-hold=`` in its comment).
    pairing
        Which applications must not run beside each other on a node.
    """

    weights: dict[str, float]
    most_job_weight: float = 1.0
    opt_out_comments: frozenset[str] = frozenset()
    opt_out_features: frozenset[str] = frozenset()
    hold: Hold = Hold.FREEZE
    holds: Mapping[str, Hold] = field(default_factory=dict)
    job_holds: frozenset[Hold] = frozenset()
    pairing: PairRule = field(default_factory=PairRule)

    def way(self, job: Job) -> Hold:
        """Return how a job is held: as it asks, if it may; of two words that it may say, none counts."""
        asked = {hold for hold in self.job_holds if HOLD_WORD + hold.value in _words(job.comment)}
        return asked.pop() if len(asked) == 1 else self.holds.get(job.partition, self.hold)

    def weight(self, job: Job) -> float:
        """Return the weight of a job: its partition's, times what it asks for as far as it may."""
        weight = self.weights.get(job.partition, 1.0)
        asked = [word for word in _words(job.comment) if word.startswith(WEIGHT_WORD)]
        if asked:  # twice the word gets no more than once
            factors = (_factor(word.removeprefix(WEIGHT_WORD)) for word in asked)
            weight *= min(prod(factors), self.most_job_weight)
        return min(max(weight, LEAST_WEIGHT), MOST_WEIGHT)

    def opts_out(self, job: Job) -> bool:
        """Whether a job must not be held."""
        comment = _words(job.comment)
        features = set((job.features or "").replace("&", " ").replace("|", " ").replace(",", " ").split())
        return bool(comment & self.opt_out_comments or features & self.opt_out_features)


class ClusterView:
    """Makes ``JobView``s, the same object again while nothing changed.

    Attributes
    ----------
    unusable
        Jobs of the last call that run on nodes that are not known, or on no cores that Slurm tells of.
    """

    def __init__(self, cores: CoreMap, policy: Policy) -> None:
        self.policy = policy
        self.unusable: tuple[int, ...] = ()
        self._cores = cores
        self._views: dict[int, tuple[Job | None, JobView]] = {}
        self._seats = Seats()
        self._seats.set_rule(policy.pairing)
        self._seated: Mapping[int, Seat] = {}

    def know_nodes(self, nodes: Iterable[Node]) -> None:
        """Make nodes known; if one has more cores than before, its jobs are numbered anew."""
        renumbered = [node.name for node in nodes if node.cores and self._cores.add(node.name, node.cores)]
        if renumbered:
            self._views.clear()

    def set_policy(self, policy: Policy) -> None:
        """Apply another policy from the next call on."""
        if policy.pairing != self.policy.pairing:
            self._seats.set_rule(policy.pairing)
        self.policy = policy
        self._views = {key: (None, view) for key, (_, view) in self._views.items()}

    def views(self, snapshot: JobSnapshot) -> tuple[JobView, ...]:
        """Return the views of the jobs that hold cores.

        A job that was known and cannot be read any more keeps what it was known for, and is not held: it may
        have ended, moved or begun anew.
        """
        views: dict[int, tuple[Job | None, JobView]] = {}
        unusable = []
        before, self._seated = (
            self._seated,
            self._seats.of(job for job in snapshot.jobs if job.state in STATES and job.cores),
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
        views |= {key: self._unread(key) for key in self._views if snapshot.is_unreadable(key)}
        self._views = views
        self.unusable = tuple(unusable)
        return tuple([view for _, view in views.values()])

    def _unread(self, job_id: int) -> tuple[None, JobView]:
        view = self._views[job_id][1]
        return None, view if view.opt_out else replace(view, opt_out=True)

    def _view(self, job: Job) -> JobView:
        limited = job.time_limit_s is not None and job.end_time is not None
        seats = self._seated.get(job.job_id, {})
        for node in seats:
            self._cores.add_seats(node, self._seats.most(node))
        return JobView(
            job=job.job_id,
            gang=job.het_job_id if job.het_job_id is not None else job.job_id,
            cores=self._cores.pack({held.node: held.cores for held in job.cores}, seats),
            state=STATES[job.state],
            start_s=float(job.start_time or 0),
            end_s=float(job.end_time) if limited and job.end_time is not None else None,
            weight=self.policy.weight(job),
            # Who must not run beside another may not go on with what the other leaves: it leaves cores.
            hold=Hold.FREEZE if seats else self.policy.way(job),
            # `scancel --signal=STOP` reaches some steps only: ours to thaw and to leave alone, all of them.
            opt_out=self.policy.opts_out(job) or job.state is SlurmState.STOPPED,
        )


def _words(comment: str | None) -> set[str]:
    return set((comment or "").replace(",", " ").split())


def _factor(text: str) -> float:
    """Return the number that a job asks for; 1 for what is none."""
    try:
        factor = float(text)
    except ValueError:
        return 1.0
    return factor if 0 < factor < float("inf") else 1.0
