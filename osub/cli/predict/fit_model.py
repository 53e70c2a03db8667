"""``osub predict fit``: a model of one kind of sharing, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from osub.cli.out_file import Force, check_free
from predictor.chosen import kind_of, needs_learning, pairs_of


def fit(
    *,
    out: Annotated[Path, typer.Option("--out", help="File to write the model to.", metavar="MODEL")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of measured pairs (default: osub's own).", metavar="PAIRS")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="How they share (default: timeslice).")] = None,
    threshold: Annotated[
        float | None, typer.Option(help="t: a loss above it is dangerous (default: the kind's ideal).")
    ] = None,
    cost: Annotated[
        float,
        typer.Option(help="Needless warnings a missed danger is worth.", min=0.01, max=1e6),
    ] = 7 / 3,
    seed: Annotated[int, typer.Option(help="Of folds and starts.", min=0, max=2**31)] = 0,
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
        f"{out}: {model.kind}, {model.data.records} pairs of {model.data.applications} applications{left}, "
        f"measured on {model.host.cpu_model}; `osub predict evaluate` says how good such a model is"
    )
