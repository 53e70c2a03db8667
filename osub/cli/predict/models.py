"""``osub predict fit|evaluate|pair|matrix``: models of losses, how good they are, and what they say."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from typer import Argument, Option

from foundation.errors import UsageError
from foundation.files import write_whole
from foundation.one_line import one_line
from foundation.units import counted, seconds_of
from osub.cli.out_file import Force, check_free
from osub.cli.terminal import Console
from predictor.chosen import kind_of, needs_learning, pairs_of

if TYPE_CHECKING:
    from predictor.model import Model
    from predictor.model.model_judges import KindReport


DataFolder = Annotated[
    Path | None, Option(help="Folder of measured pairs (default: osub's own).", metavar="PAIRS")
]
Threshold = Annotated[
    float | None, Option(help="t: a loss above it is dangerous (default: the kind's ideal).")
]
Cost = Annotated[float, Option(help="Needless warnings a missed danger is worth.", min=0.01, max=1e6)]


def fit(
    *,
    out: Annotated[Path, Option(help="File to write the model to.", metavar="MODEL")],
    data: DataFolder = None,
    kind: Annotated[str | None, Option(help="How they share (default: timeslice).")] = None,
    threshold: Threshold = None,
    cost: Cost = 7 / 3,
    seed: Annotated[int, Option(help="Of folds and starts.", min=0, max=2**31)] = 0,
    force: Force = False,
) -> None:
    """Fit a model on measured pairs, and write it."""
    check_free(out, force)
    needs_learning()
    from predictor.model import write_model
    from predictor.model.model_fit import fit_model

    pairs = pairs_of(data)
    model = fit_model(pairs, kind_of(kind, pairs), threshold=threshold, cost=cost, seed=seed)
    write_model(out, model)
    left = f", {model.data.left_out} uncertain ones left out" if model.data.left_out else ""
    typer.echo(
        f"{out}: {model.kind}, {counted(model.data.records, 'pair')} of "
        f"{counted(model.data.applications, 'application')}{left}, measured on {model.host.cpu_model}; `osub "
        "predict evaluate` says how good such a model is"
    )


def evaluate(
    *,
    data: DataFolder = None,
    kind: Annotated[str | None, Option(help="Only this kind of sharing (default: all).")] = None,
    threshold: Threshold = None,
    cost: Cost = 7 / 3,
    seed: Annotated[int, Option(help="Of folds and bootstrap.", min=0, max=2**31)] = 0,
    html: Annotated[Path | None, Option(help="Draw it all to this page.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print everything as JSON.")] = False,
    force: Force = False,
) -> None:
    """Judge models on applications that they have not seen, next to simple rules."""
    check_free(html, force, makes_folder=True)
    needs_learning()
    from predictor.model.judged import judge
    from predictor.model.judges_page import json_of, write_page

    pairs = pairs_of(data)
    kinds = list(pairs.about.kinds) if kind is None else [kind_of(kind, pairs)]
    judged = judge(pairs, kinds, threshold=threshold, cost=cost, seed=seed)
    reports, few, failed = judged.reports, judged.few, judged.failed
    if html is not None:
        write_page(html, pairs.about, reports)
    if as_json:
        kinds_json = {name: json_of(report) for name, report in reports.items()}
        typer.echo(
            json.dumps(
                {
                    "kinds": kinds_json,
                    "few": {name: found.to_json() for name, found in few.items()},
                    "not_judged": {name: str(error) for name, error in failed.items()},
                }
            )
        )
        return
    console = Console()
    for name, report in reports.items():
        _show(console, name, report)
    for name, few_pairs in few.items():
        for line in few_pairs.lines(name):
            console.say(line)
    for name, why in failed.items():
        console.say(f"{name}: not judged: {why}")
    if html is not None:
        console.say(f"{html} has the pictures")


def _show(console: Console, name: str, report: KindReport) -> None:
    """Print how the models of a kind did."""
    from predictor.model.judges_page import curves_sentence, rows_of, sentence_of

    console.print(
        f"[b]{name}[/b]: {counted(len(report.records), 'pair')} of "
        f"{counted(len(report.records.places), 'application')}, {report.excluded} more whose interval spans "
        f"{report.records.threshold:g} left out"
        + (f", {report.single} of one trial and so without interval" if report.single else "")
    )
    console.say(sentence_of(report))
    table = Table("judged by", "right (95% interval)", "points above the majority")
    for row in rows_of(report):
        table.add_row(*row)
    console.print(table)
    if sentence := curves_sentence(report):
        console.say(sentence)
    console.print(
        f"at a cut of {report.cut:.2f} dangers missed: {report.false_negatives:.1%} of all pairs; 90% "
        f"intervals of the loss are ±{report.half_width:.2f} wide and hold {report.coverage:.0%}",
        highlight=False,
    )


ModelFile = Annotated[
    Path | None, Option("--model", help="A model by `osub predict fit` (default: osub's own).")
]


Counted = Annotated[
    list[str] | None,
    Option(
        "--counters",
        help="An application that the model does not know, by what `osub predict counters --json` prints.",
        metavar="NAME=FILE",
    ),
]


def _model(path: Path | None, counted: list[str] | None) -> Model:
    from predictor.counters import read_counts
    from predictor.data import MODEL
    from predictor.measure.pairs_store import cpu_model
    from predictor.model import read_model

    model = read_model(path or MODEL)
    for word in counted or ():
        name, sign, file = word.partition("=")
        if not (sign and name and file):
            raise UsageError(f"--counters is {one_line(word, 60)!r}; write NAME=FILE")
        model = model.knowing(name, read_counts(Path(file)))
    warning = model.differs_from(cpu_model())
    if warning is not None:
        print(f"osub: {warning}", file=sys.stderr)
    return model


def pair(
    a: Annotated[str, Argument(help="An application that the model knows.", metavar="A")],
    b: Annotated[str, Argument(help="Another, or the same.", metavar="B")],
    model: ModelFile = None,
    counters: Counted = None,
    measure: Annotated[
        bool, Option("--measure", help="Measure the two here, in place of a model's word.")
    ] = False,
    program: Annotated[
        list[str] | None,
        Option(
            help="With --measure: a program of your own, run to its end again and again.",
            metavar="NAME=COMMAND",
        ),
    ] = None,
    budget: Annotated[str, Option(help="With --measure: time to spend.")] = "60s",
    as_json: Annotated[bool, Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Say whether A and B may share a core: each as victim, then both together."""
    if measure:
        if model is not None or counters:
            raise UsageError("--model and --counters are for a prediction; leave them out with --measure")
        _measured_pair(a, b, program or [], seconds_of(budget), as_json=as_json)
        return
    if program:
        raise UsageError("--program goes with --measure: a model knows a program by its --counters only")
    found = _model(model, counters)
    forecasts = {(victim, other): found.forecast(victim, other) for victim, other in ((a, b), (b, a))}
    groups = {name: found.group_of(name) for name in (a, b)}
    matched = not any(forecast.dangerous for forecast in forecasts.values())
    unknown = [name for name in dict.fromkeys((a, b)) if not found.is_trusted(name)]
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "kind": str(found.kind),
                    "threshold": found.threshold,
                    "cut": found.cut,
                    "well_matched": None if unknown else matched,
                    "unknown": unknown,
                    "clusters": {
                        name: {"dangerous": group.dangerous, "median_loss": group.median_loss}
                        for name, group in groups.items()
                    },
                    "victims": [
                        {"victim": victim, "opponent": other, **asdict(forecast)}
                        for (victim, other), forecast in forecasts.items()
                    ],
                }
            )
        )
        return
    if unknown:
        typer.echo(_unknown_sentence(found, unknown, a, b))
        return
    for (victim, other), forecast in forecasts.items():
        typer.echo(
            f"{victim} with {other}: loses {forecast.loss:.2f} ({forecast.low:.2f} to "
            f"{forecast.high:.2f}) of each second; above {found.threshold:g} with probability "
            f"{forecast.probability:.2f}"
        )
    for name, group in groups.items():
        word = "is unfit for sharing" if group.dangerous else "may share"
        typer.echo(f"{name} is of a group that {word}: its members lose {group.median_loss:.2f} (median)")
    verdict = "well matched: they may share a core" if matched else "not well matched: keep them apart"
    typer.echo(f"{verdict} ({found.kind}, cut {found.cut:.2f})")


