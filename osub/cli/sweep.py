"""``osub sweep``: many settings, each simulated or replayed once; ``osub sweep tune`` searches."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import click
import msgspec
import typer
from rich.progress import Progress
from rich.table import Table
from typer import Argument, Option

from foundation.errors import OsubError, UsageError
from foundation.files import refuse_unwritable_folder
from foundation.one_line import one_line
from foundation.records.records_folder import FolderLock
from foundation.units import counted, duration
from osub.cli.application import CommandGroup, application
from osub.cli.completion import clusters
from osub.cli.out_file import Force, check_free
from osub.cli.terminal import Console, progress_bar
from osub.live.cluster import conf_in
from osub.sweep import tune as search
from osub.sweep.dask_points import Dask, JobsWanted, SlurmJobs
from osub.sweep.points import measure, measure_choice, point_of
from osub.sweep.replays import ByKind, SweepReplays
from osub.sweep.run import FAILED, TABLE, Sweep, SweepStore, run_sweep
from osub.sweep.spec import KIND, Parameters, read_spec
from osub.sweep.tell import SHOWN, answers, figure, scenarios
from osub.sweep.tune import Goal, Tried, Tuned, kept
from osub.sweep.workers import Processes, Workers

MOST_ROWS = 12


def tell_tuned(tuned: Tuned, *, as_json: bool) -> None:
    """Print what was found; raises OsubError where every setting harms too much."""
    goal, found = tuned.goal, tuned.found
    if as_json:
        facts = {
            "goal": goal.figure,
            "most_degradation": goal.most_degradation,
            "overhead": tuned.overhead,
            "best": tuned.chosen(tuned.best),
            "gain_over_seeds": msgspec.to_builtins(tuned.gain),
            "scenarios": [
                {"overhead": overhead, "best": tuned.chosen(tuned.mild(ordered))}
                | (ordered[0].outcome if ordered else {})
                for overhead, ordered in tuned.elsewhere.items()
            ],
            "tried": [
                {name: one.parameters.get(name) for name in tuned.names} | one.outcome for one in found
            ],
        }
        typer.echo(json.dumps(facts))
    else:
        _show_tuned(tuned)
    if tuned.best is None:
        mildest = min(float(one.outcome.get("degradation_mean") or math.inf) for one in found)
        raise OsubError(
            f"no setting keeps the mean degradation under {goal.most_degradation:g}; "
            f"the mildest has {mildest:.3g}"
        )


def _show_tuned(tuned: Tuned) -> None:
    console = Console()
    if tuned.best is not None:
        console.say(_answer(tuned, tuned.best))
    shown = [(name, label) for name, label in SHOWN if name in tuned.found[0].outcome]
    head = [*tuned.names, *(label for _, label in shown), ""]
    for overhead, ordered in {tuned.overhead: tuned.found, **tuned.elsewhere}.items():
        rows = [
            [
                *(str(one.parameters.get(name, "-")) for name in tuned.names),
                *(figure(one.outcome.get(name)) for name, _ in shown),
                _remark(one, tuned.goal),
            ]
            for one in ordered[:MOST_ROWS]
        ]
        print_table(console, f"At C_o = {overhead:g}, best first by {tuned.goal.figure}", head, rows)


def _answer(tuned: Tuned, best: Tried) -> str:
    """Return in sentences which setting it is, what it brings, and at what C_o it is another."""
    goal, alone = tuned.goal, tuned.alone
    amount = goal.amounts(alone, best)
    jobs_a_core = best.parameters["multiplicity"]
    answer = (
        f"Best of {counted(len(tuned.found), 'setting')}, assuming C_o = {tuned.overhead:g}: "
        f"{tuned.named(best)}. {search.GOAL_WORDS[goal.figure]} {amount(goal.value(best.outcome))}"
    )
    elsewhere = _elsewhere(tuned, best, amount)
    if jobs_a_core == search.DEDICATED:
        return f"{answer}; {_why_alone(tuned.found, goal)}.{elsewhere}"
    slowed = float(best.outcome["degradation_mean"])
    return (
        f"{answer} instead of {amount(goal.value(alone.outcome))} at M=1{_how_sure(tuned, amount)}; "
        f"running jobs take {slowed:.3g} times as long as on cores of their own on average (at most "
        f"{goal.most_degradation:g} was allowed).{elsewhere}\n"
        f"Slurm does it with OverSubscribe=FORCE:{jobs_a_core} of a partition. This is simulated: C_o, what "
        "sharing costs beyond the share, is assumed. Measure it first (osub predict)."
    )


def _how_sure(tuned: Tuned, amount: Callable[[float], str]) -> str:
    """Return the change with its interval over seeds; empty where none was asked for."""
    gain = tuned.gain
    if gain is None or gain.low is None or gain.high is None:
        return ""
    low, high = sorted((-gain.low, -gain.high))
    if low <= 0:
        return f", not clearly less over {counted(gain.count, 'seed')}"
    return (
        f" (less by {amount(low)} to {amount(high)}, 95% interval over "
        f"{counted(gain.count, 'seed')} of nodes whose speeds differ by {search.NODE_NOISE:.0%})"
    )


def _elsewhere(tuned: Tuned, best: Tried, amount: Callable[[float], str]) -> str:
    """Return which setting is the best at other C_o; empty where none was tried."""
    parts = []
    for overhead, ordered in tuned.elsewhere.items():
        one = tuned.mild(ordered)
        if one is None:
            parts.append(f"at C_o = {overhead:g} no setting is mild enough")
            continue
        same = tuned.chosen(one) == tuned.chosen(best)
        slowed = float(one.outcome["degradation_mean"])
        parts.append(
            f"at C_o = {overhead:g} the best is {'still ' if same else ''}{tuned.named(one)} "
            f"({amount(tuned.goal.value(one.outcome))}, degradation {slowed:.3g})"
        )
    text = "; ".join(parts)
    return f"\n{text[:1].upper()}{text[1:]}." if parts else ""


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


def _remark(tried: Tried, goal: Goal) -> str:
    if "error" in tried.outcome:
        return one_line(str(tried.outcome["error"]), 60)
    return "too harmful" if goal.harm(tried.outcome) > search.TOLERANCE else ""


def print_table(console: Console, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of texts."""
    table = Table(*head, title=title)
    for row in rows:
        table.add_row(*row)
    console.print(table)


