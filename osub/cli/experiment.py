"""``osub experiment``: published experiments again, with the published numbers next to ours.

``thesis-5`` and ``thesis-6`` are simulated, ``thesis-7`` is the physical study on the cluster at hand. The
studies of claims are ``simulator.experiments.claim_study.STUDIES``; they all have the options written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer
from rich.progress import Progress
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from analysis.claims_table import claims_table, tally
from deploy.compose.engine import EngineName, find_engine
from foundation.errors import OutputError, UsageError
from foundation.files import refuse_unwritable_folder
from foundation.id_list import read_ids
from foundation.interruption import on_signals
from foundation.units import counted, duration, seconds_of
from osub.cli.application import CommandGroup, application
from osub.cli.out_file import Force, check_free
from osub.cli.terminal import Console, echo_json

if TYPE_CHECKING:
    from rich.progress import TaskID

    from osub.physical.study import PreparedStudy
    from simulator.experiment_page import ExperimentTable
    from simulator.experiments.claim_study import StudyFindings
    from simulator.experiments.thesis_chapters import Chapter
    from submitter.replay import Collect, Look, Replay


def progress() -> Progress:
    """Return a progress bar on standard error, silent where that is no terminal."""
    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)


def steps_of(bar: Progress, name: str) -> Callable[[int], Callable[[str], None]]:
    """Return a function of the number of steps; it returns a function to call with each finished step."""

    def steps(total: int) -> Callable[[str], None]:
        task = bar.add_task(name, total=total)
        return lambda label: bar.update(task, advance=1, description=label)

    return steps


def show_table(table: ExperimentTable) -> None:
    """Print a table and its notes."""
    console = Console()
    # Above the table and not its title: Rich breaks titles that are wider than their tables.
    note(f"{table.name}: {table.title}")
    grid = Table(pad_edge=False)
    for number, name in enumerate(table.columns):
        grid.add_column(Text(name), justify="left" if number == 0 else "right")
    for row in table.rows:
        grid.add_row(*map(Text, row))
    console.print(grid)
    for line in table.notes:
        note(f"  {line}")


def note(text: str) -> None:
    """Print a line as it is."""
    Console().say(text, soft_wrap=True)


class Only(StrEnum):
    """A part of the study that can be run by itself."""

    PAIR = "pair"


def thesis_7(
    trace: Annotated[
        Path | None,
        Argument(
            help="UniLu-Gaia-2014-1.swf.gz; without it the one that `osub trace fetch` keeps.",
            metavar="[TRACE]",
        ),
    ] = None,
    out: Annotated[Path, Option(help="Folder of the study; an unfinished one there goes on.")] = Path(
        "osub-thesis-7"
    ),
    budget: Annotated[
        str | None, Option(help="How long it may take, such as 30m or 2h (30m).", metavar="TIME")
    ] = None,
    cluster: Annotated[
        list[Path] | None,
        Option(
            help="Folder with slurm.conf, one for each layout that you have. Without: embedded ones.",
            metavar="DIR",
        ),
    ] = None,
    configure: Annotated[
        Path | None,
        Option(
            help="Program that changes the one --cluster to the layout that is its argument.",
            metavar="PROGRAM",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    engine: Annotated[
        EngineName | None, Option(help="Put the embedded clusters into containers of this engine.")
    ] = None,
    seeds: Annotated[int | None, Option(min=0, max=20, help="Draws of the whole day at most (3).")] = None,
    trials: Annotated[
        int | None,
        Option(
            min=1, max=5, help="Trials of everything, two of the pair in each; without: as the budget allows."
        ),
    ] = None,
    only: Annotated[
        Only | None, Option(help="Only the two coupled jobs of Table 7.4: some minutes, for R1 to R3.")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would be run, and end.")] = False,
    judge: Annotated[
        bool, Option("--judge", help="Judge the replays that are there, and make no more.")
    ] = False,
    again_unfit: Annotated[
        bool,
        Option(
            "--again-unfit",
            help="Remove the replays that others' load made unfit to judge by; make them again.",
        ),
    ] = False,
    html: Annotated[
        Path | None,
        Option(
            help="Page to write (OUT/report.html); an earlier one of a study is replaced.", metavar="FILE"
        ),
    ] = None,
    force: Annotated[bool, Option("--force", help="Begin anew where OUT holds a study.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Chapter 7: MQ, and SQ with M = 1 and 2, naive and gang scheduled, on real Slurm and simulated.

    The thesis's two days of UniLu-Gaia-2014-1 are scaled to the cluster and compressed to the budget. The
    same call goes on with a study that was interrupted, and shows a finished one again.
    """
    from deploy.local import natural_shape
    from deploy.local.host import busy_warning, look_at_host
    from osub.physical.study import PhysicalStudy, RequestedStudy, cached_log

    _check_page(html)
    refuse_unwritable_folder(out)

    def say(text: str) -> None:
        if not as_json:
            note(text)

    if engine is not None and cluster:
        raise UsageError("--engine is for clusters that the study makes: it does not go with --cluster")
    nodes, cores = natural_shape(
        len(look_at_host().cpus) if engine is None else find_engine(engine).facts.cpus
    )
    study = PhysicalStudy(
        RequestedStudy(
            trace=trace or cached_log(),
            out=out,
            budget_s=None if budget is None else seconds_of(budget),
            seeds=seeds,
            trials=trials,
            only=None if only is None else "pair",
            clusters=tuple(cluster or ()),
            configure=configure,
            nodes=nodes,
            cores=cores,
            again_unfit=again_unfit and not judge,
            engine=engine,
            hear=on_signals,
        ),
        force=force,
        say=say,
    )
    prepared = study.prepare()
    _tell(prepared, say)
    if dry_run:
        _show_plan(prepared, as_json=as_json)
        return
    if prepared.lacking and not judge and (busy := busy_warning()) is not None:
        typer.echo(f"osub: {busy}", err=True)
    with _simulating() as done:
        found = study.judge(done) if judge else study.run(_follow, done)
    page = html or out / "report.html"
    from simulator.experiment_page import write_page

    replays = prepared.plan.values
    facts = [*found.facts, tally(found.claims, replays)]
    write_page(page, found.title, facts, found.tables, found.figures(), found.claims)
    if as_json:
        echo_json(
            {
                "study": "thesis-7",
                "plan": prepared.plan,
                "facts": found.facts,
                "claims": found.claims,
                "tables": found.tables,
                "page": str(page),
            }
        )
        return
    _show_study(found, prepared, replays)
    note(f"Page: {page}")


