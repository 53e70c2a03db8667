"""``osub workloads compile|calibrate|check``: what jobs need before they can keep their times."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from osub.cli.replay import find_cluster, gang_of
from osub.cli.workloads_run import LoneJobs
from osub.errors import HostError, UsageError
from submitter.apps import read_apps
from submitter.begin import prepare_trace
from submitter.options import ReplayOptions
from submitter.plan import RRBA, PlannedJob, make_plan
from submitter.target import look_at_target
from workloads.rrba.application import APPLICATIONS
from workloads.rrba.calibrate import Calibration, Key, store_calibration
from workloads.rrba.kinds import Kind, kind_from_words, kind_of, target_of
from workloads.rrba.samples import Line, Sample, fit_line, sample_lengths
from workloads.swf import read_swf

app = typer.Typer(
    help="The applications inside the jobs: compile, calibrate, check.",
    no_args_is_help=True,
    add_completion=False,
)

PILOT_STEPS = 12
# Ranks wait by polling: on cores of their own they consume all of them.
LEAST_SHARE = 0.9
# The aim: within 5% or half a second.
AIM_SHARE, AIM_S = 0.05, 0.5

Cluster = Annotated[Path, typer.Option("--cluster", help="Folder with slurm.conf (an embedded cluster's).")]
Stored = Annotated[Path, typer.Option("--calibration", help="File of stored step times.")]
Trace = Annotated[Path | None, typer.Option("--trace", help="The batch jobs of this trace, as replayed.")]
Apps = Annotated[Path | None, typer.Option("--apps", help="CSV trace_job,app,args, as for `osub replay`.")]
Speedup = Annotated[float, typer.Option(help="Divide every time of the trace by this.")]
InteractiveQueue = Annotated[int, typer.Option(help="SWF queue of interactive jobs; -1: there are none.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class CalibrationRow:
    """One calibrated kind."""

    name: str
    ranks: int
    nodes: int
    step_ms: float
    overhead_s: float
    worst_share: float
    core_share: float | None
    samples: int
    host_type: str


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


@app.command("compile")
def compile_kernels(as_json: Json = False) -> None:
    """Compile the solvers' kernels for this kind of host, so that no job has to. Quick where it is done."""
    from workloads.rrba.solvers.compiled import compile_all

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
def calibrate(
    cluster: Cluster,
    calibration: Stored,
    trace: Trace = None,
    apps: Apps = None,
    application: Annotated[
        list[str] | None, typer.Option("--app", help="Application, or with class: lu.A; may be repeated.")
    ] = None,
    ranks: Annotated[
        list[int] | None, typer.Option("--ranks", help="Ranks of each --app; may be repeated.")
    ] = None,
    nodes: Annotated[int, typer.Option(help="Nodes of each --app.", min=1)] = 1,
    npb: Annotated[
        Path | None, typer.Option("--npb", help="Folder of stock NPB binaries, in the place of our solvers.")
    ] = None,
    npb_omp: Annotated[bool, typer.Option("--npb-omp", help="They are OpenMP's, not MPI's.")] = False,
    omp_wait_passive: Annotated[
        bool, typer.Option("--omp-wait-passive", help="OpenMP threads sleep while they wait.")
    ] = False,
    sample_s: Annotated[float, typer.Option(help="Length of the longest sample, seconds.", min=0.5)] = 4.0,
    least_share: Annotated[
        float, typer.Option("--least-share", help="Store nothing if a rank had less of its core.", max=1.0)
    ] = LEAST_SHARE,
    speedup: Speedup = 1.0,
    interactive_queue: InteractiveQueue = 0,
    as_json: Json = False,
) -> None:
    """Measure what a step takes, by application, grid, ranks and nodes, on a cluster without other jobs.

    The kinds are those of a trace's batch jobs, or --app with --ranks. Each runs with a few numbers of steps;
    a line is fitted and stored for the node's type. `osub replay --calibration` uses it.
    """
    stock = ["--npb", str(npb), *["--npb-omp"] * npb_omp, *["--omp-wait-passive"] * omp_wait_passive]
    kinds = _kinds_named(application or [], ranks or [1], nodes, stock if npb else [])
    if trace is not None:
        kinds |= {kind for _, kind in _batch_jobs(cluster, trace, apps, speedup, interactive_queue)}
    if not kinds:
        raise UsageError(
            "nothing to calibrate; give --app NAME, or --trace TRACE with batch jobs that are rrba"
        )
    rows = []
    with _lone_jobs(cluster) as jobs, Console(stderr=True).status("calibrating") as spinner:
        for number, kind in enumerate(sorted(kinds), start=1):
            spinner.update(f"{kind.name} on {kind.ranks} ranks, {number} of {len(kinds)}")
            rows.append(_calibrate(jobs, kind, sample_s, calibration, least_share))
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


