"""The whole controller in the test's main thread; agents in other threads, over CURVE sockets."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import zmq

from gangd.config import Config, load_config
from gangd.controller.keeper import Keeper
from gangd.controller.loop import ControllerLoop
from gangd.controller.slicelog import read_slices
from gangd.controller.status import Status, read_status
from gangd.keys import load_agent_keys, load_controller_keys, make_keys
from gangd.main import main
from gangd.wire import (
    Hello,
    JobSample,
    Message,
    Ping,
    Pong,
    ReplyMessage,
    Report,
    Resend,
    SliceReport,
    Timeline,
    Welcome,
    WireError,
    decode_down,
    decode_reply,
    encode,
)
from gangd.wire.sockets import ControllerSockets, connect_agent
from osub.errors import InputError
from osub.slurm import FakeSlurm, SubmitRequest

DEADLINE_S = 20.0
QUANTUM_MS = 50.0


@dataclass
class TestAgent:
    """An agent that keeps the protocol and holds nothing but a record."""

    __test__ = False

    node: str
    keys: Path
    publish: str
    reports: str
    timeline: Timeline = field(init=False)
    replies: list[ReplyMessage] = field(default_factory=list)
    refused: int = 0
    seq: int = 0
    reported: int = -1
    busy: bool = True

    def __post_init__(self) -> None:
        self.timeline = Timeline(self.node)
        self.sockets = connect_agent(
            load_agent_keys(self.keys, self.node), self.node, self.publish, self.reports
        )

    def say(self, message: Message) -> None:
        with suppress(zmq.Again):  # not connected yet
            self.sockets.reports.send(encode(message), zmq.NOBLOCK)

    def hello(self) -> None:
        self.say(
            Hello(
                node=self.node,
                incarnation=self.node.encode().ljust(16, b"."),
                boot_id="b",
                pid=os.getpid(),
                agent_version="1",
                freezer="recording",
            )
        )

    def listen(self) -> None:
        while self.sockets.plans.poll(0):
            try:
                message = decode_down(self.sockets.plans.recv_multipart(), self.node)
                self.timeline.accept(message, time.monotonic_ns())
            except WireError:
                self.refused += 1
                self.say(Resend(node=self.node, have_epoch=self.timeline.epoch))
        while self.sockets.reports.poll(0):
            self.replies.append(decode_reply(self.sockets.reports.recv(), self.node))

    def report(self) -> None:
        """Report the slice that ended last, if it is not reported yet."""
        number = self.timeline.slice_at(time.monotonic_ns())
        slices: tuple[SliceReport, ...] = ()
        if number is not None and number - 1 > self.reported:
            self.reported = number - 1
            held = self.timeline.held(self.reported)
            jobs = sorted(self.timeline.jobs(self.reported) - held)
            cpu_us = 50_000 if self.busy else 0
            samples = tuple(JobSample(job, cpu_us, 0, 50_000, 1) for job in jobs)
            start_ns = self.timeline.start_ns(self.reported) or 0
            slices = (SliceReport(self.reported, 1, start_ns, 11, 22, tuple(sorted(held)), samples),)
        self.seq += 1
        controller = self.timeline.controller
        self.say(
            Report(
                node=self.node,
                incarnation=self.node.encode().ljust(16, b"."),
                follows=None if controller is None else controller.incarnation,
                seq=self.seq,
                offset_ns=0,
                rtt_us=1,
                slices=slices,
            )
        )


class Stage:
    """A controller, its agents, and a play that runs beside it."""

    def __init__(self, tmp_path: Path, slurm: FakeSlurm, *, dry_run: bool = False) -> None:
        self.slurm = slurm
        self.agents: list[TestAgent] = []
        self.failure: BaseException | None = None
        self.lock = threading.Lock()
        make_keys(tmp_path / "keys")
        self.keys = tmp_path / "keys"
        self.config = Config(
            publish="tcp://127.0.0.1:*",
            reports="tcp://127.0.0.1:*",
            keys=self.keys,
            state=tmp_path / "state",
            record=tmp_path / "record",
            quantum_ms=QUANTUM_MS,
            grace_ms=0,
            snapshot_s=0.1,
        )
        self.reloads = 0
        self.keeper = Keeper(self.config.state)
        self.sockets = ControllerSockets(
            load_controller_keys(self.keys), self.config.publish, self.config.reports
        )
        self.loop = ControllerLoop(
            self.config, slurm, self.sockets, self.keeper, self.reload, dry_run=dry_run
        )

    def reload(self) -> Config:
        self.reloads += 1
        if self.reloads == 1:
            raise InputError("no such file")
        return load_config(None, **{**_fields(self.config), "quantum_ms": 100.0})

    def agent(self, node: str) -> TestAgent:
        agent = TestAgent(node, self.keys, self.sockets.publish_endpoint, self.sockets.report_endpoint)
        self.agents.append(agent)
        return agent

    def until(self, done: Callable[[], bool]) -> None:
        """Let the agents live until something is so."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            for agent in self.agents:
                agent.listen()
                agent.report()
            if done():
                return
            time.sleep(0.01)
        raise AssertionError("it never came to that")

    def welcome(self, agent: TestAgent) -> None:
        end = time.monotonic() + DEADLINE_S
        while not any(isinstance(reply, Welcome) for reply in agent.replies):
            assert time.monotonic() < end, "never welcomed"
            agent.hello()
            time.sleep(0.05)
            agent.listen()

    def status(self) -> Status | None:
        try:
            return read_status(self.config.state)
        except InputError:
            return None

    def alarms(self) -> dict[str, str]:
        """Texts of the alarms that stand, by kind."""
        status = self.status()
        return {} if status is None else {alarm.kind: alarm.text for alarm in status.alarms}

    @contextmanager
    def play(self, scene: Callable[[], None]) -> Iterator[None]:
        """Run ``scene`` in a thread beside the controller, which leaves by SIGTERM when it is over."""

        def act() -> None:
            try:
                self.until(lambda: self.status() is not None)  # from then on it takes signals
                scene()
            except BaseException as error:
                self.failure = error
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=act)
        thread.start()
        try:
            self.loop.run()
        finally:
            thread.join(DEADLINE_S)
            yield
            for agent in self.agents:
                agent.sockets.close()
            self.sockets.close()
            self.keeper.close()
            if self.failure is not None:
                raise self.failure


