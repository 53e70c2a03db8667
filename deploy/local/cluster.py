"""An embedded cluster's life: up, status, down.

`up` writes the configuration, starts munged, then slurmctld and every slurmd at once, and waits until
every node is idle. Called again on the same folder it starts only what has died. `down` ends every
process, removes the nodes' cgroups and every file that `up` made, in whatever state it finds them.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deploy.local.cgroups import node_cgroups, remove_all, thaw_all
from deploy.local.conf import cgroup_conf, slurm_conf
from deploy.local.daemons import (
    Daemon,
    end_daemons,
    find_process,
    kill_processes,
    marked_processes,
    start_daemon,
)
from deploy.local.gang import gang_daemons, prepare_gang
from deploy.local.host import Host, look_at_host
from deploy.local.layout import Layout, make_layout
from deploy.local.ready import wait_for_agents, wait_for_nodes, wait_for_port, wait_for_socket
from deploy.local.shape import Gang, Shape, pin_cpus
from deploy.local.state import FILE, ClusterState, locked, read_state, require_state, write_state
from osub.errors import ClusterError, OutputError
from osub.slurm import CommandSlurm, JobSnapshot, Node
from osub.slurm.faults import SlurmUnreachableError

_UP_TRIES = 3


@dataclass(frozen=True, slots=True)
class Status:
    """What a cluster looks like now: daemons by role (True: alive), nodes and jobs (None: Slurm is away)."""

    state: ClusterState
    daemons: dict[str, bool]
    nodes: tuple[Node, ...] | None
    jobs: JobSnapshot | None

    @property
    def is_whole(self) -> bool:
        """Whether every daemon lives and every node can take jobs."""
        return (
            all(self.daemons.values()) and all(node.is_up for node in self.nodes or ()) and bool(self.nodes)
        )


class LocalCluster:
    """The embedded cluster that lives in one state folder.

    Parameters
    ----------
    folder
        The state folder; made by :meth:`up` where it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    @property
    def conf(self) -> Path:
        """The cluster's slurm.conf."""
        return self.folder / "slurm.conf"

    def client(self) -> CommandSlurm:
        """Return a client of this cluster's Slurm."""
        return CommandSlurm(self.conf)

    def state(self) -> ClusterState:
        """Return what `up` left, or raise ClusterError."""
        return require_state(self.folder)

    def up(self, shape: Shape, say: Callable[[str], None] = lambda _: None) -> ClusterState:
        """Start the cluster, or what has died of it, and wait until every node is idle.

        Raises
        ------
        UsageError
            The shape does not fit this host.
        ClusterError
            A daemon does not start (its log's last line is in the message), or the folder holds a
            cluster of another shape or another user.
        HostError
            Slurm is not installed.
        """
        host = look_at_host()
        pins = pin_cpus(shape, host.cpus)
        with locked(self.folder, create=True):
            state = read_state(self.folder)
            if state is not None:
                return self._revive(state, shape, host, say)
            self._refuse_strangers()
            for attempt in range(_UP_TRIES):
                layout = make_layout(self.folder, shape, pins)
                state = ClusterState(shape=shape, layout=layout, owner=os.geteuid(), cgroup=host.cgroup)
                write_state(self.folder, state)
                try:
                    return self._start_missing(self._prepare(state, host), host, say)
                except BaseException as error:
                    self._down(read_state(self.folder) or state, keep_logs=True)
                    if attempt + 1 == _UP_TRIES or "Address already in use" not in str(error):
                        raise
                    say("a port was taken in the meantime; trying others")
        raise ClusterError("no set of free ports found")

    def status(self) -> Status:
        """Look at daemons, nodes and jobs; Slurm being away is part of the answer."""
        state = self.state()
        alive = {daemon.role: find_process(daemon) is not None for daemon in state.daemons}
        client = CommandSlurm(self.conf, tries=1, timeout_s=5.0)
        nodes: tuple[Node, ...] | None = None
        jobs: JobSnapshot | None = None
        if alive.get("slurmctld"):
            with suppress(SlurmUnreachableError):
                nodes, jobs = tuple(client.nodes()), client.jobs()
        return Status(state, alive, nodes, jobs)

    def down(self, *, keep_logs: bool = False) -> bool:
        """End the cluster and remove what it left; returns whether there was one.

        Raises
        ------
        ClusterError
            A process or cgroup of the cluster survived; the message names it.
        """
        if not self.folder.is_dir():
            return False
        with locked(self.folder, create=False):
            state = read_state(self.folder)
            if state is not None:
                if state.owner != os.geteuid():
                    raise ClusterError(f"the cluster in {self.folder} belongs to user id {state.owner}")
                self._down(state, keep_logs=keep_logs)
            (self.folder / ".lock").unlink(missing_ok=True)
        if not keep_logs:
            with suppress(OSError):
                self.folder.rmdir()
        return state is not None

    def _refuse_strangers(self) -> None:
        """Refuse a folder with files that `down` would remove although `up` did not make them."""
        taken = [name for name in ("slurm.conf", "slurmctld", "munge.key") if (self.folder / name).exists()]
        if taken:
            raise ClusterError(
                f"{self.folder} holds {', '.join(taken)} but no {FILE}: not ours; choose another --state"
            )

    def _revive(
        self, state: ClusterState, shape: Shape, host: Host, say: Callable[[str], None]
    ) -> ClusterState:
        if state.owner != os.geteuid():
            raise ClusterError(f"the cluster in {self.folder} belongs to user id {state.owner}")
        if state.shape != shape:
            raise ClusterError(
                f"{self.folder} holds a cluster of another shape ({state.shape.system}, "
                f"M={state.shape.multiplicity}, gang {state.shape.gang}); "
                f"`osub cluster down --state {self.folder}` first"
            )
        return self._start_missing(self._prepare(state, host), host, say)

    def _prepare(self, state: ClusterState, host: Host) -> ClusterState:
        """Make folders, key and configuration; what is there already is kept."""
        layout = state.layout
        try:
            for path in (layout.run, layout.spool, layout.logs, layout.controller_state):
                path.mkdir(parents=True, exist_ok=True)
            if not layout.munge_key.exists():
                layout.munge_key.touch(mode=0o600)
                layout.munge_key.write_bytes(secrets.token_bytes(1024))
            layout.conf.write_text(slurm_conf(state.shape, host, layout))
            layout.conf.with_name("cgroup.conf").write_text(cgroup_conf(host))
        except OSError as error:
            raise OutputError(f"cannot write below {layout.state}: {error.strerror}") from error
        if state.shape.gang is Gang.OSUB:
            prepare_gang(state.shape, layout)
        return state

    def _start_missing(self, state: ClusterState, host: Host, say: Callable[[str], None]) -> ClusterState:
        alive = {daemon.role: daemon for daemon in state.daemons if find_process(daemon)}
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF": str(state.layout.conf)}
        environment["OSUB_CLUSTER"] = state.layout.cluster_name

        def ensure(roles: dict[str, list[str]]) -> list[Daemon]:
            nonlocal state
            for role, words in roles.items():
                if role not in alive:
                    say(f"starting {role}")
                    log = state.layout.logs / f"{role.replace(' ', '-')}.out"
                    alive[role] = start_daemon(role, words, log, environment)
                    state = msgspec.structs.replace(state, daemons=tuple(alive.values()))
                    write_state(self.folder, state)
            return [alive[role] for role in roles]

        munged = ensure({"munged": _munged(host, state.layout)})
        wait_for_socket(state.layout, munged[0])
        daemons = ensure(_slurm_daemons(host, state.layout))
        wait_for_port(state.layout, daemons)
        wait_for_nodes(state.layout, daemons, CommandSlurm(state.layout.conf, tries=5))
        if state.shape.gang is Gang.OSUB:
            wait_for_agents(state.layout, ensure(gang_daemons(state.layout, host)))
        return state

    def _down(self, state: ClusterState, *, keep_logs: bool) -> None:
        layout = state.layout
        tops = node_cgroups(node.name for node in layout.nodes)
        gang_first = [daemon for daemon in state.daemons if daemon.role.startswith("gang")]
        end_daemons(gang_first, within_s=3.0)
        end_daemons([daemon for daemon in state.daemons if daemon.role.startswith("slurm")], within_s=3.0)
        thaw_all(tops)
        alive = kill_processes(marked_processes(layout.cluster_name), within_s=5.0)
        end_daemons(state.daemons, within_s=2.0)
        alive += kill_processes(marked_processes(layout.cluster_name), within_s=1.0)
        stuck = remove_all(node_cgroups(node.name for node in layout.nodes), within_s=5.0)
        if alive or stuck:
            names = [f"process {process.pid}" for process in alive] + [str(path) for path in stuck]
            raise ClusterError(f"left after the cluster's end: {', '.join(names)}; try `down` again")
        for path in layout.own_paths():
            if keep_logs and path == layout.logs:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        (self.folder / FILE).unlink(missing_ok=True)


def _munged(host: Host, layout: Layout) -> list[str]:
    run = layout.run
    return [
        *_promptly(host),
        host.programs["munged"],
        "--foreground",
        "--force",  # the folder above may be private to its owner, which munged would warn of and leave
        f"--socket={layout.munge_socket}",
        f"--key-file={layout.munge_key}",
        f"--pid-file={run}/munged.pid",
        f"--seed-file={run}/munged.seed",
        f"--log-file={layout.logs}/munged.log",
        "--num-threads=2",
    ]


def _slurm_daemons(host: Host, layout: Layout) -> dict[str, list[str]]:
    roles = {"slurmctld": [*_promptly(host), host.programs["slurmctld"], "-D", "-f", str(layout.conf)]}
    for node in layout.nodes:
        slurmd = [host.programs["slurmd"], "-D", "-f", str(layout.conf), "-N", node.name]
        roles[f"slurmd {node.name}"] = host.pinned(node.cpus) + slurmd
    return roles


def _promptly(host: Host) -> list[str]:
    """Let a service answer while the jobs keep every CPU of this host busy; on a cluster it has its own."""
    return [host.programs["nice"], "-n", "-10"] if host.is_root else []
