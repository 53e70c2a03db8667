"""What ``osub evict`` prints of a live eviction: the commands, and what came of them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from osub.cli.terminal import Console
from submitter.eviction.carry_out import End, Outcome
from submitter.eviction.eviction_orders import Fate, Order, Ways, commands

STYLES = {
    End.CANCELLED: "green",
    End.REQUEUED: "green",
    End.SAVED: "green",
    End.REFUSED: "bold red",
    End.UNKNOWN: "bold red",
    End.INTERRUPTED: "bold red",
    End.NOT_DONE: "bold yellow",
}


def show_commands(orders: Sequence[Order], ways: Ways, conf: Path | None) -> None:
    """Print the commands in their order, quoted for a shell."""
    if not orders:
        return
    console = Console()
    console.print("Commands, in this order:", markup=False, highlight=False)
    if conf is not None:
        line = f"  export {shlex.join([f'SLURM_CONF={conf}'])}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for order in orders:
        console.print(f"  {_typed(order, ways)}", markup=False, highlight=False, soft_wrap=True)


def show_outcomes(outcomes: Sequence[Outcome]) -> None:
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


def told(one: Outcome) -> str:
    """Return an outcome as a line."""
    after = "" if one.after_s is None else f"{one.after_s:6.1f} s  "
    note = f": {one.note}" if one.note else ""
    return f"{after}job {one.order.spec} ({one.order.fate}): {one.end}{note}"


def _typed(order: Order, ways: Ways) -> str:
    first, *then = (shlex.join(words) for words in commands(order, ways))
    if order.fate is Fate.APP:
        return f"{first}   # {order.planned_s / 60:g} min; if it has not ended in time: {then[0]}"
    if order.fate is Fate.SYSTEM:
        return f"{first} ; {then[0]}"
    return first
