"""``osub predict pair`` and ``osub predict matrix``: what a model says of applications."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from foundation.errors import InputError, UsageError
from foundation.one_line import one_line
from foundation.whole_file import write_whole
from osub.cli.out_file import Force, check_free
from osub.cli.predict_data import kind_of, pairs_of
from osub.cli.terminal import Console

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
    from predictor.counters.told import read_counts
    from predictor.data import MODEL
    from predictor.measure.host import cpu_model
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
    matched = not any(forecast.dangerous for forecast in forecasts.values())
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "kind": str(found.kind),
                    "threshold": found.threshold,
                    "cut": found.cut,
                    "well_matched": matched,
                    "clusters": {name: _cluster(found, name) for name in dict.fromkeys((a, b))},
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
            f"{victim} beside {other}: loses {forecast.loss:.2f} ({forecast.low:.2f} to "
            f"{forecast.high:.2f}) of each second; above {found.threshold:g} with probability "
            f"{forecast.probability:.2f}"
        )
    for name in dict.fromkeys((a, b)):
        group = _cluster(found, name)
        word = "is unfit for sharing" if group["dangerous"] else "may share"
        typer.echo(f"{name} is of a group that {word}: its members lose {group['median_loss']:.2f} (median)")
    verdict = "well matched: they may share a core" if matched else "not well matched: keep them apart"
    typer.echo(f"{verdict} ({found.kind}, cut {found.cut:.2f})")


def _cluster(model: Model, name: str) -> dict[str, bool | float]:
    """Return the verdict of phase 1 on an application."""
    group = model.clusters[model.applications[name].cluster]
    return {"dangerous": group.dangerous, "median_loss": group.median_loss}


Row = tuple[str, str, float, float | None, bool]
"""Victim, opponent, E_v, probability of danger (None: it was measured), and whether it is dangerous."""


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
    """Print what each application loses beside each other; ! marks what is dangerous."""
    check_free(csv, force)
    if model is not None and data is not None:
        raise UsageError("--model and --data are two answers to one question: give one of them")
    if counters and data is not None:
        raise UsageError("--counters goes with a model, not with --data")
    if kind is not None and data is None:
        raise UsageError("--kind goes with --data; a model is of one kind")
    names = None if apps is None else [name.strip() for name in apps.split(",")]
    which, names, rows = _predicted(model, counters, names) if data is None else _measured(data, kind, names)
    if csv is not None:
        lines = ["victim,opponent,e_v,probability,dangerous"]
        lines += [
            f"{v},{o},{loss:.4f},{'' if p is None else f'{p:.4f}'},{int(d)}" for v, o, loss, p, d in rows
        ]
        write_whole(csv, "\n".join(lines) + "\n")
    if as_json:
        keys = ("victim", "opponent", "e_v", "probability", "dangerous")
        typer.echo(json.dumps({"kind": which, "pairs": [dict(zip(keys, row, strict=True)) for row in rows]}))
        return
    cells = {(victim, other): f"{loss:.2f}{'!' if bad else ''}" for victim, other, loss, _, bad in rows}
    table = Table("victim \\ opponent", *(str(number) for number in range(1, len(names) + 1)))
    for number, name in enumerate(names, start=1):
        table.add_row(f"{number} {name}", *(cells.get((name, other), "-") for other in names))
    Console().print(table)


def _predicted(
    path: Path | None, counted: list[str] | None, names: list[str] | None
) -> tuple[str, list[str], list[Row]]:
    """Return kind, names and rows of a model."""
    found = _model(path, counted)
    names = sorted(found.applications) if names is None else names
    scaled = found.counters_of(names)
    losses, likely = found.matrix(scaled, scaled)
    rows: list[Row] = [
        (victim, other, float(losses[i, j]), float(likely[i, j]), bool(likely[i, j] > found.cut))
        for i, victim in enumerate(names)
        for j, other in enumerate(names)
    ]
    return str(found.kind), names, rows


def _measured(data: Path, word: str | None, names: list[str] | None) -> tuple[str, list[str], list[Row]]:
    """Return kind, names and rows of measured pairs; a pair that was not measured has none."""
    from predictor.dataset import STRESSOR
    from predictor.model.records import threshold_of

    pairs = pairs_of(data)
    kind = kind_of(word, pairs)
    known = set(pairs.applications.filter(pairs.applications["family"] != STRESSOR)["application"])
    own = pairs.pairs.filter(pairs.pairs["kind"] == str(kind)).sort("victim", "opponent")
    measured = known & {*own["victim"], *own["opponent"]}
    odd = next((name for name in names or () if name not in measured), None)
    if odd is not None:
        raise InputError(
            f"no pair of {one_line(odd, 80)} was measured of kind {kind}; there are "
            f"{', '.join(sorted(measured)[:8])}"
        )
    chosen = sorted(measured) if names is None else names
    threshold = threshold_of(kind)
    rows: list[Row] = [
        (victim, other, loss, None, loss > threshold)
        for victim, other, loss in own.select("victim", "opponent", "e_v").iter_rows()
        if victim in chosen and other in chosen
    ]
    return str(kind), chosen, rows
