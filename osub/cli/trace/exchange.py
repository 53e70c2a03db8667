"""``osub trace export``: a trace for Batsim or ElastiSim, a RUN for evalys."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from typer import Argument, Option

from foundation.errors import UsageError
from foundation.files import refuse_unwritable
from foundation.units import counted
from osub.cli.terminal import Console
from osub.cli.trace.files import AsJson, Force, Lenient, check_free, counting, print_json, working
from osub.live.system_named import size_named
from workloads.exchange.exchanged import (
    ExchangeForm,
    Export,
    ImportSource,
    export_run,
    export_trace,
    import_batsim,
    import_elastisim,
    import_run,
)
from workloads.exchange.fields import Unit
from workloads.importers.fetch_log import ARCHIVE, LOGS, cache_folder, fetch_log, find_log


def fetch(
    name: Annotated[
        str | None,
        Argument(
            help="Log, or an unambiguous part of its name, or FOLDER/NAME. Without: list them.",
            metavar="NAME",
        ),
    ] = None,
    cache: Annotated[
        Path | None, Option(help="Where to keep it; by default the user's cache.", metavar="DIR")
    ] = None,
    archive: Annotated[str, Option(help="Base address, for a mirror.")] = ARCHIVE,
    as_json: AsJson = False,
) -> None:
    """Download a log of the Parallel Workloads Archive into the cache, once, and check it.

    Without a network it says what to download, from which page, and where to put it.
    """
    folder = cache or cache_folder(os.environ)
    base = archive.rstrip("/")
    if name is None:
        _list(folder, base, as_json)
        return
    with counting(f"fetching {name}") as step:
        fetched = fetch_log(find_log(name), folder, base, progress=step)
    if as_json:
        print_json({**asdict(fetched), "path": str(fetched.path)})
        return
    checked = {
        "sha256": "its sha256 is the known one",
        "job count": "no checksum is known; it has as many jobs as its header says",
        "header only": "no checksum is known; it is a sound SWF file",
    }
    source = "downloaded" if fetched.downloaded else "was there"
    typer.echo(f"{fetched.path}: {source}, {counted(fetched.jobs, 'job')}; {checked[fetched.checked]}")
    typer.echo("Cite the archive: Feitelson, Tsafrir, Krakov, JPDC 74(10), 2014")
    for thanks in fetched.acknowledge:
        typer.echo(f"Acknowledge where you publish: {''.join(filter(str.isprintable, thanks))}")


def _list(folder: Path, archive: str, as_json: bool) -> None:
    if as_json:
        logs = [
            {
                "name": log.name,
                "page": log.page(archive),
                "jobs": log.jobs,
                "sha256_unpacked": log.sha256,
                "cached": (folder / log.file).exists(),
            }
            for log in LOGS
        ]
        print_json({"cache": str(folder), "logs": logs})
        return
    table = Table()
    table.add_column("name", no_wrap=True)
    table.add_column("page")
    table.add_column("sha256")
    table.add_column("in cache")
    for log in LOGS:
        cached = "yes" if (folder / log.file).exists() else ""
        table.add_row(log.name, log.folder, "known" if log.sha256 else "", cached)
    console = Console()
    console.say(f"Parallel Workloads Archive, {archive}", soft_wrap=True)
    console.print(table)
    console.say(f"Cache: {folder}", soft_wrap=True)


Format = Annotated[ExchangeForm, Option("--format", help="Whose files they are.")]
Hosts = Annotated[
    Unit | None, Option("--unit", help="What a resource of Batsim's is: a core (the default) or a node.")
]


def export(
    source: Annotated[
        Path, Argument(help="SWF trace, plain or gzip; for evalys a RUN.", metavar="TRACE|RUN")
    ],
    *,
    form: Format,
    out: Annotated[Path, Option(help="File to make; for elastisim a folder.", metavar="PATH")],
    system: Annotated[
        str | None, Option(help="The machines, such as N12C12; default: the trace's, the RUN's.")
    ] = None,
    unit: Hosts = None,
    platform: Annotated[
        Path | None, Option(help="Batsim: write the platform, too (XML).", metavar="FILE")
    ] = None,
    sizes: Annotated[
        Path | None,
        Option(
            help="ElastiSim: CSV trace_job,min_nodes,preferred_nodes,max_nodes,parallel of malleable jobs.",
            metavar="FILE",
        ),
    ] = None,
    speed: Annotated[str, Option(help="Speed of a host in the platform, as SimGrid writes it.")] = "1Gf",
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


def import_workload(
    source: Annotated[
        Path,
        Argument(
            help="Batsim: workload (JSON). ElastiSim: jobs (JSON), or the folder. evalys: jobs.csv.",
            metavar="FILE",
        ),
    ],
    *,
    form: Format,
    out: Annotated[Path, Option(help="SWF file to make; for evalys a RUN.", metavar="PATH")],
    system: Annotated[str | None, Option(help="The machines, such as N12C12.")] = None,
    unit: Hosts = None,
    platform: Annotated[
        Path | None, Option(help="The machines, from a platform (XML).", metavar="FILE")
    ] = None,
    models: Annotated[
        Path | None,
        Option(help="ElastiSim: folder that the paths of application models are of.", metavar="DIR"),
    ] = None,
    sizes: Annotated[
        Path | None, Option(help="ElastiSim: write the sizes of malleable jobs here.", metavar="FILE")
    ] = None,
    multiplicity: Annotated[int, Option(min=1, help="evalys: how many jobs a core could have had.")] = 1,
    policy: Annotated[str, Option(help="evalys: name of the policy, for tables.")] = "imported",
    label: Annotated[str | None, Option(help="evalys: name of the RUN, for tables.")] = None,
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
