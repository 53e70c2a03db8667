"""From figures to the text that Prometheus reads, by its own library; imported only where metrics are on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from foundation.errors import UsageError
from gangd.monitor.histogram import Buckets
from gangd.monitor.metric_figures import Figures, Values, complete
from gangd.monitor.metrics_table import Kind, Metric

try:
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
    from prometheus_client.core import Metric as Family
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.utils import floatToGoString
except ImportError as error:
    raise UsageError(
        "metrics need the package prometheus-client, which is missing: pip install 'osub[metrics]'"
    ) from error


class Exposition:
    """Renders what ``figures`` returns at that moment.

    Parameters
    ----------
    table
        What is exported.
    figures
        Called for each page, in the thread that serves it.
    """

    def __init__(self, table: Iterable[Metric], figures: Callable[[], Figures]) -> None:
        self._table = tuple(table)
        self._figures = figures
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def describe(self) -> list[Family]:
        """Nothing is checked when this is registered: the table is checked by its tests."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yield the families, for the library."""
        for metric, series in complete(self._table, self._figures()).items():
            yield _family(metric, series)

    def page(self, accept: str) -> tuple[str, bytes]:
        """Return content type and text, in the format that the header ``Accept`` asks for."""
        encode, kind = choose_encoder(accept)
        return kind, encode(self._registry)


def _family(metric: Metric, series: Values | Buckets) -> Family:
    if isinstance(series, Buckets):
        bounds = (*map(floatToGoString, series.bounds_s), "+Inf")
        histogram = HistogramMetricFamily(metric.name, metric.text)
        histogram.add_metric([], list(zip(bounds, series.counts, strict=True)), series.sum_s)
        return histogram
    family: GaugeMetricFamily | CounterMetricFamily
    if metric.kind is Kind.COUNTER:
        family = CounterMetricFamily(metric.name, metric.text, labels=metric.label_names)
    else:
        family = GaugeMetricFamily(metric.name, metric.text, labels=metric.label_names)
    for labels, value in series.items():
        family.add_metric(list(labels), value)
    return family
