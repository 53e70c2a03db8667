"""``osub doctor``: what this host offers, or how a live Slurm is set up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from deploy.local.examine import examine_host
from foundation.errors import UsageError
from osub.cli.doctor.live_cluster import doctor_cluster
from osub.cli.terminal import Console
from osub.live.job_folders import job_folders


def doctor(
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|environment",
            help="Say how a live Slurm is set up: of a folder with a slurm.conf, or the environment's.",
        ),
    ] = None,
    gangd: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="gangd.toml whose freeze_cap_ms and lease_ms count, with --cluster."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what this host offers: Slurm, MPI, freezer, cgroup, PMU, CPUs. Exit code 1 if Slurm is missing.

    With --cluster: how a live Slurm is set up for jobs that share cores, and the lines to write where it is
    not. Exit code 1 if gangd cannot do its work there.
    """
    if cluster is not None:
        doctor_cluster(cluster, gangd, as_json=as_json)
        return
    if gangd is not None:
        raise UsageError("--gangd goes with --cluster: name the cluster, or `environment`")
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
