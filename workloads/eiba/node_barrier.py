"""The barrier between the nodes of a job: a star, the first node in the middle.

Every node's coordinator meets the others after each period. What a node has to report travels with it, so
that the first node can always account for all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from foundation.errors import UsageError
from workloads.eiba.eiba_messages import Channel, Message, last_words, send
from workloads.eiba.inbox import Inbox
from workloads.eiba.rendezvous import join_hub, open_hub
from workloads.task.slurm_task import SlurmTask


class Nodes(Protocol):
    """The other nodes of the job, as one node sees them."""

    def meet(self, account: Message) -> list[Message]:
        """Wait until every node is here; return all accounts on the first node, nothing elsewhere.

        Raises
        ------
        PeerGoneError
            A node failed.
        Terminated
            A node was told to stop.
        """
        ...

    def leave(self, why: BaseException) -> None:
        """Tell the others that this node stops before the end, and why."""
        ...


class Alone:
    """A job on one node: nobody to wait for."""

    def meet(self, account: Message) -> list[Message]:
        """Return the only account."""
        return [account]

    def leave(self, why: BaseException) -> None:
        """Tell nobody."""


class Hub:
    """The first node: hears all the others, then lets them go on together."""

    def __init__(self, inbox: Inbox, channels: Mapping[int, Channel]) -> None:
        self._inbox = inbox
        self._channels = {f"node {index}": channels[index] for index in sorted(channels)}
        for who, channel in self._channels.items():
            inbox.watch(who, channel)

    def meet(self, account: Message) -> list[Message]:
        """Wait for every other node, release them, and return all accounts in node order."""
        others = self._inbox.gather(self._channels)
        for channel in self._channels.values():
            # A node that is gone by now is noticed, with its reason, at the next barrier.
            with contextlib.suppress(OSError):
                send(channel, {"go": True})
        return [account, *others.values()]

    def leave(self, why: BaseException) -> None:
        """Tell every other node."""
        for channel in self._channels.values():
            last_words(channel, why)


class Spoke:
    """Any other node: tells the first one that it is here and waits to be let go on."""

    def __init__(self, inbox: Inbox, channel: Channel) -> None:
        self._inbox = inbox
        self._channel = channel
        inbox.watch("node 0", channel)

    def meet(self, account: Message) -> list[Message]:
        """Tell ``account`` to the first node and wait for it."""
        with contextlib.suppress(OSError):  # the wait says why
            send(self._channel, account)
        self._inbox.gather(["node 0"])
        return []

    def leave(self, why: BaseException) -> None:
        """Tell the first node, which tells the others."""
        last_words(self._channel, why)


def gather_nodes(inbox: Inbox, task: SlurmTask, rendezvous: Path | None, deadline_s: float) -> Nodes:
    """Return the other nodes of ``task``'s job once all have come; ``deadline_s`` on CLOCK_MONOTONIC.

    Raises
    ------
    UsageError
        The job is not started as one task on each node, or no file is named outside a Slurm job.
    PeerError
        Not all nodes came in time.
    """
    if task.nodes == 1:
        return Alone()
    if task.identity is None and rendezvous is None:
        raise UsageError("several nodes but no SLURM_JOB_ID; give --rendezvous FILE")
    identity = task.identity or "none"
    path = rendezvous or Path(f".eiba-{identity}.rendezvous")
    if task.node_index == 0:
        return Hub(inbox, open_hub(inbox, path, identity, task.nodes, task.launcher_address, deadline_s))
    return Spoke(inbox, join_hub(inbox, path, identity, task.node_index, deadline_s))
