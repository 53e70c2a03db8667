"""``osub evict`` on a live Slurm: the running jobs, the trade-off, the commands, and carrying them out."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import typer

from foundation.errors import ClusterError, UsageError
from foundation.slurm import SlurmClient
from foundation.slurm.run import Answer as CommandAnswer
from foundation.slurm.run import run_command
from osub.cli.evict_orders import conf_of, show_commands, show_outcomes, told
from osub.cli.evict_show import facts_of, show_answers
from osub.cli.terminal import Console
from osub.live.cluster import find_cluster
from osub.live.eviction import check_program, look_at, orders_of
from simulator.eviction import Answer, Solver
from simulator.eviction.live import LiveAnswers, answer_world
from simulator.eviction.running import Rules, World
from submitter.eviction.carry_out import Eviction
from submitter.eviction.orders import Fate, Order, Ways, commands

NO_SYSTEM = "System checkpoints are left out: no --system-command says how to take one (DMTCP, CRIU)."
NO_APP = "No job is known to save itself at a signal (--app-min, --times): jobs can only be killed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the options of ``osub evict`` ask for on a live Slurm."""

    cluster: Path | None
    free_nodes: int
    deadline_min: float
    step_min: float
    solver: Solver
    rules: Rules
    ways: Ways
    all_deadlines: bool
    html: Path | None
    as_json: bool
    execute: bool
    yes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The Slurm that is asked, seconds since the epoch, seconds that only go up, and waiting."""

    client: SlurmClient
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep


def surroundings(cluster: Path | None) -> Surroundings:
    """Return the surroundings of a command that names this cluster."""
    return Surroundings(client=find_cluster(cluster)[0])


def evict_live(wanted: Wanted) -> None:
    """Show what to evict from a live Slurm, and evict it if that is wanted."""
    if wanted.execute and not wanted.yes and (wanted.as_json or not sys.stdin.isatty()):
        raise UsageError("--execute asks before it evicts; where nobody can answer, say --yes")
    if wanted.execute and wanted.ways.system_command:
        check_program(wanted.ways.system_command[0])
    around = surroundings(wanted.cluster)
    world = look_at(around.client, around.now(), wanted.rules)
    found = answer_world(world, wanted.free_nodes, wanted.deadline_min, wanted.step_min, wanted.solver)
    orders = orders_of(world, found)
    facts = _facts(wanted, world, found)
    if wanted.html is not None:
        from simulator.eviction.page import write_trade_off

        write_trade_off(wanted.html, facts, found.question, {wanted.solver.value: found.answers})
    if not wanted.as_json:
        show_answers(facts, found.answers)
        show_commands(orders, wanted.ways, wanted.cluster)
    eviction = None
    if wanted.execute and found.answers[-1].possible:
        _ask(wanted, world, orders)
        eviction = _eviction(around, wanted, orders)
    try:
        if eviction is not None:
            with _stopped_by_signals():
                eviction.run()
    finally:
        if wanted.as_json:
            typer.echo(_json(wanted, facts, found.answers, orders, eviction))
        elif eviction is not None:
            show_outcomes(eviction.outcomes)
    if wanted.execute:
        _check_freed(wanted, world, eviction)


def _facts(wanted: Wanted, world: World, found: LiveAnswers) -> list[str]:
    facts = [
        (
            f"{len(world.jobs)} jobs that can be evicted hold {len(world.holders):,} nodes, {world.idle:,} "
            f"more are idle. {max(0, wanted.free_nodes):,} of those held are to be free within "
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


def _ask(wanted: Wanted, world: World, orders: Sequence[Order]) -> None:
    """Ask whether to go on, unless that is answered already."""
    if wanted.yes or not orders:
        return
    owners = {running.spec: running.user for running in world.jobs}
    users = len({owners[order.spec] for order in orders})
    often = Counter(order.fate for order in orders)
    told = ", ".join(f"{often[fate]} {fate}" for fate in Fate if often[fate])
    typer.confirm(f"Evict {len(orders)} jobs of {users} users ({told})?", abort=True, err=True)


def _eviction(around: Surroundings, wanted: Wanted, orders: Sequence[Order]) -> Eviction:
    console = Console(stderr=True)
    environment = dict(os.environ)
    if wanted.cluster is not None:
        environment["SLURM_CONF"] = str(conf_of(wanted.cluster))

    def run_outside(words: Sequence[str], timeout_s: float) -> CommandAnswer:
        return run_command(words, None, environment, timeout_s, own_group=True)

    return Eviction(
        client=around.client,
        orders=orders,
        ways=wanted.ways,
        run_command=run_outside,
        clock=around.clock,
        pause=around.pause,
        tell=lambda one: console.print(told(one), markup=False, highlight=False, soft_wrap=True),
    )


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end an eviction as Ctrl-C does: with what was done."""
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check_freed(wanted: Wanted, world: World, eviction: Eviction | None) -> None:
    """Raise ClusterError unless the jobs have let go of enough nodes; tell if they were late."""
    if eviction is None:
        raise ClusterError(f"nothing was done: {wanted.free_nodes} nodes cannot be free in time")
    specs = {one.order.spec for one in eviction.outcomes} - eviction.holding
    places = frozenset(place for place, running in enumerate(world.jobs) if running.spec in specs)
    freed = len(world.freed(places))
    if freed < wanted.free_nodes:
        raise ClusterError(
            f"only {freed} of {wanted.free_nodes} nodes were let go; see what was refused above"
        )
    late_s = (eviction.freed_s or 0.0) - wanted.ways.deadline_s
    if late_s > 0:
        line = f"{freed} nodes were let go, the last {late_s:.0f} s after the deadline"
        Console(stderr=True).print(line, markup=False, highlight=False)


def _json(
    wanted: Wanted,
    facts: Sequence[str],
    answers: Sequence[Answer],
    orders: Sequence[Order],
    eviction: Eviction | None,
) -> str:
    shown = answers if wanted.all_deadlines else answers[-1:]
    found: dict[str, object] = {
        "deadlines": [facts_of(answer) for answer in shown],
        "facts": facts,
        "orders": [
            {"job": order.spec, "choice": order.fate, "commands": commands(order, wanted.ways)}
            for order in orders
        ],
    }
    if eviction is not None:
        found["outcomes"] = [
            {"job": one.order.spec, "end": one.end, "after_s": one.after_s, "note": one.note}
            for one in eviction.outcomes
        ]
        found["freed_s"] = eviction.freed_s
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()
