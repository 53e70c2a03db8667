"""Time-shared schedules stay as they are to the microsecond, whatever changes in how rates are settled."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from simulator.timeshare.timeshare_pool import Noise, run
from simulator.timeshare.timeshare_state import SharingConfig, TimeshareDemands

DIGESTS = {
    (7, 150, "spmd"): "b90ccc493a33d887",
    (7, 150, "any"): "c9b34d5e4cb0d1f5",
    (7, 150, "cap"): "7c785531a679374f",
    (7, 150, "batch"): "c37af09c03605fab",
    (120, 120, "spmd"): "8c89c79b6330fc55",
    (120, 120, "any"): "087d528de2dd51eb",
    (120, 120, "cap"): "1a38fb744cee9dbb",
    (120, 120, "batch"): "c62368a5424890d8",
    (5000, 30, "spmd"): "6119729ecac7e38f",
    (5000, 30, "any"): "b1b2128ca9c849cb",
    (5000, 30, "cap"): "0524857d32f29c5c",
    (5000, 30, "batch"): "0caaeba436b4c1b1",
}  # by nodes, jobs and setting; from the loop that kept each node's jobs and rates in records of its own
SETTINGS = {
    "spmd": SharingConfig(),
    "any": SharingConfig(spmd=False),
    "cap": SharingConfig(cap=3, in_order=True, overhead=0.05, tick_us=10_000_000),
    "batch": SharingConfig(batch=True),
}


def world(nodes: int, count: int) -> TimeshareDemands:
    """Draw jobs from one node to all, half as much again as the nodes can do while they come."""
    rng = np.random.default_rng([nodes, count])
    sizes = np.minimum(nodes, np.ceil(nodes ** (rng.random(count) ** 1.5))).astype(np.int64)
    run_us = rng.integers(1, 5_000_000_000, count)
    last_us = max(1, int((sizes * run_us).sum()) // nodes * 2 // 3)
    return TimeshareDemands(
        submit_us=np.sort(rng.integers(0, last_us, count)),
        run_us=run_us,
        request_us=run_us * 2,
        nodes=sizes,
        memory=rng.integers(1, 60, count),
    )


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(("nodes", "count"), [(7, 150), (120, 120), (5000, 30)])
def test_a_schedule_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, nodes: int, count: int, setting: str
) -> None:
    monkeypatch.setenv("OSUB_JIT", "0")
    noise = Noise(probability=0.1 / nodes, seed=2)
    found = run(world(nodes, count), nodes, SETTINGS[setting], noise)
    digest = hashlib.sha256()
    for values in (found.start_us, found.end_us, found.node, found.progress):
        digest.update(np.ascontiguousarray(values).tobytes())
    assert digest.hexdigest()[:16] == DIGESTS[nodes, count, setting]
