"""Carries out what the core orders: messages to agents, moved ends, rows, alarms."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from foundation.errors import OsubError
from gangd.controller.alarms import AlarmBoard, worded
from gangd.controller.fanout import Fanout
from gangd.controller.slicelog import SliceLog
from gangd.controller.slurm_worker import SlurmWorker
from gangd.controller.uplink import UnknownAgentError
from gangd.core.scheduler import GangScheduler
from gangd.core.scheduler_events import (
    Alarm,
    AskSlurm,
    BeganToShare,
    Command,
    Event,
    Exempt,
    MoveEnd,
    Publish,
    RecordRows,
    ThawAll,
)
from gangd.wire.messages import OLDEST, VERSION, DownMessage, ReplyMessage
from gangd.wire.sockets import ControllerSockets
from gangd.wire.wire_frames import encode_down

log = logging.getLogger("gangd")

NOT_RUNNING = ("Invalid job id", "not running", "already completing")
"""What Slurm says of jobs that have ended, or wait anew, since their end was to be moved."""


class CommandExecutor:
    """Tells the core events, and the world what follows from them.

    Attributes
    ----------
    dropped
        Messages refused or unsent, by kind.
    move_ends
        Whether ends are moved.
    dry_run
        Whether nothing is sent to agents and Slurm.
    user_of
        Name of a job's user, for alarms; None where it is not known.
    version_of
        The version of the protocol in which to speak to a node.
    held_back
        Whether messages to nodes wait (``FailoverGrace``).
    ends_moved, ends_refused
        How many ends of jobs were moved, and Slurm refused to move.
    """

    def __init__(
        self,
        scheduler: GangScheduler,
        fanout: Fanout,
        sockets: ControllerSockets,
        worker: SlurmWorker,
        slices: SliceLog | None,
        clock: Callable[[], int],
    ) -> None:
        self.alarms = AlarmBoard()
        self.dropped: Counter[str] = Counter()
        self.move_ends = True
        self.dry_run = False
        self.held_back = False
        self.version_of: Callable[[str], int] = lambda _: VERSION
        self.user_of: Callable[[int], str | None] = lambda _: None
        self.ends_moved = self.ends_refused = 0
        self._scheduler = scheduler
        self._fanout = fanout
        self._sockets = sockets
        self._worker = worker
        self._slices = slices
        self._clock = clock

    def tell(self, event: Event) -> None:
        """Tell the core an event and obey; raises ``InvalidEvent`` if it is refused."""
        self._obey(self._scheduler.handle(event))
        self.flush()

    def flush(self) -> None:
        """Publish what nodes have not been sent yet."""
        if self._fanout.is_pending and not self.held_back:
            self.publish(self._fanout.messages(self._clock(), self._scheduler.horizon))

    def publish(self, messages: Iterable[DownMessage]) -> None:
        """Send messages down; a node that does not keep up loses some, and asks for what it missed."""
        if not self.dry_run:
            for message in messages:
                version = OLDEST if message.node is None else self.version_of(message.node)
                self._sockets.tell(*encode_down(message, version))

    def reply(self, connection: bytes, reply: ReplyMessage, version: int) -> None:
        """Answer an agent in a version; one that cannot be reached now asks again."""
        if not self._sockets.reply(connection, reply, version):
            self.dropped["unsent_reply"] += 1

    def drop(self, kind: str, text: str) -> None:
        """Count a message that was refused; that an agent must say hello first is no news."""
        self.dropped[kind] += 1
        if kind != UnknownAgentError.kind:
            self.alarm(Alarm("message", kind, f"a message was dropped: {text}"))

    def on_foreign(self, node: str, jobs: frozenset[int]) -> None:
        """Count reports of a node on jobs of other nodes: it was dropped, and its key may be stolen."""
        self.dropped["foreign_job"] += len(jobs)
        text = f"{node} tells of job {min(jobs)}, which is not there: dropped; is its key in wrong hands?"
        self.alarm(Alarm("foreign job", node, text))

    def on_flood(self, key: str) -> None:
        """Count a message that was not read because its key has sent too many."""
        self.dropped["flood"] += 1
        self.alarm(Alarm("flood", key, f"the key of {key} sends more than is read: stop its agent"))

    def on_moved(self, ends_s: Mapping[int, float], refused: Mapping[int, str]) -> None:
        """Log ends that were moved; that Slurm refuses to move one of a job that runs is an alarm."""
        self.ends_moved += len(ends_s)
        self.ends_refused += len(refused)
        for job, end_s in ends_s.items():
            log.info("job %d ends at %d now", job, end_s)
        for job, why in refused.items():
            if any(sign in why for sign in NOT_RUNNING):
                log.info("the end of job %d is not moved: %s", job, why)
            else:
                self.alarm(Alarm("limits", "slurm", f"Slurm does not move its end: {why}", job=job))

    def on_marked(self, marked: int, refused: Mapping[int, str], *, denied: bool) -> None:
        """Log jobs that were marked; that Slurm lets us mark none is an alarm."""
        log.info("%d jobs are marked as sharing cores", marked)
        for job, why in refused.items():
            log.info("job %d is not marked: %s", job, why)
        if denied:
            text = f"Slurm lets gangd mark no job ({next(iter(refused.values()))}): docs/gangd.md, mark_jobs"
            self.alarm(Alarm("marks", "slurm", text))

    def alarm(self, alarm: Alarm) -> None:
        """Raise or clear an alarm; it is logged when that is news."""
        if alarm.cleared:
            if self.alarms.clear(alarm.kind, alarm.subject):
                log.info("%s", alarm.text)
            return
        user = None if alarm.job is None else self.user_of(alarm.job)
        if self.alarms.raise_(alarm, user, self._clock()):
            log.warning("%s", worded(alarm, user))

    def attempt(self, what: str, action: Callable[[], None], *, proves: bool = True) -> None:
        """Do something that a full disk may prevent, and that must not end the scheduling.

        Parameters
        ----------
        what, action
            It, and its name in the alarm.
        proves
            Whether its success shows that the disk takes data again, which ends the alarm.
        """
        try:
            action()
        except OsubError as error:
            text = f"cannot {what}: {error}; scheduling goes on: free space there, or mend the folder"
            self.alarm(Alarm("disk", what, text))
        else:
            if proves:
                self.alarm(Alarm("disk", what, f"can {what} again", cleared=True))

    def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Publish():
                    self._fanout.publish(command)
                case Exempt():
                    self._fanout.exempt(command)
                case ThawAll():
                    self.publish([self._fanout.thaw_all(self._clock(), command.reason)])
                case MoveEnd():
                    if self.move_ends and not self.dry_run:
                        self._worker.move_end(command.job, command.end_s, command.due_s)
                case RecordRows(rows=rows):
                    if self._slices is not None:
                        self.attempt("record slices", partial(self._slices.append, rows), proves=False)
                case Alarm():
                    self.alarm(command)
                case AskSlurm() | BeganToShare():
                    self._turn_to_slurm(command)

    def _turn_to_slurm(self, command: AskSlurm | BeganToShare) -> None:
        if isinstance(command, AskSlurm):
            log.debug("asking Slurm: %s", command.reason)
            self._worker.ask()
        elif not self.dry_run:
            self._worker.mark(command.jobs)
