"""munged in a container: every other daemon speaks through it."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

from deploy.compose.inside import keys
from deploy.compose.inside.supervise import ForegroundDaemon, Supervisor
from deploy.compose.inside.waiting import wait_for

_SOCKET = Path("/run/munge/munge.socket.2")


def start_munged(supervisor: Supervisor) -> None:
    """Start munged once its key is there, and wait until it answers."""
    wait_for("the munge key", lambda: keys.MUNGE.is_file() or None)
    owner = pwd.getpwnam("munge")
    for folder in ("/run/munge", "/var/log/munge", "/var/lib/munge"):
        Path(folder).mkdir(mode=0o755, parents=True, exist_ok=True)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    words = ["/usr/sbin/munged", "--foreground", f"--key-file={keys.MUNGE}", "--num-threads=2"]
    supervisor.start(ForegroundDaemon(name="munged", words=words, user="munge"))
    wait_for("munged", _answers)


def _answers() -> bool | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(_SOCKET))
        except OSError:
            return None
        return True
