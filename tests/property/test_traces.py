"""Traces transformed, and behaviour of interactive jobs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import UsageError
from tests.fixtures.recordings import sampled
from tests.fixtures.tier import examples
from workloads.behaviour.pattern_synthesis import decode, encode
from workloads.behaviour.recording_library import Recording, busy_idle, embed_recordings
from workloads.swf import InteractivePattern, SwfHeader, SwfJob, SwfTrace
from workloads.trace.local_clock import stretch, to_ms, to_s
from workloads.trace.models.interactive_jobs import MOST_BUSY_PERIODS, synthesize_patterns
from workloads.trace.scaling.half_hours import scale_trace
from workloads.trace.scaling.miniature import fcfs_makespan_s
from workloads.trace.scaling.slot_choice import halved, kind_of, nearest_of_kind
from workloads.trace.transforms import busy_window
from workloads.trace.transforms.filters import Selection, merge_traces, select_jobs

DAY_S = 86_400


@st.composite
def patterns_of(draw: st.DrawFn, run_s: int) -> tuple[float, ...]:
    """Extension columns whose periods fill ``run_s``, or none."""
    if not draw(st.booleans()):
        return ()
    cuts = sorted(draw(st.lists(st.integers(0, run_s), min_size=2, max_size=8)))
    edges = [0, *cuts[: len(cuts) // 2 * 2], run_s]
    parts = [end - start for start, end in pairwise(edges)]
    pattern = InteractivePattern(parts[0], parts[-1], tuple(parts[1:-1:2]), tuple(parts[2:-1:2]))
    return pattern.to_extension()


@st.composite
def traces(draw: st.DrawFn) -> SwfTrace:
    submits = sorted(draw(st.lists(st.integers(0, 3 * DAY_S), min_size=1, max_size=40)))
    jobs = []
    for number, submit_s in enumerate(submits, start=1):
        run_s = draw(st.integers(0, 100_000))
        jobs.append(
            SwfJob(
                number,
                submit_s,
                run_s=run_s,
                allocated_procs=draw(st.none() | st.integers(1, 300)),
                requested_procs=draw(st.none() | st.integers(1, 300)),
                requested_s=draw(st.none() | st.integers(run_s, 200_000)),
                queue=draw(st.sampled_from([0, 1, None])),
                extension=draw(patterns_of(run_s)),
            )
        )
    return SwfTrace(SwfHeader().with_field("MaxProcs", 256), tuple(jobs))


def is_sorted(trace: SwfTrace) -> bool:
    submits = [job.submit_s for job in trace.jobs]
    return submits == sorted(submits)


@given(traces(), st.floats(1e-2, 1e6))
@examples(100)
def test_compression_keeps_order_and_exact_sums(trace: SwfTrace, speedup: float) -> None:
    small = busy_window.compress(trace, speedup)
    assert is_sorted(small)
    assert len(small.jobs) == len(trace.jobs)
    for before, after in zip(trace.jobs, small.jobs, strict=True):
        assert to_ms(after.submit_s) == round(to_ms(before.submit_s) / speedup)
        assert to_ms(after.run_s or 0) == round(to_ms(before.run_s or 0) / speedup)
        if before.pattern is not None:
            assert after.pattern is not None
            assert sum(map(to_ms, after.pattern.periods_s)) == to_ms(after.run_s or 0)
            assert len(after.pattern.activations_s) == len(before.pattern.activations_s)


@given(traces(), st.integers(0, 50), st.integers(50, 5000))
@examples(100)
def test_clipping_keeps_bounds_requests_and_exact_sums(
    trace: SwfTrace, shortest_s: int, longest_s: int
) -> None:
    clipped, report = busy_window.clip_run_times(trace, shortest_s, longest_s)
    changed = 0
    for before, after in zip(trace.jobs, clipped.jobs, strict=True):
        assert before.run_s is not None
        assert after.run_s is not None
        assert shortest_s <= after.run_s <= longest_s
        changed += before.run_s != after.run_s
        if after.requested_s is not None:
            assert after.requested_s >= after.run_s
        if after.pattern is not None:
            assert sum(map(to_ms, after.pattern.periods_s)) == to_ms(after.run_s)
    assert changed == report.raised + report.cut


@given(
    traces(),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(0, 5),
    st.sampled_from([0, 1, None]),
    st.floats(0.05, 3),
)
@examples(100)
def test_scaled_jobs_fit_the_system_and_come_from_the_trace(
    trace: SwfTrace, nodes: int, cores: int, seed: int, queue: int | None, intensity: float
) -> None:
    arguments = {"seed": seed, "interactive_queue": queue, "intensity": intensity}
    try:
        scaled, report = scale_trace(trace, nodes, cores, **arguments)  # type: ignore[arg-type]
    except UsageError as error:
        assert "nothing is left" in str(error)  # noqa: PT017
        return
    assert is_sorted(scaled)
    assert len({job.job_number for job in scaled.jobs}) == len(scaled.jobs)
    assert all(1 <= (job.procs or 0) <= nodes * cores for job in scaled.jobs)
    assert all(job.requested_procs in (None, job.procs) for job in scaled.jobs)
    assert {job.run_s for job in scaled.jobs} <= {job.run_s for job in trace.jobs}
    assert (scaled.header.max_procs, scaled.header.max_nodes) == (nodes * cores, nodes)
    assert report.jobs_after + report.interactive_jobs == len(scaled.jobs)
    assert scale_trace(trace, nodes, cores, **arguments)[0] == scaled  # type: ignore[arg-type]


@given(st.integers(1, 10_000), st.integers(0, 12), st.integers(1, 500))
def test_halving_never_exceeds_the_system_and_keeps_the_kind(size: int, times: int, widest: int) -> None:
    found = halved(size, times, widest)
    assert 1 <= found <= max(1, min(size, widest))
    if widest >= 3:
        assert kind_of(found) == kind_of(size)


@given(st.integers(1, 1000), st.integers(0, 2), st.integers(1, 600))
def test_nearest_size_of_a_kind_is_the_nearest_there_is(size: int, kind: int, widest: int) -> None:
    found = nearest_of_kind(size, kind, widest)
    candidates = [other for other in range(1, widest + 1) if kind_of(other) == kind]
    assert (found is None) == (not candidates)
    if found is not None:
        assert found in candidates
        assert abs(found - size) == min(abs(other - size) for other in candidates)


@given(
    st.lists(st.integers(0, 500_000) | st.floats(0, 5000).map(lambda run_s: round(run_s, 3)), max_size=30),
    st.integers(0, 99),
)
@examples(100)
def test_synthetic_periods_fill_the_run_time_exactly(runs_s: list[float], seed: int) -> None:
    patterns = synthesize_patterns(np.array(runs_s, dtype=np.float64), np.random.default_rng(seed))
    assert len(patterns) == len(runs_s)
    for pattern, run_s in zip(patterns, runs_s, strict=True):
        assert sum(map(to_ms, pattern.periods_s)) == to_ms(run_s)
        assert len(pattern.activations_s) <= MOST_BUSY_PERIODS
        assert all(activation_s > 0 for activation_s in pattern.activations_s)
        assert all(idle_s > 0 for idle_s in pattern.idles_s)
        if run_s == int(run_s):
            assert all(period_s == int(period_s) for period_s in pattern.periods_s)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=21), st.integers(0, 10**7))
def test_stretched_pattern_is_as_long_as_asked_and_in_proportion(lengths: list[int], total_ms: int) -> None:
    lengths = lengths[: len(lengths) // 2 * 2 + 1] if len(lengths) % 2 else lengths[:-1] or [1]
    busy, idle = tuple(lengths[1:-1:2]), tuple(lengths[2:-1:2])
    pattern = InteractivePattern(lengths[0], lengths[-1] if len(lengths) > 1 else 0, busy, idle)
    stretched = stretch(pattern, total_ms)
    assert sum(map(to_ms, stretched.periods_s)) == total_ms
    if pattern.total_s:
        share = total_ms / to_ms(pattern.total_s)
        for before, after in zip(pattern.activations_s, stretched.activations_s, strict=True):
            assert abs(to_ms(after) - to_ms(before) * share) <= 1


@given(traces(), st.sampled_from([0, 1, None]))
@examples(60)
def test_found_window_can_be_cut_and_has_its_phases_in_order(trace: SwfTrace, queue: int | None) -> None:
    window = busy_window.find_window(trace, queue)
    assert window.start_s <= window.active_start_s <= window.active_end_s <= window.end_s
    cut = busy_window.cut_window(trace, window.start_s, window.length_s)
    assert is_sorted(cut)
    assert all(0 <= job.submit_s < window.length_s for job in cut.jobs)
    assert len(cut.jobs) == sum(window.start_s <= job.submit_s < window.end_s for job in trace.jobs)


@given(traces(), st.integers(1, 4))
@examples(60)
def test_first_come_first_served_makespan_has_its_bounds(trace: SwfTrace, factor: int) -> None:
    procs = 300 * factor
    jobs = trace.jobs
    makespan_s = fcfs_makespan_s(jobs, procs)
    first_s = jobs[0].submit_s
    assert makespan_s >= max(job.submit_s + (job.run_s or 0) - first_s for job in jobs)
    assert makespan_s >= sum((job.procs or 1) * (job.run_s or 0) for job in jobs) / procs
    assert makespan_s <= jobs[-1].submit_s - first_s + sum(job.run_s or 0 for job in jobs)


@given(traces())
@examples(30)
def test_two_factors_of_one_are_the_identity(trace: SwfTrace) -> None:
    assert busy_window.compress_apart(trace, 1, 1).jobs == trace.jobs


@given(st.integers(-(10**12), 10**12))
def test_milliseconds_and_seconds_are_inverse(milliseconds: int) -> None:
    assert to_ms(to_s(milliseconds)) == milliseconds


LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=15).filter(lambda found: len(found) % 2 == 1)


def pattern_of(lengths: list[int], unit: int = 5) -> InteractivePattern:
    scaled = [unit * length for length in lengths]
    if len(scaled) == 1:
        return InteractivePattern(scaled[0], 0, (), ())
    return InteractivePattern(scaled[0], scaled[-1], tuple(scaled[1:-1:2]), tuple(scaled[2:-1:2]))


@st.composite
def behaved_traces(draw: st.DrawFn) -> SwfTrace:
    numbers = draw(st.lists(st.integers(1, 60), min_size=1, max_size=30, unique=True))
    jobs = tuple(
        SwfJob(
            number, place * 40, run_s=draw(st.integers(0, 5000)),
            allocated_procs=draw(st.integers(1, 20)), user=draw(st.none() | st.integers(1, 4)),
            queue=draw(st.integers(0, 2)), preceding_job=draw(st.none() | st.sampled_from(numbers)),
        )
        for place, number in enumerate(numbers)
    )  # fmt: skip
    return SwfTrace(SwfHeader(), jobs)


@given(LENGTHS)
@examples(60)
def test_sampled_periods_of_whole_samples_come_back(lengths: list[int]) -> None:
    assert busy_idle(sampled("x", pattern_of(lengths))) == pattern_of(lengths)


@given(LENGTHS, st.integers(1, 20))
@examples(60)
def test_encoding_of_periods_is_lossless_to_the_millisecond(lengths: list[int], unit: int) -> None:
    assert decode(encode(pattern_of(lengths, unit))) == pattern_of(lengths, unit)


@given(behaved_traces(), st.lists(LENGTHS, min_size=1, max_size=8), st.integers(1, 4), st.integers(0, 9))
@examples(40)
def test_embedded_recordings_fill_run_times_and_leave_others_alone(
    trace: SwfTrace, library: list[list[int]], nearest: int, seed: int
) -> None:
    recordings = [Recording(str(place), pattern_of(lengths)) for place, lengths in enumerate(library)]
    embedded, report = embed_recordings(trace, recordings, 0, seed, nearest)
    assert report.jobs == sum(job.queue == 0 for job in trace.jobs)
    for before, after in zip(trace.jobs, embedded.jobs, strict=True):
        if before.queue != 0:
            assert after == before
            continue
        pattern = after.pattern
        assert pattern is not None
        assert sum(map(to_ms, pattern.periods_s)) == to_ms(before.run_s or 0)


@given(st.lists(behaved_traces(), min_size=1, max_size=3), st.booleans())
@examples(40)
def test_merging_keeps_every_job_once_under_its_own_number(parts: list[SwfTrace], same_users: bool) -> None:
    merged = merge_traces(parts, same_users=same_users)
    assert len({job.job_number for job in merged.jobs}) == len(merged.jobs)
    work = sorted((job.submit_s, job.run_s, job.procs) for part in parts for job in part.jobs)
    assert sorted((job.submit_s, job.run_s, job.procs) for job in merged.jobs) == work
    present = {job.job_number for job in merged.jobs}
    assert all(job.preceding_job is None or job.preceding_job in present for job in merged.jobs)


@given(behaved_traces(), st.floats(0.2, 4), st.integers(0, 9))
@examples(40)
def test_scaled_arrivals_are_in_order_with_sound_links(trace: SwfTrace, factor: float, seed: int) -> None:
    wanted = round(factor * len(trace.jobs))
    if not wanted:
        return
    scaled = busy_window.scale_arrivals(trace, factor, seed)
    assert len(scaled.jobs) == wanted
    present = {job.job_number for job in scaled.jobs}
    assert len(present) == wanted
    assert all(job.preceding_job is None or job.preceding_job in present for job in scaled.jobs)


@given(behaved_traces(), st.integers(1, 20))
@examples(40)
def test_selection_parts_a_trace_in_two(trace: SwfTrace, procs: int) -> None:
    narrow = [job.job_number for job in trace.jobs if Selection(most_procs=procs).holds(job)]
    wide = [job.job_number for job in trace.jobs if Selection(least_procs=procs + 1).holds(job)]
    assert sorted(narrow + wide) == sorted(job.job_number for job in trace.jobs)
    if narrow:
        assert [job.job_number for job in select_jobs(trace, Selection(most_procs=procs)).jobs] == narrow
