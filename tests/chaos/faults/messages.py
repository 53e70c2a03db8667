"""Messages that are old, damaged or random."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar

import zmq

from gangd.controller.intake import A_SECOND, AT_ONCE
from gangd.curve_keys import load_agent_keys
from gangd.wire.messages import Hello, Ping, Report, Resend
from gangd.wire.wire_frames import encode, topic
from tests.chaos.broken import Broken, wait_for
from tests.chaos.fault import Fault
from tests.chaos.forger import FalseController, client, drained, send_all, spoil
from tests.chaos.stage import FUZZ, Stage
from tests.chaos.troupe import Troupe

INCARNATION = bytes(range(16))
_CHUNK = 5_000


class MessageFault(Fault):
    """Something that a false peer sends."""

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.node = self.a_node()
        self.holds_s = 0.0

    @contextmanager
    def false_controller(self) -> Iterator[FalseController]:
        """A publisher with the controller's key that this node's agent listens to, and to no other."""
        line = self.stage.lines[self.node]
        with FalseController(self.stage.keys()) as false:
            line.lead(line.plans, false.port)
            try:
                false.wait_heard()
                yield false
            finally:
                line.lead(line.plans, self.stage.layout.gang_ports[0])

    def refused(self) -> int:
        """Messages that this node's agent refused, as far as the controller has heard."""
        status = self.stage.status()
        nodes = [] if status is None else [one for one in status.nodes if one.node == self.node]
        return sum(sum(one.faults.values()) for one in nodes)


class ReplayedPlans(MessageFault):
    """Genuine plans of this and earlier controllers, again and in any order, with the genuine key."""

    name = "replayed plans"
    spoiled: ClassVar[float] = 0.0

    def inject(self) -> None:
        recorded = self.stage.recorder.of(self.node)
        count = self.dice.randint(100, 400)
        with self.false_controller() as false:
            until_s = time.monotonic() + self.dice.uniform(0.5, 3.0)
            sent = 0
            while time.monotonic() < until_s or sent < count:
                frames = list(self.dice.choice(recorded))
                if self.dice.random() < self.spoiled:
                    frames[-1] = spoil(frames[-1], self.dice)
                false.say(frames)
                sent += 1
                self.stage.pause(0.001)
        self.detail = f"{self.node}, {sent} of {len(recorded)} recorded"


class CorruptedPlans(ReplayedPlans):
    """As above, and most are damaged below the seal."""

    name = "corrupted plans"
    spoiled = 0.8


class FuzzedPlans(MessageFault):
    """Random frames to an agent, with the genuine key."""

    name = "fuzzed frames to an agent"
    count: ClassVar[int] = 2_500
    share: ClassVar[float] = 0.7

    def inject(self) -> None:
        before, sent = self.refused(), 0
        with self.false_controller() as false:
            while sent < self.count:
                for _ in range(min(_CHUNK, self.count - sent)):
                    false.say(self._frames())
                    sent += 1
                    if sent % 200 == 0:
                        self.stage.pause(0.02)
                # No faster than the agent takes them. Not all are counted: while it probes the clock of what
                # it took for a later controller, it keeps the newest few and forgets the rest.
                until_s = time.monotonic() + 3.0
                while self.refused() - before < 0.8 * sent and time.monotonic() < until_s:
                    self.stage.pause(0.1)
        self.detail = f"{self.node}, {sent} frames, {self.refused() - before} or more counted as refused"

    def _frames(self) -> list[bytes]:
        dice = self.dice
        body = dice.randbytes(dice.choice([0, 1, 10, 100, 1_000]))
        recorded = self.stage.recorder.of(self.node)
        if recorded and dice.random() < 0.3:
            body = spoil(dice.choice(recorded)[-1], dice)
        extra = [dice.randbytes(5)] if dice.random() < 0.05 else []
        return [topic(self.node), body, *extra] if dice.random() < 0.98 else [topic(self.node)]


