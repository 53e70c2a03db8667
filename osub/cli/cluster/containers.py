"""``osub cluster`` on a cluster in containers: the same verbs, states and output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from deploy.compose.cluster import ComposeCluster, ComposeStatus, Options
from deploy.compose.containers import Container
from deploy.compose.engine import EngineName
from deploy.shape import Shape
from osub.cli.cluster.job_counts import job_counts, unreadable_lines
from osub.cli.terminal import Console


def up(
    folder: Path, engine: EngineName, shape: Shape, options: Options, console: Console, *, as_json: bool
) -> None:
    """Start a cluster, and say how to use it."""
    cluster = ComposeCluster(folder)
    with console.status("starting") as spinner:
        state = cluster.up(engine, shape, options, lambda what: spinner.update(escape(what)))
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


def status(folder: Path, *, as_json: bool) -> int:
    """Print what the cluster looks like; returns the exit code."""
    status_now = ComposeCluster(folder).status()
    if as_json:
        typer.echo(json.dumps(facts(status_now)))
    else:
        _print(status_now)
    return 0 if status_now.is_whole else 1


def listed(status_now: ComposeStatus) -> dict[str, Any]:
    """Return what ``osub cluster list --json`` tells of a cluster."""
    shape = status_now.state.shape
    return {
        "engine": str(status_now.state.engine),
        "state": status_now.state.home,
        "system": shape.system,
        "multiplicity": shape.multiplicity,
        "gang": str(shape.gang),
        "daemons": sum(one.is_alive for one in status_now.containers if not one.is_done),
        "daemons_wanted": status_now.daemons_wanted,
    }


def add_row(table: Table, status_now: ComposeStatus) -> None:
    """Add a cluster to the table of ``osub cluster list``."""
    status_json = listed(status_now)
    living = f"{status_json['daemons']} of {status_json['daemons_wanted']} ({status_json['engine']})"
    table.add_row(
        escape(str(status_json["state"])),
        status_json["system"],
        str(status_json["multiplicity"]),
        status_json["gang"],
        living,
    )


def facts(status_now: ComposeStatus) -> dict[str, object]:
    """Return a status as JSON, with the embedded cluster's keys and the keys of containers besides."""
    state, jobs = status_now.state, status_now.jobs
    return {
        "system": state.shape.system,
        "shape": msgspec.to_builtins(state.shape),
        "engine": str(state.engine),
        "conf": "/etc/slurm/slurm.conf",
        "daemons": {one.name: one.is_alive for one in status_now.containers if not one.is_done},
        "containers": [_container_json(one, status_now) for one in status_now.containers],
        "nodes": None
        if status_now.nodes is None
        else {node.name: "+".join(sorted(node.states)) for node in status_now.nodes},
        "jobs": None if jobs is None else job_counts(jobs),
        "unreadable_jobs": None if jobs is None else msgspec.to_builtins(jobs.unreadable),
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


def _print(status_now: ComposeStatus) -> None:
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
    for name, words in status_now.failures.items():
        console.print(f"{name} said last ({state.engine} logs {name}):", highlight=False, markup=False)
        for line in words:
            console.print(f"  {line}", highlight=False, markup=False)
    if status_now.jobs is None:
        console.print("slurmctld does not answer; `osub cluster up` starts what has died")
        return
    counts = ", ".join(f"{count} {name.lower()}" for name, count in job_counts(status_now.jobs).items())
    console.print(f"jobs: {counts or 'none'}", highlight=False)
    for line in unreadable_lines(status_now.jobs):
        console.print(line, highlight=False, markup=False)
    running = next((one for one in status_now.containers if one.state == "running"), None)
    for line in _watchers_in_words(status_now):
        console.print(line, highlight=False, markup=False)
    if running is not None:
        console.print(f"logs: {state.engine} logs {running.name}", highlight=False, markup=False)
