from __future__ import annotations

import numpy as np
import pytest

from foundation.errors import UsageError
from workloads.swf import SwfHeader, SwfJob, SwfTrace
from workloads.trace.models.interactive_jobs import (
    embed_patterns,
    interactive_flags,
    tag_interactive,
    utilisation,
)


def trace() -> SwfTrace:
    jobs = [SwfJob(i, i, run_s=i * 100, allocated_procs=i % 20 + 1, queue=i % 4) for i in range(1, 101)]
    return SwfTrace(SwfHeader(), tuple(jobs))


def test_only_the_queue_gets_periods_and_they_fill_the_run_time() -> None:
    embedded = embed_patterns(trace(), queue=0, seed=3)
    for before, after in zip(trace().jobs, embedded.jobs, strict=True):
        if before.queue != 0:
            assert after == before
        else:
            assert after.pattern is not None
            assert after.pattern.total_s == before.run_s
    assert embedded.header.notes == ("osub interactive: periods for 25 jobs of queue 0, seed 3",)


def test_jobs_that_have_periods_keep_them() -> None:
    once = embed_patterns(trace(), seed=3)
    assert embed_patterns(once, seed=4) == once


def test_same_seed_same_periods() -> None:
    assert embed_patterns(trace(), seed=3) == embed_patterns(trace(), seed=3)
    assert embed_patterns(trace(), seed=3).jobs != embed_patterns(trace(), seed=4).jobs


def test_tagging_moves_narrow_jobs_and_empties_the_queue_of_others() -> None:
    tagged = tag_interactive(trace(), share=0.2, max_procs=4, queue=0, seed=1)
    chosen = [job for job in tagged.jobs if job.queue == 0]
    assert len(chosen) == 20
    assert all((job.procs or 0) <= 4 for job in chosen)
    assert {job.queue for job in tagged.jobs} == {0, 1, 2, 3, 4}


def test_tagging_takes_as_many_as_are_narrow_enough() -> None:
    assert sum(job.queue == 9 for job in tag_interactive(trace(), 1.0, 1, queue=9).jobs) == 5
    with pytest.raises(UsageError, match="share"):
        tag_interactive(trace(), 1.5, 1)


def test_trace_with_one_queue_distinguishes_no_kinds() -> None:
    assert sum(interactive_flags(trace(), 0)) == 25
    assert sum(interactive_flags(trace(), None)) == 0
    alike = SwfTrace(SwfHeader(), (SwfJob(1, 0, queue=0), SwfJob(2, 0, queue=0)))
    assert interactive_flags(alike, 0) == [False, False]


def test_utilisation_is_busy_over_total() -> None:
    pattern = embed_patterns(trace(), seed=3).jobs[99].pattern
    assert pattern is not None
    share = utilisation(pattern)
    assert share is not None
    assert np.isclose(share, pattern.busy_s / pattern.total_s)
