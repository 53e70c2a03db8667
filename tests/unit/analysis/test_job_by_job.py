"""Two runs of a trace, job by job: errors, places, and jobs that only one of them has."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from analysis.comparison.comparison_tables import error_curve, pair, places, run_errors, short_place
from foundation.records import Run, RunInfo, load_run, write_run
from tests.fixtures.cli import Cli

Row = tuple[int, float, float, list[tuple[str, str]]]

REFERENCE: list[Row] = [
    (1, 0, 100, [("n1", "0-1")]),
    (2, 10, 60, [("n2", "0-3"), ("n10", "0-3")]),
    (3, 20, 30, [("n1", "2")]),
]
OTHER: list[Row] = [
    (1, 0, 110, [("n1", "0-1")]),
    (2, 12, 62, [("n2", "0-3"), ("n3", "0-3")]),
    (4, 5, 6, [("n1", "3")]),
]


def make_run(folder: Path, label: str, rows: list[Row], names: tuple[str, ...] | None = None) -> Run:
    (trace := folder.with_suffix(".swf")).write_text("; Version: 2.2\n")
    jobs = pl.DataFrame(
        {
            "job_id": [row[0] for row in rows],
            "trace_job": [row[0] for row in rows],
            "kind": ["batch"] * len(rows),
            "nodes": [len(row[3]) for row in rows],
            "cores": [4 * len(row[3]) for row in rows],
            "due_s": [0.0] * len(rows),
            "submit_s": [0.0] * len(rows),
            "start_s": [float(row[1]) for row in rows],
            "end_s": [float(row[2]) for row in rows],
            "state": ["COMPLETED"] * len(rows),
            "placement": [[{"node": node, "cores": cores} for node, cores in row[3]] for row in rows],
        }
    )
    info = RunInfo(
        kind="simulated", label=label, trace_name="t", system="N10C4", node_names=names,
        queues="sq", policy="easy", multiplicity=1, started="2025-01-01T00:00:00Z",
    )  # fmt: skip
    write_run(folder, info, trace, jobs)
    return load_run(folder)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Run, Run]:
    names = tuple(f"n{number}" for number in range(1, 11))
    return make_run(tmp_path / "a", "A", REFERENCE, names), make_run(tmp_path / "b", "B", OTHER, names)


def test_jobs_are_paired_by_their_number(runs: tuple[Run, Run]) -> None:
    paired = pair(*runs)
    assert paired["trace_job"].to_list() == [1, 2, 3, 4]
    assert paired["start_error_s"].to_list() == [0, 2, None, None]
    assert paired["run_error"].to_list() == pytest.approx([0.1, 0.0, None, None])


def test_errors_are_of_the_jobs_that_both_completed(runs: tuple[Run, Run]) -> None:
    errors = run_errors(*runs)
    assert (errors.jobs, errors.missing, errors.compared, errors.start_s.max) == (2, 2, 2, 2)
    assert errors.run_time.max == pytest.approx(0.1)
    assert (errors.same_place, errors.same_nodes) == (0.5, 0.5)


def test_places_are_judged_among_jobs_that_found_the_same_jobs(tmp_path: Path) -> None:
    names = ("n1", "n2")
    first: list[Row] = [
        (1, 0, 50, [("n1", "0")]),
        (2, 1, 20, [("n2", "0")]),
        (3, 30, 40, [("n2", "0")]),  # the second has ended in both, at another time
        (4, 45, 60, [("n2", "0")]),
    ]
    other: list[Row] = [
        (1, 0, 55, [("n1", "0")]),
        (2, 2, 25, [("n2", "0")]),
        (3, 31, 50, [("n1", "1")]),  # another place for the same jobs running: the placement's error
        (4, 45, 60, [("n2", "1")]),  # the third still runs: not the placement's
    ]
    real, simulated = (
        make_run(tmp_path / name, name, rows, names) for name, rows in (("a", first), ("b", other))
    )
    assert pair(real, simulated)["alike"].to_list() == [True, True, True, False]
    errors = run_errors(real, simulated)
    assert (errors.same_place, errors.alike) == (0.5, 3)
    assert errors.same_place_alike == pytest.approx(2 / 3)


def test_short_jobs_can_be_left_out_of_the_errors(runs: tuple[Run, Run]) -> None:
    errors = run_errors(*runs, least_run_s=60)
    assert (errors.compared, errors.start_s.max) == (1, 0)


def test_nodes_count_by_their_place_in_the_system_whatever_they_are_called(tmp_path: Path) -> None:
    real = make_run(tmp_path / "real", "real", [(1, 0, 9, [("abc-n2", "0-1")])], ("abc-n1", "abc-n2"))
    simulated = make_run(tmp_path / "sim", "sim", [(1, 0, 9, [("n2", "0-1")])], ("n1", "n2"))
    assert places(real)["place"].to_list() == ["1(0-1)"]
    assert run_errors(real, simulated).same_place == 1


def test_without_a_list_of_nodes_they_count_as_people_count(tmp_path: Path) -> None:
    assert places(make_run(tmp_path / "a", "A", REFERENCE))["place"].to_list() == [
        "0(0-1)",
        "1(0-3) 2(0-3)",
        "0(2)",
    ]


@pytest.mark.parametrize(
    ("place", "short"),
    [
        ("7(0-8) 8(0-8)", "7-8(0-8)"),
        ("0(0-1) 1(0-2) 2(0-2) 4(0-2)", "0(0-1) 1-2(0-2) 4(0-2)"),
        ("3(0)", "3(0)"),
        (None, "-"),
    ],
)
def test_a_place_is_reported_shortly(place: str | None, short: str) -> None:
    assert short_place(place) == short


def test_a_curve_of_errors_ends_with_all_jobs() -> None:
    sizes, shares = error_curve(pl.Series([3.0, -1.0, None, 2.0]))
    assert sizes == [1, 2, 3]
    assert shares[-1] == 1
    assert error_curve(pl.Series([], dtype=pl.Float64)) == ([], [])


@pytest.mark.slow
def test_the_command_writes_a_page_and_all_jobs(runs: tuple[Run, Run], tmp_path: Path, cli: Cli) -> None:
    paths = [run.path for run in runs]
    cli("compare", *paths, "--html", tmp_path / "c.html", "--csv", tmp_path / "c.csv")
    assert "Job by job" in (tmp_path / "c.html").read_text()
    assert pl.read_csv(tmp_path / "c.csv").height == 4


def test_the_command_prints_json(runs: tuple[Run, Run], cli: Cli) -> None:
    errors = cli.json("compare", *(run.path for run in runs), "--json")["errors"]
    assert [(one["label"], one["reference"], one["jobs"]) for one in errors] == [("B", "A", 2)]


@pytest.mark.slow
def test_one_run_or_runs_of_other_traces_are_reported(
    runs: tuple[Run, Run], tmp_path: Path, cli: Cli
) -> None:
    cli.said("compare", runs[0].path, code=2)
    other = make_run(tmp_path / "c", "C", [(99, 0, 1, [("n1", "0")])])
    cli.said("compare", runs[0].path, other.path, code=2)
