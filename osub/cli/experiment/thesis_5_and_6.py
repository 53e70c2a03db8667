"""``osub experiment thesis-5`` and ``thesis-6``: the thesis's simulated experiments again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from foundation.errors import UsageError
from foundation.id_list import read_ids
from osub.cli.application import application
from osub.cli.experiment.show import note, progress, show_table, steps_of
from osub.cli.experiment.thesis_7 import thesis_7
from osub.cli.out_file import Force, check_free

if TYPE_CHECKING:
    from simulator.experiments.thesis import Chapter

app = application()
_MOST_NUMBER = 1000

TraceArgument = Annotated[Path, typer.Argument(help="UniLu-Gaia-2014-1.swf.gz.", metavar="TRACE")]
HtmlOption = Annotated[Path | None, typer.Option("--html", help="Write tables and figures.", metavar="FILE")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the outcomes as JSON.")]
PolicyOption = Annotated[
    str,
    typer.Option(
        help="fcfs, easy, easy-elsewhere (chooses nodes as the thesis's program), easy-ncs (refuses as it)."
    ),
]
PlacementOption = Annotated[str, typer.Option(help="thesis or lln.")]

AnyTrace = Annotated[
    bool, typer.Option("--any-trace", help="Run it on another trace than the thesis's; compares nothing.")
]


@app.command("thesis-5")
def thesis_5(
    trace: TraceArgument,
    policy: PolicyOption = "easy-elsewhere",
    placement: PlacementOption = "thesis",
    kit: Annotated[
        Path | None,
        typer.Option(help="KIT-FH2-2016-1.swf.gz: Tables 5.3(b) and 5.6, too.", metavar="FILE"),
    ] = None,
    kit_queue: Annotated[
        int | None, typer.Option(help="Its queue of HRR jobs; without it the one with the fewest jobs.")
    ] = None,
    any_trace: AnyTrace = False,
    html: HtmlOption = None,
    force: Force = False,
    as_json: JsonOption = False,
) -> None:
    """Chapter 5: SQ with M 1 to 4 against MQ with R 1 to 12%, C_o = 1.0, interactive jobs busy all along."""
    check_free(html, force, makes_folder=True)
    if kit is None and kit_queue is not None:
        raise UsageError("--kit-queue is a queue of the trace that --kit names: give --kit, too")
    from simulator.experiments.thesis import chapter_5

    with progress() as bar:
        found = chapter_5(
            trace,
            policy,
            placement,
            kit=kit,
            kit_queue=kit_queue,
            any_trace=any_trace,
            steps=steps_of(bar, "chapter 5"),
        )
    _show(found, html, as_json=as_json)


@app.command("thesis-6")
def thesis_6(
    trace: TraceArgument,
    policy: PolicyOption = "easy-elsewhere",
    placement: PlacementOption = "thesis",
    survey: Annotated[
        str, typer.Option(help="Data sets of experiment 2 to survey, such as 1-6, 1,3 or none.")
    ] = "1-6",
    seed: Annotated[int, typer.Option(min=0, help="For patterns and for the choice of jobs.")] = 1,
    interleaved: Annotated[
        bool,
        typer.Option(
            "--interleaved", help="Columns 25 and up of TRACE are busy, idle, busy, ..., not all busy first."
        ),
    ] = False,
    any_trace: AnyTrace = False,
    html: HtmlOption = None,
    force: Force = False,
    as_json: JsonOption = False,
) -> None:
    """Chapter 6: interactive jobs that idle, C_o = 1.2; and data sets with more and more of them.

    Interactive jobs of TRACE that have columns 22 and up (thesis Table 6.1) keep them. The data sets that the
    author published with the program have them --interleaved.
    """
    check_free(html, force, makes_folder=True)
    from simulator.experiments.thesis import DATA_SETS, chapter_6

    chosen = _data_sets(survey, len(DATA_SETS))
    with progress() as bar:
        found = chapter_6(
            trace,
            policy,
            placement,
            data_sets=chosen,
            seed=seed,
            interleaved=interleaved,
            any_trace=any_trace,
            steps=steps_of(bar, "chapter 6"),
        )
    _show(found, html, as_json=as_json)


def _data_sets(text: str, most: int) -> list[int]:
    """Return the numbers that ``1-6``, ``1,3`` or ``none`` names."""
    if text == "none":
        return []
    try:
        numbers = list(read_ids(text, _MOST_NUMBER))
    except ValueError as error:
        raise UsageError(
            f"--survey takes data sets such as 1-{most} or 1,3, or none; not {text!r}: {error}"
        ) from error
    if not 1 <= min(numbers) <= max(numbers) <= most:
        raise UsageError(f"--survey: there are data sets 1 to {most}, not {text}")
    return numbers


def _show(found: Chapter, html: Path | None, *, as_json: bool) -> None:
    if html is not None:
        from simulator.experiment_page import write_page

        write_page(html, found.title, found.facts, found.tables, found.figures())
    if as_json:
        document = {"tables": found.tables, "outcomes": found.outcomes, "remarks": found.remarks}
        typer.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return
    for table in found.tables:
        show_table(table)
    note(found.marked)
    for remark in found.remarks:
        note(remark)
    if html is not None:
        note(f"Page: {html}")


app.command("thesis-7")(thesis_7)
