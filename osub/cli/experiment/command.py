"""``osub experiment``: published experiments again, with the published numbers next to ours.

The studies of claims are ``simulator.experiments.claim_study.STUDIES``; they all have the options that are
written here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import msgspec
import typer

from analysis.claims_table import claims_table, tally
from osub.cli.application import CommandGroup, application
from osub.cli.experiment import thesis_5_and_6 as experiment_thesis
from osub.cli.experiment.show import note, progress, show_table, steps_of
from osub.cli.out_file import Force, check_free
from osub.cli.terminal import Console

if TYPE_CHECKING:
    from simulator.experiments.claim_study import StudyFindings


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
        list[Path] | None, typer.Argument(help="See above.", metavar="[TRACE]...", show_default=False)
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=1000, help="How many seeds (10; 3 with --quick).")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A smaller study, with provisional verdicts.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write claims, tables and figures.", metavar="FILE")
    ] = None,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
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
        typer.echo(_json(name, count, found))
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


def _json(name: str, seeds: int, found: StudyFindings) -> str:
    text = msgspec.json.encode(
        {
            "study": name,
            "seeds": seeds,
            "facts": found.facts,
            "claims": found.claims,
            "tables": found.tables,
        }
    )
    return msgspec.json.format(text, indent=2).decode()


def _thesis() -> click.Group:
    group = typer.main.get_command(experiment_thesis.app)
    assert isinstance(group, click.Group)
    return group
