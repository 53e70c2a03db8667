"""Messages of agents that are not judged yet: a bounded number of each agent.

A controller that judges more slowly than agents report must not hoard what they say: what it would read a
minute later decides nothing, and the memory is missing elsewhere. So a report takes in the one before it of
the same agent that waits still, in whose place it is judged (``condensed``). What an agent says besides is
said once and answered, so it is kept as it is; who says more than ``MOST_OF_ONE`` such things before one was
judged is not listened to.

Pure: no socket, no clock.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from gangd.wire import Hello, JobSample, Report, Resend, SliceReport, UpMessage, WireError, decode_up
from gangd.wire.sockets import ControllerSockets, Received
from gangd.wire.wire_fields import MAX_FRAME_BYTES, MAX_JOBS_PER_LIST

MOST_OF_ONE = 16
"""Messages of one agent that wait, after reports were taken together."""
MOST_SLICES = 64
"""Slices in a report that others were taken into: as many as an agent keeps itself."""
SAMPLED_SLICES = 2
"""Of these with samples: what a short stall holds up is not lost."""
MOST_FAULTS = 256
MOST_BYTES_OF_ONE = MAX_FRAME_BYTES
"""Of which no more is taken in once so many wait."""

SECOND_NS = 1_000_000_000
AT_ONCE, A_SECOND = 5_000, 500
"""Messages of one sender that are read: so many after a silence, and so many a second."""
MOST_BEYOND = 5_000
"""So many messages beyond its quota cost a sender the connection."""
_MOST_SENDERS = 20_000

Sender = bytes | tuple[bytes, str]


@dataclass(slots=True)
class WaitingMessage:
    """A message that waits.

    Attributes
    ----------
    taken
        As it came; of reports that were taken together the newest.
    received_ns
        When that was.
    message
        Its content; None while it is not decoded.
    """

    taken: Received
    received_ns: int
    message: UpMessage | None = None

    def said(self) -> UpMessage:
        """Return what it says; raises ``WireError`` where it is no message."""
        if self.message is None:
            self.message = decode_up(self.taken.body, self.taken.node)
        return self.message


class Backlog:
    """Messages in the order in which they are to be judged."""

    def __init__(self) -> None:
        self._queue: collections.deque[tuple[Sender, WaitingMessage]] = collections.deque()
        self._of: dict[Sender, list[WaitingMessage]] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, taken: Received, received_ns: int, message: UpMessage | None = None) -> bool:
        """Take in a message; False where too much of its sender waits, and it is dropped.

        Raises
        ------
        WireError
            It is no message, which was seen already.
        """
        one = WaitingMessage(taken, received_ns, message)
        # Over a connection whose key speaks for every node many agents may speak.
        sender = taken.connection if taken.node is not None else (taken.connection, one.said().node)
        here = self._of.get(sender)
        if here is None:
            self._of[sender] = [one]
        elif _takes_in(here[-1], one):
            return True
        elif len(here) >= MOST_OF_ONE or _size(here) > MOST_BYTES_OF_ONE:
            return False
        else:
            here.append(one)
        self._queue.append((sender, one))
        return True

    def take(self) -> WaitingMessage:
        """Take the message whose turn it is."""
        sender, one = self._queue.popleft()
        here = self._of[sender]
        del here[0]
        if not here:
            del self._of[sender]
        return one


def condensed(older: Report, newer: Report) -> Report:
    """Return one report in the place of two of one agent: the newer, with what must not be lost of the older.

    That are jobs that were born or launched, or are dying, or ended and were not seen again, what was found,
    what went wrong, and who was held in which slices, for by that ends of jobs are moved. What jobs used is
    kept of the newest slices alone: demand is what was seen last, and judging it takes the most time.
    """
    alive = {*newer.born, *newer.launched, *_seen(newer)} if older.ended else set()
    return msgspec.structs.replace(
        newer,
        slices=_sampled_last((*older.slices, *newer.slices)[-MOST_SLICES:]),
        born=_both(older.born, newer.born),
        launched=_both(older.launched, newer.launched),
        ended=_both(tuple([job for job in older.ended if job not in alive]), newer.ended),
        dying=_both(older.dying, newer.dying),
        alone=_newest(older.alone, newer.alone),
        found=(*older.found, *newer.found)[-MAX_JOBS_PER_LIST:],
        leaks=(*older.leaks, *newer.leaks)[-MAX_JOBS_PER_LIST:],
        faults=(*older.faults, *newer.faults)[-MOST_FAULTS:],
        foreign_controllers=older.foreign_controllers + newer.foreign_controllers,
    )


def _takes_in(older: WaitingMessage, newer: WaitingMessage) -> bool:
    """Let ``older`` say what ``newer`` says as well, where that is possible."""
    try:
        before, now = older.said(), newer.said()
    except WireError:
        return False  # each is dropped, and counted, when it is judged
    if isinstance(before, Report) and isinstance(now, Report):
        if before.incarnation != now.incarnation or before.seq >= now.seq or before.version != now.version:
            return False
        older.message = condensed(before, now)
    elif isinstance(now, Hello | Resend) and type(before) is type(now):
        older.message = now
    else:
        return False
    older.taken, older.received_ns = newer.taken, newer.received_ns
    return True


def _seen(report: Report) -> set[int]:
    """Return the jobs of which a report saw a process."""
    samples = itertools.chain(report.alone, *[one.samples for one in report.slices])
    return {sample.job for sample in samples if sample.tasks}


def _size(waiting: Iterable[WaitingMessage]) -> int:
    return sum([len(one.taken.body) for one in waiting])


def _sampled_last(slices: tuple[SliceReport, ...]) -> tuple[SliceReport, ...]:
    """Return slices of which the newest few that have samples keep them."""
    sampled = [place for place, one in enumerate(slices) if one.samples]
    if len(sampled) <= SAMPLED_SLICES:
        return slices
    kept = list(slices)
    for place in sampled[:-SAMPLED_SLICES]:
        kept[place] = msgspec.structs.replace(kept[place], samples=())
    return tuple(kept)


def _both(older: tuple[int, ...], newer: tuple[int, ...]) -> tuple[int, ...]:
    if not older:
        return newer
    return tuple(dict.fromkeys((*older, *newer)))[-MAX_JOBS_PER_LIST:]


def _newest(older: Iterable[JobSample], newer: Iterable[JobSample]) -> tuple[JobSample, ...]:
    by_job = {sample.job: sample for sample in older} | {sample.job: sample for sample in newer}
    return tuple(by_job.values())[-MAX_JOBS_PER_LIST:]


class Quota:
    """A bucket for each sender, which fills with time and is emptied by messages."""

    def __init__(self) -> None:
        self._left: dict[object, tuple[float, int]] = {}
        self._beyond: collections.Counter[object] = collections.Counter()

    def takes(self, sender: object, now_ns: int) -> bool:
        """Note a message; False if it is one too many."""
        left, then_ns = self._left.get(sender, (AT_ONCE, now_ns))
        left = min(AT_ONCE, left + A_SECOND * (now_ns - then_ns) / SECOND_NS)
        self._left[sender] = (max(0.0, left - 1), now_ns)
        if len(self._left) > _MOST_SENDERS:
            self._forget(now_ns)
        return left >= 1

    def admits(self, taken: Received, sockets: ControllerSockets, now_ns: int) -> bool:
        """Return whether a message is within the quota of its sender; cut the connection of a flood."""
        sender = taken.connection if taken.node is None else taken.key
        if self.takes(sender, now_ns):
            return True
        self._beyond[sender] += 1
        if self._beyond[sender] >= MOST_BEYOND:
            self._beyond.clear()
            sockets.cut(taken, f"the key of {taken.key} sends more than is read")
        return False

    def _forget(self, now_ns: int) -> None:
        """Forget the senders whose buckets are full again."""
        filled_ns = AT_ONCE * SECOND_NS // A_SECOND
        self._left = {one: kept for one, kept in self._left.items() if now_ns - kept[1] < filled_ns}
