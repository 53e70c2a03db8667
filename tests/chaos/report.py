"""The table of faults and outcomes, in markdown."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.chaos.campaign import Outcome
from tests.chaos.stage import ALLOWANCE_S, HEALTH_CHECK_S, KILL_WAIT_S, MULTIPLICITY, QUANTUM_MS

NOTES = """## What is covered, and what is not

* Loss, delay, damage, repetition and change of order are applied to the ZMTP frames between one agent and the
  controller by a TCP proxy that has no key. CURVE numbers and seals its frames: a repeated, changed or
  displaced one ends the connection and never reaches gangd; what gangd itself does with old, damaged and
  random messages is shown by "replayed plans", "corrupted plans" and the fuzzed frames, which are sent with
  genuine keys.
* A time namespace shifts CLOCK_MONOTONIC for good for the processes that begin in it. A clock that jumps is
  therefore a daemon that is replaced by one whose clock differs; moving the controller is a jump for agents
  that go on running. No clock drifts: "seeming clock drift" makes answers later and later, which is what an
  agent would see of drift, up to 100 ms a second.
* Partitions are made by the proxy (all is delivered late) and, where it says namespace, by taking down the
  link of an agent in a network namespace of its own.
* With agent and guardian gone at once only slurmd's health check thaws (`gang-agent thaw --expired`), within
  HealthCheckInterval and what slurmctld takes to send it round. Slurm asks for it through slurmctld: while
  that is away too, nothing is left that thaws; a timer of the node's service manager closes this gap.
* What slurmctld had not saved when it was killed is Slurm's to lose; the campaign waits for its save.
* "stepped clock" sets the host's wall clock; CLOCK_MONOTONIC, by which gangd acts, cannot be set.
* The stage's Slurm is on cgroup v1; "late task on cgroup v2" has a step, a ledger and a holder of its own.
* Host failure, a kernel that does not thaw, and full disks are not part of it.
"""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a campaign as a whole has to say; ``ended`` counts guests by final state, on all ``stages``."""

    seed: int
    outcomes: Sequence[Outcome]
    ended: dict[str, int]
    cancelled: int
    worst_gone_s: float
    wall_s: float
    end: str | None
    stages: int = 1
    hold: str = "freeze"
    parts: Sequence[str] = ()

    @property
    def broken(self) -> list[Outcome]:
        """Outcomes with an invariant that did not hold."""
        return [one for one in self.outcomes if one.broken]

    @property
    def is_clean(self) -> bool:
        """Whether everything held."""
        return not self.broken and self.end is None


def markdown(summary: Summary) -> str:
    """Return the whole report."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    drained = sum("node " in (one.broken or "") for one in summary.outcomes) or "none"
    ended = ", ".join(f"{count} {state}" for state, count in sorted(summary.ended.items()))
    command = f"python -m tests.chaos --faults {len(summary.outcomes)} --seed {summary.seed}"
    if summary.hold != "freeze":
        command += f" --hold {summary.hold}"
    command += "".join(f" --with {part}" for part in summary.parts)
    if summary.stages > 1:
        command += f" --stages {summary.stages}"
    facts = f"load at the end {load}; {os.cpu_count()} CPUs, Linux {platform.release()}"
    head = f"""# Faults and outcomes

`{command}`: {len(summary.outcomes)} faults, {len(summary.broken)} with a broken invariant, in
{summary.wall_s:.0f} s ({facts}).

An embedded Slurm of 2 nodes of 1 core, M={MULTIPLICITY}, slices of {QUANTUM_MS} ms, lease 2 s.
KillWait={KILL_WAIT_S}, UnkillableStepTimeout=10, HealthCheckInterval={HEALTH_CHECK_S}. Two wide gangs share
every core all along; faults bring jobs of their own.

* Jobs of the faults, ended as expected: {ended or "none"}.
* The two wide gangs: {summary.end or "COMPLETED, never restarted"}.
* Cancelled jobs: {summary.cancelled}; the slowest was gone {summary.worst_gone_s:.1f} s after its scancel
  (KillWait is {KILL_WAIT_S} s; some ignore SIGTERM).
* Longest time that any job stood still without a break: {_worst(summary.outcomes):.2f} s (allowed:
  {ALLOWANCE_S:g} s; with agent and guardian gone at once, the health check's round).
* Nodes drained or down, unless the fault did it: {drained}.

Standing still (frozen or stopped; who yields does not) is measured from outside, fifty times a second.
Recovery is counted from healing until every agent had joined and both gangs took turns on every node again.
"""
    lines = [
        head,
        "| fault | times | held | worst standstill (s) | slowest recovery (s) |",
        "| --- | --- | --- | --- | --- |",
        *(_row(name, summary.outcomes) for name in sorted({one.name for one in summary.outcomes})),
        "",
        *_failures(summary.broken),
        NOTES,
        "## Each fault",
        "",
        "| # | fault | what | standstill (s) | recovered (s) | lasted (s) | outcome |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(_one(one) for one in summary.outcomes),
        "",
    ]
    return "\n".join(lines)


def line(one: Outcome) -> str:
    """Return one line for the terminal."""
    recovered = "-" if one.recovered_s is None else f"{one.recovered_s:.1f} s"
    return (
        f"{one.number:4d} {'ok    ' if one.broken is None else 'BROKEN'} {one.name} ({one.detail}): still "
        f"{one.worst_s:.2f} s, recovered {recovered}, lasted {one.lasted_s:.1f} s"
        + (f"\n     {one.broken}" if one.broken else "")
    )


def _worst(outcomes: Iterable[Outcome]) -> float:
    return max((one.worst_s for one in outcomes), default=0.0)


def _row(name: str, outcomes: Iterable[Outcome]) -> str:
    mine = [one for one in outcomes if one.name == name]
    held = sum(one.broken is None for one in mine)
    recovered = max((one.recovered_s for one in mine if one.recovered_s is not None), default=0.0)
    return f"| {name} | {len(mine)} | {held} | {_worst(mine):.2f} | {recovered:.1f} |"


def _failures(broken: Sequence[Outcome]) -> list[str]:
    if not broken:
        return []
    return [
        "## Broken",
        "",
        *(f"* {one.number}, {one.name} ({one.detail}): {one.broken}" for one in broken),
        "",
    ]


def _one(one: Outcome) -> str:
    recovered = "" if one.recovered_s is None else f"{one.recovered_s:.1f}"
    outcome = (one.broken or "held").replace("|", "/")
    return (
        f"| {one.number} | {one.name} | {one.detail} | {one.worst_s:.2f} | {recovered} | "
        f"{one.lasted_s:.1f} | {outcome} |"
    )
