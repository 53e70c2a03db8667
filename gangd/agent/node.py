"""The agent's mind: what is known, what follows from it, and the order in which things are done.

One pass has the same order whatever caused it: take in what happened, renew or end the lease, look at the
steps, decide, act on the difference, prepare the next switch. No sockets, no waiting; the loop (``loop``) or
a fleet of many agents in one process calls it with the time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from gangd.agent.ahead import Applied
from gangd.agent.checks import REST_OF_SLICE_NS, Checks
from gangd.agent.conversation import Conversation
from gangd.agent.decide import Limits, Situation, Verdict, Why, decide
from gangd.agent.gate import Gate
from gangd.agent.meters import JobMeters
from gangd.agent.prepare import switches_to_look
from gangd.agent.samples import sample_slices
from gangd.agent.slicebook import Sender, SliceBook
from gangd.agent.steps import StepTable
from gangd.agent.strangers import Memory
from gangd.agent.switch import Switch, Switched
from gangd.agent.ways import Ways
from gangd.freezer.model import Did
from gangd.wire import Controller, JobSample
from gangd.wire.cadence import next_look

REPORT_NS = 1_000_000_000
LOOK_AFTER_NS = 8_000_000
"""Looks begin so long after a switch: a frozen task needs its core once more to stand still."""
AGAIN_NS = 1_000_000
LIST_SHARE, SCAN_SHARE = 300, 50
"""Looking for steps takes at most one part in so many of a core: in cgroups, among all processes."""
IDLE_LOOK_NS = 1_000_000_000
LATE_NS = 10_000_000
"""A switch that begins later than this is counted as late; half of the shortest slice."""
ALONE_NS = 1_000_000_000
LEAK_LOOK_NS = 4_000_000_000
REFRESH_NS = 1_000_000_000
"""Where somebody tells of steps that come and go, they are looked for no more often than this, for
``YOUNG_NS`` after the newest began excepted."""
YOUNG_NS = 3_000_000_000
LAUNCH_LOOK_NS, LAUNCH_NS = 40_000_000, 2_000_000_000
"""A launch is looked at so often, for so long after its newest step began, where looking is cheap."""
SIGNALS_NS = 400_000_000
"""Pending signals are looked for no more often than this: Slurm waits seconds between SIGTERM and SIGKILL."""


@dataclass
class Node:
    """One node's agent without its senses; see the module.

    Attributes
    ----------
    guarded
        Whether the guardian watches; nothing is held without it.
    told
        Whether somebody calls ``look`` whenever a step comes or goes.
    """

    talk: Conversation
    gate: Gate
    switch: Switch
    table: StepTable
    checks: Checks
    memory: Memory
    book: SliceBook
    meters: JobMeters = field(default_factory=JobMeters)
    limits: Limits = field(default_factory=Limits)
    ways: Ways = field(default_factory=Ways)
    guarded: bool = True
    told: bool = False
    _current: int | None = None
    _follows: Controller | None = None
    _again_ns: int | None = None
    _slice_ns: int | None = None
    _look_ns: int = 0
    _look_again: bool = True
    _refresh_ns: int = 0
    _report_ns: int = 0
    _leak_ns: int = 0
    _signals_ns: int = 0
    _trips: int = 0
    _turn: int = 0
    _collect_ns: int | None = None
    _known: object = None
    _sees_writes: bool = True
    _alone_ns: int = 0

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
        suspended = frozenset(self.talk.timeline.exempt.suspended)
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
        self._take_switches(now_ns)
        self._prepare(now_ns)
        # A frozen task needs its core once more to stand still: looking at once would only be in its way.
        self._look_ns = self._report_ns = now_ns + LOOK_AFTER_NS

    def _take_switches(self, now_ns: int) -> None:
        """Close the slices that switches have ended."""
        self._collect_ns = None
        made = self.switch.collect()
        # First who was held when, then the samples: what a held job uses after its sample has leaked.
        for switched in made:
            applied = switched.applied
            self.meters.on_held(switched.held, self.ways.yielding, applied.frozen_ns, applied.used_ns)
        ended = [self.book.current, *made[:-1]]
        samples = self._sample(ended, now_ns, made[-1].applied.begin_ns) if made else {}
        for place, switched in enumerate(made):
            for sample in samples.get(place, ()):
                self.book.on_sample(sample)
            self._on_switched(switched, now_ns)
        while self.switch.expired:
            self._on_applied(self.switch.expired.popleft())

    def _collect(self, now_ns: int) -> None:
        """Take in the switches that were made since the last look; nothing wakes the loop for them."""
        if self.switch.has_made():
            self._take_switches(now_ns)
            self.look(now_ns, new=self._look_again)
            self._report_ns = now_ns
            return
        prepared = self.switch.prepared()
        self._collect_ns = (
            None if prepared is None else max(prepared.instant_ns + LOOK_AFTER_NS, now_ns + AGAIN_NS)
        )

    def look(self, now_ns: int, *, new: bool = True) -> None:
        """Look for steps, processes, strangers and signals, and act on what was found.

        Without ``new`` (nothing tells of new steps) steps and processes are looked for only as often as it
        is cheap enough; a freezer that has to search all processes of the host would else cost too much.
        """
        self._look_again, self._look_ns = False, now_ns + IDLE_LOOK_NS
        refresh = new or now_ns >= self._refresh_ns
        if refresh:
            self._refresh(now_ns)
            self._sample_alone(now_ns)
        self.check(now_ns, everything=refresh)
        self.act(now_ns, reassert=refresh)
        if refresh and self._is_told() and self.table.is_launching(now_ns, LAUNCH_NS):
            self._look_again, self._look_ns = True, min(self._look_ns, now_ns + LAUNCH_LOOK_NS)

    def _refresh(self, now_ns: int) -> None:
        began_ns = time.thread_time_ns()
        changes = self.table.refresh(now_ns)
        share = SCAN_SHARE if self.gate.holder.traits.searches_processes else LIST_SHARE
        rest_ns = (time.thread_time_ns() - began_ns) * share
        if self._is_told() and not self._has_young(now_ns):
            rest_ns = max(rest_ns, REFRESH_NS)
        self._refresh_ns = now_ns + rest_ns
        if changes.born:
            self.book.on_born(changes.born)
        if changes.launched:
            self.book.on_launched(changes.launched)
        if changes.ended:
            self.book.on_ended(changes.ended)
        self.memory.forget(changes.gone)
        self.talk.timeline.keep(self.table.jobs())
        if changes.new:  # one that is born in a held job runs for its launch grace, and then we count
            self._leak_ns = min(self._leak_ns, now_ns + self.limits.grace_ns + LOOK_AFTER_NS)
        if self._follow_ways(now_ns) or changes.new:
            self._sees_writes = self.checks.watch_files()
        if changes.new and not self._sees_writes:
            self.book.on_fault("inotify", "no room for more watches: raise fs.inotify.max_user_watches")
        if self.ways.gather(self.table):
            self._look_again, self._look_ns = True, now_ns + AGAIN_NS  # until nothing new turns up
        for job, text in self.ways.troubles().items():
            self.book.on_fault("yields_not", text, job)
        jobs = self.jobs(now_ns) | self.table.jobs()
        self.meters.track({job: self.table.pids_of_job(job) for job in jobs}, now_ns)

    def _follow_ways(self, now_ns: int) -> bool:
        """Take note of how jobs are held now; whether that has changed."""
        changed = self.ways.follow(self.talk.timeline, self._number(now_ns), self.table, now_ns)
        self.gate.let_yield(self.ways.yielding)
        return changed

    def check(self, now_ns: int, *, everything: bool = True) -> None:
        """Look at states and signals of the steps that concern us, or at what nobody tells of alone."""
        self._resync()
        self.checks.on_writes(now_ns)
        spared = self.ways.yielding.union(self.talk.timeline.exempt.suspended)
        keys = self.table.keys_of(self.jobs(now_ns) - spared)
        self.checks.on_states(
            keys, now_ns, settled=everything or not self._is_told() or self.memory.has_strangers
        )
        if now_ns >= self._signals_ns:
            self._signals_ns = now_ns + SIGNALS_NS
            self.checks.on_signals(keys, now_ns)

    def act(self, now_ns: int, *, reassert: bool = False) -> None:
        """Renew the lease, decide for now, write the difference, and prepare the next switch.

        With ``reassert`` steps that are held already are frozen again, which catches tasks that were born
        since (a freezer writes only what is not frozen yet).
        """
        if self.switch.has_made():
            self.on_switches(now_ns)
        self._renew(now_ns)
        if self._follow_ways(now_ns):
            reassert, self._look_again, self._look_ns = True, True, now_ns + AGAIN_NS
        verdict = self._decide(self._planned(self._current), now_ns)
        held = list(self.gate.held)
        freeze = [key for key in verdict.hold if reassert or key not in held]
        thaw = [key for key in held if key not in verdict.hold]
        if freeze or thaw:
            applied = self.gate.apply(freeze, thaw, turn=self._turn)
            self._on_applied(applied)
            if self.switch.has_made():  # maybe nothing was done, as the next slice has begun: decide for that
                self._collect_ns = now_ns + AGAIN_NS
            if reassert and any(outcome.did is Did.WROTE for outcome in applied.outcomes):
                self._look_again, self._look_ns = True, now_ns + AGAIN_NS  # until nothing new turns up
        self._again_ns = verdict.again_ns
        for key, why in verdict.spared.items():
            if why is Why.LONG:
                self.checks.stuck[key] = REST_OF_SLICE_NS
            if why in (Why.LONG, Why.SLURMSTEPD):
                self.book.on_fault(f"spared_{why.value}", f"step {key} is not held", key.job)
        self._prepare(now_ns)

    def on_time(self, now_ns: int) -> None:
        """Do what is due at ``now_ns``."""
        self.talk.on_time(now_ns)
        if self.talk.hand_over(now_ns):
            self.on_plan(now_ns)
        if self._collect_ns is not None and now_ns >= self._collect_ns:
            self._collect(now_ns)
        if self.checks.due_ns is not None and now_ns >= self.checks.due_ns and self.checks.on_time(now_ns):
            self.act(now_ns)
        if now_ns >= self._look_ns:
            self.look(now_ns, new=self._look_again)
        elif self._must_act(now_ns):
            self.act(now_ns)
        if now_ns >= self._leak_ns and self.gate.held_lately:
            self._look_for_leaks(now_ns)

    def due_ns(self, now_ns: int) -> int:
        """When ``on_time`` has something to do again."""
        times = [self.talk.due_ns(now_ns), self._look_ns, self._report_ns]
        optional = (self._again_ns, self._slice_ns, self._collect_ns, self.checks.due_ns)
        times += [time for time in optional if time is not None]
        if self.gate.held_lately:
            times += [self.gate.lease.until_ns(), max(self._leak_ns, now_ns)]
        return min(times)

    def wants_report(self, now_ns: int) -> bool:
        """Whether a report should be sent now."""
        return now_ns >= self._report_ns or self.book.has_urgent()

    def put_off_report(self, now_ns: int) -> None:
        """Try again later: nobody takes the report now, and it must not stay due."""
        self._report_ns = now_ns + REPORT_NS

    def report(self, now_ns: int) -> None:
        """Put a report into the outbox."""
        self._report_ns = now_ns + REPORT_NS
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
        self.talk.outbox.append(self.book.report(sender, self.talk.foreign))
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
        self.gate.lease.set_until((timeline.lease_until_ns or 0) if trusted and self.guarded else 0)
        exempt = timeline.exempt
        self.gate.bar(
            frozenset(
                (*self.memory.dying_at(now_ns), *exempt.never_freeze, *exempt.opt_out, *exempt.suspended)
            )
        )
        if timeline.epoch is None:
            self._current = None
        if timeline.controller != self._follows:
            self.switch.prepare()
            # Every controller counts its slices anew, and one of them may run already.
            offset = self.talk.offset(now_ns)
            self._current = None if offset is None else timeline.slice_at(now_ns + offset.offset_ns)
            self.book.on_launched(self.table.launched)
        self._follows = timeline.controller

    def _resync(self) -> None:
        """Take note if guardian or operator thawed behind our back, before it looks like a stranger."""
        trips = self.gate.lease.trips()
        if trips != self._trips:
            self._trips = trips
            self.gate.thaw_all()
            self.book.on_fault("thawed_by_guardian", "the guardian or an operator thawed what was held here")

    def _decide(self, planned: frozenset[int], now_ns: int) -> Verdict:
        situation = Situation(
            now_ns=now_ns,
            open=self.gate.lease.valid(now_ns),
            planned=planned,
            steps=self.table.views(),
            ours=self.gate.held,
            dying=self.memory.dying_at(now_ns),
            strangers=self.memory.strangers(),
            stuck=self.checks.stuck_at(now_ns),
            yielding=self.ways.yielding,
            newcomers=self.ways.newcomers,
        )
        return decide(situation, self.limits)

    def _prepare(self, now_ns: int) -> None:
        """Prepare the switches from the slice after the one that runs to the next look, and one more."""
        offset = self.talk.offset(now_ns)
        timeline = self.talk.timeline
        self._slice_ns = None
        number = None if offset is None else self._next_number(now_ns + offset.offset_ns, now_ns)
        start_ns = None if number is None else timeline.start_ns(number)
        if offset is None or number is None or start_ns is None:
            self.switch.prepare()
            return
        instant_ns = start_ns - offset.offset_ns
        if not timeline.jobs(number) and not self.gate.held:
            self.switch.prepare()
            self._close_slice(now_ns, offset.offset_ns)
            self._slice_ns = max(instant_ns, now_ns + AGAIN_NS)
            return
        situation = Situation(
            now_ns=now_ns,
            open=True,  # the gate looks at the lease when the instant has come
            planned=frozenset(),
            steps=self.table.views(),
            ours=self.gate.held,
            dying=self.memory.dying_at(now_ns),
            strangers=self.memory.strangers(),
            yielding=self.ways.yielding,
            newcomers=self.ways.newcomers,
        )
        calm = self._is_calm(timeline.jobs(number), now_ns)
        queue = switches_to_look(timeline, number, offset.offset_ns, situation, self.limits, calm=calm)
        if queue != self.switch.queue() or not self.switch.is_planned:
            self.switch.prepare(*queue)
        if self._collect_ns is None:
            look = next_look(number, timeline.length_ns(number) or 1, calm=calm)
            look_ns = next((each.instant_ns for each in queue if each.number >= look), queue[-1].instant_ns)
            self._collect_ns = max(look_ns, now_ns) + LOOK_AFTER_NS

    def _is_calm(self, jobs: frozenset[int], now_ns: int) -> bool:
        """Whether all goes on as it has for seconds: then the next looks may be left out."""
        if not self._is_told() or self._has_young(now_ns) or self.memory.has_strangers:
            return False
        return not self.memory.dying_at(now_ns) and all(self.meters.is_steady(job, now_ns) for job in jobs)

    def _is_told(self) -> bool:
        """Whether nothing that matters comes, goes or is written without a notice."""
        return self.told and self._sees_writes

    def _has_young(self, now_ns: int) -> bool:
        newest_ns = self.table.newest_ns()
        return newest_ns is not None and now_ns < newest_ns + YOUNG_NS

    def _next_number(self, controller_ns: int, now_ns: int) -> int | None:
        pending = self.switch.prepared()
        if pending is not None and pending.instant_ns <= now_ns:
            return pending.number  # its instant has come, and the switch thread is about to act on it
        running = self.talk.timeline.slice_at(controller_ns)
        if running is None:
            return self.talk.timeline.first_slice()
        return running + 1 if self._current is None else max(running, self._current) + 1

    def _on_switched(self, switched: Switched, now_ns: int) -> None:
        offset = self.talk.offset(now_ns)
        self.book.on_switch(switched, self.ways.yielding, 0 if offset is None else offset.offset_ns)
        if switched.late_ns > LATE_NS:
            late_ms = switched.late_ns / 1e6
            self.book.on_fault(
                "late_switch", f"slice {switched.prepared.number} began {late_ms:.0f} ms after its instant"
            )
        self._current = switched.prepared.number
        self._turn = switched.turn
        self.talk.timeline.prune(self._current)
        self.checks.begin_slice(switched.prepared.thaw)
        self._note_outcomes(switched.applied)

    def _close_slice(self, now_ns: int, offset_ns: int) -> None:
        if self.book.current is not None:
            for sample in self._sample([self.book.current], now_ns).get(0, ()):
                self.book.on_sample(sample)
            self.book.end_slice(offset_ns)

    def _sample(
        self, ended: list[Switched | None], now_ns: int, begun_ns: int | None = None
    ) -> dict[int, list[JobSample]]:
        timeline, yielding = self.talk.timeline, self.ways.yielding
        return sample_slices(ended, timeline, yielding, self.meters, self._cgroups_ns, now_ns, begun_ns)

    def _sample_alone(self, now_ns: int) -> None:
        """Read, once a second, the jobs that no slice names: what they do tells what they will do there."""
        if now_ns < self._alone_ns:
            return
        self._alone_ns = now_ns + ALONE_NS
        for job in self.table.jobs() - self.jobs(now_ns):
            if self.meters.due(job, now_ns):
                found = self.meters.sample(job, self._cgroups_ns(job), now_ns)
                for sample in (found.own, found.leftover):
                    if sample is not None:
                        self.book.on_alone(sample)

    def _look_for_leaks(self, now_ns: int) -> None:
        if self.switch.has_made():  # who is held is not known before the next look: then, later in the slice
            prepared = self.switch.prepared()
            rest_ns = LOOK_AFTER_NS if prepared is None else max(0, prepared.instant_ns - now_ns) // 2
            self._leak_ns = max(self._collect_ns or now_ns, now_ns) + min(rest_ns, 2 * LOOK_AFTER_NS)
            return
        self._leak_ns = now_ns + LEAK_LOOK_NS
        for job in {key.job for key in self.gate.held} - self.ways.yielding:
            leaked_ns = self.meters.leak(job, self._cgroups_ns(job))
            if leaked_ns is not None:
                self.book.on_leak(job, leaked_ns)

    def _cgroups_ns(self, job: int) -> dict[str, int]:
        used = {str(key): self.gate.cpu_ns(key) for key in self.table.keys_of(frozenset((job,)))}
        return {name: cpu_ns for name, cpu_ns in used.items() if cpu_ns is not None}

    def _on_applied(self, applied: Applied) -> None:
        held = frozenset(key.job for key in self.gate.held)
        self.meters.on_held(held, self.ways.yielding, applied.end_ns, applied.used_ns)
        self._note_outcomes(applied)

    def _note_outcomes(self, applied: Applied) -> None:
        if applied.refused:
            self.book.on_fault("lease_over", "the lease did not allow to hold: everything was thawed")
        for outcome in applied.outcomes:
            if outcome.did is Did.FAILED:
                self.book.on_fault("write_failed", f"step {outcome.key}: {outcome.text}", outcome.key.job)

    def _planned(self, number: int | None) -> frozenset[int]:
        return frozenset() if number is None else self.talk.timeline.held(number)

    def jobs(self, now_ns: int) -> frozenset[int]:
        """Jobs that the schedule names around now."""
        number = self._number(now_ns)
        if number is None:
            return frozenset()
        return self.talk.timeline.jobs(number) | self.talk.timeline.jobs(number + 1)

    def _number(self, now_ns: int) -> int | None:
        """Slice that runs, or the next one if none does."""
        if self._current is not None:
            return self._current
        offset = self.talk.offset(now_ns)
        return None if offset is None else self._next_number(now_ns + offset.offset_ns, now_ns)

    def _must_act(self, now_ns: int) -> bool:
        """Whether time alone changes what is to be held."""
        if self.gate.held_lately and not self.gate.lease.valid(now_ns):
            return True
        return any(time is not None and now_ns >= time for time in (self._again_ns, self._slice_ns))
