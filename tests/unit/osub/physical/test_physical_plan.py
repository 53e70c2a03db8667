"""The plan of the thesis's physical study: what a budget buys, and in which order it is run."""

from __future__ import annotations

import msgspec
import polars as pl
import pytest

from foundation.errors import UsageError
from osub.physical.carry import applications, apps_table, sleepers
from osub.physical.layouts import (
    DEDICATED,
    DIVIDED_BY,
    GANGD,
    NAIVE,
    SLURM_GANG,
    full_trace,
    layouts_of,
    places_of,
    places_trace,
    same_places,
)
from osub.physical.plan import (
    DAY,
    FIRST,
    LENGTH_S,
    PAIR,
    PAIRS,
    PLACES,
    SHORTEST_RUN_S,
    PlannedReplay,
    RequestedPlan,
    StudyPlan,
    fitted_trace,
    known_layouts,
    make_plan,
    plan_lines,
)
from osub.physical.published import REAL_PLACES, SAME_PLACES, SIMULATED_PLACES
from tests.unit.osub.physical.made import day_trace, first_trace, small_plan
from workloads.rrba.drawn_applications import legal_applications
from workloads.trace.scaling.thesis_days import FIRST_JOBS


def planned(minutes: float, nodes: int = 2, cores: int = 1, **wanted: object) -> StudyPlan:
    budget_s, layouts = 60 * minutes, layouts_of(nodes)
    asked = RequestedPlan(nodes=nodes, cores=cores, layouts=layouts, budget_s=budget_s, **wanted)  # type: ignore[arg-type]
    return make_plan(asked, first_trace(), day_trace())


@pytest.mark.parametrize("minutes", [10, 20, 30, 60, 240])
def test_a_plan_keeps_to_its_budget(minutes: float) -> None:
    assert planned(minutes).estimate_s <= 60 * minutes


@pytest.mark.slow
def test_a_longer_budget_buys_at_least_as_many_trials_and_draws() -> None:
    plans = [planned(minutes) for minutes in (10, 20, 30, 60, 120, 240)]
    assert [plan.rounds for plan in plans] == sorted(plan.rounds for plan in plans)
    assert (plans[-1].rounds, plans[-1].draws, plans[-1].given_up) == (5, (1, 2, 3), ())


def test_what_the_budget_left_out_is_said() -> None:
    short = planned(10)
    assert any("trial" in one for one in short.given_up)
    assert any("whole day" in one for one in short.given_up)
    assert any(line.startswith("For the budget") for line in plan_lines(short))


def test_a_budget_that_is_too_short_is_refused_and_the_message_says_what_is_enough() -> None:
    with pytest.raises(UsageError, match=r"too short.*takes (\d+) min") as error:
        planned(1)
    assert planned(float(str(error.value).split("takes ")[1].split()[0])).rounds == 1


def test_one_core_is_too_small_a_cluster() -> None:
    with pytest.raises(UsageError, match="two cores at least"):
        planned(30, nodes=1, cores=1)


def test_a_number_of_trials_that_is_asked_for_is_kept() -> None:
    assert planned(60, trials=2).rounds == 2


def test_every_round_begins_with_the_dedicated_layout_and_has_each_layout_once() -> None:
    plan = small_plan(rounds=3, draws=(1,))
    sessions = [layout for layout, _ in plan.sessions() if layout != PLACES]
    size = len(plan.layouts)
    for number in range(3):
        one = sessions[number * size : (number + 1) * size]
        assert one[0] == DEDICATED.key
        assert sorted(one) == sorted(plan.layouts)
    assert sessions[1 : size + 1] != sessions[size + 1 : 2 * size + 1]


def test_the_whole_day_is_replayed_in_as_many_rounds_as_there_are_draws() -> None:
    items = small_plan(rounds=3, draws=(1, 2)).items()
    assert {(item.trial, item.seed) for item in items if item.workload == DAY} == {(1, 1), (2, 2)}
    assert {item.trial for item in items if item.workload == FIRST} == {1, 2, 3}


def test_the_pair_is_of_a_single_queue_only() -> None:
    assert not any(item.layout.startswith("mq") for item in small_plan().items() if item.workload == PAIR)


def test_a_round_has_the_short_pair_several_times_and_one_job_alone_reports_its_steps_first() -> None:
    plan = planned(30)
    pairs = [item for item in plan.items() if item.workload == PAIR]
    for layout in (NAIVE, SLURM_GANG, GANGD):
        trials = [item.trial for item in pairs if item.layout == layout.key]
        assert trials == list(range(1, plan.rounds * PAIRS + 1))
    assert plan.rounds * PAIRS >= 3
    assert [item.layout for item in pairs].count(DEDICATED.key) == 1
    assert plan.items()[0] == PlannedReplay(workload=PAIR, layout=DEDICATED.key, trial=1)


def test_the_pair_alone_takes_minutes_and_starts_no_cluster_for_nothing() -> None:
    plan = planned(30, trials=2, only="pair")
    assert {item.workload for item in plan.items()} == {PAIR}
    assert len(plan.items()) == 1 + 3 * 2 * PAIRS
    assert all(items for _, items in plan.sessions())
    assert [layout for layout, _ in plan.sessions()].count(DEDICATED.key) == 1
    assert plan.estimate_s <= 360
    assert "4 trials in 3 layouts" in plan_lines(plan)[0]
    assert msgspec.convert(msgspec.to_builtins(plan), StudyPlan) == plan


def test_a_budget_of_the_pair_alone_buys_rounds() -> None:
    plans = [planned(minutes, only="pair") for minutes in (4, 6, 30)]
    assert [plan.rounds for plan in plans] == [1, 2, 5]
    assert all(plan.estimate_s <= 60 * minutes for plan, minutes in zip(plans, (4, 6, 30), strict=True))
    assert plans[0].given_up == ("2 trials of the pair instead of 10",)
    with pytest.raises(UsageError, match="too short"):
        planned(2, only="pair")


def test_a_pair_needs_a_layout_in_which_cores_are_shared() -> None:
    alone = RequestedPlan(nodes=2, cores=1, layouts=(DEDICATED,), budget_s=1800.0, only="pair")
    with pytest.raises(UsageError, match="M=2"):
        make_plan(alone, first_trace(), day_trace())


def test_names_of_runs_are_unique() -> None:
    names = [item.name for item in small_plan(rounds=3, draws=(1, 2)).items()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("nodes", "mq"), [(1, 0), (2, 1), (4, 3), (12, 4)])
def test_as_many_splits_as_the_nodes_allow(nodes: int, mq: int) -> None:
    layouts = layouts_of(nodes)
    assert sum(layout.interactive_nodes is not None for layout in layouts) == mq
    assert layouts[0] is DEDICATED


def test_a_fitted_trace_fits_the_nodes_that_batch_jobs_may_use() -> None:
    plan = small_plan()
    for layout in known_layouts(plan).values():
        trace = fitted_trace(first_trace(), plan, layout, plan.compression(FIRST))
        assert max(job.procs or 0 for job in trace.jobs) <= layout.batch_nodes(2)
        assert min(job.run_s or 0 for job in trace.jobs) >= SHORTEST_RUN_S
        last_s = max(job.submit_s for job in trace.jobs)
        assert last_s == pytest.approx(60.0 * 24_085 / LENGTH_S, abs=0.01)


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
