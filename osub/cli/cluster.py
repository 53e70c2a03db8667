"""``osub cluster up|status|down|list``: test clusters on this host, embedded or in containers."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table
from typer import Option

from deploy.compose.cluster import ComposeCluster, ComposeStatus, Options, holds_one, is_left
from deploy.compose.cluster import live_clusters as live_compose_clusters
from deploy.compose.containers import Container
from deploy.compose.engine import EngineName, find_engine
from deploy.compose.plan import DEBIANS, cores_there, read_compose_state
from deploy.local import GangKind, HoldSetting, LocalCluster, QueueKind, Scheduler, Shape, fitting_shape
from deploy.local.cluster import LocalStatus
from deploy.local.host import look_at_host
from deploy.local.state import live_clusters
from foundation.errors import UsageError
from foundation.slurm import JobSnapshot
from osub.cli.application import application
from osub.cli.completion import clusters
from osub.cli.terminal import Console
from osub.live.cluster import default_state

MOST_UNREADABLE = 10


def job_counts(snapshot: JobSnapshot) -> dict[str, int]:
    """Return how many jobs are in which state."""
    return dict(Counter(str(job.state) for job in snapshot.jobs))


def unreadable_lines(snapshot: JobSnapshot) -> list[str]:
    """Return a line for each of the first jobs that cannot be read, and one for the rest."""
    shown = snapshot.unreadable[:MOST_UNREADABLE]
    lines = [f"cannot be read: {one}" for one in shown]
    more = len(snapshot.unreadable) - len(shown)
    return [*lines, f"... and {more} more"] if more else lines


def containers_up(
    folder: Path, engine: EngineName, shape: Shape, options: Options, console: Console, *, as_json: bool
) -> None:
    """Start a cluster, and say how to use it."""
    cluster = ComposeCluster(folder)
    with console.stages("starting") as say:
        state = cluster.up(engine, shape, options, say)
    status_now = cluster.status()
    if as_json:
        typer.echo(json.dumps(facts(status_now)))
        return
    if shape.virtual and shape.nodes > 1:
        typer.echo(f"{shape.system} declares more cores than this host has: nothing is pinned", err=True)
    controller = next((one.name for one in status_now.containers if one.role == "controller"), "controller")
    typer.echo(f"{state.shape.system} is up: {engine} exec -it -w /shared {controller} bash")
    for line in _watchers_in_words(status_now):
        typer.echo(line)


def containers_status(folder: Path, *, as_json: bool) -> int:
    """Print what the cluster looks like; returns the exit code."""
    status_now = ComposeCluster(folder).status()
    if as_json:
        typer.echo(json.dumps(facts(status_now)))
    else:
        _print_containers(status_now)
    return 0 if status_now.is_whole else 1


def _listed(engine: str | None, folder: str, shape: Shape, daemons: int, wanted: int) -> dict[str, Any]:
    """Return what ``osub cluster list --json`` tells of a cluster."""
    return {
        "engine": engine,
        "state": folder,
        "system": shape.system,
        "multiplicity": shape.multiplicity,
        "gang": str(shape.gang),
        "daemons": daemons,
        "daemons_wanted": wanted,
    }


def _of_slurm(status_now: ComposeStatus | LocalStatus) -> dict[str, object]:
    """Return what Slurm says of nodes and jobs, None where it does not answer."""
    nodes, jobs = status_now.nodes, status_now.jobs
    return {
        "nodes": None if nodes is None else {node.name: "+".join(sorted(node.states)) for node in nodes},
        "jobs": None if jobs is None else job_counts(jobs),
        "unreadable_jobs": None if jobs is None else msgspec.to_builtins(jobs.unreadable),
    }


def _print_jobs(jobs: JobSnapshot | None, console: Console) -> None:
    """Print what jobs there are, or that slurmctld does not answer."""
    if jobs is None:
        console.print("slurmctld does not answer; `osub cluster up` starts what has died")
        return
    counts = ", ".join(f"{count} {name.lower()}" for name, count in job_counts(jobs).items())
    console.print(f"jobs: {counts or 'none'}", highlight=False)
    for line in unreadable_lines(jobs):
        console.say(line)


def facts(status_now: ComposeStatus) -> dict[str, object]:
    """Return a status as JSON, with the embedded cluster's keys and the keys of containers besides."""
    state = status_now.state
    return {
        "system": state.shape.system,
        "shape": msgspec.to_builtins(state.shape),
        "engine": str(state.engine),
        "conf": "/etc/slurm/slurm.conf",
        "daemons": {one.name: one.is_alive for one in status_now.containers if not one.is_done},
        "containers": [_container_json(one, status_now) for one in status_now.containers],
        **_of_slurm(status_now),
        "monitoring": _watchers(status_now),
        "whole": status_now.is_whole,
    }


