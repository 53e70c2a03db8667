"""An agent in simulated time: recording freezer, no threads, a controller that is a few method calls."""

from __future__ import annotations

from dataclasses import replace

from gangd.agent.checks import Checks
from gangd.agent.conversation import Conversation
from gangd.agent.decide import Limits
from gangd.agent.gate import Gate, Lease
from gangd.agent.node import Node
from gangd.agent.slicebook import SliceBook
from gangd.agent.steps import StepTable
from gangd.agent.strangers import Memory
from gangd.agent.switch import Switch
from gangd.freezer.model import StepKey
from gangd.freezer.recording import RecordingFreezer
from gangd.wire import (
    Beat,
    Controller,
    DownMessage,
    Hello,
    Message,
    Ping,
    Pong,
    Report,
    SlicePlan,
    SliceSets,
    ThawNow,
    Track,
    Welcome,
    encode,
    encode_down,
)
from gangd.wire.down import Exempt

MS = 1_000_000
SECOND = 1_000 * MS
HELLO = Hello(node="a", incarnation=bytes(16), boot_id="boot", pid=1, agent_version="0", freezer="recording")


class StepsOfTest(RecordingFreezer):
    """Steps are what the test says, whatever the plan names."""

    def expect(self, jobs: object) -> None:
        """Do nothing."""


class SimulatedAgent:
    """One node's mind with a clock; the controller's clock is ``skew_ns`` ahead.

    The controller publishes ``plan``, then beats every 100 ms while ``talking``.
    """

    def __init__(self, *steps: StepKey, skew_ns: int = 5 * SECOND, limits: Limits | None = None) -> None:
        self.now_ns = 100 * SECOND
        self.skew_ns = skew_ns
        self.freezer = StepsOfTest(steps)
        self.gate = Gate(self.freezer, Lease(None), lambda: self.now_ns)
        self.switch = Switch(self.gate, lambda: self.now_ns)
        self.memory, self.book = Memory(), SliceBook()
        table = StepTable(self.gate, is_stepd=lambda pid: pid == 999)
        self.node = Node(
            talk=Conversation(HELLO),
            gate=self.gate,
            switch=self.switch,
            table=table,
            checks=Checks(self.gate, table, self.memory, self.book),
            memory=self.memory,
            book=self.book,
            limits=limits or Limits(grace_ns=0),
        )
        self.controller = Controller(b"c" * 16, 1)
        self.talking = True
        self.answering = True
        self.sent: list[Message] = []
        self.held_in: dict[int, set[int]] = {}
        self._seq = 0
        self.epoch = 0
        self.quantum_ns = 100 * MS
        self.zero_ns = self.controller_ns()
        self.tracks: tuple[Track, ...] = ()
        self.exempt = Exempt()

    @property
    def reports(self) -> list[Report]:
        return [message for message in self.sent if isinstance(message, Report)]

    def held(self) -> set[int]:
        """Jobs that are frozen now."""
        return {key.job for key in self.freezer.frozen}

    def controller_ns(self) -> int:
        return self.now_ns + self.skew_ns

    def say(self, message: DownMessage) -> None:
        if self.node.talk.on_down(encode_down(message), self.now_ns):
            self.node.on_plan(self.now_ns)

    def head(self, sent_ns: int | None = None) -> dict[str, object]:
        self._seq += 1
        return {
            "controller": self.controller,
            "node": "a",
            "epoch": self.epoch,
            "seq": self._seq,
            "sent_ns": self.controller_ns() if sent_ns is None else sent_ns,
            "lease_ns": 2 * SECOND,
        }

    def rotate(self, *held: tuple[int, ...], exempt: Exempt | None = None) -> None:
        """Publish that these jobs are held in turn, slice by slice, from two slices ahead."""
        self.exempt = exempt or self.exempt
        self.epoch += 1
        jobs = {job for each in held for job in each}
        first = (self.controller_ns() - self.zero_ns) // self.quantum_ns + 2
        slices = tuple(SliceSets(tuple(sorted(jobs - set(each))), each) for each in held)
        self.tracks = (Track(1, first - first % len(slices), True, slices),) if jobs else ()
        plan = SlicePlan(
            **self.head(),  # type: ignore[arg-type]
            first_slice=first,
            first_start_ns=self.zero_ns + first * self.quantum_ns,
            quantum_ns=self.quantum_ns,
            horizon=first,
            tracks=self.tracks,
            exempt=self.exempt,
        )
        self.say(plan)

    def thaw_now(self, jobs: tuple[int, ...] | None) -> None:
        self.say(ThawNow(**self.head(), jobs=jobs, reason="test"))  # type: ignore[arg-type]

    def join(self) -> None:
        """Let the agent greet and find the clock's offset."""
        self.run(300 * MS)

    def run(self, span_ns: int, step_ns: int = MS) -> None:
        """Let time pass."""
        end_ns = self.now_ns + span_ns
        while self.now_ns < end_ns:
            self.now_ns += step_ns
            self._pass()

    def _pass(self) -> None:
        due_ns = self.switch.due_ns()
        if due_ns is not None and self.now_ns >= due_ns:
            self.switch.fire()
            number = self.node.talk.timeline.slice_at(self.controller_ns())
            if number is not None:
                self.held_in[number] = self.held()
            self.node.on_switches(self.now_ns)
        if self.talking and self.epoch and self.now_ns % (100 * MS) == 0:
            running = (self.controller_ns() - self.zero_ns) // self.quantum_ns
            self.say(Beat(**self.head(), horizon=running + 2))  # type: ignore[arg-type]
        if self.now_ns >= self.node.due_ns(self.now_ns):
            self.node.on_time(self.now_ns)
        if self.node.wants_report(self.now_ns):
            self.node.report(self.now_ns)
        while self.node.talk.outbox:
            self._answer(self.node.talk.outbox.popleft())

    def _answer(self, message: Message) -> None:
        self.sent.append(message)
        if not self.answering:
            return
        there_ns = self.controller_ns()
        if isinstance(message, Ping):
            pong = Pong(node="a", agent_ns=message.agent_ns, received_ns=there_ns, sent_ns=there_ns)
            if self.node.talk.on_reply(encode(pong), self.now_ns):
                self.node.on_plan(self.now_ns)
        elif isinstance(message, Hello):
            welcome = Welcome(
                controller=self.controller,
                node="a",
                now_ns=there_ns,
                quantum_ns=self.quantum_ns,
                lease_ns=2 * SECOND,
                lookahead=2,
            )
            self.node.talk.on_reply(encode(welcome), self.now_ns)


__all__ = ["HELLO", "MS", "SECOND", "SimulatedAgent", "replace"]
