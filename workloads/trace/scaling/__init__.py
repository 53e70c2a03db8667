"""A trace of one system made into a trace for a smaller one."""

from __future__ import annotations

from workloads.trace.scaling.half_hours import scale_trace
from workloads.trace.scaling.miniature import fcfs_makespan_s, make_miniature
from workloads.trace.scaling.replayable_trace import (
    THESIS,
    ClusterSize,
    Experiment,
    ScalingSource,
    ScalingTarget,
    keep_shares,
    known_procs,
    make_experiment,
    source_of,
)
from workloads.trace.scaling.thesis_days import (
    BATCH_QUEUE,
    CORES,
    FIRST_JOBS,
    INTERACTIVE_QUEUE,
    JOB_OF_FIGURE_7_8,
    NODES,
    KnownJob,
    check_gaia,
    first_hours,
    whole_day,
)
