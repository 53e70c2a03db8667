"""``osub trace scale``: a busy day of a large machine on a small one."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from typer import Option

from foundation.errors import UsageError
from foundation.units import counted, duration, durations
from osub.cli.terminal import Console
from osub.cli.trace import files
from osub.live.system_named import system_named
from simulator.model.system import System
from workloads.swf import SwfTrace
from workloads.trace.local_clock import TraceClock
from workloads.trace.scaling import (
    THESIS,
    Experiment,
    ScalingSource,
    ScalingTarget,
    known_procs,
    make_experiment,
    source_of,
)
from workloads.trace.trace_summary import THESIS_TABLE_7_2, summarize_kinds

THESIS_SYSTEM = System(12, 12)


def scale(
    trace: files.TraceFile,
    out: files.OutFile,
    system: Annotated[
        str, Option(help="Target, such as N12C12; 'host' for the cluster that fits this host.")
    ] = "N12C12",
    window: Annotated[
        str,
        Option(
            help="Which stretch: busy (a busy, typical day around its active hours), all, thesis (UniLu-Gaia "
            "only), a date such as 2014-06-05 (around its active hours, or as long as --hours). auto is "
            "thesis for UniLu-Gaia, else busy."
        ),
    ] = "auto",
    start: Annotated[
        float | None, Option(min=0, help="First second of the stretch, with --hours instead of --window.")
    ] = None,
    hours: Annotated[
        float | None, Option(help="Length of a stretch from --start (default 24), or of a date's.")
    ] = None,
    first_hour: Annotated[
        float, Option(min=0, max=24, help="O'clock at which a date's stretch of --hours begins.")
    ] = 0.0,
    warm_up: Annotated[float, Option(min=0, help="Hours before a busy day's active phase.")] = 3.0,
    cool_down: Annotated[float, Option(min=0, help="Hours after it.")] = 5.5,
    interactive_day: Annotated[
        str | None,
        Option(help="Take the interactive jobs from the same hours of another date.", metavar="DATE"),
    ] = None,
    drop_wider_than: Annotated[
        int | None,
        Option(
            min=0,
            help="Leave out interactive jobs of more cores; others are narrowed to a node. 0: keep all.",
        ),
    ] = None,
    from_procs: Annotated[
        int | None, Option(min=1, help="Cores of the original; by default what its header says.")
    ] = None,
    longest_run: Annotated[
        float | None, Option(min=1, help="Cut run times of batch jobs to so many seconds.")
    ] = None,
    intensity: Annotated[float, Option(help="Factor on the load that the sizes ask for.")] = 1.0,
    tolerance: Annotated[float, Option(min=0, help="Of a half hour's target cores.")] = 0.1,
    interactive_queue: files.InteractiveQueue = 0,
    interactive_share: Annotated[float, Option(min=0, max=1, help="Of the interactive jobs, to keep.")] = 1.0,
    periods: Annotated[
        bool, Option("--periods/--no-periods", help="Busy and idle periods for interactive jobs without any.")
    ] = True,
    speedup: Annotated[float, Option(help="Divide every time by this.")] = 1.0,
    seed: files.Seed = 1,
    html: Annotated[
        Path | None, Option(help="Draw before and after.", metavar="FILE", dir_okay=False)
    ] = None,
    force: files.Force = False,
    lenient: files.Lenient = False,
    as_json: files.AsJson = False,
) -> None:
    """Scale a stretch of TRACE to a smaller system, half hour by half hour, and say how well it survived.

    Batch jobs are drawn at random until each half hour has its share of cores within 10 %; sizes are halved
    where that does not work out, and the shares of serial and power-of-two jobs are kept. For
    UniLu-Gaia-2014-1, source and window are the thesis's by default (its section 7.4.3).
    """
    files.check_free(out, force)
    files.check_free(html, force, makes_folder=True)
    size = system_named(system)
    original = files.load(trace, lenient)
    queue = files.queue_of(interactive_queue)
    source = source_of(original, window, start, hours, first_hour, warm_up, cool_down, queue)
    if interactive_day is not None:
        source = replace(source, interactive_day=parse_date(interactive_day, "--interactive-day"))
    source = replace(
        source,
        drop_wider_than=source.drop_wider_than if drop_wider_than is None else drop_wider_than or None,
        longest_run_s=source.longest_run_s if longest_run is None else longest_run,
        from_procs=known_procs(original, source) if from_procs is None else from_procs,
    )
    target = ScalingTarget(
        size.nodes, size.cores, seed, queue, interactive_share, intensity, tolerance, periods, speedup
    )
    with files.counting("half hours") as step:
        experiment = make_experiment(original, source, target, step)
    files.deliver(experiment.trace, out)
    if html is not None:
        # The chart library is slow to import, and tables need none of it.
        from workloads.trace.scaling_picture import write_picture

        write_picture(html, experiment, source.window, source.from_procs or 1, queue)
    if as_json:
        files.print_json(_document(out, original, source, experiment, queue, html))
        return
    _tell(out, original, source, experiment, queue, size)
    if html is not None:
        Console().say(f"Picture: {html}", soft_wrap=True)


def parse_date(text: str, option: str) -> date:
    """Return a date written as 2014-06-05; ``UsageError`` for anything else."""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{option} takes a date such as 2014-06-05, not {text!r}") from error


def _document(
    out: Path,
    original: SwfTrace,
    source: ScalingSource,
    experiment: Experiment,
    queue: int | None,
    html: Path | None,
) -> dict[str, Any]:
    report = experiment.report
    document: dict[str, Any] = {
        "trace": str(out),
        "source": original.name,
        "from_procs": source.from_procs,
        "to_procs": experiment.scaled.header.system_procs,
        "window": asdict(source.window),
        "interactive_day": source.interactive_day.isoformat() if source.interactive_day else None,
        "interactive_jobs_dropped": experiment.dropped,
        "run_times_cut": experiment.clipping.cut if experiment.clipping else 0,
        "scaling": {**asdict(report), "slot_errors": report.slot_errors},
        "kinds": {name: asdict(kind) for name, kind in summarize_kinds(experiment.scaled, queue).items()},
        "html": None if html is None else str(html),
    }
    if source.window == THESIS.window:
        document["thesis_table_7_2"] = {name: asdict(kind) for name, kind in THESIS_TABLE_7_2.items()}
    return document


def _tell(
    out: Path,
    original: SwfTrace,
    source: ScalingSource,
    experiment: Experiment,
    queue: int | None,
    size: System,
) -> None:
    console = Console()
    window, report = source.window, experiment.report
    clock = TraceClock.of(original.header, min(job.submit_s for job in original.jobs))
    dated = clock.date(window.start_s)
    console.say(
        f"Window: second {window.start_s:,.0f}{f' ({dated:%Y-%m-%d %H:%M})' if dated else ''}, "
        f"{duration(window.length_s)}: {window.why}",
        soft_wrap=True,
    )
    phases = {
        "warm-up": window.active_start_s - window.start_s,
        "active": window.active_end_s - window.active_start_s,
        "cool-down": window.end_s - window.active_end_s,
    }
    texts = zip(phases, durations(*phases.values()), strict=True)
    console.print(
        "Phases: " + ", ".join(f"{name} {text}" for name, text in texts if phases[name]), highlight=False
    )
    if source.interactive_day is not None:
        words = f"Interactive jobs: from the same hours of {source.interactive_day}"
        if source.drop_wider_than is not None:
            words += f", {experiment.dropped} of more than {counted(source.drop_wider_than, 'core')} left out"
        console.print(words, highlight=False, soft_wrap=True)
    if experiment.clipping is not None:
        console.print(
            f"Run times of batch jobs: {experiment.clipping.cut} of {report.jobs_after} cut to "
            f"{source.longest_run_s:,.0f} s",
            highlight=False,
        )
    console.print(scale_table(experiment, source.from_procs or 0, size))
    after = summarize_kinds(experiment.scaled, queue)
    published = THESIS_TABLE_7_2 if (source.window, size) == (THESIS.window, THESIS_SYSTEM) else None
    console.print(files.kinds_table(after, published))
    console.say(f"Trace: {out}, {counted(len(experiment.trace.jobs), 'job')}")


def scale_table(experiment: Experiment, from_procs: int, size: System) -> Table:
    """Return how well the trace's character survived, as a table."""
    report = experiment.report
    title = f"Batch jobs on {counted(from_procs, 'core')} and on {size} ({size.nodes * size.cores:,} cores)"
    table = files.table_of(title, "", "before", "after", left=1)
    errors = sorted(abs(error) for error in report.slot_errors)
    table.add_row("jobs", f"{report.jobs_before:,}", f"{report.jobs_after:,}")
    table.add_row("cores asked for, reached", f"{report.target_cores:,.1f}", f"{report.cores:,}")
    table.add_row("serial", f"{report.serial_before:.1%}", f"{report.serial_after:.1%}")
    table.add_row("power of two", f"{report.power_of_two_before:.1%}", f"{report.power_of_two_after:.1%}")
    table.add_row("half hours with jobs, on target", str(len(report.slots)), str(report.slots_within))
    if errors:
        mean, median = sum(errors) / len(errors), errors[len(errors) // 2]
        table.add_row("error of a half hour, median", "", f"{median:.1%}")
        table.add_row("error of a half hour, mean, largest", "", f"{mean:.1%}, {errors[-1]:.1%}")
    table.add_row("Kolmogorov-Smirnov, by cores", "", f"{report.arrival_distance:.4f}")
    table.add_row("Kolmogorov-Smirnov, by jobs", "", f"{report.job_distance:.4f}")
    return table
