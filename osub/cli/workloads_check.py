"""``osub workloads check``: how near a trace's batch jobs come to their targets."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from foundation.errors import UsageError
from osub.cli.terminal import Console
from osub.cli.workloads_kinds import (
    Apps,
    Cluster,
    InteractiveQueue,
    Json,
    Speedup,
    Stored,
)
from osub.live.alone import batch_jobs, lone_jobs
from submitter.plan import PlannedJob
from workloads.rrba.kinds import Kind, target_of

# The aim: within 5% or half a second.
AIM_SHARE, AIM_S = 0.05, 0.5


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One job: its target, what it took, and whether that is near enough."""

    job: int
    name: str
    ranks: int
    target_s: float
    measured_s: float
    steps: int
    clipped: bool
    calibration: str | None
    warnings: list[str]

    @property
    def error_s(self) -> float:
        """Measured minus target."""
        return self.measured_s - self.target_s

    @property
    def is_near(self) -> bool:
        """Whether it is within 5% or 0.5 s."""
        return abs(self.error_s) <= max(AIM_SHARE * self.target_s, AIM_S)


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

    Exit code 1 where one is off by more than 5% and 0.5 s; targets below a job's start-up are counted apart.
    """
    pairs = batch_jobs(cluster, trace, apps, speedup, interactive_queue)
    targets = [(job, kind) for job, kind in pairs if target_of(job.args) is not None]
    if not targets:
        raise UsageError(f"{trace} has no batch job with a target; see --apps and --interactive-queue")
    chosen = _spread(targets, most)
    rows: list[CheckRow] = []
    with lone_jobs(cluster) as jobs, Console(stderr=True).status("checking") as spinner:
        for number, (job, kind) in enumerate(chosen, start=1):
            target_s = target_of(job.args)
            assert target_s is not None
            spinner.update(f"job {job.trace_job}, {target_s:.1f} s, {number} of {len(chosen)}")
            outcome = jobs.run(kind, ("--target-s", str(target_s)), calibration.resolve())
            report = outcome.report
            rows.append(
                CheckRow(
                    job.trace_job,
                    kind.name,
                    kind.ranks,
                    target_s,
                    outcome.run_s,
                    int(report["steps"]),
                    bool(report["clipped"]),
                    report["calibration"],
                    list(report["warnings"]),
                )
            )
    _show_check(rows, as_json)
    raise typer.Exit(0 if all(row.is_near or row.clipped for row in rows) else 1)


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
    for warning in warnings:
        typer.echo(f"warning: {warning}")


def _spread(jobs: list[tuple[PlannedJob, Kind]], most: int | None) -> list[tuple[PlannedJob, Kind]]:
    """Return ``most`` of the jobs, from the shortest target to the longest."""
    ordered = sorted(jobs, key=lambda pair: pair[0].dedicated_s)
    if most is None or most >= len(ordered):
        return ordered
    if most == 1:
        return ordered[:1]
    return [ordered[round(place * (len(ordered) - 1) / (most - 1))] for place in range(most)]
