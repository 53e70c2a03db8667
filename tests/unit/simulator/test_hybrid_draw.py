"""What is drawn for a plain trace: projects, kinds, set-up, checkpoints, notices; and Daly's interval."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.experiments.hybrid_study import made_workload
from simulator.hybrid.drawn_jobs import (
    MIXES,
    Draw,
    HybridJobKind,
    bursts_of,
    daly_interval_s,
    draw_kinds,
    draw_lives,
    job_interval_s,
    projects_of,
)
from simulator.simulation.trace_workload import Workload

NODES = 64


def workload(jobs: int = 3000) -> Workload:
    """Return jobs that come in bursts."""
    return made_workload(jobs, NODES)


@pytest.mark.parametrize(
    ("checkpoint_min", "mtbf_min", "interval_min"), [(5, 1440, 117), (5, 360, 57), (5, 15, 9.1)]
)
def test_daly_s_interval(checkpoint_min: float, mtbf_min: float, interval_min: float) -> None:
    """The values of Daly's Figures 3 to 5."""
    found = daly_interval_s(checkpoint_min * 60, mtbf_min * 60) / 60
    assert found == pytest.approx(interval_min, rel=0.01)


def test_a_machine_that_fails_all_the_time_saves_as_often() -> None:
    assert daly_interval_s(600, 200) == 200


@pytest.mark.parametrize(
    ("nodes", "cost_s", "interval_s"), [(128, 600, 38_062), (512, 600, 18_833), (4096, 1200, 8_832)]
)
def test_intervals_of_jobs_on_nodes_that_fail_every_five_years(
    nodes: int, cost_s: float, interval_s: float
) -> None:
    assert job_interval_s(nodes, cost_s, 5.0) == pytest.approx(interval_s, rel=1e-3)


def test_every_job_of_a_project_has_its_kind() -> None:
    jobs = workload()
    kinds, project = draw_kinds(jobs, NODES, Draw(), 3), projects_of(jobs, 211, 3)
    small = 2 * jobs.nodes <= NODES
    for one in np.unique(project):
        assert len(set(kinds[small & (project == one)].tolist())) <= 1


def test_jobs_of_a_burst_have_one_size_request_and_project() -> None:
    jobs = workload()
    burst, project = bursts_of(jobs), projects_of(jobs, 211, 3)
    for one in range(int(burst.max()) + 1):
        own = np.flatnonzero(burst == one)
        assert len({(jobs.nodes[job], jobs.requested_us[job], project[job]) for job in own}) == 1
        assert (np.diff(jobs.submit_us[own]) <= 3600 * 10**6).all()


def test_no_on_demand_job_asks_for_more_than_half_of_the_nodes() -> None:
    jobs = workload()
    for seed in range(5):
        kinds = draw_kinds(jobs, NODES, replace(Draw(), on_demand=1.0, malleable=0.0), seed)
        assert ((kinds == HybridJobKind.ON_DEMAND) == (2 * jobs.nodes <= NODES)).all()
        assert set(kinds[2 * jobs.nodes > NODES].tolist()) == {HybridJobKind.RIGID, HybridJobKind.MALLEABLE}


def test_users_are_projects_where_that_is_wanted() -> None:
    made = workload()
    jobs = replace(made, user=np.arange(made.count) // 7 % 30)
    kinds = draw_kinds(jobs, NODES, replace(Draw(), projects=0), 1)
    small = 2 * jobs.nodes <= NODES
    for user in np.unique(jobs.user):
        assert len(set(kinds[small & (jobs.user == user)].tolist())) == 1


@pytest.mark.parametrize("mix", MIXES)
def test_notices_come_as_the_mix_says(mix: str) -> None:
    jobs = workload()
    lifecycles = draw_lives(jobs, NODES, replace(Draw(), mix=mix, on_demand=1.0, malleable=0.0), 5).lifecycles
    assert lifecycles is not None
    classes = [0, 0, 0, 0]
    for job, lifecycle in enumerate(lifecycles):
        if not lifecycle.on_demand:
            assert lifecycle.notice_us is None
            continue
        if lifecycle.notice_us is None or lifecycle.predicted_us is None:
            classes[0] += 1
            continue
        arrival_us = int(jobs.submit_us[job])
        lead_s = (lifecycle.predicted_us - lifecycle.notice_us) / 1e6
        assert lifecycle.notice_us <= arrival_us
        assert lead_s <= 1800
        assert lead_s >= 900 or lifecycle.notice_us == 0
        late_us = arrival_us - lifecycle.predicted_us
        classes[1 if late_us == 0 else 2 if late_us < 0 else 3] += 1
        assert late_us <= 1800 * 10**6
    shares = np.array(classes) / sum(classes)
    assert shares == pytest.approx(np.array(MIXES[mix]), abs=0.05)


def test_set_up_and_sizes_are_the_paper_s() -> None:
    jobs = workload()
    lifecycles = draw_lives(jobs, NODES, Draw(), 2).lifecycles
    assert lifecycles is not None
    for job, lifecycle in enumerate(lifecycles):
        share = lifecycle.setup_us / jobs.run_us[job]
        if lifecycle.sizes is not None:
            assert 0 <= share <= 0.05
            assert lifecycle.sizes.least == -(-int(jobs.nodes[job]) // 5)
            assert lifecycle.sizes.most == jobs.nodes[job]
        elif not lifecycle.on_demand:
            assert 0.0499 <= share <= 0.1
            assert lifecycle.checkpoint_us == 600 * 10**6


def test_other_notices_leave_the_kinds_as_they_are() -> None:
    jobs = workload(300)
    kinds = [
        [(lifecycle.on_demand, lifecycle.sizes, lifecycle.setup_us) for lifecycle in drawn.lifecycles or ()]
        for drawn in (draw_lives(jobs, NODES, replace(Draw(), mix=mix), 4) for mix in ("W1", "W4"))
    ]
    assert kinds[0] == kinds[1]
    first, again, other = (list(draw_lives(jobs, NODES, Draw(), seed).lifecycles or ()) for seed in (4, 4, 5))
    assert first == again
    assert first != other
