"""``osub predict pair`` and ``osub predict matrix``: what a model says of applications."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from foundation.errors import UsageError
from foundation.files import write_whole
from foundation.one_line import one_line
from osub.cli.out_file import Force, check_free
from osub.cli.terminal import Console
from predictor.chosen import kind_of, pairs_of

if TYPE_CHECKING:
    from predictor.model import Model

ModelFile = Annotated[
    Path | None, typer.Option("--model", help="A model by `osub predict fit` (default: osub's own).")
]


Counted = Annotated[
    list[str] | None,
    typer.Option(
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
    a: Annotated[str, typer.Argument(help="An application that the model knows.", metavar="A")],
    b: Annotated[str, typer.Argument(help="Another, or the same.", metavar="B")],
    model: ModelFile = None,
    counters: Counted = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Say whether A and B may share a core: each as victim, then both together."""
    found = _model(model, counters)
    forecasts = {(victim, other): found.forecast(victim, other) for victim, other in ((a, b), (b, a))}
    groups = {name: found.group_of(name) for name in (a, b)}
    matched = not any(forecast.dangerous for forecast in forecasts.values())
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "kind": str(found.kind),
                    "threshold": found.threshold,
                    "cut": found.cut,
                    "well_matched": matched,
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


def matrix(
    apps: Annotated[
        str | None, typer.Option(help="Names, with commas (default: all that are known).")
    ] = None,
    model: ModelFile = None,
    counters: Counted = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Losses as measured in this folder, in place of a model's.", metavar="PAIRS"),
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Of the measured pairs: this kind of sharing.")] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Write victim,opponent,e_v,probability,dangerous here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
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
