"""Writes ``docs/metrics.md``: ``python -m gangd.monitor.metrics_document > docs/metrics.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from gangd.monitor.metrics_table import AGENT, CONTROLLER, PROCESS, Metric, MetricKind

_HEAD = """\
# Metrics of gangd and gang-agent

Generated from `gangd/monitor/metrics_table.py` by `python -m gangd.monitor.metrics_document`; do not edit.
How to switch them on, dashboard and alerts: [monitoring.md](monitoring.md).

Names end in their unit; `_total` is a counter, the label `le` a histogram, all else a gauge. Every series is
there from the first scrape on. None is of a job, a user or a node: Slurm (25.11 and later) exports its jobs
and nodes itself; `osub top` and `slices.jsonl` have single ones."""


def render() -> str:
    """Return the page."""
    parts = [
        _HEAD,
        "## The controller",
        _rows(CONTROLLER),
        "## An agent",
        _rows(AGENT),
        "## Both",
        f"Of the process, by prometheus-client: {', '.join(f'`{one.name}`' for one in PROCESS)}.",
        "## Values of labels",
        _values((*CONTROLLER, *AGENT)),
    ]
    return "\n\n".join(parts) + "\n"


def _rows(table: Iterable[Metric]) -> str:
    rows = [f"| `{_name(metric)}` | {metric.text} |" for metric in table]
    return "\n".join(["| metric{labels} | meaning |", "| --- | --- |", *rows])


def _name(metric: Metric) -> str:
    names = (*metric.label_names, *["le"] * (metric.kind is MetricKind.HISTOGRAM))
    return metric.name + (f"{{{','.join(names)}}}" if names else "")


def _values(table: Iterable[Metric]) -> str:
    """Name the values of each label, those that several metrics have alike once."""
    metrics_of: dict[tuple[str, str], list[str]] = {}
    for metric in table:
        labels = [(name, ", ".join(values)) for name, values in metric.labels if values]
        if metric.kind is MetricKind.HISTOGRAM:
            labels.append(("le", ", ".join(f"{bound:g}" for bound in metric.bounds_s) + " s"))
        for label in labels:
            metrics_of.setdefault(label, []).append(f"`{metric.name}`")
    rows = [f"| `{name}` | {', '.join(names)} | {values} |" for (name, values), names in metrics_of.items()]
    return "\n".join(["| label | of | values |", "| --- | --- | --- |", *rows])


if __name__ == "__main__":
    sys.stdout.write(render())
