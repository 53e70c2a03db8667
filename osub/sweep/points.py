"""A point of a sweep: its key, which follows from parameters, files and code; and running it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foundation.errors import InputError, OsubError
from osub.sweep.spec import FILES, KIND, KINDS, SETTING, SIMULATED, Parameters

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


_PACKAGES = ("simulator", "osub", "foundation", "analysis", "workloads", "predictor", "gangd")
_ELSEWHERE = {("osub", "cli"), ("osub", "sweep"), ("foundation", "slurm")}
_REPLAYING = ("submitter", "deploy", "gangd", "workloads", "foundation", "analysis")


@dataclass(frozen=True, slots=True)
class Point:
    """One setting, with the key of what comes of it."""

    key: str
    parameters: Parameters


def point_of(parameters: Parameters) -> Point:
    """Return the point; raises InputError if a file cannot be read."""
    is_replay = parameters.get(KIND) == "replay"
    usual: Parameters = {} if is_replay else _USUAL
    identity = {
        name: _content(Path(str(value))) if _is_file(name, value) else value
        for name, value in sorted(parameters.items())
        if not (name in usual and type(usual[name]) is type(value) and usual[name] == value)
    }
    # A trace under another name is another's result: tables have the name.
    identity["trace_name"] = Path(str(parameters["trace"])).name
    packages = _REPLAYING if is_replay else _PACKAGES
    text = json.dumps([code_version(packages), identity], sort_keys=True)
    return Point(hashlib.sha256(text.encode()).hexdigest()[:32], parameters)


def _is_file(name: str, value: object) -> bool:
    text = str(value)
    plugin = name in {"policy", "placement", "sharing"} and ".py:" in text
    return name in FILES or plugin or (name == "apps" and text.endswith(".csv"))


_USUAL: Parameters = {
    KIND: KINDS[0],
    **{
        name: field.default
        for name, field in SIMULATED.items()
        if isinstance(field.default, str | int | float)
    },
}
"""What a simulation takes where nothing is said: to say it makes no other point."""


@cache
def code_version(packages: tuple[str, ...] = _PACKAGES) -> str:
    """Return a digest of all sources that a simulation's, or a replay's, result can depend on."""
    digest = hashlib.sha256()
    for package in packages:
        found = importlib.util.find_spec(package)
        assert found is not None
        assert found.origin is not None
        folder = Path(found.origin).parent
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).parts
            if packages == _PACKAGES and (package, parts[0]) in _ELSEWHERE:
                continue
            digest.update(f"{package}/{'/'.join(parts)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _content(path: Path) -> str:
    """Return the digest of a file, or of all files of a folder; ``FILE.py:NAME`` is the file and the name."""
    name = ""
    if not path.exists() and ":" in path.name:
        text, _, name = str(path).rpartition(":")
        path = Path(text)
    if path.is_dir():
        return _digest([one for one in sorted(path.iterdir()) if one.is_file()]) + name
    return _digest([path]) + name


def _digest(paths: list[Path]) -> str:
    return hashlib.sha256("".join(_of_file(str(path), _stamp(path)) for path in paths).encode()).hexdigest()


def _stamp(path: Path) -> tuple[int, int]:
    try:
        seen = path.stat()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    return seen.st_size, seen.st_mtime_ns


@cache
def _of_file(path: str, stamp: tuple[int, int]) -> str:  # noqa: ARG001 - part of the key of what is kept
    try:
        with Path(path).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
