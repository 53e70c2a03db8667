"""An eviction on a live Slurm, from what is asked for to what was freed: the simulator's answer as orders."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import ClusterError, UsageError
from foundation.one_line import one_line
from foundation.slurm import SlurmClient
from foundation.slurm.run_command import CommandOutput as CommandAnswer
from foundation.slurm.run_command import run_command
from foundation.units import counted, counted_of, verb
from osub.live.cluster import conf_in, find_cluster
from simulator.eviction import EvictionChoice, EvictionSolver
from simulator.eviction.eviction_problem import MOST_LOSS, MOST_MINUTES
from simulator.eviction.jobs_file import read_cells
from simulator.eviction.running_jobs import (
    EvictionCandidate,
    EvictionRules,
    EvictionWorld,
    LiveAnswers,
    OperatorKnowledge,
    answer_world,
    look,
)
from submitter.eviction import Eviction, EvictionMeans, EvictionOrder, Fate, OrderOutcome

NO_SYSTEM = "System checkpoints are left out: no --system-command says how to take one (DMTCP, CRIU)."
NO_APP = "No job is known to save itself at a signal (--app-min, --times): jobs can only be killed."


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRequest:
    """What is wanted: so many nodes by a deadline, by which rules and in which ways."""

    free_nodes: int
    deadline_min: float
    step_min: float
    solver: EvictionSolver
    rules: EvictionRules
    ways: EvictionMeans


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The Slurm that is asked, seconds since the epoch, seconds that only go up, and waiting.

    ``conf`` is the slurm.conf that commands are given; None: this host's own.
    """

    client: SlurmClient
    conf: Path | None = None
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class Found:
    """What runs now, the answers for each deadline, what is to be done for the last, and facts in words."""

    world: EvictionWorld
    answers: LiveAnswers
    orders: list[EvictionOrder]
    facts: list[str]

    @property
    def possible(self) -> bool:
        """Whether the nodes can be free by the deadline."""
        return self.answers.answers[-1].possible

    def owners(self) -> int:
        """Return how many users' jobs are to be evicted."""
        users = {running.spec: running.user for running in self.world.jobs}
        return len({users[order.spec] for order in self.orders})


def surroundings(cluster: Path | None) -> Surroundings:
    """Return the surroundings of a command that names this cluster."""
    client, _ = find_cluster(cluster)
    return Surroundings(client=client, conf=None if cluster is None else conf_in(cluster))


def look_and_answer(around: Surroundings, wanted: EvictionRequest) -> Found:
    """Look at the running jobs and answer; raises UsageError for a partition that is not there."""
    world = look_at(around.client, around.now(), wanted.rules)
    answers = answer_world(world, wanted.free_nodes, wanted.deadline_min, wanted.step_min, wanted.solver)
    return Found(world, answers, orders_of(world, answers), _facts(wanted, world, answers))


def _facts(wanted: EvictionRequest, world: EvictionWorld, found: LiveAnswers) -> list[str]:
    hold = "holds" if len(world.jobs) == 1 else "hold"
    idle = f"{world.idle:,} more {'is' if world.idle == 1 else 'are'} idle"
    facts = [
        (
            f"{counted(len(world.jobs), 'job')} that can be evicted {hold} "
            f"{counted(len(world.holders), 'node')}, {idle}. "
            f"{max(0, wanted.free_nodes):,} of those held are to be free within "
            f"{wanted.deadline_min:g} min; loss in node-hours, times in minutes."
        ),
        *world.notes,
        *found.notes,
    ]
    if not wanted.ways.system_command:
        facts.append(NO_SYSTEM)
    if all(running.job.ta_min is None for running in world.jobs):
        facts.append(NO_APP)
    return facts


