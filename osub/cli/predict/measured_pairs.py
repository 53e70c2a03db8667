"""``osub predict counters|measure|import|compare|run``: what is measured of applications that share cores."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from typer import Argument, Option

from foundation.errors import HostError, OutputError, UsageError
from foundation.files import refuse_unwritable_folder
from foundation.one_line import one_line
from foundation.units import counted, duration, seconds_of
from osub.cli.out_file import Force
from osub.cli.terminal import Console
from predictor.chosen import kind_of, pairs_of, steps_alone
from predictor.counters import Count, offers, provider_of
from predictor.dataset import CounterSource, PairKind, Pairs, read_pairs, write_pairs
from predictor.dcslab import read_dcslab
from predictor.measure.measure_pairs import Measurement, MeasurementSettings, count_all, places
from predictor.measure.measure_pairs import MeasurementProgress as Made
from predictor.measure.pair_trial import Lengths
from predictor.measure.pairs_store import PairsStore
from predictor.pairs_agreement import summaries_of
from predictor.programs.program_catalogue import applications_named, known_applications

if TYPE_CHECKING:
    from predictor.pairs_agreement import Agreement, Interval

KindT = TypeVar("KindT", bound=StrEnum)


def measure(
    *,
    out: Annotated[Path, Option(help="Folder of measured pairs to make.", metavar="PAIRS")],
    apps: Annotated[
        str, Option(help="Names, families or groups, with commas; `--apps ?` lists them.")
    ] = "single",
    kinds: Annotated[str, Option(help=f"How they share: {', '.join(PairKind)}.")] = "timeslice",
    stressors: Annotated[
        bool, Option("--stressors", help="Each against calibrated stressors only, not against each other.")
    ] = False,
    against: Annotated[
        str | None, Option(help="Each against these only, names as of --apps: N x K pairs.")
    ] = None,
    budget: Annotated[str, Option(help="Time to spend: 90s, 30m, 2h.")] = "30m",
    width: Annotated[
        float, Option(help="Repeat until the 95% interval of E_v is as narrow.", min=0.001)
    ] = 0.05,
    trials: Annotated[int, Option(help="Of a pair, at most.", min=1, max=1000)] = 8,
    window: Annotated[float, Option(help="Seconds that a pair runs.", min=0.1, max=60)] = 1.0,
    slice_s: Annotated[
        float, Option("--slice", help="Seconds of a gang slice, of the kind gang.", min=0.01, max=10)
    ] = 0.1,
    solo: Annotated[float, Option(help="Seconds of a run alone.", min=0.1, max=60)] = 0.4,
    counters: Annotated[
        str, Option(help="Count each alone before: os, perf, cachegrind (slow); with commas.")
    ] = "os",
    lanes: Annotated[int, Option(help="CPUs on which different pairs are measured at once.", min=1)] = 1,
    cpus: Annotated[str | None, Option(help="To use, in this order: 1,0.")] = None,
    nice: Annotated[
        int, Option(help="Of the measured programs; below 0 keeps others off, for root.", min=-20, max=19)
    ] = 0,
    seed: Annotated[int, Option(help="Of the order in which pairs are measured.")] = 1,
    resume: Annotated[bool, Option("--resume", help="Add to what the folder has.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print a summary as JSON.")] = False,
) -> None:
    """Measure what applications lose to each other here, and write PAIRS. Ctrl-C keeps what was measured."""
    names = [name for name in apps.split(",") if name]
    named = [name for name in (against or "").split(",") if name] + ["stressors"] * stressors
    partners = frozenset(each.name for each in applications_named(named)) if named else None
    chosen = applications_named([*names, *named])
    settings = MeasurementSettings(
        applications=chosen,
        kinds=_named(PairKind, kinds, "--kinds", least=1),
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
    providers = [provider_of(each) for each in _named(CounterSource, counters, "--counters")]
    store = PairsStore(out, chosen, window, resume=resume, notes=notes)
    console = Console(stderr=True)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, refresh_per_second=1) as shown:
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
            console.say(f"osub: {why}")

        count_all(chosen, providers, store, where, lambda what: shown.update(task, description=what), warn)
        Measurement(settings, store, tell, warn).run()
    _show(read_pairs(out), out, as_json=as_json)


def _named(kinds: type[KindT], text: str, option: str, least: int = 0) -> list[KindT]:
    """Return the kinds that a text names, with commas, each once."""
    words = dict.fromkeys(filter(None, text.split(",")))
    if len(words) < least or not words.keys() <= set(kinds):
        raise UsageError(f"{option} is {text!r}; there are {', '.join(kinds)}")
    return [kinds(word) for word in words]


def _cpus(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,4}(,[0-9]{1,4})*", text):
        raise UsageError(f"--cpus is {text!r}; write numbers with commas: 1,0")
    return tuple(dict.fromkeys(int(word) for word in text.split(",")))


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


def counters(
    command: Annotated[list[str], Argument(help="What to run, after `--`.", metavar="CMD...")],
    source: Annotated[
        list[CounterSource] | None,
        Option(help="Which counters; may be repeated (default: all that this host offers)."),
    ] = None,
    quick: Annotated[
        bool,
        Option("--quick", help="Leave out cachegrind, which runs the command 20 to 100 times slower, twice."),
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print the counters as JSON.")] = False,
) -> None:
    """Run CMD alone, to its end, once a source (cachegrind: twice), and print its counters, all ranks'."""
    if not command[0]:
        raise UsageError("the command is empty; write it after `--`")
    console = Console(stderr=True)
    if source:
        chosen = [provider_of(each) for each in dict.fromkeys(source)]
    else:
        chosen = []
        for offer in offers():
            if offer.missing is not None:
                console.say(f"no counters from {offer.provider.source}: {offer.missing}")
            elif not (quick and offer.provider.source is CounterSource.CACHEGRIND):
                chosen.append(offer.provider)
    found: dict[CounterSource, list[Count]] = {}
    for provider in chosen:
        if provider.source is CounterSource.CACHEGRIND:
            console.print("cachegrind: simulated, 20 to 100 times slower, two runs", highlight=False)
        found[provider.source] = provider.count(command, os.environ)
    if as_json:
        typer.echo(
            json.dumps({str(each): [asdict(count) for count in counts] for each, counts in found.items()})
        )
        return
    table = Table("source", "counter", "per", "value", "counted, share of time")
    for each, counts in found.items():
        for count in counts:
            value = "not measured" if count.value is None else f"{count.value:.4g}"
            table.add_row(
                str(each),
                count.counter,
                count.per,
                value,
                "" if count.scaled is None else f"{count.scaled:.0%}",
            )
    Console().print(table)


