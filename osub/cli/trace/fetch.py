"""``osub trace fetch``: originals of the Parallel Workloads Archive."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from foundation.units import counted
from osub.cli.terminal import Console
from osub.cli.trace.files import AsJson, counting, print_json
from workloads.importers.fetch_log import ARCHIVE, LOGS, cache_folder, fetch_log, find_log


def fetch(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Log, or an unambiguous part of its name, or FOLDER/NAME. Without: list them.",
            metavar="NAME",
        ),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where to keep it; by default the user's cache.", metavar="DIR")
    ] = None,
    archive: Annotated[str, typer.Option(help="Base address, for a mirror.")] = ARCHIVE,
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
    console.print(f"Parallel Workloads Archive, {archive}", markup=False, highlight=False, soft_wrap=True)
    console.print(table)
    console.print(f"Cache: {folder}", markup=False, highlight=False, soft_wrap=True)