def _calibrate(jobs: LoneJobs, kind: Kind, sample_s: float, path: Path, least_share: float) -> CalibrationRow:
    """Sample a kind, fit and store."""
    pilot = jobs.run(kind, ("--itr", str(PILOT_STEPS)))
    lengths = sample_lengths(float(pilot.report["busy_s"]) / PILOT_STEPS, sample_s)
    outcomes = [jobs.run(kind, ("--itr", str(steps))) for steps in lengths]
    samples = [Sample(steps, each.run_s) for steps, each in zip(lengths, outcomes, strict=True)]
    if len(samples) == 1:
        # A step as long as the longest sample: the pilot is the second length.
        samples.insert(0, Sample(PILOT_STEPS, pilot.run_s))
    line: Line | None = fit_line(samples)
    share = outcomes[-1].core_share
    what = f"{kind.name} on {kind.ranks} ranks"
    if share is not None and share < least_share:
        raise HostError(
            f"{what}: not stored, a rank had {share:.0%} of its core; are more ranks on it than it has cores?"
        )
    if line is None:
        raise HostError(
            f"{what}: times do not grow with the steps; calibrate on an idle host, or raise --sample-s"
        )
    host_type = str(outcomes[-1].report["host_type"])
    key = Key(host_type, kind.calibrated_as, str(kind.grid), kind.ranks, kind.nodes)
    steps = sum(sample.steps for sample in samples)
    now_ms = round(time.time() * 1000)
    store_calibration(path, Calibration(key, line.step_s, line.overhead_s, steps, now_ms))
    return CalibrationRow(
        kind.name,
        kind.ranks,
        kind.nodes,
        1e3 * line.step_s,
        line.overhead_s,
        line.worst,
        share,
        len(samples),
        host_type,
    )


@app.command()
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
    pairs = _batch_jobs(cluster, trace, apps, speedup, interactive_queue)
    targets = [(job, kind) for job, kind in pairs if target_of(job.args) is not None]
    if not targets:
        raise UsageError(f"{trace} has no batch job with a target; see --apps and --interactive-queue")
    chosen = _spread(targets, most)
    rows: list[CheckRow] = []
    with _lone_jobs(cluster) as jobs, Console(stderr=True).status("checking") as spinner:
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


def _kinds_named(names: list[str], ranks: list[int], nodes: int, npb: list[str]) -> set[Kind]:
    kinds = set()
    for name in names:
        application, _, grid_class = name.partition(".")
        kinds |= {kind_from_words(application, grid_class or None, count, nodes, npb) for count in ranks}
    return kinds


def _batch_jobs(
    cluster: Path, trace: Path, apps: Path | None, speedup: float, interactive_queue: int
) -> list[tuple[PlannedJob, Kind]]:
    """Return the rrba jobs that a replay of the trace would submit, with their kinds."""
    client, embedded = find_cluster(cluster)
    options = ReplayOptions(
        speedup=speedup,
        interactive_queue=None if interactive_queue < 0 else interactive_queue,
        gang=gang_of(embedded, client),
    )
    target = look_at_target(client)
    plan = make_plan(
        prepare_trace(read_swf(trace), options),
        target,
        options.plan_options(target.batch.multiplicity),
        read_apps(apps) if apps else None,
    )
    return [(job, kind_of(job.args, job.cores, job.nodes)) for job in plan.jobs if job.app == RRBA]


def _spread(jobs: list[tuple[PlannedJob, Kind]], most: int | None) -> list[tuple[PlannedJob, Kind]]:
    """Return ``most`` of the jobs, from the shortest target to the longest."""
    ordered = sorted(jobs, key=lambda pair: pair[0].dedicated_s)
    if most is None or most >= len(ordered):
        return ordered
    if most == 1:
        return ordered[:1]
    return [ordered[round(place * (len(ordered) - 1) / (most - 1))] for place in range(most)]


@contextmanager
def _lone_jobs(cluster: Path) -> Iterator[LoneJobs]:
    """Give a runner of lone jobs on the cluster; its files are gone afterwards."""
    client, embedded = find_cluster(cluster)
    pin = embedded is not None and not embedded.shape.virtual and embedded.shape.cores > 1
    if any(application.classes for application in APPLICATIONS.values()):
        from workloads.rrba.solvers.compiled import compile_all

        compile_all()
    # On the cluster's own folder, which every node sees.
    with tempfile.TemporaryDirectory(prefix="workloads-", dir=cluster.resolve()) as folder:
        jobs = LoneJobs(client, look_at_target(client), Path(folder), pin=pin)
        jobs.check_idle()
        yield jobs
