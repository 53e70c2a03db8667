"""``osub doctor --cluster``: how a live Slurm is set up, and the lines to write where it is not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from deploy.checks import Advice, Grade, judge, look
from foundation.one_line import one_line
from gangd.controller.site.controller_config import Config, load_config
from osub.cli.terminal import Console
from osub.live.cluster import find_cluster

ENVIRONMENT = "environment"
_COLOURS = {Grade.GOOD: "green", Grade.WARNING: "yellow", Grade.BAD: "red"}


def doctor_cluster(cluster: str, gangd: Path | None, *, as_json: bool) -> None:
    """Look, judge and print; ends with exit code 1 where something is bad."""
    config = Config() if gangd is None else load_config(gangd)
    client, _ = find_cluster(None if cluster == ENVIRONMENT else Path(cluster))
    advice = judge(look(client, config.freeze_cap_ms / 1000, config.lease_ms / 1000))
    if as_json:
        typer.echo(json.dumps([msgspec.to_builtins(one) for one in advice]))
    else:
        show(advice)
    raise typer.Exit(1 if any(one.grade is Grade.BAD for one in advice) else 0)


def show(advice: Sequence[Advice]) -> None:
    """Print a table of everything, and then the lines to write."""
    console = Console()
    table = Table("what", "", "found", "why it matters")
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
