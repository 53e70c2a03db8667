"""``osub doctor``: what this host offers, or how a live Slurm is set up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text
from typer import Option

from deploy.checks import Advice, Grade, judge, judge_binding, judge_start, look
from deploy.local.host import HostFinding, examine_host
from deploy.mpi_trial import Bound, try_binding, try_on_slurm
from foundation.errors import UsageError
from foundation.interruption import on_signals
from foundation.one_line import one_line
from gangd.controller.controller_config import Config, load_config
from osub.cli.completion import clusters_or_environment
from osub.cli.terminal import Console, waiting
from osub.live.cluster import conf_in, find_cluster
from osub.live.forward import forward, is_in_containers
from osub.live.job_folders import job_folders

ENVIRONMENT = "environment"
_NEEDED = ("Slurm", "munge")
_COLOURS = {Grade.GOOD: "green", Grade.WARNING: "yellow", Grade.BAD: "red"}


def doctor(
    cluster: Annotated[
        str | None,
        Option(
            metavar="DIR|environment",
            autocompletion=clusters_or_environment,
            help="Say how a live Slurm is set up: of a folder with a slurm.conf, or the environment's.",
        ),
    ] = None,
    gangd: Annotated[
        Path | None,
        Option(metavar="FILE", help="gangd.toml whose freeze_cap_ms and lease_ms count, with --cluster."),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what this host offers: Slurm, MPI, freezer, cgroup, PMU, CPUs. Exit code 1 if Slurm is missing.

    With --cluster: how a live Slurm is set up for jobs that share cores, and the lines to write where it is
    not. Exit code 1 if gangd cannot do its work there.
    """
    if cluster is not None and cluster != ENVIRONMENT and is_in_containers(Path(cluster)):
        raise typer.Exit(forward(Path(cluster), on_signals, [gangd]))
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
        typer.echo(host_verdict(findings))
        table = _table("what", "here", "found", "what it is for, or how to get it")
        for finding in findings:
            table.add_row(finding.what, marks[finding.here], Text(finding.found), Text(finding.advice))
        Console().print(table)
    raise typer.Exit(0 if all(one.here == "yes" for one in findings if one.what in _NEEDED) else 1)


def doctor_cluster(cluster: str, gangd: Path | None, *, as_json: bool) -> None:
    """Look, judge and print; ends with exit code 1 where something is bad."""
    config = Config() if gangd is None else load_config(gangd)
    folder = None if cluster == ENVIRONMENT else Path(cluster)
    client, embedded = find_cluster(folder)
    with waiting("asking Slurm"):
        found = look(client, config.freeze_cap_ms / 1000, config.lease_ns() / 1e9)
    conf = None if folder is None else conf_in(folder)
    with waiting("starting two ranks of MPI"):
        trial = try_on_slurm(conf, len(found.nodes), one_host=embedded is not None)
    with waiting("asking two tasks for their CPUs"):
        bound = try_binding(conf) if any(node.cores > 1 for node in found.nodes) else Bound()
    advice = (*judge(found), judge_start(trial), judge_binding(bound))
    if as_json:
        typer.echo(json.dumps([msgspec.to_builtins(one) for one in advice]))
    else:
        show(advice)
    raise typer.Exit(1 if any(one.grade is Grade.BAD for one in advice) else 0)


def host_verdict(findings: Sequence[HostFinding]) -> str:
    """Return in a line whether an embedded cluster can run here, and in another what lacks for it."""
    lacks = [one for one in findings if one.what in _NEEDED and one.here != "yes"]
    if lacks:
        cure = "; ".join(one.advice or one.what for one in lacks)
        return f"No embedded cluster can run here yet; simulations and reports need none.\nFirst: {cure}"
    less = ", ".join(one.what for one in findings if one.here != "yes")
    return "An embedded cluster can run here." + (f"\nIt lacks, as the table says: {less}" if less else "")


def _table(*headings: str) -> Table:
    """Return an empty table in which nothing is cut on a narrow terminal, least of all names to be typed."""
    table = Table()
    for number, heading in enumerate(headings):
        table.add_column(heading, overflow="fold", no_wrap=number == 0)
    return table


def verdict(advice: Sequence[Advice]) -> str:
    """Return in a sentence whether gangd can do its work there, and what prevents it."""
    bad, odd = ([one.what for one in advice if one.grade is grade] for grade in (Grade.BAD, Grade.WARNING))
    if bad:
        return f"gangd cannot do its work there yet: {', '.join(bad)}"
    if odd:
        return f"gangd can do its work there; a loss comes with {', '.join(odd)}"
    return "gangd can do its work there; nothing is to be changed"


def show(advice: Sequence[Advice]) -> None:
    """Print what it comes to, a table of everything, and then the lines to write."""
    console = Console()
    console.say(verdict(advice))
    table = _table("what", "", "found", "why it matters")
    for one in advice:
        table.add_row(
            one.what, Text(one.grade, _COLOURS[one.grade]), Text(one_line(one.found)), Text(one.why)
        )
    console.print(table)
    lines = [line for one in advice for line in one.write.splitlines()]
    if lines:
        console.print(
            "\nTo write into slurm.conf, and then `scontrol reconfigure` or a restart of the daemons:"
        )
        for line in dict.fromkeys(lines):
            console.print(Text(f"  {line}"), soft_wrap=True)
