"""A cluster of a plain user's, for as long as it lasts: of ``nobody``, who has an account everywhere."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.attacks.attack import ACCOUNT

SCRIPT = """\
import os, sys, encodings.idna
from pathlib import Path
from deploy.local import *
from foundation.slurm import *
# The interpreter may lie in root's home: everything is loaded before the change of user.
os.setgroups([]); os.setgid({account}); os.setuid({account})
cluster = LocalCluster(Path({home!r}))
try:
    cluster.up(Shape(nodes=1, cores=1, virtual=True))
    print("up", flush=True)
    sys.stdin.readline()
finally:
    cluster.down()
"""


@contextmanager
def users_cluster() -> Iterator[Path]:
    """Give its slurm.conf."""
    home = Path(tempfile.mkdtemp(prefix="osub-plain-", dir="/tmp"))
    home.rmdir()  # so that the user makes it himself
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(account=ACCOUNT, home=str(home))],
        env={"PATH": "/usr/bin:/bin", "HOME": "/tmp"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/tmp",
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "up\n"
        yield home / "slurm.conf"
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()
    assert not home.exists()
