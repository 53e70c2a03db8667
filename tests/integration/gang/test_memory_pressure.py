"""Two jobs that do not fit into a node's memory together: one is killed, and under the rule none."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from deploy.local import GangKind, Shape
from foundation.slurm import SlurmJobState
from gangd.controller.slicelog import read_peaks
from tests.fixtures.gang_memory import MEMORY, RULE, Mixed, stage
from tests.fixtures.looks import until
from tests.integration.gang.stage import Stage

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.parallel,
    pytest.mark.skipif(
        os.geteuid() != 0 or not (MEMORY / "memory.limit_in_bytes").exists(),
        reason="needs root and the memory controller of cgroup v1: a cgroup stands for a node's memory",
    ),
]
LIMIT_MIB, BOUND_MIB, PEAK_MIB = 800, 350, 500
JOB = Mixed(PEAK_MIB, 160)
SHAPE = Shape(nodes=1, cores=1, virtual=True, multiplicity=2, gang=GangKind.OSUB)
OPTIONS = ("-n1", "--mem=1000M")


@pytest.fixture
def small(request: pytest.FixtureRequest) -> Iterator[Stage]:
    keys = RULE.format(bound=BOUND_MIB, reclaim="false") if request.param else ""
    with stage(SHAPE, keys, LIMIT_MIB) as found:
        yield found


@pytest.mark.parametrize("small", [False], indirect=True)
def test_without_the_rule_the_kernel_kills_a_job(small: Stage) -> None:
    jobs = [small.start(JOB.body, options=OPTIONS) for _ in range(2)]
    states = small.finish(*jobs, within_s=180)
    assert states.count(SlurmJobState.COMPLETED) == 1, states


@pytest.mark.parametrize("small", [True], indirect=True)
def test_with_the_rule_the_youngest_waits_and_both_end(small: Stage) -> None:
    old, young = [small.start(JOB.body, options=OPTIONS) for _ in range(2)]
    small.wait_state(young, "deferred", within_s=60)
    [alarm] = [alarm for alarm in small.status().alarms if alarm.kind == "memory"]
    assert (alarm.job, alarm.nodes, alarm.user) == (young, small.nodes, "root")
    assert small.finish(old, young, within_s=180) == [SlurmJobState.COMPLETED] * 2
    until(lambda: not [one for one in small.status().alarms if one.kind == "memory"], 30, "it ends")
    record = small.layout.gang / "record"
    until(lambda: {old, young} <= {job for job, _ in read_peaks(record)}, 30, "peaks are recorded")
    assert all(kib > PEAK_MIB * 1024 * 0.95 for kib in read_peaks(record).values())
