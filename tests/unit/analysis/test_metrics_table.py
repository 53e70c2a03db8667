from __future__ import annotations

from io import StringIO
from pathlib import Path

import msgspec
from rich.console import Console

from osub.analysis.metrics import RunMetrics, measure
from osub.analysis.rows import metric_rows, number
from osub.analysis.table import metrics_table
from osub.records import load_run
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


def test_long_times_are_told_in_hours(tmp_path: Path) -> None:
    runs = [msgspec.structs.replace(both(tmp_path)[0], makespan_s=7_700_400.0)]
    assert metric_rows(runs)[0].name == "makespan [h]"
    assert metric_rows(runs)[0].cells == ("2,139",)


def test_the_table_fits_a_terminal_and_takes_labels_as_plain_text(tmp_path: Path) -> None:
    runs = [msgspec.structs.replace(run, label=f"[red]{run.label}") for run in both(tmp_path)]
    console = Console(width=100, record=True, file=StringIO())
    console.print(metrics_table(runs, short=True))
    text = console.export_text()
    assert "[red]M=1" in text
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "bounded slowdown" not in text


def test_numbers_have_about_four_digits() -> None:
    assert [number(value) for value in (0, 0.12345, 1.2345, 123.45, 12345.6)] == [
        "0.00",
        "0.123",
        "1.23",
        "123.5",
        "12,346",
    ]
