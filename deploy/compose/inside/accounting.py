"""The accounting daemon's container: munged, slurmdbd. Its database is in another one."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from deploy.compose.inside import keys
from deploy.compose.inside.conf import slurmdbd_conf
from deploy.compose.inside.settings import ContainerSettings
from deploy.compose.inside.supervise import ForegroundDaemon, Supervisor, answers, start_munged, wait_for

CONF = Path("/etc/slurm/slurmdbd.conf")


def run(settings: ContainerSettings) -> bool:  # noqa: ARG001 - as its callers have it
    """Run until SIGTERM; False where a daemon cannot be kept alive."""
    password = wait_for("the database's password", lambda: _read(keys.PASSWORD))
    slurm = pwd.getpwnam("slurm").pw_uid
    for folder in (CONF.parent, Path("/run/slurm")):
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        os.chown(folder, slurm, -1)
    write_secret_conf(CONF, slurmdbd_conf(password), slurm)
    supervisor = Supervisor()
    start_munged(supervisor)
    # slurmdbd ends where there is no database yet, and an engine that starts anew starts them in any order.
    wait_for("MariaDB at database:3306", lambda: answers("database", 3306))
    supervisor.start(ForegroundDaemon(name="slurmdbd", words=["slurmdbd", "-D"], user="slurm"))
    done = supervisor.watch()
    supervisor.end()
    return done


def write_secret_conf(path: Path, text: str, owner: int) -> None:
    """Write a configuration that its owner alone can read (slurmdbd refuses any other)."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
        os.fchown(fd, owner, -1)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
