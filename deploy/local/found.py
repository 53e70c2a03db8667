"""Which clusters of this user run on this host, from their daemons."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deploy.local.members import MARK
from deploy.local.processes import ProcessFacts, all_facts
from deploy.local.state import ClusterState, read_state
from foundation.errors import OsubError

_CONF = "SLURM_CONF"


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """A cluster that has a living daemon: where it is kept, what it is, how many daemons live."""

    folder: Path
    state: ClusterState
    daemons: int


def live_clusters(facts: Iterable[ProcessFacts] | None = None) -> list[FoundCluster]:
    """Return this user's clusters with a living daemon, by folder.

    A process tells its cluster's name and configuration in its environment; it is believed where it is this
    user's and the folder holds a cluster of that name.
    """
    found_pids: dict[tuple[str, Path], set[int]] = defaultdict(set)
    for one in all_facts() if facts is None else facts:
        words = dict(word.split("=", 1) for word in one.environment if "=" in word)
        if one.user == os.geteuid() and MARK in words and _CONF in words:
            found_pids[words[MARK], Path(words[_CONF]).parent].add(one.pid)
    found: dict[str, FoundCluster] = {}
    for (name, folder), pids in found_pids.items():
        try:
            state = read_state(folder.resolve())
        except (OsubError, OSError, ValueError, RuntimeError):  # the last: links in a circle
            continue
        if state is None or state.layout.cluster_name != name:
            continue
        living = sum(daemon.pid in pids for daemon in state.daemons)
        if living:
            found[state.layout.state] = FoundCluster(Path(state.layout.state), state, living)
    return [found[folder] for folder in sorted(found)]
