"""The agent's decisions: what follows from what is known, and when it looks at what.

The agent's mind: what follows from what is known, and the order in which things are done.

One pass has the same order whatever caused it: take in what happened, renew or end the lease, look at the
steps, decide, act on the difference, prepare the next switch. When to do what, the agenda knows;
``node_observer`` sees what is here, ``slice_tracker`` knows the slices. No sockets, no waiting; the loop
(``agent_loop``), or a fleet of many agents in one process, calls it with the time.

Looking at this node: steps that come and go, what they use, who else lays hands on them; how often.

A look on a job's core costs the job more than the look's own time, so that nothing is looked at oftener than
it is cheap enough, or than it tells anything. What is found is noted; what follows from it, the caller
decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gangd.agent.agenda import Agenda, AgendaItem, Rest
from gangd.agent.conversation import Conversation
from gangd.agent.decide import HoldLimits, Situation, Why, decide
from gangd.agent.freeze_verifier import REST_OF_SLICE_NS, Checks, ExternalChangeTracker
from gangd.agent.hold_controller import HoldController
from gangd.agent.job_meters import HOST_CLOCKS, CpuClocks, JobMeters
from gangd.agent.planned_switches import Applied
from gangd.agent.report_buffer import Sender, SliceBook
from gangd.agent.slice_tracker import AGAIN_NS, LOOK_AFTER_NS, SliceTracker
from gangd.agent.steps import HoldModes, StepTable
from gangd.agent.switch_thread import Switch
from gangd.freezer.holder import Did
from gangd.freezer.procfs import WORK, is_shortage
from gangd.wire.messages import ControllerIdentity
from gangd.wire.slice_schedule import CALM_NS, silence_ns, silence_of

LIST_SHARE, SCAN_SHARE = 300, 50
"""Looking for steps takes at most one part in so many of a core: in cgroups, among all processes."""
IDLE_LOOK_NS = 1_000_000_000
ALONE_NS = 1_000_000_000
LEAK_LOOK_NS = 4_000_000_000
REFRESH_NS = 1_000_000_000
"""Where notices of new and ended steps arrive, steps are looked for no more often than this, for
``YOUNG_NS`` after the newest began excepted."""
YOUNG_NS = 3_000_000_000
LAUNCH_LOOK_NS, LAUNCH_NS = 40_000_000, 2_000_000_000
"""A launch is looked at so often, for so long after its newest step began, where looking is cheap."""
TASKS_LOOK_NS, TASKS_SHARE = 10_000_000, 20
"""A new step without tasks is looked at so often, but with one part in so many of a core at most: what its
tasks fork before they are within reach of yielding, has to be found by itself."""
SIGNALS_NS = 400_000_000
"""Pending signals are looked for no more often than this: Slurm waits seconds between SIGTERM and SIGKILL."""


class NodeObserver:
    """The agent's eyes.

    Attributes
    ----------
    is_notified
        Whether a notice arrives for every step that comes or goes.
    for_new
        Whether the next look is for steps that are not known yet, however much it costs.
    """

    def __init__(
        self,
        talk: Conversation,
        switch: Switch,
        table: StepTable,
        checks: Checks,
        memory: ExternalChangeTracker,
        book: SliceBook,
        meters: JobMeters,
        turns: SliceTracker,
        agenda: Agenda,
        clocks: CpuClocks,
    ) -> None:
        self.is_notified = False
        self.for_new = True
        self._sees_writes = True
        self._cost_ns = self._own_ns = 0
        self._talk = talk
        self._switch = switch
        self._table = table
        self._gate = table.gate
        self._checks = checks
        self._memory = memory
        self._book = book
        self._meters = meters
        self._turns = turns
        self._agenda = agenda
        self._clocks = clocks

    def again_at(self, at_ns: int) -> None:
        """Look for new steps at an instant, whatever was to be looked at before."""
        self.for_new = True
        self._agenda.set(AgendaItem.LOOK, at_ns)

    def begin(self, now_ns: int, *, new: bool) -> bool:
        """Begin a look; returns whether steps are looked for, which is not always cheap enough."""
        self.for_new = False
        self._agenda.set(AgendaItem.LOOK, now_ns + IDLE_LOOK_NS)
        return new or self._agenda.rested(Rest.REFRESH, now_ns)

    def end(self, now_ns: int) -> None:
        """End a look for steps: where one is being launched, another follows soon."""
        before_ns, self._own_ns = self._own_ns, self._clocks.process()
        launching = self._table.launching_at(now_ns, YOUNG_NS)
        for job in launching:
            WORK.pause_if_spent()
            own_ns = (self._own_ns - before_ns) // len(launching)
            self._meters.on_launch(job, self._gate.holder.daemon_ns(job), own_ns)
        if self._is_notified() and self._table.is_empty_since(now_ns - LAUNCH_NS):
            self.for_new = True
            self._agenda.sooner(AgendaItem.LOOK, now_ns + max(TASKS_LOOK_NS, TASKS_SHARE * self._cost_ns))
        elif self._is_notified() and self._table.is_launching(now_ns, LAUNCH_NS):
            self.for_new = True
            self._agenda.sooner(AgendaItem.LOOK, now_ns + LAUNCH_LOOK_NS)

    def for_steps(self, ways: HoldModes, grace_ns: int, now_ns: int) -> None:
        """Look for steps and processes, and bring within reach what is to yield.

        What cannot be seen, as descriptors or memory are used up, is a fault; no job ends or idles by it.
        """
        try:
            self._for_steps(ways, grace_ns, now_ns)
        except (OSError, MemoryError) as error:
            if not is_shortage(error):
                raise
            self._meters.unseen = None
            self._agenda.rest(Rest.REFRESH, now_ns + REFRESH_NS)
            self._book.on_fault("unseen", f"steps cannot be looked at, and stay as they were: {error}")

    def _for_steps(self, ways: HoldModes, grace_ns: int, now_ns: int) -> None:
        began_ns = self._clocks.thread()
        changes = self._table.refresh(now_ns)
        share = SCAN_SHARE if self._gate.holder.traits.searches_processes else LIST_SHARE
        self._cost_ns = self._clocks.thread() - began_ns
        rest_ns = self._cost_ns * share
        if self._is_notified() and not self._has_young(now_ns):
            rest_ns = max(rest_ns, REFRESH_NS)
        self._agenda.rest(Rest.REFRESH, now_ns + rest_ns)
        if changes.born:
            self._book.on_born(changes.born)
        if changes.launched:
            self._book.on_launched(changes.launched)
        unseen = self._meters.unseen = self._gate.holder.unseen
        for job in unseen:
            text = f"a step of job {job} cannot be opened and is not held: raise the limit of open files"
            self._book.on_fault("unseen", text, job)
        if changes.ended - unseen:
            self._book.on_ended(changes.ended - unseen)
        self._memory.forget(changes.gone)
        self._talk.timeline.keep(self._table.jobs())
        if changes.new:  # one that is born in a held job runs for its launch grace, and then we count
            self._agenda.sooner(AgendaItem.LEAK, now_ns + grace_ns + LOOK_AFTER_NS)
        if self.at_ways(ways, now_ns) or changes.new:
            self._sees_writes = self._checks.watch_files()
        if changes.new and not self._sees_writes:
            self._book.on_fault("inotify", "no more watches available: raise fs.inotify.max_user_watches")
        if ways.gather(self._table):
            self.again_at(now_ns + AGAIN_NS)  # until nothing new turns up
        for job, text in ways.troubles().items():
            self._book.on_fault("yields_not", text, job)
        jobs = self._turns.jobs(now_ns) | self._table.jobs()
        self._meters.track({job: self._table.pids_of_job(job) for job in jobs}, now_ns)
        self._at_jobs_alone(now_ns)

    def at_ways(self, ways: HoldModes, now_ns: int) -> bool:
        """Take note of how jobs are held now; whether that has changed."""
        bounds = self._talk.timeline.bounds
        restless = self._memory.restless_at(now_ns).union(
            self._table.launching_at(now_ns, 0 if bounds is None else bounds.grace_ns),
            self._meters.loose_at(now_ns),
            self._table.jobs_with_strays(),
            (key.job for key in self._checks.stuck_at(now_ns)),
        )
        timeline, number = self._talk.timeline, self._turns.number(now_ns)
        changed = ways.follow(timeline, number, self._table, now_ns, restless)
        self._gate.let_yield(ways.yielding)
        return changed

    def at_states(self, ways: HoldModes, now_ns: int, *, everything: bool) -> None:
        """Look at states and signals of our steps, or only at those without notices."""
        self._checks.on_writes(now_ns)
        spared = ways.by_plan.union(self._talk.timeline.exempt.suspended)
        keys = self._table.keys_of(self._turns.jobs(now_ns) - spared)
        settled = everything or not self._is_notified() or self._memory.has_strangers
        self._checks.on_states(keys, now_ns, settled=settled)
        if self._agenda.rested(Rest.SIGNALS, now_ns):
            self._agenda.rest(Rest.SIGNALS, now_ns + SIGNALS_NS)
            self._checks.on_signals(keys, now_ns)

    def for_leaks(self, ways: HoldModes, now_ns: int) -> None:
        """See what held jobs have used since they were held."""
        if self._switch.has_made():  # who is held is known after the next look: then, later in the slice
            prepared = self._switch.prepared()
            rest_ns = LOOK_AFTER_NS if prepared is None else max(0, prepared.instant_ns - now_ns) // 2
            from_ns = max(self._agenda.at(AgendaItem.COLLECT) or now_ns, now_ns)
            self._agenda.set(AgendaItem.LEAK, from_ns + min(rest_ns, 2 * LOOK_AFTER_NS))
            return
        self._agenda.set(AgendaItem.LEAK, now_ns + LEAK_LOOK_NS)
        for job in {key.job for key in self._gate.held} - ways.yielding:
            WORK.pause_if_spent()
            leaked_ns = self._meters.leak(job, self._table.used_ns(job))
            if leaked_ns is not None:
                self._book.on_leak(job, leaked_ns)

    def is_calm(self, jobs: frozenset[int], now_ns: int) -> bool:
        """Whether all goes on as it has for seconds: then the next looks may be left out."""
        if not self._is_notified() or self._has_young(now_ns) or self._memory.has_strangers:
            return False
        if self._turns.debts:
            return False
        return not self._memory.dying_at(now_ns) and all(self._meters.is_steady(job, now_ns) for job in jobs)

    def _is_notified(self) -> bool:
        """Whether nothing that matters comes, goes or is written without a notice."""
        return self.is_notified and self._sees_writes

    def _has_young(self, now_ns: int) -> bool:
        newest_ns = self._table.newest_ns()
        return newest_ns is not None and now_ns < newest_ns + YOUNG_NS

    def _at_jobs_alone(self, now_ns: int) -> None:
        """Read, once a second, the jobs that no slice names: what they do tells what they will do there."""
        if not self._agenda.rested(Rest.ALONE, now_ns):
            return
        self._agenda.rest(Rest.ALONE, now_ns + ALONE_NS)
        for job in self._table.jobs() - self._turns.jobs(now_ns):
            WORK.pause_if_spent()
            if self._meters.due(job, now_ns):
                found = self._meters.sample(job, self._table.used_ns(job), now_ns)
                for sample in (found.own, found.leftover):
                    if sample is not None:
                        self._book.on_alone(sample)


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
    clocks
        What its own work has cost: looks are the rarer, the more they cost.
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
    clocks: CpuClocks = HOST_CLOCKS
    _turns: SliceTracker = field(init=False)
    looks: NodeObserver = field(init=False)
    _follows: ControllerIdentity | None = None
    _trips: int = 0
    _known: object = None
    _reported_ns: int = 0
    _silence: int | None = None

    def __post_init__(self) -> None:
        meters, agenda = JobMeters(self.clocks), self.agenda
        self._turns = SliceTracker(self.talk, self.switch, self.table, self.checks, self.book, meters, agenda)
        seen = (self.talk, self.switch, self.table, self.checks, self.memory, self.book)
        self.looks = NodeObserver(*seen, meters, self._turns, agenda, self.clocks)
        for item in (AgendaItem.LOOK, AgendaItem.LEASE, AgendaItem.LEAK, AgendaItem.REPORT):
            agenda.set(item, 0)

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
        """Look for steps, processes, external changes and signals, and act on what was found.

        Without ``new`` (nothing tells of new steps) steps and processes are looked for only as often as it
        is cheap enough; a freezer that has to search all processes of the host would else cost too much.
        """
        everything = self.looks.begin(now_ns, new=new)
        if everything:
            self.looks.for_steps(self.ways, self.limits.grace_ns, now_ns)
        self._resync()
        self.looks.at_states(self.ways, now_ns, everything=everything)
        self.act(now_ns, reassert=everything)
        if everything:
            self.looks.end(now_ns)

    def act(self, now_ns: int, *, reassert: bool = False) -> None:
        """Renew the lease, decide for now, write the difference, and prepare the next switch.

        With ``reassert`` steps that are held already are frozen again, which catches tasks that were born
        since (a freezer writes only what is not frozen yet).
        """
        if self.switch.has_made():
            self.on_switches(now_ns)
        self._renew(now_ns)
        if self.looks.at_ways(self.ways, now_ns):
            reassert = True
            self.looks.again_at(now_ns + AGAIN_NS)
        self._bar(now_ns)
        pays_ns = self._turns.pay(now_ns)
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
                self.looks.again_at(now_ns + AGAIN_NS)  # until nothing new turns up
        if self.agenda.may(AgendaItem.LEASE, now_ns):
            self.agenda.set(AgendaItem.LEASE, now_ns + STUCK_NS)
        times = [at_ns for at_ns in (verdict.again_ns, pays_ns) if at_ns is not None]
        self.agenda.strike(AgendaItem.DECIDE)
        if times:
            self.agenda.set(AgendaItem.DECIDE, min(times))
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
            self.look(now_ns, new=self.looks.for_new)
        elif self._must_act(now_ns):
            self.act(now_ns)
        if self.gate.held_lately and agenda.take(AgendaItem.LEAK, now_ns):
            self.looks.for_leaks(self.ways, now_ns)

    def due_ns(self) -> int:
        """When ``on_time``, or other work on the event queue, is due next."""
        due_ns = self.agenda.due_ns(holding=bool(self.gate.held_lately))
        assert due_ns is not None, "the next look is always on it"
        return due_ns

    def wants_report(self, now_ns: int, can_send: Callable[[], bool]) -> bool:
        """Whether a report should be sent now; one that no line takes, or that is refused, waits."""
        is_due = self.agenda.may(AgendaItem.REPORT, now_ns) or self.book.has_urgent()
        if not (is_due or (now_ns >= self._reported_ns + REPORT_NS and self.book.has_news)):
            return False
        if self.talk.is_welcome and can_send():
            return True
        self.agenda.set(AgendaItem.REPORT, now_ns + REPORT_NS)  # it must not stay due
        return False

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
        """Take note if guardian or operator thawed behind our back: it is no external change."""
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
            external=self.memory.external(),
            stuck=self.checks.stuck_at(now_ns) if for_now else frozenset(),
            yielding=self.ways.yielding,
            newcomers=self.ways.newcomers,
        )

    def _prepare(self, now_ns: int) -> None:
        self._turns.prepare(
            lambda: self._situation(now_ns, for_now=False),
            self.limits,
            lambda jobs: self.looks.is_calm(jobs, now_ns),
            now_ns,
        )

    def _collect(self, now_ns: int) -> None:
        """Take in the switches that were made since the last look; nothing wakes the loop for them."""
        if self.switch.has_made():
            self._turns.take(self.ways, now_ns)
            self.look(now_ns, new=self.looks.for_new)
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
