"""Clusters for tests on a real Slurm: one that a module shares, and a maker of others."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local import LocalCluster, Shape
from deploy.local.daemons import find_process
from deploy.local.host import PROGRAMS, find_program
from tests.fixtures.leftovers import left_of_cluster

MISSING = [name for name in PROGRAMS if find_program(name) is None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not MISSING:
        return
    skip = pytest.mark.skip(reason=f"no Slurm on this host: {', '.join(MISSING)} missing")
    for item in items:
        if item.get_closest_marker("slurm"):
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what Slurm's daemons wrote last to the report of a test that failed on the shared cluster."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("shared_cluster")
    if report.failed and isinstance(cluster, LocalCluster):
        report.sections.append(("what Slurm's daemons wrote last", last_lines(cluster)))
    return report


def last_lines(cluster: LocalCluster, lines: int = 40) -> str:
    """Return the last lines of what each of Slurm's daemons wrote."""
    logs = sorted((cluster.folder / "log").glob("slurm*.log"))
    return "\n".join(
        f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
        for path in logs
    )


def quick_to_kill(shape: Shape) -> Shape:
    """Kill after 3 s, not 30, what outlives SIGTERM: a job that is cancelled while it is launched does."""
    if any(setting.startswith("KillWait=") for setting in shape.settings):
        return shape
    return replace(shape, settings=(*shape.settings, "KillWait=3"))


@contextmanager
def empty_folder() -> Iterator[Path]:
    """Give a folder for clusters, which must be empty again in the end: what is left is not swept away."""
    folder = Path(tempfile.mkdtemp(prefix="osub-test-"))
    yield folder
    folder.rmdir()


@pytest.fixture
def make_cluster() -> Iterator[Callable[[Shape], LocalCluster]]:
    """Start clusters that are ended, and checked to have left nothing, after the test."""
    with empty_folder() as folder:
        clusters: list[LocalCluster] = []

        def make(shape: Shape) -> LocalCluster:
            cluster = LocalCluster(folder / f"c{len(clusters)}")
            clusters.append(cluster)
            cluster.up(quick_to_kill(shape))
            return cluster

        try:
            yield make
        finally:
            for cluster in clusters:
                end_cluster(cluster)


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[LocalCluster]:
    """Two nodes of one core, M=2, for tests that leave the cluster as it was."""
    with empty_folder() as folder:
        cluster = LocalCluster(folder / "c")
        cluster.up(quick_to_kill(Shape(nodes=2, cores=1, virtual=True, multiplicity=2)))
        try:
            yield cluster
        finally:
            end_cluster(cluster)


@pytest.fixture(autouse=True)
def mended(request: pytest.FixtureRequest) -> None:
    """Start what an earlier test has killed of a shared cluster, so that one fault is one failure."""
    for name in {"shared_cluster", "gang_cluster"}.intersection(request.fixturenames):
        value = request.getfixturevalue(name)
        cluster = value if isinstance(value, LocalCluster) else getattr(value, "cluster", None)
        if isinstance(cluster, LocalCluster):
            state = cluster.state()
            if any(find_process(daemon) is None for daemon in state.daemons):
                cluster.up(state.shape)


def end_cluster(cluster: LocalCluster) -> None:
    """End a cluster and check that it left nothing."""
    if not (cluster.folder / "cluster.json").exists():
        return
    layout = cluster.state().layout
    cluster.down()
    assert left_of_cluster(layout) == []