def _check_page(html: Path | None) -> None:
    """Refuse to replace what is no page of a study; --force is about the study, and is no way out."""
    from osub.physical.found import is_page

    if html is not None and html.is_file() and not is_page(html):
        raise OutputError(f"{html} exists already and is no page of this study: choose another name")
    check_free(html, force=True, makes_folder=True)


def _follow(session: Replay, title: str, collect: Collect | None, most_s: float, look: Look | None) -> bool:
    """Carry a replay out under a progress bar."""
    from osub.cli.replay import watch_replay

    return watch_replay(session, title, collect, most_s, outlives_us=False, look=look)


def _tell(prepared: PreparedStudy, say: Callable[[str], None]) -> None:
    """Say what is run and how long it takes."""
    from osub.physical.plan import plan_lines

    for line in plan_lines(prepared.plan):
        say(line)
    if not prepared.is_new:
        whole, left = len(prepared.plan.items()), duration(prepared.left_s, rough=True)
        say(
            f"{whole - prepared.lacking} of {counted(whole, 'replay')} are there"
            + (f"; the others take about {left}." if prepared.lacking else ".")
        )


def _show_plan(prepared: PreparedStudy, *, as_json: bool) -> None:
    if as_json:
        echo_json(prepared.plan)
        return
    for number, (layout, items) in enumerate(prepared.plan.sessions(), start=1):
        note(f"{number:3} {layout:12} {', '.join(item.name for item in items)}")


@contextmanager
def _simulating() -> Iterator[Callable[[str], None]]:
    """Show simulations as they are made."""
    with progress() as bar:
        tasks: list[TaskID] = []

        def done(name: str) -> None:
            if not tasks:
                tasks.append(bar.add_task("simulated", total=None))
            bar.update(tasks[0], description=f"simulated: {name}")

        yield done


def _show_study(found: StudyFindings, prepared: PreparedStudy, replays: int) -> None:
    from osub.physical.plan import plan_lines

    known = plan_lines(prepared.plan)
    for fact in found.facts:
        if fact not in known:  # the plan was printed before it began
            note(fact)
    Console().print(claims_table(found.claims))
    note(tally(found.claims, replays))
    for table in found.tables:
        show_table(table)


thesis_app = application()
_MOST_NUMBER = 1000

TraceArgument = Annotated[Path, Argument(help="UniLu-Gaia-2014-1.swf.gz.", metavar="TRACE")]
HtmlOption = Annotated[Path | None, Option("--html", help="Write tables and figures.", metavar="FILE")]
JsonOption = Annotated[bool, Option("--json", help="Print the outcomes as JSON.")]
PolicyOption = Annotated[
    str,
    Option(
        help="fcfs, easy, easy-elsewhere (chooses other nodes), easy-ncs (backfills as the thesis's program)."
    ),
]
PlacementOption = Annotated[str, Option(help="thesis or lln.")]

AnyTrace = Annotated[
    bool, Option("--any-trace", help="Run it on another trace than the thesis's; compares nothing.")
]


