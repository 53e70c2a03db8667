"""Records of runs and SWF logs come back as they were."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from foundation import records
from foundation.errors import InputError
from foundation.id_list import write_ids
from foundation.records.record_checks import check_record, check_table
from foundation.records.table_files import frame_of, read_table, write_table
from tests.fixtures.records import rows_of
from tests.fixtures.tier import examples
from workloads import swf

seconds = st.none() | st.floats(-1, 1e9) | st.sampled_from([0.0, float("nan"), float("inf")])
core_ids = st.frozensets(st.integers(0, 4000), min_size=1, max_size=20).map(lambda ids: tuple(sorted(ids)))

placements = st.none() | st.lists(
    st.builds(records.Placement, st.sampled_from(["a", "b", "node-3", "ü"]), core_ids), max_size=3
).map(tuple)

jobs = st.builds(
    records.JobRecord, job_id=st.none() | st.integers(-1, 2**40), trace_job=st.integers(0, 50),
    kind=st.sampled_from(["batch", "interactive", "ondemand"]), app=st.none() | st.text(max_size=5),
    nodes=st.integers(0, 3), cores=st.integers(1, 10**6), due_s=st.floats(0, 1e9), submit_s=seconds,
    start_s=seconds, end_s=seconds, placement=placements,
    state=st.sampled_from(["COMPLETED", "REFUSED", "LOST", "CANCELLED"]),
    min_nodes=st.none() | st.integers(1, 3), max_nodes=st.none() | st.integers(1, 3),
)  # fmt: skip


@st.composite
def sound_jobs(draw: st.DrawFn) -> records.JobRecord:
    """Draw a job that obeys every rule."""
    submit_s, start_s, end_s = sorted(draw(st.lists(st.floats(0, 1e9), min_size=3, max_size=3)))
    state = draw(st.sampled_from(["COMPLETED", "REFUSED", "LOST", None]))
    nodes = draw(st.lists(st.sampled_from(["a", "b", "node-3", "ü"]), min_size=1, unique=True))
    placement = tuple(records.Placement(node, draw(core_ids)) for node in nodes)
    return msgspec.structs.replace(
        draw(jobs), job_id=draw(st.none() | st.integers(0, 2**40)), nodes=draw(st.integers(1, 5)),
        submit_s=submit_s, start_s=None if state == "REFUSED" else start_s,
        end_s=None if state == "REFUSED" else end_s, state=state,
        placement=draw(st.sampled_from([None, placement])), min_nodes=1,
    )  # fmt: skip


def valid(row: records.JobRecord) -> bool:
    try:
        check_record(row, "f")
    except InputError:
        return False
    return True


@given(core_ids)
def test_core_ids_survive_their_notation(ids: tuple[int, ...]) -> None:
    assert records.parse_cores(write_ids(ids)) == ids


@given(jobs)
@examples(300)
def test_a_row_and_a_table_of_it_are_judged_alike(row: records.JobRecord) -> None:
    try:
        check_table(frame_of([row], records.JOBS), records.JOBS, "f")
        fine = True
    except InputError:
        fine = False
    assert fine == valid(row)


@given(st.lists(sound_jobs(), max_size=8))
@examples(50)
def test_jobs_come_back_from_journal_and_table_as_they_were(rows: list[records.JobRecord]) -> None:
    last = {row.trace_job: row for row in rows}
    expected = [last[key] for key in sorted(last)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        journal = records.JobJournal(folder / "jobs.journal")
        for row in rows:
            journal.append(records.JobEntry(row))
        journal.close()
        frame, _ = records.job_frames(folder / "jobs.journal")
        assert list(rows_of(frame, records.JOBS)) == expected
        write_table(frame, records.JOBS, folder, finished=False)
        stored = read_table(folder, records.JOBS, finished=False)
    assert stored is not None
    assert list(rows_of(stored, records.JOBS)) == expected


whole = st.integers(0, 2**53)
number = whole | st.floats(0, 2**52, allow_nan=False, allow_infinity=False)


def optional(rule_whole: bool) -> st.SearchStrategy[float | None]:
    return st.none() | (whole if rule_whole else number)


swf_jobs = st.builds(
    swf.SwfJob,
    job_number=whole,
    submit_s=number,
    **{rule.name: optional(rule.whole) for rule in swf.SWF_FIELDS if not rule.required},
    extension=st.lists(st.integers(-1, 10**6) | st.floats(0, 1e9), max_size=9).map(tuple),
)

padding = st.text(" \t", min_size=1, max_size=3)
plain_number = st.integers(-1, 10**9).map(str) | st.decimals(0, 10**6, places=2).map(str)


@st.composite
def padded_lines(draw: st.DrawFn) -> str:
    head = [str(draw(st.integers(0, 10**6))), str(draw(st.integers(0, 10**6)))]
    rest = [
        draw(plain_number if not rule.whole else st.integers(-1, 10**9).map(str))
        for rule in swf.SWF_FIELDS[2:]
    ]
    return draw(st.text(" ", max_size=3)) + "".join(part + draw(padding) for part in (*head, *rest))


comments = st.text(
    st.characters(blacklist_characters="\n\x00", blacklist_categories=["Cs"]), max_size=20
).map(lambda text: ";" + text)


@given(st.lists(swf_jobs, min_size=1, max_size=8), st.sampled_from(["t.swf", "t.swf.gz"]))
@examples(60)
def test_jobs_survive_writing_and_reading(made: list[swf.SwfJob], name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        swf.write_swf(path, swf.SwfTrace(swf.SwfHeader(), tuple(made)))
        assert swf.read_swf(path).jobs == tuple(made)
        columns = swf.load_columns(path)
    assert columns.frame.rows() == [job.values() for job in made]
    assert columns.extensions == {row: job.extension for row, job in enumerate(made) if job.extension}


@given(st.lists(comments | padded_lines(), min_size=1, max_size=12), padded_lines(), st.booleans())
@examples(100)
def test_text_of_a_well_formed_file_survives(lines: list[str], job_line: str, ends: bool) -> None:
    content = "\n".join([*lines, job_line]).encode() + (b"\n" if ends else b"")
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "t.swf").write_bytes(content)
        trace = swf.read_swf(path)
        columns = swf.load_columns(path)
    assert b"".join(swf.swf_lines(trace.header, trace.jobs)) == content
    assert columns.frame.rows() == [job.values() for job in trace.jobs]
    assert columns.header == trace.header


@given(st.binary(max_size=300) | st.text("0123456789-. e\n;\t", max_size=300).map(str.encode))
@examples(200)
def test_any_bytes_are_read_alike_or_refused_alike(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "t.swf").write_bytes(content)
        for strict in (True, False):
            outcomes = []
            for read in (swf.read_swf, swf.load_columns):
                try:
                    outcomes.append(str(read(path, strict).report))
                except InputError as error:
                    outcomes.append(str(error))
            assert outcomes[0] == outcomes[1]


@given(
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=20),
)
def test_pattern_survives_its_columns(prologue_s: int, epilogue_s: int, pairs: list[tuple[int, int]]) -> None:
    busy = tuple(busy_s for busy_s, _ in pairs)
    idle = tuple(idle_s for _, idle_s in pairs[1:])
    pattern = swf.InteractivePattern(prologue_s, epilogue_s, busy, idle)
    assert swf.InteractivePattern.from_extension(pattern.to_extension()) == pattern
    assert sum(pattern.periods_s) == pattern.total_s == pattern.busy_s + pattern.idle_s
    assert sum(pattern.periods_s[1::2]) == pattern.busy_s


def test_lines_can_be_streamed_without_a_file() -> None:
    stream = io.BytesIO(b"".join(swf.swf_lines(swf.SwfHeader(), [swf.SwfJob(1, 0), swf.SwfJob(2, 1)])))
    assert len(stream.readlines()) == 2
