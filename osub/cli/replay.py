"""``osub replay``: a trace on a real Slurm; a progress bar, and what Ctrl-C means."""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from typer import Option

from analysis.metrics import host_use
from deploy.local.host import busy_warning
from deploy.local.state import ClusterState
from deploy.local.watch import watch_embedded
from foundation.errors import ClusterError, InputError, UsageError
from foundation.files import refuse_unwritable
from foundation.interruption import is_noted, note, on_signals, status
from foundation.records import load_run
from foundation.slurm import CommandSlurm
from foundation.slurm.run_command import check_options
from foundation.units import counted, counted_of, duration
from osub.cli.application import takes
from osub.cli.completion import clusters
from osub.cli.out_file import Force, clear_run
from osub.cli.terminal import progress_bar
from osub.live.cluster import find_cluster, meet
from osub.live.forward import forward_replay, is_in_containers
from osub.live.gang import AUTO, FoundGang, collector_of, find_gang
from osub.live.on_demand import OnDemandDriver, absolute_settings, compared, files_of, session_of
from predictor.chosen import other_cpu
from simulator.pairing import read_pair_table
from submitter import plan as planning
from submitter.replay import Collect, DrawnUp, Look, Replay, Wish, draw_up
from submitter.replay import ReplayProgress as Standing
from submitter.replay import dry_run as scripts


def watch_replay(
    session: Replay,
    title: str = "replay",
    collect: Collect | None = None,
    most_s: float = math.inf,
    *,
    outlives_us: bool = True,
    look: Look | None = None,
) -> bool:
    """Carry a replay out under a progress bar; returns whether it finished.

    A signal after which it was detached or cancelled is noted, for the command's exit status.
    After ``most_s`` seconds the jobs that are left are cancelled. A cluster that does not outlive the command
    is nothing to detach from. ``look`` tells who uses the host, once a second; None: nodes are elsewhere.
    """
    bar = progress_bar(" done {task.fields[rest]}")
    asked: list[int] = []
    with on_signals(asked.append), bar:
        task = bar.add_task(escape(title), total=len(session.plan.jobs), rest="")

        def watch(now: Standing) -> Wish:
            left = duration(now.left_s, rough=True)
            rest = f"{now.running} running {now.waiting} waiting, about {left} left"
            if now.blocked:
                rest += f", {now.blocked} may never start ({escape(str(now.blocked_by))})"
            bar.update(task, completed=now.done, rest=rest + (", Slurm is away" if now.slurm_away else ""))
            if not asked:
                return Wish.CANCEL if now.now_s > most_s else Wish.GO_ON
            bar.stop()
            wish = _ask(now, polite=asked[-1] == signal.SIGINT, outlives_us=outlives_us)
            if wish is not Wish.GO_ON:
                note(asked[-1])
            asked.clear()
            bar.start()
            return wish

        return session.run(watch, collect, look)


def _ask(now: Standing, *, polite: bool, outlives_us: bool) -> Wish:
    """Ask what to do until there is an answer; detach without a terminal, for that loses nothing."""
    if not polite or not sys.stdin.isatty():
        return Wish.DETACH
    if outlives_us:
        ways = {"detach": Wish.DETACH, "cancel": Wish.CANCEL, "go on": Wish.GO_ON}
        choice = "[d]etach, [c]ancel all jobs, or [g]o on? "
    else:
        ways = {"end": Wish.DETACH, "go on": Wish.GO_ON}
        choice = "[e]nd here, or [g]o on? "
    question = f"{counted_of(now.done, now.total, 'job')} done. {choice}"
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        while True:
            answer = input(question).strip().lower()
            for word, wish in ways.items():
                if answer and word.startswith(answer):
                    return wish
    except (EOFError, KeyboardInterrupt):
        return Wish.DETACH
    finally:
        signal.signal(signal.SIGINT, ours)


def danger_of(path: Path, threshold: float | None, multiplicity: int) -> planning.ConflictPairs:
    """Return the pairs of which one loses more than the threshold to the other.

    Raises
    ------
    InputError
        The table cannot be read.
    UsageError
        The threshold is no share, or cores are not shared.
    """
    if multiplicity < 2:
        raise UsageError("--pairing has nothing to do where a core has one job: this partition shares none")
    least = planning.checked_threshold(threshold, multiplicity)
    table = read_pair_table(path)
    names = table.applications
    pairs = {
        (names[min(one, other)], names[max(one, other)])
        for one in range(len(names))
        for other in range(one, len(names))
        if max(table.loss[one, other], table.loss[other, one]) > least
    }
    return planning.ConflictPairs(frozenset(names), frozenset(pairs))


