"""Writes ``docs/metrics.md``: ``python -m gangd.monitor.metrics_document > docs/metrics.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from gangd.monitor.metrics_table import AGENT, CONTROLLER, PROCESS, Metric, MetricKind

_HEAD = """\
# Metrics of gangd and gang-agent

Generated from `gangd/monitor/metrics_table.py` by `python -m gangd.monitor.metrics_document`; do not edit.
How to switch them on, who may read them, dashboard and alerts: [monitoring.md](monitoring.md).

Names end in their unit. Every series is there from the first scrape on, whether anything has happened or
not. None is of a job, a user or a node: Slurm (25.11 and later) exports its jobs and nodes itself, and
`osub top` and `slices.jsonl` tell of single ones."""


def render() -> str:
    """Return the page."""
    parts = [
        _HEAD,
        "## The controller",
        _rows(CONTROLLER),
        "## An agent",
        _rows(AGENT),
        "## Both",
        _rows(PROCESS),
        "## Values of labels",
        _values((*CONTROLLER, *AGENT)),
    ]
    return "\n\n".join(parts) + "\n"


def _rows(table: Iterable[Metric]) -> str:
    rows = [
        f"| `{metric.name}` | {metric.kind.value} | "
        f"{', '.join(f'`{name}`' for name in metric.label_names)} | {metric.text} |"
        for metric in table
    ]
    return "\n".join(["| metric | type | labels | meaning |", "| --- | --- | --- | --- |", *rows])


def _values(table: Iterable[Metric]) -> str:
    rows = []
    for metric in table:
        if metric.kind is MetricKind.HISTOGRAM:
            bounds = ", ".join(f"{bound:g}" for bound in metric.bounds_s)
            rows.append(f"| `{metric.name}` | `le` | {bounds} s |")
        elif metric.kind is not MetricKind.INFO:
            rows += [
                f"| `{metric.name}` | `{name}` | {', '.join(values)} |" for name, values in metric.labels
            ]
    return "\n".join(["| metric | label | values |", "| --- | --- | --- |", *rows])


if __name__ == "__main__":
    sys.stdout.write(render())
