"""``osub sweep``: many settings, each simulated or replayed once; ``osub sweep tune`` searches."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import click
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from foundation.errors import OsubError, UsageError
from foundation.one_line import one_line
from foundation.units import counted
from foundation.writable import refuse_unwritable_folder
from osub.cli.application import Group, application
from osub.cli.completion import clusters
from osub.cli.interrupts import ended_as_by_ctrl_c, interruption_says
from osub.cli.out_file import Force, check_free
from osub.cli.terminal import Console, roughly
from osub.live.cluster import conf_in
from osub.sweep.dask_points import Dask
from osub.sweep.measure import measure, measure_choice
from osub.sweep.points import point_of
from osub.sweep.replays import ByKind, Replays
from osub.sweep.run import FAILED, TABLE, Standing, Store, Sweep, run_sweep
from osub.sweep.slurm_jobs import JobsWanted, SlurmJobs
from osub.sweep.spec import KIND, Parameters, read_spec
from osub.sweep.tell import SHOWN, best_rows, figure
from osub.sweep.tune import DEDICATED, GOAL_WORDS, GOALS, TOLERANCE, Goal, Tried, reference, tune
from osub.sweep.workers import Processes, Workers

_MOST_ROWS = 12
_GOES_ON = "the same command goes on where it was"
_MOST_SEED = 2**32 - 1


class _SpecOrCommand(Group):
    """``osub sweep FILE`` is ``osub sweep run FILE``."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["run", *args]
        return super().resolve_command(ctx, args)


app = application(
    "Many settings at once: `osub sweep SPEC.toml --out DIR` runs each once, `osub sweep tune` searches.",
    _SpecOrCommand,
)

Out = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Folder of the sweep; the same again goes on.")
]
Html = Annotated[Path | None, typer.Option("--html", help="Page with pictures to write.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]


@app.command("run")
def run_command(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="What to vary: docs/sweep.md.")],
    out: Out,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Processes of this host. [default: its CPUs]", show_default=False),
    ] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS|FILE", help="Run on the Dask cluster of this scheduler.")
    ] = None,
    slurm: Annotated[
        int | None,
        typer.Option(metavar="JOBS", min=1, max=10_000, help="Run in so many Slurm jobs of one core."),
    ] = None,
    cluster: Annotated[
        Path | None,
        typer.Option(
            help="With --slurm: folder with slurm.conf. [default: the environment's Slurm]",
            autocompletion=clusters,
        ),
    ] = None,
    slurm_partition: Annotated[str | None, typer.Option(help="With --slurm: partition of the jobs.")] = None,
    slurm_account: Annotated[str | None, typer.Option(help="With --slurm: account of the jobs.")] = None,
    slurm_memory_mib: Annotated[int, typer.Option(min=100, help="With --slurm: memory of each job.")] = 2000,
    slurm_limit_min: Annotated[int, typer.Option(min=1, help="With --slurm: limit of each job.")] = 240,
    slurm_host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="With --slurm: address of this host for the nodes.")
    ] = None,
    tries: Annotated[int, typer.Option(min=1, max=10, help="Of a point whose process dies.")] = 2,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be run, and run nothing.")
    ] = False,
    html: Html = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Simulate or replay every point of a sweep that is not done yet; write a table, and a page if wanted."""
    if sum(choice is not None for choice in (workers, dask, slurm)) > 1:
        raise UsageError("--workers, --dask and --slurm are three ways to run the points: say one")
    if slurm is None and cluster is not None:
        raise UsageError("--cluster says where --slurm JOBS run; say both")
    check_free(html, force, makes_folder=True)
    refuse_unwritable_folder(out)
    asked = read_spec(spec)
    points = [point_of(parameters) for parameters in asked.combinations()]
    store = Store(out, looking=dry_run)
    if dry_run:
        _tell_dry(len(points), len(store.finished(points)), as_json=as_json)
        return
    team: Workers
    if slurm is not None:
        wanted = JobsWanted(
            jobs=slurm,
            slurm_conf=None if cluster is None else conf_in(cluster),
            memory_mib=slurm_memory_mib,
            limit_min=slurm_limit_min,
            partition=slurm_partition,
            account=slurm_account,
            host=slurm_host,
        )
        team = SlurmJobs(measure, wanted, out.resolve())
    elif dask is not None:
        team = Dask(measure, dask)
    else:
        team = Processes(measure, workers)
    if any(point.parameters.get(KIND) == "replay" for point in points):
        team = ByKind(team, Replays(out.resolve()))
    with (
        store.held(),
        _bar(len(points)) as watch,
        interruption_says(watch.kept),
        ended_as_by_ctrl_c(signal.SIGTERM, signal.SIGHUP),
    ):
        sweep = run_sweep(points, store, team, tries=tries, watch=watch)
    if html is not None:
        from osub.sweep.page import write_page

        write_page(html, f"Sweep {spec.stem}", sweep.table, asked.varied(), len(sweep.failures))
    _tell(sweep, out, asked.varied(), as_json=as_json)
    if sweep.failures:
        raise typer.Exit(1)


@app.command("tune")
def tune_command(
    trace: Annotated[Path, typer.Argument(help="Trace in SWF; `osub trace convert` makes one of sacct's.")],
    system: Annotated[str, typer.Option(help="Nodes and cores a node, such as N150C12.")],
    out: Out,
    goal: Annotated[str, typer.Option(help=f"What is to be small: {', '.join(GOALS)}.")] = "wait",
    most_degradation: Annotated[
        float, typer.Option(help="Mean degradation of running jobs at most (1: as on cores of their own).")
    ] = 1.5,
    multiplicity: Annotated[str, typer.Option(metavar="LIST", help="M to choose from.")] = "1,2,3,4",
    interactive_share: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="R to choose from: nodes kept for interactive jobs (0: one queue)."
        ),
    ] = None,
    quantum_ms: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Quanta of gang slices to choose from, in ms (0: no slices)."),
    ] = None,
    overhead: Annotated[float, typer.Option(help="C_o: what sharing costs beyond the share.")] = 1.2,
    trials: Annotated[int, typer.Option(min=1, max=10_000, help="Settings to try at most.")] = 30,
    seed: Annotated[int, typer.Option(min=0, max=_MOST_SEED, help="For whatever is drawn at random.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Find the settings that make a goal smallest on a trace of your own, at no more harm than you allow."""
    refuse_unwritable_folder(out)
    choices: dict[str, Sequence[str | int | float]] = {
        "multiplicity": _numbers("--multiplicity", multiplicity)
    }
    if interactive_share is not None:
        choices["interactive_share"] = [word.strip() for word in interactive_share.split(",")]
    if quantum_ms is not None:
        choices["quantum_ms"] = _numbers("--quantum-ms", quantum_ms)
    wanted = Goal(figure=goal, most_degradation=most_degradation)
    base: Parameters = {"trace": str(trace.resolve()), "system": system, "overhead": overhead, "seed": seed}
    most = min(trials, 1 + math.prod(map(len, choices.values())))
    tried = 0
    with (
        Console(stderr=True).status("trying M=1") as spinner,
        interruption_says(lambda: f"{counted(tried, 'setting')} tried and kept; {_GOES_ON}"),
        (store := Store(out)).held(),
    ):

        def watch(number: int, _: Tried) -> None:
            nonlocal tried
            tried = number
            spinner.update(f"{number} of at most {counted(most, 'setting')} tried")

        found = tune(base, choices, wanted, store, measure_choice, trials=trials, seed=seed, watch=watch)
    _tell_tuned(found, wanted, list(choices), overhead, as_json=as_json)


