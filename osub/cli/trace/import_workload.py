"""``osub trace import``: workloads of Batsim and ElastiSim as traces, a jobs.csv as a RUN."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from foundation.errors import UsageError
from foundation.files import refuse_unwritable
from foundation.units import counted
from osub.cli.trace.export import Format, Hosts
from osub.cli.trace.files import AsJson, Force, Lenient, check_free, print_json, working
from osub.live.system_named import size_named
from workloads.exchange.exported import ExchangeForm
from workloads.exchange.imported import ImportSource, import_batsim, import_elastisim, import_run


def import_workload(
    source: Annotated[
        Path,
        typer.Argument(
            help="Batsim: workload (JSON). ElastiSim: jobs (JSON), or the folder. evalys: jobs.csv.",
            metavar="FILE",
        ),
    ],
    *,
    form: Format,
    out: Annotated[Path, typer.Option("--out", help="SWF file to make; for evalys a RUN.", metavar="PATH")],
    system: Annotated[str | None, typer.Option(help="The machines, such as N12C12.")] = None,
    unit: Hosts = None,
    platform: Annotated[
        Path | None, typer.Option(help="The machines, from a platform (XML).", metavar="FILE")
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(help="ElastiSim: folder that the paths of application models are of.", metavar="DIR"),
    ] = None,
    sizes: Annotated[
        Path | None, typer.Option(help="ElastiSim: write the sizes of malleable jobs here.", metavar="FILE")
    ] = None,
    multiplicity: Annotated[
        int, typer.Option(min=1, help="evalys: how many jobs a core could have had.")
    ] = 1,
    policy: Annotated[str, typer.Option(help="evalys: name of the policy, for tables.")] = "imported",
    label: Annotated[str | None, typer.Option(help="evalys: name of the RUN, for tables.")] = None,
    force: Force = False,
    lenient: Lenient = False,
    as_json: AsJson = False,
) -> None:
    """Read a workload of Batsim or ElastiSim as an SWF trace, or a jobs.csv as a RUN to compare.

    A job without known run time or size is an error; with --lenient it is left out, and counted.
    """
    if system is not None and platform is not None:
        raise UsageError("--system and --platform both name the machines: give one of them")
    if form is not ExchangeForm.ELASTISIM and (models is not None or sizes is not None):
        raise UsageError("--models and --sizes are for --format elastisim")
    if form is ExchangeForm.EVALYS and force:
        raise UsageError("--force: a RUN is not replaced; choose another --out")
    refuse_unwritable(out)
    if form is not ExchangeForm.EVALYS:
        check_free(out, force)
        check_free(sizes, force)
    asked = ImportSource(
        path=source, size=size_named(system), unit=unit, platform=platform, strict=not lenient
    )
    with working(f"reading {source.name}"):
        if form is ExchangeForm.EVALYS:
            done = import_run(asked, out, multiplicity, policy, label)
        elif form is ExchangeForm.BATSIM:
            done = import_batsim(asked, out)
        else:
            done = import_elastisim(asked, out, models, sizes)
    if as_json:
        found: dict[str, Any] = {"out": str(out), "system": done.system, "jobs": done.jobs}
        print_json(found | {"left_out": done.left.reasons, "notes": done.notes})
        return
    if done.left.reasons:
        typer.echo(
            f"osub: left out of {source}: {done.left.line()}; {'; '.join(done.left.examples)}", err=True
        )
    for note in done.notes:
        typer.echo(note)
    typer.echo(f"{out}: {counted(done.jobs, 'job')} for {done.system}")
