"""An embedded cluster's life: up, status, down; and its Slurm's configuration.

What an embedded cluster's Slurm is given: its configuration as text, and its daemons' commands by role.

Sources: slurm.conf(5), cgroup.conf(5). ``gang`` has the commands of the gang scheduler.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deploy.local.belongings import FolderName
from deploy.local.daemons import (
    Daemon,
    daemon_environment,
    find_process,
    log_of,
    start_daemon,
    wait_for_nodes,
    wait_for_port,
    wait_for_socket,
)
from deploy.local.down import take_down
from deploy.local.gang import (
    SUPERVISOR_SIGNALS,
    gang_daemons,
    prepare_gang,
    supervisor_command,
    wait_for_gang,
    wake_supervisor,
)
from deploy.local.home import Home, take_home
from deploy.local.host import CgroupVersion, LocalHost, look_at_host
from deploy.local.layout import ClusterLayout, checked_path, make_layout, names_of, state_option
from deploy.local.members import kin_of, living_daemons
from deploy.local.state import ClusterState, read_own_state, require_state, write_state
from deploy.shape import GangKind, QueueKind, Shape, common_lines, pin_cpus, sharing_words, with_settings
from foundation.errors import ClusterError, OsubError, OutputError
from foundation.interruption import signals_deferred
from foundation.slurm import CommandSlurm, JobSnapshot, SlurmNode
from foundation.slurm.slurm_types import SlurmUnreachableError

HEALTH_CHECK_S = 30
"""How long a job stays frozen at most once agent, guardian and controller were killed at once."""


def slurm_conf(shape: Shape, host: LocalHost, layout: ClusterLayout) -> str:
    """Return slurm.conf."""
    memory = shape.node_memory_mib(host.memory_mib)
    most = max(shape.multiplicity, shape.multiplicity_interactive if shape.queues is QueueKind.MQ else 1)
    tracked = host.cgroup is not CgroupVersion.NONE
    # NoInAddrAny binds daemons to the address of the host's name, whatever NodeAddr is.
    listen = {"CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny"} if host.name_is_loopback else {}
    lines = common_lines(shape, layout.cluster_name) | {
        "SlurmctldHost": f"{host.name}(127.0.0.1)",
        "SlurmctldPort": str(layout.controller_port),
        **listen,
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={layout.munge_socket}",
        "CredType": "cred/munge",
        "SlurmUser": host.user,
        "SlurmdUser": host.user,
        "StateSaveLocation": str(layout.controller_state),
        "SlurmdSpoolDir": f"{layout.spool}/%n",
        "SlurmctldPidFile": f"{layout.run}/slurmctld.pid",
        "SlurmdPidFile": f"{layout.run}/slurmd-%n.pid",
        "SlurmctldLogFile": f"{layout.logs}/slurmctld.log",
        "SlurmdLogFile": f"{layout.logs}/slurmd-%n.log",
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": str(layout.job_completions),
        "ProctrackType": "proctrack/cgroup" if tracked else "proctrack/linuxproc",
        "JobAcctGatherType": "jobacct_gather/cgroup" if tracked else "jobacct_gather/linux",
    }
    if shape.gang is GangKind.OSUB:
        lines |= {
            "HealthCheckProgram": str(layout.health_check),
            "HealthCheckInterval": str(HEALTH_CHECK_S),
            "HealthCheckNodeState": "ANY",
        }
    lines = with_settings({key: _quoted(value) for key, value in lines.items()}, shape.settings)
    nodes = [
        f"NodeName={node.name} NodeHostname={host.name} NodeAddr=127.0.0.1 Port={node.port} "
        f"Sockets=1 CoresPerSocket={shape.cores} ThreadsPerCore={shape.threads} RealMemory={memory} "
        "State=UNKNOWN"
        for node in layout.nodes
    ]
    return "\n".join(
        [
            "# Written by `osub cluster up`; lost on `osub cluster down`.",
            *(f"{key}={value}" for key, value in lines.items()),
            *nodes,
            *_partitions(shape, layout, max(1, memory // (shape.cores * shape.threads * most))),
            "",
        ]
    )


def _quoted(value: str) -> str:
    """Return a value of slurm.conf, in quotes where it has a blank, such as a path of a user's."""
    return f'"{value}"' if " " in value else value


def _partitions(shape: Shape, layout: ClusterLayout, memory_per_cpu_mib: int) -> list[str]:
    names = [node.name for node in layout.nodes]
    split = shape.interactive_count
    if shape.queues is QueueKind.SQ:
        parts = [("main", names, shape.multiplicity)]
    else:
        parts = [
            ("batch", names[split:], shape.multiplicity),
            ("interactive", names[:split], shape.multiplicity_interactive),
        ]
    return [
        f"PartitionName={name} Nodes={','.join(members)} Default={'YES' if index == 0 else 'NO'} "
        f"{sharing_words(most, memory_per_cpu_mib)} MaxTime=UNLIMITED DefaultTime=UNLIMITED State=UP"
        for index, (name, members, most) in enumerate(parts)
    ]