def check_pairing(options: Sequence[str], apps: Path | None, fit: float | None) -> None:
    """Refuse what does not go with ``--pairing``; raises UsageError."""
    if fit is not None:
        raise UsageError("--pairing does not go with --fit: a scaled log does not say what its jobs run")
    if apps is None:
        raise UsageError(
            "--pairing needs --apps: a log does not say which applications its jobs run "
            "(CSV trace_job,app,args,application)"
        )
    if any(option.partition("=")[0] in {"exclude", "nodelist"} for option in options):
        raise UsageError("--pairing chooses nodes itself: leave out --sbatch-option exclude and nodelist")


_MOST_REASONS = 3


@takes(planning.ReplaySpec)
def replay(
    spec: planning.ReplaySpec,
    ctx: typer.Context,
    cluster: Annotated[
        Path | None, Option(help="Folder with slurm.conf (an embedded cluster's).", autocompletion=clusters)
    ] = None,
    dry_run: Annotated[
        bool,
        Option("--dry-run", help="Print what sbatch would be given, job by job; submit and write nothing."),
    ] = False,
    resume: Annotated[
        bool, Option("--resume", help="Go on with a killed or detached replay, as it was begun.")
    ] = False,
    force: Force = False,
    repeat: Annotated[
        int,
        Option(
            min=0,
            metavar="TIMES",
            help="Replay again, at most so often, where others used too much of the host; "
            "the RUN before is kept as RUN.unfit-1.",
        ),
    ] = 0,
    most_s: Annotated[float, Option(hidden=True, help="Cancel the jobs that are left then.")] = math.inf,
    block_jobs: Annotated[
        int | None, Option(hidden=True, min=1, help="The trace is so many jobs again and again.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Submit each job of TRACE to Slurm at its instant, follow it, and write the RUN.

    Ctrl-C asks whether to detach (the jobs go on, --resume follows them) or to cancel them all.
    The exit status is then 130; after SIGTERM, which detaches, it is 143.
    """
    trace, out = spec.paths[:2]
    _check_out(
        out, dry_run=dry_run, resume=resume, force=force, repeat=repeat, contained=is_in_containers(cluster)
    )
    options = check_options(spec.sbatch_option or ())
    _check_inputs(spec, options, from_file=bool(ctx.default_map), contained=is_in_containers(cluster))
    if cluster is not None and is_in_containers(cluster):
        code = _replay_contained(spec, cluster, dry_run=dry_run, resume=resume, force=force)
        if code == 0 and _begins_again(ctx, out, repeat):
            return
        raise typer.Exit(code)
    client, embedded = find_cluster(cluster)
    meet(client)
    if resume:
        session = Replay.resume(out, client)
        driver = _driver(out, client, session.options)
    else:
        begun = _begin(spec, options, client, embedded, force=force, dry_run=dry_run, block_jobs=block_jobs)
        if begun is None:
            return
        session, driver = begun
    if driver is not None:
        session.accompany(driver)
    is_finished = watch_replay(
        session,
        collect=collector_of(session.options.slices, client.config()),
        most_s=most_s,
        look=None if embedded is None else watch_embedded(embedded),
    )
    if is_finished and _begins_again(ctx, out, repeat):
        return
    _tell(session, trace, out, cluster, is_finished=is_finished, as_json=as_json)
    if driver is not None and is_finished and not as_json:
        typer.echo("\n".join(compared(load_run(out).jobs, driver.simulated())))
    if is_noted():
        raise typer.Exit(status())


def _replay_contained(
    spec: planning.ReplaySpec, cluster: Path, *, dry_run: bool, resume: bool, force: bool
) -> int:
    trace, out, *tables = spec.paths
    if not (dry_run or resume) and (busy := busy_warning()) is not None:
        typer.echo(f"osub: {busy}", err=True)
    return forward_replay(
        cluster,
        on_signals,
        (trace, *tables, *files_of(spec.settings or ())),
        out,
        finds_gangd=spec.gangd == AUTO,
        dry_run=dry_run,
        resume=resume,
        force=force,
    )


def _begin(
    spec: planning.ReplaySpec,
    options: tuple[str, ...],
    client: CommandSlurm,
    embedded: ClusterState | None,
    *,
    force: bool,
    dry_run: bool,
    block_jobs: int | None,
) -> tuple[Replay, OnDemandDriver | None] | None:
    """Begin a new replay, with what carries out its on-demand jobs; or show it, and begin none."""
    trace, out, apps, pairing, calibration = spec.paths
    wanted = spec.wanted
    found = _gang(spec.gangd, embedded, client, wanted)
    # It takes a moment, and the run's clock starts with it.
    busy = None if embedded is None or dry_run else busy_warning()
    said = {
        "calibration": calibration.resolve() if calibration else None,
        "sbatch_option": options,
        "settings": absolute_settings(spec.settings or ()),
    }
    asked = planning.ReplayOptions(
        **msgspec.structs.asdict(spec) | said,
        gang=found.settings,
        slices=found.slices,
        pin=embedded is not None and not embedded.shape.virtual and embedded.shape.cores > 1,
        environment=planning.exported(spec.export or (), os.environ, one_host=embedded is not None),
        block_jobs=block_jobs,
    )
    driver = _driver(trace, client, asked)
    danger = None if pairing is None else _danger(pairing, spec.pairing_threshold, client, wanted)
    with (
        nullcontext(apps) if driver is None else driver.applications() as table,
        _made_fit(trace, client, asked, table) as (path, wished),
    ):
        if dry_run:
            _show(draw_up(path, client, wished, table, danger, lenient=spec.lenient), wished, out)
            return None
        if driver is not None:
            driver.refuse_without_rights()
        clear_run(out, force, resumable=True)
        session = Replay.begin(path, out, client, wished, table, danger=danger, lenient=spec.lenient)
    for line in (*session.kept_apart, *planning.left_out(session.plan), *filter(None, [busy])):
        typer.echo(f"osub: {line}", err=True)
    return session, driver


def _driver(trace: Path, client: CommandSlurm, asked: planning.ReplayOptions) -> OnDemandDriver | None:
    """Return what carries out the mechanism for on-demand jobs, if there is one, on nodes of batch jobs."""
    if asked.on_demand is None:
        return None
    pool = planning.look_at_target(client, asked.wanted).batch
    if asked.on_demand == "share" and pool.multiplicity < 2:
        raise UsageError("--on-demand share needs a partition of two jobs a core, best under gangd")
    system = f"N{pool.nodes}C{pool.cores}"
    session = session_of(trace, system, asked.on_demand, asked.settings or (), asked.seed)
    return OnDemandDriver(client, session, pool.names, pool.memory_mib)


def _danger(
    pairing: Path, threshold: float | None, client: CommandSlurm, wanted: planning.RequestedTarget
) -> planning.ConflictPairs:
    """Return which pairs must not meet; says it where they were measured on another processor."""
    foreign = other_cpu(pairing)
    if foreign is not None:
        typer.echo(f"osub: {foreign}", err=True)
    target = planning.look_at_target(client, wanted)
    return danger_of(pairing, threshold, max(target.batch.multiplicity, target.interactive.multiplicity))


@contextmanager
def _made_fit(
    trace: Path,
    client: CommandSlurm,
    asked: planning.ReplayOptions,
    apps: Path | None,
) -> Iterator[tuple[Path, planning.ReplayOptions]]:
    """Give the trace and the options as they are; with ``--fit``, those of what is made of it.

    The memory that a log asks for is of another machine.
    """
    if asked.fit is None:
        yield trace, asked
        return
    if apps is not None or asked.speedup != 1.0:
        raise UsageError(
            "--fit chooses jobs and times itself: it goes neither with --apps nor with --speedup"
        )
    with planning.fitting(trace, asked, planning.look_at_target(client, asked.wanted)) as (path, line):
        typer.echo(f"osub: {line}", err=True)
        yield path, msgspec.structs.replace(asked, start=None, length=None, memory=False)


def _show(drawn: DrawnUp, options: planning.ReplayOptions, out: Path) -> None:
    """Print what sbatch would be given."""
    for line in planning.left_out(drawn.plan):
        typer.echo(f"osub: {line}", err=True)
    for script in scripts(drawn.plan, drawn.target, options, out.absolute()):
        typer.echo(script)


def _gang(
    where: str, embedded: ClusterState | None, client: CommandSlurm, wanted: planning.RequestedTarget
) -> FoundGang:
    found = find_gang(where, embedded, client.config(), planning.look_at_target(client, wanted).node_names)
    if found.remark is not None:
        typer.echo(f"osub: {found.remark}", err=True)
    return found


def _begins_again(ctx: typer.Context, out: Path, repeat: int) -> bool:
    """Rename a RUN that is unfit to judge by and replay again, where that is asked for; whether it was."""
    why = host_use(load_run(out)).unfit if repeat else None
    if why is None:
        return False
    earlier = {path.name for path in out.absolute().parent.iterdir()}
    names = (f"{out.name}.unfit-{number}" for number in range(1, len(earlier) + 2))
    aside = out.rename(out.with_name(next(name for name in names if name not in earlier)))
    typer.echo(f"osub: {why}: this RUN is {aside} now, and the replay begins again", err=True)
    ctx.invoke(ctx.command, **(ctx.params | {"repeat": repeat - 1}))
    return True


def _check_out(out: Path, *, dry_run: bool, resume: bool, force: bool, repeat: int, contained: bool) -> None:
    if repeat and resume:
        raise UsageError("--repeat begins a replay anew, and --resume goes on with one: give one of them")
    if not resume:
        if not dry_run:
            refuse_unwritable(out)
        return
    if dry_run:
        raise UsageError("--dry-run begins nothing, and --resume goes on: give one of them")
    if force:
        raise UsageError("--force replaces a RUN, and --resume goes on with it: give one of them")
    if not contained and not out.exists():  # a container's may not have been copied yet
        raise UsageError(f"--resume: there is no RUN in {out}")


def _check_inputs(
    spec: planning.ReplaySpec, options: Sequence[str], *, from_file: bool, contained: bool
) -> None:
    for name in ("start", "length", "speedup", "patience", "fit"):
        number = getattr(spec, name)
        if number is not None and not math.isfinite(number):
            raise UsageError.naming(f"{{{name}}} must be a number, not {number}")
    if spec.patience < 0:
        raise UsageError.naming(f"{{patience}} must not be negative, as {spec.patience:g} is")
    _, _, apps, pairing, calibration = spec.paths
    if spec.on_demand is None and spec.settings:
        raise UsageError("--set is for --on-demand: name a mechanism, such as cua-paa")
    if spec.on_demand is not None and (
        any((apps, pairing, spec.fit, spec.no_requeue))
        or spec.speedup != 1
        or spec.start is not None
        or spec.length
    ):
        raise UsageError(
            "--on-demand replays a trace as it is, and its jobs save and go on: it goes with none of --apps, "
            "--pairing, --fit, --speedup, --start, --length and --no-requeue"
        )
    if pairing is not None:
        check_pairing(options, apps, spec.fit)
    if calibration is not None and not calibration.is_file():
        raise InputError(f"--calibration: there is no file {calibration}")
    if contained and from_file:
        raise UsageError("--spec is read on this host: name the options for a cluster in containers")


def _tell(
    session: Replay, trace: Path, out: Path, cluster: Path | None, *, is_finished: bool, as_json: bool
) -> None:
    """Say what came of the replay; jobs that did not run well with the reasons, on standard error."""
    jobs, states, reasons = len(session.plan.jobs), session.states(), session.reasons()
    if as_json:
        outcome = {"run": str(out), "finished": is_finished, "jobs": jobs, "states": states}
        typer.echo(json.dumps(outcome | {"reasons": reasons, "remark": session.remark}))
    elif is_finished:
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        line = f"`osub report {shlex.quote(str(out))} --html report.html` draws the run"
        typer.echo(f"{counted(jobs, 'job')} in {out} ({counts}); {line}")
    else:
        named = ["--cluster", str(cluster)] if cluster else []
        again = shlex.join(["osub", "replay", str(trace), *named, "--out", str(out), "--resume"])
        typer.echo(f"detached; `{again}` goes on")
    failure = session.failure()
    if failure is not None:
        typer.echo(f"osub: {states['FAILED']} of {counted(jobs, 'job')} FAILED, such as {failure}", err=True)
    for reason, count in list(reasons.items())[:_MOST_REASONS]:
        typer.echo(f"osub: {counted_of(count, jobs, 'job')}: {reason}", err=True)
    if reasons:
        typer.echo(f"osub: {out / 'log.jsonl'} has the reason for each job", err=True)
    if session.remark is not None:
        typer.echo(f"osub: {session.remark}", err=True)
    if is_finished and states == {"REFUSED": jobs}:
        raise ClusterError(f"Slurm took no job of this trace: {next(iter(reasons), 'see log.jsonl')}")
