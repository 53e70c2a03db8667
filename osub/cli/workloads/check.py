"""``osub workloads check``: how near a trace's batch jobs come to their targets."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from osub.cli.terminal import Console
from osub.cli.workloads.job_options import (
    Apps,
    Cluster,
    InteractiveQueue,
    Json,
    Speedup,
    Stored,
)
from osub.live.alone import AIM_S, AIM_SHARE, CheckRow, check_jobs


def check(
    cluster: Cluster,
    calibration: Stored,
    trace: Annotated[Path, typer.Option("--trace", help="The batch jobs of this trace, as replayed.")],
    apps: Apps = None,
    speedup: Speedup = 1.0,
    interactive_queue: InteractiveQueue = 0,
    most: Annotated[
        int | None, typer.Option("--most", help="At most so many jobs, spread over the targets.", min=1)
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a trace's batch jobs alone, one after another, and say how near each comes to its target.

    Exit code 1 where one is off by more than 5% and 0.5 s, or where none could be judged; targets below a
    job's start-up are counted apart.
    """
    with Console(stderr=True).status("checking") as spinner:
        rows = check_jobs(
            cluster,
            trace,
            apps,
            calibration,
            speedup=speedup,
            interactive_queue=interactive_queue,
            most=most,
            tell=lambda what: spinner.update(what),
        )
    _show_check(rows, as_json)
    judged = [row for row in rows if not row.clipped]
    raise typer.Exit(0 if judged and all(row.is_near for row in judged) else 1)


def _show_check(rows: list[CheckRow], as_json: bool) -> None:
    clipped = sum(row.clipped for row in rows)
    near = sum(row.is_near for row in rows if not row.clipped)
    warnings = list(dict.fromkeys(warning for row in rows for warning in row.warnings))
    if as_json:
        records = [asdict(row) | {"error_s": row.error_s, "near": row.is_near} for row in rows]
        typer.echo(json.dumps({"jobs": records, "near": near, "clipped": clipped, "warnings": warnings}))
        return
    table = Table("job", "application", "ranks", "target, s", "measured, s", "error, s", "error", "steps")
    for row in rows:
        table.add_row(
            str(row.job),
            row.name,
            str(row.ranks),
            f"{row.target_s:.2f}",
            f"{row.measured_s:.2f}",
            f"{row.error_s:+.2f}",
            "clipped" if row.clipped else f"{row.error_s / row.target_s:+.1%}",
            str(row.steps),
        )
    Console().print(table)
    typer.echo(
        f"{near} of {len(rows) - clipped} within {AIM_SHARE:.0%} or {AIM_S} s; "
        f"{clipped} clipped: target below start-up"
    )
    if clipped == len(rows):
        typer.echo("nothing was judged: every target is below a job's start-up; take a smaller --speedup")
    for warning in warnings:
        typer.echo(f"warning: {warning}")
