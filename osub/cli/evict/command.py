"""``osub evict``: which running jobs to kill or to checkpoint so that nodes are free by a deadline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from signal import Signals
from typing import Annotated

import typer
from typer import Argument, Option

from foundation.errors import UsageError
from foundation.interruption import on_signals
from foundation.slurm import Receiver
from foundation.units import counted, verb
from osub.cli.completion import clusters
from osub.cli.evict.answers_shown import facts_of, show_answers
from osub.cli.out_file import Force, check_free
from osub.cli.terminal import echo_json
from osub.live.forward import forward_live, is_in_containers
from simulator.eviction import EvictionSolver, Question, solve
from simulator.eviction.jobs_file import read_jobs
from simulator.eviction.solvers import LIMIT_S
from submitter.eviction import EvictionMeans, Requeue, read_template

_OF_LIVE = (
    *("cluster", "live", "partition", "keep", "times", "app_min", "system_min", "every_min"),
    *("system_command", "execute", "yes"),
)


def evict(
    ctx: typer.Context,
    jobs: Annotated[
        Path | None,
        Argument(
            help="CSV job,nodes,loss,ts_min,ta_min[,wait_min][,share]; without it a live Slurm is asked.",
            metavar="[JOBS.csv]",
            show_default=False,
        ),
    ] = None,
    *,
    free_nodes: Annotated[int, Option(help="K: nodes to free by eviction.")],
    deadline: Annotated[float, Option(help="T: by when, in minutes from now.", metavar="MINUTES")],
    all_deadlines: Annotated[
        bool, Option("--all-deadlines", help="Answer every deadline from 0 to T.")
    ] = False,
    solver: Annotated[EvictionSolver, Option(help="How it is solved.")] = EvictionSolver.OPTIMAL,
    granularity: Annotated[
        float, Option(help="Minutes to which times are rounded up.", metavar="MINUTES")
    ] = 1.0,
    overlap: Annotated[
        bool,
        Option(
            "--overlap",
            help="Choose and time as if waits for checkpoints overlap, and writes share bandwidth.",
        ),
    ] = False,
    skip: Annotated[
        bool, Option("--skip", help="greedy: pass over a job whose checkpoint does not fit.")
    ] = False,
    limit: Annotated[
        float, Option(min=0, help="backtracking: seconds for one deadline.", metavar="SECONDS")
    ] = LIMIT_S,
    html: Annotated[Path | None, Option(help="Write the trade-off as a page.", metavar="FILE")] = None,
    force: Force = False,
    as_json: Annotated[bool, Option("--json", help="Print the answers as JSON.")] = False,
    cluster: Annotated[
        Path | None,
        Option(
            help="Live: folder with slurm.conf (an embedded cluster's).",
            metavar="DIR",
            autocompletion=clusters,
        ),
    ] = None,
    live: Annotated[bool, Option("--live", help="Live: the Slurm of this host.")] = False,
    partition: Annotated[str | None, Option(help="Live: where the nodes are wanted.")] = None,
    keep: Annotated[
        list[str] | None, Option(help="Live: a job that is not evicted; may be repeated.", metavar="JOB")
    ] = None,
    times: Annotated[
        Path | None, Option(help="Live: CSV job[,loss][,ts_min][,ta_min] of single jobs.")
    ] = None,
    app_min: Annotated[
        float | None,
        Option(help="Live: minutes in which any other job saves itself at the signal.", metavar="MINUTES"),
    ] = None,
    system_min: Annotated[
        float | None,
        Option(help="Live: minutes that --system-command takes for any other job.", metavar="MINUTES"),
    ] = None,
    every_min: Annotated[
        float | None,
        Option(help="Live: every job checkpoints itself so often, from its start on.", metavar="MINUTES"),
    ] = None,
    signal: Annotated[str, Option(help="Live: what a job is sent to save itself.")] = "USR1",
    signal_to: Annotated[
        Receiver, Option(help="Live: its steps, its batch script, or all its processes.")
    ] = Receiver.STEPS,
    system_command: Annotated[
        str | None, Option(help="Live: a command that checkpoints job {job} from outside.", metavar="WORDS")
    ] = None,
    requeue: Annotated[
        Requeue, Option(help="Live: whether evicted jobs go back to the queue, or are held there.")
    ] = Requeue.NO,
    execute: Annotated[bool, Option("--execute", help="Live: carry it out, after a question.")] = False,
    yes: Annotated[bool, Option("--yes", help="Live: do not ask.")] = False,
) -> None:
    """Say which jobs to evict so that K nodes are free by a deadline at the least loss.

    Loss is in node-hours, times in minutes. An empty loss: the job may not be killed; an empty time: it has
    no such checkpoint. Checkpoints are written one after another, but for --overlap. With --cluster or --live
    the jobs are those that run now, and --execute evicts them.
    """
    check_free(html, force, makes_folder=True)
    if jobs is not None:
        given = _given(ctx, _OF_LIVE)
        if given:
            raise UsageError(f"{given} is for a live Slurm; {jobs} is a table of jobs: name one of them")
        question = ask_of_table(jobs, free_nodes, deadline, granularity)
        _answer_table(
            jobs,
            question,
            solver,
            all_deadlines=all_deadlines,
            overlap=overlap,
            skip=skip,
            limit_s=limit,
            html=html,
            as_json=as_json,
        )
        return
    if cluster is None and not live:
        raise UsageError(
            "name a table of jobs (JOBS.csv), a cluster (--cluster DIR), or this host's Slurm (--live)"
        )
    given = _given(ctx, ("overlap", "skip"))
    if given:
        raise UsageError(f"{given} is for a table of jobs")
    if cluster is not None and is_in_containers(cluster):
        if html is not None:
            raise UsageError("--html is not there for a cluster in containers; --json prints the answers")
        code = forward_live(cluster, on_signals, [times])
        if not (execute or as_json or code):
            typer.echo(
                f"osub: the commands are for the controller of {cluster}; `osub cluster status` names it",
                err=True,
            )
        raise typer.Exit(code)
    from osub.cli.evict.live import evict_live
    from osub.live.evicting import EvictionRequest, read_known
    from simulator.eviction.running_jobs import EvictionRules

    if signal not in {one.name.removeprefix("SIG") for one in Signals}:
        raise UsageError(f"--signal: there is no signal {signal!r}; one is named as USR1 is")
    if system_min is not None and system_command is None:
        raise UsageError("--system-min is how long --system-command takes; name it, too")
    rules = EvictionRules(
        partition=partition,
        keep=frozenset(keep or ()),
        known={} if times is None else read_known(times, has_system=system_command is not None),
        app_min=_minutes("--app-min", app_min),
        system_min=_minutes("--system-min", system_min),
        every_min=_minutes("--every-min", every_min),
    )
    ways = EvictionMeans(
        deadline_s=60 * deadline,
        signal_name=signal,
        receiver=signal_to,
        requeue=requeue,
        system_command=() if system_command is None else read_template(system_command),
    )
    wanted = EvictionRequest(
        free_nodes=free_nodes,
        deadline_min=deadline,
        step_min=granularity,
        solver=solver,
        rules=rules,
        ways=ways,
    )
    evict_live(
        cluster, wanted, all_deadlines=all_deadlines, html=html, as_json=as_json, execute=execute, yes=yes
    )


def ask_of_table(path: Path, free_nodes: int, deadline_min: float, step_min: float) -> Question:
    """Read a table of jobs and return the question about them."""
    listed = read_jobs(path)
    held = sum(job.nodes for job in listed)
    if free_nodes > held:
        raise UsageError(
            f"--free-nodes {free_nodes}: the {counted(len(listed), 'job')} of {path} "
            f"{verb(len(listed), 'holds', 'hold')} {counted(held, 'node')}"
        )
    return Question(jobs=listed, need=free_nodes, deadline_min=deadline_min, step_min=step_min)


def _answer_table(
    jobs: Path,
    question: Question,
    solver: EvictionSolver,
    *,
    all_deadlines: bool,
    overlap: bool,
    skip: bool,
    limit_s: float,
    html: Path | None,
    as_json: bool,
) -> None:
    answers = solve(
        question,
        solver,
        skip=skip,
        limit_s=limit_s,
        every_deadline=bool(all_deadlines or html),
        overlap=overlap,
    )
    fact = (
        f"{jobs.name}: {counted(len(question.jobs), 'job')} on "
        f"{counted(sum(job.nodes for job in question.jobs), 'node')}, "
        f"of which {max(0, question.need):,} are to be free within {question.deadline_min:g} min. Solver: "
        f"{solver}; loss in node-hours, times in minutes."
    )
    if html is not None:
        from simulator.eviction.eviction_page import write_trade_off

        greedy = [] if solver is EvictionSolver.GREEDY else solve(question, EvictionSolver.GREEDY)
        write_trade_off(html, [fact], question, {solver.value: answers, "greedy": greedy})
    shown = answers if all_deadlines else answers[-1:]
    overlapped = question.jobs if overlap else None
    if as_json:
        echo_json({"deadlines": [facts_of(answer, overlapped) for answer in shown]})
        return
    show_answers([fact], shown, overlapped)
    if html is not None:
        typer.echo(f"Page: {html}")


def _given(ctx: typer.Context, names: Sequence[str]) -> str:
    """Return the first of some options that was given, or nothing."""
    return next((f"--{name.replace('_', '-')}" for name in names if ctx.params[name]), "")


def _minutes(name: str, value: float | None) -> float | None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise UsageError(f"{name} is a number of minutes above zero, not {value:g}")
    return value
