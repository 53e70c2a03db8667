"""What tables and figures show of a run, and how numbers are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

import msgspec

from analysis.claims import estimate
from osub.physical.outcome import ReplayOutcome
from osub.physical.plan import DAY, FIRST
from osub.physical.results import Results
from simulator.experiment_page import ABSENT

Value = Callable[[ReplayOutcome], float]
NAMES = {FIRST: "first hours", DAY: "whole day"}


def longest_wait(kind: str) -> Value:
    """Return what tells the longest wait of a kind."""
    return lambda outcome: outcome.longest_wait_s(kind)


def largest_slowdown(kind: str) -> Value:
    """Return what tells the largest slowdown of a kind."""
    return lambda outcome: outcome.largest_slowdown(kind)


def percentile(number: int) -> Value:
    """Return what tells a percentile of completion."""
    return lambda outcome: outcome.percentiles_s()[number]


def waited(outcome: ReplayOutcome) -> float:
    """Return the share of the interactive jobs that waited."""
    return outcome.waited()


def cell(results: Results, key: str, workload: str, value: Value, *, scaled: bool = False) -> str:
    """Return the mean over the trials, real and simulated; shares as such where they are."""
    factor = results.plan.compression(workload) if scaled else 1.0
    real = [factor * value(one) for (name, _), one in results.real.get(key, {}).items() if name == workload]
    made = [
        factor * value(one) for (name, _), one in results.simulated.get(key, {}).items() if name == workload
    ]
    is_share = value is waited
    if not real:
        return ABSENT
    shown = share_text(real) if is_share else mean_text(real)
    return shown + (f" ({_short(mean(made), percent=is_share)})" if made else "")


def mean_text(values: Sequence[float], *, percent: bool = False) -> str:
    """Return the mean of values with its interval, a dash without any."""
    if not values:
        return ABSENT
    found = estimate([100 * value for value in values] if percent else list(values))
    return found.text("%" if percent else "")


def each_text(results: Results, key: str, value: Value, *, share: bool = False) -> str:
    """Return a layout's mean and interval for each workload; they differ too much for a mean of both."""
    found = []
    for workload in results.workloads():
        values = results.values(key, value, workload)
        shown = share_text(values) if share else mean_text(values)
        found.append(f"{NAMES[workload]} {shown}")
    return ", ".join(found) or ABSENT


def share_text(values: Sequence[float]) -> str:
    """Return the mean of shares with its interval, a dash without any. It lies between 0 and 100%."""
    if not values:
        return ABSENT
    found = estimate([100 * value for value in values])
    if found.low is not None and found.high is not None:
        found = msgspec.structs.replace(found, low=max(0.0, found.low), high=min(100.0, found.high))
    return found.text("%")


def _short(value: float, *, percent: bool) -> str:
    return estimate([100 * value if percent else value]).text("%" if percent else "")


def seconds(value: float | None) -> str:
    """Return seconds as text."""
    return ABSENT if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def speed_text(value: float) -> str:
    """Return a speed as text."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
