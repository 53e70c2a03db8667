"""``osub runs``: which RUNs lie below a folder, and removing some of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from foundation.errors import UsageError
from foundation.records.records_folder import INFO_NAME, FoundRun, find_runs, refuse_to_remove, remove_run
from foundation.units import counted
from osub.cli.application import application
from osub.cli.terminal import Console, ask_first, waiting

app = application("RUN folders: list them, and remove them safely.")
Json = Annotated[bool, Option("--json", help="Print JSON.")]


@app.command("list")
def list_(
    folder: Annotated[Path, Argument(help="Where to look; folders below it, too.")] = Path(),
    as_json: Json = False,
) -> None:
    """List the RUNs in FOLDER and below it, with their settings and sizes."""
    with waiting(f"looking for runs in {folder}"):
        found = list(find_runs(folder))
    if as_json:
        typer.echo(json.dumps([_facts(one) for one in found]))
        return
    if not found:
        typer.echo(f"no runs in {folder}")
        return
    table = Table(box=SIMPLE_HEAD)
    for heading in ("run", "label", "trace", "kind", "started", "state", "MB"):
        table.add_column(
            heading,
            justify="right" if heading == "MB" else "left",
            overflow="fold",
            no_wrap=heading == "run",  # a path that is cut can't be copied
        )
    for one in found:
        table.add_row(*map(Text, _cells(one)))
    Console().print(table)


@app.command()
def remove(
    runs: Annotated[list[Path], Argument(help="RUN folders.", metavar="RUN...")],
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[bool, Option("--force", help="Unfinished ones, too.")] = False,
    as_json: Json = False,
) -> None:
    """Remove RUNs: their own files, and the folder if nothing else is in it.

    A folder that is no RUN, another user's, or written right now is refused before anything is removed.
    """
    chosen = list({run.resolve(): run for run in runs}.values())
    no_runs = [run for run in chosen if not (run / INFO_NAME).is_file()]
    if no_runs:
        raise UsageError(f"{no_runs[0]} is not a RUN folder; nothing was removed")
    for run in chosen:
        refuse_to_remove(run, unfinished=force)
    if not yes:
        if as_json:
            raise UsageError("--json asks nothing: add --yes")
        size = sum(one.size_bytes for run in chosen for one in find_runs(run)) / 1e6
        ask_first(f"Remove {counted(len(chosen), 'run')} ({size:.1f} MB)?", "nothing was removed")
    listed = []
    for run in chosen:
        left = remove_run(run, unfinished=force)
        listed.append({"run": str(run), "left": left})
        if not as_json:
            stay = "stays, for no run made it" if len(left) == 1 else "stay, for no run made them"
            stays = f"; {', '.join(left)} {stay}" if left else ""
            typer.echo(f"{run} is removed{stays}")
    if as_json:
        typer.echo(json.dumps(listed))


def _cells(one: FoundRun) -> list[str]:
    state = "finished" if one.is_finished else "unfinished"
    info = one.info
    if info is None:
        return [str(one.path), "", "", "", "", f"damaged: {one.fault}", f"{one.size_bytes / 1e6:.1f}"]
    when = info.started.replace("T", " ")[:16]
    return [
        *(str(one.path), info.label, info.trace_name, info.kind, when, state),
        f"{one.size_bytes / 1e6:.1f}",
    ]


def _facts(one: FoundRun) -> dict[str, object]:
    info = one.info
    return {
        "run": str(one.path),
        "label": None if info is None else info.label,
        "trace": None if info is None else info.trace_name,
        "kind": None if info is None else info.kind,
        "started": None if info is None else info.started,
        "finished": one.is_finished,
        "size_bytes": one.size_bytes,
        "fault": one.fault,
    }
