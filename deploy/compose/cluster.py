"""A cluster in containers: up, status, down, with the verbs and the states of the embedded cluster.

`up` builds what images are missing, has compose start what does not run, and waits until every node is idle
in Slurm and every agent has joined. Called again it starts what has died, or adds and removes nodes. `down`
removes what carries the cluster's labels, and the state folder's files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deploy.compose.coming_up import StuckError, wait_until_whole
from deploy.compose.containers import Container, last_words, list_containers, take_down
from deploy.compose.engine import Engine, EngineName, checked, find_engine, last_word
from deploy.compose.image import base_of, ensure_images
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
from deploy.compose.slurm_inside import slurm_client
from deploy.compose.state import FILE, ComposeState, decode_state, read_compose_state, write_compose_state
from deploy.compose.watchers import choose_watchers
from deploy.local.cluster import DownResult
from deploy.local.home import Home, take_home
from deploy.local.layout import names_of, state_option
from deploy.shape import Shape
from foundation.errors import ClusterError, HostError, InputError, OsubError
from foundation.interruption import signals_deferred
from foundation.slurm import JobSnapshot, SlurmNode
from foundation.slurm.calling.run_command import run_command
from foundation.slurm.slurm_types import SlurmRefusedError, SlurmUnreachableError
from foundation.units import counted

_COMPOSE_WITHIN_S = 600.0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of `up` besides the shape."""

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
    nodes: tuple[SlurmNode, ...] | None
    jobs: JobSnapshot | None
    failures: Mapping[str, Sequence[str]]

    @property
    def daemons_wanted(self) -> int:
        """Number of containers of a complete cluster."""
        state, watch = self.state, self.state.monitoring
        watchers = 0 if watch is None else 1 + (watch.grafana_image is not None)
        return 1 + state.shape.nodes + 2 * bool(state.accounting) + watchers

    @property
    def is_whole(self) -> bool:
        """Whether every container runs, and every node can take jobs."""
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
            another shape, or what `up` did not make. A first `up` takes down what it started, unless it
            does not come further (``StuckError``): then all is left as it is, for the logs say why.
        HostError
            The engine or its compose is missing or does not answer.
        TrustError
            Another user could have made the folder, or can write to it.
        """
        engine = find_engine(engine_name)
        with take_home(self.folder, create=True) as home:
            assert home is not None
            try:
                old = _own_state(home)
                new = self._wanted(home, engine, shape, options, old, say)
                if old is not None and (why := differs(old, new)) is not None:
                    raise ClusterError(
                        f"{self.folder} holds {why}; `osub cluster down {state_option(self.folder)}` first"
                    )
                if old is not None:
                    new = msgspec.structs.replace(new, most_nodes=old.most_nodes)
                if old is not None and old.shape.virtual == new.shape.virtual:
                    new = msgspec.structs.replace(new, memory_mib=old.memory_mib)
                elif old is not None:
                    say("nodes are made anew: they cannot stay pinned to the cores of this host")
                images = images_to_build(new.debian, accounting=new.accounting, monitoring=new.monitoring)
                ensure_images(engine, images, base_of(engine, new.debian), anew=options.build, say=say)
            except BaseException:
                home.leave()
                raise
            home.furnish((), 0o700)
            write_compose_state(home, new)
            try:
                self._start(engine, new, say)
            except StuckError:
                raise
            except BaseException:
                if old is None:
                    say("taking down what was started")
                    with signals_deferred(), suppress(OsubError):  # `down` tries again
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
        nodes: tuple[SlurmNode, ...] | None = None
        jobs: JobSnapshot | None = None
        with suppress(SlurmUnreachableError, SlurmRefusedError):
            client = slurm_client(engine, containers)
            nodes, jobs = tuple(client.nodes()), client.jobs()
        failures = {one.name: last_words(engine, one) for one in containers if not one.is_alive}
        return ComposeStatus(state, containers, nodes, jobs, failures)

    def down(self, say: Callable[[str], None] = lambda _: None) -> DownResult:
        """End the cluster and remove what `up` made. Safe to repeat, whatever was killed.

        Where the folder is gone, what carries its path is removed all the same. Signals take effect later.

        Raises
        ------
        ClusterError
            Something of it survived; the message names it.
        HostError
            The engine does not answer.
        TrustError
            Another user could have made the folder, or can write to it.
        """
        with signals_deferred(), take_home(self.folder) as home:
            if home is None:
                return DownResult(existed=self._take_down_left(say))
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
        return DownResult(existed, tuple(left))

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
                f"{self.folder} holds an embedded cluster; "
                f"`osub cluster down {state_option(self.folder)}` first"
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
        say(f"starting {counted(state.shape.nodes, 'node')} in containers")
        words = up_words(engine.compose, state, engine.facts)
        answer = run_command(words, None, os.environ | compose_environment(state), _COMPOSE_WITHIN_S)
        checked(words, answer)
        roles = [one.role for one in list_containers(engine, state.home, state.cluster)]
        if missing := missing_roles(roles, state):  # podman-compose is content with anything
            raise ClusterError(f"{engine.compose[0]} made no container for {missing[0]}: {last_word(answer)}")
        wait_until_whole(engine, state, say)


def _own_state(home: Home) -> ComposeState | None:
    content = home.read(FILE)
    return None if content is None else decode_state(content, home.path)
