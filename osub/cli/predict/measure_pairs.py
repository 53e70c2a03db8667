"""``osub predict measure``: what applications lose to each other on this host, measured."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from foundation.errors import UsageError
from foundation.units import counted, duration, seconds_of
from osub.cli.terminal import Console
from predictor.counters import provider_of
from predictor.dataset import CounterSource, PairKind, Pairs, read_pairs
from predictor.dataset.pairs_agreement import summaries_of
from predictor.measure.measure_pairs import Measurement, MeasurementSettings, count_all, places
from predictor.measure.measure_pairs import MeasurementProgress as Made
from predictor.measure.pair_trial import Lengths
from predictor.measure.pairs_store import PairsStore
from predictor.programs.program_catalogue import applications_named


def measure(
    *,
    out: Annotated[Path, typer.Option("--out", help="Folder of measured pairs to make.", metavar="PAIRS")],
    apps: Annotated[
        str, typer.Option("--apps", help="Names, families or groups, with commas; `--apps ?` lists them.")
    ] = "single",
    kinds: Annotated[
        str, typer.Option("--kinds", help=f"How they share: {', '.join(PairKind)}.")
    ] = "timeslice",
    stressors: Annotated[
        bool,
        typer.Option("--stressors", help="Each against calibrated stressors only, not against each other."),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option("--against", help="Each against these only, names as of --apps: N x K pairs."),
    ] = None,
    budget: Annotated[str, typer.Option("--budget", help="Time to spend: 90s, 30m, 2h.")] = "30m",
    width: Annotated[
        float, typer.Option("--width", help="Repeat until the 95% interval of E_v is as narrow.", min=0.001)
    ] = 0.05,
    trials: Annotated[int, typer.Option("--trials", help="Of a pair, at most.", min=1, max=1000)] = 8,
    window: Annotated[
        float, typer.Option("--window", help="Seconds that a pair runs.", min=0.1, max=60)
    ] = 1.0,
    slice_s: Annotated[
        float, typer.Option("--slice", help="Seconds of a gang slice, of the kind gang.", min=0.01, max=10)
    ] = 0.1,
    solo: Annotated[float, typer.Option("--solo", help="Seconds of a run alone.", min=0.1, max=60)] = 0.4,
    counters: Annotated[
        str,
        typer.Option("--counters", help="Count each alone before: os, perf, cachegrind (slow); with commas."),
    ] = "os",
    lanes: Annotated[
        int, typer.Option("--lanes", help="CPUs on which different pairs are measured at once.", min=1)
    ] = 1,
    cpus: Annotated[str | None, typer.Option("--cpus", help="To use, in this order: 1,0.")] = None,
    nice: Annotated[
        int,
        typer.Option(
            "--nice", help="Of the measured programs; below 0 keeps others off, for root.", min=-20, max=19
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(help="Of the order in which pairs are measured.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Add to what the folder has.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON.")] = False,
) -> None:
    """Measure what applications lose to each other here, and write PAIRS. Ctrl-C keeps what was measured."""
    names = [name for name in apps.split(",") if name]
    named = [name for name in (against or "").split(",") if name] + ["stressors"] * stressors
    partners = frozenset(each.name for each in applications_named(named)) if named else None
    chosen = applications_named([*names, *named])
    settings = MeasurementSettings(
        applications=chosen,
        kinds=_kinds(kinds),
        budget_s=seconds_of(budget),
        width=width,
        most=trials,
        seed=seed,
        lanes=lanes,
        niceness=nice,
        cpus=_cpus(cpus),
        against=partners,
        lengths=Lengths(pair_s=window, solo_s=solo, slice_s=slice_s),
    )
    notes = [f"programs ran at niceness {nice}"] if nice else []
    if lanes > 1:
        notes.append(f"timeslice: pairs on {counted(lanes, 'CPU')} at once")
    if PairKind.GANG in settings.kinds:
        notes.append(f"gang: slices of {slice_s:g} s, by stop signals")
    for kind in settings.kinds:
        places(kind, settings)
    providers = [provider_of(each) for each in _sources(counters)]
    store = PairsStore(out, chosen, window, resume=resume, notes=notes)
    console = Console(stderr=True)
    with _progress(console) as shown:
        task = shown.add_task("starting", total=None)

        def tell(made: Made) -> None:
            left = f"{duration(made.left_s, rough=True)} left"
            shown.update(
                task,
                completed=made.made,
                total=made.made + made.missing,
                description=f"{made.kind}: {made.pair}, {left}",
            )

        where = settings.cpus or tuple(sorted(os.sched_getaffinity(0)))

        def warn(why: str) -> None:
            console.print(f"osub: {why}", markup=False, highlight=False)

        count_all(chosen, providers, store, where, lambda what: shown.update(task, description=what), warn)
        Measurement(settings, store, tell, warn).run()
    _show(read_pairs(out), out, as_json=as_json)


def _kinds(text: str) -> list[PairKind]:
    words = [word for word in text.split(",") if word]
    odd = next((word for word in words if word not in set(PairKind)), None)
    if odd is not None or not words:
        raise UsageError(f"--kinds is {text!r}; there are {', '.join(PairKind)}")
    return [PairKind(word) for word in dict.fromkeys(words)]


def _sources(text: str) -> list[CounterSource]:
    words = [word for word in text.split(",") if word]
    odd = next((word for word in words if word not in set(CounterSource)), None)
    if odd is not None:
        raise UsageError(f"--counters is {text!r}; there are {', '.join(CounterSource)}")
    return [CounterSource(word) for word in dict.fromkeys(words)]


def _cpus(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,4}(,[0-9]{1,4})*", text):
        raise UsageError(f"--cpus is {text!r}; write numbers with commas: 1,0")
    return tuple(dict.fromkeys(int(word) for word in text.split(",")))


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, refresh_per_second=1) as shown:
        yield shown


def _show(read: Pairs, out: Path, *, as_json: bool) -> None:
    summary = [asdict(one) for one in summaries_of(read)]
    if as_json:
        typer.echo(json.dumps({"out": str(out), "kinds": summary}))
        return
    for row in summary:
        typer.echo(
            f"{row['kind']}: {counted(row['pairs'], 'ordered pair')} of "
            f"{counted(row['applications'], 'application')}, {counted(row['trials'], 'trial')}; E_v "
            f"{row['e_v_low']} to {row['e_v_high']}, median {row['e_v_median']}; 95% interval "
            f"{row['median_width']} wide; others used {row['load']} CPUs"
        )
    typer.echo(f"in {out}")
