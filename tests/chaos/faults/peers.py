"""Peers that should not be there, or hold the wrong keys."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import zmq

from deploy.local.daemons import Daemon, start_daemon
from deploy.local.layout import free_ports
from gangd.curve_keys import KeyPair, load_agent_keys, make_keys
from gangd.wire.messages import FoundState, Hello, JobSample, Ping, Report
from gangd.wire.wire_frames import encode
from tests.chaos.broken import Broken, wait_for
from tests.chaos.ending import end_daemons
from tests.chaos.fault import Fault
from tests.chaos.faults.messages import INCARNATION, MessageFault
from tests.chaos.forger import client, send_all
from tests.chaos.stage import CONTROLLER, LEASE_S
from tests.chaos.troupe import ROUNDS_A_SECOND

MOST_FILES = 6_000
"""What gangd may have open for a moment: its share, and what the kernel had accepted before it knew."""


class Impostor(MessageFault):
    """A thief of a node's key says hello in its name and sends old reports."""

    name = "impostor with a node's key"

    def inject(self) -> None:
        known = load_agent_keys(self.stage.keys(), self.node)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            peer = client(context, zmq.DEALER, known.own, known.controller_public, self.node.encode())
            peer.connect(f"tcp://127.0.0.1:{self.stage.layout.gang_ports[1]}")
            messages = [[encode(_hello(self.node))]]
            for seq in (5, 4, 5, 9):
                report = Report(
                    node=self.node, incarnation=INCARNATION, seq=seq, follows=None, offset_ns=0, rtt_us=0
                )
                messages.append([encode(report)])
            send_all(peer, messages, 5.0)
            self.stage.pause(self.dice.uniform(0.2, 3.0))
        finally:
            context.destroy(linger=100)
        self.detail = self.node
        self.holds_s = LEASE_S + 0.5  # until the controller would miss the agent


class ForeignNodeKey(MessageFault):
    """A holder of one node's key reports a job of the other node, and takes the other node's name."""

    name = "foreign node key"
    share = 2.0

    def inject(self) -> None:
        self.holds_s = LEASE_S + 0.5  # until the controller would miss the agent whose key it is
        job = self.troupe.guest("elsewhere", 6 * ROUNDS_A_SECOND, by_s=180)
        home = self.troupe.wait_running(job).nodes[0]
        self.node = next(node for node in self.stage.nodes if node != home)
        before = self._dropped()
        known = load_agent_keys(self.stage.keys(), self.node)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            peer = client(context, zmq.DEALER, known.own, known.controller_public, home.encode())
            peer.connect(f"tcp://127.0.0.1:{self.stage.layout.gang_ports[1]}")
            peer.send(encode(_hello(self.node)))
            until_s = time.monotonic() + self.dice.uniform(1.0, 3.0)
            sent = 0
            while time.monotonic() < until_s or self._dropped() <= before:
                sent += 1
                send_all(peer, [[encode(self._lie(job, sent))], [encode(Ping(node=home, agent_ns=1))]], 5.0)
                self._see_believed(job)
                self.stage.pause(0.05)
                if time.monotonic() > until_s + 20.0:
                    raise Broken("what the key of another node tells of a job is not counted")
            if any(home.encode() in answer for answer in _answers(peer)):
                raise Broken(f"an answer to {home} came to {self.node}")
        finally:
            context.destroy(linger=0)
        self.detail = f"{self.node} of job {job} on {home}, {sent} times"

    def _lie(self, job: int, seq: int) -> Report:
        idle = JobSample(job, 0, 0, 50_000, 1)
        return Report(
            node=self.node, incarnation=INCARNATION, seq=seq, follows=None, offset_ns=0, rtt_us=0,
            ended=(job,), dying=(job,), alone=(idle,), found=(FoundState(job, "frozen", "thawed"),),
        )  # fmt: skip

    def _see_believed(self, job: int) -> None:
        status = self.stage.status()
        for one in () if status is None else status.jobs:
            if one.job == job and one.state in ("foreign", "terminating"):
                raise Broken(f"job {job} is {one.state} because the key of another node says so")

    def _dropped(self) -> int:
        status = self.stage.status()
        return 0 if status is None else status.dropped.get("foreign_job", 0)


