"""Allocations that contradict the jobs, themselves or the system are reported by file, column and job."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from foundation import records
from foundation.errors import InputError
from foundation.records.record_checks import check_agreement
from foundation.records.row_types import AllocationCause
from foundation.records.table_files import frame_of, write_table
from tests.fixtures.records import make_ended, make_info, make_job, make_trace

PLACE = (records.Placement("n1", (0, 1, 3)),)
JOB = make_ended(1, submit_s=2.0, start_s=20.0, end_s=40.0, placement=PLACE)


def held(
    from_s: float, to_s: float | None, why: AllocationCause = "start", **fields: object
) -> records.AllocationRecord:
    known = {"job": 101, "placement": PLACE, **fields}
    return records.AllocationRecord(from_s=from_s, to_s=to_s, why=why, **known)  # type: ignore[arg-type]


GOOD = [held(2, 10), held(20, 30, "requeue"), held(30, 40, "resize")]
ELSEWHERE = (records.Placement("n1", (0, 1)), records.Placement("n9", (0,)))
CONTRADICTIONS: dict[str, tuple[list[records.JobRecord], list[records.AllocationRecord], str]] = {
    "before submission": (
        [JOB],
        [held(1, 10), *GOOD[1:]],
        "from_s of job 101: 1.0 is before the job's submit_s",
    ),
    "attempts that overlap": ([JOB], [held(2, 21), *GOOD[1:]], "from_s of job 101: 20.0 is before the end"),
    "a row twice": ([JOB], [*GOOD, GOOD[1]], "from_s of job 101: 20.0 is there twice"),
    "an open row twice": ([JOB], [held(20, None), held(20, None)], "from_s of job 101: 20.0 is there twice"),
    "after the end": (
        [JOB],
        [*GOOD[:2], held(30, 41, "resize")],
        "to_s of job 101: 41.0 is after the job's end_s",
    ),
    "two first starts": ([JOB], [held(2, 10), held(20, 40)], "why of job 101: 'start' is not the first"),
    "a resize of nothing": ([JOB], [held(2, 10, "resize")], "why of job 101: 'resize' is the first"),
    "an unknown job": ([JOB], [held(2, 10, job=7)], "job of job 7: 7 is no job"),
    "a job that never started": (
        [make_job(1, state="CANCELLED", end_s=9.0)],
        [held(2, 9)],
        "job of job 101: 101 has no start_s",
    ),
    "two jobs of one number": (
        [JOB, make_ended(2, job_id=101)],
        GOOD,
        "job_id of trace_job 1: 101 is another",
    ),
    "a node of another system": (
        [JOB],
        [held(2, 10, placement=ELSEWHERE), *GOOD[1:]],
        "placement of job 101: 'n9' is no node of N2C4",
    ),
    "cores beyond the node's": (
        [JOB],
        [held(2, 10, placement=(records.Placement("n2", (2, 3, 4)),)), *GOOD[1:]],
        "placement of job 101: '2-4' are not cores of a node of N2C4",
    ),
    "another last place": (
        [JOB],
        [*GOOD[:2], held(30, 40, "resize", placement=(records.Placement("n1", (0, 1)),))],
        "placement of job 101: .* is not what the jobs table says",
    ),
    "more wasted than held": (
        [JOB],
        [held(2, 10, wasted_s=7.0, setup_s=2.0), *GOOD[1:]],
        "wasted_s of job 101: 7.0 and setup_s are longer",
    ),
}
INFO = make_info(node_names=("n1", "n2"))


@pytest.mark.parametrize(("jobs", "rows", "message"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_contradiction_is_reported_by_file_column_and_job(
    tmp_path: Path, jobs: list[records.JobRecord], rows: list[records.AllocationRecord], message: str
) -> None:
    """On write nothing is left behind; a RUN that another program wrote so is refused on read."""
    tables = frame_of(jobs, records.JOBS), frame_of(rows, records.ALLOCATIONS)
    line = rf"RUN/(allocations|jobs)\.parquet: column {message}"
    with pytest.raises(InputError, match=line) as caught:
        records.write_run(tmp_path / "RUN", INFO, make_trace(tmp_path), tables[0], allocations=tables[1])
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "RUN").exists()
    records.write_run(tmp_path / "RUN", INFO, make_trace(tmp_path), tables[0])
    write_table(tables[1], records.ALLOCATIONS, tmp_path / "RUN")
    with pytest.raises(InputError, match=line):
        records.load_run(tmp_path / "RUN")


def test_lifecycles_that_agree_come_back(tmp_path: Path) -> None:
    rows = [*GOOD, held(50, None, job=102, placement=None)]
    jobs = [JOB, make_job(2, submit_s=45.0, start_s=50.0, placement=None, state="LOST")]
    tables = frame_of(jobs, records.JOBS), frame_of(reversed(rows), records.ALLOCATIONS)
    records.write_run(tmp_path / "RUN", INFO, make_trace(tmp_path), tables[0], allocations=tables[1])
    read = records.load_run(tmp_path / "RUN").allocations
    assert read is not None
    assert read.equals(frame_of(rows, records.ALLOCATIONS))
    light = records.load_run(tmp_path / "RUN", placement=False)
    assert light.allocations is not None
    assert light.allocations.equals(read)


def test_more_nodes_than_the_system_has_are_reported_without_their_names() -> None:
    places = [(records.Placement(f"n{number}", (0,)),) for number in range(1, 4)]
    jobs = [make_ended(n, job_id=n, placement=place) for n, place in enumerate(places, 1)]
    rows = [held(1, 3, job=n, placement=place) for n, place in enumerate(places, 1)]
    with pytest.raises(InputError, match="column placement of job 3: 'n3' is no node of N2C4"):
        check_agreement(
            frame_of(jobs, records.JOBS), frame_of(rows, records.ALLOCATIONS), make_info(), "a", "j"
        )


def test_allocations_of_an_earlier_version_lack_columns(tmp_path: Path) -> None:
    records.write_run(tmp_path / "RUN", INFO, make_trace(tmp_path), frame_of([JOB], records.JOBS))
    frame_of(GOOD, records.ALLOCATIONS).drop("setup_s", "wasted_s").write_parquet(
        tmp_path / "RUN" / "allocations.parquet"
    )
    read = records.load_run(tmp_path / "RUN").allocations
    assert read is not None
    assert read.equals(frame_of(GOOD, records.ALLOCATIONS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (pl.col("from_s") - 30, "column from_s of job 101: -28.0 is below 0"),
        (pl.lit(float("nan")).alias("to_s"), "column to_s of job 101: nan is not finite"),
        (pl.lit(None, pl.Float64).alias("from_s"), "column from_s of job 101: None is null"),
        (pl.lit("pause").alias("why"), "column why of job 101: 'pause' is not one of start"),
        (pl.col("job").cast(pl.Int32), "column job has type Int32"),
        (pl.lit(-1.0).alias("wasted_s"), "column wasted_s of job 101: -1.0 is below 0"),
    ],
)
def test_a_damaged_table_is_reported(tmp_path: Path, change: pl.Expr, message: str) -> None:
    records.write_run(tmp_path / "RUN", INFO, make_trace(tmp_path), frame_of([JOB], records.JOBS))
    path = tmp_path / "RUN" / "allocations.parquet"
    frame_of(GOOD, records.ALLOCATIONS).with_columns(change).write_parquet(path)
    with pytest.raises(InputError, match=rf"allocations\.parquet: {message}"):
        records.load_run(tmp_path / "RUN")


def test_a_missing_column_is_reported(tmp_path: Path) -> None:
    records.write_run(tmp_path / "RUN", INFO, make_trace(tmp_path), frame_of([JOB], records.JOBS))
    frame_of(GOOD, records.ALLOCATIONS).drop("why").write_parquet(tmp_path / "RUN" / "allocations.parquet")
    with pytest.raises(InputError, match=r"allocations\.parquet: column why is missing"):
        records.load_run(tmp_path / "RUN")


def test_an_empty_table_says_nothing(tmp_path: Path) -> None:
    tables = frame_of([JOB], records.JOBS), frame_of([], records.ALLOCATIONS)
    records.write_run(tmp_path / "RUN", INFO, make_trace(tmp_path), tables[0], allocations=tables[1])
    assert records.load_run(tmp_path / "RUN").allocations is not None


def test_a_run_that_goes_on_is_checked_in_its_journal(tmp_path: Path) -> None:
    with records.RunWriter.create(tmp_path / "RUN", INFO, make_trace(tmp_path)) as writer:
        writer.append_entry(records.JobEntry(JOB, (held(2, 21), *GOOD[1:])))
    with pytest.raises(InputError, match=r"jobs\.journal: column from_s of job 101"):
        records.load_run(tmp_path / "RUN")


@pytest.mark.slow
def test_the_one_wrong_row_of_a_million_is_found() -> None:
    jobs, attempts = 200_000, 5
    number = np.repeat(np.arange(jobs), attempts)
    turn = np.tile(np.arange(attempts), jobs)
    texts = pl.Series(["0-3", "0", "1-2"]).gather(pl.Series(number % 3))
    place = pl.DataFrame({"node": pl.Series(["n1", "n2"]).gather(pl.Series(turn % 2)), "cores": texts})
    rows = pl.DataFrame(
        {
            "job": number,
            "from_s": turn * 10.0 + number % 7,
            "to_s": turn * 10.0 + 3 + number % 7,
            "placement": place.to_struct("placement").reshape((len(number), 1)).arr.to_list(),
            "why": pl.Series(["start", "requeue"]).gather(pl.Series(np.minimum(turn, 1))),
            "setup_s": pl.Series([None], dtype=pl.Float64).new_from_index(0, len(number)),
            "wasted_s": pl.Series([None], dtype=pl.Float64).new_from_index(0, len(number)),
        }
    )
    last = rows.filter(pl.Series(turn == attempts - 1))
    table = pl.DataFrame({"job_id": last["job"], "submit_s": 0.0, "start_s": last["from_s"], "end_s": 60.0})
    table = table.with_columns(last["placement"], trace_job=pl.col("job_id"))
    check_agreement(table, rows, INFO, "a", "j")
    late = rows.with_columns(
        pl.when(pl.int_range(pl.len()) == 777_777).then(12.0).otherwise("from_s").alias("from_s")
    )
    with pytest.raises(InputError, match=r"from_s of job 155555: 12\.0 is before the end"):
        check_agreement(table, late, INFO, "a", "j")