def _fields(config: Config) -> dict[str, object]:
    return {name: getattr(config, name) for name in config.__struct_fields__}


def two_jobs() -> FakeSlurm:
    slurm = FakeSlurm(nodes=2, cores=1, multiplicity=2, run_time=lambda _: 1000.0, start_time=time.time())
    for name in ("one", "two"):
        slurm.submit(SubmitRequest(script="#!/bin/sh\n", name=name, nodes=2, time_limit_minutes=10))
    return slurm


def test_two_jobs_take_turns_on_all_nodes_and_are_thawed_at_the_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs())
    one, two = stage.agent("n1"), stage.agent("n2")
    seen: dict[str, object] = {}

    def scene() -> None:
        for agent in (one, two):
            stage.welcome(agent)
        one.say(Ping(node="n1", agent_ns=5))
        stage.until(
            lambda: (
                bool(one.timeline.jobs(one.timeline.horizon))
                and any(isinstance(reply, Pong) for reply in one.replies)
            )
        )
        first = one.timeline.horizon
        stage.until(lambda: one.timeline.horizon > first + 20)
        seen["held"] = [one.timeline.held(number) for number in range(first + 2, first + 8)]
        seen["agree"] = [two.timeline.held(number) for number in range(first + 2, first + 8)]
        stage.until(lambda: (status := stage.status()) is not None and status.shared_jobs == 2)
        status = stage.status()
        assert status is not None
        seen["agents"] = [(node.node, node.agent, node.skew_us) for node in status.nodes]
        seen["jobs"] = [(job.job, job.state, job.cores) for job in status.jobs]

    with stage.play(scene):
        # It thawed everything when it left.
        stage.until(lambda: one.timeline.epoch is None and two.timeline.epoch is None)
    assert sorted(map(sorted, seen["held"])) == [[1], [1], [1], [2], [2], [2]]  # type: ignore[call-overload]
    assert seen["held"] == seen["agree"]
    assert seen["agents"] == [("n1", "joined", 11), ("n2", "joined", 11)]
    assert seen["jobs"] == [(1, "busy", {"n1": [0], "n2": [0]}), (2, "busy", {"n1": [0], "n2": [0]})]
    rows = list(read_slices(tmp_path / "record", 0.0))
    assert {(row.job, row.node, row.role) for row in rows} >= {
        (job, node, role) for job in (1, 2) for node in ("n1", "n2") for role in ("run", "held")
    }


def test_idle_jobs_are_seen_through_the_wire_and_let_go(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs())
    agents = [stage.agent("n1"), stage.agent("n2")]

    def scene() -> None:
        for agent in agents:
            stage.welcome(agent)
        stage.until(lambda: any(agent.timeline.held(agent.timeline.horizon) for agent in agents))
        for agent in agents:
            agent.busy = False

        def let_go() -> bool:
            number = agents[0].timeline.horizon
            named = agents[0].timeline.jobs(number)
            return named == {1, 2} and not any(agents[0].timeline.held(number + more) for more in range(4))

        stage.until(let_go)

    with stage.play(scene):
        pass


