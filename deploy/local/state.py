"""An embedded cluster's ``cluster.json``, and which clusters of this user run on this host.

An embedded cluster's ``cluster.json``: what was asked for, where it is, which processes run.

Which clusters of this user run on this host, from their daemons.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from deploy.local.belongings import FileName
from deploy.local.daemons import Daemon
from deploy.local.home import Home
from deploy.local.layout import ClusterLayout, names_of, state_option
from deploy.local.members import MARK, ProcessFacts, all_facts
from deploy.shape import Shape
from foundation.errors import ClusterError, InputError, OsubError
from foundation.trust import closing_fd, open_folder, place_of, read_file

FILE: FileName = "cluster.json"
SUPERVISED: FileName = "supervisor.json"
Kept = TypeVar("Kept")


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `up` leaves for `status`; ``cgroup`` is the hierarchy in which Slurm tracks jobs."""

    version: int = 1
    shape: Shape
    layout: ClusterLayout
    cgroup: str
    daemons: tuple[Daemon, ...] = ()


def read_state(folder: Path) -> ClusterState | None:
    """Return the state kept in ``folder``; None where there is no cluster.

    Raises
    ------
    InputError
        The file is there and cannot be used.
    TrustError
        Another user could have written it.
    """
    state = read_listed(folder)
    if state is None:
        return None
    daemons = {daemon.role: daemon for daemon in (*state.daemons, *read_supervised(folder))}
    return msgspec.structs.replace(state, daemons=tuple(daemons.values()))


def read_listed(folder: Path) -> ClusterState | None:
    """Return the state as `up` wrote it, without what the supervisor has started since; raises as above."""
    return read_kept(folder, FILE, _decoded)


def read_supervised(folder: Path) -> tuple[Daemon, ...]:
    """Return the daemons that the supervisor keeps alive, as they are now; raises as ``read_state``."""

    def decode(content: bytes, home: Path) -> tuple[Daemon, ...]:
        try:
            return msgspec.json.decode(content, type=tuple[Daemon, ...])
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{home / SUPERVISED} is not the supervisor's ({error}); was it edited?"
            ) from error

    return read_kept(folder, SUPERVISED, decode) or ()


def read_kept(folder: Path, name: FileName, decode: Callable[[bytes, Path], Kept]) -> Kept | None:
    """Return what ``decode`` makes of the state in ``folder`` and of its true place; None without.

    Raises as ``read_state``.
    """
    try:
        fd = open_folder(folder, own=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror}") from error
    try:
        with closing_fd(fd):
            return decode(read_file(fd, name), Path(place_of(fd)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot read {folder / name}: {error.strerror}") from error


def read_own_state(home: Home) -> ClusterState | None:
    """Return the state kept in a home that is open, checked against it; raises as ``read_state``."""
    content = home.read(FILE)
    if content is None:
        return None
    state = _decoded(content, home.path)
    if state.layout.short != str(home.short):
        raise InputError(f"{home.path / FILE} does not fit the mark next to it; was it edited?")
    return state


def require_state(folder: Path) -> ClusterState:
    """Return the state kept in ``folder``, or raise ClusterError that says how to make a cluster."""
    state = read_state(folder)
    if state is None:
        raise ClusterError(f"no cluster in {folder}; `osub cluster up {state_option(folder)}` starts one")
    return state


def write_state(home: Home, state: ClusterState) -> None:
    """Write the state, whole or not at all; raises OutputError."""
    home.write(FILE, msgspec.json.format(msgspec.json.encode(state), indent=1))


def decode_kept(content: bytes, path: Path, kind: type[Kept], made_in: Callable[[Kept], str]) -> Kept:
    """Return a state that was made where its file lies; raises InputError."""
    try:
        state = msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, OsubError) as error:
        raise InputError(f"{path} is not a cluster's state ({error}); was it edited?") from error
    if made_in(state) != str(path.parent):
        raise InputError(f"{path} is of a cluster that was made in {made_in(state)}: move it back there")
    return state


def _decoded(content: bytes, home: Path) -> ClusterState:
    """Return a state that speaks of this home, with the names that follow from it."""
    path = home / FILE
    state = decode_kept(content, path, ClusterState, lambda state: state.layout.state)
    names, layout = names_of(home), state.layout
    nodes = [names.node(index) for index in range(len(layout.nodes))]
    if layout.cluster_name != names.cluster or [node.name for node in layout.nodes] != nodes:
        raise InputError(f"{path} has names that are not this folder's; was it edited?")
    return state


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
