"""What the commands of ``osub workloads`` share: their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Cluster = Annotated[Path, typer.Option("--cluster", help="Folder with slurm.conf (an embedded cluster's).")]
Stored = Annotated[Path, typer.Option("--calibration", help="File of stored step times.")]
Trace = Annotated[Path | None, typer.Option("--trace", help="The batch jobs of this trace, as replayed.")]
Apps = Annotated[Path | None, typer.Option("--apps", help="CSV trace_job,app,args, as for `osub replay`.")]
Speedup = Annotated[float, typer.Option(help="Divide every time of the trace by this.")]
InteractiveQueue = Annotated[int, typer.Option(help="SWF queue of interactive jobs; -1: there are none.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
