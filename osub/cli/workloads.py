"""``osub workloads assign|compile|calibrate|check``: what jobs need before they can keep their times."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from typer import Argument, Option

from foundation.errors import HostError, UsageError
from foundation.interruption import on_signals
from osub.cli.application import application
from osub.cli.out_file import Force, check_free
from osub.cli.terminal import Console
from osub.live.alone import AIM_S, AIM_SHARE, CheckRow, batch_jobs, check_jobs, kinds_named, lone_jobs
from osub.live.forward import forward, is_in_containers
from submitter.calibration import calibrate_kinds
from workloads.rrba.drawn_applications import NAMES, count_by_application, draw_for_trace, write_apps
from workloads.swf import read_swf

Cluster = Annotated[Path, Option("--cluster", help="A cluster's folder.")]
Stored = Annotated[Path, Option("--calibration", help="File of stored step times.")]
Trace = Annotated[Path | None, Option("--trace", help="The batch jobs of this trace, as replayed.")]
Apps = Annotated[Path | None, Option("--apps", help="CSV trace_job,app,args, as for `osub replay`.")]
Speedup = Annotated[float, Option(help="Divide every time of the trace by this.")]
InteractiveQueue = Annotated[int, Option(help="SWF queue of interactive jobs; -1: there are none.")]
Json = Annotated[bool, Option("--json", help="Print JSON.")]


def check(
    cluster: Cluster,
    calibration: Stored,
    trace: Annotated[Path, Option(help="The batch jobs of this trace, as replayed.")],
    apps: Apps = None,
    speedup: Speedup = 1.0,
    interactive_queue: InteractiveQueue = 0,
    most: Annotated[int | None, Option(help="At most so many jobs, spread over the targets.", min=1)] = None,
    as_json: Json = False,
) -> None:
    """Run a trace's batch jobs alone, one after another, and say how near each comes to its target.

    Exit code 1 where one is off by more than 5% and 0.5 s, or where none could be judged; targets below a
    job's start-up are counted apart.
    """
    if is_in_containers(cluster):
        raise typer.Exit(forward(cluster, on_signals, (trace, apps, calibration)))
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


app = application("The applications inside the jobs: compile, calibrate, check.")

# Ranks wait by polling: on cores of their own they consume all of them.
LEAST_SHARE = 0.9


app.command()(check)


@app.command("compile")
def compile_kernels(as_json: Json = False) -> None:
    """Compile the solvers' kernels for this kind of host, so that no job has to. Quick where it is done."""
    from workloads.rrba.solvers.compiled_solvers import compile_all

    begin_s = time.monotonic()
    folder = compile_all()
    seconds = time.monotonic() - begin_s
    if folder is None:
        raise HostError("no folder for compiled kernels can be written; set NUMBA_CACHE_DIR to one that can")
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "seconds": round(seconds, 3)}))
    else:
        typer.echo(f"compiled kernels are in {folder} ({seconds:.1f} s)")


@app.command()
def assign(
    trace: Annotated[Path, Argument(help="Trace in SWF, plain or gzip.")],
    out: Annotated[Path, Option(help="CSV to write, for `osub replay --apps`.", dir_okay=False)],
    application: Annotated[
        list[str] | None, Option("--app", help="To draw from; may be repeated (default: lu, bt, mg, sp).")
    ] = None,
    grid_class: Annotated[str | None, Option("--class", help="Class of all (default: the usual).")] = None,
    speedup: Speedup = 1.0,
    interactive_queue: InteractiveQueue = 0,
    seed: Annotated[int, Option(help="Of the draw.")] = 1,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Draw an application for each batch job of TRACE, of those that run on its number of processors.

    Targets are the trace's run times divided by --speedup, which must be the replay's.
    """
    check_free(out, force)
    drawn = draw_for_trace(
        read_swf(trace),
        seed,
        speedup=speedup,
        interactive_queue=interactive_queue,
        names=application or NAMES,
        grid_class=grid_class,
    )
    write_apps(out, drawn)
    counts = count_by_application(drawn)
    if as_json:
        typer.echo(json.dumps({"jobs": len(drawn), "applications": counts}))
    else:
        summary = ", ".join(f"{count} {name}" for name, count in counts.items()) or "no batch job"
        typer.echo(f"{summary}; `osub replay {trace} --apps {out} --speedup {speedup:g} ...` runs them")


@app.command()
def calibrate(
    cluster: Cluster,
    calibration: Stored,
    trace: Trace = None,
    apps: Apps = None,
    application: Annotated[
        list[str] | None, Option("--app", help="Application, or with class: lu.A; may be repeated.")
    ] = None,
    ranks: Annotated[list[int] | None, Option(help="Ranks of each --app; may be repeated.")] = None,
    nodes: Annotated[int, Option(help="Nodes of each --app.", min=1)] = 1,
    npb: Annotated[
        Path | None, Option(help="Folder of stock NPB binaries, in the place of our solvers.")
    ] = None,
    npb_omp: Annotated[bool, Option("--npb-omp", help="They are OpenMP's, not MPI's.")] = False,
    omp_wait_passive: Annotated[
        bool, Option("--omp-wait-passive", help="OpenMP threads sleep while they wait.")
    ] = False,
    sample_s: Annotated[float, Option(help="Length of the longest sample, seconds.", min=0.5)] = 4.0,
    rounds: Annotated[
        int, Option(help="How often all kinds are sampled in turn, for a host's pace drifts.", min=1)
    ] = 3,
    least_share: Annotated[
        float, Option(help="A sample counts if no rank had less of its core.", max=1.0)
    ] = LEAST_SHARE,
    speedup: Speedup = 1.0,
    interactive_queue: InteractiveQueue = 0,
    as_json: Json = False,
) -> None:
    """Measure what a step takes, by application, grid, ranks and nodes, on a cluster without other jobs.

    The kinds are those of a trace's batch jobs, or --app with --ranks. Each runs with a few numbers of steps;
    a line is fitted and stored for the node's type. `osub replay --calibration` uses it. Where a busy host
    hides that longer runs take longer, twice as many steps are sampled, up to three times.
    """
    if is_in_containers(cluster):
        inputs = (trace, apps, npb, calibration)
        raise typer.Exit(forward(cluster, on_signals, inputs, out=calibration))
    stock = ["--npb", str(npb), *["--npb-omp"] * npb_omp, *["--omp-wait-passive"] * omp_wait_passive]
    kinds = kinds_named(application or [], ranks or [1], nodes, stock if npb else [])
    if trace is not None:
        kinds |= {kind for _, kind in batch_jobs(cluster, trace, apps, speedup, interactive_queue)}
    if not kinds:
        raise UsageError(
            "nothing to calibrate; give --app NAME, or --trace TRACE with batch jobs that are rrba"
        )
    with lone_jobs(cluster) as jobs, Console(stderr=True).status("calibrating") as spinner:
        rows = calibrate_kinds(
            jobs,
            kinds,
            calibration,
            sample_s=sample_s,
            rounds=rounds,
            least_share=least_share,
            tell=lambda what: spinner.update(what),
        )
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows]))
        return
    table = Table("application", "ranks", "nodes", "step, ms", "overhead, s", "worst fit", "core share")
    for row in rows:
        table.add_row(
            row.name,
            str(row.ranks),
            str(row.nodes),
            f"{row.step_ms:.3f}",
            f"{row.overhead_s:.3f}",
            f"{row.worst_share:.1%}",
            "" if row.core_share is None else f"{row.core_share:.0%}",
        )
    Console().print(table)
    typer.echo(f"stored in {calibration} for {rows[0].host_type}")
