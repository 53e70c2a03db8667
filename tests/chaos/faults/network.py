"""What the network between controller and agents does: loss, delay, damage, repetition, partitions."""

from __future__ import annotations

import random
import subprocess
from typing import ClassVar

from tests.chaos.broken import Broken
from tests.chaos.fault import Fault
from tests.chaos.proxy import Weather
from tests.chaos.stage import Stage
from tests.chaos.troupe import Troupe


class WeatherFault(Fault):
    """Weather over the line of one node, or of all."""

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.nodes = stage.nodes if dice.random() < 0.3 else (self.a_node(),)
        self.holds_s = dice.uniform(1.5, 2.5 if brief else 5.0)

    def weather(self) -> Weather:
        """Draw the weather."""
        raise NotImplementedError

    def inject(self) -> None:
        weather = self.weather()
        for node in self.nodes:
            self.stage.lines[node].weather = weather
        where = "all nodes" if len(self.nodes) > 1 else self.nodes[0]
        self.detail = f"{where}, {self.holds_s:.1f} s{self.detail}"

    def heal(self) -> None:
        for node in self.nodes:
            self.stage.lines[node].calm()


class Loss(WeatherFault):
    """A part of the frames is lost, halves of messages among them."""

    name = "message loss"

    def weather(self) -> Weather:
        loss = self.dice.choice([0.05, 0.2, 0.5, 0.9])
        self.detail = f", {loss:.0%} of frames"
        return Weather(loss=loss)


class Delay(WeatherFault):
    """Frames are late by a random time; later than the lookahead, and at times than the lease."""

    name = "message delay"

    def weather(self) -> Weather:
        most_s = self.dice.choice([0.02, 0.1, 0.5, 2.5])
        self.detail = f", up to {most_s:g} s"
        return Weather(delay_s=(0.0, most_s))


class Reordering(WeatherFault):
    """Frames change places; CURVE's counters refuse them and the connection is made anew."""

    name = "message reordering"

    def weather(self) -> Weather:
        swap = self.dice.choice([0.01, 0.1, 0.4])
        self.detail = f", {swap:.0%} of frames"
        return Weather(swap=swap)


class ReplayedFrames(WeatherFault):
    """Recorded frames are sent again on the same connection; CURVE's counters refuse them."""

    name = "replayed frames"

    def weather(self) -> Weather:
        repeat = self.dice.choice([0.01, 0.1, 0.4])
        self.detail = f", {repeat:.0%} of frames"
        return Weather(repeat=repeat)


class Corruption(WeatherFault):
    """Bits of frames are flipped on the way; CURVE's seals refuse them."""

    name = "corrupted frames"

    def weather(self) -> Weather:
        corrupt = self.dice.choice([0.01, 0.1, 0.5])
        self.detail = f", {corrupt:.0%} of frames"
        return Weather(corrupt=corrupt)


class Drift(WeatherFault):
    """Answers become later and later, which is how a drift of the clocks looks to an agent."""

    name = "seeming clock drift"

    def weather(self) -> Weather:
        drift = self.dice.choice([0.001, 0.01, 0.1])
        self.detail = f", {drift * 1000:g} ms a second"
        return Weather(drift=drift, drift_from_s=self.stage.proxies.now_s())


class Partition(WeatherFault):
    """Nothing passes; what was sent arrives late, when the partition is over."""

    name = "network partition"
    share: ClassVar[float] = 1.5

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.holds_s = dice.uniform(0.3, 4.0 if brief else 8.0)

    def weather(self) -> Weather:
        return Weather(cut=True)


class Flapping(WeatherFault):
    """Every connection is closed, again and again."""

    name = "connections reset"

    def weather(self) -> Weather:
        return Weather()

    def inject(self) -> None:
        super().inject()
        times = self.dice.randint(1, 10)
        self.detail += f", {times} times"
        for _ in range(times):
            for node in self.nodes:
                self.stage.lines[node].reset()
            self.stage.pause(self.dice.uniform(0.02, 0.3))
        self.holds_s = 0.1


class NamespacePartition(Fault):
    """An agent in a network namespace of its own; its link goes down, and up again."""

    name = "network partition (namespace)"
    share = 0.6
    short = False

    def __init__(self, stage: Stage, troupe: Troupe, dice: random.Random, *, brief: bool) -> None:
        super().__init__(stage, troupe, dice, brief=brief)
        self.node = self.a_node()
        self.holds_s = dice.uniform(0.5, 6.0)
        self._space = f"chaos-{stage.nodes[0]}"[:15]
        self._link = f"c{stage.nodes[0].split('-')[0]}"[:12]
        third = dice.randint(16, 250)
        self._here, self._there = f"169.254.{third}.1", f"169.254.{third}.2"

    def inject(self) -> None:
        link, space = self._link, self._space
        _ip("netns", "add", space)
        _ip("link", "add", f"{link}h", "type", "veth", "peer", "name", f"{link}n", "netns", space)
        _ip("addr", "add", f"{self._here}/30", "dev", f"{link}h")
        _ip("link", "set", f"{link}h", "up")
        _ip("-n", space, "addr", "add", f"{self._there}/30", "dev", f"{link}n")
        _ip("-n", space, "link", "set", f"{link}n", "up")
        line = self.stage.lines[self.node]
        line.also_listen(self._here)
        self.stage.replace(
            self.stage.agent(self.node),
            prefix=["/usr/bin/nsenter", f"--net=/var/run/netns/{space}"],
            change=lambda words: [*words[:-1], line.endpoints(self._here), "--freezer", "cgroup1"],
        )
        self.stage.wait_joined()
        self.troupe.wait_turns()
        _ip("link", "set", f"{link}h", "down")
        self.detail = f"{self.node}, {self.holds_s:.1f} s"

    def heal(self) -> None:
        # The agent must find its way back by itself before it is taken out of the namespace again.
        try:
            _ip("link", "set", f"{self._link}h", "up")
            self.stage.wait_joined()
            self.troupe.wait_turns()
        finally:
            self.stage.replace(self.stage.agent(self.node))
            self.stage.lines[self.node].forget(self._here)
            subprocess.run(["ip", "netns", "del", self._space], check=False, capture_output=True)
            subprocess.run(["ip", "link", "del", f"{self._link}h"], check=False, capture_output=True)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
    if done.returncode:
        raise Broken(f"`ip {' '.join(words)}` failed: {done.stderr.strip()}")


NETWORK_FAULTS: tuple[type[Fault], ...] = (
    Loss, Delay, Reordering, ReplayedFrames, Corruption, Drift, Partition, Flapping,
    NamespacePartition,
)  # fmt: skip