def _unknown_sentence(model: Model, names: list[str], a: str, b: str) -> str:
    """Say why a model has no answer, and what gives one."""
    seen = model.unseen
    why = "nothing says how far it can be trusted with others"
    if seen is not None:
        why = (
            f"it was right in {seen.accuracy:.0%}, always saying the same "
            f"in {seen.majority:.0%}, of pairs whose victim it had not seen"
        )
    which = f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'} not measured"
    return (
        f"{a} with {b}: unknown. {which}, and the model is not good enough for that: {why}. Measure: osub "
        f"predict pair {a} {b} --measure" + "".join(f" --program {name}='COMMAND'" for name in names)
    )


def _measured_pair(a: str, b: str, programs: list[str], budget_s: float, *, as_json: bool) -> None:
    """Measure two applications here, and say whether they may share a core."""
    from predictor.measure.measure_pairs import pair_measured_here
    from predictor.programs.program_catalogue import applications_named, own_program

    own = {}
    for word in programs:
        name, sign, command = word.partition("=")
        if not (sign and command):
            raise UsageError(f"--program is {one_line(word, 60)!r}; write NAME=COMMAND")
        own[name] = own_program(name, command)
    chosen = [own[name] if name in own else applications_named([name])[0] for name in (a, b)]
    odd = next((one.name for name, one in zip((a, b), chosen, strict=True) if one.name != name), None)
    if odd is not None:
        raise UsageError(f"{odd} is one of several; give one application, such as {odd}")
    measured = pair_measured_here(chosen[0], chosen[1], budget_s)
    harmful = measured.is_harmful
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "kind": str(measured.kind),
                    "threshold": measured.threshold,
                    "well_matched": None if harmful is None else not harmful,
                    "unknown": [],
                    "victims": [
                        {
                            "victim": victim,
                            "opponent": opponent,
                            "loss": found.mean,
                            "low": found.low,
                            "high": found.high,
                            "trials": found.count,
                        }
                        for (victim, opponent), found in measured.losses.items()
                    ],
                }
            )
        )
        return
    for (victim, opponent), found in measured.losses.items():
        typer.echo(f"{victim} with {opponent}: loses {found.text('')} of each second ({found.count} trials)")
    if harmful is None:
        typer.echo(
            f"undecided: an interval has {measured.threshold:g} in it; measure longer with --budget "
            f"({measured.kind})"
        )
    else:
        verdict = "not well matched: keep them apart" if harmful else "well matched: they may share a core"
        typer.echo(f"{verdict} ({measured.kind}, measured here, harmful beyond {measured.threshold:g})")


