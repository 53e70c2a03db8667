from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import run

import numpy as np
import polars as pl
import pytest

from foundation import records
from foundation.errors import InputError
from foundation.records import ALLOCATIONS, JOBS, SLICES, AllocationRecord, JobRecord, Placement, SliceRecord
from foundation.records.columns import TABLES, Row, columns_of
from foundation.records.record_checks import check_agreement, check_record, check_table
from foundation.records.reference import GROUPS, reference
from foundation.records.row_types import AllocationCause, GangSettings, HostInfo, RunInfo
from foundation.records.table_files import complete, frame_of, write_table
from tests.fixtures.records import make_ended, make_info, make_job, make_trace

BROKEN: list[tuple[str, Mapping[str, object], str]] = [
    ("below one", {"nodes": 0}, "nodes"),
    ("a magic number", {"start_s": -1.0}, "start_s"),
    ("not a number", {"end_s": float("nan")}, "end_s"),
    ("endless", {"end_s": float("inf")}, "end_s"),
    ("start before submission", {"submit_s": 5.0, "start_s": 4.0}, "start_s"),
    ("end before start", {"start_s": 2.0, "end_s": 1.5}, "end_s"),
    ("cancelled before submission", {"start_s": None, "end_s": 0.1, "state": "CANCELLED"}, "end_s"),
    ("completed without an end", {"end_s": None}, "end_s"),
    ("refused with a start", {"state": "REFUSED"}, "start_s"),
    ("an unknown state", {"state": "DONE"}, "state"),
    ("an unknown kind", {"kind": "normal"}, "kind"),
    ("an empty placement", {"placement": ()}, "placement"),
    ("a node twice", {"placement": (Placement("n1", (0,)), Placement("n1", (1,)))}, "placement"),
    ("a node without cores", {"placement": (Placement("n1", ()),)}, "placement"),
    ("a node without a name", {"placement": (Placement("", (0,)),)}, "placement"),
    ("malleable the wrong way round", {"min_nodes": 4, "max_nodes": 2}, "max_nodes"),
    ("preferring too little", {"min_nodes": 4, "preferred_nodes": 2}, "preferred_nodes"),
]
IDS = [name for name, _, _ in BROKEN]


@pytest.mark.parametrize(("fields", "column"), [case[1:] for case in BROKEN], ids=IDS)
def test_a_broken_row_is_refused_by_file_column_and_job(fields: Mapping[str, object], column: str) -> None:
    with pytest.raises(InputError, match=r"^jobs\.journal.*trace_job 5.*") as caught:
        check_record(make_ended(5, **fields), "jobs.journal")
    assert column in str(caught.value)


@pytest.mark.parametrize(("fields", "column"), [case[1:] for case in BROKEN], ids=IDS)
def test_a_table_with_the_same_fault_is_refused_too(fields: Mapping[str, object], column: str) -> None:
    frame = frame_of([make_ended(4), make_ended(5, **fields), make_ended(6)], JOBS)
    with pytest.raises(InputError, match=rf"^jobs\.parquet: column {column}"):
        check_table(frame, JOBS, "jobs.parquet")


def test_the_message_names_the_first_row_and_counts_the_others() -> None:
    frame = frame_of([make_ended(job, nodes=0 if job > 2 else 1) for job in range(1, 6)], JOBS)
    with pytest.raises(InputError, match=r"column nodes of trace_job 3: 0 is below 1 \(and 2 more\)"):
        check_table(frame, JOBS, "f")