def eviction_of(
    around: Surroundings,
    wanted: EvictionRequest,
    orders: Sequence[EvictionOrder],
    tell: Callable[[OrderOutcome], None],
) -> Eviction:
    """Return the eviction that carries the orders out; ``tell`` is called with each outcome as it comes."""
    environment = dict(os.environ)
    if around.conf is not None:
        environment["SLURM_CONF"] = str(around.conf)

    def run_outside(words: Sequence[str], timeout_s: float) -> CommandAnswer:
        return run_command(words, None, environment, timeout_s)

    return Eviction(
        client=around.client,
        orders=orders,
        ways=wanted.ways,
        run_command=run_outside,
        clock=around.clock,
        pause=around.pause,
        tell=tell,
    )


def check_freed(wanted: EvictionRequest, world: EvictionWorld, eviction: Eviction | None) -> str | None:
    """Return a remark where the jobs let go of their nodes too late, None where they did in time.

    Raises
    ------
    ClusterError
        They have not let go of enough nodes.
    """
    if eviction is None:
        raise ClusterError(f"nothing was done: {counted(wanted.free_nodes, 'node')} cannot be free in time")
    specs = {one.order.spec for one in eviction.outcomes} - eviction.holding
    places = frozenset(place for place, running in enumerate(world.jobs) if running.spec in specs)
    freed = len(world.freed(places))
    if freed < wanted.free_nodes:
        raise ClusterError(
            f"only {counted_of(freed, wanted.free_nodes, 'node')} {verb(freed, 'was', 'were')} let "
            "go; see what was refused above"
        )
    late_s = (eviction.freed_s or 0.0) - wanted.ways.deadline_s
    return (
        f"{counted(freed, 'node')} {verb(freed, 'was', 'were')} let go, the last {late_s:.0f} s "
        "after the deadline"
        if late_s > 0
        else None
    )


def read_known(path: Path, *, has_system: bool) -> dict[str, OperatorKnowledge]:
    """Read what is known of single jobs: CSV with ``job`` and any of ``loss``, ``ts_min`` and ``ta_min``.

    ``ts_min`` counts only where there is a command to checkpoint a job from outside.
    """
    return {
        cells.text("job"): OperatorKnowledge(
            loss=cells.number("loss", MOST_LOSS),
            ts_min=cells.number("ts_min", MOST_MINUTES) if has_system else None,
            ta_min=cells.number("ta_min", MOST_MINUTES),
        )
        for cells in read_cells(path, ("job",), ("loss", "ts_min", "ta_min"))
    }


def check_program(name: str) -> None:
    """Raise UsageError for a program that does not exist, before a job is ended without a checkpoint."""
    if shutil.which(name) is None:
        raise UsageError(f"--system-command: there is no program {one_line(name)} that could be run")


def look_at(client: SlurmClient, now: float, rules: EvictionRules) -> EvictionWorld:
    """Return the jobs that may be evicted, and who holds which nodes.

    Raises
    ------
    UsageError
        There is no such partition.
    """
    partitions = client.partitions()
    if rules.partition is not None and rules.partition not in {part.name for part in partitions}:
        raise UsageError(f"--partition: this Slurm has no partition {rules.partition}")
    nodes = client.nodes()
    return look(client.jobs(), nodes, partitions, now, rules)


def orders_of(world: EvictionWorld, found: LiveAnswers) -> list[EvictionOrder]:
    """Return what is to be done for the last deadline, kills first."""
    choices, question = found.answers[-1].choices, found.question
    orders = [
        EvictionOrder(
            spec=running.spec,
            job_id=running.job_id,
            start_time=running.start_time,
            fate=Fate(choices[running.spec].value),
            planned_s=60 * question.minutes_of(question.steps_of(_minutes(running, choices)) or 0),
        )
        for running in world.jobs
        if running.spec in choices
    ]
    return sorted(orders, key=lambda order: order.fate is not Fate.KILL)


def _minutes(running: EvictionCandidate, choices: Mapping[str, EvictionChoice]) -> float | None:
    return running.job.minutes(choices[running.spec])