class Format(StrEnum):
    """What can be imported."""

    DCSLAB = "dcslab"


def import_(
    source: Annotated[Path, Argument(help="The archive, .tar or .tar.gz.", metavar="ARCHIVE")],
    out: Annotated[Path, Option(help="Folder of pairs to make.", metavar="PAIRS")],
    form: Annotated[
        Format, Option("--from", help="dcslab: counters and run times of pairs with NPB's SP.")
    ] = Format.DCSLAB,
    force: Force = False,
) -> None:
    """Make PAIRS of what others measured; `osub predict evaluate --data PAIRS` judges it by itself."""
    if (out / "about.json").exists() and not force:
        raise OutputError(f"{out} has measured pairs already; give --force, or another folder")
    refuse_unwritable_folder(out)
    del form  # there is one
    pairs, notes = read_dcslab(source)
    write_pairs(out, pairs)
    console = Console(stderr=True)
    for note in notes:
        console.say(f"osub: left out: {note}")
    console.say(
        f"{counted(pairs.pairs.height, 'pair')} of {counted(pairs.applications.height, 'application')} "
        f"(cores) are in {out}"
    )


_MOST_STEPS = 10**15


def run(
    name: Annotated[str, Argument(help="An application; `osub predict measure --apps ?` lists them.")],
    steps: Annotated[int | None, Option(min=1, help="How many steps it makes.")] = None,
    seconds: Annotated[
        float | None, Option(help="As many steps as the measured host made alone in this time.")
    ] = None,
    data: Annotated[
        Path | None, Option(help="Folder of measured pairs (default: osub's own).", metavar="PAIRS")
    ] = None,
) -> None:
    """Run an application with known work: what takes longer then has lost. For the jobs of a replay."""
    application = known_applications().get(name)
    if application is None:
        raise UsageError(
            f"no application is called {one_line(name, 40)!r}; there are {', '.join(known_applications())}"
        )
    if (steps is None) == (seconds is None):
        raise UsageError("say how much work: --steps, or --seconds of the measured host")
    if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
        raise UsageError(f"--seconds must be a positive number, not {seconds:g}")
    count = steps if seconds is None else steps_alone(name, seconds, data)
    words = application.command(min(max(1, count or 1), _MOST_STEPS))
    try:
        os.execvp(words[0], words)  # noqa: S606 - words of our own catalogue
    except OSError as error:
        raise HostError(f"cannot run {words[0]}: {error.strerror}") from error


