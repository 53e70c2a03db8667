"""What a trace is like: figures, tables and a picture."""

from __future__ import annotations

from workloads.trace.views.kinds_table import THESIS_TABLE_7_2, KindSummary, summarize_kinds
from workloads.trace.views.trace_summary import PERCENTILES, TraceSummary, summarize

__all__ = ["PERCENTILES", "THESIS_TABLE_7_2", "KindSummary", "TraceSummary", "summarize", "summarize_kinds"]
