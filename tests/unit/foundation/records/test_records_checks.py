from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
import pytest

from foundation.errors import InputError
from foundation.records import ALLOCATIONS, JOBS, SLICES, AllocationRecord, JobRecord, Placement, SliceRecord
from foundation.records.columns import Row
from foundation.records.record_checks import check_record, check_table
from foundation.records.table_files import complete, frame_of
from tests.fixtures.records import make_ended, make_job

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
