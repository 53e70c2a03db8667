"""Keys of a cluster: made when it first starts, into volumes, and never in an image.

The munge key is the same on all hosts, as Slurm wants it. Of the keys of the gang scheduler each node copies
its own. Slurm's database has a password of its own, which nodes cannot see.
"""

from __future__ import annotations

import os
import pwd
import secrets
import subprocess
from pathlib import Path

from deploy.compose.inside.settings import ContainerSettings
from foundation.errors import ClusterError
from foundation.files import draft_at

MUNGE = Path("/keys/munge/munge.key")
CURVE = Path("/keys/curve")
PASSWORD = Path("/keys/database/password")
OWN = Path("/etc/gangd/keys")
METRICS_TOKEN = CURVE / "metrics.token"
OWN_METRICS_TOKEN = OWN.parent / "metrics.token"
_MADE = "made"
"""A file next to the keys: names for which all keys are made. A copy made before lacks the later ones."""


def agent_names(project: str, most_nodes: int) -> str:
    """Return the names that nodes may have: compose puts hyphens into them, older ones underscores."""
    return f"{project}-node-[1-{most_nodes}],{project}_node_[1-{most_nodes}]"


def run(settings: ContainerSettings) -> bool:
    """Make what is missing, for as many nodes as there may be."""
    make_all(settings.cluster, settings.shape.nodes)
    return True


def make_all(project: str, most_nodes: int) -> None:
    """Make what is missing.

    Parameters
    ----------
    project
        Compose's project, with which the nodes' names begin.
    most_nodes
        For so many nodes.

    Raises
    ------
    ClusterError
        The keys of the gang scheduler cannot be made.
    """
    munge = pwd.getpwnam("munge")
    for folder, owner in ((MUNGE.parent, munge.pw_uid), (CURVE, 0), (PASSWORD.parent, 0)):
        if folder.is_dir():
            os.chown(folder, owner, 0)
            folder.chmod(0o700)
    if MUNGE.parent.is_dir():
        make_secret(MUNGE, secrets.token_bytes(1024), munge.pw_uid)
    if PASSWORD.parent.is_dir():
        make_secret(PASSWORD, secrets.token_hex(24).encode(), 0)
    if CURVE.is_dir():
        make_secret(METRICS_TOKEN, secrets.token_hex(24).encode(), 0)
    names = agent_names(project, most_nodes)
    made = subprocess.run(
        ["gangd", "keys", "--dir", str(CURVE), "--agents", names], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        raise ClusterError(f"keys of the gang scheduler cannot be made: {made.stderr.strip()}")
    put(CURVE / _MADE, names.encode(), 0)


def are_made(project: str, most_nodes: int, source: Path = CURVE) -> bool:
    """Whether the keys of the gang scheduler are made for all names that nodes may have."""
    try:
        return (source / _MADE).read_text() == agent_names(project, most_nodes)
    except OSError:
        return False


def make_secret(path: Path, content: bytes, owner: int) -> None:
    """Make a file that its owner alone can read, whole or not at all; one that is there is kept."""
    if not path.exists():
        put(path, content, owner)
    os.chown(path, owner, 0)


def put(path: Path, content: bytes, owner: int, mode: int = 0o400) -> None:
    """Make a file hold ``content``, whole or not at all; from the first byte on no other user can read it."""
    with draft_at(path, draft=f".{path.name}.new") as fresh:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            os.fchown(fd, owner, 0)
            os.fchmod(fd, mode)


def copy_agent_keys(node: str, source: Path = CURVE, own: Path = OWN) -> bool:
    """Copy the controller's public key and this node's own pair; False where it has none yet."""
    wanted = [Path("controller.key"), Path("agents", f"{node}.key"), Path("agents", f"{node}.key_secret")]
    if not all((source / name).is_file() for name in wanted):
        return False
    _copy(wanted, source, own, None)
    return True


def copy_controller_keys(user: str, source: Path = CURVE, own: Path = OWN) -> bool:
    """Copy the controller's pair and the public key of each node, for the user as whom gangd runs."""
    pair = [Path("controller.key"), Path("controller.key_secret")]
    if not all((source / name).is_file() for name in pair):
        return False
    agents = [path.relative_to(source) for path in sorted((source / "agents").glob("*.key"))]
    _copy([*pair, *agents], source, own, user)
    return True


def copy_metrics_token(user: str | None, source: Path = METRICS_TOKEN, own: Path = OWN_METRICS_TOKEN) -> bool:
    """Copy the token with which metrics are asked for, for a daemon's user; False where there is none yet."""
    if not source.is_file():
        return False
    _copy_one(source, own, os.geteuid() if user is None else pwd.getpwnam(user).pw_uid)
    return True


def _copy(names: list[Path], source: Path, own: Path, user: str | None) -> None:
    uid = os.geteuid() if user is None else pwd.getpwnam(user).pw_uid
    for folder in (own.parent, own, own / "agents"):
        folder.mkdir(mode=0o755 if folder == own.parent else 0o700, parents=True, exist_ok=True)
        if folder != own.parent:
            os.chown(folder, uid, -1)
    for name in names:
        _copy_one(source / name, own / name, uid)


def _copy_one(source: Path, target: Path, owner: int) -> None:
    target.unlink(missing_ok=True)
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(source.read_bytes())
        os.fchown(fd, owner, -1)
