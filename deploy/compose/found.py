"""Which clusters in containers run on this host: from labels of the engines' containers."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from deploy.compose.cluster import ComposeCluster, ComposeStatus
from deploy.compose.containers import HOME, own_filters
from deploy.compose.engine import EngineName
from deploy.compose.state import FILE, read_compose_state
from deploy.local.layout import names_of
from foundation.errors import OsubError
from foundation.slurm.calling.run_command import run_command

_LOOK_S = 5.0
_PATH = re.compile(r"/[^\x00-\x1f\x7f]{0,4000}")


def is_left(folder: Path) -> bool:
    """Whether containers are left, running or not, of a cluster whose state folder holds none any more."""
    path = folder.resolve()
    if (path / "cluster.json").exists():
        return False
    for name in EngineName:
        if shutil.which(str(name)) is None:
            continue
        words = [str(name), "ps", "-a", "-q", *own_filters(str(path), names_of(path).cluster)]
        with suppress(OsubError):
            answer = run_command(words, None, os.environ, _LOOK_S)
            if answer.returncode == 0 and answer.stdout.strip():
                return True
    return False


def live_folders() -> list[Path]:
    """Return the state folders that containers name; an engine that does not answer has none.

    A label is any user's text: a folder counts once it holds a cluster's state that fits it.
    """
    found: set[Path] = set()
    for name in EngineName:
        if shutil.which(str(name)) is None:
            continue
        words = [str(name), "ps", "--filter", f"label={HOME}", "--format", f'{{{{.Label "{HOME}"}}}}']
        if name is EngineName.PODMAN:
            words[-1] = f'{{{{index .Labels "{HOME}"}}}}'
        with suppress(OsubError):
            answer = run_command(words, None, os.environ, _LOOK_S)
            if answer.returncode == 0:
                found |= {Path(line) for line in answer.stdout.splitlines() if _PATH.fullmatch(line)}
    return sorted(found)


def holds_one(folder: Path) -> bool:
    """Whether a state folder holds a cluster in containers; True also where its file cannot be used."""
    try:
        return read_compose_state(folder) is not None
    except OsubError:
        return (folder / FILE).exists()


def live_clusters() -> list[ComposeStatus]:
    """Return this host's clusters in containers whose state folder this user may read."""
    found = []
    for folder in live_folders():
        with suppress(OsubError):
            if read_compose_state(folder) is not None:
                found.append(ComposeCluster(folder).status())
    return found
