"""``osub evict`` on a live Slurm: the running jobs, the trade-off, the commands, and carrying them out."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from foundation.errors import UsageError
from foundation.units import counted
from osub.cli.evict.answers_shown import facts_of, show_answers
from osub.cli.terminal import Console, ask_first, echo_json
from osub.live.evicting import (
    EvictionRequest,
    Found,
    check_freed,
    check_program,
    eviction_of,
    look_and_answer,
    surroundings,
)
from simulator.eviction import EvictionAnswer
from submitter.eviction import Eviction, EvictionMeans, EvictionOrder, Fate, OrderEnd, OrderOutcome, commands

STYLES = {
    OrderEnd.CANCELLED: "green",
    OrderEnd.REQUEUED: "green",
    OrderEnd.SAVED: "green",
    OrderEnd.REFUSED: "bold red",
    OrderEnd.UNKNOWN: "bold red",
    OrderEnd.INTERRUPTED: "bold red",
    OrderEnd.NOT_DONE: "bold yellow",
}


def evict_live(
    cluster: Path | None,
    wanted: EvictionRequest,
    *,
    all_deadlines: bool,
    html: Path | None,
    as_json: bool,
    execute: bool,
    yes: bool,
) -> None:
    """Show what to evict from a live Slurm, and evict it if that is wanted."""
    if execute and not yes and (as_json or not sys.stdin.isatty()):
        raise UsageError("--execute asks before it evicts; without a terminal, say --yes")
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
            around, wanted, found.orders, lambda one: console.say(outcome_line(one), soft_wrap=True)
        )
    try:
        if eviction is not None:
            eviction.run()
    finally:
        if as_json:
            _tell_json(found, answers if all_deadlines else answers[-1:], wanted.ways, eviction)
        elif eviction is not None:
            show_outcomes(eviction.outcomes)
    remark = check_freed(wanted, found.world, eviction) if execute else None
    if remark is not None:
        Console(stderr=True).say(remark)


def _ask(found: Found) -> None:
    """Ask whether to go on, unless nothing is to be done."""
    if not found.orders:
        return
    often = Counter(order.fate for order in found.orders)
    fates = ", ".join(f"{often[fate]} {fate}" for fate in Fate if often[fate])
    jobs, users = counted(len(found.orders), "job"), counted(found.owners(), "user")
    ask_first(f"Evict {jobs} of {users} ({fates})?", "nothing was evicted")


def _tell_json(
    found: Found, shown: Sequence[EvictionAnswer], ways: EvictionMeans, eviction: Eviction | None
) -> None:
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
    echo_json(document)


def show_commands(orders: Sequence[EvictionOrder], ways: EvictionMeans, conf: Path | None) -> None:
    """Print the commands in their order, quoted for a shell."""
    if not orders:
        return
    console = Console()
    console.say("Commands, in this order:")
    if conf is not None:
        line = f"  export {shlex.join([f'SLURM_CONF={conf}'])}"
        console.say(line, soft_wrap=True)
    for order in orders:
        console.say(f"  {_typed(order, ways)}", soft_wrap=True)


def show_outcomes(outcomes: Sequence[OrderOutcome]) -> None:
    """Print what came of each order."""
    table = Table(header_style="bold", pad_edge=False)
    for name in ("job", "choice", "what came of it", "after"):
        table.add_column(Text(name), overflow="fold", justify="right" if name == "after" else "left")
    for one in outcomes:
        what = Text(one.end.value, style=STYLES.get(one.end, ""))
        if one.note:
            what.append(f": {one.note}", style="default not bold")
        after = "-" if one.after_s is None else f"{one.after_s:.1f} s"
        table.add_row(Text(one.order.spec), Text(one.order.fate), what, Text(after))
    Console().print(table)


def outcome_line(one: OrderOutcome) -> str:
    """Return an outcome as a line."""
    after = "" if one.after_s is None else f"{one.after_s:6.1f} s  "
    note = f": {one.note}" if one.note else ""
    return f"{after}job {one.order.spec} ({one.order.fate}): {one.end}{note}"


def _typed(order: EvictionOrder, ways: EvictionMeans) -> str:
    first, *then = (shlex.join(words) for words in commands(order, ways))
    if order.fate is Fate.APP:
        return f"{first}   # {order.planned_s / 60:g} min; if it has not ended in time: {then[0]}"
    if order.fate is Fate.SYSTEM:
        return f"{first} ; {then[0]}"
    return first
