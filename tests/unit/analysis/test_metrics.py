from __future__ import annotations

import ast
import statistics
from dataclasses import replace
from io import StringIO
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from rich.console import Console
from rich.table import Table

from analysis.comparison.comparison_tables import job_rows, job_table
from analysis.metrics.derived_columns import MetricOptions, with_derived
from analysis.metrics.run_metrics import (
    RunMetrics,
    completion_by_cpu_time,
    completion_by_jobs,
    measure,
    origin_s,
)
from analysis.quantiles import quantile, quantiles
from analysis.tables import metric_rows, metrics_tables
from foundation.records import JOBS, Placement, Run, SliceRecord, load_run, write_run
from foundation.records.columns import SLICES, Row
from foundation.records.row_types import JobRecord
from foundation.records.table_files import frame_of
from foundation.units import number
from tests.fixtures.example_runs import example_run
from tests.fixtures.records import make_ended, make_info, make_job, make_trace
from tests.unit.analysis.test_verdict import made_run

HAND = [
    make_ended(1, cores=1, submit_s=0.0, start_s=0.0, end_s=10.0, dedicated_s=10.0, cpu_s=10.0),
    make_ended(2, cores=2, due_s=2.0, submit_s=2.0, start_s=10.0, end_s=30.0, dedicated_s=10.0, cpu_s=21.0),
    make_ended(
        3, kind="interactive", cores=1, due_s=5.0, submit_s=5.0, start_s=30.0, end_s=34.0,
        dedicated_s=4.0, busy_s=1.0,
    ),
    make_job(4, due_s=6.0, submit_s=None, state="REFUSED", placement=None),
]  # fmt: skip
PLACES = ["0", "0-1", "0"]


def hand_run(folder: Path, **info: object) -> Run:
    """Return a run of four jobs on one node of two cores; the numbers below were computed by hand."""
    jobs = [
        *(
            place_on(job, (0,) if place == "0" else (0, 1))
            for job, place in zip(HAND[:3], PLACES, strict=True)
        ),
        HAND[3],
    ]
    write_run(folder / "RUN", make_info(system="N1C2", **info), make_trace(folder), frame_of(jobs, JOBS))
    return load_run(folder / "RUN")


def place_on(job: JobRecord, cores: tuple[int, ...], node: str = "n1") -> JobRecord:
    return msgspec.structs.replace(job, placement=(Placement(node, cores),))


@pytest.fixture(name="metrics")
def _metrics(tmp_path: Path) -> RunMetrics:
    return measure(hand_run(tmp_path))


def test_wait_and_slowdowns_of_each_job() -> None:
    rows = with_derived(frame_of(HAND, JOBS)).to_dicts()
    assert [row["wait_s"] for row in rows] == [0, 8, 25, None]
    assert [row["run_s"] for row in rows] == [10, 20, 4, None]
    assert [row["slowdown"] for row in rows] == [1, 1.4, 7.25, None]
    assert [row["slowdown_osub"] for row in rows] == [1, 2.8, 7.25, None]
    assert [row["degradation"] for row in rows] == [1, 2, 1, None]
    assert [row["bounded_slowdown"] for row in rows] == [1, 2.8, 2.9, None]
    assert [row["work_core_s"] for row in rows] == [10, 20, 1, None]


def test_wait_of_all_and_by_kind(metrics: RunMetrics) -> None:
    everyone = metrics.kinds["all"].wait_s
    assert (everyone.known, everyone.missing, everyone.mean, everyone.median, everyone.max) == (
        3, 1, 11, 8, 25,
    )  # fmt: skip
    assert metrics.kinds["all"].waited_share == pytest.approx(2 / 3)
    assert (metrics.kinds["batch"].wait_s.max, metrics.kinds["interactive"].waited_share) == (8, 1)
    assert list(metrics.kinds) == ["all", "batch", "interactive"]


def test_jobs_without_a_value_are_counted_as_missing(metrics: RunMetrics) -> None:
    batch = metrics.kinds["batch"]
    assert (batch.jobs, batch.slowdown_osub.known, batch.slowdown_osub.missing) == (3, 2, 1)
    assert (batch.states, batch.completion_missing) == ({"COMPLETED": 2, "REFUSED": 1}, 1)
    assert metrics.cpu_missing == 1


def test_completion_by_jobs_and_by_cpu_time(metrics: RunMetrics) -> None:
    everyone = metrics.kinds["all"]
    assert everyone.completion_by_jobs_s == {"p90": 34, "p95": 34, "p100": 34}
    # Work of 10, 20 and 1 core seconds is done at 10, 30 and 34 s: 30 of 31 are 96.8%.
    assert everyone.completion_by_cpu_time_s == {"p90": 30, "p95": 30, "p100": 34}
    assert metrics.makespan_s == 34


