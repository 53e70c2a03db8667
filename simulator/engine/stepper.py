"""The engine event by event, with plug-ins in plain Python: slower than ``run_events``, never different."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from osub.errors import InputError
from simulator.engine.agenda import present
from simulator.engine.bits import WORD_BITS
from simulator.engine.cluster import Cluster, members, parts_of, running_jobs, words_of
from simulator.engine.loop import ARRIVED, CHANGED, NOTHING, arrive, next_event
from simulator.engine.progress import begin, change_phase, finish, set_speed
from simulator.engine.projection import project
from simulator.engine.state import State
from simulator.job import Job
from simulator.placement.rule import Cores, Placement
from simulator.policies.rule import QueuePolicy
from simulator.sharing.model import SharingModel


class Stepper:
    """One pool, event by event; it is the ``Desk`` of its policy.

    Parameters
    ----------
    state
        The pool at the beginning of the run.
    jobs
        Its jobs, by index.
    policy, placement, sharing
        The plug-ins.
    first_node
        Index of the pool's first node in the system, for the sharing model.
    after_event
        Called after each event and its scheduling pass, and whatever else changes a speed.
    """

    def __init__(
        self,
        state: State,
        jobs: Sequence[Job],
        *,
        policy: QueuePolicy,
        placement: Placement,
        sharing: SharingModel,
        first_node: int = 0,
        after_event: Callable[[Stepper], None] | None = None,
    ) -> None:
        self.state = state
        self.jobs = jobs
        self.cluster = Cluster(state)
        self._policy = policy
        self._placement = placement
        self._sharing = sharing
        self._first_node = first_node
        self._after_event = after_event

    def run(self) -> None:
        """Process every event."""
        while self.step():
            pass

    def step(self) -> bool:
        """Process the next event; return False if there is none."""
        if not self.process_event():
            return False
        self.show()
        return True

    def show(self) -> None:
        """Let whoever wants to look at the state after a change do so."""
        if self._after_event is not None:
            self._after_event(self)

    def process_event(self) -> bool:
        """Process the next event without showing it; return False if there is none."""
        kind = next_event(self.state)
        if kind == NOTHING:
            return False
        self.state.clock[0].events += 1
        if kind == ARRIVED:
            arrive(self.state)
        else:
            job = self.state.lists[0].agenda
            (change_phase if kind == CHANGED else finish)(self.state, job)
            self.set_speeds(job)
        if kind != CHANGED:
            self._policy.schedule(self)
        return True

    @property
    def now_us(self) -> int:
        """See ``Desk``."""
        return self.state.clock[0].now_us

    @property
    def waiting(self) -> list[Job]:
        """See ``Desk``."""
        runs, end = self.state.runs, self.state.rules[0].jobs
        queue = []
        job = runs[end].queue_next
        while job != end:
            queue.append(self.jobs[job])
            job = runs[job].queue_next
        return queue

    @property
    def running(self) -> list[Job]:
        """See ``Desk``."""
        return [self.jobs[job] for job in running_jobs(self.state)]

    def place(self, job: Job) -> Cores | None:
        """See ``Desk``."""
        return self._placement.place(self.cluster, job)

    def start(self, job: Job) -> bool:
        """See ``Desk``."""
        cores = self.place(job)
        if cores is None:
            return False
        self.name_cores(job, cores)
        begin(self.state, job.index)
        self.set_speeds(job.index)
        return True

    def earliest_start_us(self, job: Job, beside: Job | None = None) -> int:
        """See ``Desk``."""
        return project(self, job, beside)

    def fork(self, state: State) -> Stepper:
        """Return a stepper with the same plug-ins on another state."""
        return Stepper(
            state,
            self.jobs,
            policy=self._policy,
            placement=self._placement,
            sharing=self._sharing,
            first_node=self._first_node,
        )

    def name_cores(self, job: Job, cores: Cores) -> None:
        """Write the cores that a placement chose into the parts of ``job``.

        Raises
        ------
        InputError
            They are not what the job asks for, or are not free.
        """
        state = self.state
        if len(cores) != job.nodes:
            raise InputError(
                f"the placement gave job {job.number} {len(cores)} nodes; it asks for {job.nodes}"
            )
        for part, (node, ids) in enumerate(sorted(cores.items()), start=state.jobs[job.index].part_at):
            full = set(members(words_of(state.occupied, node, self.cluster.multiplicity - 1)))
            if len(set(ids)) != job.cores or not set(ids) <= set(range(self.cluster.cores)) - full:
                raise InputError(
                    f"the placement gave job {job.number} the cores {sorted(ids)} of node {node}; "
                    f"it asks for {job.cores} with a free slot"
                )
            state.parts[part].node = node
            for word in range(state.mask.shape[1]):
                state.mask[part, word] = 0
            for core in ids:
                state.mask[part, core // WORD_BITS] |= 1 << core % WORD_BITS

    def set_speeds(self, job: int) -> None:
        """Give a job, if it is busy, and those that feel it the speed that the model gives."""
        state, line = self.state, present(self.state)
        felt = [state.lists[place].affected for place in range(state.clock[0].affected)]
        for other in (*([job] if state.runs[job].busy else []), *felt):
            set_speed(line, other, self.speed(other))

    def speed(self, job: int) -> int:
        """Return the speed of a job's slowest core, in units a microsecond."""
        state = self.state
        slowest: float | Fraction | None = None
        for part in parts_of(state, job):
            node = state.parts[part].node
            busy = {
                other: set(ids) for other, ids in self.cluster.holders(node).items() if state.runs[other].busy
            }
            groups = {
                tuple(sorted(other for other, ids in busy.items() if core in ids and other != job))
                for core in members(words_of(state.mask, part))
            }
            for others in groups:
                speed = self._sharing.core_speed(
                    self.jobs[job], [self.jobs[other] for other in others], node + self._first_node
                )
                slowest = speed if slowest is None else min(slowest, speed)
        return max(1, round((1 if slowest is None else slowest) * self._sharing.scale))
