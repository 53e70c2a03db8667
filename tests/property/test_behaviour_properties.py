from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.tier import examples
from workloads.behaviour.pattern_synthesis import decode, encode
from workloads.behaviour.recording_library import Recording, busy_idle, embed_recordings, sampled
from workloads.swf import InteractivePattern, SwfHeader, SwfJob, SwfTrace
from workloads.trace.local_clock import to_ms
from workloads.trace.transforms.busy_window import scale_arrivals
from workloads.trace.transforms.filters import Selection, merge_traces, select_jobs

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=15).filter(lambda found: len(found) % 2 == 1)


def pattern_of(lengths: list[int], unit: int = 5) -> InteractivePattern:
    scaled = [unit * length for length in lengths]
    if len(scaled) == 1:
        return InteractivePattern(scaled[0], 0, (), ())
    return InteractivePattern(scaled[0], scaled[-1], tuple(scaled[1:-1:2]), tuple(scaled[2:-1:2]))


@st.composite
def traces(draw: st.DrawFn) -> SwfTrace:
    numbers = draw(st.lists(st.integers(1, 60), min_size=1, max_size=30, unique=True))
    jobs = tuple(
        SwfJob(
            number,
            place * 40,
            run_s=draw(st.integers(0, 5000)),
            allocated_procs=draw(st.integers(1, 20)),
            user=draw(st.none() | st.integers(1, 4)),
            queue=draw(st.integers(0, 2)),
            preceding_job=draw(st.none() | st.sampled_from(numbers)),
        )
        for place, number in enumerate(numbers)
    )
    return SwfTrace(SwfHeader(), jobs)


@given(LENGTHS)
@examples(60)
def test_sampled_periods_of_whole_samples_come_back(lengths: list[int]) -> None:
    assert busy_idle(sampled("x", pattern_of(lengths))) == pattern_of(lengths)


@given(LENGTHS, st.integers(1, 20))
@examples(60)
def test_encoding_of_periods_is_lossless_to_the_millisecond(lengths: list[int], unit: int) -> None:
    assert decode(encode(pattern_of(lengths, unit))) == pattern_of(lengths, unit)


@given(traces(), st.lists(LENGTHS, min_size=1, max_size=8), st.integers(1, 4), st.integers(0, 9))
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


@given(st.lists(traces(), min_size=1, max_size=3), st.booleans())
@examples(40)
def test_merging_keeps_every_job_once_under_its_own_number(parts: list[SwfTrace], same_users: bool) -> None:
    merged = merge_traces(parts, same_users=same_users)
    assert len({job.job_number for job in merged.jobs}) == len(merged.jobs)
    work = sorted((job.submit_s, job.run_s, job.procs) for part in parts for job in part.jobs)
    assert sorted((job.submit_s, job.run_s, job.procs) for job in merged.jobs) == work
    present = {job.job_number for job in merged.jobs}
    assert all(job.preceding_job is None or job.preceding_job in present for job in merged.jobs)


@given(traces(), st.floats(0.2, 4), st.integers(0, 9))
@examples(40)
def test_scaled_arrivals_are_in_order_with_sound_links(trace: SwfTrace, factor: float, seed: int) -> None:
    wanted = round(factor * len(trace.jobs))
    if not wanted:
        return
    scaled = scale_arrivals(trace, factor, seed)
    assert len(scaled.jobs) == wanted
    present = {job.job_number for job in scaled.jobs}
    assert len(present) == wanted
    assert all(job.preceding_job is None or job.preceding_job in present for job in scaled.jobs)


@given(traces(), st.integers(1, 20))
@examples(40)
def test_selection_parts_a_trace_in_two(trace: SwfTrace, procs: int) -> None:
    narrow = [job.job_number for job in trace.jobs if Selection(most_procs=procs).holds(job)]
    wide = [job.job_number for job in trace.jobs if Selection(least_procs=procs + 1).holds(job)]
    assert sorted(narrow + wide) == sorted(job.job_number for job in trace.jobs)
    if narrow:
        assert [job.job_number for job in select_jobs(trace, Selection(most_procs=procs)).jobs] == narrow
