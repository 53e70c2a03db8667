"""``osub gang``: control the gang scheduler while it runs, and the CPU-hours that jobs ran and were held.

Root and the user of gangd may do anything, the owner of a job may give it less weight. Orders outlive
restarts of gangd; one about a job ends with the job.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from foundation.errors import ClusterError, UsageError
from foundation.interruption import on_signals
from foundation.one_line import one_line
from foundation.slurm.hosts import expand_hosts
from foundation.units import counted
from gangd.controller.controller_status import ControllerStatus, TunedStatus, read_status
from gangd.controller.order_socket import ask
from gangd.controller.orders import MOST_TARGETS, OrderRequest, OrderTarget, Verb, is_name
from gangd.controller.slicelog import Hours, hours_by_job, read_rows, summed
from gangd.core.gang_settings import MS
from gangd.core.slice_timing import REFILL_NS
from osub.cli.application import application
from osub.cli.completion import clusters
from osub.cli.terminal import Console
from osub.cli.top.frame import complaint_of, order_line
from osub.live.gangd_state import find_gangd, pulse_of

By = Literal["job", "user", "account"]
HOUR_S = 3600.0

State = Annotated[
    Path | None,
    Option(
        "--state",
        help="Folder of an embedded cluster, or one in containers.",
        metavar="DIR",
        autocompletion=clusters,
    ),
]
Gangd = Annotated[
    Path | None,
    Option("--gangd", help="State folder of a gangd (/var/lib/gangd where there is one).", metavar="DIR"),
]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]


def accounts(
    by: Annotated[By, Option(help="What to sum by.")] = "job",
    hours: Annotated[float | None, Option(min=0.0, help="Only the last so many hours.", metavar="H")] = None,
    record: Annotated[Path | None, Option(help="A slice record, or its folder.", metavar="DIR")] = None,
    state: State = None,
    gangd: Gangd = None,
    as_json: Json = False,
) -> None:
    """Sum the CPU-hours that jobs ran and were held for, by job, user or account.

    From the slice record (`record` in gangd.toml): what Slurm bills, held or not, taken apart.
    """
    path = record or _record_of(state, gangd)
    since_s = 0.0 if hours is None else time.time() - hours * HOUR_S
    jobs, unknown = hours_by_job(read_rows(path, since_s))
    sums = {
        "job": lambda: sorted(jobs.values(), key=lambda one: -one.held_s),
        "user": lambda: summed(jobs.values(), lambda one: one.user),
        "account": lambda: summed(jobs.values(), lambda one: one.account),
    }[by]()
    if as_json:
        answer = {"by": by, "unknown_jobs": sorted(unknown), "sums": [_hours_json(one) for one in sums]}
        typer.echo(json.dumps(answer))
        return
    _show_hours(by, sums, len(unknown))


def _record_of(state: Path | None, gangd: Path | None) -> Path:
    found = read_status(_status_folder(state, gangd)).record
    if found is None:
        raise UsageError("gangd writes no slice record: set `record` in gangd.toml, or name one by --record")
    return Path(found)


def _status_folder(state: Path | None, gangd: Path | None) -> Path:
    """Return where gangd writes its status; in the controller's container the command runs there and ends."""
    from osub.live.forward import forward_order, is_in_containers

    if state is not None and gangd is None and is_in_containers(state):
        raise typer.Exit(forward_order(state, on_signals))
    return find_gangd(state, gangd)[0]


def _hours_json(one: Hours) -> dict[str, object]:
    return {
        "name": one.name,
        "user": one.user,
        "account": one.account,
        "partition": one.partition,
        "jobs": len(one.jobs),
        "ran_cpu_h": one.ran_s / HOUR_S,
        "held_cpu_h": one.held_s / HOUR_S,
        "held_share": one.held_share,
    }


def _show_hours(by: By, sums: Sequence[Hours], unknown: int) -> None:
    console = Console()
    more = ("user", "account", "partition") if by == "job" else ("jobs",)
    table = Table(by, *more, "CPU h ran", "CPU h held", "held")
    for one in sums:
        words = (one.user, one.account, one.partition) if by == "job" else (str(len(one.jobs)),)
        cells = (str(one.name) if one.name is not None else None, *words)
        table.add_row(
            *(Text("-" if cell is None else one_line(cell)) for cell in cells),
            f"{one.ran_s / HOUR_S:.3f}",
            f"{one.held_s / HOUR_S:.3f}",
            f"{one.held_share:.0%}",
        )
    console.print(table)
    if unknown:
        console.print(f"and {counted(unknown, 'job')} of which the record does not say whose they are")


app = application("Control the gang scheduler while it runs: pause, resume, drain, weigh; sum what it held.")
app.command()(accounts)

Nodes = Annotated[list[str] | None, Option("--node", "-w", help="Nodes, such as n[1-4].", metavar="NODES")]
Partitions = Annotated[list[str] | None, Option("--partition", "-p", help="A partition.", metavar="NAME")]
Jobs = Annotated[
    list[str] | None, Option("--job", "-j", help="A job, or one task of an array.", metavar="ID")
]
Everything = Annotated[bool, Option("--all", help="The whole cluster.")]


_VERBS: dict[Verb, str] = {
    "pause": "Stop gang scheduling there: jobs take turns no more, all of them run side by side.",
    "resume": "Take a pause or drain of the very same node, partition or job back.",
    "drain": "Take no new jobs into turns there: later ones run freely, the others go on until they end.",
}


