"""What a queue policy is to the engine and to a user who writes one, and the events that it receives.

What a queue policy is, to the engine and to a user who writes one.

A policy is an object with a method ``schedule(context)``. It may have a method ``hear(context, event)`` as
well. Built-in policies and a user's have the same ``SchedulerContext`` and so the same power.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

from foundation.errors import OsubError
from simulator.jit.field_records import StateAllocator
from simulator.model.jobs import PoolJobs, SimulatedJob
from simulator.placement import Cores
from simulator.state.engine_state import EngineState


class NodeState(StrEnum):
    """Whether a node takes jobs: ``UP`` yes; ``DRAINED`` none that start now; ``DOWN`` none at all."""

    UP = "up"
    DRAINED = "drained"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class SimulationStarted:
    """The run begins: nothing has arrived yet. The moment to set the first timers."""


@dataclass(frozen=True, slots=True)
class JobArrived:
    """``job`` has come and waits."""

    job: SimulatedJob


@dataclass(frozen=True, slots=True)
class JobEnded:
    """``job`` has done its work and holds nothing any more."""

    job: SimulatedJob


@dataclass(frozen=True, slots=True)
class JobPreempted:
    """``job``, preempted with a warning, has saved its work, holds nothing any more and waits."""

    job: SimulatedJob


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer rings. ``number`` is given when it is set; ``about`` is the job it was set for."""

    number: int
    kind: str
    about: SimulatedJob | None = None


@dataclass(frozen=True, slots=True)
class NodeDown:
    """``node`` has failed; ``lost`` are the jobs that were on it, which wait again or are given up."""

    node: int
    lost: tuple[SimulatedJob, ...]


@dataclass(frozen=True, slots=True)
class NodeUp:
    """``node`` is repaired."""

    node: int


Event: TypeAlias = SimulationStarted | JobArrived | JobEnded | JobPreempted | Timer | NodeDown | NodeUp


class PolicyError(OsubError):
    """A policy did what cannot be, or raised; the message names the policy and the job."""


class Preemption(StrEnum):
    """What becomes of a job's work when it has to go.

    ``KILL``: what it did since its last checkpoint is lost. ``CHECKPOINT``: nothing is lost; with a warning
    it holds its nodes until that has passed. ``SUSPEND``: nothing is lost, but it can go on only on the cores
    that it had, whose memory it keeps.
    """

    KILL = "kill"
    CHECKPOINT = "checkpoint"
    SUSPEND = "suspend"


