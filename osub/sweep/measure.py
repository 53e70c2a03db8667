"""Runs one point: what a worker does. Errors of the point are an answer; others are the worker's."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foundation.errors import OsubError
from osub.sweep.spec import KIND, SETTING, Parameters

if TYPE_CHECKING:
    import polars as pl

Outcome = dict[str, Any]


def measure(parameters: Parameters) -> Outcome:
    """Simulate a point and return its figures; ``{"error": ...}`` where it cannot be simulated."""
    from osub.api.simulation import simulate

    began, cpu = time.perf_counter(), time.process_time()
    plain = {
        name: value for name, value in parameters.items() if name != KIND and not name.startswith(SETTING)
    }
    settings = {
        name.removeprefix(SETTING): value for name, value in parameters.items() if name.startswith(SETTING)
    }
    try:
        run = simulate(**plain, settings=settings, vary_overhead=False)  # type: ignore[arg-type]  # the specification has checked them
        figures = figures_of(run.with_measures()) | {
            name: run.outcome[name] for name in ("jobs", "makespan_s", "events", "engine_cpu_s")
        }
        figures["utilisation"] = run.metrics().utilisation_allocated
    except OsubError as error:
        return {"error": str(error), "wall_s": time.perf_counter() - began}
    figures |= {"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}
    return _finite(figures)


def figures_of_run(path: Path) -> Outcome:
    """Return the figures of a RUN that is there; raises InputError."""
    from osub.api.run import Run

    run = Run(path)
    metrics = run.metrics()
    return _finite(
        figures_of(run.with_measures())
        | {
            "jobs": run.jobs.height,
            "makespan_s": metrics.makespan_s,
            "utilisation": metrics.utilisation_allocated,
        }
    )


def _finite(figures: Outcome) -> Outcome:
    """Return the figures with nothing for what is not a number: JSON has no word for it."""
    return {
        name: value if not isinstance(value, float) or math.isfinite(value) else None
        for name, value in figures.items()
    }


def measure_choice(parameters: Parameters) -> dict[str, object]:
    """Simulate a setting of a search and return its figures; a share or a quantum of 0 is none."""
    plain = dict(parameters)
    if str(plain.get("interactive_share", "0")).rstrip("%") not in {"0", "0.0"}:
        plain["queues"] = "mq"
    else:
        plain.pop("interactive_share", None)
    if not plain.get("quantum_ms"):
        plain.pop("quantum_ms", None)
    return measure(plain)


def figures_of(jobs: pl.DataFrame) -> Outcome:
    """Return mean, 95th percentile and largest of what a user feels, over the jobs of a run."""
    import polars as pl

    from analysis.quantiles import quantile

    found: Outcome = {}
    for name in ("wait_s", "degradation", "slowdown_osub"):
        column = jobs.get_column(name).drop_nulls().cast(pl.Float64)
        stem = {"wait_s": "wait", "slowdown_osub": "slowdown"}.get(name, name)
        tail = "_s" if stem == "wait" else ""
        if column.is_empty():
            continue
        found[f"{stem}_mean{tail}"] = column.mean()
        found[f"{stem}_p95{tail}"] = quantile(column, 0.95)
        found[f"{stem}_max{tail}"] = column.max()
    return found
