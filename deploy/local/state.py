"""An embedded cluster's ``cluster.json``: what was asked for, where it lives, which processes run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from deploy.local.daemons import Daemon
from deploy.local.layout import Layout
from deploy.local.shape import Shape
from osub.errors import ClusterError, InputError, OutputError

FILE = "cluster.json"
_LOCK = ".lock"


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `up` leaves for `status` and `down`.

    ``owner`` is the effective user id; ``cgroup`` the hierarchy in which Slurm tracks jobs.
    """

    version: int = 1
    shape: Shape
    layout: Layout
    owner: int
    cgroup: str
    daemons: tuple[Daemon, ...] = ()


def read_state(folder: Path) -> ClusterState | None:
    """Return the state kept in ``folder``; None where there is no cluster.

    Raises
    ------
    InputError
        The file is there and cannot be used.
    """
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=ClusterState)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot read {folder / FILE}: {error.strerror}") from error
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InputError(f"{folder / FILE} is not a cluster's state ({error}); was it edited?") from error


def require_state(folder: Path) -> ClusterState:
    """Return the state kept in ``folder``, or raise ClusterError that says how to make a cluster."""
    state = read_state(folder)
    if state is None:
        raise ClusterError(f"no cluster in {folder}; `osub cluster up --state {folder}` starts one")
    return state


def write_state(folder: Path, state: ClusterState) -> None:
    """Write the state, whole or not at all.

    Raises
    ------
    OutputError
        The folder cannot be written.
    """
    partial = folder / f"{FILE}.partial"
    try:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1))
        partial.replace(folder / FILE)
    except OSError as error:
        raise OutputError(f"cannot write {folder / FILE}: {error.strerror}") from error


@contextmanager
def locked(folder: Path, *, create: bool) -> Iterator[None]:
    """Hold the folder's lock: one `up` or `down` at a time.

    Raises
    ------
    ClusterError
        Another one is under way, or (without ``create``) the folder is not there.
    OutputError
        The folder cannot be made or written.
    """
    try:
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError as error:
        raise ClusterError(f"no cluster in {folder}") from error
    except OSError as error:
        raise OutputError(f"cannot use {folder} for a cluster: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ClusterError(f"another `osub cluster` works on {folder}; wait for it to end") from error
        yield
    finally:
        os.close(handle)