class SchedulerContext(Protocol):
    """What a policy sees and does.

    An action that cannot be raises ``PolicyError`` and changes nothing; one that merely does not fit
    returns False. Nodes are numbered from 0.
    """

    @property
    def now_us(self) -> int:
        """The present instant."""

    @property
    def waiting(self) -> Sequence[SimulatedJob]:
        """The queue: in order of submission, but for jobs that were put to its front."""

    @property
    def running(self) -> Sequence[SimulatedJob]:
        """The jobs that hold cores, in order of job number."""

    @property
    def suspended(self) -> Sequence[SimulatedJob]:
        """The suspended jobs, in order of job number."""

    @property
    def pool_name(self) -> str:
        """Name of the pool: ``main``, or ``batch`` and ``interactive`` where there are two."""

    @property
    def pools(self) -> Mapping[str, SchedulerContext]:
        """The desks of all pools of the system by name, this one too: one time line, a queue each."""

    @property
    def nodes(self) -> int:
        """How many nodes there are, whatever their state."""

    @property
    def cores(self) -> int:
        """How many cores each node has."""

    @property
    def multiplicity(self) -> int:
        """How many jobs share a core at most."""

    @property
    def keeps_rows(self) -> bool:
        """Whether the placement keeps Slurm's rows, in which running jobs are packed."""

    def node_state(self, node: int) -> NodeState:
        """Return whether a node takes jobs."""

    def lease_of(self, node: int) -> SimulatedJob | None:
        """Return the job that ``node`` is reserved for."""

    def idle_nodes(self, job: SimulatedJob | None = None) -> Sequence[int]:
        """Return the nodes without a job that take any job; with ``job`` its leases are among them."""

    def free_cores(self, node: int) -> int:
        """Return how many cores of ``node`` have a free slot for any job; none if it is not for any job."""

    def free_memory_kib(self, node: int) -> int:
        """Return the memory of ``node`` that no job holds."""

    def held(self, job: SimulatedJob) -> Cores:
        """Return what ``job`` holds, or held last."""

    def remaining_us(self, job: SimulatedJob, nodes: int | None = None) -> int:
        """Return how long ``job`` would go on by its request, alone on its cores and at this size.

        Parameters
        ----------
        job
            A job that runs or waits; one that waits has its set-up before it.
        nodes
            Its size; None: the present one, or that which it asks for.
        """

    def unsaved_us(self, job: SimulatedJob) -> int:
        """Return the run time that would be lost if ``job`` were killed now."""

    def place(self, job: SimulatedJob, nodes: int | None = None, off: Sequence[int] = ()) -> Cores | None:
        """Return the cores that the waiting ``job`` would get now, or None if it does not fit.

        Parameters
        ----------
        job
            The job.
        nodes
            Size of a malleable job; None is the size that it asks for.
        off
            Nodes that it is to keep off.
        """

    def start(
        self, job: SimulatedJob, nodes: int | None = None, on: Cores | None = None, *, lent: bool = False
    ) -> bool:
        """Start the waiting ``job``; return False if it does not fit.

        Its leases end. Parameters: see ``place``, and

        Parameters
        ----------
        on
            Cores of the policy's choice; None leaves it to the placement.
        lent
            Whether ``on`` may have nodes that are reserved for others.
        """

    def resize(
        self, job: SimulatedJob, nodes: int | None = None, on: Cores | None = None, *, cost_us: int = 0
    ) -> bool:
        """Give the running, malleable ``job`` another size, or other nodes; return False if it does not fit.

        More nodes are chosen by the placement; of fewer the lowest are kept. Its work stays the same. With a
        cost it holds its new nodes for so long, and sets up, before it works on.
        """

    def preempt(self, job: SimulatedJob, how: Preemption, *, warning_us: int = 0) -> None:
        """Take the running ``job`` off its nodes; unless it is suspended it waits again, by its submission.

        A warning goes with ``CHECKPOINT``: the job stops at once, leaves when the time has passed, and
        ``JobPreempted`` tells of it.
        """

    def put_first(self, job: SimulatedJob) -> None:
        """Let the waiting ``job`` wait in front of all that were not put there, until it starts."""

    def resume(self, job: SimulatedJob) -> bool:
        """Let the suspended ``job`` go on; return False if its cores are not free."""

    def reserve(self, nodes: Sequence[int], job: SimulatedJob, until_us: int | None = None) -> None:
        """Keep nodes, idle or not, for a job that does not run: others can only be lent them from now on.

        The job need not have arrived. At ``until_us`` the reservation ends; a timer ``expiry`` tells of it.
        """

    def release(self, job: SimulatedJob, nodes: Sequence[int] | None = None) -> None:
        """End the reservation of ``nodes`` for ``job``; None: of all of them."""

    def set_timer(self, at_us: int, kind: str, about: SimulatedJob | None = None) -> Timer:
        """Call ``hear`` with a ``Timer`` at an instant that is not past."""

    def cancel(self, timer: Timer) -> None:
        """Do not let ``timer`` ring, if it has not rung."""

    def drain(self, node: int, *, drained: bool = True) -> None:
        """Let no job start on ``node``, or let jobs start there again; who is on it goes on."""

    def earliest_start_us(
        self,
        job: SimulatedJob,
        started: SimulatedJob | None = None,
        on: Cores | None = None,
        nodes: int | None = None,
    ) -> int:
        """Return when the waiting ``job`` could start if nothing else did.

        Running jobs are projected forward on their requested work, all counted as busy.

        Parameters
        ----------
        job
            The job, usually the queue's head.
        started
            A waiting job that fits now and is assumed to start now.
        on
            The cores on which ``started`` starts; None leaves it to the placement.
        nodes
            Size at which ``job`` would start; None is the size that it asks for.

        Returns
        -------
        int
            The instant; ``FAR_US`` if the job does not fit even on an idle pool, as nodes are now.
        """

    def nodes_at_start(self, job: SimulatedJob) -> Sequence[int]:
        """Return the nodes that suit ``job`` at its earliest start, those with the fewest occupied slots."""

    def running_at_start(self, job: SimulatedJob) -> Sequence[SimulatedJob]:
        """Return the jobs that hold cores now and would still do so at the earliest start of ``job``."""


@runtime_checkable
class QueuePolicy(Protocol):
    """Which jobs start, change and yield."""

    def schedule(self, context: SchedulerContext) -> None:
        """Make one scheduling pass: called after every arrival, end, leave, timer and change of a node."""


@runtime_checkable
class EventListener(Protocol):
    """A policy that receives events."""

    def hear(self, context: SchedulerContext, event: Event) -> None:
        """Take note of an event; a pass follows (none after ``SimulationStarted``)."""


@runtime_checkable
class AlonePolicy(Protocol):
    """A ``PoolPolicy`` whose jobs hold whole nodes, and that draws something by a seed."""

    def seeded(self, seed: int) -> Self:
        """Return the policy for a seed of all that it draws."""


__all__ = [
    "AlonePolicy",
    "Event",
    "EventListener",
    "JobArrived",
    "JobEnded",
    "JobPreempted",
    "NodeDown",
    "NodeState",
    "NodeUp",
    "PolicyError",
    "Preemption",
    "QueuePolicy",
    "SchedulerContext",
    "SimulationStarted",
    "Timer",
]


class Program(NamedTuple):
    """An event loop that is a kernel, and its arguments but for the last: how many events it may process.

    It returns how many there were.
    """

    loop: Callable[..., int]
    arguments: tuple[object, ...]


@runtime_checkable
class KernelPolicy(Protocol):
    """A policy that brings kernels: an event loop that makes its passes."""

    @property
    def keeps_lifecycles(self) -> bool:
        """Whether all its runs have lifecycle tables; else those have that need them."""

    def program(self, make: StateAllocator, state: EngineState, jobs: PoolJobs) -> Program:
        """Return the loop for a pool's jobs, and what it works on."""