def _container_json(one: Container, status_now: ComposeStatus) -> dict[str, object]:
    return {
        "name": one.name,
        "role": one.role,
        "state": one.state,
        "health": one.health,
        "restarts": one.restarts,
        "exit_code": one.exit_code if one.state == "exited" else None,
        "logs": f"{status_now.state.engine} logs {one.name}",
        "last_words": list(status_now.failures.get(one.name, ())),
    }


def _watchers(status_now: ComposeStatus) -> dict[str, str | None] | None:
    watch = status_now.state.monitoring
    if watch is None:
        return None
    grafana = next((one.name for one in status_now.containers if one.role == "grafana"), None)
    return {
        "prometheus": f"http://127.0.0.1:{watch.prometheus_port}",
        "grafana": None if grafana is None else f"http://127.0.0.1:{watch.grafana_port}",
        "grafana_user": None if grafana is None else "admin",
        "grafana_password": None
        if grafana is None
        else f"{status_now.state.engine} exec {grafana} cat /etc/osub/password",
    }


def _watchers_in_words(status_now: ComposeStatus) -> list[str]:
    status_json = _watchers(status_now)
    if status_json is None:
        return []
    lines = [f"Prometheus: {status_json['prometheus']}"]
    if status_json["grafana"] is None:
        return [*lines, "no Grafana: its image cannot be had here"]
    return [
        *lines,
        f"Grafana: {status_json['grafana']}, user admin, password: {status_json['grafana_password']}",
    ]


def _print_containers(status_now: ComposeStatus) -> None:
    state = status_now.state
    console = Console()
    console.print(
        f"{state.shape.system} M={state.shape.multiplicity} queues={state.shape.queues} "
        f"gang={state.shape.gang}, in containers of {state.engine}, Debian {state.debian}",
        highlight=False,
    )
    table = Table("container", "state", "health", "Slurm says")
    said = {node.name: "+".join(sorted(node.states)) for node in status_now.nodes or ()}
    for one in status_now.containers:
        if one.is_done:
            continue
        alive = "alive" if one.is_alive else f"[red]{escape(one.state)}[/red]"
        table.add_row(escape(one.name), alive, escape(one.health or ""), escape(said.pop(one.name, "")))
    for name, states in said.items():
        table.add_row(escape(name), "[red]gone[/red]", "", escape(states))
    console.print(table)
    if said or status_now.failures:
        console.print("the same `osub cluster up` starts what has ended", highlight=False)
    for name, words in status_now.failures.items():
        console.say(f"{name} said last ({state.engine} logs {name}):")
        for line in words:
            console.say(f"  {line}")
    _print_jobs(status_now.jobs, console)
    if status_now.jobs is None:
        return
    running = next((one for one in status_now.containers if one.state == "running"), None)
    for line in _watchers_in_words(status_now):
        console.say(line)
    if running is not None:
        console.say(f"logs: {state.engine} logs {running.name}")


app = application("A real Slurm on this host, for experiments.")

State = Annotated[
    Path,
    Option(
        "--state",
        help="Folder that holds the cluster.",
        autocompletion=clusters,
        file_okay=False,
        default_factory=lambda: default_state(),
        show_default="~/.local/state/osub/cluster",
    ),
]
Json = Annotated[bool, Option("--json", help="Print JSON.")]


