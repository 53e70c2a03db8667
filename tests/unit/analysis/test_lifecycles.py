"""Jobs of several attempts: measures and charts."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from analysis.charts.gantt_chart import gantt
from analysis.comparison.comparison_tables import pair, run_errors
from analysis.metrics.derived_columns import stretches, with_derived
from analysis.metrics.run_metrics import RunMetrics, measure
from analysis.metrics.slice_metrics import attained_shares, busy_slices
from analysis.report import write_report
from analysis.tables import metrics_tables
from foundation.records import (
    ALLOCATIONS,
    JOBS,
    SLICES,
    AllocationRecord,
    JobRecord,
    Placement,
    Run,
    SliceRecord,
    load_run,
    write_run,
)
from foundation.records.row_types import AllocationCause, SliceRole
from foundation.records.table_files import frame_of
from tests.fixtures.records import make_ended, make_info, make_trace

INFO = make_info(system="N3C4", node_names=("n1", "n2", "n3"), multiplicity=1)
TWO, FOUR = (0, 1), (0, 1, 2, 3)


def at(node: str, cores: tuple[int, ...]) -> tuple[Placement, ...]:
    return (Placement(node, cores),)


def held(
    job: int,
    from_s: float,
    to_s: float | None,
    why: AllocationCause = "start",
    place: tuple[Placement, ...] | None = at("n1", TWO),
    **parts: float,
) -> AllocationRecord:
    return AllocationRecord(job=job, from_s=from_s, to_s=to_s, placement=place, why=why, **parts)


def job(number: int, submit_s: float, start_s: float, end_s: float | None, **fields: object) -> JobRecord:
    known = {"placement": at("n1", TWO), "cores": 2, "dedicated_s": 20.0, "job_id": number, "due_s": submit_s}
    return make_ended(number, submit_s=submit_s, start_s=start_s, end_s=end_s, **(known | fields))


JOBS_OF_ALL_KINDS = [
    # requeued: 10 s for nothing, 20 s in the queue again
    job(1, 0.0, 30.0, 50.0, wasted_s=10.0),
    # shrunk from four cores to two
    job(2, 0.0, 0.0, 30.0, placement=at("n2", TWO), cores=4, dedicated_s=30.0, elasticity="malleable"),
    # suspended for 10 s; nothing was lost
    job(3, 0.0, 20.0, 25.0, placement=at("n3", TWO), dedicated_s=10.0, preemptions=1),
    # preempted; went on from a checkpoint, after 2 s of set-up, with 4 s lost
    job(4, 50.0, 70.0, 100.0, setup_s=4.0),
    # put back, and cancelled in the queue
    job(5, 40.0, 40.0, 60.0, placement=at("n3", FOUR), cores=4, state="CANCELLED"),
    # one attempt
    job(6, 30.0, 32.0, 42.0, placement=at("n2", FOUR), cores=4, dedicated_s=10.0),
]

HELD = [
    held(1, 0, 10),
    held(1, 30, 50, "requeue"),
    held(2, 0, 10, place=at("n2", FOUR)),
    held(2, 10, 30, "resize", place=at("n2", TWO)),
    held(3, 5, 10, place=at("n3", TWO)),
    held(3, 20, 25, "preemption", place=at("n3", TWO)),
    held(4, 50, 60, setup_s=2, wasted_s=4),
    held(4, 70, 100, "checkpoint", setup_s=2),
    held(5, 40, 50, place=at("n3", FOUR), wasted_s=10),
]

LOST_CORE_S = 2 * 10 + 2 * 4 + 4 * 10
AGAIN_CORE_S = 2 * 2
HELD_CORE_S = 2 * 30 + 4 * 10 + 2 * 20 + 2 * 10 + 2 * 40 + 4 * 10 + 4 * 10


def make(folder: Path, jobs: list[JobRecord], rows: list[AllocationRecord]) -> Run:
    trace = make_trace(folder)
    write_run(folder / "RUN", INFO, trace, frame_of(jobs, JOBS), allocations=frame_of(rows, ALLOCATIONS))
    return load_run(folder / "RUN")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make(tmp_path, JOBS_OF_ALL_KINDS, HELD)


def derived_of(jobs: list[JobRecord], rows: list[AllocationRecord]) -> list[dict[str, object]]:
    tables = frame_of(jobs, JOBS), frame_of(rows, ALLOCATIONS)
    return with_derived(tables[0], held=stretches(*tables)).to_dicts()


def column(rows: list[dict[str, object]], name: str) -> list[object]:
    return [row[name] for row in rows]


def test_waits_and_runs_are_of_all_attempts() -> None:
    rows = derived_of(JOBS_OF_ALL_KINDS, HELD)
    assert column(rows, "first_wait_s") == [0, 0, 5, 0, 0, 2]
    assert column(rows, "wait_s") == [20, 0, 15, 10, 10, 2]
    assert column(rows, "run_s") == [30, 30, 10, 40, 10, 10]
    assert column(rows, "lost_s") == [10, 0, 0, 4, 10, 0]
    assert column(rows, "again_s") == [0, 0, 0, 2, 0, 0]
    assert column(rows, "useful_s") == [20, 30, 10, 34, 0, 10]
    assert column(rows, "lives") == [2, 1, 2, 2, 1, 1]


def test_slowdowns_are_against_the_run_that_counted() -> None:
    rows = derived_of(JOBS_OF_ALL_KINDS, HELD)
    assert column(rows, "slowdown") == [50 / 20, 1, 25 / 10, 50 / 34, None, 12 / 10]
    assert column(rows, "slowdown_osub") == [50 / 20, 1, 25 / 10, 50 / 20, 20 / 20, 12 / 10]
    assert column(rows, "bounded_slowdown") == column(rows, "slowdown_osub")
    # the fifth ran for nothing: a degradation of 0 would be the best of all
    assert column(rows, "degradation") == [1, 1, 1, 34 / 20, None, 1]


def test_core_seconds_are_useful_lost_or_set_up_again(run: Run) -> None:
    metrics = measure(run)
    work = metrics.work
    assert (work.allocated_core_s, work.lost_core_s, work.again_core_s) == (
        HELD_CORE_S,
        LOST_CORE_S,
        AGAIN_CORE_S,
    )
    assert work.useful_core_s == HELD_CORE_S - LOST_CORE_S - AGAIN_CORE_S
    assert (work.preemptions, work.resumptions, work.requeues, work.resizes, work.jobs_again) == (
        2, 2, 1, 1, 3,
    )  # fmt: skip
    assert metrics.makespan_s == 100
    assert metrics.utilisation_allocated == pytest.approx(HELD_CORE_S / (12 * 100))
    assert metrics.utilisation_useful == pytest.approx(work.useful_core_s / (12 * 100))
    assert metrics.kinds["all"].preempted_share == pytest.approx(2 / 6)
    assert metrics.kinds["all"].first_wait_s.mean == pytest.approx(7 / 6)
    assert metrics.kinds["all"].wait_s.mean == pytest.approx(57 / 6)
    assert metrics.placement_missing == 0


def test_a_shared_second_is_each_job_s_in_part() -> None:
    """Two jobs hold a core for 10 s: one of them for nothing, so 5 of the 10 are lost."""
    jobs = [
        job(1, 0, 20, 30, placement=at("n1", (0,)), cores=1),
        job(2, 0, 0, 10, placement=at("n1", (0,)), cores=1),
    ]
    rows = [held(1, 0, 10, place=at("n1", (0,))), held(1, 20, 30, "requeue", place=at("n1", (0,)))]
    metrics = measure(
        Run(Path("RUN"), INFO, frame_of(jobs, JOBS), frame_of(rows, ALLOCATIONS), None, complete=True)
    )
    assert metrics.utilisation_allocated == pytest.approx(20 / (12 * 30))
    assert metrics.utilisation_useful == pytest.approx(15 / (12 * 30))
    assert metrics.work.lost_core_s == 10


def test_what_a_resize_sets_up_is_set_up_again_and_the_first_set_up_is_not() -> None:
    rows = [held(1, 0, 10, setup_s=3), held(1, 10, 20, "resize", setup_s=2)]
    (row,) = derived_of([job(1, 0, 0, 20, setup_s=5.0, elasticity="malleable")], rows)
    assert (row["again_s"], row["useful_s"]) == (2, 18)


@pytest.mark.parametrize(
    ("said", "rows", "lost_s", "again_s"),
    [
        ({}, ["requeue", "requeue"], 20, 0),
        ({}, ["preemption", "checkpoint"], 0, 0),
        ({}, ["requeue", "checkpoint"], 10, 0),
        ({"wasted_s": 12.0}, ["checkpoint", "requeue"], 12, 0),
        ({"wasted_s": 20.0}, ["checkpoint", "requeue"], 20, 0),
        ({"wasted_s": 25.0}, ["preemption", "preemption"], 25, 0),
        ({"wasted_s": 99.0}, ["preemption", "preemption"], 30, 0),
        ({"setup_s": 6.0}, ["checkpoint", "checkpoint"], 0, 4),
        ({"setup_s": 6.0}, ["requeue", "requeue"], 16, 4),
    ],
)
def test_what_stretches_do_not_say_is_taken_from_the_job(
    said: dict[str, object], rows: list[AllocationCause], lost_s: float, again_s: float
) -> None:
    held_rows = [held(1, 0, 10), held(1, 20, 30, rows[0]), held(1, 40, 50, rows[1])]
    (row,) = derived_of([job(1, 0, 40, 50, **said)], held_rows)
    assert (row["lost_s"], row["again_s"]) == (pytest.approx(lost_s), pytest.approx(again_s))


def test_what_is_not_known_is_no_figure(tmp_path: Path) -> None:
    jobs = [
        job(1, 0, 20, 30),  # the end of its first attempt was not seen
        job(2, 0, 0, None, state="LOST"),  # nor this one
        job(3, 0, 20, 30, placement=at("n2", TWO)),  # nor where its first attempt was
        make_ended(4, job_id=4, start_s=None, end_s=9.0, state="CANCELLED", placement=None),
    ]
    rows = [
        held(1, 0, None),
        held(1, 20, 30, "requeue"),
        held(2, 0, None),
        held(3, 0, 10, place=None),
        held(3, 20, 30, "requeue", place=at("n2", TWO)),
    ]
    run = make(tmp_path, jobs, rows)
    derived = with_derived(run.jobs, held=stretches(run.jobs, run.allocations))
    assert derived["first_wait_s"].to_list() == [0, 0, 0, None]
    assert derived["wait_s"].to_list() == [None, 0, 10, None]
    assert derived["run_s"].to_list() == [None, None, 20, None]
    metrics = measure(run)
    assert (metrics.work.missing, metrics.placement_missing) == (2, 3)
    assert metrics.work.allocated_core_s == 2 * 20


def test_a_job_that_is_back_in_the_queue_still_waits() -> None:
    (row,) = derived_of([job(1, 0, 0, None, state=None)], [held(1, 0, 10)])
    assert (row["wait_s"], row["first_wait_s"], row["run_s"]) == (None, 0, 10)


def test_without_allocations_a_run_is_what_its_jobs_say(tmp_path: Path) -> None:
    write_run(tmp_path / "RUN", INFO, make_trace(tmp_path), frame_of(JOBS_OF_ALL_KINDS[5:], JOBS))
    metrics = measure(load_run(tmp_path / "RUN"))
    assert metrics.work.allocated_core_s == 40
    assert not any("Interruptions" in row for row in printed([metrics]))


def printed(metrics: list[RunMetrics]) -> list[str]:
    console = Console(width=120, record=True)
    for table in metrics_tables(metrics, 120):
        console.print(table)
    return [" ".join(line.replace("│", " ").split()) for line in console.export_text().splitlines()]


def test_the_table_reports_of_interruptions(run: Run) -> None:
    lines = printed([measure(run)])
    for line in (
        "cores in use 26.7%",
        "cores in useful use 20.7%",
        "preemptions 2",
        "starts after a requeue 1",
        "resizes 1",
        "held core time lost 21.2%",
        "held core time that set up again 1.2%",
        "wait, mean [s] 9.50",
        "wait to the first start, mean [s] 1.17",
        "preempted 33.3%",
    ):
        assert line in lines


@pytest.mark.slow
def test_bars_are_distinguished_by_their_beginning_and_hatched_where_they_did_not_count(run: Run) -> None:
    held_rows = stretches(run.jobs, run.allocations)
    chart = gantt(with_derived(run.jobs, held=held_rows), run.info, held=held_rows)
    assert chart is not None
    bars = [trace for trace in chart.figure.data if trace.customdata is not None]
    *others, labels = (trace for trace in chart.figure.data if trace.customdata is None)
    hatched = {trace.name: trace for trace in others}
    drawn = sum(length * width for trace in bars for length, width in zip(trace.x, trace.width, strict=True))
    assert drawn == pytest.approx(HELD_CORE_S, rel=0.06)  # a gap of 0.1 cores parts neighbours
    assert sorted(labels.text) == sorted(["1", "1 (2)", "2", "2", "3", "3 (2)", "4", "4 (2)", "5", "6"])
    kind, beginning, by_job = chart.figure.layout.updatemenus[0].buttons
    assert [button.label for button in (kind, beginning, by_job)] == [
        "colour by kind",
        "by beginning",
        "by job",
    ]
    change, traces = beginning.args
    assert list(traces) == list(range(len(bars)))
    assert len(set(change["marker.color"])) == len(set(change["name"])) == 5
    assert change["showlegend"] == [True] * 5
    assert kind.args[0]["showlegend"] == [True, False, False, False, False]
    assert set(hatched) == {"lost", "set up again"}
    dark = {
        text for text, colour in zip(labels.text, labels.textfont.color, strict=True) if colour != "white"
    }
    assert dark == {"1", "5"}
    assert (sum(hatched["lost"].x), list(hatched["lost"].base)) == (10 + 4 + 10, [0, 56, 40])
    assert (list(hatched["set up again"].base), list(hatched["set up again"].x)) == ([70], [2])
    hover = next(
        text for trace in bars for text in trace.customdata if "life 2 of 2" in text and "job 4" in text
    )
    assert "again from a checkpoint · 2 cores from 70.00 to 100.00 s · set up again 2.00 s" in hover


@pytest.mark.slow
def test_the_page_shows_cores_in_use_and_what_counted(run: Run, tmp_path: Path) -> None:
    write_report([run], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "Cores in use over time" in text
    assert "tiny, useful" in text


@pytest.mark.slow
def test_runs_are_compared_by_first_starts_all_waits_and_all_places(run: Run, tmp_path: Path) -> None:
    """The other run starts every job at once and never again."""
    calm = [
        job(n, row.submit_s or 0.0, row.submit_s or 0.0, (row.submit_s or 0.0) + 10)
        for n, row in enumerate(JOBS_OF_ALL_KINDS, 1)
    ]
    (tmp_path / "calm").mkdir()
    other = make(tmp_path / "calm", calm, [])
    paired = pair(run, other)
    assert paired["start_error_s"].to_list() == [0, 0, -5, 0, 0, -2]
    assert paired["wait_error_s"].to_list() == [-20, 0, -15, -10, -10, -2]
    assert paired["run_s"].to_list() == [30, 30, 10, 40, 10, 10]
    assert paired["lives"].to_list() == [2, 1, 2, 2, 1, 1]
    assert paired["place"].to_list() == [
        "0(0-1) > 0(0-1)", "1(0-3) > 1(0-1)", "2(0-1) > 2(0-1)", "0(0-1) > 0(0-1)", "2(0-3)",
        "1(0-3)",
    ]  # fmt: skip
    assert run_errors(run, other).same_nodes == 0


def test_sharers_in_a_slice_are_those_of_that_life() -> None:
    """Job 1 shares a core with job 2 in its first attempt and with no job in its second."""
    jobs = frame_of(
        [job(1, 0, 20, 24, placement=at("n1", (3,))), job(2, 0, 0, 24, placement=at("n1", (0,)))], JOBS
    )
    rows = [held(1, 0, 4, place=at("n1", (0,))), held(1, 20, 24, "requeue", place=at("n1", (3,)))]
    roles: dict[tuple[int, int], SliceRole] = {
        (1, n): "run" if n % 2 or n > 4 else "held" for n in (0, 1, 2, 3, 20, 21, 22, 23)
    }
    roles |= {(2, n): "held" if n % 2 and n < 4 else "run" for n in (0, 1, 2, 3, 20, 21, 22, 23)}
    slices = frame_of(
        [
            SliceRecord(slice=n, start_s=n, length_s=1, job=number, node="n1", role=role)
            for (number, n), role in sorted(roles.items(), key=lambda item: item[0][1])
        ],
        SLICES,
    )
    held_rows = stretches(jobs, frame_of(rows, ALLOCATIONS))
    shares, missing = attained_shares(slices, busy_slices(slices), jobs, held_rows)
    assert missing == 0
    assert shares.select("job", "entitled_s", "attained_s").rows() == [(1, 2.0, 2.0), (2, 2.0, 2.0)]


def test_a_slice_before_the_first_start_belongs_to_the_first_life() -> None:
    jobs = frame_of([job(1, 0, 20, 24), job(2, 0, 0, 24)], JOBS)
    rows = frame_of([held(1, 1, 4), held(1, 20, 24, "requeue")], ALLOCATIONS)
    slices = frame_of(
        [SliceRecord(slice=0, start_s=0, length_s=1, job=n, node="n1", role="run") for n in (1, 2)], SLICES
    )
    shares, _ = attained_shares(slices, busy_slices(slices), jobs, stretches(jobs, rows))
    assert shares["entitled_s"].to_list() == [0.5, 0.5]


def test_an_empty_table_of_allocations_changes_nothing() -> None:
    jobs = frame_of(JOBS_OF_ALL_KINDS, JOBS)
    assert stretches(jobs, ALLOCATIONS.schema.to_frame()).equals(stretches(jobs))
    assert stretches(jobs.drop("placement"))["held_cores"].to_list() == jobs["cores"].to_list()
    assert stretches(JOBS.schema.to_frame()).height == 0
    assert with_derived(JOBS.schema.to_frame()).height == 0
    assert with_derived(jobs)["wait_s"].dtype == pl.Float64
