"""Peers that should not be there, or hold the wrong keys."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress

import zmq

from deploy.local.daemons import Daemon, end_daemons, start_daemon
from deploy.local.layout import free_ports
from gangd.keys import KeyPair, load_agent_keys, make_keys
from gangd.wire import Hello, Ping, Report, encode
from tests.chaos.broken import Broken, wait_for
from tests.chaos.fault import Fault
from tests.chaos.faults.messages import INCARNATION, MessageFault
from tests.chaos.forger import client, send_all
from tests.chaos.stage import CONTROLLER, LEASE_S


class Impostor(MessageFault):
    """Somebody who stole a node's key says hello in its name and reports old things."""

    name = "impostor with a node's key"

    def inject(self) -> None:
        known = load_agent_keys(self.stage.keys(), self.node)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            peer = client(context, zmq.DEALER, known.own, known.controller_public, self.node.encode())
            peer.connect(f"tcp://127.0.0.1:{self.stage.layout.gang_ports[1]}")
            hello = Hello(
                node=self.node,
                incarnation=INCARNATION,
                boot_id="b",
                pid=1,
                agent_version="1",
                freezer="recording",
            )
            messages = [[encode(hello)]]
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


class StrangerKey(MessageFault):
    """Somebody without a key of the allow-list speaks and listens in a node's name: in vain."""

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
                raise Broken("a stranger without a key was answered")
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

        role = self.stage.agent(self.node)
        self.stage.replace(role, change=change)
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
        stage.strangers.append(self._second)
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
        end_daemons(self.stage.strangers, within_s=5.0)
        self.stage.strangers.clear()

    def check(self) -> None:
        if not self.stage.is_alive(CONTROLLER):
            raise Broken("the first controller died")


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


PEER_FAULTS: tuple[type[Fault], ...] = (
    Impostor,
    StrangerKey,
    AgentWrongKey,
    TwoControllers,
)
