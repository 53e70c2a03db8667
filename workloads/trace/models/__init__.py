"""Traces and busy periods that are drawn: from models, or to what was measured."""

from __future__ import annotations

from workloads.trace.models.generated_trace import generate_trace, least_factor, offered_load
from workloads.trace.models.interactive_jobs import (
    INTERACTIVE_S,
    JOBS_A_BLOCK,
    MOST_CORES,
    MOST_RUN_S,
    by_kind,
    choose,
    coupled_mix,
    embed_patterns,
    interactive_flags,
    make_interactive,
    synthesize_patterns,
    tag_interactive,
)