@pytest.mark.parametrize(
    "row",
    [
        JobRecord(trace_job=1, kind="batch", nodes="2", cores=1, due_s=0.0),  # type: ignore[arg-type]
        JobRecord(trace_job=1, kind="batch", nodes=2.5, cores=1, due_s=0.0),  # type: ignore[arg-type]
        JobRecord(trace_job=1, kind="batch", nodes=2, cores=1, due_s=None),  # type: ignore[arg-type]
        JobRecord(trace_job=1, kind="batch", nodes=np.int64(2), cores=1, due_s=0.0),  # type: ignore[arg-type]
        AllocationRecord(job=1, from_s=3, to_s=2, placement=(Placement("a", (1,)),), why="start"),
        AllocationRecord(job=1, from_s=3, placement=(Placement("a", (2, 1)),), why="start"),
        AllocationRecord(job=1, from_s=3, placement=(Placement("a", (-1, 1)),), why="start"),
        SliceRecord(slice=0, start_s=0, length_s=0, job=1, node="a", role="run"),
        SliceRecord(slice=0, start_s=0, length_s=1, job=1, node="", role="run"),
        SliceRecord(slice=0, start_s=0, length_s=1, job=1, node="a", role="runs"),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_and_values_are_refused(row: Row) -> None:
    with pytest.raises(InputError):
        check_record(row, "f")


def test_whole_seconds_become_floats() -> None:
    assert isinstance(check_record(make_ended(start_s=1, end_s=2), "f").end_s, float)


def test_skew_may_be_negative() -> None:
    row = SliceRecord(slice=0, start_s=0, length_s=1, job=1, node="a", role="held", skew_us=-12.5)
    assert check_record(row, "f").skew_us == -12.5


def test_an_unfinished_table_may_lack_states_and_a_finished_one_may_not() -> None:
    frame = frame_of([make_job(1)], JOBS)
    check_table(frame, JOBS, "f", finished=False)
    with pytest.raises(InputError, match="column state of trace_job 1: None is null"):
        check_table(frame, JOBS, "f")


def test_columns_are_exactly_the_known_ones() -> None:
    frame = frame_of([make_ended()], JOBS)
    with pytest.raises(InputError, match="unknown column wait_s; known columns are job_id"):
        check_table(frame.with_columns(wait_s=1.0), JOBS, "f")
    with pytest.raises(InputError, match="column cpu_s is missing"):
        check_table(frame.drop("cpu_s"), JOBS, "f")
    with pytest.raises(InputError, match="column nodes has type Int32, not Int64"):
        check_table(frame.with_columns(pl.col("nodes").cast(pl.Int32)), JOBS, "f")


def test_a_job_number_occurs_once() -> None:
    with pytest.raises(InputError, match="column trace_job of trace_job 2: 2 occurs twice"):
        check_table(frame_of([make_ended(1), make_ended(2), make_ended(2)], JOBS), JOBS, "f")


@pytest.mark.parametrize("cores", ["", "3-1", "1,1", "a", "0-", "01", "1,-2", None])
def test_core_ids_are_in_slurms_notation(cores: str | None) -> None:
    frame = frame_of([make_ended()], JOBS).with_columns(
        pl.Series("placement", [[{"node": "n", "cores": cores}]], dtype=JOBS.schema["placement"])
    )
    with pytest.raises(InputError, match="column placement"):
        check_table(frame, JOBS, "f")


def test_columns_that_may_be_absent_are_filled_in_and_nothing_else() -> None:
    frame = pl.DataFrame({"trace_job": [1], "kind": ["batch"], "nodes": [1], "cores": [1], "due_s": [0.0]})
    full = complete(frame, JOBS, "f")
    assert (full.schema, full.row(0, named=True)["elasticity"]) == (JOBS.schema, "rigid")
    with pytest.raises(InputError, match="column cores is missing"):
        complete(frame.drop("cores"), JOBS, "f")
    with pytest.raises(InputError, match="unknown column core"):
        complete(frame.rename({"cores": "core"}), JOBS, "f")


def test_narrow_numbers_and_categories_are_accepted_on_write() -> None:
    frame = pl.DataFrame(
        {
            "slice": np.arange(2, dtype=np.uint8),
            "start_s": [0.0, 0.25],
            "length_s": [0.25, 0.25],
            "job": np.ones(2, dtype=np.int32),
            "node": pl.Series(["a", "b"], dtype=pl.Categorical),
            "role": pl.Series(["run", "held"], dtype=pl.Enum(["run", "held"])),
            "cpu_s": [None, None],
        }
    )
    full = complete(frame, SLICES, "f")
    check_table(full, SLICES, "f")
    assert full["node"].to_list() == ["a", "b"]


def test_every_table_accepts_its_own_empty_frame() -> None:
    for table in (JOBS, ALLOCATIONS, SLICES):
        check_table(frame_of([], table), table, "f")


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


DOCUMENT = Path(__file__).parents[4] / "docs" / "records.md"


def test_the_record_reference_says_what_the_code_says() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == reference(), (
        "python -m foundation.records.reference > docs/records.md"
    )


def test_every_column_and_field_has_a_meaning() -> None:
    described = [column for table in TABLES for column in table.columns]
    described += [column for struct in (RunInfo, GangSettings, HostInfo) for column in columns_of(struct)]
    assert [column.name for column in described if not column.meaning] == []


def test_reading_records_does_not_load_the_charts() -> None:
    program = "import sys, foundation.records; sys.exit('plotly' in sys.modules or 'jinja2' in sys.modules)"
    assert run([sys.executable, "-c", program], check=False).returncode == 0


def test_every_heading_of_the_long_table_begins_with_its_column() -> None:
    text = reference()
    for column, title in GROUPS.items():
        _, _, rows = text.partition(f"### {title}\n\n| column |")
        assert rows.splitlines()[2].startswith(f"| `{column}` |")
