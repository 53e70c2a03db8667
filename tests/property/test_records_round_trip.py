from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import InputError
from foundation.id_list import write_ids
from foundation.records import (
    JOBS,
    JobEntry,
    JobJournal,
    JobRecord,
    Placement,
    job_frames,
    parse_cores,
)
from foundation.records.record_checks import check_record, check_table
from foundation.records.table_files import frame_of, read_table, rows_of, write_table
from tests.fixtures.tier import examples

seconds = st.none() | st.floats(-1, 1e9) | st.sampled_from([0.0, float("nan"), float("inf")])
core_ids = st.frozensets(st.integers(0, 4000), min_size=1, max_size=20).map(lambda ids: tuple(sorted(ids)))
placements = st.none() | st.lists(
    st.builds(Placement, st.sampled_from(["a", "b", "node-3", "ü"]), core_ids), max_size=3
).map(tuple)
jobs = st.builds(
    JobRecord,
    job_id=st.none() | st.integers(-1, 2**40),
    trace_job=st.integers(0, 50),
    kind=st.sampled_from(["batch", "interactive", "ondemand"]),
    app=st.none() | st.text(max_size=5),
    nodes=st.integers(0, 3),
    cores=st.integers(1, 10**6),
    due_s=st.floats(0, 1e9),
    submit_s=seconds,
    start_s=seconds,
    end_s=seconds,
    placement=placements,
    state=st.sampled_from(["COMPLETED", "REFUSED", "LOST", "CANCELLED"]),
    min_nodes=st.none() | st.integers(1, 3),
    max_nodes=st.none() | st.integers(1, 3),
)


@st.composite
def sound_jobs(draw: st.DrawFn) -> JobRecord:
    """Draw a job that obeys every rule."""
    submit_s, start_s, end_s = sorted(draw(st.lists(st.floats(0, 1e9), min_size=3, max_size=3)))
    state = draw(st.sampled_from(["COMPLETED", "REFUSED", "LOST", None]))
    nodes = draw(st.lists(st.sampled_from(["a", "b", "node-3", "ü"]), min_size=1, unique=True))
    placement = tuple(Placement(node, draw(core_ids)) for node in nodes)
    return msgspec.structs.replace(
        draw(jobs),
        job_id=draw(st.none() | st.integers(0, 2**40)),
        nodes=draw(st.integers(1, 5)),
        submit_s=submit_s,
        start_s=None if state == "REFUSED" else start_s,
        end_s=None if state == "REFUSED" else end_s,
        state=state,
        placement=draw(st.sampled_from([None, placement])),
        min_nodes=1,
    )


def valid(row: JobRecord) -> bool:
    try:
        check_record(row, "f")
    except InputError:
        return False
    return True


@given(core_ids)
def test_core_ids_survive_their_notation(ids: tuple[int, ...]) -> None:
    assert parse_cores(write_ids(ids)) == ids


@given(jobs)
@examples(300)
def test_a_row_and_a_table_of_it_are_judged_alike(row: JobRecord) -> None:
    try:
        check_table(frame_of([row], JOBS), JOBS, "f")
        fine = True
    except InputError:
        fine = False
    assert fine == valid(row)


@given(st.lists(sound_jobs(), max_size=8))
@examples(50)
def test_jobs_come_back_from_journal_and_table_as_they_were(rows: list[JobRecord]) -> None:
    last = {row.trace_job: row for row in rows}
    expected = [last[key] for key in sorted(last)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        journal = JobJournal(folder / "jobs.journal")
        for row in rows:
            journal.append(JobEntry(row))
        journal.close()
        frame, _ = job_frames(folder / "jobs.journal")
        assert list(rows_of(frame, JOBS)) == expected
        write_table(frame, JOBS, folder, finished=False)
        stored = read_table(folder, JOBS, finished=False)
    assert stored is not None
    assert list(rows_of(stored, JOBS)) == expected
