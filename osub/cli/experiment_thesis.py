"""``osub experiment thesis-5`` and ``thesis-6``: the thesis's simulated experiments again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from foundation.errors import UsageError
from osub.cli.application import application
from osub.cli.experiment_physical import thesis_7
from osub.cli.experiment_show import note, progress, show_table
from osub.cli.out_file import Force, check_free

if TYPE_CHECKING:
    from simulator.experiments.tables import ExperimentTable

app = application()

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

_MARKED = "* differs from the thesis by more than a fifth; docs/experiments.md tells the causes"


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
    from simulator.experiments import kit as kit_numbers
    from simulator.experiments import thesis5
    from simulator.experiments.study import run_all
    from simulator.experiments.thesis_run import Rules, about_trace, facts_of, kit_study, study_of

    rules = Rules(policy, placement, thesis5.OVERHEAD)
    study = study_of(trace, rules, thesis5.SYSTEM, patterns=False, examples=thesis5.EXAMPLES)
    remarks = about_trace(study, any_trace=any_trace)
    other = None if kit is None else kit_study(kit, rules, kit_queue)
    cases = thesis5.cases()
    more = [] if other is None else kit_numbers.cases()
    with progress() as bar:
        task = bar.add_task("chapter 5", total=len(cases) + len(more))

        def done(label: str) -> None:
            bar.update(task, advance=1, description=label)

        outcomes = run_all(study, cases, done)
        kit_outcomes = {} if other is None else run_all(other, more, done)
    tables = thesis5.tables(outcomes)
    if other is not None:
        tables += kit_numbers.tables(kit_outcomes)
    if html is not None:
        from simulator.experiments.charts import figures_5
        from simulator.experiments.page import write_page

        figures = figures_5(list(outcomes.values()), "(a)", thesis5.WAITED)
        if other is not None:
            figures += figures_5(list(kit_outcomes.values()), "(b)", kit_numbers.WAITED)
        facts = [
            *remarks,
            facts_of(study, rules),
            *([] if other is None else [facts_of(other, rules)]),
            _MARKED,
        ]
        write_page(html, "Chapter 5 again", facts, tables, figures)
    _print(tables, [*outcomes.values(), *kit_outcomes.values()], remarks, as_json=as_json)


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
    from simulator.experiments import thesis6
    from simulator.experiments.datasets import DATA_SETS, in_blocks, with_interactive_jobs, with_patterns
    from simulator.experiments.study import run_all
    from simulator.experiments.survey import SHARES, survey_tables
    from simulator.experiments.survey import survey as find_best
    from simulator.experiments.thesis_run import Rules, about_trace, facts_of, study_of

    chosen = _data_sets(survey, len(DATA_SETS))
    rules = Rules(policy, placement, thesis6.OVERHEAD)
    plain = study_of(trace, rules, thesis6.SYSTEM, patterns=True)
    remarks = about_trace(plain, any_trace=any_trace)
    if interleaved:
        plain = plain.with_trace(in_blocks(plain.trace))
    sets = [with_interactive_jobs(plain.trace, DATA_SETS[number - 1], seed) for number in chosen]
    cases = thesis6.cases()
    found = []
    with progress() as bar:
        task = bar.add_task("chapter 6", total=len(cases) + len(chosen) * len(SHARES))

        def done(label: str) -> None:
            bar.update(task, advance=1, description=label)

        study = plain.with_trace(with_patterns(plain.trace, seed))
        outcomes = run_all(study, cases, done)
        for number, more in zip(chosen, sets, strict=True):
            found.append(find_best(plain.with_trace(with_patterns(more, seed)), number, done))
    tables = [*thesis6.tables(outcomes), *(survey_tables(found) if found else [])]
    if html is not None:
        from simulator.experiments.charts import figures_6
        from simulator.experiments.page import write_page

        facts = [*remarks, f"{facts_of(study, rules)} Seed {seed}.", _MARKED]
        write_page(html, "Chapter 6 again", facts, tables, figures_6(list(outcomes.values()), found))
    _print(tables, [*outcomes.values(), *found], remarks, as_json=as_json)


def _data_sets(text: str, most: int) -> list[int]:
    """Return the numbers that ``1-6``, ``1,3`` or ``none`` names."""
    if text == "none":
        return []
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            raise UsageError(f"--survey takes data sets such as 1-{most} or 1,3, or none; not {text!r}")
        numbers += range(int(first), int(last or first) + 1)
    if not all(1 <= number <= most for number in numbers):
        raise UsageError(f"--survey: there are data sets 1 to {most}")
    return numbers


def _print(
    tables: Sequence[ExperimentTable], outcomes: Sequence[object], remarks: list[str], *, as_json: bool
) -> None:
    if as_json:
        text = msgspec.json.encode({"tables": list(tables), "outcomes": list(outcomes), "remarks": remarks})
        typer.echo(msgspec.json.format(text, indent=2).decode())
        return
    for table in tables:
        show_table(table)
    note(_MARKED)
    for remark in remarks:
        note(remark)


app.command("thesis-7")(thesis_7)
