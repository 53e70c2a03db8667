"""A compute node's container: munged, slurmd, gang-agent. It joins by the name that DNS gives it, and leaves.

It leaves as an administrator would take a node away: no new jobs, a while for those that run, the agent lets
go of what it holds, and then Slurm forgets the node.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.compose.inside import cgroups, keys
from deploy.compose.inside.conf import node_options
from deploy.compose.inside.settings import (
    AGENT_METRICS_PORT,
    ContainerSettings,
    NodeName,
    own_address,
    own_name,
)
from deploy.compose.inside.slurm_says import PATIENT_S, addresses, forget, has_jobs, is_drained_for, scontrol
from deploy.compose.inside.supervise import ForegroundDaemon, Supervisor, answers, say, start_munged, wait_for
from deploy.shape import GangKind
from foundation.errors import ClusterError
from foundation.units import counted

NAME_FILE = Path("/run/osub/node")
_SLURM_CONF = Path("/etc/slurm/slurm.conf")
_LEAVES = "its container stops"
"""Why a node that leaves in order is drained."""
_LOOK_EVERY_S = 5.0
_UNKNOWN_S = 60.0
"""A node that Slurm has not heard of for so long, although it answers, is registered anew."""
_LOOK_FOR_SLURM_S = 0.3  # each look asks the engine's DNS, and all nodes look at once


def run(settings: ContainerSettings) -> bool:
    """Run until SIGTERM; False where a daemon cannot be kept alive."""
    node = wait_for("a name from compose's DNS", own_name)
    cgroups.refuse_shared()
    cgroups.refuse_missing_plugin()
    cgroups.make_ready()
    left = cgroups.clear_left(node.name)
    if left:
        say(f"cannot remove what an earlier container left: {left[0]} and {len(left) - 1} more")
    if settings.pinned:
        _pin(node.number, settings.shape.cores)
    for folder in ("/run/slurm", "/run/osub", "/var/spool/slurmd"):
        Path(folder).mkdir(mode=0o755, parents=True, exist_ok=True)
    NAME_FILE.write_text(node.name)
    supervisor = Supervisor()
    start_munged(supervisor)
    if settings.shape.gang is GangKind.OSUB:
        _start_agent(node, settings, supervisor)  # it needs no slurmd, and has begun by the time that one can
    wait_for("slurmctld at controller:6817", lambda: answers("controller", 6817), poll_s=_LOOK_FOR_SLURM_S)
    # It listens before it answers, and slurmd asks but once in ten seconds.
    known = wait_for("an answer of slurmctld", lambda: addresses(PATIENT_S), poll_s=_LOOK_FOR_SLURM_S)
    _forget_outdated(node, known)
    words = ["slurmd", "-D", "-Z", "-N", node.name, "--conf", node_options(settings, node.number)]
    supervisor.start(ForegroundDaemon(name="slurmd", words=words))
    done = supervisor.watch(AddressReporter(node.name, supervisor).look)
    _leave(node, supervisor, settings.drain_s)
    return done


def _start_agent(node: NodeName, settings: ContainerSettings, supervisor: Supervisor) -> None:
    nodes = settings.shape.nodes
    wait_for("the keys of all nodes", lambda: keys.are_made(settings.cluster, nodes) or None)
    if not keys.copy_agent_keys(node.name):
        raise ClusterError(f"there is no key for {node.name}: keys are made for {counted(nodes, 'node')}")
    wait_for("slurm.conf", lambda: _SLURM_CONF.is_file() or None)
    words = ["gang-agent", "run", "--node", node.name, "--controller", "controller"]
    if settings.monitoring:
        wait_for("the token for metrics", lambda: keys.copy_metrics_token(None) or None)
        words += [
            "--metrics",
            f"0.0.0.0:{AGENT_METRICS_PORT}",
            "--metrics-token",
            str(keys.OWN_METRICS_TOKEN),
        ]
    supervisor.start(ForegroundDaemon(name="gang-agent", words=words, is_needed=False))


def _pin(number: int, cores: int) -> None:
    """Keep this node, its daemons and its jobs to CPUs of its own, as far as the host has enough."""
    cpus = sorted(os.sched_getaffinity(0))
    own = cpus[(number - 1) * cores : number * cores]
    if len(own) < cores:
        say(f"no CPUs are left for this node: it shares all {len(cpus)}")
        return
    os.sched_setaffinity(0, own)


def outdated(name: str, address: str | None, known: Mapping[str, str], *, has_left: bool) -> list[str]:
    """Return the nodes that Slurm should forget when a container joins.

    That of an earlier container with this name and another address, or one that drained itself as it left and
    could not have itself forgotten any more; and those of containers that are gone and whose address is this
    one's now: Slurm would send it their jobs. Who was drained by an administrator stays so.
    """
    earlier = [one for one, where in known.items() if one == name and (has_left or where != address)]
    return earlier + [one for one, where in known.items() if one != name and where == address]


def _forget_outdated(node: NodeName, known: Mapping[str, str]) -> None:
    has_left = node.name in known and is_drained_for(node.name, _LEAVES)
    for name in outdated(node.name, own_address(), known, has_left=has_left):
        say(f"{name} is no longer as Slurm knows it: it is removed from Slurm")
        forget(name, known[name])
        cgroups.clear_left(name)


@dataclass(slots=True)
class AddressReporter:
    """Tells Slurm of another address of this node: a network that was cut may give it a new one.

    A node that Slurm does not know, because it was forgotten just when it came, is registered anew.
    """

    name: str
    supervisor: Supervisor
    next_s: float = 0.0
    registered: str | None = None
    unknown_since_s: float | None = None
    patience_s: float = _UNKNOWN_S

    def look(self) -> None:
        """Look, if it is time to."""
        if time.monotonic() >= self.next_s:
            self._look()
            self.next_s = time.monotonic() + _LOOK_EVERY_S

    def _look(self) -> None:
        address = own_address()
        if address is None or address == self.registered:
            return
        all_known = addresses()
        if all_known is None:
            return  # slurmctld is away
        known = all_known.get(self.name)
        if known is None:
            self._tell_anew()
            return
        if known != address:
            say(f"Slurm looks for {self.name} at {known}; it is at {address}")
            if not scontrol("update", f"nodename={self.name}", f"nodeaddr={address}"):
                return
            scontrol("reconfigure")  # the other nodes and slurmctld's own memory
        self.registered, self.unknown_since_s = address, None

    def _tell_anew(self) -> None:
        now_s = time.monotonic()
        if self.unknown_since_s is None:
            self.unknown_since_s = now_s
        elif now_s - self.unknown_since_s > self.patience_s:
            say(f"Slurm does not know {self.name}: slurmd is started anew")
            self.supervisor.end_one("slurmd")
            self.unknown_since_s, self.patience_s = None, 2 * self.patience_s


def _leave(node: NodeName, supervisor: Supervisor, drain_s: int) -> None:
    name = f"nodename={node.name}"
    if scontrol("update", name, "state=drain", f"reason={_LEAVES}"):
        deadline_s = time.monotonic() + drain_s
        while time.monotonic() < deadline_s and has_jobs(node.name):
            time.sleep(0.5)
    for daemon in ("gang-agent", "slurmd"):
        supervisor.end_one(daemon)
    cgroups.clear_left(node.name)
    if not scontrol("delete", name):
        forget(node.name)
    supervisor.end()
