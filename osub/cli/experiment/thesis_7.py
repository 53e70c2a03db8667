"""``osub experiment thesis-7``: the thesis's physical study on the cluster at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from analysis.claims_table import claims_table, tally
from deploy.compose.engine import EngineName, find_engine
from foundation.errors import OutputError, UsageError
from foundation.files import refuse_unwritable_folder
from foundation.interruption import on_signals
from foundation.units import counted, duration, seconds_of
from osub.cli.experiment.show import note, progress, show_table
from osub.cli.out_file import check_free
from osub.cli.terminal import Console

if TYPE_CHECKING:
    from rich.progress import TaskID

    from osub.physical.study import PreparedStudy
    from simulator.experiments.claim_study import StudyFindings
    from submitter.replay import Collect, Look, Replay


class Only(StrEnum):
    """A part of the study that can be run by itself."""

    PAIR = "pair"


def thesis_7(
    trace: Annotated[
        Path | None,
        typer.Argument(
            help="UniLu-Gaia-2014-1.swf.gz; without it the one that `osub trace fetch` keeps.",
            metavar="[TRACE]",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the study; an unfinished one there goes on.")
    ] = Path("osub-thesis-7"),
    budget: Annotated[
        str | None, typer.Option(help="How long it may take, such as 30m or 2h (30m).", metavar="TIME")
    ] = None,
    cluster: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder with slurm.conf, one for each layout that you have. Without: embedded ones.",
            metavar="DIR",
        ),
    ] = None,
    configure: Annotated[
        Path | None,
        typer.Option(
            help="Program that changes the one --cluster to the layout that is its argument.",
            metavar="PROGRAM",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    engine: Annotated[
        EngineName | None,
        typer.Option(help="Put the embedded clusters into containers of this engine."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=0, max=20, help="Draws of the whole day at most (3).")
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=5,
            help="Trials of everything, two of the pair in each; without: as the budget allows.",
        ),
    ] = None,
    only: Annotated[
        Only | None,
        typer.Option(help="Only the two coupled jobs of Table 7.4: some minutes, for R1 to R3."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be run, and end.")] = False,
    judge: Annotated[
        bool, typer.Option("--judge", help="Judge the replays that are there, and make no more.")
    ] = False,
    again_unfit: Annotated[
        bool,
        typer.Option(
            "--again-unfit",
            help="Remove the replays that others' load made unfit to judge by; make them again.",
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            help="Page to write (OUT/report.html); an earlier one of a study is replaced.",
            metavar="FILE",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Begin anew where OUT holds a study.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
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
        typer.echo(_json(prepared, found, page))
        return
    _show(found, prepared, replays)
    note(f"Page: {page}")


def _check_page(html: Path | None) -> None:
    """Refuse to replace what is no page of a study; --force is about the study, and is no way out."""
    from osub.physical.found import is_page

    if html is not None and html.is_file() and not is_page(html):
        raise OutputError(f"{html} exists already and is no page of this study: choose another name")
    check_free(html, force=True, makes_folder=True)


def _follow(session: Replay, title: str, collect: Collect | None, most_s: float, look: Look | None) -> bool:
    """Carry a replay out under a progress bar."""
    from osub.cli.replay.watch import watch_replay

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
        typer.echo(msgspec.json.format(msgspec.json.encode(prepared.plan), indent=2).decode())
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


def _show(found: StudyFindings, prepared: PreparedStudy, replays: int) -> None:
    from osub.physical.plan import plan_lines

    known = plan_lines(prepared.plan)
    for fact in found.facts:
        if fact not in known:  # the plan was printed before it began
            note(fact)
    Console().print(claims_table(found.claims))
    note(tally(found.claims, replays))
    for table in found.tables:
        show_table(table)


def _json(prepared: PreparedStudy, found: StudyFindings, page: Path) -> str:
    text = msgspec.json.encode(
        {
            "study": "thesis-7",
            "plan": prepared.plan,
            "facts": found.facts,
            "claims": found.claims,
            "tables": found.tables,
            "page": str(page),
        }
    )
    return msgspec.json.format(text, indent=2).decode()
