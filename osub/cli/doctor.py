"""``osub doctor``: what this host offers."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from deploy.local.examine import examine_host
from osub.cli.job_folders import job_folders
from osub.cli.terminal import Console


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say what this host offers: Slurm, MPI, freezer, cgroup, PMU, CPUs. Exit code 1 if Slurm is missing."""
    findings = [*examine_host(), job_folders()]
    if as_json:
        typer.echo(json.dumps({finding.what: msgspec.to_builtins(finding) for finding in findings}))
    else:
        marks = {"yes": "[green]yes[/green]", "no": "[red]no[/red]", "partly": "[yellow]partly[/yellow]"}
        table = Table("what", "here", "found", "what it is for, or how to get it")
        for finding in findings:
            table.add_row(finding.what, marks[finding.here], Text(finding.found), Text(finding.advice))
        Console().print(table)
    needed = {finding.what: finding.here for finding in findings}
    raise typer.Exit(0 if needed["Slurm"] == "yes" and needed["munge"] == "yes" else 1)
