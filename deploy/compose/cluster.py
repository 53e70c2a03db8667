"""A cluster in containers: up, status, down, with the verbs and the states of the embedded cluster.

`up` builds what images are missing, has compose start what does not run, and waits until every node is idle
in Slurm and every agent has joined. Called again it starts what has died, or adds and removes nodes. `down`
removes what carries the cluster's labels, and the state folder's files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deploy.compose.containers import Container, last_words, list_containers, of_role, take_down
from deploy.compose.engine import Engine, EngineName, checked, find_engine, last_word
from deploy.compose.image import base_of, ensure_images
from deploy.compose.inside.naming import find_name
from deploy.compose.inside.ready import Ready, read_ready
from deploy.compose.plan import (
    DEBIANS,
    FEWEST_KEYS,
    compose_environment,
    differs,
    images_to_build,
    missing_roles,
    node_memory_mib,
    up_words,
)
from deploy.compose.state import FILE, ComposeState, decode_state, read_compose_state, write_compose_state
from deploy.compose.watchers import choose_watchers
from deploy.local.cluster import Ended
from deploy.local.home import Home, take_home
from deploy.local.layout import names_of
from deploy.shape import Shape
from foundation.errors import ClusterError, HostError, InputError, OsubError
from foundation.one_line import one_line
from foundation.slurm import CommandSlurm, JobSnapshot, Node
from foundation.slurm.calling.run_command import Answer, run_command
from foundation.slurm.reading.record_faults import SlurmRefusedError, SlurmUnreachableError

_STUCK_S = 300.0
"""A cluster that has not come further for so long is given up; a slow host may take longer in all."""
_COMPOSE_WITHIN_S = 600.0
_POLL_S = 0.5
_LOOK_FOR_S = 3.0
_SLURM_NEEDS = ("LC_ALL", "TZ", "SLURM_TIME_FORMAT")
_FORGET = (
    "for node in {nodes}; do scontrol update nodename=$node state=down reason=gone; "
    "scontrol delete nodename=$node; done"
)


@dataclass(frozen=True, slots=True)
class Options:
    """What `up` is asked for beside the shape."""

    debian: int = 13
    accounting: bool = True
    monitoring: bool = False
    build: bool = False


@dataclass(frozen=True, slots=True)
class ComposeStatus:
    """What a cluster in containers looks like now.

    Attributes
    ----------
    state
        What `up` left.
    containers
        The containers, the controller first.
    nodes, jobs
        What Slurm says; None while it is away.
    failures
        The last words of each container that is not alive, by name.
    """

    state: ComposeState
    containers: tuple[Container, ...]
    nodes: tuple[Node, ...] | None
    jobs: JobSnapshot | None
    failures: Mapping[str, Sequence[str]]

    @property
    def daemons_wanted(self) -> int:
        """How many containers there are while all of it lives."""
        state, watch = self.state, self.state.monitoring
        watchers = 0 if watch is None else 1 + (watch.grafana_image is not None)
        return 1 + state.shape.nodes + 2 * bool(state.accounting) + watchers

    @property
    def is_whole(self) -> bool:
        """Whether every container lives, and every node can take jobs."""
        nodes = self.nodes or ()
        return (
            all(one.is_alive for one in self.containers)
            and len(nodes) == self.state.shape.nodes
            and all(node.is_up for node in nodes)
        )


class ComposeCluster:
    """The cluster in containers whose state folder is ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def state(self) -> ComposeState:
        """Return what `up` left, or raise ClusterError."""
        state = read_compose_state(self.folder)
        if state is None:
            raise ClusterError(f"no cluster in containers in {self.folder}")
        return state

    def up(
        self,
        engine_name: EngineName,
        shape: Shape,
        options: Options,
        say: Callable[[str], None] = lambda _: None,
    ) -> ComposeState:
        """Start the cluster, or what has died of it, and wait until every node is idle.

        Raises
        ------
        ClusterError
            A container does not start (its last words are in the message), or the folder holds a cluster of
            another shape, or what `up` did not make.
        HostError
            The engine or its compose is missing or does not answer.
        TrustError
            Somebody else could have made the folder, or can write to it.
        """
        engine = find_engine(engine_name)
        with take_home(self.folder, create=True) as home:
            assert home is not None
            try:
                old = _own_state(home)
                new = self._wanted(home, engine, shape, options, old, say)
                if old is not None and (why := differs(old, new)) is not None:
                    raise ClusterError(
                        f"{self.folder} holds {why}; `osub cluster down --state {self.folder}` first"
                    )
                if old is not None:
                    new = msgspec.structs.replace(new, most_nodes=old.most_nodes, memory_mib=old.memory_mib)
                images = images_to_build(new.debian, accounting=new.accounting, monitoring=new.monitoring)
                ensure_images(engine, images, base_of(engine, new.debian), anew=options.build, say=say)
            except BaseException:
                home.leave()
                raise
            home.furnish((), 0o700)
            write_compose_state(home, new)
            try:
                self._start(engine, new, say)
            except BaseException:
                if old is None:
                    say("taking down what was started")
                    with suppress(OsubError):  # `down` tries again
                        take_down(engine, new.home, new.cluster, new.debian, say)
                        home.empty()
                        home.leave()
                raise
            return new

    def status(self) -> ComposeStatus:
        """Look at containers, nodes and jobs; Slurm being away is part of the answer.

        Raises
        ------
        HostError
            The engine does not answer.
        """
        state = self.state()
        engine = find_engine(state.engine, with_compose=False)
        containers = tuple(list_containers(engine, state.home, state.cluster))
        nodes: tuple[Node, ...] | None = None
        jobs: JobSnapshot | None = None
        with suppress(SlurmUnreachableError, SlurmRefusedError):
            client = _client(engine, containers)
            nodes, jobs = tuple(client.nodes()), client.jobs()
        failures = {one.name: last_words(engine, one) for one in containers if not one.is_alive}
        return ComposeStatus(state, containers, nodes, jobs, failures)

    def down(self, say: Callable[[str], None] = lambda _: None) -> Ended:
        """End the cluster and remove what `up` made. Safe to repeat, whatever was killed.

        Where the folder is gone, what carries its path is removed all the same.

        Raises
        ------
        ClusterError
            Something of it survived; the message names it.
        HostError
            The engine does not answer.
        TrustError
            Somebody else could have made the folder, or can write to it.
        """
        with take_home(self.folder) as home:
            if home is None:
                return Ended(existed=self._take_down_left(say))
            try:
                state = _own_state(home)
            except InputError:
                state = None  # was edited: what is removed does not depend on it
            existed = state is not None
            for name, debian in (
                [(state.engine, state.debian)] if state else [(one, DEBIANS[0]) for one in EngineName]
            ):
                try:
                    engine = find_engine(name, with_compose=False)
                except OsubError:
                    if state is not None:
                        raise
                    continue
                cluster = names_of(home.path).cluster
                existed = take_down(engine, str(home.path), cluster, debian, say) or existed
            home.empty()
            left = home.leave()
        return Ended(existed, tuple(left))

    def _take_down_left(self, say: Callable[[str], None]) -> bool:
        path, existed = self.folder.resolve(), False
        for name in EngineName:
            with suppress(HostError):
                engine = find_engine(name, with_compose=False)
                for debian in DEBIANS:
                    existed = take_down(engine, str(path), names_of(path).cluster, debian, say) or existed
        return existed

    def _wanted(
        self,
        home: Home,
        engine: Engine,
        shape: Shape,
        options: Options,
        old: ComposeState | None,
        say: Callable[[str], None],
    ) -> ComposeState:
        if home.read("cluster.json") is not None:
            raise ClusterError(
                f"{self.folder} holds an embedded cluster; `osub cluster down --state {self.folder}` first"
            )
        watchers = None
        if options.monitoring:
            kept = None if old is None else old.monitoring
            watchers = kept or choose_watchers(engine, options.debian, say)
        return ComposeState(
            home=str(home.path),
            engine=engine.name,
            debian=options.debian,
            shape=shape,
            most_nodes=max(FEWEST_KEYS, shape.nodes),
            memory_mib=node_memory_mib(shape, engine.facts),
            accounting=options.accounting,
            monitoring=watchers,
        )

    def _start(self, engine: Engine, state: ComposeState, say: Callable[[str], None]) -> None:
        say(f"starting {state.shape.nodes} nodes in containers")
        words = up_words(engine.compose, state, engine.facts)
        answer = run_command(words, None, os.environ | compose_environment(state), _COMPOSE_WITHIN_S)
        checked(words, answer)
        roles = [one.role for one in list_containers(engine, state.home, state.cluster)]
        if missing := missing_roles(roles, state):  # podman-compose is content with anything
            raise ClusterError(f"{engine.compose[0]} made no container for {missing[0]}: {last_word(answer)}")
        self._wait(engine, state, say)

    def _wait(self, engine: Engine, state: ComposeState, say: Callable[[str], None]) -> None:
        deadline_s = time.monotonic() + _STUCK_S
        found, furthest = "", 0
        while True:
            containers = list_containers(engine, state.home, state.cluster)
            _refuse_failed(engine, containers)
            _forget_gone(engine, containers)
            seen = _ready(engine, containers, state.shape.nodes)
            if seen is not None:
                found = seen.in_words(state.shape.nodes)
                if seen.is_whole(state.shape.nodes):
                    return
                if seen.idle + (seen.joined or 0) > furthest:
                    furthest = seen.idle + (seen.joined or 0)
                    deadline_s = time.monotonic() + _STUCK_S
            say(found or "waiting for Slurm")
            if time.monotonic() > deadline_s:
                raise ClusterError(
                    f"not every node came up, and no other one in {_STUCK_S:g} s "
                    f"({found or 'Slurm does not answer'}); "
                    f"`osub cluster status --state {self.folder}` says more"
                )
            time.sleep(_POLL_S)


