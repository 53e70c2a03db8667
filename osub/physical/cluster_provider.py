"""Clusters in the layouts of the study: its own ones that come and go, given ones, one that is changed."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deploy.compose.cluster import ComposeCluster, Options
from deploy.compose.engine import EngineName
from deploy.local import LocalCluster, Shape
from deploy.local.state import ClusterState
from deploy.local.watch import watch_embedded
from foundation.errors import ClusterError, UsageError
from foundation.interruption import signals_deferred
from foundation.mpi_start import mpi_environment
from foundation.slurm import CommandSlurm
from osub.live.cluster import find_cluster
from osub.live.forward import AskedReplay, Hear, replay_there
from osub.live.gang import AUTO, FoundGang, collector_of, find_gang
from osub.physical.folder import StudyFolder
from osub.physical.layouts import DEDICATED, SHAPE, SharingLayout, layout_found
from osub.physical.plan import PLACES
from submitter.plan import ReplayOptions, TargetCluster, look_at_target
from submitter.replay import Collect, Look, Replay

Say = Callable[[str], None]
Follow = Callable[[Replay, str, Collect | None, float, Look | None], bool]
"""Carries one replay out under a title, for so many seconds at most; False if the user ended it."""


class Bed(Protocol):
    """A cluster to replay on."""

    def replay(self, asked: AskedReplay, follow: Follow) -> bool:
        """Carry a replay out; False if the user ended it."""
        ...


@dataclass(frozen=True, slots=True)
class SlurmBed:
    """A cluster whose Slurm is reached from here: who takes turns, and whether tasks must pin themselves."""

    client: CommandSlurm
    gang: FoundGang
    pin: bool
    embedded: ClusterState | None = None

    def replay(self, asked: AskedReplay, follow: Follow) -> bool:
        """Carry a replay out; False if the user ended it."""
        options = ReplayOptions(
            label=asked.label,
            trial=asked.trial,
            gang=self.gang.settings,
            slices=self.gang.slices,
            pin=self.pin,
            memory=False,  # of another machine
            block_jobs=asked.block_jobs,
            environment=mpi_environment(os.environ, one_host=self.embedded is not None),
        )
        session = Replay.begin(asked.swf, asked.out, self.client, options, asked.apps)
        collect = collector_of(self.gang.slices, self.client.config())
        look = None if self.embedded is None else watch_embedded(self.embedded)
        return follow(session, asked.title, collect, asked.most_s, look)


@dataclass(frozen=True, slots=True)
class ContainedBed:
    """A cluster in containers, by its state folder, and the signals that end a replay there."""

    folder: Path
    hear: Hear

    def replay(self, asked: AskedReplay, follow: Follow) -> bool:  # noqa: ARG002 - it is followed in the container
        """Carry a replay out; False if the user ended it."""
        try:
            replay_there(self.folder, self.hear, asked)
        except KeyboardInterrupt:
            return False
        return True


Beds = Callable[[str], AbstractContextManager[Bed]]
"""Gives the cluster of a layout while the context lasts."""


@dataclass(frozen=True, slots=True)
class OwnBeds:
    """Clusters of the study's own, one at a time, in a folder that a killed study's successor finds.

    They are embedded ones of this host, or with an ``engine`` in its containers; ``hear`` are the signals
    that end a replay there.
    """

    nodes: int
    cores: int
    layouts: Mapping[str, SharingLayout]
    folder: StudyFolder
    engine: EngineName | None = None
    hear: Hear = lambda _: nullcontext()

    def clear(self) -> bool:
        """Take down what a killed study left; returns whether there was a cluster."""
        left = self.folder.cluster_folder()
        if left is None:
            return False
        ended = (LocalCluster if self.engine is None else ComposeCluster)(left).down()
        with suppress(OSError):
            left.parent.rmdir()
        self.folder.note_cluster(None)
        return ended.existed

    @contextmanager
    def bed(self, layout: str) -> Iterator[Bed]:
        """Start the cluster of a layout, and end it however the context ends."""
        shape = SHAPE if layout == PLACES else self.layouts[layout].shape(self.nodes, self.cores)
        folder = Path(tempfile.mkdtemp(prefix="osub-thesis-7-")) / "cluster"
        self.folder.note_cluster(folder)
        try:
            with own_bed(folder, shape, self.engine, self.hear) as bed:
                yield bed
        finally:
            with signals_deferred():
                with suppress(OSError):
                    folder.parent.rmdir()
                self.folder.note_cluster(None)


@contextmanager
def own_bed(folder: Path, shape: Shape, engine: EngineName | None, hear: Hear) -> Iterator[Bed]:
    """Start a cluster in a folder, embedded or in an engine's containers; end it however the context ends."""
    cluster = LocalCluster(folder) if engine is None else ComposeCluster(folder)
    try:
        if isinstance(cluster, LocalCluster):
            cluster.up(shape)
            client, state = cluster.client(), cluster.state()
            gang = find_gang(AUTO, state, client.config(), ())
            yield SlurmBed(client, gang, pin=shape.cores > 1 and not shape.virtual, embedded=state)
        else:
            assert engine is not None
            cluster.up(engine, shape, Options(accounting=False))
            yield ContainedBed(folder, hear)
    finally:
        with signals_deferred():
            cluster.down()


