"""``osub simulate --multiplicity 1,2,4``: a RUN for each in one folder, and a comparison."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import typer

from foundation.errors import UsageError
from osub.api.run import Run
from osub.api.simulation import run_each
from osub.cli.terminal import Console
from osub.cli.waiting import waiting


def multiplicities(word: str) -> list[int]:
    """Return the numbers in ``1,2,4``, each once, in their order.

    Raises
    ------
    UsageError
        They are no whole numbers.
    """
    found = []
    for part in word.split(","):
        if not (part.strip().isascii() and part.strip().isdecimal() and len(part) < 12):
            raise UsageError(f"--multiplicity takes a whole number, or several as 1,2,4, not {word[:80]!r}")
        found.append(int(part))
    return list(dict.fromkeys(found))


def simulate_several(
    several: Sequence[int],
    out: Path,
    label: str | None,
    simulate: Callable[[int, Path, str | None], Run],
    what: str,
    *,
    as_json: bool,
) -> None:
    """Simulate with each multiplicity into ``out/mM``, and print verdict and metrics side by side.

    Parameters
    ----------
    several, out, label, simulate
        As ``run_each`` takes them; the first multiplicity is the reference.
    what
        Progress, for the user.
    as_json
        Whether to print JSON.

    Raises
    ------
    OsubError
        As ``run_each`` raises.
    """
    from analysis.comparison import compared

    def step(number: int, at: int) -> AbstractContextManager[None]:
        return waiting(f"{what}, M={number} ({at} of {len(several)})")

    runs = run_each(several, out, label, simulate, step)
    found = compared([run.record for run in runs])
    metrics = found.metrics()
    if as_json:
        answer = {"verdict": msgspec.to_builtins(found.verdict), "metrics": msgspec.to_builtins(metrics)}
        typer.echo(json.dumps({"runs": [str(run.path) for run in runs], **answer}))
        return
    from analysis.tables import metrics_tables
    from analysis.verdict.verdict_in_terminal import verdict_lines

    console = Console()
    for line in verdict_lines(found.verdict):
        console.print(line)
    for table in metrics_tables(metrics, console.width, short=True):
        console.print(table)
    folders = shlex.join(str(run.path) for run in runs)
    typer.echo(f"the runs are in {out}; `osub compare {folders} --html compare.html` draws them")
