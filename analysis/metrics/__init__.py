"""Figures of a run, from the rows of its RUN: what jobs held and waited, what the system was used for."""

from __future__ import annotations

from analysis.metrics.derived_columns import (
    BETA_S,
    MOST_SPREAD,
    MOST_TAKEN,
    WAIT_THRESHOLD_S,
    MetricOptions,
    with_derived,
)
from analysis.metrics.fitness import Unfit, job_faults, unfit
from analysis.metrics.held_stretches import in_stretches, placed, stretches
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
from analysis.metrics.use_of_host import LEAST_JOBS, HostUse, host_use, pace_of

__all__ = [
    "ATTENDED",
    "BETA_S",
    "KINDS",
    "LEAST_JOBS",
    "MOST_SPREAD",
    "MOST_TAKEN",
    "USED",
    "WAIT_THRESHOLD_S",
    "HostUse",
    "KindMetrics",
    "KindName",
    "MetricOptions",
    "RunMetrics",
    "SliceMetrics",
    "Unfit",
    "WorkMetrics",
    "busy_slices",
    "completion_by_cpu_time",
    "completion_by_jobs",
    "core_lists",
    "host_use",
    "in_stretches",
    "job_faults",
    "measure",
    "metrics_csv",
    "named_figures",
    "node_entries",
    "numbered_once",
    "origin_s",
    "pace_of",
    "placed",
    "spans",
    "stretches",
    "unattended_by_node",
    "unfit",
    "usage_intervals",
    "with_derived",
]
