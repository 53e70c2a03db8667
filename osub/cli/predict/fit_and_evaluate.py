"""``osub predict fit`` and ``osub predict evaluate``: a model as a file, and how good such models are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from foundation.units import counted
from osub.cli.out_file import Force, check_free
from osub.cli.terminal import Console
from predictor.chosen import kind_of, needs_learning, pairs_of

if TYPE_CHECKING:
    from predictor.model.model_judges import KindReport

DataFolder = Annotated[
    Path | None, typer.Option(help="Folder of measured pairs (default: osub's own).", metavar="PAIRS")
]
Threshold = Annotated[
    float | None, typer.Option(help="t: a loss above it is dangerous (default: the kind's ideal).")
]
Cost = Annotated[float, typer.Option(help="Needless warnings a missed danger is worth.", min=0.01, max=1e6)]


def fit(
    *,
    out: Annotated[Path, typer.Option("--out", help="File to write the model to.", metavar="MODEL")],
    data: DataFolder = None,
    kind: Annotated[str | None, typer.Option(help="How they share (default: timeslice).")] = None,
    threshold: Threshold = None,
    cost: Cost = 7 / 3,
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
        f"{out}: {model.kind}, {counted(model.data.records, 'pair')} of "
        f"{counted(model.data.applications, 'application')}{left}, measured on {model.host.cpu_model}; `osub "
        "predict evaluate` says how good such a model is"
    )


def evaluate(
    *,
    data: DataFolder = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind of sharing (default: all).")] = None,
    threshold: Threshold = None,
    cost: Cost = 7 / 3,
    seed: Annotated[int, typer.Option(help="Of folds and bootstrap.", min=0, max=2**31)] = 0,
    html: Annotated[Path | None, typer.Option("--html", help="Draw it all to this page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
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
            console.print(line, markup=False, highlight=False)
    for name, why in failed.items():
        console.print(f"{name}: not judged: {why}", markup=False, highlight=False)
    if html is not None:
        console.print(f"{html} has the pictures", markup=False, highlight=False)


def _show(console: Console, name: str, report: KindReport) -> None:
    """Print how the models of a kind did."""
    from predictor.model.judges_page import curves_sentence, rows_of, sentence_of

    console.print(
        f"[b]{name}[/b]: {counted(len(report.records), 'pair')} of "
        f"{counted(len(report.records.places), 'application')}, {report.excluded} more whose interval spans "
        f"{report.records.threshold:g} left out"
        + (f", {report.single} of one trial and so without interval" if report.single else "")
    )
    console.print(sentence_of(report), markup=False, highlight=False)
    table = Table("judged by", "right (95% interval)", "points above the majority")
    for row in rows_of(report):
        table.add_row(*row)
    console.print(table)
    if sentence := curves_sentence(report):
        console.print(sentence, markup=False, highlight=False)
    console.print(
        f"at a cut of {report.cut:.2f} dangers missed: {report.false_negatives:.1%} of all pairs; 90% "
        f"intervals of the loss are ±{report.half_width:.2f} wide and hold {report.coverage:.0%}",
        highlight=False,
    )