@app.command()
def up(
    state: State,
    nodes: Annotated[int | None, Option(help="Nodes; by default what suits this host.")] = None,
    cores: Annotated[int | None, Option(help="Cores on each node.")] = None,
    virtual: Annotated[
        bool, Option("--virtual", help="Declare more cores than the host has; nothing is pinned.")
    ] = False,
    threads: Annotated[int, Option(help="Hardware threads a core to declare (with --virtual).")] = 1,
    multiplicity: Annotated[int, Option(help="Most jobs a core, M (MQ: of batch nodes).")] = 1,
    gang: Annotated[GangKind, Option(help="Who takes turns on shared cores.")] = GangKind.NONE,
    hold: Annotated[
        HoldSetting, Option(help="How gangd holds a job whose turn it isn't.")
    ] = HoldSetting.YIELD,
    quantum_ms: Annotated[float, Option(help="Length of gangd's time slices, ms.")] = 250.0,
    queues: Annotated[QueueKind, Option(help="One queue, or interactive nodes apart.")] = QueueKind.SQ,
    interactive_nodes: Annotated[int | None, Option(help="MQ: nodes for interactive jobs.")] = None,
    multiplicity_interactive: Annotated[int, Option(help="MQ: most jobs a core on them.")] = 4,
    scheduler: Annotated[Scheduler, Option(help="Slurm's scheduler.")] = Scheduler.BACKFILL,
    setting: Annotated[
        list[str] | None, Option("--set", help="Further Key=Value of slurm.conf; may be repeated.")
    ] = None,
    engine: Annotated[
        EngineName | None, Option(help="Put it into containers of this engine; by default on this host.")
    ] = None,
    debian: Annotated[
        int | None, Option(help="Containers: Debian 13 (Slurm 24.11, the default) or 12 (22.05).")
    ] = None,
    accounting: Annotated[
        bool | None, Option(help="Containers: slurmdbd with MariaDB; by default yes.")
    ] = None,
    monitoring: Annotated[
        bool, Option("--monitoring", help="Containers: Prometheus and Grafana that watch gangd.")
    ] = False,
    build: Annotated[bool, Option("--build", help="Containers: build the images anew.")] = False,
    as_json: Json = False,
) -> None:
    """Start the cluster, or whatever has died of it, and wait until it takes jobs."""
    if engine is None and (debian is not None or accounting is not None or build or monitoring):
        raise UsageError("--debian, --accounting, --monitoring and --build go with --engine")
    if monitoring and gang is not GangKind.OSUB:
        raise UsageError("--monitoring watches gangd and its agents: it goes with --gang osub")
    if debian is not None and debian not in DEBIANS:
        raise UsageError(f"--debian must be 12 or 13, not {debian}")
    cpus = len(look_at_host().cpus) if engine is None else find_engine(engine).facts.cpus
    if engine is not None and cores is None:
        cores = cores_there(state)
    nodes, cores = fitting_shape(cpus, nodes, cores)
    shape = Shape(
        nodes=nodes,
        cores=cores,
        virtual=virtual or (engine is not None and nodes * cores > cpus),
        threads=threads,
        multiplicity=multiplicity,
        gang=gang,
        hold=hold,
        quantum_ms=quantum_ms,
        queues=queues,
        interactive_nodes=interactive_nodes,
        multiplicity_interactive=multiplicity_interactive,
        scheduler=scheduler,
        settings=tuple(setting or ()),
    )
    console = Console(stderr=True)
    if engine is not None:
        options = Options(
            debian=debian or DEBIANS[0],
            accounting=accounting is not False,
            monitoring=monitoring,
            build=build,
        )
        containers_up(state, engine, shape, options, console, as_json=as_json)
        return
    cluster = LocalCluster(state)
    with console.status("starting") as spinner:
        cluster.up(shape, lambda what: spinner.update(what))
    status_now = cluster.status()
    if as_json:
        typer.echo(json.dumps(_facts(status_now)))
    else:
        typer.echo(f"{shape.system} is up: export {shlex.quote(f'SLURM_CONF={cluster.conf}')}")


@app.command()
def status(state: State, as_json: Json = False) -> None:
    """Say which daemons live, what the nodes do, and how many jobs there are."""
    if read_compose_state(state) is not None:
        raise typer.Exit(containers_status(state, as_json=as_json))
    status_now = LocalCluster(state).status()
    if as_json:
        typer.echo(json.dumps(_facts(status_now)))
    else:
        _print(status_now)
    raise typer.Exit(0 if status_now.is_whole else 1)


