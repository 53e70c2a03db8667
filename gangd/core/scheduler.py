"""The gang scheduler: typed events in, typed commands out. No socket, file, clock, log or random number.

``states.py`` has the tables and the theory of operation, ``gang_group.py`` the rule by which slices are
composed and why no gang starves, ``slice_scheduler.py`` how only what changed is worked out again.

Time line of a change: it comes with an event and marks gangs as touched. The next ``Tick``, in slice
``n``, works out the slices from ``n + lookahead`` on, for those before are final, and publishes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

import numpy as np

from gangd.core.cores import ConflictGraph, CoreMap, InvalidEvent
from gangd.core.gang import Gang, Launches, NodePresence, Remembered
from gangd.core.gang_group import GangGroup
from gangd.core.gang_registry import Agents, GangRegistry
from gangd.core.gang_settings import GREATEST_QUANTUM_NS, SECOND, CoreSettings
from gangd.core.memory_pressure import Deferral, MemoryPressure
from gangd.core.scheduler_events import (
    AgentJoined,
    AgentLost,
    Alarm,
    AskSlurm,
    BeganToShare,
    Command,
    CpuSample,
    Event,
    Exempt,
    ExemptKind,
    NodeReport,
    Publish,
    RecordRows,
    Reload,
    Shutdown,
    SliceUse,
    SlurmChanges,
    SlurmSnapshot,
    ThawAll,
    Tick,
    TrackPlan,
)
from gangd.core.slice_rows import Unattended, slice_rows
from gangd.core.slice_scheduler import SliceScheduler
from gangd.core.slice_timing import Contenders, QuantumPace, Timebase
from gangd.core.states import GANG_TABLE, AgentInput, AgentState, GangInput, GangState, transition
from gangd.core.wall_clock_limits import Accounts, State, WallClockLimits

RULED_BY_DEMAND = frozenset({GangState.BUSY, GangState.IDLE, GangState.WAKING})
ACTS = {
    "": "another than gangd suspended or resumed it: Slurm, an administrator, or its user by signals",
    "froze": "Slurm or an administrator suspended it, and gangd leaves it to them: see `scontrol show job`",
    "thawed": "Slurm, an administrator or its user's signals resumed it while it was suspended by gangd",
    "stopping": "SIGTSTP or SIGSTOP stops it, from its user or from Slurm, before it suspends: ask the user",
}
"""What was done to a job by another than gangd, as agents say it."""
ALWAYS = np.ones((1, 1), dtype=np.bool_)
SELDOM = np.array([[False], [True]])
MOST_ROWS = 256  # of a track, in a plan
LEAST_WEIGHT, MOST_WEIGHT = 1 / 1024, 1024.0


class GangScheduler:
    """The state machine.

    Parameters
    ----------
    settings
        What the administrator decided.
    start_ns
        Start of slice 0 on the clock that events carry.
    cores
        Numbers of nodes and cores; the maker of ``JobView``s adds nodes to it as they become known.
    limits
        ``limits_state()`` of an earlier scheduler, so that ends are moved on and not anew.
    memory
        ``memory()`` of an earlier scheduler, so that its gangs go on with what was known of them. Then the
        first slice that is decided is the next: agents go by a former plan, and the sooner they have another
        the better.
    away_ns
        For how long there was no scheduler before this one.

    Attributes
    ----------
    horizon
        Slices below are final.
    time
        Where slices lie on the clock.
    agents
        Which agents report.
    pace
        How long slices are to be, and how many are final.
    """

    def __init__(
        self,
        settings: CoreSettings,
        start_ns: int,
        cores: CoreMap,
        limits: Mapping[str, Mapping[str, float]] | None = None,
        memory: Iterable[Remembered] = (),
        away_ns: int = 0,
    ) -> None:
        self.settings = settings
        self.cores = cores
        self.agents = Agents(start_ns + settings.lease_ns - away_ns)
        self.time = Timebase(start_ns, settings.quantum_ns)
        self.pace = QuantumPace(settings, start_ns)
        self.horizon = 0
        self.now_ns = start_ns
        self.closed = False
        self._graph = ConflictGraph()
        self._rotation = SliceScheduler(self._graph, settings.quantum_ns)
        self._limits = WallClockLimits(limits)
        self._people = GangRegistry(self._graph, self._rotation, self._limits, self.agents)
        kept = tuple(memory)
        self._people.remember(kept)
        self._unattended = Unattended(self.agents, cores, self._people, self.time)
        self._in_haste = bool(kept)
        self._accounts = Accounts(self._rotation, self._limits, start_ns)
        self._memory = MemoryPressure()
        self._deferred_ns = start_ns
        self._young: dict[int, Gang] = {}
        self._suspects: dict[int, Gang] = {}
        self._launches = Launches()
        self._wall_s = 0.0
        self._wall_ns = start_ns
        self._rebase = False
        self._said: str | None = None
        self._former_ns, self._former_until_ns = 0, start_ns
        self._out: list[Command] = []

    @property
    def gangs(self) -> Mapping[int, Gang]:
        """All gangs by id; to be read only."""
        return self._people.gangs

    def handle(self, event: Event) -> list[Command]:
        """Take in an event and return what is to be done about it, in order.

        Raises
        ------
        InvalidEvent
            The event contradicts the state or itself. Nothing was changed.
        """
        self._check(event)
        self.now_ns = event.now_ns
        self.agents.grow(len(self.cores))
        self._out = []
        match event:
            case Tick(heard_ns=heard_ns):
                self._tick(self.now_ns if heard_ns is None else min(heard_ns, self.now_ns))
            case NodeReport():
                self._report(event)
            case SlurmSnapshot() | SlurmChanges():
                self._snapshot(event)
            case AgentJoined():
                self._agent(event.node, AgentInput.HELLO, "", is_another=event.is_another)
            case AgentLost():
                self._agent(event.node, AgentInput.LEAVE, event.reason)
            case Reload():
                self._reload(event.settings)
            case Shutdown():
                self.closed = True
                self._out.append(ThawAll("the controller leaves"))
        return self._out

    def owners(self, number: int) -> set[int]:
        """Gangs that are not held in slice ``number``, as far as it is worked out and still decided anew."""
        gangs = self._people.by_slot
        held = [gangs[slot].gang for group in self._rotation.all_groups() for slot in group.held(number)]
        deferred = [gang.gang for gang in self._memory.deferred if gang.state is GangState.DEFERRED]
        return self.gangs.keys() - held - set(deferred)

    def neighbours(self, gang: int) -> set[int]:
        """Gangs that share a core with ``gang``."""
        return {other.gang for other in self._people.neighbours(self.gangs[gang])}

    @property
    def restless(self) -> bool:
        """Whether the next tick changes slices: the sooner it comes, the sooner they do."""
        return self._rotation.touched

    @property
    def at_rest(self) -> bool:
        """Whether every slice to come is decided, as long as nothing happens: ticks may be left out."""
        return not self._young and not self._rotation.touched and self._rotation.repeats

    @property
    def job_count(self) -> int:
        """How many jobs the newest snapshot has."""
        return self._people.job_count

    def sharing(self) -> list[Gang]:
        """List the gangs that share a core with another one, to be read only."""
        return self._people.sharing()

    def agent_state(self, node: str) -> AgentState:
        """Return what is believed of the agent of a node; UNKNOWN for a node that is not known."""
        return self.agents.state(self.cores.number(node)) if node in self.cores else AgentState.UNKNOWN

    def place(self, node: str, job: int) -> NodePresence:
        """Note what a known node has to do with a job: it can report only jobs that are there."""
        return self._people.place(job, self.cores.number(node))

    def is_home(self, node: str, jobs: Iterable[int]) -> bool:
        """Whether all of these jobs are on a node that is known."""
        return self._people.is_home(jobs, self.cores.number(node))

    def limits_state(self) -> State:
        """Return what the next controller needs to move ends on and not anew; JSON can hold it."""
        return self._limits.state()

    def memory(self) -> list[Remembered]:
        """Return what the next controller needs to go on with the gangs."""
        number = max(self.horizon, self.time.slice_at(self.now_ns))
        positions = self._rotation.positions(number)
        return [self._remembered(gang, number, positions) for gang in self.gangs.values()]

    def _remembered(self, gang: Gang, number: int, positions: Mapping[int, tuple[int, int]]) -> Remembered:
        level, history, flaps, multi = gang.demand.describe()
        jobs = tuple([(job, view.start_s) for job, view in gang.views.items()])
        launched = gang.state not in (GangState.NEW, GangState.FREE) or gang.launched
        position = positions.get(gang.slot) or (self._rotation.lead_alone(gang.slot, number), 0)
        return Remembered(gang.gang, jobs, level, history, flaps, multi, launched, *position)

    # Events

    def _check(self, event: Event) -> None:
        if self.closed:
            raise InvalidEvent(f"{type(event).__name__} after Shutdown")
        if event.now_ns < self.now_ns:
            raise InvalidEvent(
                f"{type(event).__name__} at {event.now_ns} ns: the clock went back from {self.now_ns} ns"
            )
        if isinstance(event, SlurmSnapshot | SlurmChanges):
            _check_snapshot(event, len(self.cores))
        if not isinstance(event, AgentJoined | AgentLost | NodeReport):
            return
        self.cores.number(event.node)
        unknown = self.agent_state(event.node) is AgentState.UNKNOWN
        if isinstance(event, AgentLost) and unknown:
            raise InvalidEvent(f"the agent of {event.node} is lost before it said hello")
        if isinstance(event, NodeReport):
            if unknown:
                raise InvalidEvent(f"the agent of {event.node} reports before it said hello")
            newest = self.time.slice_at(event.now_ns) + self.pace.lookahead
            if any(use.number > newest for use in event.slices):
                raise InvalidEvent(f"{event.node} reports a slice that lies ahead")

    def _tick(self, heard_ns: int) -> None:
        number = self.time.slice_at(self.now_ns)
        crowd = int(self._graph.crowd.max(initial=1))
        if self.pace.look(self.now_ns, crowd, self._contenders, self.gangs):
            self._follow_pace()
        first = max(self.horizon, number + (1 if self._in_haste else self.pace.lookahead))
        self._in_haste = False
        for node in self.agents.silent(heard_ns, self._patience_ns()):
            self._agent(self.cores.name(node), AgentInput.SILENCE, "it does not report")
        unattended = [RecordRows(rows) for rows in self._unattended.rows(self.now_ns)]
        self._out += unattended if self.settings.record else ()
        settings = self.settings
        grown = [gang for gang in self._young.values() if gang.is_settled(self.now_ns, settings.grace_ns)]
        for gang in grown:
            del self._young[gang.gang]
            self._settle(gang)
        self._launches.clear(self.now_ns)
        self._publish(first)
        self.horizon = first
        for gang in self._memory.deferred:
            if gang.state is GangState.DEFERRED:
                self._rotation.held_ns[gang.slot] += self.now_ns - self._deferred_ns
        self._deferred_ns = self.now_ns
        wall_s = self._wall_s + (self.now_ns - self._wall_ns) / SECOND
        self._out += self._accounts.look(self.gangs, number, self.now_ns, wall_s, settings)

    def _contenders(self) -> list[Contenders]:
        """Return the groups that contend."""
        found = []
        for group in self._rotation.all_groups():
            gangs = [self._people.by_slot[slot] for slot in group.slots.tolist()]
            nodes = frozenset().union(*(gang.cores.nodes for gang in gangs))
            crowd = int(self._graph.crowd[group.slots].max())
            may_freeze = all(gang.may_freeze for gang in gangs)
            found.append(Contenders(tuple(sorted(gang.gang for gang in gangs)), nodes, crowd, may_freeze))
        return found

    def _follow_pace(self) -> None:
        self._people.retune(self.pace.tuner.tuned())
        self._rebase = self._rebase or self.pace.quantum_ns != self.time.quantum_ns
        said = str(self.pace) if self.pace.is_changed else None
        if said == self._said:
            return
        if self._said is not None:
            self._out.append(Alarm("late switches", self._said, self._said, cleared=True))
        self._said = said
        if said is not None:
            self._out.append(Alarm("late switches", said, said))

    def _publish(self, first: int) -> None:
        quantum_ns = self.pace.quantum_ns
        if self._rebase:
            self.time.change(first, quantum_ns)
            self._rotation.touch_all()
        advance = self._rotation.advance(first, self.settings.cap_slices(quantum_ns), quantum_ns)
        self._people.release_slots()
        if advance.publish or advance.watch or advance.drop or self._rebase:
            rows: dict[object, list[int]] = {}
            tracks = [self._track(group, first, rows) for group in advance.publish]
            for slot in advance.watch:
                gang = self._people.by_slot[slot]
                table, rows_of = ALWAYS, [0]
                if gang.state is GangState.DEFERRED:
                    held = min(max(2, self.settings.memory_freeze_ns // quantum_ns), MOST_ROWS) - 1
                    table, rows_of = SELDOM, [0] * held + [1]
                tracks.append(TrackPlan(gang.gang, first, True, (gang.member,), table, rows_of, 0))
            self._out.append(Publish(first, tuple(tracks), tuple(advance.drop), self._rebase))
            self._rebase = False

    def _track(self, group: GangGroup, first: int, known: dict[object, list[int]]) -> TrackPlan:
        alike = (id(group.block), group.period, group.pure)
        rows = known.get(alike)
        if rows is None:
            rows = known[alike] = group.rows(first)
        gangs = self._people.by_slot
        members = tuple([gangs[slot].member for slot in group.slots.tolist()])
        return TrackPlan(
            group.name, first, group.repeats_from(first), members, group.block.run, rows, group.begin
        )

    def _snapshot(self, snapshot: SlurmSnapshot | SlurmChanges) -> None:
        self._wall_s, self._wall_ns = snapshot.wall_s, snapshot.now_ns
        self._unattended.epoch_ns = snapshot.now_ns - round(snapshot.wall_s * SECOND)
        total = self.cores.total_cores
        if isinstance(snapshot, SlurmChanges):
            update = self._people.change(snapshot.jobs, snapshot.gone, self.now_ns, total)
        else:
            update = self._people.update(snapshot.jobs, self.now_ns, total)
        for gang in update.gone:
            self._young.pop(gang.gang, None)
            self._out += [deferral.alarm() for deferral in self._memory.forget(gang)]
            self._launches.forget(gang)
            self._apply(gang, GangInput.VANISH)
        for gang in update.new:
            self._young[gang.gang] = gang
            gang.launched = gang.launched or self._launches.complete(gang)
        for gang in list(self._suspects.values()):
            if self.gangs.get(gang.gang) is gang:
                gang.slurm_answered(snapshot.asked_ns, self.settings.lease_ns)
                self._settle(gang)
            if self.gangs.get(gang.gang) is not gang or not gang.is_suspect:
                del self._suspects[gang.gang]
        for gang in update.changed:
            if not gang.has_shared and self._people.shares(gang):
                gang.has_shared = True
                self._out.append(BeganToShare(tuple(gang.views)))
            self._settle(gang)
            if gang.exempt is not None:
                self._exempt(gang, gang.exemption)  # on its present nodes, and for the present reason

    def _report(self, report: NodeReport) -> None:
        node = self.cores.number(report.node)
        if not self.agents.reports(node, self.now_ns):
            self._agent(report.node, AgentInput.REPORT, "")
        fresh = [use for use in report.slices if self.agents.fresh(node, use.number)]
        switches = self.pace.switches(node, fresh)
        ran_ns = sum(self.time.length_ns(use.number) for use in fresh)
        self.pace.note(node, [use.freeze_us for use in switches], report.rtt_us, self.now_ns, ran_ns)
        for use in fresh:
            for sample in use.samples:
                self._sample(node, use.number, sample)
            self._lose(use)
            if self.settings.record:
                gangs = filter(self._people.shares, self._people.on_node(node))
                self._out.append(RecordRows(slice_rows(report.node, node, use, self.time, gangs)))
        for sample in report.alone:
            self._alone(node, sample)
        for job in report.ended:
            self._ended(node, job)
        for job in report.dying:
            self._dying(job)
        for job in report.born:
            if self._people.gang_of(job) is None:
                self._out.append(AskSlurm(f"job {job} has begun on {report.node}"))
        for job in report.launched:
            self._launched(node, job)
        self._judge_memory(report, node)
        for place, job in enumerate(report.strange):
            self._touched(report.node, job, report.acts[place] if place < len(report.acts) else "")

    def _judge_memory(self, report: NodeReport, node: int) -> None:
        if report.memory is not None:
            self.pace.note_stall(node, report.memory.stalled_us, self.now_ns)
        gangs = self._people.on_node(node) if self.settings.memory_kib is not None else []
        for deferral in self._memory.judge(
            report.node, node, report.memory, gangs, self.settings, self.now_ns
        ):
            self._defer(deferral)

    def _defer(self, deferral: Deferral) -> None:
        """Suspend a gang on all of its nodes for the memory of some, or let it run again."""
        self._people.defer(deferral.gang, on=deferral.node is not None)
        self._settle(deferral.gang)
        self._out.append(deferral.alarm())

    def _lose(self, use: SliceUse) -> None:
        """Note who has lost a node's slice: a job that was frozen all of it, one that yielded nothing."""
        length_ns = self.time.length_ns(use.number)
        for job in set(use.held):
            gang = self._people.gang_of(job)
            if gang is not None:
                gang.lost.tell(use.number, length_ns, length_ns, again=gang.places > 1)

    def _sample(self, node: int, number: int, sample: CpuSample) -> None:
        gang = self._sampled(node, sample)
        if gang is not None and self.settings.tune:
            cores = gang.views[sample.job].cores
            if sample.job not in gang.widths:
                gang.widths[sample.job] = dict(zip(cores.nodes, self.cores.counts(cores), strict=True))
            self.pace.tuner.note(gang.gang, gang.widths[sample.job].get(node, 0), sample)
        if gang is not None and gang.demand.sample(
            number, sample.share, sample.tasks, gang.places, self.settings
        ):
            self._settle(gang)

    def _alone(self, node: int, sample: CpuSample) -> None:
        gang = self._sampled(node, sample)
        if gang is None or gang.state in RULED_BY_DEMAND:  # it was asked for in slices meanwhile
            return
        place = (sample.job, node)
        if gang.demand.alone(place, sample.share, sample.tasks, gang.places, self.settings):
            self._settle(gang)

    def _sampled(self, node: int, sample: CpuSample) -> Gang | None:
        """Return the gang that a sample tells of; None where it tells nothing."""
        gang = self._people.gang_of(sample.job)
        if gang is None or not sample.span_us:
            return None
        if sample.tasks and gang.ended:
            gang.ended.discard((sample.job, node))
        return gang

    def _launched(self, node: int, job: int) -> None:
        self._launches.note(node, job, self.now_ns)
        gang = self._people.gang_of(job)
        if gang is not None and not gang.launched and self._launches.complete(gang):
            gang.launched = True
            self._settle(gang)

    def _ended(self, node: int, job: int) -> None:
        gang = self._people.gang_of(job)
        if gang is None:
            return
        gang.ended.add((job, node))
        if len(gang.ended) == gang.places and gang.demand.empty():
            self._settle(gang)
            self._out.append(AskSlurm(f"job {job} has no process left"))

    def _touched(self, node: str, job: int, act: str) -> None:
        gang = self._people.gang_of(job)
        if gang is None or gang.state is GangState.TERMINATING:
            return
        gang.strange_ns = self.now_ns
        self._suspects[gang.gang] = gang
        self._settle(gang)
        if node not in gang.strange_nodes:
            gang.strange_nodes.append(node)
        alarm = Alarm(
            "foreign freeze", str(job), ACTS.get(act, ACTS[""]), job=job, nodes=tuple(gang.strange_nodes)
        )
        self._out += (alarm, AskSlurm(f"job {job} on {node}: {alarm.text}"))

    def _dying(self, job: int) -> None:
        gang = self._people.gang_of(job)
        if gang is None or gang.state is GangState.TERMINATING:
            return
        known, gang.dying_ns = gang.dying_ns is not None, self.now_ns
        self._suspects[gang.gang] = gang
        if not known:
            self._settle(gang)
            self._out.append(AskSlurm(f"a deadly signal waits for job {job}"))

    def _agent(self, name: str, happened: AgentInput, reason: str, *, is_another: bool = False) -> None:
        node = self.cores.number(name)
        comes = is_another or (happened is not AgentInput.LEAVE and not self.agents.joined(node))
        if comes:
            self._unattended.note(node, self.now_ns)
        change = self.agents.happen(node, happened, self.now_ns, name)
        if change is None:
            return
        if not change.first:
            text = f"agent of {name} is back" if change.joined else f"agent of {name} is lost: {reason}"
            self._out.append(Alarm("agent lost", name, text, cleared=change.joined))
        for gang in self._people.on_node(node):
            gang.missing += -1 if change.joined else 1
            self._settle(gang)

    def _patience_ns(self) -> int:
        """For how long a node may be silent: one that has a longer lease still keeps to that."""
        return max(self.settings.lease_ns, self._former_ns if self.now_ns < self._former_until_ns else 0)

    def _reload(self, settings: CoreSettings) -> None:
        if settings.lease_ns < self.settings.lease_ns:
            self._former_ns = self._patience_ns()
            self._former_until_ns = self.now_ns + self._former_ns
        self.settings = settings
        for deferral in self._memory.relieve_all() if settings.memory_kib is None else ():
            self._defer(deferral)
        self.pace.ask(settings)
        self._follow_pace()

    # Gangs

    def _settle(self, gang: Gang) -> None:
        """Apply inputs until the state agrees with the facts."""
        while True:
            shares = self._people.shares(gang)
            happened = gang.following(self.now_ns, self.settings.grace_ns, shares)
            if happened is None:
                return
            self._apply(gang, happened)

    def _apply(self, gang: Gang, happened: GangInput) -> None:
        before = gang.state
        gang.state = transition(GANG_TABLE, before, happened, f"gang {gang.gang}")
        woke_for = None
        if happened is GangInput.STIR:
            gang.stirred = self.time.slice_at(self.now_ns)
        elif happened is GangInput.CONFIRM:
            woke_for = max(0, self.horizon - gang.stirred)
        wants = gang.state is GangState.BUSY
        is_named = gang.state in RULED_BY_DEMAND or gang.state is GangState.DEFERRED
        self._rotation.want(gang.slot, wants, is_named, woke_for=woke_for)
        kind = gang.exemption
        if gang.state is GangState.FREE and before is GangState.NEW:
            kind = None  # it was in no slice yet: there is nothing to take back
        self._exempt(gang, kind)

    def _exempt(self, gang: Gang, kind: ExemptKind | None) -> None:
        """Send the agents a gang's exemption where it has changed."""
        if kind is gang.exempt and (kind is None or gang.exempted is gang.member):
            return
        if gang.exempt is not None and gang.exempted is not None:
            self._out.append(Exempt(gang.exempted, gang.exempt, on=False))
        if kind is not None:
            self._out.append(Exempt(gang.member, kind, on=True))
        gang.exempt, gang.exempted = kind, gang.member


def _check_snapshot(snapshot: SlurmSnapshot | SlurmChanges, nodes: int) -> None:
    if snapshot.asked_ns > snapshot.now_ns:
        raise InvalidEvent("a snapshot from the future")
    if not isfinite(snapshot.wall_s):
        raise InvalidEvent(f"wall clock is {snapshot.wall_s}")
    if len({view.job for view in snapshot.jobs}) != len(snapshot.jobs):
        raise InvalidEvent("a job is in the snapshot twice")
    for view in snapshot.jobs:
        if not LEAST_WEIGHT <= view.weight <= MOST_WEIGHT:
            raise InvalidEvent(f"job {view.job} has weight {view.weight}; 1/1024 to 1024 are possible")
        if view.quantum_ns is not None and not 0 <= view.quantum_ns <= GREATEST_QUANTUM_NS:
            raise InvalidEvent(f"job {view.job} has a quantum of {view.quantum_ns} ns; at most 5 s")
        if not view.cores.packed or view.cores.nodes[-1] >= nodes:
            raise InvalidEvent(f"job {view.job} is on a node that is not known")
        if view.end_s is not None and not isfinite(view.end_s):
            raise InvalidEvent(f"job {view.job} ends at {view.end_s}")
