"""What ``osub evict`` prints: the trade-off as a table with bars, the choices, and JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from osub.cli.terminal import Console
from simulator.eviction.eviction_problem import (
    EvictableJob,
    EvictionAnswer,
    EvictionChoice,
    alike,
    answer_rows,
    overlapped_min,
)

LEAST_BAR, MOST_BAR = 4, 40
FRAME = 3
"""Width of a column besides its text."""
STYLES = {
    EvictionChoice.KILL: "bold red",
    EvictionChoice.APP: "bold blue",
    EvictionChoice.SYSTEM: "bold yellow",
}
OVERLAP = "overlapped"


def show_answers(
    facts: Sequence[str], answers: Sequence[EvictionAnswer], overlapped: Sequence[EvictableJob] | None = None
) -> None:
    """Print the table, and the choices for the last deadline.

    ``overlapped`` has the jobs if the time of checkpoints with overlapping waits is printed.
    """
    console = Console()
    for fact in facts:
        console.say(fact)
    width = console.measure(_table(answers, overlapped)).maximum
    bar = min(MOST_BAR, console.width - width - FRAME)
    console.print(_table(answers, overlapped, bar))
    show_choices(answers[-1])


def show_choices(answer: EvictionAnswer) -> None:
    """Print what becomes of which jobs, one line a choice."""
    console = Console()
    if not answer.possible:
        note = (
            f"Within {answer.deadline_min:g} min it is not possible: too many jobs can't be evicted in time."
        )
        console.say(note)
        return
    for choice in EvictionChoice:
        names = [name for name, taken in answer.choices.items() if taken is choice]
        if names:
            console.print(Text.assemble((f"{choice}: ", STYLES[choice]), ", ".join(names)))
    if not answer.choices:
        console.say("Nothing needs to be evicted.")


def facts_of(answer: EvictionAnswer, overlapped: Sequence[EvictableJob] | None = None) -> dict[str, object]:
    """Return an answer as JSON has it; whole minutes are whole numbers."""
    facts: dict[str, object] = {
        "deadline_min": _plain(answer.deadline_min),
        "possible": answer.possible,
        "loss": answer.loss,
        "checkpoint_min": _plain(answer.checkpoint_min),
        "nodes": answer.nodes,
        "choices": {name: choice.value for name, choice in answer.choices.items()},
    }
    if overlapped is not None:
        facts["overlapped_min"] = overlapped_min(overlapped, answer.choices) if answer.possible else None
    return facts


def _table(
    answers: Sequence[EvictionAnswer], overlapped: Sequence[EvictableJob] | None, bar: int = 0
) -> Table:
    """Return the table, with bars of at most that length."""
    header, rows = answer_rows(answers)
    table = Table(header_style="bold", pad_edge=False)
    for name in (*header, *(() if overlapped is None else (OVERLAP,))):
        table.add_column(Text(name), justify="right", no_wrap=True)
    has_bars = bar >= LEAST_BAR and len(rows) > 1
    if has_bars:
        table.add_column("", no_wrap=True)
    groups = alike(answers)
    most = max((answer.loss or 0.0 for answer in answers), default=0.0)
    for (answer, *_), row in zip(groups, rows, strict=True):
        cells = [*row]
        if overlapped is not None:
            cells.append(f"{overlapped_min(overlapped, answer.choices):.1f}" if answer.possible else "-")
        if has_bars:
            cells.append("█" * round(bar * (answer.loss or 0.0) / most) if most else "")
        table.add_row(*map(Text, cells))
    return table


def _plain(value: float | None) -> float | int | None:
    return int(value) if value is not None and value == int(value) else value