@app.command()
def down(
    state: State,
    keep_logs: Annotated[bool, Option("--keep-logs", help="Leave the daemons' logs.")] = False,
    as_json: Json = False,
) -> None:
    """End the cluster and its jobs, and remove everything that `up` made."""
    gone = f"the cluster in {state} is gone"
    if holds_one(state) or is_left(state):
        gone += ", and its volumes with what sacct knew of jobs"
        if keep_logs:
            raise UsageError("--keep-logs goes with an embedded cluster; a container's log goes with it")
        with Console(stderr=True).status("ending") as spinner:
            ended = ComposeCluster(state).down(lambda what: spinner.update(what))
    else:
        ended = LocalCluster(state).down(keep_logs=keep_logs)
    if as_json:
        typer.echo(json.dumps({"ended": ended.existed, "remains": ended.remains, "left": ended.left}))
        return
    if ended.remains:
        typer.echo(f"no cluster in {state}; what an earlier one left there, such as logs, is removed")
    else:
        typer.echo(gone if ended.existed else f"no cluster in {state}")
    if ended.left:
        typer.echo(f"left in {state}, for `up` did not make it: {', '.join(ended.left)}")


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Say which clusters of yours run on this host, and in which folders."""
    listed = [
        _listed(None, str(one.folder), one.state.shape, one.daemons, len(one.state.daemons))
        for one in live_clusters()
    ]
    for one in live_compose_clusters():
        alive = sum(each.is_alive for each in one.containers if not each.is_done)
        state = one.state
        listed.append(_listed(str(state.engine), state.home, state.shape, alive, one.daemons_wanted))
    if as_json:
        typer.echo(json.dumps(listed))
    elif not listed:
        typer.echo("no embedded cluster of yours runs here; `osub cluster up` makes one")
    else:
        table = Table("folder", "system", "M", "gang", "daemons")
        for row in listed:
            living = f"{row['daemons']} of {row['daemons_wanted']}"
            living += f" ({row['engine']})" if row["engine"] else ""
            words = (row["system"], str(row["multiplicity"]), row["gang"], living)
            table.add_row(escape(row["state"]), *words)
        Console().print(table)


def _facts(status_now: LocalStatus) -> dict[str, object]:
    state = status_now.state
    return {
        "system": state.shape.system,
        "shape": msgspec.to_builtins(state.shape),
        "conf": str(state.layout.conf),
        "cgroup": state.cgroup,
        "daemons": status_now.daemons,
        "restarts": {daemon.role: daemon.restarts for daemon in state.daemons},
        "ended": {daemon.role: daemon.ended for daemon in state.daemons if daemon.ended is not None},
        **_of_slurm(status_now),
        "whole": status_now.is_whole,
    }


def _print(status_now: LocalStatus) -> None:
    state = status_now.state
    console = Console()
    console.print(
        f"{state.shape.system} M={state.shape.multiplicity} queues={state.shape.queues} "
        f"gang={state.shape.gang},"
        f" processes tracked by {f'cgroup {state.cgroup}' if state.cgroup != 'none' else 'parentage'}",
        highlight=False,
    )
    is_supervised = state.shape.gang is GangKind.OSUB
    table = Table("daemon", "state", *["restarts", "ended"] * is_supervised, "CPUs", "Slurm says")
    known = {daemon.role: daemon for daemon in state.daemons}
    pins = {f"slurmd {node.name}": node for node in state.layout.nodes}
    said = {f"slurmd {node.name}": "+".join(sorted(node.states)) for node in status_now.nodes or ()}
    for role, alive in status_now.daemons.items():
        cpus = ",".join(map(str, pins[role].cpus)) if role in pins else ""
        ended = [str(known[role].restarts or ""), known[role].ended or ""] * is_supervised
        table.add_row(role, "alive" if alive else "[red]dead[/red]", *ended, cpus, escape(said.get(role, "")))
    console.print(table)
    _print_jobs(status_now.jobs, console)