@contextmanager
def interruption_says(words: Callable[[], str]) -> Iterator[None]:
    """Have Ctrl-C end a command with words on what is kept and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(words()) from None


_GOES_ON = "the same command goes on where it was"
_MOST_SEED = 2**32 - 1


class _SpecOrCommand(CommandGroup):
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

Out = Annotated[Path, Option("--out", metavar="DIR", help="Folder of the sweep; the same again goes on.")]
Html = Annotated[Path | None, Option("--html", help="Page with pictures to write.")]
AsJson = Annotated[bool, Option("--json", help="Print the outcome as JSON.")]


@app.command("run")
def run_command(
    spec: Annotated[Path, Argument(metavar="SPEC.toml", help="What to vary: docs/sweep.md.")],
    out: Out,
    workers: Annotated[
        int | None,
        Option(min=1, max=1024, help="Processes of this host. [default: its CPUs]", show_default=False),
    ] = None,
    dask: Annotated[
        str | None, Option(metavar="ADDRESS|FILE", help="Run on the Dask cluster of this scheduler.")
    ] = None,
    slurm: Annotated[
        int | None, Option(metavar="JOBS", min=1, max=10_000, help="Run in so many Slurm jobs of one core.")
    ] = None,
    cluster: Annotated[
        Path | None,
        Option(
            help="With --slurm: folder with slurm.conf. [default: the environment's Slurm]",
            autocompletion=clusters,
        ),
    ] = None,
    slurm_partition: Annotated[str | None, Option(help="With --slurm: partition of the jobs.")] = None,
    slurm_account: Annotated[str | None, Option(help="With --slurm: account of the jobs.")] = None,
    slurm_memory_mib: Annotated[
        int, Option(min=0, help="With --slurm: memory of each job; 0: none is asked for.")
    ] = 2000,
    slurm_limit_min: Annotated[int, Option(min=1, help="With --slurm: limit of each job.")] = 240,
    slurm_host: Annotated[
        str | None, Option(metavar="ADDRESS", help="With --slurm: address of this host for the nodes.")
    ] = None,
    tries: Annotated[int, Option(min=1, max=10, help="Of a point whose process dies.")] = 2,
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would be run, and run nothing.")] = False,
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
    store = SweepStore(out, looking=dry_run)
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
        team = ByKind(team, SweepReplays(out.resolve()))
    bar = progress_bar(" points{task.fields[rest]}")
    watch = _Watch(bar, len(points))
    with FolderLock(store.folder), bar, interruption_says(watch.kept):
        sweep = run_sweep(points, store, team, tries=tries, watch=watch)
    if html is not None:
        from osub.sweep.page import write_page

        write_page(
            html, f"Sweep {spec.stem}", sweep.table, asked.varied(), len(sweep.failures), asked.averaged()
        )
    _tell(sweep, out, asked.varied(), asked.averaged(), as_json=as_json)
    if sweep.failures:
        raise typer.Exit(1)


@app.command("tune")
def tune_command(
    trace: Annotated[Path, Argument(help="Trace in SWF; `osub trace convert` makes one of sacct's.")],
    system: Annotated[str, Option(help="Nodes and cores a node, such as N150C12.")],
    out: Out,
    goal: Annotated[str, Option(help=f"What is to be small: {', '.join(search.GOALS)}.")] = "wait",
    most_degradation: Annotated[
        float, Option(help="Mean degradation of running jobs at most (1: as on cores of their own).")
    ] = 1.5,
    multiplicity: Annotated[str, Option(metavar="LIST", help="M to choose from.")] = "1,2,3,4",
    interactive_share: Annotated[
        str | None,
        Option(metavar="LIST", help="R to choose from: nodes kept for interactive jobs (0: one queue)."),
    ] = None,
    quantum_ms: Annotated[
        str | None, Option(metavar="LIST", help="Quanta of gang slices to choose from, in ms (0: no slices).")
    ] = None,
    overhead: Annotated[
        str,
        Option(
            metavar="LIST",
            help="C_o, what sharing costs beyond the share: the first is assumed, the rest are tried, too.",
        ),
    ] = "1.2,1.0,1.4",
    seeds: Annotated[
        int,
        Option(
            min=1, max=1000, help="Seeds over which the best setting is held against M=1 (1: no interval)."
        ),
    ] = 5,
    trials: Annotated[int, Option(min=1, max=10_000, help="Settings to try at most.")] = 30,
    seed: Annotated[int, Option(min=0, max=_MOST_SEED, help="For whatever is drawn at random.")] = 1,
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
    assumed, *others = search.overheads_in(overhead)
    base: Parameters = {"trace": str(trace.resolve()), "system": system, "overhead": assumed, "seed": seed}
    most = min(trials, 1 + math.prod(map(len, choices.values())))
    tried = 0
    store = SweepStore(out)
    with (
        Console(stderr=True).status("trying M=1") as spinner,
        interruption_says(lambda: f"{counted(tried, 'setting')} tried and kept; {_GOES_ON}"),
        FolderLock(store.folder),
    ):

        def watch(number: int, _: Tried) -> None:
            nonlocal tried
            tried = number
            spinner.update(f"{number} of at most {counted(most, 'setting')} tried")

        found = search.tune(
            base, choices, wanted, store, measure_choice, trials=trials, seed=seed, watch=watch
        )

        def run(parameters: Parameters) -> Tried:
            return kept(parameters, store, measure_choice)

        tuned = Tuned(wanted, list(choices), assumed, found)
        for other in others:
            spinner.update(f"trying {counted(len(found), 'setting')} at C_o = {other}")
            tuned.elsewhere[other] = search.under(found, {"overhead": other}, wanted, run)
        if seeds > 1 and tuned.best is not None and tuned.best is not tuned.alone:
            spinner.update(f"trying the best with {seeds} seeds")
            tuned.gain = search.gain_over_seeds(tuned.best, tuned.alone, seeds, wanted, run)
    tell_tuned(tuned, as_json=as_json)


def _numbers(option: str, text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 7 for word in words):
        raise UsageError(f"{option} takes whole numbers with commas, such as 1,2,4; not {one_line(text, 60)}")
    return [int(word) for word in words]


class _Watch:
    def __init__(self, bar: Progress, total: int) -> None:
        self._bar = bar
        self._total = total
        self._kept = 0
        self._task = bar.add_task("sweep", total=total, rest="")

    def __call__(self, sweep: Sweep, left_s: float | None) -> None:
        failed = f", {len(sweep.failures)} failed" if sweep.failures else ""
        left = "" if left_s is None else f", about {duration(left_s, rough=True)} left"
        self._kept = sweep.known + sweep.done
        self._bar.update(self._task, completed=self._kept + len(sweep.failures), rest=failed + left)

    def kept(self) -> str:
        """Say what a sweep that is interrupted now leaves."""
        return f"{self._kept:,} of {counted(self._total, 'point')} are done and kept; {_GOES_ON}"


def _tell(sweep: Sweep, out: Path, varied: Sequence[str], repeats: Sequence[str], *, as_json: bool) -> None:
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
    console.say(
        f"{counted(sweep.total, 'point')}: {sweep.known:,} known, {sweep.done:,} run in "
        f"{duration(sweep.wall_s, rough=True)}, {len(sweep.failures):,} failed. Table: {out / TABLE}"
    )
    if sweep.failures:
        why = next(iter(sweep.failures.values()))
        console.say(f"failed, for example: {why} ({out / FAILED} has all)")
    found = scenarios(sweep.table, varied, repeats)
    for heading, words in answers(found)[:MOST_ROWS] if found else ():
        console.say(f"{heading} {words}".lstrip())
    for one in found[:MOST_ROWS]:
        head, rows = one.rows(MOST_ROWS)
        if rows:
            title = "No choice has both less waiting and less degradation than these"
            print_table(console, f"{title}: {one.name}" if one.name else title, head, rows)


def _tell_dry(total: int, known: int, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"points": total, "known": known, "to_run": total - known}))
    else:
        typer.echo(f"{counted(total, 'point')}, {known:,} of them done; {total - known:,} to run")