_SHOWN = 5


def compare(
    first: Annotated[Path, Argument(help="Folder of measured pairs.", metavar="PAIRS")],
    second: Annotated[Path | None, Argument(help="Another (default: osub's own).", metavar="[OTHER]")] = None,
    kind: Annotated[
        str | None, Option(help="Only this kind of sharing (default: all that both have).")
    ] = None,
    within: Annotated[
        str, Option(help="Differences of E_v up to which two losses are the same, with commas.")
    ] = "0.05,0.1",
    as_json: Annotated[bool, Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say how far two measurements of the same pairs agree: a day later, under load, on another host."""
    from predictor.pairs_agreement import agreement_of, different_hosts, kinds_in_both

    one, other = pairs_of(first), pairs_of(second)
    bounds = _bounds(within)
    kinds = kinds_in_both(one, other) if kind is None else [kind_of(kind, one)]
    found = {str(each): agreement_of(one, other, each, bounds) for each in kinds}
    warning = different_hosts(one, other)
    if as_json:
        kinds_json = {name: agreement.to_json() for name, agreement in found.items()}
        typer.echo(json.dumps({"kinds": kinds_json, "warning": warning}))
        return
    console = Console()
    if warning is not None:
        Console(stderr=True).say(f"osub: {warning}")
    for name, agreement in found.items():
        _show_agreement(console, name, agreement)


def _bounds(text: str) -> list[float]:
    try:
        bounds = sorted({float(word) for word in text.split(",")})
    except ValueError:
        bounds = []
    if not bounds or not all(0 <= bound <= 1 for bound in bounds):
        raise UsageError(f"--within is {text!r}; write differences of E_v between 0 and 1: 0.05,0.1")
    return bounds


def _show_agreement(console: Console, name: str, found: Agreement) -> None:
    missing = f" ({found.only_first} and {found.only_second} are in one only)" * bool(
        found.only_first + found.only_second
    )
    console.print(f"[b]{name}[/b]: {counted(found.pairs, 'pair')} in both{missing}", highlight=False)
    for most, share in found.within.items():
        console.print(f"  within {most:g}: {_percent(share)} of them", highlight=False)
    bias = found.bias
    console.print(
        f"  the second is {bias.value:+.3f} from the first on average ({bias.low:+.3f} to {bias.high:+.3f}); "
        f"they differ by {found.deviation:.3f} (root mean square) and rank alike at "
        f"{found.rank_correlation:.2f}",
        highlight=False,
    )
    if found.overlapping is not None:
        console.print(f"  95% intervals meet in {found.overlapping:.0%} of the pairs", highlight=False)
    if found.load_first is not None and found.load_second is not None:
        console.print(
            f"  others used {found.load_first:.2f} and {found.load_second:.2f} of the measured CPUs",
            highlight=False,
        )
    table = Table("furthest apart: victim", "opponent", "E_v, first", "second")
    for pair in found.furthest[:_SHOWN]:
        table.add_row(pair.victim, pair.opponent, f"{pair.first:.3f}", f"{pair.second:.3f}")
    console.print(table)


def _percent(share: Interval) -> str:
    return f"{share.value:.0%} ({100 * share.low:.0f} to {100 * share.high:.0f})"
