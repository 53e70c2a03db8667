"""``osub predict import``: pairs that others measured, as PAIRS."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from foundation.errors import OutputError
from foundation.files import refuse_unwritable_folder
from foundation.units import counted
from osub.cli.out_file import Force
from osub.cli.terminal import Console
from predictor.dataset import write_pairs
from predictor.dataset.dcslab import read_dcslab


class Format(StrEnum):
    """What can be imported."""

    DCSLAB = "dcslab"


def import_(
    source: Annotated[Path, typer.Argument(help="The archive, .tar or .tar.gz.", metavar="ARCHIVE")],
    out: Annotated[Path, typer.Option("--out", help="Folder of pairs to make.", metavar="PAIRS")],
    form: Annotated[
        Format, typer.Option("--from", help="dcslab: counters and run times of pairs with NPB's SP.")
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
        console.print(f"osub: left out: {note}", markup=False, highlight=False)
    console.print(
        f"{counted(pairs.pairs.height, 'pair')} of {counted(pairs.applications.height, 'application')} "
        f"(cores) are in {out}",
        markup=False,
        highlight=False,
    )
