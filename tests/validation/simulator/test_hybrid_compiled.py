"""Compiled and plain kernels of the hybrid mechanisms have the same schedules and records."""

from __future__ import annotations

import hashlib

import pytest

from simulator.hybrid.hybrid_pool import run_jobs
from tests.property.simulator.hybrid_cases import HybridWorld, baseline, sharing, world_of

WORLDS = 60
_COLUMNS = ("start_us", "end_us", "ready_us", "held_node_us", "lost_us", "setup_us", "preemptions", "shrinks")


def digest(worlds: list[HybridWorld]) -> str:
    digest_now = hashlib.sha256()
    for world in worlds:
        found = run_jobs(world.jobs, world.nodes, world.mechanism, records=True)
        for name in _COLUMNS:
            digest_now.update(found.column(name).tobytes())
        for name in ("job", "from_us", "to_us", "why", "setup_us", "lost_us", "node", "mask"):
            digest_now.update(getattr(found.stretches, name).tobytes())
    return digest_now.hexdigest()


@pytest.mark.long  # it compiles a loop of its own
def test_compiled_kernels_do_what_plain_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = [
        change(world_of(seed)) for seed in range(WORLDS) for change in (lambda it: it, sharing, baseline)
    ]
    monkeypatch.setenv("OSUB_JIT", "0")
    plain = digest(worlds)
    monkeypatch.setenv("OSUB_JIT", "1")
    assert digest(worlds) == plain
