"""Interactive and batch jobs of a trace side by side, as thesis Table 7.2 has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workloads.swf import SwfJob, SwfTrace
from workloads.trace.models import interactive_flags


@dataclass(frozen=True, slots=True)
class KindSummary:
    """One kind of jobs: how many, the widest, run times, and times busy (a batch job is busy all along).

    Figures are ``None`` where no job of the kind has them.
    """

    jobs: int
    max_procs: int | None
    max_run_s: float | None
    mean_run_s: float | None
    max_busy_s: float | None
    mean_busy_s: float | None


THESIS_TABLE_7_2 = {
    "interactive": KindSummary(14, 12, 43_209, 8_566, 7_299, 1_123),
    "batch": KindSummary(68, 25, 14_410, 5_968, 14_410, 5_968),
}


def summarize_kinds(trace: SwfTrace, interactive_queue: int | None = 0) -> dict[str, KindSummary]:
    """Return the summaries of ``interactive`` and ``batch`` jobs."""
    flags = interactive_flags(trace, interactive_queue)
    interactive = [job for job, flag in zip(trace.jobs, flags, strict=True) if flag]
    batch = [job for job, flag in zip(trace.jobs, flags, strict=True) if not flag]
    busy_s = [pattern.busy_s for job in interactive if (pattern := job.pattern) is not None]
    return {
        "interactive": _summary(interactive, busy_s),
        "batch": _summary(batch, [job.run_s for job in batch if job.run_s is not None]),
    }


def _summary(jobs: Sequence[SwfJob], busy_s: Sequence[float]) -> KindSummary:
    runs_s = [job.run_s for job in jobs if job.run_s is not None]
    return KindSummary(
        jobs=len(jobs),
        max_procs=max((job.procs for job in jobs if job.procs is not None), default=None),
        max_run_s=max(runs_s, default=None),
        mean_run_s=sum(runs_s) / len(runs_s) if runs_s else None,
        max_busy_s=max(busy_s, default=None),
        mean_busy_s=sum(busy_s) / len(busy_s) if busy_s else None,
    )