def _numbers(option: str, text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 7 for word in words):
        raise UsageError(f"{option} takes whole numbers with commas, such as 1,2,4; not {one_line(text, 60)}")
    return [int(word) for word in words]


@contextmanager
def _bar(total: int) -> Iterator[_Watch]:
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} points{task.fields[rest]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with bar:
        yield _Watch(bar, total)


class _Watch:
    def __init__(self, bar: Progress, total: int) -> None:
        self._bar = bar
        self._total = total
        self._kept = 0
        self._task = bar.add_task("sweep", total=total, rest="")

    def __call__(self, standing: Standing) -> None:
        failed = f", {standing.failed} failed" if standing.failed else ""
        left = "" if standing.left_s is None else f", about {roughly(standing.left_s)} left"
        self._kept = standing.known + standing.done
        self._bar.update(self._task, completed=self._kept + standing.failed, rest=failed + left)

    def kept(self) -> str:
        """Say what a sweep that is interrupted now leaves."""
        return f"{self._kept:,} of {counted(self._total, 'point')} are done and kept; {_GOES_ON}"


def _tell(sweep: Sweep, out: Path, varied: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        facts = {
            "points": sweep.total,
            "known": sweep.known,
            "done": sweep.done,
            "failed": len(sweep.failures),
            "wall_s": sweep.wall_s,
            "work_s": sweep.work_s,
            "table": str(out / TABLE),
        }
        typer.echo(json.dumps(facts))
        return
    console = Console()
    console.print(
        f"{counted(sweep.total, 'point')}: {sweep.known:,} known, {sweep.done:,} run in "
        f"{roughly(sweep.wall_s)}, {len(sweep.failures):,} failed. Table: {out / TABLE}",
        highlight=False,
        markup=False,
    )
    if sweep.failures:
        why = next(iter(sweep.failures.values()))
        console.print(f"failed, for example: {why} ({out / FAILED} has all)", highlight=False, markup=False)
    head, rows = best_rows(sweep.table, varied, _MOST_ROWS)
    if rows:
        _print(console, "No point has both less waiting and less degradation than these", head, rows)


def _tell_dry(total: int, known: int, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"points": total, "known": known, "to_run": total - known}))
    else:
        typer.echo(f"{counted(total, 'point')}, {known:,} of them done; {total - known:,} to run")


