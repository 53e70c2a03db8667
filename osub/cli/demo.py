"""``osub demo``: one trace under several settings, on the embedded cluster and simulated; one report."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text
from typer import Option

from analysis.comparison import error_tables
from analysis.tables import metrics_tables
from analysis.verdict.verdict_in_terminal import verdict_lines
from deploy.compose.engine import EngineName
from foundation.files import refuse_unwritable_folder
from foundation.interruption import on_signals
from osub.cli.replay import watch_replay
from osub.cli.terminal import Console
from osub.cli.trace.files import Lenient
from osub.demo import demonstrate
from submitter.replay import Collect, Look, Replay


def demo(
    trace: Annotated[Path | None, Option(help="A real trace in SWF; without it one is generated.")] = None,
    out: Annotated[Path, Option(help="Folder for runs and report.")] = Path("osub-demo"),
    seconds: Annotated[
        float,
        Option(
            min=60,
            max=14400,
            help="How long all replays take, about; from 300 on Slurm's gang scheduler, too.",
        ),
    ] = 230.0,
    seed: Annotated[int, Option(help="For everything that is drawn at random.")] = 1,
    lenient: Lenient = False,
    engine: Annotated[
        EngineName | None,
        Option(help="Put the clusters into containers of this engine; by default on this host."),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print the metrics as JSON.")] = False,
) -> None:
    """Replay the same jobs on this host under several settings, and write a report that says what came of it.

    Each setting is then simulated from what was replayed, and shown next to the real run.

    Runs of an earlier demo in the same folder are replaced; nothing else in it is touched.
    """
    refuse_unwritable_folder(out)
    console = Console(stderr=as_json)
    began = time.monotonic()
    found = demonstrate(
        trace,
        out,
        seconds=seconds,
        seed=seed,
        lenient=lenient,
        say=console.say,
        begin=lambda one: console.print(
            Text.assemble((one.label, "bold"), f": {one.explanation}"), highlight=False
        ),
        watch=_watch,
        engine_name=engine,
        hear=on_signals,
    )
    if as_json:
        facts = {
            "verdict": msgspec.to_builtins(found.verdict),
            "report": str(found.page),
            "runs": [msgspec.to_builtins(metric) for metric in found.metrics],
            "errors": [msgspec.to_builtins(error) for error in found.errors],
        }
        typer.echo(json.dumps(facts))
        return
    for line in verdict_lines(found.verdict):
        console.print(line)
    simulated = found.of_kind("simulated") if found.is_whole else []
    for table in metrics_tables(found.of_kind("real"), console.width, short=True, simulated=simulated):
        console.print(table)
    for table in error_tables(found.errors, console.width, "simulated against real") if found.errors else ():
        console.print(table)
    console.say(f"{time.monotonic() - began:.0f} s in all. Report: {found.page.resolve()}")


def _watch(session: Replay, label: str, collect: Collect | None, most_s: float, look: Look | None) -> bool:
    return watch_replay(session, label, collect, most_s=most_s, outlives_us=False, look=look)
