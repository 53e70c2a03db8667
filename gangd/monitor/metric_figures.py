"""Values of metrics by name and labels, completed from the table: every declared series is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gangd.monitor.histogram import Buckets
from gangd.monitor.metrics_table import Metric, MetricKind

Values = Mapping[tuple[str, ...], float]
Figures = Mapping[str, Values | Buckets | float]
"""By name: one value, one for each label value (a tuple of them), or a histogram."""

UNKNOWN = float("nan")


def complete(table: Iterable[Metric], figures: Figures) -> dict[Metric, Values | Buckets]:
    """Return every metric of a table with all of its series; one without a value is 0.

    Label values that the table does not declare are added up under ``OTHER``. KeyError for a metric that the
    table does not have: it would be missing in the documentation.
    """
    declared = {metric.name: metric for metric in table}
    unknown = figures.keys() - declared.keys()
    if unknown:
        raise KeyError(f"not in the table of metrics: {', '.join(sorted(unknown))}")
    return {metric: _series(metric, figures.get(name)) for name, metric in declared.items()}


def _series(metric: Metric, values: Values | Buckets | float | None) -> Values | Buckets:
    if metric.kind is MetricKind.HISTOGRAM:
        empty = Buckets(metric.bounds_s, (0,) * (len(metric.bounds_s) + 1), 0.0)
        return values if isinstance(values, Buckets) else empty
    series = {} if metric.kind is MetricKind.INFO else dict.fromkeys(metric.series(), 0.0)
    if isinstance(values, Mapping):
        for labels, value in values.items():
            key = metric.known(labels)
            series[key] = series.get(key, 0.0) + value
    elif isinstance(values, int | float):
        series[()] = float(values)
    return series
