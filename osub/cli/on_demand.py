"""``osub on-demand``: notice of jobs that are to start the moment they come, and the service for them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from foundation.errors import UsageError
from foundation.units import counted
from osub.cli.application import application
from osub.cli.completion import clusters
from osub.live.cluster import client_of

app = application(
    "Jobs that are to start the moment they come, on a running Slurm: notice, arrival, service."
)

Cluster = Annotated[
    Path | None,
    Option("--cluster", help="Folder with slurm.conf (an embedded cluster's).", autocompletion=clusters),
]


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def notice(
    words: Annotated[list[str], Argument(help="Options of sbatch, and the script.", metavar="SCRIPT")],
    at: Annotated[str, Option(help="About when: now, now+20minutes, 14:30, 2027-01-31T14:30.")],
    comment: Annotated[str, Option(help="What else the job's comment says.")] = "",
    cluster: Cluster = None,
) -> None:
    """Submit a job that comes at about TIME, as `sbatch` would, on nodes of its own; print its number.

    Give these options first, then those of sbatch (--nodes=2 --time=10) and the script.
    """
    from osub.live.notices import give_notice

    typer.echo(give_notice(client_of(cluster), words, at, comment))


@app.command()
def now(
    job: Annotated[int, Argument(help="Number of a job that gave notice.", min=1)], cluster: Cluster = None
) -> None:
    """Let a job that gave notice come now."""
    from osub.live.notices import come

    come(client_of(cluster), job)


@app.command()
def serve(
    mechanism: Annotated[str, Option(help="Such as cua-paa (docs/hybrid.md).")],
    user: Annotated[list[str], Option(help="Who may give notice; may be repeated.")],
    most_nodes: Annotated[
        int | None, Option(min=1, help="Nodes of on-demand jobs together; by default half of them.")
    ] = None,
    partition: Annotated[
        str | None, Option("--partition", "-p", help="By default Slurm's default partition.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="warning, release, preemption (docs/hybrid.md)."),
    ] = None,
    cluster: Cluster = None,
) -> None:
    """Free nodes for the on-demand jobs of some users, until Ctrl-C or SIGTERM (administrators)."""
    from osub.live.notices import NoticeService, mechanism_named, serve_alone

    chosen = mechanism_named(mechanism, settings or ())
    client = client_of(cluster)
    found = {one.name: one for one in client.partitions() if one.name == partition or one.is_default}
    pool = found.get(partition) if partition is not None else next(iter(found.values()), None)
    if pool is None:
        raise UsageError(f"--partition {partition or ''}: there is none; `sinfo` lists them")
    if most_nodes is not None and most_nodes > len(pool.nodes):
        raise UsageError(f"--most-nodes {most_nodes}: {pool.name} has {counted(len(pool.nodes), 'node')}")
    with serve_alone(f"{client.config().get('SLURM_CONF')} {pool.name}"):
        service = NoticeService(
            client,
            chosen,
            pool.nodes,
            partition=pool.name,
            users=user,
            most_nodes=most_nodes or max(1, len(pool.nodes) // 2),
        )
        service.refuse_without_rights()
        typer.echo(f"{mechanism} for on-demand jobs in {pool.name}; Ctrl-C ends it")
        try:
            while True:
                pause_s = service.step()
                while not service.events.empty():
                    kind, fields = service.events.get()
                    said = " ".join(f"{name}={value}" for name, value in fields.items())
                    typer.echo(f"{time.strftime('%H:%M:%S')} {kind} {said}")
                time.sleep(pause_s or 0)
        finally:
            service.close()
