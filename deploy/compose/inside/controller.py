"""The controller's container: munged, slurmctld, gangd."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

from deploy.compose.inside import keys
from deploy.compose.inside.cgroups import hierarchy_of
from deploy.compose.inside.conf import cgroup_conf, gangd_toml, slurm_conf
from deploy.compose.inside.settings import ContainerSettings
from deploy.compose.inside.slurm_says import make_operator, release
from deploy.compose.inside.supervise import (
    ForegroundDaemon,
    Supervisor,
    answers,
    now_and_then,
    start_munged,
    wait_for,
)
from deploy.shape import GangKind
from foundation.files import draft_at

_SLURM = Path("/etc/slurm")
_GANGD = Path("/etc/gangd/gangd.toml")
STATUS = Path("/var/lib/gangd/state/status.json")
HOST, HOST_USER = Path("/shared/host"), "osub"
"""Below it, and as this user, commands of the engine's host run and leave their files."""
_TELL_EVERY_S = 5.0
_NICE = -10
"""All containers share the host's CPUs with the jobs; a controller of its own would have its own."""


def run(settings: ContainerSettings) -> bool:
    """Run until SIGTERM; False where a daemon cannot be kept alive."""
    _write(_SLURM / "slurm.conf", slurm_conf(settings, hierarchy_of()))
    _write(_SLURM / "cgroup.conf", cgroup_conf(hierarchy_of(), release()))
    for folder in ("/run/slurm", "/var/lib/slurm", "/var/lib/slurm/state"):
        _own_folder(Path(folder))
    _own_folder(HOST, HOST_USER)
    supervisor = Supervisor()
    start_munged(supervisor)
    if settings.accounting:  # at its first start slurmctld ends without it
        wait_for("slurmdbd at accounting:6819", lambda: answers("accounting", 6819))
    supervisor.start(ForegroundDaemon(name="slurmctld", words=["slurmctld", "-D"], user="slurm", nice=_NICE))
    wait_for("slurmctld", lambda: answers("controller", 6817))
    if settings.accounting:
        # Replays reserve nodes for on-demand jobs.
        wait_for(f"{HOST_USER} to be an operator", lambda: make_operator(HOST_USER) or None, poll_s=1.0)
    if settings.shape.gang is GangKind.OSUB:
        nodes = settings.shape.nodes
        wait_for("the keys of all nodes", lambda: keys.are_made(settings.cluster, nodes) or None)
        keys.copy_controller_keys("slurm")
        for folder in ("/var/lib/gangd", "/var/lib/gangd/state", "/var/lib/gangd/record"):
            _own_folder(Path(folder))
        if settings.monitoring:
            wait_for("the token for metrics", lambda: keys.copy_metrics_token("slurm") or None)
        _write(_GANGD, gangd_toml(settings))
        words = ["gangd", "run", "--config", str(_GANGD)]
        supervisor.start(
            ForegroundDaemon(name="gangd", words=words, user="slurm", nice=_NICE, is_needed=False)
        )
    done = supervisor.watch(_telling_prometheus() if settings.monitoring else lambda: None)
    supervisor.end()
    return done


def _telling_prometheus() -> Callable[[], None]:
    from deploy.compose.inside.monitoring import write_targets  # few clusters are watched

    return now_and_then(lambda: write_targets(STATUS), _TELL_EVERY_S)


def _own_folder(path: Path, user: str = "slurm") -> None:
    """Make a folder of a user's; a volume is root's when it is new."""
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    os.chown(path, pwd.getpwnam(user).pw_uid, -1)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with draft_at(path, draft=f".{path.name}.new") as fresh:
        fresh.write_text(text)
        fresh.chmod(0o644)