class FuzzedReports(MessageFault):
    """Random frames to the controller, with a key of the allow-list; and random bytes without any."""

    name = "fuzzed frames to the controller"
    count: ClassVar[int] = 2_500
    share: ClassVar[float] = 0.7

    def inject(self) -> None:
        self._before = self._dropped()
        publish, reports = self.stage.layout.gang_ports
        known = load_agent_keys(self.stage.keys(), FUZZ)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            peer = client(context, zmq.DEALER, known.own, known.controller_public, FUZZ.encode())
            peer.connect(f"tcp://127.0.0.1:{reports}")
            sent = answers = 0
            while sent < self.count:
                part = [self._frames() for _ in range(min(500, self.count - sent))]
                if send_all(peer, part, 60.0) < len(part):
                    raise Broken("the controller takes no messages")
                sent += len(part)
                answers += drained(peer)
                if self.count > AT_ONCE:  # a peer that sends more than is read is cut
                    self.stage.pause(len(part) / A_SECOND)
            # A peer that leaves while answers are on their way to it resets the connection, and what it has
            # sent and the controller has not read is lost.
            until_s = time.monotonic() + 20.0
            while self._refused() < self._most and time.monotonic() < until_s:
                self.stage.pause(0.05)
                answers += drained(peer)
            peer.close(linger=5_000)
        finally:
            context.destroy(linger=5_000)
        bare = 20 if self.brief else 100
        for _ in range(bare):
            with suppress(OSError), socket.create_connection(("127.0.0.1", publish), 2.0) as raw:
                raw.sendall(self.dice.randbytes(self.dice.choice([1, 11, 64, 300])))
            with suppress(OSError), socket.create_connection(("127.0.0.1", reports), 2.0) as raw:
                raw.sendall(b"\xff\0\0\0\0\0\0\0\x01\x7f\x03" + self.dice.randbytes(300))
        self.detail = f"{sent} frames, {answers} answers, {2 * bare} connections of random bytes"

    def check(self) -> None:
        wait_for(lambda: self._refused() >= self._most, 90, f"{self._most} frames are refused and counted")
        self.detail += f", {self._refused()} counted as refused"

    @property
    def _most(self) -> int:
        """What is refused at least: some frames happen to be messages, and are answered."""
        return self.count * 8 // 10

    def _refused(self) -> int:
        """Return how many frames the controller has refused since; one that began since has counted anew."""
        (controller, dropped), (earlier, before) = self._dropped(), self._before
        return dropped - before if controller == earlier else dropped

    def _dropped(self) -> tuple[str, int]:
        status = self.stage.status()
        return ("", 0) if status is None else (status.controller, sum(status.dropped.values()))

    def _frames(self) -> list[bytes]:
        dice = self.dice
        if dice.random() < 0.5:
            return [dice.randbytes(dice.choice([0, 1, 10, 100, 1_000]))]
        messages = (
            Hello(
                node=FUZZ, incarnation=INCARNATION, boot_id="b", pid=dice.randrange(1, 1 << 20),
                agent_version="1", freezer="recording",
            ),
            Ping(node=FUZZ, agent_ns=dice.randrange(1 << 60)),
            Resend(node=FUZZ, have_epoch=dice.choice([None, 3])),
            Report(
                node=FUZZ, incarnation=INCARNATION, seq=dice.randrange(1 << 30), follows=None,
                offset_ns=0, rtt_us=0,
            ),
        )  # fmt: skip
        body = encode(dice.choice(messages))
        return (
            [spoil(body, dice)] if dice.random() < 0.8 else [body, *([b"x"] if dice.random() < 0.2 else [])]
        )


class ManyFuzzedPlans(FuzzedPlans):
    """As above, 50,000 of them."""

    name = "50,000 fuzzed frames to an agent"
    count = 50_000
    share = 0.0
    short = False


class ManyFuzzedReports(FuzzedReports):
    """As above, 50,000 of them."""

    name = "50,000 fuzzed frames to the controller"
    count = 50_000
    share = 0.0
    short = False


MESSAGE_FAULTS: tuple[type[Fault], ...] = (
    ReplayedPlans, CorruptedPlans, FuzzedPlans, FuzzedReports, ManyFuzzedPlans, ManyFuzzedReports,
)  # fmt: skip
