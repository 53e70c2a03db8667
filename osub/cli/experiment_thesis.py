"""``osub experiment thesis-5`` and ``thesis-6``: the thesis's simulated experiments again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from osub.cli.application import application
from osub.cli.experiment_physical import thesis_7
from osub.cli.experiment_show import note, progress, show_table
from osub.cli.out_file import Force, check_free
from osub.errors import InputError, UsageError

if TYPE_CHECKING:
    from simulator.experiments.study import Study
    from simulator.experiments.tables import ExperimentTable
    from simulator.options import Setting
    from simulator.system import System

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

_JOBS = 51_871
"""Of the thesis's trace, UniLu-Gaia-2014-1 (Table 5.1); data sets made of it differ by what was added."""
_ALIKE = 0.05
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

    rules = _Rules(policy, placement, thesis5.OVERHEAD)
    study = _study(trace, rules, thesis5.SYSTEM, patterns=False, examples=thesis5.EXAMPLES)
    remarks = _about_trace(study, any_trace=any_trace)
    other = None if kit is None else _kit_study(kit, rules, kit_queue)
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
        facts = [*remarks, _facts(study, rules), *([] if other is None else [_facts(other, rules)]), _MARKED]
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

    chosen = _data_sets(survey, len(DATA_SETS))
    rules = _Rules(policy, placement, thesis6.OVERHEAD)
    plain = _study(trace, rules, thesis6.SYSTEM, patterns=True)
    remarks = _about_trace(plain, any_trace=any_trace)
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

        facts = [*remarks, f"{_facts(study, rules)} Seed {seed}.", _MARKED]
        write_page(html, "Chapter 6 again", facts, tables, figures_6(list(outcomes.values()), found))
    _print(tables, [*outcomes.values(), *found], remarks, as_json=as_json)


class _Rules(NamedTuple):
    """The words for the rules of an experiment."""

    policy: str
    placement: str
    overhead: str


def _study(
    trace: Path, rules: _Rules, system: System, *, patterns: bool, examples: tuple[int, ...] = ()
) -> Study:
    from simulator.experiments.datasets import cleaned
    from simulator.experiments.study import Study
    from workloads.swf import load_columns

    columns = cleaned(load_columns(trace), system.cores)
    return Study(columns, system, _setting(rules, system).rules, patterns, examples)


def _kit_study(trace: Path, rules: _Rules, queue: int | None) -> Study:
    from simulator.experiments import kit
    from simulator.experiments.datasets import cleaned
    from simulator.experiments.study import Study
    from workloads.swf import load_columns

    columns = load_columns(trace)
    queue = kit.smaller_queue(columns) if queue is None else queue
    columns = cleaned(columns, None, queue)
    return Study(
        columns, kit.SYSTEM, _setting(rules, kit.SYSTEM).rules, patterns=False, interactive_queue=queue
    )


def _setting(rules: _Rules, system: System) -> Setting:
    from simulator.choices import Words, setting_of

    return setting_of(
        Words(system=str(system), policy=rules.policy, overhead=rules.overhead, placement=rules.placement)
    )


def _facts(study: Study, rules: _Rules) -> str:
    frame = study.trace.frame
    interactive = int((frame["queue"] == study.interactive_queue).sum())
    return (
        f"{study.trace.name}: {frame.height:,} jobs, {interactive:,} interactive (queue "
        f"{study.interactive_queue}), {frame['user'].drop_nulls().n_unique()} users, on {study.system}. "
        f"Policy {rules.policy}, placement {rules.placement}, C_o = {rules.overhead}."
    )


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


def _about_trace(study: Study, *, any_trace: bool) -> list[str]:
    """Return what is to be said where the trace is not the thesis's; refuse it unless ``any_trace``."""
    jobs = study.trace.frame.height
    if abs(jobs - _JOBS) <= _ALIKE * _JOBS:
        return []
    what = f"{study.trace.name} is not the thesis's trace: {jobs:,} jobs that run, not {_JOBS:,}"
    if any_trace:
        return [f"{what}; the thesis's numbers stand beside those of another machine and mean nothing here."]
    raise InputError(f"{what} (UniLu-Gaia-2014-1); --any-trace runs the experiment all the same")


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
