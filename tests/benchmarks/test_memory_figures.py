"""What reserving predicted peaks gives: ``pytest -m benchmark -s tests/benchmarks/test_memory_figures.py``.

The first needs Gaia's log below ``OSUB_SHARED/traces``, the only one there with used memory. It has no
requests: each user draws one factor over the peaks of his own jobs (lognormal, sigma 0.3), each job scatters
about it (0.2). ``OSUB_MEMORY_FACTORS`` are the means of that factor (1.5, 2.5 and 4), ``OSUB_MEMORY_GIB``
sizes of a node (4 and 8), ``OSUB_MEMORY_SEEDS`` how many draws (1; 10 of the second).

The second (``-k rule``) lets memory grow with work in exact slices, and gangs give way as gangd lets them:
``OSUB_MEMORY_POINTS`` are over-requests and spreads of peaks, ``OSUB_MEMORY_JOBS`` the jobs of a draw (300).
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

import osub
from simulator.simulation import cleaning_of
from simulator.simulation_session import SimulationSession
from simulator.simulation_spec import SimulationSpec
from tests.fixtures.voice import say
from workloads.swf import load_columns

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]
GAIA = Path(os.environ.get("OSUB_SHARED", "/nonexistent"), "traces", "UniLu-Gaia-2014-1.swf.gz")
SYSTEM, JOBS, OVERHEAD = "N100C12", 12_000, 1.1
STEP_KIB = 32 << 10
RULES = (
    (1, "requested", 0.95), (2, "requested", 0.95), (2, "predicted", 0.95), (2, "predicted", 0.99),
    (2, "used", 0.95), (2, "ignored", 0.95),
)  # fmt: skip


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
                        path, SYSTEM, multiplicity=multiplicity, memory=rule,
                        memory_coverage=coverage, memory_gib=gib, vary_overhead=False,
                        oversize="skip", overhead=OVERHEAD,
                    ).outcome  # fmt: skip
                    kills = 1000 * found["out_of_memory"] / found["jobs"]
                    say(
                        f"{ratio:.2f} | {gib:g} GiB | {seed} | {multiplicity} | {rule} {coverage:g} | "
                        f"{found['wait_mean_s']:,.0f} | {kills:.1f}"
                    )


MIB = 1024
USERS, GAP_S, NODE_GIB, BOUND_MIB, COVERAGE = 5, 20.0, 3.125, 800.0, 0.9
"""Two nodes of four cores are busy for three quarters of the time at M=1 if memory lets them."""
WAYS = (
    (1, "requested", None), (1, "predicted", None), (2, "ignored", None), (2, "ignored", BOUND_MIB),
    (2, "predicted", None), (2, "predicted", BOUND_MIB),
)  # fmt: skip


class Came(NamedTuple):
    """What came of a draw under one way: killed jobs, mean wait and turnaround, suspensions for memory."""

    killed: int
    wait_s: float
    turnaround_s: float
    deferrals: int


def write_mixture(path: Path, factor: float, spread: float, seed: int, jobs: int) -> None:
    """Write jobs of one core; each user asks for ``factor`` times the mean of his peaks."""
    dice, come_s = Random(seed), 0.0
    means = [400 * MIB * dice.lognormvariate(-0.18, 0.6) for _ in range(USERS)]
    with path.open("w") as trace:
        for number in range(1, jobs + 1):
            come_s += dice.expovariate(1 / GAP_S)
            user = dice.randrange(USERS)
            peak = round(means[user] * dice.lognormvariate(-spread * spread / 2, spread))
            asked, run_s = max(peak, round(factor * means[user])), dice.randint(60, 180)
            when = f"{number} {round(come_s)} 0 {run_s}"
            trace.write(f"{when} 1 -1 {peak} 1 {2 * run_s} {asked} 1 {user} 1 1 1 -1 -1 -1\n")


def draw(path: Path) -> list[Came]:
    """Run a trace under each way; where the rule suspended no job its run is the one without it."""
    found: dict[tuple[int, str, float | None], Came] = {}
    for way in sorted(WAYS, key=lambda one: one[2] is None):
        multiplicity, memory, bound = way
        ruled = found.get((multiplicity, memory, BOUND_MIB))
        if ruled is not None and not ruled.deferrals:
            found[way] = ruled
            continue
        slices: dict[str, Any] = {
            "memory_growth": 0.5,
            "memory_mib": bound,
            "quantum_ms": 5000.0,
            "hold": "freeze",
        }
        spec = SimulationSpec(
            trace=path, system="N2C4", multiplicity=multiplicity, overhead=1.0,
            interactive_queue=-1, memory=memory, memory_gib=NODE_GIB, memory_coverage=COVERAGE,
            **(slices if multiplicity > 1 else {}),
        )  # fmt: skip
        result = SimulationSession(path, spec, cleaning_of(spec)).run()
        gang, killed = result.pools[0].run.gang, result.out_of_memory
        assert killed is not None
        found[way] = Came(
            int(killed.sum()),
            float((result.start_us - result.submit_us).mean() / 1e6),
            float((result.end_us - result.submit_us).mean() / 1e6),
            0 if gang is None else gang.deferrals,
        )
    return [found[way] for way in WAYS]


def interval(values: list[float]) -> str:
    """Return the mean of draws and its 95% interval (normal)."""
    mean = float(np.mean(values))
    error = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{mean:.0f} s [{mean - error:.0f}, {mean + error:.0f}]"


def test_kills_and_waits_with_the_rule(tmp_path: Path) -> None:
    jobs = int(os.environ.get("OSUB_MEMORY_JOBS", "300"))
    seeds = int(os.environ.get("OSUB_MEMORY_SEEDS", "10"))
    points = os.environ.get("OSUB_MEMORY_POINTS", "2.5:0.3,1.2:0.3,4:0.3,2.5:0.8").split(",")
    rows: dict[str, list[list[Came]]] = {point: [] for point in points}
    for seed in range(1, seeds + 1):
        for point in points:
            factor, spread = map(float, point.split(":"))
            path = tmp_path / f"{point}-{seed}.swf"
            write_mixture(path, factor, spread, seed, jobs)
            rows[point].append(draw(path))
            shown = [tuple(round(figure, 1) for figure in came) for came in rows[point][-1]]
            say(f"draw {seed}, {point}: {shown}")
    say("over-request | spread | M | memory | rule, MiB | killed | mean wait | turnaround | suspensions")
    for point, draws in rows.items():
        for place, (multiplicity, memory, bound) in enumerate(WAYS):
            came = [one[place] for one in draws]
            say(
                f"{point.replace(':', ' | ')} | {multiplicity} | {memory} | {bound or '-'} | "
                f"{sum(one.killed for one in came)} of {jobs * len(came)} | "
                f"{interval([one.wait_s for one in came])} | "
                f"{interval([one.turnaround_s for one in came])} | {sum(one.deferrals for one in came)}"
            )