def given_bed(clusters: Mapping[str, Path], layout: str) -> AbstractContextManager[Bed]:
    """Give the user's cluster of a layout, which he configured."""
    return nullcontext(look_at(clusters[layout]).bed)


@dataclass(frozen=True, slots=True)
class ConfiguredBeds:
    """One Slurm of the user's that a program of his changes to each layout.

    Parameters
    ----------
    folder
        Of its slurm.conf.
    program
        Called with the layout's key before each use, such as ``sq-m2-naive``; Slurm has that layout when it
        has ended with exit code 0.
    layouts
        By key.
    """

    folder: Path
    program: Path
    layouts: Mapping[str, SharingLayout]

    @contextmanager
    def bed(self, layout: str) -> Iterator[SlurmBed]:
        """Have Slurm changed to this layout, and give it.

        Raises
        ------
        ClusterError
            The program failed, or Slurm does not have the layout afterwards.
        """
        try:
            done = subprocess.run(
                [str(self.program.absolute()), layout], check=False, capture_output=True, text=True
            )
        except OSError as error:
            raise ClusterError(f"cannot run {self.program}: {error.strerror}") from error
        if done.returncode:
            words = (done.stderr or done.stdout).strip().splitlines()
            why = words[-1] if words else f"exit code {done.returncode}"
            raise ClusterError(f"{self.program} {layout} failed: {why}")
        looked = look_at(self.folder)
        if looked.layout is None or looked.layout.key != layout:
            has = "none of the study's" if looked.layout is None else looked.layout.label
            raise ClusterError(
                f"after {self.program} {layout} the Slurm of {self.folder} has another layout: {has}, not "
                f"{self.layouts[layout].label}"
            )
        yield looked.bed


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    """A cluster of the user's: what it is, and which layout it has (None: none of the study's)."""

    bed: SlurmBed
    target: TargetCluster
    layout: SharingLayout | None


def look_at(folder: Path) -> ObservedCluster:
    """Look at a cluster of the user's.

    Raises
    ------
    ClusterError, InputError, TrustError
        It cannot be looked at.
    """
    client, embedded = find_cluster(folder)
    target = look_at_target(client)
    gang = find_gang(AUTO, embedded, client.config(), target.node_names)
    pin = embedded is not None and not embedded.shape.virtual and embedded.shape.cores > 1
    return ObservedCluster(SlurmBed(client, gang, pin, embedded), target, layout_found(target, gang.settings))


@dataclass(frozen=True, slots=True)
class Given:
    """What the user's clusters are: one size, and which of them has which layout."""

    nodes: int
    cores: int
    layouts: tuple[SharingLayout, ...]
    folders: Mapping[str, Path]


def recognise(folders: Sequence[Path], say: Say) -> Given:
    """Look at the user's clusters.

    Raises
    ------
    UsageError
        One of them has no layout of the study, two have the same, they differ in size, or the dedicated one
        (SQ M=1), from which the jobs have their work, is missing.
    ClusterError, InputError, TrustError
        One of them cannot be looked at.
    """
    found: dict[str, tuple[SharingLayout, Path]] = {}
    sizes: dict[str, Path] = {}
    target: TargetCluster | None = None
    for folder in folders:
        looked = look_at(folder)
        target, gang, layout = looked.target, looked.bed.gang, looked.layout
        if gang.remark is not None:
            say(f"{folder}: {gang.remark}")
        if layout is None:
            raise UsageError(
                f"{folder} has no layout of the study: {target.system}, M={target.batch.multiplicity}, gang "
                f"{gang.settings.kind}; it takes SQ with M=1, or M=2 (naive, Slurm's gang, gangd), or MQ "
                "with M=1 on the batch nodes"
            )
        if layout.key in found:
            raise UsageError(f"{folder} and {found[layout.key][1]} both have the layout {layout.label}")
        found[layout.key] = layout, folder
        sizes[target.system] = folder
    if len(sizes) != 1 or target is None:
        raise UsageError(f"the clusters differ in size: {', '.join(sizes)}")
    if DEDICATED.key not in found:
        raise UsageError("no cluster with one queue and M=1 is given: from its run the jobs have their work")
    dedicated = found.pop(DEDICATED.key)
    ordered = [dedicated, *found.values()]
    return Given(
        nodes=len(target.node_names),
        cores=target.cores,
        layouts=tuple(layout for layout, _ in ordered),
        folders={layout.key: folder for layout, folder in ordered},
    )