class IdleConnections(MessageFault):
    """An unknown client opens connections by the thousand, says nothing or rubbish, and opens more."""

    name = "idle connections"

    def inject(self) -> None:
        self.holds_s = 0.0
        count, seconds = (2_000, 2.0) if self.brief else (10_000, self.dice.uniform(3.0, 8.0))
        says = self.dice.choice((0, 0, 20, 64))
        words = [sys.executable, "-m", "tests.fixtures.gang_flood"]
        floods = [
            subprocess.Popen([*words, str(port), str(count), f"{seconds:.1f}", str(says)], env=_environment())
            for port in self.stage.layout.gang_ports
        ]
        most = 0
        try:
            while any(flood.poll() is None for flood in floods):
                for process in self.stage.processes(CONTROLLER):
                    with suppress(psutil.NoSuchProcess):
                        most = max(most, process.num_fds())
                self.stage.pause(0.05)
        finally:
            for flood in floods:
                flood.kill()
                flood.wait()
        self.detail = f"{count} at each port, {says} bytes each, {seconds:.1f} s, gangd had {most} files"
        if most > MOST_FILES:
            raise Broken(f"gangd had {most} files open")

    def check(self) -> None:
        if not self.stage.is_alive(CONTROLLER):
            raise Broken("the controller died")


class StrangerKey(MessageFault):
    """A peer without a key of the allow-list sends and listens in a node's name: in vain."""

    name = "wrong key, stranger"

    def inject(self) -> None:
        publish, reports = self.stage.layout.gang_ports
        server = load_agent_keys(self.stage.keys(), self.node).controller_public
        own = KeyPair(*zmq.curve_keypair())
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            peer = client(context, zmq.DEALER, own, server, self.node.encode())
            peer.connect(f"tcp://127.0.0.1:{reports}")
            ear = client(context, zmq.SUB, own, server, None)
            ear.setsockopt(zmq.SUBSCRIBE, b"")
            ear.connect(f"tcp://127.0.0.1:{publish}")
            for _ in range(20):
                with suppress(zmq.Again):
                    peer.send(encode(Ping(node=self.node, agent_ns=1)), zmq.NOBLOCK)
                self.stage.pause(0.05)
            if peer.poll(0) or ear.poll(0):
                raise Broken("a peer without a key was answered")
        finally:
            context.destroy(linger=0)
        self.detail = self.node


class AgentWrongKey(MessageFault):
    """An agent is started with keys of another cluster: nothing is held on its node, nothing stays so."""

    name = "wrong key, agent"

    def inject(self) -> None:
        other = self.stage.folder / "other-keys"
        if not other.exists():
            make_keys(other, self.stage.nodes)

        def change(words: list[str]) -> list[str]:
            place = words.index("--keys") + 1
            return [*words[:place], str(other), *words[place + 1 :]]

        self.stage.replace(self.stage.agent(self.node), change=change)
        self.holds_s = self.dice.uniform(0.5, 3.0)
        self.detail = f"{self.node}, {self.holds_s:.1f} s"

    def heal(self) -> None:
        self.stage.replace(self.stage.agent(self.node))


class TwoControllers(MessageFault):
    """A second gangd with other ports and state; one node's lines, or only its plans, lead to it."""

    name = "two controllers, nodes divided"

    def inject(self) -> None:
        stage = self.stage
        publish, reports = free_ports(2)
        words = [sys.executable, "-P", "-m", "gangd.main", "run"]
        words += ["--config", str(stage.layout.gang / "gangd.toml")]
        words += ["--state", str(stage.folder / "second"), "--record", str(stage.folder / "second-record")]
        words += ["--publish", f"tcp://127.0.0.1:{publish}", "--reports", f"tcp://127.0.0.1:{reports}"]
        log = stage.layout.logs / "gangd-second.out"
        (stage.folder / "second-record").mkdir(exist_ok=True)
        self._second: Daemon | None = start_daemon("gangd-second", words, log, stage.environment())
        stage.intruders.append(self._second)
        wait_for(lambda: _listens(publish), 20, "the second controller listens")
        line = stage.lines[self.node]
        line.lead(line.plans, publish)
        both = self.dice.random() < 0.5
        if both:
            line.lead(line.reports, reports)
        self.holds_s = self.dice.uniform(2.0, 5.0)
        self.detail = f"{self.node}, {'both lines' if both else 'plans only'}, {self.holds_s:.1f} s"

    def heal(self) -> None:
        line, (publish, reports) = self.stage.lines[self.node], self.stage.layout.gang_ports
        line.lead(line.plans, publish)
        line.lead(line.reports, reports)
        end_daemons(self.stage.intruders, within_s=5.0)
        self.stage.intruders.clear()

    def check(self) -> None:
        if not self.stage.is_alive(CONTROLLER):
            raise Broken("the first controller died")


def _hello(node: str) -> Hello:
    return Hello(
        node=node, incarnation=INCARNATION, boot_id="b", pid=1, agent_version="1", freezer="recording"
    )


def _environment() -> dict[str, str]:
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _answers(peer: zmq.Socket[bytes]) -> list[bytes]:
    """Take the answers that came."""
    taken = []
    while peer.poll(0):
        taken.append(peer.recv_multipart()[-1])
    return taken


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


PEER_FAULTS: tuple[type[Fault], ...] = (
    Impostor, ForeignNodeKey, IdleConnections, StrangerKey, AgentWrongKey, TwoControllers,
)  # fmt: skip
