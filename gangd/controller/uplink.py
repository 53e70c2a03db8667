"""What agents say, judged: who may speak, of what, what it means for the core, and what is answered.

Pure: no socket; the time is an argument.

A node may speak of the jobs that Slurm has put there, and of no others (``own_words``). Its key is worth what
the node is worth. Its holder can make false reports on the jobs of that node, and on no other: else one
broken node would release jobs, or have them taken for dead, on the whole cluster. A job that no snapshot has
is not foreign: it has begun since, or ended, and nothing follows from what is said of it but that Slurm is
asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial

import msgspec

from gangd.core.cores import CoreMap
from gangd.core.gang import NodePresence
from gangd.core.scheduler_events import (
    AgentJoined,
    AgentLost,
    CpuSample,
    Event,
    JobMemory,
    NodeMemory,
    NodeReport,
    SliceUse,
)
from gangd.core.slice_timing import Timebase
from gangd.core.states import AgentState
from gangd.wire.messages import (
    VERSION,
    AccessRefused,
    AgentFault,
    ControllerIdentity,
    Farewell,
    Hello,
    JobSample,
    Ping,
    Pong,
    ReplayedError,
    ReplyMessage,
    Report,
    ReportedMemory,
    Resend,
    SliceReport,
    UpMessage,
    Welcome,
    WireError,
    common,
    printable,
)

SLICE_SLACK_NS = 1_000_000_000
RESEND_NS = 50_000_000  # agents ask half as often
MOST_FAULT_KINDS = 64
"""Kinds of faults of an agent that are counted by themselves; what comes beyond is counted together."""
OTHER = "other"
COMING_OVER_NS = 1_000_000_000
"""So long after its hello an agent may still report as one of the former controller's."""

Where = Callable[[int], NodePresence]
"""What the node that reports has to do with a job."""


class UnknownAgentError(WireError):
    """It speaks before it said hello to this controller, or another agent of its node said hello since."""

    kind = "unknown_agent"


@dataclass(slots=True)
class AgentInfo:
    """What is known of the agent of a node; kept for ``osub top``."""

    hello: Hello
    seq: int = -1
    offset_ns: int = 0
    rtt_us: int = 0
    skew_us: int | None = None
    freeze_us: int | None = None
    faults: Counter[str] = field(default_factory=Counter)
    leaked_us: int = 0
    resent_ns: int | None = None
    hello_ns: int = 0


class Reaction(msgspec.Struct, frozen=True):
    """Events for the core, answers to the agent, whether it needs its whole plan, and what to alarm.

    ``foreign`` are jobs of other nodes that the agent reported; ``events`` contain nothing about them.
    ``unknown``: it is of a node that Slurm is not known to have. ``faults`` are those that it reported.
    """

    events: tuple[Event, ...] = ()
    replies: tuple[ReplyMessage, ...] = ()
    resend: bool = False
    alarm: str | None = None
    foreign: frozenset[int] = frozenset()
    unknown: bool = False
    faults: tuple[AgentFault, ...] = ()


class Times(msgspec.Struct, frozen=True):
    """What a ``Welcome`` tells."""

    quantum_ns: int
    lease_ns: int
    lookahead: int