def test_use_of_the_system(metrics: RunMetrics) -> None:
    # Core 0 for 34 s and core 1 for 20 s, of two cores in 34 s.
    assert metrics.utilisation_allocated == pytest.approx(54 / 68)
    assert metrics.cpu_utilisation == pytest.approx(31 / 68)
    assert metrics.shared_share == 0
    assert metrics.placement_missing == 0


def test_thresholds_are_options(tmp_path: Path) -> None:
    metrics = measure(hand_run(tmp_path), MetricOptions(wait_threshold_s=8, beta_s=29))
    assert metrics.kinds["all"].waited_share == pytest.approx(1 / 3)
    assert metrics.kinds["interactive"].bounded_slowdown.max == 1


def test_a_core_that_two_jobs_hold_is_in_use_once(tmp_path: Path) -> None:
    jobs = [
        place_on(make_ended(1, submit_s=0.0, start_s=0.0, end_s=10.0), (0,)),
        place_on(make_ended(2, submit_s=0.0, start_s=6.0, end_s=12.0), (0, 1)),
        place_on(make_ended(3, submit_s=0.0, start_s=12.0, end_s=14.0), (0,)),
        place_on(make_ended(4, submit_s=0.0, start_s=0.0, end_s=2.0), (0,), "n2"),
    ]
    write_run(tmp_path / "RUN", make_info(system="N2C2"), make_trace(tmp_path), frame_of(jobs, JOBS))
    metrics = measure(load_run(tmp_path / "RUN"))
    occupied = 14 + 6 + 2
    assert metrics.utilisation_allocated == pytest.approx(occupied / (4 * 14))
    assert metrics.shared_share == pytest.approx(4 / occupied)


def test_a_job_of_no_length_has_no_slowdown_but_a_bounded_one() -> None:
    job = make_ended(1, submit_s=0.0, start_s=3.0, end_s=3.0, dedicated_s=0.0)
    row = with_derived(frame_of([job], JOBS)).row(0, named=True)
    assert (row["slowdown"], row["slowdown_osub"], row["degradation"]) == (None, None, None)
    assert row["bounded_slowdown"] == 1


@pytest.mark.parametrize("jobs", [[], [make_job(1, state="LOST")]])
def test_a_run_in_which_nothing_ran_has_no_figures_and_no_error(tmp_path: Path, jobs: list[Row]) -> None:
    write_run(tmp_path / "RUN", make_info(), make_trace(tmp_path), frame_of(jobs, JOBS))
    metrics = measure(load_run(tmp_path / "RUN"))
    assert (metrics.makespan_s, metrics.utilisation_allocated, metrics.cpu_utilisation) == (None, None, None)
    assert metrics.kinds["all"].wait_s.max is None
    assert metrics.kinds["all"].completion_by_jobs_s["p90"] is None


def test_slices_are_measured_where_the_run_has_them(tmp_path: Path) -> None:
    slices = [
        SliceRecord(slice=0, start_s=0, length_s=1, job=101, node="n1", role="run", skew_us=100, freeze_us=50)
    ]
    write_run(
        tmp_path / "RUN",
        make_info(),
        make_trace(tmp_path),
        frame_of([make_ended()], JOBS),
        slices=frame_of(slices, SLICES),
    )
    metrics = measure(load_run(tmp_path / "RUN")).slices
    assert metrics is not None
    assert (metrics.slices, metrics.length_s, metrics.jobs) == (1, 1, 1)
    assert metrics.switching_share == pytest.approx(150e-6)
    assert metrics.fairness is None


def test_start_up_is_named_where_it_is_much_of_the_run(tmp_path: Path) -> None:
    run = made_run(tmp_path, "short", wait_s=1, degradation=1.9, noise=0.0)
    (note,) = measure(run).notes
    assert note.startswith("No two jobs share a core: its degradation of 1.90 is start-up")
    assert "a median of 90.0 s against 100.0 s of work" in note
    assert not measure(replace(run, info=msgspec.structs.replace(run.info, multiplicity=2))).notes


def test_long_jobs_and_simulations_need_no_word(tmp_path: Path) -> None:
    assert not measure(made_run(tmp_path, "long", wait_s=1, degradation=1.05)).notes
    assert not measure(made_run(tmp_path, "sim", wait_s=1, degradation=1.9, kind="simulated")).notes


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


def frame(ends: list[float | None], work: list[float | None] | None = None) -> pl.DataFrame:
    starts = [None if end is None else 0.0 for end in ends]
    columns = {
        "due_s": [5.0] * len(ends),
        "start_s": starts,
        "end_s": ends,
        "work_core_s": work or [1.0] * len(ends),
    }
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64))