@thesis_app.command("thesis-5")
def thesis_5(
    trace: TraceArgument,
    policy: PolicyOption = "easy-elsewhere",
    placement: PlacementOption = "thesis",
    kit: Annotated[
        Path | None, Option(help="KIT-FH2-2016-1.swf.gz: Tables 5.3(b) and 5.6, too.", metavar="FILE")
    ] = None,
    kit_queue: Annotated[
        int | None, Option(help="Its queue of HRR jobs; without it the one with the fewest jobs.")
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
    from simulator.experiments.thesis_chapters import chapter_5

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
    _show_chapter(found, html, as_json=as_json)


@thesis_app.command("thesis-6")
def thesis_6(
    trace: TraceArgument,
    policy: PolicyOption = "easy-elsewhere",
    placement: PlacementOption = "thesis",
    survey: Annotated[
        str, Option(help="Data sets of experiment 2 to survey, such as 1-6, 1,3 or none.")
    ] = "1-6",
    seed: Annotated[int, Option(min=0, help="For patterns and for the choice of jobs.")] = 1,
    interleaved: Annotated[
        bool,
        Option(
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
    from simulator.experiments.thesis_cases import DATA_SETS
    from simulator.experiments.thesis_chapters import chapter_6

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
    _show_chapter(found, html, as_json=as_json)


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


def _show_chapter(found: Chapter, html: Path | None, *, as_json: bool) -> None:
    from simulator.experiments.thesis_chapters import MARKED

    if html is not None:
        from simulator.experiment_page import write_page

        write_page(html, found.title, found.facts, found.tables, found.figures())
    if as_json:
        document = {"tables": found.tables, "outcomes": found.outcomes, "remarks": found.remarks}
        echo_json(document)
        return
    for table in found.tables:
        show_table(table)
    note(MARKED)
    for remark in found.remarks:
        note(remark)
    if html is not None:
        note(f"Page: {html}")


thesis_app.command("thesis-7")(thesis_7)


class Studies(CommandGroup):
    """The thesis's experiments, and one command for each study of claims."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """Return the names of all experiments."""
        from simulator.experiments.claim_study import STUDIES

        return [*_thesis().commands, *sorted(STUDIES)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as click calls it
        """Return an experiment's command, or None if there is none of that name."""
        from simulator.experiments.claim_study import STUDIES

        if cmd_name in _thesis().commands:
            return _thesis().commands[cmd_name]
        known = STUDIES.get(cmd_name)
        if known is None:
            return None
        alone = application()
        about = f"{known.help}\n\nTRACE: {known.traces_help}"
        alone.command(cmd_name, help=about)(study)
        return typer.main.get_command(alone)


app = application("Repeat published experiments.", Studies)


@app.callback()
def experiment() -> None:
    """Repeat published experiments."""


def study(
    ctx: typer.Context,
    traces: Annotated[
        list[Path] | None, Argument(help="See above.", metavar="[TRACE]...", show_default=False)
    ] = None,
    seeds: Annotated[int | None, Option(min=1, max=1000, help="How many seeds (10; 3 with --quick).")] = None,
    quick: Annotated[bool, Option("--quick", help="A smaller study, with provisional verdicts.")] = False,
    html: Annotated[Path | None, Option(help="Write claims, tables and figures.", metavar="FILE")] = None,
    force: Force = False,
    as_json: Annotated[bool, Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Run a study and judge every claim."""
    from simulator.experiments.claim_study import STUDIES, StudyRequest, check_traces, seeds_of

    check_free(html, force, makes_folder=True)
    name = ctx.info_name or ""
    chosen = STUDIES[name]
    check_traces(chosen, traces or [])
    count = seeds_of(seeds, quick=quick)
    with progress() as bar:
        asked = StudyRequest(traces=tuple(traces or ()), seeds=count, quick=quick, steps=steps_of(bar, name))
        found = chosen.run(asked)
    if html is not None:
        from simulator.experiment_page import write_page

        facts = [*found.facts, tally(found.claims, count)]
        write_page(html, found.title, facts, found.tables, found.figures(), found.claims)
    if as_json:
        echo_json(
            {
                "study": name,
                "seeds": count,
                "facts": found.facts,
                "claims": found.claims,
                "tables": found.tables,
            }
        )
        return
    _show(found, count)
    if html is not None:
        note(f"Page: {html}")


def _show(found: StudyFindings, seeds: int) -> None:
    for fact in found.facts:
        note(fact)
    for table in found.tables:
        show_table(table)
    Console().print(claims_table(found.claims))
    note(tally(found.claims, seeds))


def _thesis() -> click.Group:
    group = typer.main.get_command(thesis_app)
    assert isinstance(group, click.Group)
    return group
