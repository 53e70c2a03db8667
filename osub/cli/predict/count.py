"""``osub predict counters``: a command's counters, alone, from every source that this host offers."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from foundation.errors import UsageError
from osub.cli.terminal import Console
from predictor.counters import Count, offers, provider_of
from predictor.dataset import CounterSource


def counters(
    command: Annotated[list[str], typer.Argument(help="What to run, after `--`.", metavar="CMD...")],
    source: Annotated[
        list[CounterSource] | None,
        typer.Option(
            "--source", help="Which counters; may be repeated (default: all that this host offers)."
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Leave out cachegrind, which runs the command 20 to 100 times slower, twice."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counters as JSON.")] = False,
) -> None:
    """Run CMD alone, to its end, once a source (cachegrind: twice), and print its counters, all ranks'."""
    if not command[0]:
        raise UsageError("the command is empty; write it after `--`")
    console = Console(stderr=True)
    if source:
        chosen = [provider_of(each) for each in dict.fromkeys(source)]
    else:
        chosen = []
        for offer in offers():
            if offer.missing is not None:
                console.print(
                    f"no counters from {offer.provider.source}: {offer.missing}",
                    markup=False,
                    highlight=False,
                )
            elif not (quick and offer.provider.source is CounterSource.CACHEGRIND):
                chosen.append(offer.provider)
    found: dict[CounterSource, list[Count]] = {}
    for provider in chosen:
        if provider.source is CounterSource.CACHEGRIND:
            console.print("cachegrind: simulated, 20 to 100 times slower, two runs", highlight=False)
        found[provider.source] = provider.count(command, os.environ)
    if as_json:
        typer.echo(
            json.dumps({str(each): [asdict(count) for count in counts] for each, counts in found.items()})
        )
        return
    table = Table("source", "counter", "per", "value", "counted, share of time")
    for each, counts in found.items():
        for count in counts:
            value = "not measured" if count.value is None else f"{count.value:.4g}"
            table.add_row(
                str(each),
                count.counter,
                count.per,
                value,
                "" if count.scaled is None else f"{count.scaled:.0%}",
            )
    Console().print(table)
