"""The agent's mind: what follows from what is known, and the order in which things are done.

One pass has the same order whatever caused it: take in what happened, renew or end the lease, look at the
steps, decide, act on the difference, prepare the next switch. When to do what, the agenda knows;
``node_observer`` sees what is here, ``slice_tracker`` knows the slices. No sockets, no waiting; the loop
(``agent_loop``), or a fleet of many agents in one process, calls it with the time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from gangd.agent.agenda import Agenda, AgendaItem
from gangd.agent.decide import HoldLimits, Situation, Why, decide
from gangd.agent.hold_modes import HoldModes
from gangd.agent.node_observer import NodeObserver
from gangd.agent.sight.external_changes import ExternalChangeTracker
from gangd.agent.sight.freeze_verifier import REST_OF_SLICE_NS, Checks
from gangd.agent.sight.job_meters import JobMeters
from gangd.agent.sight.steps import StepTable
from gangd.agent.slice_tracker import AGAIN_NS, LOOK_AFTER_NS, SliceTracker
from gangd.agent.switching.hold_controller import HoldController
from gangd.agent.switching.planned_switches import Applied
from gangd.agent.switching.switch_thread import Switch
from gangd.agent.talk.conversation import Conversation
from gangd.agent.talk.report_buffer import Sender, SliceBook
from gangd.freezer.holder import Did
from gangd.wire import ControllerIdentity
from gangd.wire.cadence import CALM_NS, silence_ns, silence_of

REPORT_NS = 1_000_000_000
STUCK_NS = 50_000_000
"""What cannot be let go although the lease is over is tried again so soon."""


@dataclass
class NodeAgent:
    """One node's agent without its senses; see the module.

    Attributes
    ----------
    guarded
        Whether the guardian watches; nothing is held without it.
    exhausted
        Whether the agent has computed for too long without a pause; nothing is held until it has recovered.
    """

    talk: Conversation
    gate: HoldController
    switch: Switch
    table: StepTable
    checks: Checks
    memory: ExternalChangeTracker
    book: SliceBook
    agenda: Agenda
    limits: HoldLimits = field(default_factory=HoldLimits)
    ways: HoldModes = field(default_factory=HoldModes)
    guarded: bool = True
    exhausted: bool = False
    _turns: SliceTracker = field(init=False)
    _looks: NodeObserver = field(init=False)
    _follows: ControllerIdentity | None = None
    _trips: int = 0
    _known: object = None
    _reported_ns: int = 0
    _silence: int | None = None

    def __post_init__(self) -> None:
        meters, agenda = JobMeters(), self.agenda
        self._turns = SliceTracker(self.talk, self.switch, self.table, self.checks, self.book, meters, agenda)
        seen = (self.talk, self.switch, self.table, self.checks, self.memory, self.book)
        self._looks = NodeObserver(*seen, meters, self._turns, agenda)
        for item in (AgendaItem.LOOK, AgendaItem.LEASE, AgendaItem.LEAK, AgendaItem.REPORT):
            agenda.set(item, 0)

    @property
    def is_notified(self) -> bool:
        """Whether the caller calls ``look`` whenever a step comes or goes."""
        return self._looks.is_notified

    @is_notified.setter
    def is_notified(self, is_notified: bool) -> None:
        self._looks.is_notified = is_notified

    def jobs(self, now_ns: int) -> frozenset[int]:
        """Jobs that the schedule names around now."""
        return self._turns.jobs(now_ns)

    def on_plan(self, now_ns: int) -> None:
        """Follow a schedule, exemptions or a lease that may have changed."""
        timeline = self.talk.timeline
        known, self._known = self._known, (timeline.controller, timeline.epoch, timeline.exempt)
        if known == self._known and self.gate.lease.valid(now_ns) and self.switch.awaits(now_ns):
            self._renew(now_ns)  # a beat: nothing but the lease is new
            return
        bounds = timeline.bounds
        if bounds is not None:
            self.limits = replace(self.limits, grace_ns=bounds.grace_ns, longest_ns=bounds.longest_ns)
        suspended = frozenset(timeline.exempt.suspended)
        if suspended:
            self.gate.disown(self.table.keys_of(suspended))
        self.gate.holder.expect(self.jobs(now_ns))
        self.act(now_ns)

    def hold_extern(self, *, wanted: bool) -> None:
        """Hold ``step_extern`` from the next decision on, or let it run."""
        self.limits = replace(self.limits, hold_extern=wanted)
        self.ways.hold_extern = wanted

    def on_switches(self, now_ns: int) -> None:
        """Take in the switches that were made, prepare those to come, and plan a look at everything."""
        self._turns.take(self.ways, now_ns)
        self._prepare(now_ns)
        # A frozen task needs its core once more to stand still: looking at once would only be in its way.
        self.agenda.set(AgendaItem.LOOK, now_ns + LOOK_AFTER_NS)
        self._report_look(now_ns + LOOK_AFTER_NS)

    def look(self, now_ns: int, *, new: bool = True) -> None:
        """Look for steps, processes, strangers and signals, and act on what was found.

        Without ``new`` (nothing tells of new steps) steps and processes are looked for only as often as it
        is cheap enough; a freezer that has to search all processes of the host would else cost too much.
        """
        everything = self._looks.begin(now_ns, new=new)
        if everything:
            self._looks.for_steps(self.ways, self.limits.grace_ns, now_ns)
        self._resync()
        self._looks.at_states(self.ways, now_ns, everything=everything)
        self.act(now_ns, reassert=everything)
        if everything:
            self._looks.end(now_ns)

    def act(self, now_ns: int, *, reassert: bool = False) -> None:
        """Renew the lease, decide for now, write the difference, and prepare the next switch.

        With ``reassert`` steps that are held already are frozen again, which catches tasks that were born
        since (a freezer writes only what is not frozen yet).
        """
        if self.switch.has_made():
            self.on_switches(now_ns)
        self._renew(now_ns)
        if self._looks.at_ways(self.ways, now_ns):
            reassert = True
            self._looks.again_at(now_ns + AGAIN_NS)
        self._bar(now_ns)
        verdict = decide(self._situation(now_ns, for_now=True), self.limits)
        held = self.gate.held
        freeze = [key for key in verdict.hold if reassert or key not in held]
        thaw = [key for key in held if key not in verdict.hold]
        if freeze or thaw:
            applied = self.gate.apply(freeze, thaw, turn=self._turns.turn)
            self._turns.on_applied(applied, self.ways.yielding)
            if self.switch.has_made():  # maybe nothing was done, as the next slice has begun: decide for that
                self.agenda.set(AgendaItem.COLLECT, now_ns + AGAIN_NS)
            if reassert and any(outcome.did is Did.WROTE for outcome in applied.outcomes):
                self._looks.again_at(now_ns + AGAIN_NS)  # until nothing new turns up
        if self.agenda.may(AgendaItem.LEASE, now_ns):
            self.agenda.set(AgendaItem.LEASE, now_ns + STUCK_NS)
        if verdict.again_ns is None:
            self.agenda.strike(AgendaItem.DECIDE)
        else:
            self.agenda.set(AgendaItem.DECIDE, verdict.again_ns)
        for key, why in verdict.spared.items():
            if why is Why.LONG:
                self.checks.stuck[key] = REST_OF_SLICE_NS
            if why in (Why.LONG, Why.SLURMSTEPD):
                self.book.on_fault(f"spared_{why.value}", f"step {key} is not held", key.job)
        self._prepare(now_ns)

    def on_time(self, now_ns: int) -> None:
        """Do what is due at ``now_ns``."""
        agenda = self.agenda
        self.talk.on_time(now_ns)
        if self.talk.hand_over(now_ns):
            self.on_plan(now_ns)
        if agenda.take(AgendaItem.COLLECT, now_ns):
            self._collect(now_ns)
        if agenda.take(AgendaItem.SETTLE, now_ns) and self.checks.on_time(now_ns):
            self.act(now_ns)
        if agenda.take(AgendaItem.LOOK, now_ns):
            self.look(now_ns, new=self._looks.for_new)
        elif self._must_act(now_ns):
            self.act(now_ns)
        if self.gate.held_lately and agenda.take(AgendaItem.LEAK, now_ns):
            self._looks.for_leaks(self.ways, now_ns)

    def due_ns(self) -> int:
        """When ``on_time``, or other work on the event queue, is due next."""
        due_ns = self.agenda.due_ns(holding=bool(self.gate.held_lately))
        assert due_ns is not None, "the next look is always on it"
        return due_ns

    def wants_report(self, now_ns: int) -> bool:
        """Whether a report should be sent now."""
        if self.agenda.may(AgendaItem.REPORT, now_ns) or self.book.has_urgent():
            return True
        return now_ns >= self._reported_ns + REPORT_NS and self.book.has_news

    def put_off_report(self, now_ns: int) -> None:
        """Try again later: no line takes the report now, and it must not stay due."""
        self.agenda.set(AgendaItem.REPORT, now_ns + REPORT_NS)

    def report(self, now_ns: int) -> None:
        """Put a report into the outbox."""
        most_ns, self._silence = self._silences()
        self._reported_ns = now_ns
        if self._silence is not None and most_ns:
            most_ns += CALM_NS  # the look that ends the silence comes first
        self.agenda.set(AgendaItem.REPORT, now_ns + max(REPORT_NS, most_ns))
        self.talk.on_time(now_ns, reporting=True)
        offset = self.talk.offset(now_ns)
        sender = Sender(
            self.talk.node,
            self.talk.hello.incarnation,
            self.talk.follows(),
            0 if offset is None else offset.offset_ns,
            0 if offset is None else offset.rtt_ns,
        )
        self.book.on_dying(self.memory.dying_at(now_ns))
        self.talk.outbox.append(self.book.report(sender, self.talk.foreign, brief=most_ns > 0))
        self.talk.foreign = 0

    def leave(self) -> Applied:
        """Thaw everything and hold nothing any more."""
        self.guarded = False
        self.gate.lease.set_until(0)
        self.switch.prepare()
        try:
            self.checks.on_writes(time.monotonic_ns())  # what Slurm has suspended on top of us is Slurm's
        finally:
            applied = self.gate.thaw_all()
        return applied

    def _renew(self, now_ns: int) -> None:
        timeline = self.talk.timeline
        self._resync()
        trusted = self.talk.offset(now_ns) is not None
        may_hold = trusted and self.guarded and not self.exhausted
        until_ns = (timeline.lease_until_ns or 0) if may_hold else 0
        self.gate.lease.set_until(until_ns)
        self.agenda.set(AgendaItem.LEASE, until_ns)
        if timeline.epoch is None:
            self._turns.current = None
        if timeline.controller != self._follows:
            self._turns.begin_anew(now_ns)
            self.book.on_launched(self.table.launched)
        self._follows = timeline.controller

    def _bar(self, now_ns: int) -> None:
        """Keep the gate from freezing what must not be; what yields instead is not frozen."""
        exempt = self.talk.timeline.exempt
        spared = self.memory.dying_at(now_ns).union(exempt.never_freeze, exempt.opt_out)
        self.gate.bar((spared - self.gate.yielding).union(exempt.suspended))

    def _resync(self) -> None:
        """Take note if guardian or operator thawed behind our back, before it looks like a stranger."""
        trips = self.gate.lease.trips()
        if trips != self._trips:
            self._trips = trips
            self.gate.thaw_all()
            self.book.on_fault("thawed_by_guardian", "the guardian or an operator thawed what was held here")

    def _situation(self, now_ns: int, *, for_now: bool) -> Situation:
        """Tell what is known, to decide for now or for switches to come: then the gate looks at the lease."""
        return Situation(
            now_ns=now_ns,
            open=not for_now or self.gate.lease.valid(now_ns),
            planned=self._turns.planned() if for_now else frozenset(),
            steps=self.table.views(),
            ours=self.gate.held,
            dying=self.memory.dying_at(now_ns),
            strangers=self.memory.strangers(),
            stuck=self.checks.stuck_at(now_ns) if for_now else frozenset(),
            yielding=self.ways.yielding,
            newcomers=self.ways.newcomers,
        )

    def _prepare(self, now_ns: int) -> None:
        self._turns.prepare(
            lambda: self._situation(now_ns, for_now=False),
            self.limits,
            lambda jobs: self._looks.is_calm(jobs, now_ns),
            now_ns,
        )

    def _collect(self, now_ns: int) -> None:
        """Take in the switches that were made since the last look; nothing wakes the loop for them."""
        if self.switch.has_made():
            self._turns.take(self.ways, now_ns)
            self.look(now_ns, new=self._looks.for_new)
            self._report_look(now_ns)
            return
        prepared = self.switch.prepared()
        if prepared is not None:
            self.agenda.set(AgendaItem.COLLECT, max(prepared.instant_ns + LOOK_AFTER_NS, now_ns + AGAIN_NS))

    def _report_look(self, at_ns: int) -> None:
        """Report a look, unless all jobs did as they had and it is not the first after a silence."""
        most_ns, silence = self._silences()
        if not most_ns or silence != self._silence or self.book.has_moved:
            self.agenda.set(AgendaItem.REPORT, at_ns)

    def _silences(self) -> tuple[int, int | None]:
        """Return for how long we may be silent, and in which silence the slice is that runs."""
        timeline, number = self.talk.timeline, self._turns.current
        length_ns = None if number is None else timeline.length_ns(number)
        if number is None or length_ns is None:
            return silence_ns(timeline.lease_ns, REPORT_NS), None
        return silence_ns(timeline.lease_ns, length_ns), silence_of(number, timeline.lease_ns, length_ns)

    def _must_act(self, now_ns: int) -> bool:
        """Whether time alone changes what is to be held."""
        agenda = self.agenda
        due = [agenda.take(item, now_ns) for item in (AgendaItem.DECIDE, AgendaItem.SLICE)]
        return any(due) or bool(self.gate.held_lately and not self.gate.lease.valid(now_ns))
