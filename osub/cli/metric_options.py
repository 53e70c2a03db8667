"""Options that ``osub compare`` and ``osub report`` have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Page = Annotated[
    Path | None,
    typer.Option("--html", help="Write a page that is complete in itself.", metavar="FILE", dir_okay=False),
]
Full = Annotated[bool, typer.Option("--full", help="Print every metric, not the main ones.")]
WaitThreshold = Annotated[
    float, typer.Option(min=0, help="A job that waits longer, in seconds, counts as one that waited.")
]
Beta = Annotated[float, typer.Option(min=0, help="Least dedicated time in the bounded slowdown, in seconds.")]
MostTaken = Annotated[
    float,
    typer.Option(
        metavar="SHARE",
        min=0,
        max=1,
        help="Share of the CPUs' time that others and the hypervisor may take, before a run is unfit.",
    ),
]
MostSpread = Annotated[
    float,
    typer.Option(
        metavar="FACTOR",
        min=1,
        help="How many times as fast a host may be for some jobs of M=1 as for others.",
    ),
]
