"""A trace made into another of the same system: parts, mergers, compression, other arrivals and run times."""

from __future__ import annotations

from workloads.trace.transforms.busy_window import (
    SLOT_S,
    THESIS_WINDOW,
    BusyWindow,
    ClipReport,
    clip_run_times,
    clipped_s,
    compress,
    compress_apart,
    cut_window,
    find_window,
    scale_arrivals,
    with_run_time,
)
from workloads.trace.transforms.filters import Align, DrawBy, Selection, TagField, merge_traces
from workloads.trace.transforms.trace_conversion import Tag, Tagging, TraceConversion, converted
