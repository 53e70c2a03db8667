"""Clusters in the layouts of the study: embedded ones that come and go, given ones, one that is changed."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deploy.local import LocalCluster, Shape
from deploy.local.state import ClusterState
from foundation.errors import ClusterError, UsageError
from foundation.slurm import CommandSlurm
from osub.live.cluster import find_cluster
from osub.live.gang import AUTO, FoundGang, find_gang
from osub.physical.folder import StudyFolder
from osub.physical.layouts import DEDICATED, Layout, layout_found
from osub.physical.places import SHAPE
from osub.physical.plan import PLACES
from submitter.plan import Target, look_at_target

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Bed:
    """A cluster to replay on: its Slurm, who takes turns there, and whether tasks must pin themselves."""

    client: CommandSlurm
    gang: FoundGang
    pin: bool
    embedded: ClusterState | None = None


class Beds(Protocol):
    """Whatever has a cluster for each layout."""

    def bed(self, layout: str) -> AbstractContextManager[Bed]:
        """Give the cluster of a layout while the context lasts."""
        ...


class EmbeddedBeds:
    """Embedded clusters on this host, one at a time, in a folder that a killed study's successor finds."""

    def __init__(self, nodes: int, cores: int, layouts: Mapping[str, Layout], folder: StudyFolder) -> None:
        self._nodes, self._cores = nodes, cores
        self._layouts = layouts
        self._folder = folder

    def clear(self) -> bool:
        """Take down what a killed study left; returns whether there was a cluster."""
        left = self._folder.cluster_folder()
        if left is None:
            return False
        ended = LocalCluster(left).down()
        with suppress(OSError):
            left.parent.rmdir()
        self._folder.note_cluster(None)
        return ended.existed

    @contextmanager
    def bed(self, layout: str) -> Iterator[Bed]:
        """Start the cluster of a layout, and end it however the context ends."""
        shape = SHAPE if layout == PLACES else self._layouts[layout].shape(self._nodes, self._cores)
        folder = Path(tempfile.mkdtemp(prefix="osub-thesis-7-")) / "cluster"
        cluster = LocalCluster(folder)
        self._folder.note_cluster(folder)
        try:
            cluster.up(shape)
            yield _bed_of(cluster, shape)
        finally:
            cluster.down()
            with suppress(OSError):
                folder.parent.rmdir()
            self._folder.note_cluster(None)


def _bed_of(cluster: LocalCluster, shape: Shape) -> Bed:
    client = cluster.client()
    gang = find_gang(AUTO, cluster.state(), client.config(), ())
    return Bed(client, gang, pin=shape.cores > 1 and not shape.virtual, embedded=cluster.state())


class GivenBeds:
    """Clusters that the user configured, each recognised by its configuration."""

    def __init__(self, clusters: Mapping[str, Path]) -> None:
        self._clusters = clusters

    @contextmanager
    def bed(self, layout: str) -> Iterator[Bed]:
        """Give the user's cluster of this layout."""
        yield look_at(self._clusters[layout]).bed


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

    def __init__(self, folder: Path, program: Path, layouts: Mapping[str, Layout]) -> None:
        self._folder, self._program = folder, program
        self._layouts = layouts

    @contextmanager
    def bed(self, layout: str) -> Iterator[Bed]:
        """Have Slurm changed to this layout, and give it.

        Raises
        ------
        ClusterError
            The program failed, or Slurm does not have the layout afterwards.
        """
        try:
            done = subprocess.run(
                [str(self._program.absolute()), layout], check=False, capture_output=True, text=True
            )
        except OSError as error:
            raise ClusterError(f"cannot run {self._program}: {error.strerror}") from error
        if done.returncode:
            words = (done.stderr or done.stdout).strip().splitlines()
            why = words[-1] if words else f"exit code {done.returncode}"
            raise ClusterError(f"{self._program} {layout} failed: {why}")
        looked = look_at(self._folder)
        if looked.layout is None or looked.layout.key != layout:
            has = "none of the study's" if looked.layout is None else looked.layout.label
            raise ClusterError(
                f"after {self._program} {layout} the Slurm of {self._folder} has another layout: {has}, not "
                f"{self._layouts[layout].label}"
            )
        yield looked.bed


@dataclass(frozen=True, slots=True)
class Looked:
    """A cluster of the user's: what it is, and which layout it has (None: none of the study's)."""

    bed: Bed
    target: Target
    layout: Layout | None


def look_at(folder: Path) -> Looked:
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
    return Looked(Bed(client, gang, pin, embedded), target, layout_found(target, gang.settings))


@dataclass(frozen=True, slots=True)
class Given:
    """What the user's clusters are: one size, and which of them has which layout."""

    nodes: int
    cores: int
    layouts: tuple[Layout, ...]
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
    found: dict[str, tuple[Layout, Path]] = {}
    sizes: dict[str, Path] = {}
    target: Target | None = None
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