def cgroup_conf(host: LocalHost) -> str:
    """Return cgroup.conf: processes are tracked, nothing is constrained."""
    plugin = "cgroup/v2" if host.cgroup is CgroupVersion.V2 else "cgroup/v1"
    systemd = "IgnoreSystemd=yes\n" if host.cgroup is CgroupVersion.V2 else ""
    return (
        f"CgroupPlugin={plugin}\n{systemd}CgroupMountpoint=/sys/fs/cgroup\n"
        "CgroupAutomount=no\nConstrainCores=no\nConstrainRAMSpace=no\nConstrainDevices=no\n"
    )


def munged_command(host: LocalHost, layout: ClusterLayout) -> dict[str, list[str]]:
    """Return munged's command."""
    run = layout.run
    words = [
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
    return {"munged": words}


def slurm_commands(host: LocalHost, layout: ClusterLayout) -> dict[str, list[str]]:
    """Return the commands of slurmctld and of every slurmd."""
    roles = {"slurmctld": [*_promptly(host), host.programs["slurmctld"], "-D", "-f", str(layout.conf)]}
    for node in layout.nodes:
        slurmd = [host.programs["slurmd"], "-D", "-f", str(layout.conf), "-N", node.name]
        roles[f"slurmd {node.name}"] = host.pinned(node.cpus) + slurmd
    return roles


def _promptly(host: LocalHost) -> list[str]:
    """Let a service answer while the jobs keep every CPU of this host busy; on a cluster it has its own."""
    return [host.programs["nice"], "-n", "-10"] if host.is_root else []


_UP_TRIES = 3
_FOLDERS: tuple[FolderName, ...] = ("log", "run", "spool", "slurmctld", "scratch")


@dataclass(frozen=True, slots=True)
class LocalStatus:
    """What a cluster looks like now: daemons by role (True: alive), nodes and jobs (None: Slurm is away)."""

    state: ClusterState
    daemons: dict[str, bool]
    nodes: tuple[SlurmNode, ...] | None
    jobs: JobSnapshot | None

    @property
    def is_whole(self) -> bool:
        """Whether every daemon runs and every node can take jobs."""
        return (
            all(self.daemons.values()) and all(node.is_up for node in self.nodes or ()) and bool(self.nodes)
        )


@dataclass(frozen=True, slots=True)
class DownResult:
    """What came of `down`.

    Attributes
    ----------
    existed
        Whether there was a cluster.
    left
        What else is in its folder, which was left.
    remains
        Whether there was what a failed `up` left, such as logs.
    """

    existed: bool
    left: tuple[str, ...] = ()
    remains: bool = False


class LocalCluster:
    """The embedded cluster of one state folder, its home.

    Parameters
    ----------
    folder
        The state folder; made by :meth:`up` where it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

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
            cluster of another shape, or what `up` did not make.
        TrustError
            Another user could have made the folder, or can write to it.
        HostError
            Slurm is not installed.
        """
        host = look_at_host()
        pins = pin_cpus(shape, host.cpus)
        checked_path(self.folder)  # before anything is made
        with take_home(self.folder, create=True, mode=_mode(host)) as home:
            assert home is not None
            _refuse_containers(home)
            state = read_own_state(home)
            if state is not None:
                return self._revive(home, state, shape, host, say)
            home.empty()  # what a killed or failed one left, such as logs
            for attempt in range(_UP_TRIES):
                try:
                    home.furnish(_folders(shape), _mode(host))
                    layout = make_layout(home.path, home.short, shape, pins)
                    state = ClusterState(shape=shape, layout=layout, cgroup=host.cgroup)
                    write_state(home, state)
                    return self._start_missing(home, self._prepare(home, state, host), host, say)
                except BaseException as error:
                    is_last = attempt + 1 == _UP_TRIES or "Address already in use" not in str(error)
                    with signals_deferred():
                        with suppress(OsubError):  # what could not be ended is listed: `down` tries again
                            take_down(home, keep_logs=True)
                        if is_last:
                            home.leave()
                    if is_last:
                        raise
                    say("a port was taken in the meantime; trying others")
        raise ClusterError("no set of free ports found")

    def status(self) -> LocalStatus:
        """Look at daemons, nodes and jobs; Slurm being away is part of the answer."""
        state = self.state()
        alive = {daemon.role: find_process(daemon) is not None for daemon in state.daemons}
        client = CommandSlurm(self.conf, tries=1, timeout_s=5.0)
        nodes: tuple[SlurmNode, ...] | None = None
        jobs: JobSnapshot | None = None
        if alive.get("slurmctld"):
            with suppress(SlurmUnreachableError):
                nodes, jobs = tuple(client.nodes()), client.jobs()
        return LocalStatus(state, alive, nodes, jobs)

    def down(self, *, keep_logs: bool = False) -> DownResult:
        """End the cluster and remove what it left. Safe to repeat, whatever was killed.

        A signal that ends the command takes effect afterwards: half a cluster would be left.

        Raises
        ------
        ClusterError
            A process or cgroup of the cluster survived; the message names it.
        TrustError
            Another user could have made the folder, or can write to it.
        """
        with signals_deferred(), take_home(self.folder) as home:
            if home is None:
                return DownResult(existed=False)
            _refuse_containers(home)
            existed, remains = home.is_furnished, home.has_remains
            kept = take_down(home, keep_logs=keep_logs)
            left = home.leave()
        foreign = tuple(name for name in left if name.partition("/")[0] not in kept)
        return DownResult(existed, foreign, remains and not existed)

    def _revive(
        self, home: Home, state: ClusterState, shape: Shape, host: LocalHost, say: Callable[[str], None]
    ) -> ClusterState:
        if state.shape != shape:
            raise ClusterError(
                f"{self.folder} holds a cluster of another shape ({state.shape.system}, "
                f"M={state.shape.multiplicity}, gang {state.shape.gang}); "
                f"`osub cluster down {state_option(self.folder)}` first"
            )
        return self._start_missing(home, self._prepare(home, state, host), host, say)

    def _prepare(self, home: Home, state: ClusterState, host: LocalHost) -> ClusterState:
        """Make folders, key and configuration; what is there already is kept."""
        home.furnish(_folders(state.shape), _mode(host))
        if home.read("munge.key") is None:
            home.write("munge.key", secrets.token_bytes(1024), 0o600)
        home.write("slurm.conf", slurm_conf(state.shape, host, state.layout))
        home.write("cgroup.conf", cgroup_conf(host))
        if state.shape.gang is GangKind.OSUB:
            try:
                prepare_gang(state.shape, state.layout)
            except OSError as error:
                raise OutputError(f"cannot write below {state.layout.gang}: {error.strerror}") from error
        return state

    def _start_missing(
        self, home: Home, state: ClusterState, host: LocalHost, say: Callable[[str], None]
    ) -> ClusterState:
        known, alive = {daemon.role: daemon for daemon in state.daemons}, _running(home, state, host)
        state = msgspec.structs.replace(state, daemons=tuple((known | alive).values()))
        write_state(home, state)
        environment = daemon_environment(state.layout)

        def ensure(roles: dict[str, list[str]], blocked: Sequence[signal.Signals] = ()) -> list[Daemon]:
            nonlocal state
            for role, words in roles.items():
                if role not in alive:
                    say(f"starting {role}")
                    log = log_of(state.layout, role)
                    try:
                        alive[role] = start_daemon(role, words, log, environment, blocked)
                    except OSError as error:
                        raise ClusterError(
                            f"{role} cannot be started: {error.strerror}; see {log}"
                        ) from error
                    state = msgspec.structs.replace(state, daemons=tuple((known | alive).values()))
                    write_state(home, state)
            return [alive[role] for role in roles]

        munged = ensure(munged_command(host, state.layout))
        wait_for_socket(state.layout, munged[0])
        daemons = ensure(slurm_commands(host, state.layout))
        wait_for_port(state.layout, daemons)
        wait_for_nodes(state.layout, daemons, CommandSlurm(state.layout.conf, tries=5))
        if state.shape.gang is GangKind.OSUB:
            since_s = time.time()
            wake_supervisor(alive)
            environment["PATH"] = os.environ.get("PATH", os.defpath)  # it looks for programs as `up` does
            supervisor = ensure(supervisor_command(state.layout), SUPERVISOR_SIGNALS)
            supervised = wait_for_gang(state.layout, supervisor[0], since_s)
            alive |= {daemon.role: daemon for daemon in supervised}
            state = msgspec.structs.replace(state, daemons=tuple((known | alive).values()))
            write_state(home, state)
        return state


def _refuse_containers(home: Home) -> None:
    if home.read("compose.json") is not None:
        raise ClusterError(
            f"{home.path} holds a cluster in containers; `osub cluster down {state_option(home.path)}` first"
        )


def _mode(host: LocalHost) -> int:
    """Mode of the folders with sockets: every user may reach a cluster of root's; a user's is his alone."""
    return 0o755 if host.is_root else 0o700


def _folders(shape: Shape) -> tuple[FolderName, ...]:
    return (*_FOLDERS, "gang") if shape.gang is GangKind.OSUB else _FOLDERS


def _running(home: Home, state: ClusterState, host: LocalHost) -> dict[str, Daemon]:
    """Return the daemons that live, by role, also one that `up` was killed before listing."""
    kin = kin_of(names_of(home.path), home.path, home.short)
    commands = munged_command(host, state.layout) | slurm_commands(host, state.layout)
    if state.shape.gang is GangKind.OSUB:
        commands |= gang_daemons(state.layout, host) | supervisor_command(state.layout)
    alive = {}
    for facts in living_daemons(kin).values():
        for role, words in commands.items():
            # Each of nice, taskset and the program itself runs what is left of the words.
            if len(facts.words) > 2 and tuple(words[-len(facts.words) :]) == facts.words:
                alive[role] = Daemon(role=role, pid=facts.pid, start_ticks=facts.start_ticks)
    return alive