def _tell_tuned(
    found: Sequence[Tried], goal: Goal, names: Sequence[str], overhead: float, *, as_json: bool
) -> None:
    best = found[0]
    mild = goal.harm(best.outcome) <= TOLERANCE
    if as_json:
        chosen = {name: best.parameters[name] for name in names if name in best.parameters}
        facts = {
            "goal": goal.figure,
            "most_degradation": goal.most_degradation,
            "best": chosen if mild else None,
            "tried": [{name: one.parameters.get(name) for name in names} | one.outcome for one in found],
        }
        typer.echo(json.dumps(facts))
    else:
        _show_tuned(found, goal, names, overhead)
    if not mild:
        mildest = min(float(one.outcome.get("degradation_mean") or math.inf) for one in found)
        raise OsubError(
            f"no setting keeps the mean degradation under {goal.most_degradation:g}; "
            f"the mildest has {mildest:.3g}"
        )


def _show_tuned(found: Sequence[Tried], goal: Goal, names: Sequence[str], overhead: float) -> None:
    console = Console()
    best = found[0]
    if goal.harm(best.outcome) <= TOLERANCE:
        console.print(_answer(found, goal, names, overhead), highlight=False, markup=False)
    shown = [(name, label) for name, label in SHOWN if name in best.outcome]
    head = [*names, *(label for _, label in shown), ""]
    rows = [
        [
            *(str(one.parameters.get(name, "-")) for name in names),
            *(figure(one.outcome.get(name)) for name, _ in shown),
            _remark(one, goal),
        ]
        for one in found[:_MOST_ROWS]
    ]
    _print(console, f"Settings tried, best first by {goal.figure}", head, rows)


def _answer(found: Sequence[Tried], goal: Goal, names: Sequence[str], overhead: float) -> str:
    """Return in sentences which setting it is, what it brings beside M=1, and how much that is worth."""
    best, alone = found[0], reference(found)
    jobs_a_core = best.parameters["multiplicity"]
    others = [f"{name} {best.parameters[name]}" for name in names[1:] if name in best.parameters]
    told = ", ".join([f"M={jobs_a_core}", *others])
    figures = f"{GOAL_WORDS[goal.figure]} {_amount(goal, best)}"
    limit = f"(at most {goal.most_degradation:g} was allowed)"
    answer = f"Best of {counted(len(found), 'setting')}: {told}. {figures}"
    if jobs_a_core == DEDICATED:
        return f"{answer}; {_why_alone(found, goal)}."
    slowed = float(best.outcome["degradation_mean"])
    return (
        f"{answer} instead of {_amount(goal, alone)} at M=1; running jobs take {slowed:.3g} times as long as "
        f"on cores of their own on average {limit}.\n"
        f"Slurm does it with OverSubscribe=FORCE:{jobs_a_core} of a partition. This is simulated, with what "
        f"sharing costs beyond the share (C_o) taken as {overhead:g}: measure that first (osub predict)."
    )


def _why_alone(found: Sequence[Tried], goal: Goal) -> str:
    """Return why cores had better not be shared: nothing is better, or nothing that is mild enough."""
    least = goal.value(found[0].outcome)
    better = [one for one in found[1:] if goal.value(one.outcome) < least]
    if not better:
        return "no setting that shares cores is better"
    mildest = min(better, key=lambda one: goal.harm(one.outcome))
    return (
        f"what is better slows running jobs more than {goal.most_degradation:g} times (--most-degradation): "
        f"M={mildest.parameters['multiplicity']}, the mildest, "
        f"{float(mildest.outcome['degradation_mean']):.3g} times"
    )


def _amount(goal: Goal, tried: Tried) -> str:
    value = goal.value(tried.outcome)
    return roughly(value) if GOALS[goal.figure].endswith("_s") else f"{value:.3g}"


def _remark(tried: Tried, goal: Goal) -> str:
    if "error" in tried.outcome:
        return one_line(str(tried.outcome["error"]), 60)
    return "too harmful" if goal.harm(tried.outcome) > TOLERANCE else ""


def _print(console: Console, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(*head, title=title)
    for row in rows:
        table.add_row(*row)
    console.print(table)
