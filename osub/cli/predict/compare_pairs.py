"""``osub predict compare``: whether two measurements of the same pairs say the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from foundation.errors import UsageError
from foundation.units import counted
from osub.cli.terminal import Console
from predictor.chosen import kind_of, pairs_of

if TYPE_CHECKING:
    from predictor.dataset.pairs_agreement import Agreement, Interval

_SHOWN = 5


def compare(
    first: Annotated[Path, typer.Argument(help="Folder of measured pairs.", metavar="PAIRS")],
    second: Annotated[
        Path | None, typer.Argument(help="Another (default: osub's own).", metavar="[OTHER]")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Only this kind of sharing (default: all that both have).")
    ] = None,
    within: Annotated[
        str, typer.Option(help="Differences of E_v up to which two losses are the same, with commas.")
    ] = "0.05,0.1",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say how far two measurements of the same pairs agree: a day later, under load, on another host."""
    from predictor.dataset.pairs_agreement import agreement_of, different_hosts, kinds_in_both

    one, other = pairs_of(first), pairs_of(second)
    bounds = _bounds(within)
    kinds = kinds_in_both(one, other) if kind is None else [kind_of(kind, one)]
    found = {str(each): agreement_of(one, other, each, bounds) for each in kinds}
    warning = different_hosts(one, other)
    if as_json:
        kinds_json = {name: agreement.to_json() for name, agreement in found.items()}
        typer.echo(json.dumps({"kinds": kinds_json, "warning": warning}))
        return
    console = Console()
    if warning is not None:
        Console(stderr=True).print(f"osub: {warning}", markup=False, highlight=False)
    for name, agreement in found.items():
        _show(console, name, agreement)


def _bounds(text: str) -> list[float]:
    try:
        bounds = sorted({float(word) for word in text.split(",")})
    except ValueError:
        bounds = []
    if not bounds or not all(0 <= bound <= 1 for bound in bounds):
        raise UsageError(f"--within is {text!r}; write differences of E_v between 0 and 1: 0.05,0.1")
    return bounds


def _show(console: Console, name: str, found: Agreement) -> None:
    missing = f" ({found.only_first} and {found.only_second} are in one only)" * bool(
        found.only_first + found.only_second
    )
    console.print(f"[b]{name}[/b]: {counted(found.pairs, 'pair')} in both{missing}", highlight=False)
    for most, share in found.within.items():
        console.print(f"  within {most:g}: {_percent(share)} of them", highlight=False)
    bias = found.bias
    console.print(
        f"  the second is {bias.value:+.3f} from the first on average ({bias.low:+.3f} to {bias.high:+.3f}); "
        f"they differ by {found.deviation:.3f} (root mean square) and rank alike at "
        f"{found.rank_correlation:.2f}",
        highlight=False,
    )
    if found.overlapping is not None:
        console.print(f"  95% intervals meet in {found.overlapping:.0%} of the pairs", highlight=False)
    if found.load_first is not None and found.load_second is not None:
        console.print(
            f"  others used {found.load_first:.2f} and {found.load_second:.2f} of the measured CPUs",
            highlight=False,
        )
    table = Table("furthest apart: victim", "opponent", "E_v, first", "second")
    for pair in found.furthest[:_SHOWN]:
        table.add_row(pair.victim, pair.opponent, f"{pair.first:.3f}", f"{pair.second:.3f}")
    console.print(table)


def _percent(share: Interval) -> str:
    return f"{share.value:.0%} ({100 * share.low:.0f} to {100 * share.high:.0f})"
