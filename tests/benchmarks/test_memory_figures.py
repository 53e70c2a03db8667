"""What reserving predicted peaks gives: ``pytest -m benchmark -s tests/benchmarks/test_memory_figures.py``.

Needs Gaia's log below ``OSUB_SHARED/traces``, the only one there with used memory. It has no requests: each
user draws one factor over the peaks of his own jobs (lognormal, sigma 0.3), each job scatters about it (0.2).
``OSUB_MEMORY_FACTORS`` are the means of that factor (1.5, 2.5 and 4), ``OSUB_MEMORY_GIB`` sizes of a node (4
and 8), ``OSUB_MEMORY_SEEDS`` how many draws (1).
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import osub
from tests.fixtures.voice import say
from workloads.swf import load_columns

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]
GAIA = Path(os.environ.get("OSUB_SHARED", "/nonexistent"), "traces", "UniLu-Gaia-2014-1.swf.gz")
SYSTEM, JOBS, OVERHEAD = "N100C12", 12_000, 1.1
STEP_KIB = 32 << 10
RULES = (
    (1, "requested", 0.95),
    (2, "requested", 0.95),
    (2, "predicted", 0.95),
    (2, "predicted", 0.99),
    (2, "used", 0.95),
    (2, "ignored", 0.95),
)


def numbers(name: str, default: str) -> list[float]:
    return [float(word) for word in os.environ.get(name, default).split(",")]


def chosen_jobs() -> pl.DataFrame:
    """Return batch jobs of at most 96 processors and 3 GiB a processor."""
    frame = load_columns(GAIA, strict=False).frame
    used = pl.col("used_memory_kib")
    small = (pl.col("allocated_procs") <= 96) & (used > 1000) & (used < 3 << 20)
    return frame.filter(small & (pl.col("run_s") > 0) & (pl.col("queue") == 1)).head(JOBS)


def write_requests(frame: pl.DataFrame, factor: float, seed: int, path: Path) -> float:
    """Write the jobs with drawn requests; returns by how much all of them ask too much."""
    dice = np.random.default_rng(seed)
    used, users = frame["used_memory_kib"].to_numpy(), frame["user"].to_list()
    own = {user: factor * np.exp(dice.normal(0, 0.3) - 0.045) for user in sorted(set(users))}
    scatter = np.exp(dice.normal(0, 0.2, len(used)))
    asked = np.maximum(used, np.array([own[user] for user in users]) * used * scatter)
    asked = np.ceil(asked / STEP_KIB).astype(int) * STEP_KIB
    with path.open("w") as trace:
        for number, (job, kib) in enumerate(zip(frame.iter_rows(named=True), asked, strict=True), 1):
            procs, limit = job["allocated_procs"], int(job["requested_s"] or 86_400)
            trace.write(
                f"{number} {int(job['submit_s'])} 0 {int(job['run_s'])} {procs} -1 "
                f"{int(job['used_memory_kib'])} {procs} {limit} {kib} 1 {job['user']} 1 "
                f"{job['executable'] or 1} 1 -1 -1 -1\n"
            )
    procs = frame["allocated_procs"].to_numpy()
    return float((asked * procs).sum() / (used * procs).sum())


def test_waits_and_kills_over_requests(tmp_path: Path) -> None:
    if not GAIA.exists():
        pytest.skip(f"no trace {GAIA}")
    frame = chosen_jobs()
    say("requested over used | node | draw | M | reserved | mean wait, s | killed in 1,000 jobs")
    for factor in numbers("OSUB_MEMORY_FACTORS", "1.5,2.5,4"):
        for seed in range(1, 1 + int(numbers("OSUB_MEMORY_SEEDS", "1")[0])):
            path = tmp_path / f"{factor:g}-{seed}.swf"
            ratio = write_requests(frame, factor, seed, path)
            for gib in numbers("OSUB_MEMORY_GIB", "4,8"):
                for multiplicity, rule, coverage in RULES:
                    found = osub.simulate(
                        path,
                        SYSTEM,
                        multiplicity=multiplicity,
                        memory=rule,
                        memory_coverage=coverage,
                        memory_gib=gib,
                        vary_overhead=False,
                        oversize="skip",
                        overhead=OVERHEAD,
                    ).outcome
                    kills = 1000 * found["out_of_memory"] / found["jobs"]
                    say(
                        f"{ratio:.2f} | {gib:g} GiB | {seed} | {multiplicity} | {rule} {coverage:g} | "
                        f"{found['wait_mean_s']:,.0f} | {kills:.1f}"
                    )
