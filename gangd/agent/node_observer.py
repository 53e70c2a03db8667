"""Looking at this node: steps that come and go, what they use, who else lays hands on them; how often.

A look on a job's core costs the job more than the look's own time, so that nothing is looked at oftener than
it is cheap enough, or than it tells anything. What is found is noted; what follows from it, the caller
decides.
"""

from __future__ import annotations

import time

from gangd.agent.agenda import Agenda, AgendaItem, Rest
from gangd.agent.hold_modes import HoldModes
from gangd.agent.sight.external_changes import ExternalChangeTracker
from gangd.agent.sight.freeze_verifier import Checks
from gangd.agent.sight.job_meters import JobMeters
from gangd.agent.sight.steps import StepTable
from gangd.agent.slice_tracker import AGAIN_NS, LOOK_AFTER_NS, SliceTracker
from gangd.agent.switching.switch_thread import Switch
from gangd.agent.talk.conversation import Conversation
from gangd.agent.talk.report_buffer import SliceBook
from gangd.freezer.procfs import WORK, is_shortage

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
    ) -> None:
        self.is_notified = False
        self.for_new = True
        self._sees_writes = True
        self._cost_ns = 0
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
        began_ns = time.thread_time_ns()
        changes = self._table.refresh(now_ns)
        share = SCAN_SHARE if self._gate.holder.traits.searches_processes else LIST_SHARE
        self._cost_ns = time.thread_time_ns() - began_ns
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
