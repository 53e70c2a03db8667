"""The daemon's one visible loop: wait for sockets, switches, cgroups, guardian and signals; pass them on."""

from __future__ import annotations

import os
import select
import signal
import time
import traceback
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import FrameType

from foundation.errors import HostError, OsubError
from foundation.notify import Notifier
from gangd.agent.agenda import Agenda, AgendaItem
from gangd.agent.controller_lines import ControllerLines
from gangd.agent.conversation import GOOD_NEWS
from gangd.agent.linux_host import Bell, FolderWatch, demote, promote
from gangd.agent.memory_process import MeasuredMemory, MemoryProcess, MemoryTask
from gangd.agent.node_agent import NodeAgent
from gangd.agent.process_scan import SLACK_NS, ProcessScan, UnseenSteps
from gangd.agent.switch_thread import SwitchThread
from gangd.agent.telemetry import AgentMetrics, AgentReading, JsonLog
from gangd.freezer.procfs import WORK, WORK_NS, is_shortage
from gangd.freezer.slurm_layout import MOST_NAMED
from gangd.guardian.spawn import Guardian
from gangd.guardian.statefile import StateFile
from gangd.wire.messages import Farewell, Message, ReportedJobMemory, ReportedMemory

WELL_NS = 1_000_000_000
RECOVERY_NS = 5_000_000_000
"""An agent that gave up its priority has it back after so long."""
FOLDERS_SHARE = 5
"""A look at folders that was long is followed by the next one after so many times as long."""
GUARDIAN_RETRY_NS = 5_000_000_000
_LEAVE = (signal.SIGTERM, signal.SIGINT)


