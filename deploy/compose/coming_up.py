"""Waiting until a cluster in containers is whole: how often is looked, what is said, and when it is given up.

A slow host must not be kept busy by the looking: a pause is as long as the engine takes for a simple answer.
A cluster is given up when nothing has moved for minutes, and is then left as it is, for its logs say why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from deploy.compose.containers import Container, last_words, list_containers, of_role
from deploy.compose.engine import Engine
from deploy.compose.inside.naming import find_name
from deploy.compose.inside.ready import Ready, read_ready
from deploy.compose.slurm_inside import slurm_client
from deploy.compose.state import ComposeState
from deploy.local.layout import state_option
from foundation.errors import ClusterError
from foundation.one_line import one_line
from foundation.slurm.slurm_types import SlurmRefusedError, SlurmUnreachableError

STUCK_S = 300.0
"""A cluster that has not come further for so long is given up; a slow host may take longer in all."""
_POLL_S = 0.5
_LOOK_FOR_S = 3.0
_EXEC_WITHIN_S = 120.0
_QUIET_S = 10.0
"""After so long without progress, the state of the awaited containers is printed."""
_MOST_RESTARTS = 3
_FORGET = (
    "for node in {nodes}; do scontrol update nodename=$node state=down reason=gone; "
    "scontrol delete nodename=$node; done"
)


class StuckError(ClusterError):
    """A cluster does not come further, and is left as it is."""


def wait_until_whole(
    engine: Engine, state: ComposeState, say: Callable[[str], None], stuck_s: float = STUCK_S
) -> None:
    """Wait until every node can take jobs and every agent has joined, as long as anything moves.

    Raises
    ------
    StuckError
        Nothing has moved for ``stuck_s`` seconds; the message says who is waited for, what it logged last,
        and where the log is.
    ClusterError
        A container does not live; its last words are in the message.
    """
    nodes = state.shape.nodes
    moved_s, furthest, has_forgotten = time.monotonic(), -1, False
    while True:
        begun_s = time.monotonic()
        containers = list_containers(engine, state.home, state.cluster)
        _refuse_failed(engine, containers)
        pause_s = max(_POLL_S, time.monotonic() - begun_s)
        seen = _ready(engine, containers, nodes, max(_LOOK_FOR_S, pause_s))
        if seen is not None and seen.known and not has_forgotten:
            gone = _forget_gone(engine, containers)
            if gone:
                continue  # it may take a while until Slurm is done with them
            has_forgotten = gone is not None
        if seen is not None and has_forgotten and seen.is_whole(nodes):
            return
        now_s = time.monotonic()
        if seen is not None and seen.progress > furthest:
            moved_s, furthest = now_s, seen.progress
        text = "waiting for Slurm" if seen is None else seen.in_words(nodes)
        late = _late(containers, seen) if now_s - moved_s > min(_QUIET_S, stuck_s) else []
        if late:
            text += f"; {_said(engine, late[0])}"
        say(text)
        if now_s - moved_s > stuck_s:
            raise StuckError(_in_words(engine, state, text, late, stuck_s))
        time.sleep(pause_s)


def _refuse_failed(engine: Engine, containers: Sequence[Container]) -> None:
    for one in containers:
        has_failed = one.state in ("exited", "dead") and not one.is_done
        if has_failed or one.restarts >= _MOST_RESTARTS:
            said = last_words(engine, one)
            why = one_line(said[-1]) if said else f"exit code {one.exit_code}"
            raise ClusterError(f"{one.name} does not live: {why}")


def _forget_gone(engine: Engine, containers: Sequence[Container]) -> list[str] | None:
    """Let Slurm forget nodes whose containers are gone: it would wait for them, and send them jobs.

    Returns those that it knew, and None where it does not say.
    """
    gone = None
    with suppress(SlurmUnreachableError, SlurmRefusedError):
        there = {one.name for one in of_role(containers, "node")}
        known = [node.name for node in slurm_client(engine, containers).nodes()]
        gone = [name for name in known if name not in there and find_name([name]) is not None]
    if not gone:
        return gone
    controller = of_role(containers, "controller")[0]
    engine.run("exec", controller.id, "sh", "-c", _FORGET.format(nodes=" ".join(gone)))
    for node in of_role(containers, "node"):
        words = ("python", "-P", "-m", "deploy.compose.inside", "clear", *gone)
        if node.state == "running" and engine.run("exec", node.id, *words).returncode == 0:
            break
    return gone


def _ready(engine: Engine, containers: Sequence[Container], nodes: int, for_s: float) -> Ready | None:
    """Have the controller look for a while until its cluster is whole; None while it cannot."""
    controllers = of_role(containers, "controller")
    if not controllers or controllers[0].state != "running":
        return None
    words = ("python", "-P", "-m", "deploy.compose.inside", "ready", str(nodes), f"{for_s:g}")
    answer = engine.run("exec", controllers[0].id, *words, within_s=for_s + _EXEC_WITHIN_S)
    return read_ready(answer.stdout) if answer.returncode == 0 else None


def _late(containers: Sequence[Container], seen: Ready | None) -> list[Container]:
    """Return the containers for which is waited: nodes, and the controller while no node is known."""
    nodes = [] if seen is None else [one for one in of_role(containers, "node") if one.name not in seen.ready]
    return nodes if seen is not None and seen.known else [*of_role(containers, "controller"), *nodes]


def _said(engine: Engine, one: Container) -> str:
    said = last_words(engine, one, 1)
    return f"{one.name} said last: {one_line(said[-1])}" if said else f"{one.name} has said nothing yet"


def _in_words(
    engine: Engine, state: ComposeState, text: str, late: Sequence[Container], stuck_s: float
) -> str:
    logs = f"; `{engine.name} logs {late[0].name}` has the rest" if late else ""
    return (
        f"nothing has moved for {stuck_s:g} s: {text}{logs}. The cluster is left as it is: "
        f"`osub cluster status {state_option(state.home)}` shows it, `up` again waits on, `down` ends it"
    )