class _Inside:
    """Runs Slurm's commands in a container."""

    def __init__(self, engine: Engine, container: str) -> None:
        self._engine = engine
        self._container = container

    def run(
        self, words: Sequence[str], stdin: str | None, environment: Mapping[str, str], timeout_s: float
    ) -> Answer:
        """Run one; of the environment it gets what decides how an answer looks."""
        told = [
            word for key in _SLURM_NEEDS if key in environment for word in ("-e", f"{key}={environment[key]}")
        ]
        options = ["-i", *told] if stdin is not None else told
        return self._engine.run("exec", *options, self._container, *words, within_s=timeout_s, stdin=stdin)


def _own_state(home: Home) -> ComposeState | None:
    content = home.read(FILE)
    return None if content is None else decode_state(content, home.path)


def _refuse_failed(engine: Engine, containers: Sequence[Container]) -> None:
    for one in containers:
        has_failed = one.state in ("exited", "dead") and not one.is_done
        if has_failed or one.restarts >= 3:
            said = last_words(engine, one)
            why = one_line(said[-1]) if said else f"exit code {one.exit_code}"
            raise ClusterError(f"{one.name} does not live: {why}")


def _client(engine: Engine, containers: Sequence[Container]) -> CommandSlurm:
    """Return a client of the cluster's Slurm, whose commands run in the controller's container."""
    controllers = of_role(containers, "controller")
    if not controllers or controllers[0].state != "running":
        raise SlurmUnreachableError("the controller's container does not run")
    return CommandSlurm(tries=1, timeout_s=10.0, runner=_Inside(engine, controllers[0].id).run)


