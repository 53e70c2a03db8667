"""The controller's one loop: take what came, tick when the agents have looked, beat, write the status.

Order within a turn: signals, upward messages, Slurm's answers, then what the clock says is due. The core
decides, ``CommandExecutor`` carries it out. Nothing here waits for anything but the poller.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet

import msgspec
import zmq

from foundation.errors import OsubError
from foundation.notify import Notifier
from foundation.slurm import SlurmClient
from foundation.units import counted, counted_of
from gangd.controller.alarms import (
    UnreadJobLog,
    alarm_of,
    alarms_of,
    damaged_state,
    refused_opt_outs,
    unplaced,
)
from gangd.controller.command_executor import CommandExecutor
from gangd.controller.controller_config import Config
from gangd.controller.controller_status import (
    ControllerMetrics,
    ControllerReading,
    ControllerStatus,
    Vitals,
    census,
    describe,
)
from gangd.controller.failover import ANNOUNCE_NS, FailoverGrace, read_signals, signal_pipe
from gangd.controller.fanout import BeatRounds, Fanout
from gangd.controller.intake import Intake
from gangd.controller.job_policy import policy_of
from gangd.controller.live_pairs import LivePairs
from gangd.controller.operators import Operators
from gangd.controller.slicelog import SliceLog
from gangd.controller.slurm_view import ClusterView
from gangd.controller.slurm_worker import Answer, Checked, Failed, Marked, SlurmObserved, SlurmWorker
from gangd.controller.state_directory import StateDirectory
from gangd.controller.uplink import Uplink
from gangd.core.cores import CoreMap
from gangd.core.scheduler import GangScheduler
from gangd.core.scheduler_events import Alarm, NodeReport, Reload, Shutdown, SlurmChanges, SlurmSnapshot, Tick
from gangd.core.states import AgentState
from gangd.curve_keys import SHARED_AGENT
from gangd.daemon_process import Death, drained
from gangd.wire.slice_schedule import next_look
from gangd.wire.sockets import ControllerSockets

log = logging.getLogger("gangd")

TICK_DELAY_NS = 60_000_000  # reports of the slice before are in by then, if not at once
SLACK_NS = (
    120_000_000  # what is due so soon after a tick is done with it: waking up costs more than most work
)
SOON_NS, TICK_SHARE = 20_000_000, 20
"""A change is decided on so soon, with all that comes until then; for at most 1/TICK_SHARE of a core."""
BEATS_A_LEASE = 4
STATUS_EVERY_NS, STATUS_SHARE, STATUS_SELDOM_NS = 1_000_000_000, 40, 5_000_000_000
"""The status is written so often, or as often as it takes 1/STATUS_SHARE of a core (with 100,000 jobs on
10,000 nodes it takes 0.1 s), but no more seldom than the last."""
SAVE_LEAST_NS, SAVE_SHARE, SAVE_EVERY_NS = 1_000_000_000, 50, 10_000_000_000
"""The state is written once a second, or as often as it takes 1/SAVE_SHARE of a core, and no more seldom than
the last: who takes over knows the gangs as they were a moment ago."""
FAREWELLS = 3
MOST_REMEMBERED = 20_000
"""Gangs that are remembered all along; more, which would take too long of a slice, when it leaves."""
SHARED_TEXT = "one key may speak for every node: make one for each (gangd keys --agents), remove _shared.key"


class ControllerLoop:
    """One running controller.

    Parameters
    ----------
    config
        The configuration.
    client
        View of Slurm; used by a thread.
    sockets
        Bound sockets.
    keeper
        The state folder, locked.
    reload
        Reads the configuration again, for SIGHUP.
    partitions
        Which partitions Slurm has; none where that is not known.
    dry_run
        Decide and log, but tell the agents nothing and move no end.
    """

    def __init__(
        self,
        config: Config,
        client: SlurmClient,
        sockets: ControllerSockets,
        keeper: StateDirectory,
        reload: Callable[[], Config],
        partitions: AbstractSet[str] = frozenset(),
        *,
        dry_run: bool = False,
        clock: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        now_ns = clock()
        self.controller = keeper.begin(wall())
        settings = config.settings(len(keeper.state.nodes))
        self._config = config
        self._sockets = sockets
        self._keeper = keeper
        self._reload = reload
        self._clock = clock
        self._wall = wall
        self._cores = CoreMap(keeper.state.nodes)
        self._view = ClusterView(self._cores, policy_of(config))
        self._scheduler = GangScheduler(
            settings, now_ns, self._cores, keeper.state.limits, keeper.state.gangs, self._away_ns(wall())
        )
        self._comeback = FailoverGrace(keeper.state.joined, now_ns, settings.lease_ns)
        self._fanout = Fanout(
            self.controller,
            self._cores,
            self._scheduler.time,
            settings.lease_ns,
            config.bounds(),
            config.memory_terms(),
        )
        core = self._scheduler
        self._uplink = Uplink(self.controller, self._cores, core.time, core.place, core.is_home)
        self._worker = SlurmWorker(client, config.snapshot_s, clock)
        self._worker.mark_in(config.mark_field())
        self._slices = (
            SliceLog(config.record, wall() / 1e6, now_ns, keeper.status_mode, config.retention(), clock, wall)
            if config.record
            else None
        )
        self._orders = CommandExecutor(
            self._scheduler, self._fanout, sockets, self._worker, self._slices, clock
        )
        self._orders.dry_run = dry_run
        self._orders.version_of = self._uplink.version
        self._orders.held_back = self._comeback.waits
        self._orders.move_ends = config.move_ends
        self._intake = Intake(
            sockets,
            self._cores,
            self._scheduler,
            self._uplink,
            self._orders,
            self._worker.ask_nodes,
            self._fanout.resend,
            clock,
        )
        self._pairs = LivePairs(keeper)
        self._intake.on_report = self._on_report
        self._learn_pairs()
        self._control = keeper.control()
        self._operators = Operators(
            keeper, self._cores, partitions, os.geteuid(), lambda: wall() / 1e9, self._reorder
        )
        self._view.book = self._operators.book
        self._orders.user_of = self._view.user_of
        self._looked: SlurmObserved | None = None
        self._looked_ns: int | None = None
        self._unread = UnreadJobLog()
        self._tick_ns = self._beat_ns = self._status_ns = self._save_ns = now_ns
        self._tick_us, self._look_ns = 0, now_ns
        self.metrics = ControllerMetrics(clock=clock)
        self._slurm_failures = 0
        self._quiet = False
        self._rounds = BeatRounds()
        self._nodes: dict[str, int] = {}
        self._pending: Config | None = None
        self._notifier = Notifier()
        self._expected: set[str] = set()

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then everything is thawed; or SIGUSR2, then nothing is."""
        poller = zmq.Poller()
        poller.register(self._sockets.reports, zmq.POLLIN)
        poller.register(self._worker.fd, zmq.POLLIN)
        poller.register(self._control.fd, zmq.POLLIN)
        with signal_pipe() as pipe:
            poller.register(pipe, zmq.POLLIN)
            self._worker.start()
            self._notifier.ready()
            log.info(
                "controller %s serves %s and %s, slices of %g ms%s",
                self.controller.incarnation.hex()[:12],
                self._sockets.publish_endpoint,
                self._sockets.report_endpoint,
                self._config.quantum_ms,
                "; dry run: nothing is held" if self._orders.dry_run else "",
            )
            try:
                self._serve(poller, pipe)
            finally:
                self._notifier.leaving()
                self._leave()
                self._notifier.close()

    def _serve(self, poller: zmq.Poller, pipe: int) -> None:
        lead = self._keeper.lead
        while True:
            wait_ns = min(self._tick_ns, self._beat_ns, self._status_ns, self._save_ns, lead.due_ns)
            wait_ns -= self._clock()
            ready = dict(poller.poll(0 if self._intake.has_more else max(0, -(-wait_ns // 1_000_000))))
            lead.look(self._clock())
            for number in read_signals(pipe) if pipe in ready else b"":
                if number == signal.SIGHUP:
                    self._read_config()
                elif number == signal.SIGUSR1:
                    self._save_ns = self._clock()
                elif number == signal.SIGUSR2:
                    self._quiet = True
                    log.info(
                        "SIGUSR2: leaving; agents hold their plan up to its lease for the next controller"
                    )
                    return
                else:
                    log.info("%s: thawing everything and leaving", signal.Signals(number).name)
                    return
            self._sockets.access.turned()
            self._intake.take()
            for answer in self._worker.take() if self._worker.fd in ready else ():
                self._take_answer(answer)
            self._control.serve(self._operators.handle, self._clock())
            if self._scheduler.restless:
                soon_ns = max(SOON_NS, 1000 * self._tick_us * TICK_SHARE)
                self._tick_ns = min(self._tick_ns, self._clock() + soon_ns)
            self._on_time()

    def _on_time(self) -> None:
        now_ns = soon_ns = self._clock()
        self._notifier.alive(now_ns)
        if self._orders.held_back and self._is_held_back(now_ns):
            self._tick_ns = self._beat_ns = now_ns + ANNOUNCE_NS
        elif now_ns >= self._tick_ns or self._all_reported(now_ns):
            soon_ns = now_ns + SLACK_NS
            if now_ns >= self._look_ns:
                self._expected, self._intake.heard = self._intake.heard, set()
            began_cpu_ns = time.thread_time_ns()
            lease_ns = self._scheduler.settings.lease_ns
            self._orders.tell(Tick(now_ns, max(self._intake.caught_up_ns, now_ns - lease_ns)))
            slices = self._scheduler.time
            following = slices.slice_at(now_ns) + 1
            length_ns = slices.length_ns(following)
            look = next_look(following, length_ns, calm=self._scheduler.at_rest)
            self._look_ns = slices.start_ns(look)
            self._tick_ns = self._look_ns + min(TICK_DELAY_NS, length_ns // 2)
            self._tick_us = (self._clock() - now_ns) // 1000
            self.metrics.decisions.add(self._tick_us / 1e6)
            self.metrics.decisions_cpu.add((time.thread_time_ns() - began_cpu_ns) / 1e9)
        if soon_ns >= self._beat_ns:
            self._beat(now_ns)
        if soon_ns >= self._status_ns:
            began_ns = self._clock()
            self._orders.attempt("write status", self._write_status)
            pause_ns = STATUS_SHARE * (self._clock() - began_ns)
            self._status_ns = now_ns + min(max(STATUS_EVERY_NS, pause_ns), STATUS_SELDOM_NS)
        if now_ns >= self._save_ns:
            began_ns = self._clock()
            if self._slices is not None:
                self._orders.attempt("record slices", self._slices.flush)
            self._orders.attempt("save state", self._save)
            self._orders.attempt("save pairs", self._pairs.save)
            pause_ns = SAVE_SHARE * (self._clock() - began_ns)
            self._save_ns = now_ns + min(max(SAVE_LEAST_NS, pause_ns), SAVE_EVERY_NS)

    def _beat(self, now_ns: int) -> None:
        """Renew the leases of a part of the nodes; a part that was late makes no other one late."""
        announces = self._rounds.announces
        nodes = self._rounds.take(self._uplink.agents)
        round_ns = self._scheduler.settings.lease_ns // BEATS_A_LEASE
        since_ns = min(now_ns, self._beat_ns) if now_ns - self._beat_ns < round_ns else now_ns
        self._beat_ns = since_ns + round_ns // self._rounds.parts
        self._orders.publish(self._fanout.beats(nodes, now_ns, self._scheduler.horizon))
        if announces:
            self._orders.publish([self._fanout.announce(now_ns)])
        self.metrics.beat_ns = now_ns

    def _is_held_back(self, now_ns: int) -> bool:
        """Announce this controller while plans are held back; False once they go out."""
        looked = self._looked is not None
        self._orders.held_back = self._comeback.look(now_ns, looked, self._scheduler.agent_state)
        if self._orders.held_back:
            self._orders.publish([self._fanout.announce(now_ns)])
        else:
            self._tick_ns = now_ns
        return self._orders.held_back

    def _all_reported(self, now_ns: int) -> bool:
        """Whether every node that reported slices before the last tick has done so since, for this look."""
        return bool(self._expected) and now_ns >= self._look_ns and self._intake.heard >= self._expected

    def _take_answer(self, answer: Answer) -> None:
        if isinstance(answer, SlurmObserved):
            if answer.nodes is not None:
                self._view.know_nodes(answer.nodes)
                self._follow_size()
                self._nodes = {node.name: node.cores for node in answer.nodes if node.cores}
            if answer.reservations is not None:
                self._view.know_reservations(answer.reservations)
            self._operators.see(answer.snapshot)
            if self._slices is not None:
                self._slices.know(answer.snapshot)
            self._pairs.see(answer.snapshot, answer.completed)
            self._looked, self._looked_ns = answer, self._clock()
            self._orders.alarm(Alarm("slurm", "slurm", "Slurm answers again", cleared=True))
            self._orders.alarm(self._unread.look(answer.snapshot.unreadable))
            self._tell_jobs(answer)
            self._orders.alarm(unplaced(self._view.unusable))
            for alarm in refused_opt_outs(self._view.refused):
                self._orders.alarm(alarm)
            self._view.refused.clear()
        elif isinstance(answer, Failed):
            self._slurm_failures += 1
            self._orders.alarm(Alarm("slurm", "slurm", f"cannot {answer.what}: {answer.why}"))
        elif isinstance(answer, Checked):
            self._take_config(answer)
        elif isinstance(answer, Marked):
            self._orders.on_marked(answer.jobs, answer.refused, denied=answer.denied)
        elif isinstance(answer, Death):
            self._orders.alarm(alarm_of(answer))
        else:
            self._orders.on_moved(answer.ends_s, answer.refused)

    def _follow_size(self) -> None:
        """Let the lease be as long as so many nodes need; nodes that leave make it no shorter."""
        lease_ns = self._config.lease_ns(len(self._cores))
        if lease_ns > self._scheduler.settings.lease_ns:
            log.info("%d nodes: the lease is %.1f s", len(self._cores), lease_ns / 1e9)
            self._put_in_force()

    def _put_in_force(self) -> None:
        settings = self._config.settings(len(self._cores))
        self._orders.tell(Reload(self._clock(), settings))
        self._fanout.set_terms(settings.lease_ns, self._config.bounds(), self._config.memory_terms())

    def _tell_jobs(self, looked: SlurmObserved) -> None:
        """Tell the core what Slurm said of jobs, as policy and orders are now."""
        changes = self._view.changes(looked.snapshot)
        views = self._view.views(looked.snapshot) if changes is None else ()
        now_ns, wall_s = self._clock(), self._wall() / 1e9
        self._orders.tell(
            SlurmSnapshot(now_ns, looked.asked_ns, wall_s, views)
            if changes is None
            else SlurmChanges(now_ns, looked.asked_ns, wall_s, *changes)
        )

    def _reorder(self) -> None:
        self._view.forget_views()
        if self._looked is not None:
            self._tell_jobs(self._looked)

    def _read_config(self) -> None:
        """Read the configuration again; Slurm is asked what it bears by the thread that talks to it."""
        self._notifier.reloading(time.monotonic_ns())
        try:
            self._pending = self._reload()
            self._sockets.reload_keys()
        except OsubError as error:
            self._pending = None
            self._refuse_config(str(error))
        else:
            self._worker.check(self._pending)
        # What Slurm says of it comes later, and is an alarm: systemd must not wait for Slurm.
        self._notifier.ready()

    def _refuse_config(self, why: str) -> None:
        log.error("configuration not reloaded: %s", why)
        self._orders.alarm(Alarm("configuration", "gangd", f"the configuration was not reloaded: {why}"))

    def _take_config(self, checked: Checked) -> None:
        """Let a configuration be in force that was read again and passed the checks of the start."""
        config, self._pending = self._pending, None
        if config is None or config is not checked.config:
            self._pending = config  # a later one, which is being checked
            return
        if checked.refusal is not None:
            self._refuse_config(checked.refusal)
            return
        try:
            policy = policy_of(config)
        except OsubError as error:
            self._refuse_config(str(error))
            return
        for warning in checked.warnings:
            log.warning("%s", warning)
        self._orders.alarm(Alarm("configuration", "gangd", "the configuration was reloaded", cleared=True))
        self._config = config
        self._keeper.status_mode = config.mode_of_status(hides_jobs=checked.hides_jobs)
        self._operators.partitions = checked.partitions
        self._put_in_force()
        self._orders.move_ends = config.move_ends
        self._orders.flush()
        self._worker.every_s = config.snapshot_s
        self._worker.mark_in(config.mark_field())
        self._view.set_policy(policy)
        self._learn_pairs()
        self._worker.ask()
        log.info("configuration reloaded; endpoints, folders and record stay as they were")

    def _on_report(self, report: NodeReport) -> None:
        self._pairs.report(report)
        self._view.seats.report(report)
        if self._slices is not None:
            self._slices.on_report(report)

    def _learn_pairs(self) -> None:
        """Learn pairs from now on, or no more, as the policy says."""
        self._orders.attempt("save pairs", self._pairs.save)
        self._view.seats.learner = self._pairs.follow(self._view.policy.pairing)
        self._worker.asks_ends = self._view.policy.pairing.learns

    def _write_status(self) -> None:
        now_ns = self._clock()
        vitals = Vitals(
            time_ms=self._wall() / 1e6,
            controller=self.controller.incarnation.hex(),
            dry_run=self._orders.dry_run,
            slurm_age_s=None if self._looked_ns is None else (now_ns - self._looked_ns) / 1e9,
            tick_us=self._tick_us,
            dropped=dict(self._orders.dropped),
            record=None if self._slices is None else str(self._slices.folder.resolve()),
            hold=self._config.hold,
            orders=self._operators.survey(),
        )
        for alarm in (
            *alarms_of(self._sockets.access.take_news()),
            *map(alarm_of, drained(self.metrics.deaths)),
        ):
            self._orders.alarm(alarm)
        if self._sockets.has_shared_key:
            self._orders.alarm(Alarm("shared key", SHARED_AGENT, SHARED_TEXT))
        self._orders.alarm(damaged_state(self._keeper.damaged))
        alarms = self._orders.alarms.standing(now_ns)
        status = describe(vitals, self._scheduler, self._uplink.agents, alarms, now_ns)
        if self.metrics.is_served:
            self.metrics.update(self._reading(status, now_ns))
        joined = sum(node.agent == AgentState.JOINED.value for node in status.nodes)
        self._notifier.status(
            f"{counted_of(joined, len(status.nodes), 'node')}, {counted(len(status.jobs), 'job')} on shared "
            f"cores, {len(alarms)} alarms"
        )
        self._keeper.tell(msgspec.json.encode(status))  # last: where the disk is full, the others know

    def _reading(self, status: ControllerStatus, now_ns: int) -> ControllerReading:
        gangs, held = census(self._scheduler, status.slice)
        return ControllerReading(
            at_ns=now_ns,
            status=status,
            gangs=gangs,
            held=held,
            faults=dict(self._uplink.faults),
            slurm_failures=self._slurm_failures,
            ends_moved=self._orders.ends_moved,
            ends_refused=self._orders.ends_refused,
            connections=self._sockets.access.keeper.open,
            record_bytes=0 if self._slices is None else self._slices.size_bytes,
        )

    def _save(self) -> None:
        if self._looked_ns is not None:  # before that the accounts of running jobs are not complete
            self._keeper.state.limits = self._scheduler.limits_state()
            if not self._orders.held_back:
                self._remember()
        self._keeper.state.orders = list(self._operators.book.orders)
        self._keeper.state.saved_ns = self._wall()
        self._keeper.save()

    def _away_ns(self, wall_ns: int) -> int:
        """For how long no controller is known to have run before this one."""
        saved_ns = self._keeper.state.saved_ns
        return 0 if saved_ns is None else max(0, wall_ns - saved_ns)

    def _remember(self) -> None:
        """Have the state folder tell the next controller how this one's gangs stand."""
        state, scheduler = self._keeper.state, self._scheduler
        if len(scheduler.gangs) > MOST_REMEMBERED and not self._quiet:
            state.gangs = []
        else:
            state.gangs = scheduler.memory()
        state.nodes = dict(self._nodes)
        state.joined = [name for name in self._cores if scheduler.agent_state(name) is AgentState.JOINED]

    def _leave(self) -> None:
        """Leave in order; one that has lost the lead has nothing to say any more, and nothing to write."""
        lost = self._keeper.lead.is_lost
        if not (self._quiet or lost):
            for _ in range(FAREWELLS):
                self._orders.publish([self._fanout.thaw_all(self._clock(), "the controller leaves")])
        if not lost:
            self._orders.attempt("save state", self._save)
            self._orders.attempt("save pairs", self._pairs.save)
        if not (self._quiet or lost):
            self._orders.tell(Shutdown(self._clock()))
        if self._slices is not None:
            self._orders.attempt("record slices", self._slices.close)
        self._control.close(unlink=not lost)
        self._worker.stop()
