"""``osub trace merge``: several traces as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foundation.errors import UsageError
from foundation.units import counted
from osub.cli.trace.files import AsJson, Force, Lenient, OutFile, check_free, deliver, load, print_json
from workloads.trace.transforms import Align, merge_traces


def merge(
    traces: Annotated[list[Path], typer.Argument(help="SWF files, plain or gzip.", metavar="TRACE TRACE...")],
    out: OutFile,
    align: Annotated[
        Align, typer.Option(help="What falls together: the traces' seconds 0, or equal dates.")
    ] = Align.START,
    same_users: Annotated[
        bool,
        typer.Option(
            "--same-users/--other-users", help="Whether equal user numbers are the same user in all traces."
        ),
    ] = True,
    force: Force = False,
    lenient: Lenient = False,
    as_json: AsJson = False,
) -> None:
    """Merge the jobs of several traces in the order of submission, under the first one's header.

    A job whose number is taken gets the next free one.
    """
    check_free(out, force)
    if len(traces) < 2:
        raise UsageError("osub trace merge takes at least two traces; `osub trace convert` takes one")
    merged = merge_traces([load(path, lenient) for path in traces], align, same_users)
    deliver(merged, out)
    if as_json:
        print_json({"trace": str(out), "jobs": len(merged.jobs), "notes": [merged.header.notes[-1]]})
        return
    typer.echo(f"{out}: {counted(len(merged.jobs), 'job')} of {counted(len(traces), 'trace')}")