def _forget_gone(engine: Engine, containers: Sequence[Container]) -> None:
    """Let Slurm forget nodes whose containers are gone: it would wait for them, and send them jobs."""
    with suppress(SlurmUnreachableError, SlurmRefusedError):
        there = {one.name for one in of_role(containers, "node")}
        known = [node.name for node in _client(engine, containers).nodes()]
        gone = [name for name in known if name not in there and find_name([name]) is not None]
        if not gone:
            return
        controller = of_role(containers, "controller")[0]
        engine.run("exec", controller.id, "sh", "-c", _FORGET.format(nodes=" ".join(gone)))
        for node in of_role(containers, "node"):
            words = ("python", "-P", "-m", "deploy.compose.inside", "clear", *gone)
            if node.state == "running" and engine.run("exec", node.id, *words).returncode == 0:
                break


def _ready(engine: Engine, containers: Sequence[Container], nodes: int) -> Ready | None:
    """Have the controller look for a while until its cluster is whole; None while it cannot."""
    controllers = of_role(containers, "controller")
    if not controllers or controllers[0].state != "running":
        return None
    words = ("python", "-P", "-m", "deploy.compose.inside", "ready", str(nodes), f"{_LOOK_FOR_S:g}")
    answer = engine.run("exec", controllers[0].id, *words, within_s=_LOOK_FOR_S + 30.0)
    return read_ready(answer.stdout) if answer.returncode == 0 else None