def test_ninety_percent_of_ten_jobs_are_done_with_the_ninth() -> None:
    done = completion_by_jobs(frame([float(end) for end in range(10, 110, 10)]), 0.0)
    assert [done.at(percent) for percent in (10, 90, 90.1, 95, 100)] == [10, 90, 100, 100, 100]


def test_time_counts_from_the_first_due_time() -> None:
    jobs = frame([15.0])
    assert completion_by_jobs(jobs, origin_s(jobs)).at(100) == 10


def test_jobs_that_end_together_are_one_step() -> None:
    done = completion_by_jobs(frame([3.0, 3.0, 7.0, 9.0]), 0.0)
    assert (done.time_s.tolist(), done.share.tolist()) == ([3, 7, 9], [0.5, 0.75, 1])


def test_cpu_time_weighs_the_jobs_and_unknown_work_is_missing() -> None:
    done = completion_by_cpu_time(frame([1.0, 2.0, 3.0, None], [1.0, 8.0, None, 5.0]), 0.0)
    assert (done.missing, done.at(90), done.share.tolist()) == (2, 2, pytest.approx([1 / 9, 1]))


def test_without_any_job_there_is_no_completion() -> None:
    assert completion_by_jobs(frame([None]), 0.0).at(90) is None
    assert completion_by_jobs(frame([]), 0.0).at(90) is None


def test_jobs_without_work_are_done_at_once() -> None:
    assert completion_by_cpu_time(frame([4.0], [0.0]), 0.0).at(100) == 4


def test_a_thinned_curve_keeps_its_ends() -> None:
    done = completion_by_jobs(frame([float(end) for end in range(1, 1001)]), 0.0)
    thin = done.thinned(50)
    assert len(thin.time_s) <= 50
    assert (thin.time_s[0], thin.time_s[-1], thin.share[-1]) == (1, 1000, 1)


ROOT = Path(__file__).parents[3]
ROOMS = ["osub", "foundation", "analysis", "workloads", "submitter", "gangd", "simulator", "predictor"]


@pytest.mark.parametrize(
    ("share", "by_hand"),
    # ranks (5 - 1) p of 10, 20, 40, 70, 110: 0, 1, 2, 3.8, 3.96, 4
    [(0, 10), (0.25, 20), (0.5, 40), (0.95, 70 + 0.8 * 40), (0.99, 70 + 0.96 * 40), (1, 110)],
)
def test_a_quantile_is_on_the_line_between_its_ranks(share: float, by_hand: float) -> None:
    assert quantile([70.0, 10.0, 110.0, 40.0, 20.0], share) == pytest.approx(by_hand, rel=1e-15)


def test_the_middle_of_an_even_number_is_half_way() -> None:
    assert quantile([1, 2, 10, 40], 0.5) == 6


def test_what_is_not_known_is_not_counted_and_nothing_known_has_no_quantile() -> None:
    known = [3.0, 1.0, 2.0]
    for values in ([*known, None], pl.Series([*known, None]), np.array([*known, np.nan])):
        assert quantile(values, 0.25) == 1.5
    assert quantile(pl.Series([3, 1, None, 2]), 0.25) == 1.5
    for nothing in ([], [None], pl.Series([], dtype=pl.Float64)):
        assert quantile(nothing, 0.5) is None
    with pytest.raises(ValueError, match="no value"):
        quantiles([None], (0.5,))


@pytest.mark.parametrize("count", [1, 2, 7, 20, 1001])
def test_numpy_polars_and_statistics_say_the_same(count: int) -> None:
    drawn = np.random.default_rng(count).lognormal(size=count)
    shares = (0, 0.001, 0.05, 0.25, 0.5, 0.54, 0.9, 0.95, 0.99, 1)
    ours = quantiles(drawn, shares)
    assert ours == pytest.approx(np.percentile(drawn, [100 * share for share in shares]), rel=1e-12)
    assert ours == pytest.approx([pl.Series(drawn).quantile(share, "linear") for share in shares], rel=1e-12)
    assert ours[4] == pytest.approx(statistics.median(drawn), rel=1e-12)
    assert ours[4] == pytest.approx(pl.Series(drawn).median(), rel=1e-12)


@pytest.mark.slow
def test_no_other_definition_is_used() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in ROOMS
        for path in (ROOT / package).rglob("*.py")
        if path.relative_to(ROOT).as_posix() != "analysis/quantiles.py"
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Attribute)
        and node.attr in {"quantile", "percentile", "nanquantile", "nanpercentile", "quantiles"}
    ]
    assert found == [], "analysis.quantiles has the definition that all figures follow"