class Uplink:
    """The agents that said hello.

    Parameters
    ----------
    place
        What a node has to do with a job.
    is_home
        Whether all of some jobs are on a node: asked first, for it costs less.

    Attributes
    ----------
    agents
        By node.
    faults
        Of all agents together, those that have left included, by kind.
    """

    def __init__(
        self,
        controller: ControllerIdentity,
        cores: CoreMap,
        time: Timebase,
        place: Callable[[str, int], NodePresence],
        is_home: Callable[[str, AbstractSet[int]], bool] = lambda *_: False,
    ) -> None:
        self.controller = controller
        self.agents: dict[str, AgentInfo] = {}
        self.faults: Counter[str] = Counter()
        self._cores = cores
        self._time = time
        self._place = place
        self._is_home = is_home

    def version(self, node: str) -> int:
        """Return the version of the protocol in which to speak to a node."""
        info = self.agents.get(node)
        return VERSION if info is None else common(info.hello.version)

    def on_message(
        self, message: UpMessage, received_ns: int, now_ns: int, times: Times, state: AgentState
    ) -> Reaction:
        """Judge a decoded message.

        Parameters
        ----------
        message
            From ``decode_up``, so that its node is the sender's.
        received_ns, now_ns
            When it came, and now; they differ for a ``Pong`` only.
        times
            What holds here.
        state
            What the core believes of the agent.

        Raises
        ------
        UnknownAgentError
            The sender must say hello first; it hears the controller's announcements and will.
        ReplayedError
            A report came twice, or after a later one.
        """
        match message:
            case Ping():
                return Reaction(
                    replies=(
                        Pong(
                            node=message.node,
                            agent_ns=message.agent_ns,
                            received_ns=received_ns,
                            sent_ns=now_ns,
                        ),
                    )
                )
            case Hello():
                return self._on_hello(message, now_ns, times)
            case Report():
                return self._on_report(message, now_ns, state)
            case Resend():
                return Reaction(resend=self._may_have_plan(self._known(message.node), now_ns))
            case Farewell():
                if self._known(message.node).hello.incarnation != message.incarnation:
                    raise UnknownAgentError(f"an earlier agent of {message.node} leaves")
                del self.agents[message.node]
                if state is AgentState.UNKNOWN:
                    return Reaction()
                reason = f"it leaves: {printable(message.reason)}"
                return Reaction(events=(AgentLost(now_ns, message.node, reason),))

    def _on_hello(self, hello: Hello, now_ns: int, times: Times) -> Reaction:
        if hello.node not in self._cores:
            refused = AccessRefused(node=hello.node, reason=f"Slurm has no node {hello.node}")
            return Reaction(replies=(refused,), unknown=True)
        known = self.agents.get(hello.node)
        alarm = None
        is_another = known is not None and known.hello.incarnation != hello.incarnation
        if known is not None and is_another:
            alarm = f"agent {hello.pid} of {hello.node} takes over from agent {known.hello.pid}"
        if known is None or is_another:
            shown = msgspec.structs.replace(hello, freezer=printable(hello.freezer))
            self.agents[hello.node] = AgentInfo(shown, hello_ns=now_ns)
        welcome = Welcome(
            controller=self.controller,
            node=hello.node,
            now_ns=now_ns,
            quantum_ns=times.quantum_ns,
            lease_ns=times.lease_ns,
            lookahead=times.lookahead,
        )
        info = self.agents[hello.node]
        if info.hello.version != hello.version:
            info.hello = msgspec.structs.replace(info.hello, version=hello.version)
        resend = self._may_have_plan(info, now_ns)
        joined = AgentJoined(now_ns, hello.node, is_another)
        return Reaction((joined,), (welcome,), resend=resend, alarm=alarm)

    def _on_report(self, report: Report, now_ns: int, state: AgentState) -> Reaction:
        info = self._known(report.node)
        if info.hello.incarnation != report.incarnation and state is AgentState.LOST:
            reason = "another agent of this node said hello and is silent now"
            return Reaction(replies=(AccessRefused(node=report.node, reason=reason),))
        if info.hello.incarnation != report.incarnation or state is AgentState.UNKNOWN:
            raise UnknownAgentError(f"another agent of {report.node} reports than the one that said hello")
        if report.seq <= info.seq:
            raise ReplayedError(f"report {report.seq} of {report.node} came after {info.seq}")
        info.seq = report.seq
        report, foreign = own_words(
            report, partial(self._place, report.node), partial(self._is_home, report.node)
        )
        info.offset_ns, info.rtt_us = report.offset_ns, report.rtt_us
        for one in report.slices:
            info.skew_us, info.freeze_us = one.skew_us, one.freeze_us
        for fault in report.faults:
            kind = printable(fault.kind)
            known = kind in info.faults or len(info.faults) < MOST_FAULT_KINDS
            info.faults[kind if known else OTHER] += fault.count
            self.faults[kind if kind in self.faults or len(self.faults) < MOST_FAULT_KINDS else OTHER] += (
                fault.count
            )
        info.leaked_us += sum(leak.cpu_us for leak in report.leaks)
        others = report.follows not in (None, self.controller.incarnation)
        if others and now_ns - info.hello_ns > COMING_OVER_NS:
            text = f"agent of {report.node} obeys another controller: stop one of the two"
            lost = AgentLost(now_ns, report.node, "it obeys another controller")
            return Reaction((lost,), alarm=text, foreign=foreign)
        alarm = None
        if report.foreign_controllers:
            alarm = f"agent of {report.node} hears another controller: stop one of the two"
        return Reaction((self._event(report, now_ns),), alarm=alarm, foreign=foreign, faults=report.faults)

    def _event(self, report: Report, now_ns: int) -> NodeReport:
        """Event of a report, without slices of an earlier controller: numbers begin anew with each.

        An agent that only tries (``--dry-run``) names the jobs that it would suspend, and suspends none.
        """
        tries = self._known(report.node).hello.dry_run
        slices = tuple(
            [
                SliceUse(
                    one.number,
                    one.skew_us,
                    one.freeze_us,
                    () if tries else one.held,
                    _samples(one.samples),
                    () if tries else one.yielding,
                )
                for one in report.slices
                if self._is_ours(one)
            ]
        )
        strange = tuple([found.job for found in report.found])
        acts = tuple([found.found for found in report.found])
        return NodeReport(
            now_ns,
            report.node,
            slices,
            report.ended,
            report.dying,
            strange,
            report.born,
            _samples(report.alone),
            launched=report.launched,
            rtt_us=report.rtt_us,
            acts=acts,
            memory=_memory(report.memory),
        )

    def _is_ours(self, one: SliceReport) -> bool:
        late_ns = one.applied_ns - self._time.start_ns(one.number)
        return -SLICE_SLACK_NS <= late_ns <= self._time.length_ns(one.number) + SLICE_SLACK_NS

    def _may_have_plan(self, info: AgentInfo, now_ns: int) -> bool:
        """Whether an agent is sent its whole plan now: who asks again at once is answered already."""
        if info.resent_ns is not None and now_ns - info.resent_ns < RESEND_NS:
            return False
        info.resent_ns = now_ns
        return True

    def _known(self, node: str) -> AgentInfo:
        info = self.agents.get(node)
        if info is None:
            raise UnknownAgentError(f"the agent of {node} did not say hello")
        return info


