"""``osub demo``: one trace under several settings, on the embedded cluster and simulated; one report."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from analysis.comparison import error_tables
from analysis.comparison_page import comparison_section
from analysis.job_by_job import run_errors
from analysis.report import write_report
from analysis.table import metrics_tables
from analysis.verdict import verdict_of
from analysis.verdict.show import verdict_lines
from deploy.local import natural_shape
from deploy.local.busy import busy_warning
from deploy.local.host import look_at_host
from foundation.records import Run, load_run
from osub.cli.replay_watch import watch_replay
from osub.cli.terminal import Console
from osub.cli.trace_files import Lenient
from osub.demo.run import SETTINGS, Stage, choose_trace, make_out, replay_under, scratch_folder
from osub.demo.simulated import NOTES, simulate_all
from submitter.replay import Collect, Look, Replay
from workloads.swf import write_swf

# A setting's cluster starts and ends in so many seconds of its share of the time.
_AROUND_S = 7.0
# A replay is no shorter, for less says nothing: a demo of a minute then takes up to a minute and a half.
_LEAST_S = 20.0
# Slurm's gang scheduler has slices of 5 s at least and may stall launches: it needs long replays.
_LONG_S = 300.0
# Replays on a busy host may take longer than planned, all together by this factor.
_MOST = 1.6


def demo(
    trace: Annotated[
        Path | None, typer.Option("--trace", help="A real trace in SWF; without it one is generated.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for runs and report.")] = Path("osub-demo"),
    seconds: Annotated[
        float,
        typer.Option(
            min=60,
            max=14400,
            help="How long all replays take, about; from 300 on Slurm's gang scheduler, too.",
        ),
    ] = 230.0,
    seed: Annotated[int, typer.Option(help="For everything that is drawn at random.")] = 1,
    lenient: Lenient = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the metrics as JSON.")] = False,
) -> None:
    """Replay the same jobs on this host under several settings, and write a report that says what came of it.

    Each setting is then simulated from what was replayed, and stands beside the real run.

    Runs of an earlier demo in the same folder are replaced; nothing else in it is touched.
    """
    console = Console(stderr=as_json)
    began = time.monotonic()
    nodes, cores = natural_shape(len(look_at_host().cpus))
    console.print(f"This host is a cluster of {nodes} nodes with {cores} cores each.", highlight=False)
    busy = busy_warning()
    if busy is not None:
        console.print(f"Note: {busy}.", highlight=False)
    settings = SETTINGS if seconds >= _LONG_S else SETTINGS[:3]
    chosen = choose_trace(
        trace,
        nodes,
        cores,
        max(_LEAST_S, seconds / len(settings) - _AROUND_S),
        seed,
        lenient=lenient,
    )
    console.print(chosen.story, markup=False, highlight=False)
    runs: list[Run] = []
    make_out(out)
    swf = out / f"{chosen.trace.name}.swf.gz"
    write_swf(swf, chosen.trace)
    steps: dict[int, int] = {}
    with scratch_folder() as state:
        stage = Stage(swf=swf, chosen=chosen, out=out, state=state, nodes=nodes, cores=cores)
        for number, setting in enumerate(settings):
            console.print(f"[bold]{setting.label}[/bold]: {setting.explanation}", highlight=False)
            left_s = _MOST * seconds - (time.monotonic() - began)
            # What an earlier setting did not use, a later one may.
            most_s = max(seconds / len(settings), left_s / (len(settings) - number))
            made = replay_under(setting, stage, steps, most_s, _watch)
            # What the first one makes of the time is every other's work.
            steps = steps or made
            runs.append(load_run(out / setting.folder))
    compared = simulate_all(runs, out, lambda why: console.print(why, markup=False, highlight=False))
    simulated = {real.info.label: other for real, other in compared}
    errors = [run_errors(real, other) for real, other in compared]
    page = out / "report.html"
    both = [[run, *filter(None, [simulated.get(run.info.label)])] for run in runs]
    metrics = write_report(
        [run for pair in both for run in pair],
        page,
        first=[comparison_section(compared, errors, NOTES)] if compared else [],
        twins={other.info.label: real.info.label for real, other in compared},
    )
    cut = [run.info.label for run in runs if "CANCELLED" in run.jobs["state"]]
    if cut:
        console.print(
            f"Not every job ended in its time under {', '.join(cut)}: this host is busy with other work "
            f"(load {os.getloadavg()[0]:.1f}). Try again when it is calm.",
            highlight=False,
        )
    verdict = verdict_of(runs)
    if as_json:
        facts = {
            "verdict": msgspec.to_builtins(verdict),
            "report": str(page),
            "runs": [msgspec.to_builtins(metric) for metric in metrics],
            "errors": [msgspec.to_builtins(error) for error in errors],
        }
        typer.echo(json.dumps(facts))
        return
    by_kind = {kind: [metric for metric in metrics if metric.kind == kind] for kind in ("real", "simulated")}
    beside = by_kind["simulated"] if len(compared) == len(runs) else []
    tables = list(metrics_tables(by_kind["real"], console.width, short=True, simulated=beside))
    if compared:
        tables += error_tables(errors, console.width, "simulated against real")
    for line in verdict_lines(verdict):
        console.print(line)
    for table in tables:
        console.print(table)
    console.print(
        f"{time.monotonic() - began:.0f} s in all. Report: {page.resolve()}", markup=False, highlight=False
    )


def _watch(session: Replay, label: str, collect: Collect | None, most_s: float, look: Look) -> bool:
    return watch_replay(session, label, collect, most_s=most_s, outlives_us=False, look=look)
