"""The hybrid mechanisms on schedules checked by hand, and what their family refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from foundation.records.records_folder import read_info
from osub.cli.main import run
from simulator.experiments.hybrid_study import made_workload
from simulator.hybrid import drawn_jobs
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
from tests.fixtures.cli import Cli
from tests.fixtures.swf_jobs import write_jobs

Job = tuple[int, int, int, int]  # number, submit, run, nodes
Held = list[tuple[float, float, int]]  # from, to, nodes

HEADER = [
    "trace_job", "kind", "min_nodes", "max_nodes", "setup_s", "checkpoint_every_s", "checkpoint_s",
    "notice_s", "predicted_s",
]  # fmt: skip


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSUB_JIT", "0")


def write_kinds(folder: Path, message: dict[int, dict[str, object]]) -> Path:
    path = folder / "kinds.csv"
    lines = [
        ",".join([str(job), *(str(entry.get(name, "")) for name in HEADER[1:])])
        for job, entry in message.items()
    ]
    path.write_text("\n".join([",".join(HEADER), *lines, ""]))
    return path


def words_of(folder: Path, kinds: Path, policy: str, *settings: str) -> list[str]:
    words = [str(folder / "trace.swf"), "--system", "N8C1", "--policy", f"hybrid-{policy}", "--check"]
    words += ["--out", str(folder / policy), "--overhead", "1"]
    return ["simulate", *words, *(f"--set={setting}" for setting in (f"jobs={kinds}", *settings))]


def simulate(
    folder: Path, jobs: list[Job], message: dict[int, dict[str, object]], policy: str, *settings: str
) -> tuple[dict[int, Held], pl.DataFrame]:
    """Simulate jobs on N8C1; returns what each held, and the jobs."""
    write_jobs(folder / "trace.swf", jobs)
    assert run(words_of(folder, write_kinds(folder, message), policy, *settings)) == 0
    rows = pl.read_parquet(folder / policy / "jobs.parquet")
    places = rows.select("trace_job", "start_s", "end_s", nodes=pl.col("placement").list.len())
    found = {job: [(start, end, nodes)] for job, start, end, nodes in places.iter_rows()}
    if (folder / policy / "allocations.parquet").exists():
        held = pl.read_parquet(folder / policy / "allocations.parquet").sort("job", "from_s")
        for (job,), own in held.group_by("job", maintain_order=True):
            found[int(str(job))] = own.select("from_s", "to_s", pl.col("placement").list.len()).rows()
    return found, rows.sort("trace_job")


RIGID: dict[str, object] = {"kind": "rigid"}
SOFT: dict[str, object] = {"kind": "malleable", "min_nodes": 2}
NOW: dict[str, object] = {"kind": "ondemand"}


def saving(every_s: int) -> dict[str, object]:
    return {"kind": "rigid", "checkpoint_every_s": every_s, "checkpoint_s": 0}


def noticed(notice_s: int, predicted_s: int) -> dict[str, object]:
    return {"kind": "ondemand", "notice_s": notice_s, "predicted_s": predicted_s}


PAIR = [(1, 0, 80, 8), (2, 40, 20, 4)]
FREED = [(1, 0, 30, 8), (2, 60, 20, 4), (3, 5, 50, 8)]
FREED_KINDS = {1: RIGID, 2: noticed(10, 60), 3: RIGID}
SQUATS = [(1, 50, 10, 8), (2, 0, 1, 1), (3, 1, 30, 8), (4, 2, 100, 2)]
SQUAT_KINDS = {1: noticed(1, 50), 2: RIGID, 3: RIGID, 4: RIGID}
VICTIMS = [(1, 0, 100, 3), (2, 0, 100, 4), (3, 50, 10, 5)]
VICTIM_KINDS = {1: RIGID, 2: RIGID, 3: NOW}
Kinds = dict[int, dict[str, object]]
SCHEDULES: dict[str, tuple[list[Job], Kinds, str, dict[int, Held], dict[str, list[Any]]]] = {
    "a rigid victim goes on from its checkpoint": (
        [(1, 0, 100, 8), (2, 50, 20, 4)], {1: saving(30), 2: NOW}, "n-paa",
        {1: [(0, 50, 8), (70, 140, 8)], 2: [(50, 70, 4)]},
        {"wasted_s": [20, 0], "preemptions": [1, 0], "kind": ["batch", "ondemand"]},
    ),
    "a malleable victim holds its nodes for the warning": (
        PAIR, {1: SOFT, 2: NOW}, "n-paa warning=10", {1: [(0, 50, 8), (50, 130, 4)], 2: [(50, 70, 4)]},
        {"elasticity": ["malleable", "rigid"], "min_nodes": [2, None]},
    ),
    "a malleable job shrinks and gets its nodes back": (
        PAIR, {1: SOFT, 2: NOW}, "n-spaa", {1: [(0, 40, 8), (40, 60, 4), (60, 90, 8)], 2: [(40, 60, 4)]}, {},
    ),
    # No mixture: jobs are preempted for the whole need.
    "too little to shrink by is left alone": (
        [(1, 0, 100, 4), (2, 0, 100, 4), (3, 50, 10, 6)], {1: SOFT, 2: RIGID, 3: NOW}, "n-spaa warning=0",
        {3: [(50, 60, 6)]}, {"preemptions": [1, 1, 0]},
    ),
    "nodes that become free are collected from the notice on": (
        FREED, FREED_KINDS, "cua-paa", {1: [(0, 30, 8)], 2: [(60, 80, 4)], 3: [(80, 130, 8)]}, {},
    ),
    "notices may be ignored": (FREED, FREED_KINDS, "n-paa", {3: [(30, 60, 8), (80, 130, 8)]}, {}),
    "a rigid job is preempted right after its last checkpoint": (
        [(1, 0, 100, 8), (2, 60, 20, 8)], {1: saving(25), 2: noticed(10, 60)}, "cup-paa",
        {1: [(0, 50, 8), (80, 130, 8)], 2: [(60, 80, 8)]}, {"wasted_s": [None, None]},
    ),
    # No job is preempted for what comes free by its request before the predicted arrival.
    "jobs that end in time are counted on": (
        [(1, 0, 40, 4), (2, 0, 100, 4), (3, 60, 20, 4), (4, 5, 90, 4)],
        {1: RIGID, 2: RIGID, 3: noticed(10, 60), 4: RIGID}, "cup-paa",
        {3: [(60, 80, 4)], 4: [(80, 170, 4)]}, {"preemptions": [0, 0, 0, 0]},
    ),
    "who is backfilled on reserved nodes goes when they are needed": (
        SQUATS, SQUAT_KINDS, "cua-paa", {4: [(2, 50, 2), (90, 190, 2)], 1: [(50, 60, 8)]},
        {"wasted_s": [0, 0, 0, 48]},
    ),
    "none is backfilled on reserved nodes": (
        SQUATS, SQUAT_KINDS, "cua-spaa squatting=no", {4: [(90, 190, 2)]}, {},
    ),
    "a reservation ends when its job does not come": (
        [(1, 100, 20, 8), (2, 5, 200, 8), (3, 0, 1, 1)], {1: noticed(1, 20), 2: RIGID, 3: RIGID},
        "cua-paa release=10", {2: [(30, 100, 8), (120, 320, 8)]}, {},
    ),
    "victims are chosen one by one": (VICTIMS, VICTIM_KINDS, "n-paa", {}, {"preemptions": [1, 1, 0]}),
    "victims chosen together cost less": (
        VICTIMS, VICTIM_KINDS, "n-spaa preemption=optimal", {}, {"preemptions": [0, 1, 0]},
    ),
    "what cannot be freed is waited for in front": (
        [(1, 0, 50, 6), (2, 10, 20, 4), (3, 5, 10, 8)], {1: NOW, 2: NOW, 3: RIGID}, "n-paa",
        {1: [(0, 50, 6)], 2: [(50, 70, 4)], 3: [(70, 80, 8)]}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("jobs", "kinds", "words", "held", "columns"), SCHEDULES.values(), ids=SCHEDULES)
def test_schedules_checked_by_hand(
    tmp_path: Path, jobs: list[Job], kinds: Kinds, words: str, held: dict[int, Held],
    columns: dict[str, list[Any]],
) -> None:  # fmt: skip
    found, rows = simulate(tmp_path, jobs, kinds, *words.split())
    assert {job: found[job] for job in held} == held
    none = pl.Series([0] * len(jobs))
    assert {name: rows.get_column(name, default=none).to_list() for name in columns} == columns


def test_jobs_shrink_by_the_same_number_as_far_as_they_can(tmp_path: Path) -> None:
    jobs = [(1, 0, 100, 3), (2, 0, 100, 5), (3, 40, 20, 5)]
    found, _ = simulate(
        tmp_path, jobs, {1: {**SOFT, "min_nodes": 2}, 2: {**SOFT, "min_nodes": 1}, 3: NOW}, "n-spaa"
    )
    assert [nodes for _, _, nodes in found[1]] == [3, 2, 3]
    assert [nodes for _, _, nodes in found[2]] == [5, 1, 5]


def test_a_job_that_shares_starts_at_once_and_preempts_no_job(tmp_path: Path) -> None:
    jobs = [(1, 0, 100, 8), (2, 50, 20, 8)]
    found, rows = simulate(tmp_path, jobs, {1: RIGID, 2: NOW}, "share", "weight=4")
    assert found == {1: [(0, 120, 8)], 2: [(50, 75, 8)]}
    assert rows["preemptions"].sum() == 0
    assert read_info(tmp_path / "share").multiplicity == 2


GOOD = "trace_job,kind,min_nodes,max_nodes,setup_s,notice_s,predicted_s\n"
FAULTS = {
    "1,malleable,9,,,,": "job 1: min_nodes: is 9, above max_nodes, 8",
    "1,malleable,2,4,,,": "job 1: max_nodes: is 4, but the job asks for 8",
    "1,malleable,0,,,,": "job 1: min_nodes: '0' is no whole number",
    "2,ondemand,,,,51,60": "job 2: notice_s: is after the job's arrival",
    "2,ondemand,,,,40,30": "job 2: predicted_s: is before notice_s",
    "2,ondemand,,,,40,": "job 2: predicted_s: is missing",
    "2,ondemand,2,,,,": "job 2: min_nodes: does not go with a job that is ondemand",
    "1,rigid,,,101,,": "job 1: setup_s: is longer than the job runs",
    "1,rigid,,,-1,,": "job 1: setup_s: '-1' is no number",
    "1,rigid,,,nan,,": "job 1: setup_s: 'nan' is no number",
    "1,soft,,,,,": "job 1: kind: is one of rigid, malleable, ondemand, not 'soft'",
    "1,rigid,,,,,\n1,rigid,,,,,": "job 1: trace_job: comes twice",
    "1,rigid,,": ":2: 4 cells for 7 columns",
    ",rigid,,,,,": ":2: trace_job",
}


@pytest.mark.parametrize(("line", "message"), FAULTS.items(), ids=FAULTS.values())
def test_a_file_that_says_what_cannot_be_ends_with_one_line(
    tmp_path: Path, cli: Cli, line: str, message: str
) -> None:
    write_jobs(tmp_path / "trace.swf", [(1, 0, 100, 8), (2, 50, 20, 4)])
    (kinds := tmp_path / "kinds.csv").write_text(f"{GOOD}{line}\n")
    error = cli(*words_of(tmp_path, kinds, "n-paa"), code=1).err
    assert message in error
    assert "kinds.csv" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "n-paa").exists()


def test_a_folder_in_the_place_of_the_file_is_said_in_words(tmp_path: Path, cli: Cli) -> None:
    write_jobs(tmp_path / "trace.swf", [(1, 0, 100, 8)])
    error = cli(*words_of(tmp_path, tmp_path, "n-paa"), code=1).err
    assert f"cannot read {tmp_path}: Is a directory" in error
    assert "Errno" not in error


def test_an_error_names_the_line_although_a_field_has_two(tmp_path: Path, cli: Cli) -> None:
    write_jobs(tmp_path / "trace.swf", [(1, 0, 100, 8), (2, 50, 20, 4)])
    (kinds := tmp_path / "kinds.csv").write_text(f'{GOOD}1,"rigid\n",,,,,\n2,soft,,,,,\n')
    assert "kinds.csv:4: job 2: kind" in cli(*words_of(tmp_path, kinds, "n-paa"), code=1).err


def test_a_file_of_more_jobs_than_are_read_is_refused(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawn_jobs, "_MOST_JOBS", 2)
    write_jobs(tmp_path / "trace.swf", [(1, 0, 100, 8)])
    kinds = write_kinds(tmp_path, {1: RIGID, 2: RIGID, 3: RIGID})
    assert ":4: more than 2 rows" in cli(*words_of(tmp_path, kinds, "n-paa"), code=1).err


OWN_PLACEMENT = """
class Last:
    def place(self, cluster, job):
        return None
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--multiplicity", "2"], "whole nodes"),
        (["--set", "ondemand_share=0.8"], "more than 1"),
        (["--set", "mix=W6"], "W1, W2, W3, W4, W5"),
        (["--mtbf", "100"], "do not fail"),
        (["--node-noise", "0.1"], "no other model of sharing"),
        (["--set", "weight=2"], "no option 'weight'"),
        (["--placement", "own.py:Last"], "--placement of your own"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN_PLACEMENT)
    trace = write_jobs(tmp_path / "trace.swf", [(1, 0, 100, 8), (2, 50, 20, 4)])
    base = ["simulate", str(trace), "--system", "N8C1", "--policy", "hybrid-n-paa", "--out"]
    error = cli(*base, tmp_path / "out", *words, code=2).err
    assert message in error
    assert error.count("\n") == 1


def test_the_columns_that_are_needed_are_named(tmp_path: Path, cli: Cli) -> None:
    write_jobs(tmp_path / "trace.swf", [(1, 0, 100, 8)])
    (kinds := tmp_path / "kinds.csv").write_text("trace_job,min_nodes\n1,2\n")
    assert ":1: no column kind" in cli(*words_of(tmp_path, kinds, "n-paa"), code=1).err


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
