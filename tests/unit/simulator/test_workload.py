"""From a trace to jobs: cleaning, shapes, periods, and traces that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.errors import InputError, UsageError
from simulator.model.system import PoolQueues, System, multiple_queues, single_queue
from simulator.simulation.simulation_options import Cleaning, OversizeRule, TimeLimitRule, ZeroLength
from simulator.simulation.trace_workload import Workload, make_workload, without_patterns
from workloads.swf import load_columns

MQ = multiple_queues(System(4, 4), 1, multiplicity=1, multiplicity_interactive=2)
SQ = single_queue(System(4, 4), 2)


def line(
    number: int,
    submit: int = 0,
    run: int = 10,
    allocated: int = 1,
    requested: int = 1,
    asked: int = 10,
    *,
    kib: int = -1,
    queue: int = 1,
    more: str = "",
) -> str:
    resources = f"{run} {allocated} -1 {kib} {requested} {asked}"
    return f"{number} {submit} -1 {resources} -1 1 5 1 -1 {queue} -1 -1 -1 {more}"


def workload(
    tmp_path: Path,
    *lines: str,
    queues: PoolQueues = SQ,
    cleaning: Cleaning | None = None,
    node_memory_kib: int | None = None,
    keep_origin: bool = False,
) -> Workload:
    (path := tmp_path / "case.swf").write_text("\n".join(text.rstrip() for text in lines) + "\n")
    return make_workload(
        load_columns(path),
        queues,
        cleaning or Cleaning(),
        node_memory_kib=node_memory_kib,
        keep_origin=keep_origin,
    )


def test_requested_processors_go_before_allocated_ones(tmp_path: Path) -> None:
    jobs = workload(tmp_path, line(1, allocated=2, requested=3), line(2, allocated=2, requested=-1))
    assert (jobs.nodes * jobs.cores).tolist() == [3, 2]


def test_a_request_is_at_least_the_run_time_and_absent_is_the_run_time(tmp_path: Path) -> None:
    jobs = workload(tmp_path, line(1, run=20, asked=5), line(2, run=20, asked=-1), line(3, run=20, asked=30))
    assert (jobs.requested_us / 1e6).tolist() == [20, 20, 30]
    assert not jobs.timed_out.any()


def test_enforced_limits_stop_jobs_at_their_request(tmp_path: Path) -> None:
    cleaning = Cleaning(limits=TimeLimitRule.ENFORCE)
    lines = [
        line(1, run=20, asked=5),
        line(2, run=20, asked=30),
        line(3, run=30, asked=12, queue=0, more="-1 -1 -1 5 5 2 5 10 5"),
    ]
    jobs = workload(tmp_path, *lines, cleaning=cleaning)
    assert jobs.timed_out.tolist() == [True, False, True]
    assert (jobs.periods.totals_us / 1e6).tolist() == [5, 20, 12]
    assert (jobs.periods.us[jobs.periods.at[2] :] / 1e6).tolist() == [5, 5, 2]
    assert (jobs.run_us / 1e6).tolist() == [20, 20, 30]


def test_time_counts_from_the_first_submission_unless_the_origin_is_kept(tmp_path: Path) -> None:
    lines = [line(1, submit=100), line(2, submit=130)]
    assert (workload(tmp_path, *lines).submit_us / 1e6).tolist() == [0, 30]
    assert (workload(tmp_path, *lines, keep_origin=True).submit_us / 1e6).tolist() == [100, 130]


def test_jobs_are_in_order_of_their_number(tmp_path: Path) -> None:
    jobs = workload(tmp_path, line(7, submit=0), line(3, submit=5))
    assert jobs.number.tolist() == [3, 7]
    assert (jobs.submit_us / 1e6).tolist() == [5, 0]


def test_speed_up_divides_every_time(tmp_path: Path) -> None:
    pattern = line(1, submit=8, run=50, asked=100, queue=0, more="-1 -1 -1 5 5 2 5 20 15")
    jobs = workload(tmp_path, line(2, submit=4), pattern, cleaning=Cleaning(speedup=2))
    assert (jobs.submit_us[0], jobs.requested_us[0]) == (2_000_000, 50_000_000)
    assert (jobs.periods.us[:5] / 1e6).tolist() == [2.5, 2.5, 7.5, 10, 2.5]


@pytest.mark.parametrize(
    ("procs", "shape"), [(1, (1, 1)), (4, (1, 4)), (6, (2, 3)), (7, None), (15, None), (16, (4, 4))]
)
def test_processors_are_spread_evenly_over_as_few_nodes_as_possible(
    tmp_path: Path, procs: int, shape: tuple[int, int] | None
) -> None:
    jobs = workload(tmp_path, line(1), line(2, requested=procs))
    if shape is None:
        assert jobs.left_out == {"too large, skipped": 1}
    else:
        assert (jobs.nodes[1], jobs.cores[1]) == shape


def test_memory_spreads_a_job_over_more_nodes(tmp_path: Path) -> None:
    lines = [line(1, requested=4, kib=600), line(2, requested=4, kib=100), line(3, requested=4)]
    jobs = workload(tmp_path, *lines, node_memory_kib=1000)
    assert jobs.nodes.tolist() == [4, 1, 1]
    assert jobs.pool_jobs(jobs.members(interactive=False), with_memory=True).memory_kib.tolist() == [
        600,
        400,
        0,
    ]


def test_a_clipped_job_gets_the_largest_shape_that_fits(tmp_path: Path) -> None:
    cleaning = Cleaning(oversize=OversizeRule.CLIP)
    lines = [line(1, requested=7), line(2, requested=99), line(3, requested=2, kib=5000)]
    jobs = workload(tmp_path, *lines, cleaning=cleaning, node_memory_kib=1000)
    assert list(zip(jobs.nodes.tolist(), jobs.cores.tolist(), strict=True)) == [(2, 3), (4, 4), (1, 1)]
    assert (jobs.memory_kib[2], jobs.left_out) == (1000, {"too large, clipped": 3})


def test_the_interactive_queue_limits_interactive_jobs_only(tmp_path: Path) -> None:
    jobs = workload(
        tmp_path, line(1, requested=8, queue=0), line(2, requested=8), line(3, queue=0), queues=MQ
    )
    assert (jobs.number.tolist(), jobs.interactive.tolist()) == ([2, 3], [False, True])


def test_without_an_interactive_queue_all_jobs_are_batch_jobs(tmp_path: Path) -> None:
    jobs = workload(tmp_path, line(1, queue=0), cleaning=Cleaning(interactive_queue=None))
    assert jobs.interactive.tolist() == [False]


def test_zero_length_jobs_are_skipped_kept_or_refused(tmp_path: Path) -> None:
    lines = [line(1, run=0), line(2), line(3, run=-1)]
    assert workload(tmp_path, *lines).left_out == {"without a run time": 2}
    kept = workload(tmp_path, *lines, cleaning=Cleaning(zero_length=ZeroLength.KEEP))
    assert (kept.run_us / 1e6).tolist() == [0, 10, 0]
    with pytest.raises(InputError, match="job 1 of trace case has no run time"):
        workload(tmp_path, *lines, cleaning=Cleaning(zero_length=ZeroLength.FAIL))


def test_interactive_periods_may_begin_and_end_busy_and_contain_zeros(tmp_path: Path) -> None:
    jobs = workload(tmp_path, line(1, run=30, queue=0, more="-1 -1 -1 0 0 3 10 0 15 5 0"))
    assert (jobs.periods.us / 1e6).tolist() == [0, 10, 5, 15]
    assert (without_patterns(jobs).periods.us / 1e6).tolist() == [0, 30]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([line(1), line(1)], "has job 1 twice"),
        ([line(1, run=0)], "has no job to simulate"),
        ([line(1, requested=0, allocated=0)], "1 without a processor"),
        ([line(1, run=99, queue=0, more="-1 -1 -1 5 5 2 5 20 15")], "its run time is 99 s"),
        ([line(1, run=50, queue=0, more="-1 -1 -1 5 5 3 5 20 15")], "announces 3 busy periods"),
        ([line(1, submit=10**13)], "more than 1e\\+12"),
    ],
)
def test_traces_that_contradict_themselves_are_reported(
    tmp_path: Path, lines: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        workload(tmp_path, *lines)


def test_a_job_that_can_never_run_is_refused_on_demand(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="job 1 of trace case asks for 17 processors and can never run"):
        workload(tmp_path, line(1, requested=17), cleaning=Cleaning(oversize=OversizeRule.FAIL))


@pytest.mark.parametrize("speedup", [0.0, -1.0, float("nan"), 1e300, 1e-300])
def test_a_speed_up_is_a_factor_that_a_trace_can_have(tmp_path: Path, speedup: float) -> None:
    with pytest.raises(UsageError, match="--speedup divides"):
        workload(tmp_path, line(1), cleaning=Cleaning(speedup=speedup))
