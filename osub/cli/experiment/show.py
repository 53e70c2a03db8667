"""What the experiments' commands print: tables, notes and progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from osub.cli.terminal import Console

if TYPE_CHECKING:
    from simulator.experiment_page import ExperimentTable


def progress() -> Progress:
    """Return a progress bar on standard error, silent where that is no terminal."""
    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)


def steps_of(bar: Progress, name: str) -> Callable[[int], Callable[[str], None]]:
    """Return a function of the number of steps; it returns a function to call with each finished step."""

    def steps(total: int) -> Callable[[str], None]:
        task = bar.add_task(name, total=total)
        return lambda label: bar.update(task, advance=1, description=label)

    return steps


def show_table(table: ExperimentTable) -> None:
    """Print a table and its notes."""
    console = Console()
    # Above the table and not its title: Rich breaks titles that are wider than their tables.
    note(f"{table.name}: {table.title}")
    grid = Table(pad_edge=False)
    for number, name in enumerate(table.columns):
        grid.add_column(Text(name), justify="left" if number == 0 else "right")
    for row in table.rows:
        grid.add_row(*map(Text, row))
    console.print(grid)
    for line in table.notes:
        note(f"  {line}")


def note(text: str) -> None:
    """Print a line as it is."""
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
