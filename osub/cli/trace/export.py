"""``osub trace export``: a trace for Batsim or ElastiSim, a RUN for evalys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foundation.errors import UsageError
from foundation.files import refuse_unwritable
from foundation.units import counted
from osub.cli.trace.files import AsJson, Force, Lenient, check_free, print_json, working
from osub.live.system_named import size_named
from workloads.exchange.exported import ExchangeForm, Export, export_run, export_trace
from workloads.exchange.fields import Unit

Format = Annotated[ExchangeForm, typer.Option("--format", help="Whose files they are.")]
Hosts = Annotated[
    Unit | None,
    typer.Option("--unit", help="What a resource of Batsim's is: a core (the default) or a node."),
]


def export(
    source: Annotated[
        Path, typer.Argument(help="SWF trace, plain or gzip; for evalys a RUN.", metavar="TRACE|RUN")
    ],
    *,
    form: Format,
    out: Annotated[Path, typer.Option("--out", help="File to make; for elastisim a folder.", metavar="PATH")],
    system: Annotated[
        str | None, typer.Option(help="The machines, such as N12C12; default: the trace's, the RUN's.")
    ] = None,
    unit: Hosts = None,
    platform: Annotated[
        Path | None, typer.Option(help="Batsim: write the platform, too (XML).", metavar="FILE")
    ] = None,
    sizes: Annotated[
        Path | None,
        typer.Option(
            help="ElastiSim: CSV trace_job,min_nodes,preferred_nodes,max_nodes,parallel of malleable jobs.",
            metavar="FILE",
        ),
    ] = None,
    speed: Annotated[
        str, typer.Option(help="Speed of a host in the platform, as SimGrid writes it.")
    ] = "1Gf",
    force: Force = False,
    lenient: Lenient = False,
    as_json: AsJson = False,
) -> None:
    """Write a trace as a workload of Batsim or ElastiSim, or a RUN as the jobs.csv that evalys reads.

    Jobs without a run time or processors are left out, and counted. A job wider than the system is an error,
    with --lenient it is left out, too.
    """
    _check_options(form, {"--platform": platform, "--unit": unit}, {"--sizes": sizes})
    if form is ExchangeForm.ELASTISIM:
        if force:
            raise UsageError("--force: a folder is not replaced; choose another --out")
        refuse_unwritable(out)
    else:
        check_free(out, force)
    if platform is not None:
        check_free(platform, force)
    size = size_named(system)
    with working(f"writing {out.name}"):
        if form is ExchangeForm.EVALYS:
            done = export_run(source, out, size, unit or Unit.CORE)
        else:
            asked = Export(
                form=form,
                size=size,
                unit=unit,
                platform=platform,
                sizes=sizes,
                speed=speed,
                strict=not lenient,
            )
            done = export_trace(source, out, asked)
    if as_json:
        print_json({"out": str(out), "jobs": done.jobs, "left_out": done.left.reasons})
        return
    if done.left.reasons:
        typer.echo(f"osub: left out of {source}: {done.left.line()}", err=True)
    typer.echo(f"{out}: {counted(done.jobs, 'job')}")


def _check_options(
    form: ExchangeForm, for_batsim: dict[str, object], for_elastisim: dict[str, object]
) -> None:
    if form is not ExchangeForm.ELASTISIM and any(for_elastisim.values()):
        raise UsageError(f"{next(iter(for_elastisim))} is for --format elastisim")
    if form is ExchangeForm.ELASTISIM and for_batsim["--unit"]:
        raise UsageError("--unit: a host of ElastiSim's is a node")
    if form is not ExchangeForm.BATSIM and for_batsim["--platform"]:
        raise UsageError("--platform is for --format batsim")
