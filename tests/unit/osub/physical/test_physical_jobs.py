"""What the jobs of the study run: the same work in every layout, and places as Table 7.8 writes them."""

from __future__ import annotations

import polars as pl

from osub.physical.carry import applications, apps_table, sleepers
from osub.physical.layouts import DEDICATED, DIVIDED_BY, full_trace, places_of, places_trace, same_places
from osub.physical.plan import FIRST, fitted_trace, known_layouts
from osub.physical.published import REAL_PLACES, SAME_PLACES, SIMULATED_PLACES
from tests.unit.osub.physical.made import first_trace, small_plan
from workloads.rrba.drawn_applications import legal_applications
from workloads.trace.scaling.thesis_days import FIRST_JOBS


def lines(table: str) -> dict[int, str]:
    return {int(row.split(",")[0]): row for row in table.splitlines()[1:]}


def test_jobs_make_the_same_steps_wherever_they_have_as_many_ranks() -> None:
    plan = small_plan()
    wide = fitted_trace(first_trace(), plan, DEDICATED, plan.compression(FIRST))
    drawn = applications(wide, 1)
    work = {job.job_number: (job.procs or 0, 100 + job.job_number) for job in wide.jobs if job.queue}
    narrow = fitted_trace(first_trace(), plan, known_layouts(plan)["mq-1"], plan.compression(FIRST))
    everywhere, mq = lines(apps_table(wide, drawn, work)), lines(apps_table(narrow, drawn, work))
    assert all(f"--steps {100 + number}" in row for number, row in everywhere.items())
    narrower = {job.job_number for job in wide.jobs if job.queue and job.procs == 2}
    assert narrower
    for number, row in mq.items():
        assert ("--target-s" in row) == (number in narrower)
        assert row.split("--app ")[1].split()[0] == everywhere[number].split("--app ")[1].split()[0]


def test_interactive_jobs_are_in_no_table_of_applications() -> None:
    plan = small_plan()
    trace = fitted_trace(first_trace(), plan, DEDICATED, plan.compression(FIRST))
    assert set(lines(apps_table(trace, applications(trace, 1), {}))) == {job.number for job in FIRST_JOBS}


def test_applications_run_on_the_ranks_of_their_jobs_and_a_seed_is_one_draw() -> None:
    plan = small_plan()
    trace = fitted_trace(first_trace(), plan, DEDICATED, plan.compression(FIRST))
    ranks = {job.job_number: job.procs or 1 for job in trace.jobs}
    drawn = applications(trace, 1)
    assert all(name in legal_applications(ranks[job], grid_class="S") for job, name in drawn.items())
    assert drawn == applications(trace, 1)
    assert drawn != applications(trace, 2)


def test_cutting_the_long_jobs_of_table_7_8_leaves_their_order_with_the_last_arrival() -> None:
    short, full = places_trace(), full_trace()
    last_s = full.jobs[-1].submit_s
    for one, other in zip(short.jobs, full.jobs, strict=True):
        assert abs(one.submit_s * DIVIDED_BY - other.submit_s) < 0.1
        ends_s = (one.submit_s + (one.run_s or 0)) * DIVIDED_BY
        assert (ends_s > last_s) == (other.submit_s + (other.run_s or 0) > last_s)
    assert len(lines(sleepers(short))) == len(FIRST_JOBS)


def test_places_are_written_as_in_the_thesis() -> None:
    jobs = pl.DataFrame(
        {
            "trace_job": [1, 2, 3],
            "placement": [
                [{"node": "b", "cores": "0-8"}, {"node": "a", "cores": "0-8"}],
                [{"node": "b", "cores": "0"}],
                None,
            ],
        }
    )
    assert places_of(jobs, {"a": 0, "b": 1}) == {1: "0(0-8) 1(0-8)", 2: "1(0)"}


def test_thirteen_places_of_the_thesis_are_the_same_simulated_and_real() -> None:
    assert same_places(REAL_PLACES, SIMULATED_PLACES) == SAME_PLACES