def matrix(
    apps: Annotated[str | None, Option(help="Names, with commas (default: all that are known).")] = None,
    model: ModelFile = None,
    counters: Counted = None,
    data: Annotated[
        Path | None, Option(help="Losses as measured in this folder, in place of a model's.", metavar="PAIRS")
    ] = None,
    kind: Annotated[str | None, Option(help="Of the measured pairs: this kind of sharing.")] = None,
    csv: Annotated[Path | None, Option(help="Write victim,opponent,e_v,probability,dangerous here.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print it as JSON.")] = False,
    force: Force = False,
) -> None:
    """Print what each application loses to each other one; ! marks what is dangerous."""
    check_free(csv, force)
    if model is not None and data is not None:
        raise UsageError("--model and --data are two answers to one question: give one of them")
    if counters and data is not None:
        raise UsageError("--counters goes with a model, not with --data")
    if kind is not None and data is None:
        raise UsageError("--kind goes with --data; a model is of one kind")
    from predictor.model.stored_model import as_csv, measured, predicted

    names = None if apps is None else [name.strip() for name in apps.split(",")]
    if data is None:
        found = predicted(_model(model, counters), names)
    else:
        pairs = pairs_of(data)
        found = measured(pairs, kind_of(kind, pairs), names)
    if csv is not None:
        write_whole(csv, as_csv(found))
    if as_json:
        typer.echo(json.dumps({"kind": found.kind, "pairs": [asdict(one) for one in found.cells]}))
        return
    cells = {(one.victim, one.opponent): f"{one.e_v:.2f}{'!' * one.dangerous}" for one in found.cells}
    table = Table("victim \\ opponent", *map(str, range(1, len(found.names) + 1)))
    for number, name in enumerate(found.names, start=1):
        table.add_row(f"{number} {name}", *(cells.get((name, other), "-") for other in found.names))
    Console().print(table)
