"""``osub predict pair`` and ``osub predict matrix``: what a model says of applications."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from osub.cli.terminal import Console
from osub.errors import OutputError

if TYPE_CHECKING:
    from predictor.model import Model

ModelFile = Annotated[
    Path | None, typer.Option("--model", help="A model by `osub predict fit` (default: osub's own).")
]


def _model(path: Path | None) -> Model:
    from predictor.data import MODEL
    from predictor.measure.host import cpu_model
    from predictor.model import read_model

    model = read_model(path or MODEL)
    warning = model.differs_from(cpu_model())
    if warning is not None:
        print(f"osub: {warning}", file=sys.stderr)
    return model


def pair(
    a: Annotated[str, typer.Argument(help="An application that the model knows.", metavar="A")],
    b: Annotated[str, typer.Argument(help="Another, or the same.", metavar="B")],
    model: ModelFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Say whether A and B may share a core: each as victim, then both together."""
    found = _model(model)
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
    verdict = "well matched: they may share a core" if matched else "not well matched: keep them apart"
    typer.echo(f"{verdict} ({found.kind}, cut {found.cut:.2f})")


def matrix(
    apps: Annotated[
        str | None, typer.Option(help="Names, with commas (default: all that the model knows).")
    ] = None,
    model: ModelFile = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Write victim,opponent,e_v,probability,dangerous here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Print what each application loses beside each other; ! marks what is dangerous."""
    found = _model(model)
    names = [name.strip() for name in apps.split(",")] if apps else sorted(found.applications)
    scaled = found.counters_of(names)
    losses, likely = found.matrix(scaled, scaled)
    rows = [
        (victim, other, float(losses[i, j]), float(likely[i, j]), bool(likely[i, j] > found.cut))
        for i, victim in enumerate(names)
        for j, other in enumerate(names)
    ]
    if csv is not None:
        lines = ["victim,opponent,e_v,probability,dangerous"]
        lines += [f"{v},{o},{loss:.4f},{p:.4f},{int(d)}" for v, o, loss, p, d in rows]
        if csv.exists():
            raise OutputError(f"{csv} exists already: choose another name")
        csv.write_text("\n".join(lines) + "\n")
    if as_json:
        keys = ("victim", "opponent", "e_v", "probability", "dangerous")
        typer.echo(
            json.dumps(
                {"kind": str(found.kind), "pairs": [dict(zip(keys, row, strict=True)) for row in rows]}
            )
        )
        return
    table = Table("victim \\ opponent", *(str(number) for number in range(1, len(names) + 1)))
    for i, name in enumerate(names):
        cells = [f"{losses[i, j]:.2f}{'!' if likely[i, j] > found.cut else ''}" for j in range(len(names))]
        table.add_row(f"{i + 1} {name}", *cells)
    Console().print(table)
