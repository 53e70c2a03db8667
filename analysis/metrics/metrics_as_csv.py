"""Metrics of runs as CSV: a row a figure, a column a run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

import msgspec

from analysis.metrics.run_metrics import RunMetrics


def metrics_csv(metrics: Sequence[RunMetrics]) -> str:
    """Return the figures of runs, such as ``kinds.batch.wait_s.mean``; empty where one is not known.

    Names are those of ``osub report --json``. Lists, such as notes, are left out.
    """
    columns = [dict(_figures(msgspec.to_builtins(run))) for run in metrics]
    names = list(dict.fromkeys(name for column in columns for name in column))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["figure", *(run.label for run in metrics)])
    for name in names:
        values = [column.get(name) for column in columns]
        writer.writerow([name, *("" if value is None else value for value in values)])
    return out.getvalue()


def _figures(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if name or key != "label":
                yield from _figures(inner, f"{name}.{key}" if name else str(key))
    elif not isinstance(value, list | tuple):
        yield name, value
