"""``osub evict``: which running jobs to kill or to checkpoint so that nodes are free by a deadline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from osub.cli.evict_show import show_answers, to_json
from osub.errors import UsageError
from simulator.eviction import Question, Solver, solve
from simulator.eviction.jobs_file import read_jobs
from simulator.eviction.solve import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.eviction import Answer


def evict(
    jobs: Annotated[
        Path, typer.Argument(help="CSV job,nodes,loss,ts_min,ta_min[,wait_min].", metavar="JOBS.csv")
    ],
    free_nodes: Annotated[int, typer.Option(help="K: nodes to free.")],
    deadline: Annotated[float, typer.Option(help="T: by when, in minutes from now.", metavar="MINUTES")],
    all_deadlines: Annotated[
        bool, typer.Option("--all-deadlines", help="Answer every deadline from 0 to T.")
    ] = False,
    solver: Annotated[Solver, typer.Option(help="How it is solved.")] = Solver.OPTIMAL,
    granularity: Annotated[float, typer.Option(help="Minutes to which times are rounded up.")] = 1.0,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="Tell, too, how long checkpoints take if waits overlap.")
    ] = False,
    skip: Annotated[
        bool, typer.Option("--skip", help="greedy: pass over a job whose checkpoint does not fit.")
    ] = False,
    limit: Annotated[
        float, typer.Option(min=0, help="backtracking: seconds for one deadline.", metavar="SECONDS")
    ] = LIMIT_S,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the trade-off as a page.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
) -> None:
    """Say which jobs to evict so that K nodes are free by a deadline at the least loss.

    Loss is in node-hours, times in minutes. An empty loss: the job may not be killed; an empty time: it has
    no such checkpoint. Checkpoints are written one after another.
    """
    listed = read_jobs(jobs)
    held = sum(job.nodes for job in listed)
    if free_nodes > held:
        raise UsageError(f"--free-nodes {free_nodes}: the {len(listed)} jobs of {jobs} hold {held:,} nodes")
    question = Question(jobs=listed, need=free_nodes, deadline_min=deadline, step_min=granularity)
    answers = solve(question, solver, every_deadline=all_deadlines, skip=skip, limit_s=limit)
    fact = (
        f"{jobs.name}: {len(listed)} jobs on {held:,} nodes, of which {max(0, free_nodes):,} are to be free "
        f"within {deadline:g} min. Solver: {solver}; loss in node-hours, times in minutes."
    )
    if html is not None:
        every = answers if all_deadlines else solve(question, solver, skip=skip, limit_s=limit)
        _write_page(html, fact, question, every, solver)
    if as_json:
        typer.echo(to_json(answers, listed if overlap else None))
        return
    show_answers([fact], answers, listed if overlap else None)
    if html is not None:
        typer.echo(f"Page: {html}")


def _write_page(path: Path, fact: str, question: Question, answers: Sequence[Answer], solver: Solver) -> None:
    """Write the page; greedy's answers stand beside those of another solver."""
    from simulator.eviction.page import write_trade_off

    beside = [] if solver is Solver.GREEDY else solve(question, Solver.GREEDY)
    write_trade_off(path, [fact], question, {solver.value: answers, "greedy": beside})
