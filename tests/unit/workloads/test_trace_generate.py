from __future__ import annotations

from pathlib import Path

import pytest

from foundation.errors import UsageError
from workloads.job_shape import job_shape
from workloads.swf import read_swf, write_swf
from workloads.trace.models.generated_trace import generate_trace


def load_of(trace_load: float, **arguments: float) -> float:
    trace = generate_trace(1500, 12, 12, load=trace_load, **arguments)  # type: ignore[arg-type]
    work_s = sum((job.procs or 0) * (job.run_s or 0) for job in trace.jobs)
    return work_s / 144 / (trace.jobs[-1].submit_s - trace.jobs[0].submit_s)


def test_jobs_are_complete_and_fit_the_machine() -> None:
    trace = generate_trace(1000, 8, 6, interactive_share=0.25)
    assert [job.job_number for job in trace.jobs] == list(range(1, 1001))
    submits = [job.submit_s for job in trace.jobs]
    assert submits == sorted(submits)
    for job in trace.jobs:
        assert job.procs is not None
        assert 1 <= job.procs <= (6 if job.queue == 0 else 48)
        assert job.run_s is not None
        assert job.requested_s is not None
        assert 1 <= job.run_s <= job.requested_s
        assert (job.pattern is not None) == (job.queue == 0)
        if job.pattern is not None:
            assert job.pattern.total_s == job.run_s
    assert sum(job.queue == 0 for job in trace.jobs) == 250


def test_same_arguments_same_trace() -> None:
    assert generate_trace(50, 4, 4, seed=7) == generate_trace(50, 4, 4, seed=7)
    assert generate_trace(50, 4, 4, seed=7).jobs != generate_trace(50, 4, 4, seed=8).jobs


@pytest.mark.parametrize("load", [0.3, 0.9])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_load_is_reached(load: float, share: float) -> None:
    assert load_of(load, interactive_share=share) == pytest.approx(load, rel=0.02)


@pytest.mark.parametrize(
    ("jobs", "nodes", "cores"), [(1, 1, 1), (2, 1, 1), (30, 1, 1), (30, 2, 1), (30, 1, 3)]
)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_small_machines_and_few_jobs_are_fine(jobs: int, nodes: int, cores: int, share: float) -> None:
    trace = generate_trace(jobs, nodes, cores, interactive_share=share)
    assert len(trace.jobs) == jobs
    assert max(job.procs or 0 for job in trace.jobs) <= nodes * cores


def test_more_jobs_arrive_by_day_than_by_night() -> None:
    trace = generate_trace(3000, 12, 12, load=None)
    hours = [int(job.submit_s % 86_400 // 3600) for job in trace.jobs]
    assert sum(10 <= hour < 18 for hour in hours) > 3 * sum(hour < 8 for hour in hours)


def test_generated_trace_survives_its_file(tmp_path: Path) -> None:
    trace = generate_trace(200, 12, 12, interactive_share=0.3)
    write_swf(tmp_path / "g.swf.gz", trace)
    again = read_swf(tmp_path / "g.swf.gz")
    assert again.jobs == trace.jobs
    assert again.header == trace.header
    assert again.header.max_procs == 144


@pytest.mark.parametrize("arguments", [{"jobs": 0}, {"nodes": 0}, {"interactive_share": 2}, {"load": 0}])
def test_arguments_out_of_range_are_a_usage_error(arguments: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        generate_trace(**{"jobs": 10, "nodes": 2, "cores_per_node": 2, **arguments})


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_job_divides_equally_over_nodes_of_the_machine(seed: int) -> None:
    """A job of 29 processors would need 29 nodes of one, or one node of 29: N8C4 has neither."""
    trace = generate_trace(3000, 8, 4, seed, interactive_share=0.2, interactive_procs=32)
    assert all(job_shape(job.procs or 0, 8, 4) is not None for job in trace.jobs)
    assert {job.procs for job in trace.jobs} >= {1, 2, 3, 4, 8, 16, 28, 32}
