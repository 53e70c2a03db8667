"""One cluster under gangd that all tests of this folder share, and that each leaves as it was."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest

from deploy.local import GangKind, HoldSetting, LocalCluster, Shape
from tests.integration.conftest import empty_folder, end_cluster
from tests.integration.gang.stage import Stage


@pytest.fixture(scope="package")
def gang_cluster() -> Iterator[Stage]:
    """Two nodes of one core and two jobs a core, in two partitions that overlap; a short KillWait."""
    shape = Shape(
        nodes=2,
        cores=1,
        virtual=len(os.sched_getaffinity(0)) < 2,
        multiplicity=2,
        gang=GangKind.OSUB,
        hold=HoldSetting.FREEZE,
        quantum_ms=250,
        settings=(
            "KillWait=5",
            "UnkillableStepTimeout=10",
            "PrologFlags=contain",
            "PartitionName=night Nodes=ALL OverSubscribe=FORCE:2 DefMemPerCPU=100 State=UP",
        ),
    )
    with empty_folder() as folder:
        folder.chmod(0o711)  # some jobs are another user's
        cluster = LocalCluster(folder / "c")
        cluster.up(shape)
        try:
            yield Stage(cluster, shape)
        finally:
            end_cluster(cluster)


@pytest.fixture
def stage(gang_cluster: Stage) -> Iterator[Stage]:
    """The shared cluster; afterwards all jobs are ended and nothing may be frozen or drained."""
    yield gang_cluster
    gang_cluster.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what controller and agents wrote last to the report of a test that failed on the shared cluster."""
    report = yield
    stage = getattr(item, "funcargs", {}).get("stage")
    if report.failed and isinstance(stage, Stage):
        report.sections.append(("what the daemons wrote last", stage.last_lines()))
    return report
