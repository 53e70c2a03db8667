"""``osub gang accounts``: CPU-hours that jobs ran and were held for, from the slice record of gangd."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

from foundation.errors import UsageError
from foundation.one_line import one_line
from foundation.units import counted
from gangd.controller.controller_status import read_status
from gangd.controller.slicelog import Hours, hours_by_job, read_rows, summed
from osub.cli.completion import clusters
from osub.cli.terminal import Console
from osub.live.gangd_state import find_status

By = Literal["job", "user", "account"]
HOUR_S = 3600.0


def accounts(
    by: Annotated[By, typer.Option("--by", help="What to sum by.")] = "job",
    hours: Annotated[
        float | None, typer.Option("--hours", min=0.0, help="Only the last so many hours.", metavar="H")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="A slice record, or its folder.", metavar="DIR")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state", help="Folder of an embedded cluster.", metavar="DIR", autocompletion=clusters
        ),
    ] = None,
    gangd: Annotated[
        Path | None, typer.Option("--gangd", help="State folder of a gangd.", metavar="DIR")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Sum the CPU-hours that jobs ran and were held for, by job, user or account.

    From the slice record (`record` in gangd.toml): what Slurm bills, held or not, taken apart.
    """
    path = record or _record_of(state, gangd)
    since_s = 0.0 if hours is None else time.time() - hours * HOUR_S
    jobs, unknown = hours_by_job(read_rows(path, since_s))
    sums = {
        "job": lambda: sorted(jobs.values(), key=lambda one: -one.held_s),
        "user": lambda: summed(jobs.values(), lambda one: one.user),
        "account": lambda: summed(jobs.values(), lambda one: one.account),
    }[by]()
    if as_json:
        answer = {"by": by, "unknown_jobs": sorted(unknown), "sums": [_hours_json(one) for one in sums]}
        typer.echo(json.dumps(answer))
        return
    _show(by, sums, len(unknown))


def _record_of(state: Path | None, gangd: Path | None) -> Path:
    found = read_status(find_status(state, gangd)).record
    if found is None:
        raise UsageError("gangd writes no slice record: set `record` in gangd.toml, or name one by --record")
    return Path(found)


def _hours_json(one: Hours) -> dict[str, object]:
    return {
        "name": one.name,
        "user": one.user,
        "account": one.account,
        "partition": one.partition,
        "jobs": len(one.jobs),
        "ran_cpu_h": one.ran_s / HOUR_S,
        "held_cpu_h": one.held_s / HOUR_S,
        "held_share": one.held_share,
    }


def _show(by: By, sums: Sequence[Hours], unknown: int) -> None:
    console = Console()
    more = ("user", "account", "partition") if by == "job" else ("jobs",)
    table = Table(by, *more, "CPU h ran", "CPU h held", "held")
    for one in sums:
        words = (one.user, one.account, one.partition) if by == "job" else (str(len(one.jobs)),)
        cells = (str(one.name) if one.name is not None else None, *words)
        table.add_row(
            *(Text("-" if cell is None else one_line(cell)) for cell in cells),
            f"{one.ran_s / HOUR_S:.3f}",
            f"{one.held_s / HOUR_S:.3f}",
            f"{one.held_share:.0%}",
        )
    console.print(table)
    if unknown:
        console.print(f"and {counted(unknown, 'job')} of which the record does not say whose they are")