@dataclass
class Loop:
    """Runs one node's agent until a signal ends it; SIGHUP has it read keys and settings again.

    Parameters
    ----------
    node
        The agent's mind.
    lines
        To the controllers that there may be: one, or an active one and its standbys.
    switch
        The thread that switches.
    state
        The state file that the guardian shares.
    watch
        Slurm's folders; None without cgroups.
    log
        Where events go.
    census
        Of all processes of the host.
    bell
        Rung by slurmd's prolog and epilog; None where there is none.
    metrics
        Updated once a second, if it is served.
    """

    node: NodeAgent
    lines: ControllerLines
    switch: SwitchThread
    state: StateFile
    watch: FolderWatch | None
    log: JsonLog
    census: ProcessScan
    metrics: AgentMetrics
    bell: Bell | None = None
    _without_steps: int = 0
    _demoted: dict[int, tuple[int, int]] = field(default_factory=dict)
    _recovers_ns: int | None = None
    _busy_at: list[str] = field(default_factory=list)
    _folders_from_ns: int = 0
    _unseen: UnseenSteps = field(default_factory=UnseenSteps)
    _guardian: Guardian | None = None
    _memory: MemoryProcess | None = None
    _measured: MeasuredMemory | None = None
    _pids: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _signals: tuple[int, int] = (-1, -1)
    _poller: select.poll = field(default_factory=select.poll)
    _socket_fds: set[int] = field(default_factory=set)
    _notifier: Notifier = field(default_factory=Notifier)

    @property
    def agenda(self) -> Agenda:
        """What there is to do, and when."""
        return self.node.agenda

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT; everything is thawed on every way out. Returns the exit code."""
        self._signals = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        old = signal.set_wakeup_fd(self._signals[1])
        for number in (*_LEAVE, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGXCPU, self._exhausted)
        reason = "failed"
        self.agenda.set(AgendaItem.CENSUS, 0, SLACK_NS)
        self.agenda.set(AgendaItem.MEMORY, 0)
        try:
            self._start_guardian(time.monotonic_ns())
            self._watch_folders(time.monotonic_ns())
            self._notifier.ready()
            reason = self._serve()
        except BaseException as error:
            reason = f"failed: {type(error).__name__}: {error}"[:200]
            raise
        finally:
            self._notifier.leaving()
            self.node.leave()
            self._leave(reason)
            signal.set_wakeup_fd(old)
            self._notifier.close()
        return 0

    def _serve(self) -> str:
        poller = self._poller
        self._socket_fds = self.lines.fds()
        readers = [self.switch.alarm_fd, self._signals[0], *self._socket_fds]
        if self.watch is not None:
            readers.append(self.watch.fd)
        if self.bell is not None:
            readers.append(self.bell.fd)
        for fd in readers:
            poller.register(fd, select.POLLIN)
        while True:
            now_ns = time.monotonic_ns()
            self._notifier.alive(now_ns)
            wait_ns = self.node.due_ns() - now_ns
            events = poller.poll(0)
            if not events and wait_ns > 0:
                events = poller.poll(wait_ns / 1e6)
                WORK.renew()
            else:
                WORK.pause_if_spent()
            ready = {fd for fd, _ in events}
            if self._signals[0] in ready:
                received = os.read(self._signals[0], 64)
                leave = next((number for number in received if number in _LEAVE), None)
                if leave is not None:
                    return signal.Signals(leave).name
                if signal.SIGHUP in received:
                    self._reload()
            if self._guardian is not None and self._guardian.pidfd in ready:
                self.agenda.set(AgendaItem.WELL, 0)
            self._turn(time.monotonic_ns(), ready)

    def _reload(self) -> None:
        """Read keys and settings again; what is held stays held, up to the lease of the plan."""
        self._notifier.reloading(time.monotonic_ns())
        try:
            anew = self.lines.reload()
        except OsubError as error:
            self.log("reload_refused", text=str(error))
            self.node.book.on_fault("reload_refused", str(error))
        else:
            self.node.hold_extern(wanted=self.lines.reach.hold_extern)
            if anew:
                for fd in self._socket_fds:
                    self._poller.unregister(fd)
                self._socket_fds = self.lines.fds()
                for fd in self._socket_fds:
                    self._poller.register(fd, select.POLLIN)
                self.node.talk.connect_anew(time.monotonic_ns())
            self.log("reloaded", connected_anew=anew, controllers=len(self.lines.reach.controllers))
        self._notifier.ready()

    def _turn(self, now_ns: int, ready: set[int]) -> None:
        self._take_notices(now_ns, ready)
        if ready & self._socket_fds:
            self._take_messages()
        now_ns = time.monotonic_ns()
        self.node.on_time(now_ns)
        if self.agenda.take(AgendaItem.WELL, now_ns):
            self._look_after_switch(now_ns)
            self._recover(now_ns)
            self._look_after_guardian(now_ns)
            self.lines.look_after(now_ns, self.node.talk.line, self.node.talk.timeline.lease_ns)
            if self.metrics.is_served:
                self.metrics.update(self._reading(now_ns))
        if self.agenda.take(AgendaItem.MEMORY, now_ns):
            self._look_after_memory(now_ns)
        if self._memory is not None:
            self._follow_memory(self._memory, ready)
        if self.agenda.take(AgendaItem.CENSUS, now_ns):
            self._take_census(now_ns)
        if self.node.wants_report(now_ns, self._can_send):
            self.node.report(now_ns)
        if self.node.talk.outbox:
            self._send()
        self._tell_events()
        self.switch.rearm()

    def _can_send(self) -> bool:
        return any(line.is_writable() for line in self.lines.in_use(self.node.talk.line))

    def _take_notices(self, now_ns: int, ready: set[int]) -> None:
        self._take_exhaustion(now_ns)
        if self.switch.alarm_fd in ready:
            os.eventfd_read(self.switch.alarm_fd)
            if self.switch.failure is not None:
                raise self.switch.failure
            self.node.on_switches(now_ns)
        if self.watch is not None and self.watch.fd in ready and self.watch.changed():
            self.agenda.sooner(AgendaItem.FOLDERS, max(now_ns, self._folders_from_ns))
        if self.bell is not None and self.bell.fd in ready:
            self._answer_bell(self.bell, now_ns)
        if self.agenda.take(AgendaItem.FOLDERS, now_ns):
            self._watch_folders(now_ns)

    def _watch_folders(self, now_ns: int) -> None:
        """Look; folders that were not watched yet may have changed before, and are looked at once more."""
        began_ns = time.thread_time_ns()
        self.node.look(now_ns)
        if self.watch is None:
            return
        new = self.watch.set_folders(self.node.gate.holder.folders())
        self.node.looks.is_notified = self.watch.complete
        if not self.watch.complete:
            self.node.book.on_fault(
                "inotify", "no more folders can be watched: raise fs.inotify.max_user_watches"
            )
        cost_ns = time.thread_time_ns() - began_ns
        self._folders_from_ns = now_ns + (FOLDERS_SHARE * cost_ns if cost_ns > WORK_NS else 0)
        if new:
            self.agenda.sooner(AgendaItem.FOLDERS, self._folders_from_ns)

    def _exhausted(self, _: int, frame: FrameType | None) -> None:
        """Handle SIGXCPU, anywhere in the loop: give up the priority, and the lease with it."""
        self.node.exhausted = True
        self.node.gate.lease.set_until(0)
        self._demoted = demote() or self._demoted
        self._busy_at = [
            f"{at.f_globals['__name__']}.{at.f_code.co_name}:{line}"
            for at, line in traceback.walk_stack(frame)
        ]

    def _take_exhaustion(self, now_ns: int) -> None:
        if not self.node.exhausted or self._recovers_ns is not None:
            return
        self._recovers_ns = now_ns + RECOVERY_NS
        text = (
            "the agent computed without a pause for too long: it gave up its real-time priority and "
            f"resumed all jobs for {RECOVERY_NS / 1e9:g} s"
        )
        self.log("exhausted", text=text, at=self._busy_at)
        self.node.book.on_fault("exhausted", text)
        self.node.act(now_ns)

    def _recover(self, now_ns: int) -> None:
        """Take the real-time priority back in time, and hold jobs again."""
        if self._recovers_ns is not None and now_ns >= self._recovers_ns:
            promote(self._demoted)
            self.node.exhausted, self._demoted, self._recovers_ns = False, {}, None
            self.log("recovered")
            self.node.act(now_ns)

    def _answer_bell(self, bell: Bell, now_ns: int) -> None:
        """Look at once, and tell the controller of a job that begins, whose cgroups may not be there yet."""
        rings = bell.take()
        if rings.refused:
            self.node.book.on_fault("bell", "a datagram did not come from slurmd, or names no job")
        self.node.book.on_born(rings.begun - self.node.table.jobs())
        if rings.begun or rings.ended:
            self.agenda.sooner(AgendaItem.FOLDERS, max(now_ns, self._folders_from_ns))

    def _take_messages(self) -> None:
        if self._receive():
            self.node.on_plan(time.monotonic_ns())

    def _tell_events(self) -> None:
        for event in self.node.talk.events:
            self.log(event.kind, text=event.text)
            if event.kind not in GOOD_NEWS:
                self.node.book.on_fault(event.kind, event.text)
        self.node.talk.events.clear()

    def _receive(self) -> bool:
        """Take in every message that waits; returns whether the schedule, exemptions or lease may differ."""
        talk, changed = self.node.talk, False
        for place, line in enumerate(self.lines):
            for frames in line.plans():
                changed = talk.on_down(frames, time.monotonic_ns(), place) or changed
            for body in line.replies():
                changed = talk.on_reply(body, time.monotonic_ns(), place) or changed
        return changed

    def _send(self) -> None:
        outbox = self.node.talk.outbox
        while outbox:
            self._send_one(outbox.popleft())
        # Sending may swallow the sign that a message has come: descriptors tell of changes only.
        if any(line.is_readable() for line in self.lines):
            self._take_messages()

    def _send_one(self, message: Message) -> None:
        """Send to the controller that is obeyed; to all while none is known to listen."""
        talk = self.node.talk
        sent = [line.send(message, talk.speaks) for line in self.lines.in_use(talk.line)]
        if not any(sent):
            self.node.talk.on_unsent(message, time.monotonic_ns())

    def _look_after_switch(self, now_ns: int) -> None:
        """Leave, with everything thawed, if the thread that switches is dead or stuck."""
        if not self.switch.is_well(now_ns):
            raise HostError("the switch thread is dead or stuck; everything is thawed, start the agent again")

    def _look_after_guardian(self, now_ns: int) -> None:
        """Replace a guardian that is dead or asleep; without one everything is thawed and stays so."""
        self._look_at(now_ns + WELL_NS)
        if self._guardian is not None and self._guardian.well():
            return
        self.node.guarded = False
        self.node.act(now_ns)
        if self._guardian is not None:
            self.log("guardian_lost", pid=self._guardian.pid)
            self._poller.unregister(self._guardian.pidfd)
            self._guardian.replace()
            self._guardian = None
        self._start_guardian(now_ns)

    def _start_guardian(self, now_ns: int) -> None:
        try:
            self._guardian = Guardian.start(self.state)
        except (HostError, OSError) as error:
            self.node.guarded = False
            self._look_at(now_ns + GUARDIAN_RETRY_NS)
            self.log("guardian_missing", text=str(error))
            self.node.book.on_fault("guardian_missing", str(error))
        else:
            self.node.guarded = True
            self._poller.register(self._guardian.pidfd, select.POLLIN)
            self._look_at(now_ns + WELL_NS)
            self.log("guardian_started", pid=self._guardian.pid)

    def _look_after_memory(self, now_ns: int) -> None:
        """Have memory measured, or no more, as the schedule says; by another process where one has died."""
        self.agenda.set(AgendaItem.MEMORY, now_ns + WELL_NS, now_ns + WELL_NS + SLACK_NS)
        if self.node.talk.timeline.memory is None:
            self._end_memory()
            return
        table = self.node.table
        self._pids = {job: table.pids_of_job(job) for job in sorted(table.jobs())}
        if self._memory is None:
            try:
                self._memory = MemoryProcess()
            except HostError as error:
                self.node.book.on_fault("memory", str(error))
            else:
                self._poller.register(self._memory.fd, select.POLLIN)

    def _follow_memory(self, memory: MemoryProcess, ready: set[int]) -> None:
        """Say who is frozen and who runs next, and take what was measured."""
        terms, switch = self.node.talk.timeline.memory, self.switch.prepared()
        held = {key.job for key in self.node.gate.held_lately} - self.node.ways.yielding
        task = MemoryTask(self._pids, frozenset(held), reclaim_kib=0)
        if terms is not None and terms.reclaim:
            task = task._replace(reclaim_kib=terms.short_kib)
        if switch is not None and terms is not None and terms.reclaim:
            lasts_ns = self.node.talk.timeline.length_ns(switch.number) or 0
            task = task._replace(
                coming=frozenset(key.job for key in switch.thaw),
                coming_ns=switch.instant_ns,
                lasts_ns=lasts_ns,
            )
        memory.tell(task)
        try:
            measured = memory.take() if memory.fd in ready else None
        except HostError as error:
            self.node.book.on_fault("memory", str(error))
            self._end_memory()
            return
        if measured is not None and terms is not None:
            self._measured = measured
            reported = ReportedMemory(
                measured.available,
                measured.stall,
                measured.stalled_us,
                tuple([ReportedJobMemory(*one) for one in measured.jobs]),
            )
            self.node.book.on_memory(reported, short=measured.available < terms.short_kib)

    def _end_memory(self) -> None:
        if self._memory is not None:
            self._poller.unregister(self._memory.fd)
            self._memory.close()
            self._memory = self._measured = None

    def _look_at(self, at_ns: int) -> None:
        """Check at an instant whether all is well, or a little later if the loop sleeps."""
        self.agenda.set(AgendaItem.WELL, at_ns, at_ns + SLACK_NS)

    def _reading(self, now_ns: int) -> AgentReading:
        node, tally = self.node, self.node.book.tally
        offset = node.talk.offset(now_ns)
        held = frozenset(node.gate.held)
        yielding = sum(key.job in node.ways.yielding for key in held)
        return AgentReading(
            at_ns=now_ns,
            lease_until_ns=node.gate.lease.until_ns(),
            heard_lately=node.gate.lease.valid(now_ns),
            guarded=node.guarded,
            clock_bound_s=None if offset is None else offset.bound_ns / 1e9,
            jobs=len(node.table.jobs()),
            steps=len(node.table.views()),
            without_steps=self._without_steps,
            frozen=len(held) - yielding,
            yielding=yielding,
            late=tally.late.buckets(),
            switched=tally.switched.buckets(),
            frozen_s=tally.frozen_s,
            yielded_s=tally.yielded_s,
            leaked_s=tally.leaked_s,
            faults=dict(tally.faults),
            reports=tally.reports,
            memory=self._measured,
        )

    def _take_census(self, now_ns: int) -> None:
        """Go on looking at all processes, and tell what was found once around."""
        table, book = self.node.table, self.node.book
        unseen: AbstractSet[int] = frozenset()  # without cgroups, slurmstepd is what steps are found by
        if self.watch is not None:
            unseen = self._unseen.jobs(self.node.jobs(now_ns), table.known_jobs())
        jobs = table.oldest_jobs()
        found = self.census.walk(frozenset(jobs), now_ns, stepds=bool(unseen))
        if found is None:
            return
        members = table.members()  # Slurm need not have them in a cgroup
        for uid, pids, text, job in found.stray_faults(members, jobs):
            book.on_fault("stray", text, job)
            self.log("stray", uid=uid, pids=pids[:8])
        self._without_steps = len(unseen)
        for trouble in self.node.gate.holder.troubles():
            book.on_fault(trouble.kind, trouble.text, trouble.job)
            self.log(trouble.kind, job=trouble.job, text=trouble.text)
        unknown = []
        try:
            unknown = self.node.gate.holder.unknown()
        except OSError as error:
            if not is_shortage(error):
                raise
        odd = {one.path: f"{one.path} has processes and {one.why}" for one in unknown}
        odd |= {
            f"slurmstepd {pid}": f"slurmstepd {pid} is called {line!r}, which tells no step"
            for pid, line in found.unread.items()
        }
        for name, text in list(self._unseen.lasting(odd).items())[:MOST_NAMED]:
            book.on_fault("unknown_folder", f"{text}: its job is never held; see `osub doctor`")
            self.log("unknown_folder", what=name, text=text)
        for key, pid in self._unseen.judge(unseen, found.stepds).items():
            text = f"slurmstepd {pid} serves step {key}, and no step of the job was found: it is never held"
            book.on_fault("no_step", text, key.job)
            self.log("no_step", job=key.job, step=str(key), slurmstepd=pid)

    def _leave(self, reason: str) -> None:
        hello = self.node.talk.hello
        if self._memory is not None:
            self._memory.close()
        self._send_one(Farewell(node=hello.node, incarnation=hello.incarnation, reason=reason))
        if self._guardian is not None:
            if self.node.gate.held or any(self.state.held()):
                self._guardian.abandon()  # something could not be thawed: the guardian goes on trying
            else:
                self._guardian.farewell()
        self.log("left", reason=reason)
        self.switch.stop()
        self.lines.close()
        if self.bell is not None:
            self.bell.close()
        for fd in self._signals:
            os.close(fd)
