"""Slurm's host lists (``n[1-3,7]``) through ClusterShell, and id lists (``0-3,7``)."""

from __future__ import annotations

from collections.abc import Iterable

from ClusterShell.NodeSet import NodeSet, NodeSetException

from osub.errors import ClusterError


def expand_hosts(text: str) -> tuple[str, ...]:
    """Return the host names in a Slurm host list, in its order; none for ``(null)`` or an empty text.

    Raises
    ------
    ClusterError
        The text is no host list.
    """
    if text in {"", "(null)"}:
        return ()
    try:
        return tuple(NodeSet(text))
    except NodeSetException as error:
        raise ClusterError(f"Slurm gave a host list that cannot be read: {text!r} ({error})") from error


def fold_hosts(names: Iterable[str]) -> str:
    """Return host names folded into one host list."""
    return str(NodeSet.fromlist(list(names)))


def expand_ids(text: str) -> tuple[int, ...]:
    """Return the numbers in a list such as ``0-3,7``, ascending.

    Raises
    ------
    ClusterError
        The text is no such list.
    """
    ids: set[int] = set()
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            ids.update(range(int(first), int(last if dash else first) + 1))
    except ValueError as error:
        raise ClusterError(f"Slurm gave an id list that cannot be read: {text!r}") from error
    return tuple(sorted(ids))