def test_slurm_may_be_away_and_jobs_go_on_taking_turns(tmp_path: Path) -> None:
    slurm = two_jobs()
    stage = Stage(tmp_path, slurm)
    agents = [stage.agent("n1"), stage.agent("n2")]
    seen: list[str] = []

    def scene() -> None:
        for agent in agents:
            stage.welcome(agent)
        stage.until(lambda: bool(agents[0].timeline.held(agents[0].timeline.horizon)))
        slurm.reachable = False
        stage.until(lambda: "slurm" in stage.alarms())
        seen.append(stage.alarms()["slurm"])
        horizon = agents[0].timeline.horizon
        stage.until(lambda: agents[0].timeline.horizon > horizon + 10)
        assert agents[0].timeline.held(horizon + 8) | agents[0].timeline.held(horizon + 9) == {1, 2}
        slurm.reachable = True
        stage.until(lambda: "slurm" not in stage.alarms())

    with stage.play(scene):
        pass
    assert any("Slurm does not answer" in text for text in seen)


def test_a_reload_changes_the_quantum_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs())
    agents = [stage.agent("n1"), stage.agent("n2")]

    def scene() -> None:
        for agent in agents:
            stage.welcome(agent)
        timeline = agents[0].timeline

        def length_ms() -> float | None:
            begin, end = timeline.start_ns(timeline.horizon), timeline.start_ns(timeline.horizon + 1)
            return None if begin is None or end is None else (end - begin) / 1e6

        stage.until(lambda: length_ms() == 50.0 and bool(timeline.held(timeline.horizon)))
        refused = [agent.refused for agent in agents]  # before their first plan was there
        os.kill(os.getpid(), signal.SIGHUP)
        stage.until(lambda: stage.reloads == 1)
        assert length_ms() == 50.0
        os.kill(os.getpid(), signal.SIGHUP)
        stage.until(lambda: length_ms() == 100.0 and bool(timeline.held(timeline.horizon)))
        assert [agent.refused for agent in agents] == refused

    with stage.play(scene):
        pass


def test_a_dry_run_tells_the_agents_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs(), dry_run=True)
    agents = [stage.agent("n1"), stage.agent("n2")]

    def scene() -> None:
        for agent in agents:
            stage.welcome(agent)
        stage.until(lambda: (status := stage.status()) is not None and status.shared_jobs == 2)

    with stage.play(scene):
        for agent in agents:
            agent.listen()
    assert all(agent.timeline.controller is None for agent in agents)


def test_a_new_controller_is_heard_of_without_being_asked(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs())
    one = stage.agent("n1")

    def scene() -> None:
        stage.until(lambda: one.timeline.controller == stage.loop.controller)
        assert one.timeline.lease_over(time.monotonic_ns())

    with stage.play(scene):
        pass


def test_a_stranger_and_a_liar_are_counted_and_do_no_harm(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs())
    one, nowhere = stage.agent("n1"), stage.agent("n77")

    def scene() -> None:
        stage.until(lambda: (status := stage.status()) is not None and "unknown_agent" in status.dropped)
        one.say(Report(node="n1", incarnation=b"x" * 16, follows=None, seq=1, offset_ns=0, rtt_us=0))
        one.sockets.reports.send(b"\xc1 rubbish")

        def refused() -> bool:
            nowhere.hello()
            return any("no node n77" in getattr(reply, "reason", "") for reply in nowhere.replies)

        stage.until(refused)
        stage.welcome(one)
        stage.until(lambda: (status := stage.status()) is not None and "malformed" in status.dropped)

    with stage.play(scene):
        pass
    status = stage.status()
    assert status is not None
    assert status.dropped["unknown_agent"] >= 1
    assert status.dropped["malformed"] == 1


def test_keys_are_made_for_a_node_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["keys", "--dir", str(tmp_path / "k"), "--agents", "n[1-3]"])
    assert sorted(path.stem for path in (tmp_path / "k" / "agents").glob("*.key")) == ["n1", "n2", "n3"]
    assert "4 key pairs made" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["run", "--config", "/no/such.toml"], 1, "cannot read configuration /no/such.toml"),
        (["run", "--quantum-ms", "1"], 2, "20 ms to 5 s are possible"),
        (["keys", "--dir", "/tmp", "--agents", "n[1-"], 2, "--agents n[1-"),
    ],
)
def test_an_error_is_one_line_with_its_exit_code(
    arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == code
    assert text in capsys.readouterr().err