def _memory(reported: ReportedMemory | msgspec.UnsetType) -> NodeMemory | None:
    if reported is msgspec.UNSET:
        return None
    jobs = tuple([JobMemory(one.job, one.used_kib, one.peak_kib) for one in reported.jobs])
    return NodeMemory(reported.available_kib, reported.stall, reported.stalled_us, jobs)


def _samples(samples: tuple[JobSample, ...]) -> tuple[CpuSample, ...]:
    return tuple([CpuSample(s.job, s.cpu_us, s.delay_us, s.span_us, s.tasks, s.held_us) for s in samples])


def own_words(
    report: Report, where: Where, is_home: Callable[[AbstractSet[int]], bool] = lambda _: False
) -> tuple[Report, frozenset[int]]:
    """Return the report without what it says of jobs that are not there, and the foreign ones of these.

    A job that has left the node is dropped, but not foreign: the report may have been on its way. That a job
    has begun is kept whatever is known of it: all that follows is a question, and it may be a requeue. So is
    that its tasks run: it counts where Slurm says that they do, and only there.
    """
    named = _named(report)
    if is_home(named):
        return report, frozenset()
    places = {job: where(job) for job in named}
    if all(place is NodePresence.HERE for place in places.values()):
        return report, frozenset()
    here = frozenset(
        job for job, place in places.items() if place in (NodePresence.HERE, NodePresence.UNKNOWN)
    )
    kept = msgspec.structs.replace(
        report,
        slices=tuple([_own_slice(one, here) for one in report.slices]),
        ended=_own(report.ended, here),
        dying=_own(report.dying, here),
        alone=tuple([sample for sample in report.alone if sample.job in here]),
        found=tuple([one for one in report.found if one.job in here]),
        leaks=tuple([one for one in report.leaks if one.job in here]),
        faults=tuple([one for one in report.faults if one.job is None or one.job in here]),
        memory=report.memory and _own_memory(report.memory, here),
    )
    return kept, frozenset(job for job, place in places.items() if place is NodePresence.ELSEWHERE)


def _named(report: Report) -> set[int]:
    """Every job that the report says something of."""
    jobs = {*report.ended, *report.dying}
    for slice_ in report.slices:
        jobs.update(slice_.held)
        jobs.update(slice_.yielding)
        jobs.update([sample.job for sample in slice_.samples])
    jobs.update([sample.job for sample in report.alone])
    jobs.update([one.job for one in report.found])
    jobs.update([one.job for one in report.leaks])
    jobs.update([one.job for one in report.faults if one.job is not None])
    if report.memory:
        jobs.update([one.job for one in report.memory.jobs])
    return jobs


def _own_memory(memory: ReportedMemory, here: frozenset[int]) -> ReportedMemory:
    return msgspec.structs.replace(memory, jobs=tuple([one for one in memory.jobs if one.job in here]))


def _own_slice(one: SliceReport, here: frozenset[int]) -> SliceReport:
    samples = tuple([sample for sample in one.samples if sample.job in here])
    return msgspec.structs.replace(
        one, held=_own(one.held, here), samples=samples, yielding=_own(one.yielding, here)
    )


def _own(jobs: Iterable[int], here: frozenset[int]) -> tuple[int, ...]:
    return tuple([job for job in jobs if job in here])
