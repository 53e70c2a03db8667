"""The hybrid mechanisms on schedules checked by hand, and what their family refuses."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from foundation.records.records_folder import read_info
from osub.cli.main import run
from simulator.hybrid import drawn_jobs
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


def another(folder: Path) -> Path:
    (other := folder / "another").mkdir()
    return other


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


def test_a_rigid_victim_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    jobs = [(1, 0, 100, 8), (2, 50, 20, 4)]
    found, rows = simulate(tmp_path, jobs, {1: saving(30), 2: NOW}, "n-paa")
    assert found == {1: [(0, 50, 8), (70, 140, 8)], 2: [(50, 70, 4)]}
    assert (rows["wasted_s"].to_list(), rows["preemptions"].to_list()) == ([20, 0], [1, 0])
    assert rows["kind"].to_list() == ["batch", "ondemand"]


def test_a_malleable_victim_holds_its_nodes_for_the_warning(tmp_path: Path) -> None:
    jobs = [(1, 0, 80, 8), (2, 40, 20, 4)]
    found, rows = simulate(tmp_path, jobs, {1: SOFT, 2: NOW}, "n-paa", "warning=10")
    assert found == {1: [(0, 50, 8), (50, 130, 4)], 2: [(50, 70, 4)]}
    assert rows["elasticity"].to_list() == ["malleable", "rigid"]
    assert rows["min_nodes"].to_list() == [2, None]


def test_a_malleable_job_shrinks_and_gets_its_nodes_back(tmp_path: Path) -> None:
    jobs = [(1, 0, 80, 8), (2, 40, 20, 4)]
    found, _ = simulate(tmp_path, jobs, {1: SOFT, 2: NOW}, "n-spaa")
    assert found == {1: [(0, 40, 8), (40, 60, 4), (60, 90, 8)], 2: [(40, 60, 4)]}


def test_jobs_shrink_by_the_same_number_as_far_as_they_can(tmp_path: Path) -> None:
    jobs = [(1, 0, 100, 3), (2, 0, 100, 5), (3, 40, 20, 5)]
    found, _ = simulate(
        tmp_path, jobs, {1: {**SOFT, "min_nodes": 2}, 2: {**SOFT, "min_nodes": 1}, 3: NOW}, "n-spaa"
    )
    assert [nodes for _, _, nodes in found[1]] == [3, 2, 3]
    assert [nodes for _, _, nodes in found[2]] == [5, 1, 5]


def test_too_little_to_shrink_by_is_left_alone(tmp_path: Path) -> None:
    """No mixture: jobs are preempted for the whole need."""
    jobs = [(1, 0, 100, 4), (2, 0, 100, 4), (3, 50, 10, 6)]
    found, rows = simulate(tmp_path, jobs, {1: SOFT, 2: RIGID, 3: NOW}, "n-spaa", "warning=0")
    assert rows["preemptions"].to_list() == [1, 1, 0]
    assert found[3] == [(50, 60, 6)]


def test_nodes_that_become_free_are_collected_from_the_notice_on(tmp_path: Path) -> None:
    jobs = [(1, 0, 30, 8), (2, 60, 20, 4), (3, 5, 50, 8)]
    reported = {1: RIGID, 2: noticed(10, 60), 3: RIGID}
    found, _ = simulate(tmp_path, jobs, reported, "cua-paa")
    assert found == {1: [(0, 30, 8)], 2: [(60, 80, 4)], 3: [(80, 130, 8)]}
    ignored, _ = simulate(tmp_path, jobs, reported, "n-paa")
    assert ignored[3] == [(30, 60, 8), (80, 130, 8)]


def test_a_rigid_job_is_preempted_right_after_its_last_checkpoint(tmp_path: Path) -> None:
    jobs = [(1, 0, 100, 8), (2, 60, 20, 8)]
    found, rows = simulate(tmp_path, jobs, {1: saving(25), 2: noticed(10, 60)}, "cup-paa")
    assert found == {1: [(0, 50, 8), (80, 130, 8)], 2: [(60, 80, 8)]}
    assert rows.get_column("wasted_s", default=pl.Series([0.0])).sum() == 0


def test_jobs_that_end_in_time_are_counted_on(tmp_path: Path) -> None:
    """No job is preempted for what comes free by its request before the predicted arrival."""
    jobs = [(1, 0, 40, 4), (2, 0, 100, 4), (3, 60, 20, 4), (4, 5, 90, 4)]
    found, rows = simulate(tmp_path, jobs, {1: RIGID, 2: RIGID, 3: noticed(10, 60), 4: RIGID}, "cup-paa")
    assert rows["preemptions"].sum() == 0
    assert (found[3], found[4]) == ([(60, 80, 4)], [(80, 170, 4)])


def test_who_is_backfilled_on_reserved_nodes_goes_when_they_are_needed(tmp_path: Path) -> None:
    jobs = [(1, 50, 10, 8), (2, 0, 1, 1), (3, 1, 30, 8), (4, 2, 100, 2)]
    reported = {1: noticed(1, 50), 2: RIGID, 3: RIGID, 4: RIGID}
    found, rows = simulate(tmp_path, jobs, reported, "cua-paa")
    assert (found[4], found[1]) == ([(2, 50, 2), (90, 190, 2)], [(50, 60, 8)])
    assert rows["wasted_s"].to_list() == [0, 0, 0, 48]
    kept, _ = simulate(another(tmp_path), jobs, reported, "cua-spaa", "squatting=no")
    assert kept[4] == [(90, 190, 2)]


def test_a_reservation_ends_when_its_job_does_not_come(tmp_path: Path) -> None:
    jobs = [(1, 100, 20, 8), (2, 5, 200, 8), (3, 0, 1, 1)]
    reported = {1: noticed(1, 20), 2: RIGID, 3: RIGID}
    found, _ = simulate(tmp_path, jobs, reported, "cua-paa", "release=10")
    assert found[2] == [(30, 100, 8), (120, 320, 8)]


def test_victims_chosen_together_cost_less(tmp_path: Path) -> None:
    jobs = [(1, 0, 100, 3), (2, 0, 100, 4), (3, 50, 10, 5)]
    reported = {1: RIGID, 2: RIGID, 3: NOW}
    _, one_by_one = simulate(tmp_path, jobs, reported, "n-paa")
    assert one_by_one["preemptions"].to_list() == [1, 1, 0]
    _, together = simulate(another(tmp_path), jobs, reported, "n-spaa", "preemption=optimal")
    assert together["preemptions"].to_list() == [0, 1, 0]


def test_a_job_that_shares_starts_at_once_and_preempts_no_job(tmp_path: Path) -> None:
    jobs = [(1, 0, 100, 8), (2, 50, 20, 8)]
    found, rows = simulate(tmp_path, jobs, {1: RIGID, 2: NOW}, "share", "weight=4")
    assert found == {1: [(0, 120, 8)], 2: [(50, 75, 8)]}
    assert rows["preemptions"].sum() == 0
    assert read_info(tmp_path / "share").multiplicity == 2


def test_what_cannot_be_freed_is_waited_for_in_front(tmp_path: Path) -> None:
    jobs = [(1, 0, 50, 6), (2, 10, 20, 4), (3, 5, 10, 8)]
    found, _ = simulate(tmp_path, jobs, {1: NOW, 2: NOW, 3: RIGID}, "n-paa")
    assert found == {1: [(0, 50, 6)], 2: [(50, 70, 4)], 3: [(70, 80, 8)]}


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
