"""``osub evict`` on a live Slurm: the running jobs, the trade-off, the commands, and carrying them out."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import typer

from foundation.errors import UsageError
from osub.cli.evict.answers_shown import facts_of, show_answers
from osub.cli.evict.orders_shown import show_commands, show_outcomes, told
from osub.cli.interrupts import ended_as_by_ctrl_c
from osub.cli.terminal import Console
from osub.live.evicting import Found, Wanted, check_freed, eviction_of, look_and_answer, surroundings
from osub.live.eviction import check_program
from simulator.eviction import Answer
from submitter.eviction.carry_out import Eviction
from submitter.eviction.eviction_orders import Fate, Ways, commands


def evict_live(
    cluster: Path | None,
    wanted: Wanted,
    *,
    all_deadlines: bool,
    html: Path | None,
    as_json: bool,
    execute: bool,
    yes: bool,
) -> None:
    """Show what to evict from a live Slurm, and evict it if that is wanted."""
    if execute and not yes and (as_json or not sys.stdin.isatty()):
        raise UsageError("--execute asks before it evicts; where nobody can answer, say --yes")
    if execute and wanted.ways.system_command:
        check_program(wanted.ways.system_command[0])
    around = surroundings(cluster)
    found = look_and_answer(around, wanted)
    answers = found.answers.answers
    if html is not None:
        from simulator.eviction.eviction_page import write_trade_off

        write_trade_off(html, found.facts, found.answers.question, {wanted.solver.value: answers})
    if not as_json:
        show_answers(found.facts, answers)
        show_commands(found.orders, wanted.ways, around.conf)
    eviction = None
    if execute and found.possible:
        if not yes:
            _ask(found)
        console = Console(stderr=True)
        eviction = eviction_of(
            around,
            wanted,
            found.orders,
            lambda one: console.print(told(one), markup=False, highlight=False, soft_wrap=True),
        )
    try:
        if eviction is not None:
            # What was done is told, however it ends.
            with ended_as_by_ctrl_c(signal.SIGTERM, signal.SIGHUP):
                eviction.run()
    finally:
        if as_json:
            typer.echo(_json(found, answers if all_deadlines else answers[-1:], wanted.ways, eviction))
        elif eviction is not None:
            show_outcomes(eviction.outcomes)
    remark = check_freed(wanted, found.world, eviction) if execute else None
    if remark is not None:
        Console(stderr=True).print(remark, markup=False, highlight=False)


def _ask(found: Found) -> None:
    """Ask whether to go on, unless nothing is to be done."""
    if not found.orders:
        return
    often = Counter(order.fate for order in found.orders)
    told = ", ".join(f"{often[fate]} {fate}" for fate in Fate if often[fate])
    typer.confirm(f"Evict {len(found.orders)} jobs of {found.owners()} users ({told})?", abort=True, err=True)


def _json(found: Found, shown: Sequence[Answer], ways: Ways, eviction: Eviction | None) -> str:
    document: dict[str, object] = {
        "deadlines": [facts_of(answer) for answer in shown],
        "facts": found.facts,
        "orders": [
            {"job": order.spec, "choice": order.fate, "commands": commands(order, ways)}
            for order in found.orders
        ],
    }
    if eviction is not None:
        document["outcomes"] = [
            {"job": one.order.spec, "end": one.end, "after_s": one.after_s, "note": one.note}
            for one in eviction.outcomes
        ]
        document["freed_s"] = eviction.freed_s
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
