"""Clusters in containers: up, status, down, and which ones run on this host.

A cluster in containers: up, status, down, with the verbs and the states of the embedded cluster.

`up` builds what images are missing, has compose start what does not run, and waits until every node is idle
in Slurm and every agent has joined. Called again it starts what has died, or adds and removes nodes. `down`
removes what carries the cluster's labels, and the state folder's files.

Waiting until a cluster in containers is whole: how often is looked, what is said, and when it is given up.

A slow host must not be kept busy by the looking: a pause is as long as the engine takes for a simple answer.
A cluster is given up when nothing has moved for minutes, and is then left as it is, for its logs say why.

Which clusters in containers run on this host: from labels of the engines' containers.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deploy.compose.containers import (
    HOME,
    Container,
    last_words,
    list_containers,
    of_role,
    own_filters,
    slurm_client,
    take_down,
)
from deploy.compose.engine import Engine, EngineName, find_engine, last_word
from deploy.compose.image import choose_watchers, ensure_images
from deploy.compose.inside.settings import find_name
from deploy.compose.inside.slurm_says import Ready, read_ready
from deploy.compose.plan import (
    DEBIANS,
    FEWEST_KEYS,
    FILE,
    ComposeState,
    compose_environment,
    decode_state,
    differs,
    missing_roles,
    read_compose_state,
    up_words,
    write_compose_state,
)
from deploy.local.cluster import DownResult
from deploy.local.home import Home, take_home
from deploy.local.layout import names_of, state_option
from deploy.shape import Shape
from foundation.errors import ClusterError, HostError, InputError, OsubError
from foundation.interruption import signals_deferred
from foundation.one_line import one_line
from foundation.slurm import JobSnapshot, SlurmNode
from foundation.slurm.run_command import run_command
from foundation.slurm.slurm_types import SlurmRefusedError, SlurmUnreachableError
from foundation.units import counted

STUCK_S = 300.0
"""A cluster that has not come further for so long is given up; a slow host may take longer in all."""
_POLL_S = 0.5
_LOOK_FOR_S = 3.0
_EXEC_WITHIN_S = 120.0
_QUIET_S = 10.0
"""After so long without progress, the state of the awaited containers is printed."""
_MOST_RESTARTS = 3
_FOREIGN = re.compile(
    "no command specified|no such file or directory|executable file not found|exec format error"
    "|No module named",
    re.IGNORECASE,
)
"""What is said of an image of this name that has something else in it."""
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
            raise ClusterError(f"{one.name} does not live: {_with_advice(why)}")


def _with_advice(why: str) -> str:
    """Return why a container does not start, with what to do where its image was made by something else."""
    return f"{why}; `osub cluster up` with --build makes the images anew" if _FOREIGN.search(why) else why


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
                ensure_images(
                    engine,
                    new.debian,
                    accounting=new.accounting,
                    monitoring=new.monitoring,
                    anew=options.build,
                    say=say,
                )
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
            memory_mib=shape.node_memory_mib(engine.facts.memory_mib),
            accounting=options.accounting,
            monitoring=watchers,
        )

    def _start(self, engine: Engine, state: ComposeState, say: Callable[[str], None]) -> None:
        say(f"starting {counted(state.shape.nodes, 'node')} in containers")
        words = up_words(engine.compose, state, engine.facts)
        answer = run_command(words, None, os.environ | compose_environment(state), _COMPOSE_WITHIN_S)
        if answer.returncode != 0:
            why = last_word(answer, of_several=0)
            raise ClusterError(f"{' '.join(engine.compose)} cannot start the cluster: {_with_advice(why)}")
        roles = [one.role for one in list_containers(engine, state.home, state.cluster)]
        if missing := missing_roles(roles, state):  # podman-compose is content with anything
            why = last_word(answer, of_several=0)  # it goes on after an error, and later ones follow from it
            raise ClusterError(f"{engine.compose[0]} made no container for {missing[0]}: {why}")
        wait_until_whole(engine, state, say)


def _own_state(home: Home) -> ComposeState | None:
    content = home.read(FILE)
    return None if content is None else decode_state(content, home.path)


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
