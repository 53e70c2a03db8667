from __future__ import annotations

from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from rich.table import Table

from analysis.comparison.comparison_tables import job_rows, job_table
from analysis.metrics.run_metrics import RunMetrics, measure
from analysis.tables import metric_rows, metrics_tables
from foundation.records import load_run
from foundation.units import number
from tests.fixtures.example_runs import example_run


def both(folder: Path) -> list[RunMetrics]:
    alone = example_run(folder / "alone", "alone", jobs=12)
    gang = example_run(folder / "gang", "gang", jobs=12)
    return [measure(load_run(alone)), measure(load_run(gang))]


def test_each_run_is_a_column_and_the_best_is_marked(tmp_path: Path) -> None:
    runs = both(tmp_path)
    rows = {(row.group, row.name): row for row in metric_rows(runs)}
    wait = rows["All jobs", "wait, mean [s]"]
    assert wait.cells == tuple(number(run.kinds["all"].wait_s.mean or 0) for run in runs)
    assert wait.best == (False, True)
    assert rows["Time slices", "Jain's fairness index"].cells[0] == "-"
    assert not any(rows["All jobs", "jobs"].best)
    assert ("All jobs", "wait not known") not in rows


def test_long_times_are_reported_in_hours(tmp_path: Path) -> None:
    runs = [msgspec.structs.replace(both(tmp_path)[0], makespan_s=7_700_400.0)]
    assert (metric_rows(runs)[0].name, metric_rows(runs)[0].cells) == ("makespan [h]", ("2,139",))


def test_a_metric_has_one_unit_for_all_kinds_of_jobs(tmp_path: Path) -> None:
    run = both(tmp_path)[0]
    every = run.kinds["all"]
    waits = msgspec.structs.replace(every.wait_s, max=40_000.0)
    kinds = {**run.kinds, "all": msgspec.structs.replace(every, wait_s=waits)}
    assert {"all", "interactive"} <= set(kinds)
    names = [row.name for row in metric_rows([msgspec.structs.replace(run, kinds=kinds)])]
    assert names.count("wait, max [h]") == len(kinds)


def printed(runs: list[RunMetrics], width: int, simulated: list[RunMetrics]) -> str:
    console = Console(width=width, record=True, file=StringIO())
    for table in metrics_tables(runs, width, short=True, simulated=simulated):
        console.print(table)
    return console.export_text()


def test_the_table_fits_a_terminal_and_takes_labels_as_plain_text(tmp_path: Path) -> None:
    runs = [msgspec.structs.replace(run, label=f"[red]{run.label}") for run in both(tmp_path)]
    text = printed(runs, 100, [])
    assert "[red]M=1" in text
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "bounded slowdown" not in text


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize("simulates", [False, True])
def test_no_number_breaks_however_many_runs_there_are(
    tmp_path: Path, width: int, count: int, simulates: bool
) -> None:
    runs = [
        msgspec.structs.replace(run, label=f"r{at}") for at, run in enumerate(both(tmp_path) * (count // 2))
    ]
    text = printed(runs, width, runs if simulates else [])
    assert max(map(len, text.splitlines())) <= width
    words = set(text.replace("│", " ").split())
    for row in metric_rows(runs):
        if not row.detail:
            assert set(row.cells) <= words, row.name
    assert {run.label for run in runs} <= set(text.replace("┃", " ").split())


@pytest.mark.slow
def test_a_simulation_is_next_to_its_run_or_below_it(tmp_path: Path) -> None:
    runs = both(tmp_path)
    cell = metric_rows(runs)[0].cells[0]
    assert f"{cell} | {cell}" in printed(runs, 120, runs)
    narrow = printed(runs, 60, runs)
    assert "real above simulated" in narrow
    assert " | " not in narrow


@pytest.mark.slow
def test_jobs_of_two_runs_are_side_by_side_or_below_each_other(tmp_path: Path) -> None:
    alone = load_run(example_run(tmp_path / "alone", "alone", jobs=12))
    gang = load_run(example_run(tmp_path / "gang", "gang", jobs=12))
    first = job_rows(alone, gang, 1)[0]
    wide, narrow = (printed_lines(job_table(alone, gang, width, 5), width) for width in (200, 80))
    assert [line.replace("│", " ").split() for line in wide[4:-1]] == [
        " ".join(row).split() for row in job_rows(alone, gang, 5)
    ]
    above, below = (line.replace("│", " ").split() for line in narrow[5:7])
    assert [*above, *below] == " ".join([*first[:4], first[5], first[7], first[9], *first[4:10:2]]).split()
    assert any("shape" in line for line in printed_lines(job_table(alone, gang, 80, 0), 80))


def printed_lines(table: Table, width: int) -> list[str]:
    console = Console(width=width, record=True, file=StringIO())
    console.print(table)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    return lines


def test_numbers_have_about_four_digits() -> None:
    assert [number(value) for value in (0, 0.12345, 1.2345, 123.45, 12345.6)] == [
        "0.00", "0.123", "1.23", "123.5", "12,346",
    ]  # fmt: skip