def _command(verb: Verb) -> Callable[..., None]:
    """Return the command of a verb that needs no more than to know what it is about."""

    def order(
        node: Nodes = None,
        partition: Partitions = None,
        job: Jobs = None,
        everything: Everything = False,
        state: State = None,
        gangd: Gangd = None,
        as_json: Json = False,
    ) -> None:
        targets = _targets(node, partition, job, everything)
        if not targets:
            raise UsageError("name what it is about: --node, --partition, --job or --all")
        _order(verb, targets, _status_folder(state, gangd), as_json)

    return order


for _verb, _about in _VERBS.items():
    app.command(_verb, help=_about)(_command(_verb))


@app.command()
def weight(
    value: Annotated[
        float | None, Argument(help="1/1024 to 1024; 2 gets twice the slices of 1.", metavar="WEIGHT")
    ] = None,
    reset: Annotated[bool, Option("--reset", help="As the configuration says again.")] = False,
    partition: Partitions = None,
    job: Jobs = None,
    state: State = None,
    gangd: Gangd = None,
    as_json: Json = False,
) -> None:
    """Give the jobs of a partition, or a job, another weight. A job's owner can only lower it."""
    if (value is None) != reset:
        raise UsageError("give a weight, or --reset, and not both")
    if value is not None and not 1 / 1024 <= value <= 1024:
        raise UsageError(f"weight {value:g}: 1/1024 to 1024 are possible")
    targets = _targets(None, partition, job, everything=False)
    if not targets:
        raise UsageError("name whose weight it is: --partition or --job")
    _order("weight", targets, _status_folder(state, gangd), as_json, value)


@app.command()
def status(state: State = None, gangd: Gangd = None, as_json: Json = False) -> None:
    """Show orders in force, and slices that tune themselves; exit code 1 if gangd writes no more."""
    found = read_status(_status_folder(state, gangd))
    if as_json:
        about = ("time_ms", "controller", "pid", "running_jobs", "shared_jobs", "quantum_ms", "tuned")
        fields = (*about, "orders", "orders_left_out")
        answer = {name: getattr(found, name) for name in fields}
        answer["free_jobs"] = {job.job: job.ordered for job in found.jobs if job.ordered is not None}
        typer.echo(msgspec.json.encode(answer).decode())
    else:
        _show(found)
    raise typer.Exit(1 if pulse_of(found).is_stale else 0)


def _show(status: ControllerStatus) -> None:
    console = Console()
    complaint = complaint_of(pulse_of(status), status.pid)
    if complaint is not None:
        console.say(complaint)
    free = sum(job.ordered is not None for job in status.jobs)
    summary = f"{counted(status.shared_jobs, 'job')} on shared cores, {free} of them let run by orders"
    lines = [summary, *map(order_line, status.orders)]
    if status.orders_left_out:
        lines.append(f"and {counted(status.orders_left_out, 'more order')}")
    if not status.orders:
        lines.append("no order is in force")
    if status.tuned is not None:
        asked = f"asked for: {status.asked_quantum_ms:g} ms"
        lines.append(f"slices of {status.quantum_ms:g} ms tune themselves ({asked})")
        lines += map(_tuned_line, status.tuned)
    for line in lines:
        console.say(line)


def _tuned_line(group: TunedStatus) -> str:
    jobs = ", ".join(map(str, group.gangs[:8])) + (", ..." if len(group.gangs) > 8 else "")
    line = f"jobs {jobs}: turns of {group.turn_ms:g} ms"
    if group.cost_ms is not None:
        refill_ms = REFILL_NS / MS
        took_ms = group.cost_ms - refill_ms
        line += f", as switches take {took_ms:.1f} ms each ({took_ms / group.turn_ms:.1%})"
        line += f", caches {refill_ms:g}"
    if group.left_share is None:
        return f"{line}; hold mode as configured"
    mode = "frozen" if group.freezes else "not frozen"
    return f"{line}; {mode}, as owners of slices leave {group.left_share:.1%}"


def _targets(
    nodes: list[str] | None, partitions: list[str] | None, jobs: list[str] | None, everything: bool
) -> tuple[OrderTarget, ...]:
    targets = [OrderTarget("node", name) for text in nodes or () for name in _expanded(text)]
    targets += [OrderTarget("partition", name) for name in _names("--partition", partitions)]
    targets += [OrderTarget("job", name) for name in _names("--job", jobs)]
    if everything:
        if targets:
            raise UsageError("--all is everything: name nothing else")
        return (OrderTarget("all"),)
    once = tuple(dict.fromkeys(targets))
    if len(once) > MOST_TARGETS:
        raise UsageError(f"{counted(len(once), 'name')} at once: give {MOST_TARGETS:,} at most, or --all")
    return once


def _names(option: str, texts: list[str] | None) -> Iterator[str]:
    for name in (name for text in texts or () for name in text.split(",")):
        if not is_name(name):
            raise UsageError(f"{option} {one_line(name, 60)!r}: Slurm has no such names")
        yield name


def _expanded(text: str) -> tuple[str, ...]:
    try:
        names = expand_hosts(text)
    except ClusterError as error:
        raise UsageError(f"--node {text}: {error}") from error
    if not names:
        raise UsageError(f"--node {text!r} names no node")
    return tuple(names)


def _order(
    verb: Verb, targets: tuple[OrderTarget, ...], folder: Path, as_json: bool, weight: float | None = None
) -> None:
    try:
        request = msgspec.convert(
            {"verb": verb, "targets": [(one.kind, one.name) for one in targets], "weight": weight},
            OrderRequest,
        )
    except msgspec.ValidationError as error:
        raise UsageError(f"{verb}: {error}") from error
    answer = ask(folder, request)
    if as_json:
        typer.echo(msgspec.json.encode(answer).decode())
    elif answer.done:
        Console().say(answer.text)
    else:
        raise ClusterError(answer.text)
    if not answer.done:
        raise typer.Exit(1)
