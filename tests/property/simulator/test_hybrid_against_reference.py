"""The kernels against the mechanisms as they are written plainly, in random worlds."""

from __future__ import annotations

import pytest
from hypothesis import given

from simulator.hybrid.hybrid_pool import run_jobs
from tests.fixtures.tier import examples
from tests.property.simulator.hybrid_cases import SEEDS, baseline, world_of
from tests.property.simulator.reference_hybrid import Reference

pytestmark = pytest.mark.usefixtures("plain")


@pytest.mark.parametrize("alone", [False, True])
@examples(60)
@given(seed=SEEDS)
def test_kernels_do_what_the_mechanisms_say(alone: bool, seed: int) -> None:
    world = baseline(world_of(seed)) if alone else world_of(seed)
    plainly = Reference(world)
    plainly.run()
    found = run_jobs(world.jobs, world.nodes, world.mechanism)
    reported = [(job.start, job.end, job.preemptions, job.lost) for job in plainly.jobs]
    columns = (found.column(name).tolist() for name in ("start_us", "end_us", "preemptions", "lost_us"))
    assert reported == list(zip(*columns, strict=True))
