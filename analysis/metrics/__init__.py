"""Figures of a run, from the rows of its RUN: what jobs held and waited, what the system was used for."""

from __future__ import annotations

from analysis.metrics.derived_columns import (
    BETA_S,
    MOST_SPREAD,
    MOST_TAKEN,
    WAIT_THRESHOLD_S,
    MetricOptions,
    in_stretches,
    placed,
    stretches,
    with_derived,
)
from analysis.metrics.fitness import (
    LEAST_JOBS,
    HostUse,
    Unfit,
    cut_short,
    host_use,
    job_faults,
    pace_of,
    unfit,
)
from analysis.metrics.run_metrics import (
    KINDS,
    KindMetrics,
    KindName,
    RunMetrics,
    WorkMetrics,
    completion_by_cpu_time,
    completion_by_jobs,
    measure,
    metrics_csv,
    named_figures,
    origin_s,
)
from analysis.metrics.slice_metrics import (
    ATTENDED,
    USED,
    SliceMetrics,
    busy_slices,
    core_lists,
    node_entries,
    numbered_once,
    spans,
    unattended_by_node,
    usage_intervals,
)
