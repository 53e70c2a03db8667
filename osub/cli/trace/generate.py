"""``osub trace generate``: a trace out of the Lublin-Feitelson model."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

import typer

from foundation.units import counted
from osub.cli.trace.files import AsJson, Force, OutFile, Seed, check_free, deliver, print_json, working
from osub.live.system_named import system_named
from workloads.trace.models import generate_trace, offered_load
from workloads.trace.trace_summary import summarize_kinds

MOST_JOBS = 10_000_000


def generate(
    out: OutFile,
    jobs: Annotated[int, typer.Option(min=1, max=MOST_JOBS, help="How many.")] = 1000,
    system: Annotated[
        str, typer.Option(help="The machine, such as N12C12; 'host' for the cluster that fits this host.")
    ] = "N12C12",
    load: Annotated[
        float, typer.Option(help="Offered load, 0.7 for 70 %; 0 keeps the model's own gaps.", min=0)
    ] = 0.7,
    interactive_share: Annotated[
        float, typer.Option(min=0, max=1, help="Of the jobs, that are interactive.")
    ] = 0.2,
    interactive_procs: Annotated[
        int | None, typer.Option(min=1, help="Widest interactive job; by default one node.")
    ] = None,
    seed: Seed = 1,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Draw a trace from the model of Lublin and Feitelson, with its daily cycle.

    Interactive jobs (queue 0) have busy and idle periods; batch jobs are in queue 1.
    """
    check_free(out, force)
    size = system_named(system)
    with working(f"drawing {counted(jobs, 'job')}"):
        trace = generate_trace(
            jobs, size.nodes, size.cores, seed, load or None, interactive_share, interactive_procs
        )
    deliver(trace, out)
    kinds = summarize_kinds(trace)
    span_s = trace.jobs[-1].submit_s - trace.jobs[0].submit_s
    offered = offered_load(trace, size.nodes * size.cores)
    if as_json:
        print_json(
            {
                "trace": str(out),
                "system": str(size),
                "seed": seed,
                "jobs": jobs,
                "interactive_jobs": kinds["interactive"].jobs,
                "span_s": span_s,
                "offered_load": offered,
            }
        )
        return
    typer.echo(
        f"{out}: {counted(jobs, 'job')} for {size}, {kinds['interactive'].jobs:,} of them interactive, over "
        f"{span_s / 86_400:.1f} days, offered load "
        f"{'not defined' if offered is None else f'{offered:.1%}'}; "
        f"`osub trace info {quote(str(out))}` shows more"
    )
