from __future__ import annotations

import io
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import InputError
from tests.fixtures.tier import examples
from workloads.swf import (
    SWF_FIELDS,
    InteractivePattern,
    SwfHeader,
    SwfJob,
    SwfTrace,
    load_columns,
    read_swf,
    swf_lines,
    write_swf,
)

whole = st.integers(0, 2**53)
number = whole | st.floats(0, 2**52, allow_nan=False, allow_infinity=False)


def optional(rule_whole: bool) -> st.SearchStrategy[float | None]:
    return st.none() | (whole if rule_whole else number)


jobs = st.builds(
    SwfJob,
    job_number=whole,
    submit_s=number,
    **{rule.name: optional(rule.whole) for rule in SWF_FIELDS if not rule.required},
    extension=st.lists(st.integers(-1, 10**6) | st.floats(0, 1e9), max_size=9).map(tuple),
)

padding = st.text(" \t", min_size=1, max_size=3)
plain_number = st.integers(-1, 10**9).map(str) | st.decimals(0, 10**6, places=2).map(str)


@st.composite
def padded_lines(draw: st.DrawFn) -> str:
    head = [str(draw(st.integers(0, 10**6))), str(draw(st.integers(0, 10**6)))]
    rest = [
        draw(plain_number if not rule.whole else st.integers(-1, 10**9).map(str)) for rule in SWF_FIELDS[2:]
    ]
    return draw(st.text(" ", max_size=3)) + "".join(part + draw(padding) for part in (*head, *rest))


comments = st.text(
    st.characters(blacklist_characters="\n\x00", blacklist_categories=["Cs"]), max_size=20
).map(lambda text: ";" + text)


@given(st.lists(jobs, min_size=1, max_size=8), st.sampled_from(["t.swf", "t.swf.gz"]))
@examples(60)
def test_jobs_survive_writing_and_reading(made: list[SwfJob], name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write_swf(path, SwfTrace(SwfHeader(), tuple(made)))
        assert read_swf(path).jobs == tuple(made)
        columns = load_columns(path)
    assert columns.frame.rows() == [job.values() for job in made]
    assert columns.extensions == {row: job.extension for row, job in enumerate(made) if job.extension}


@given(st.lists(comments | padded_lines(), min_size=1, max_size=12), padded_lines(), st.booleans())
@examples(100)
def test_text_of_a_well_formed_file_survives(lines: list[str], job_line: str, ends: bool) -> None:
    content = "\n".join([*lines, job_line]).encode() + (b"\n" if ends else b"")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.swf"
        path.write_bytes(content)
        trace = read_swf(path)
        columns = load_columns(path)
    assert b"".join(swf_lines(trace.header, trace.jobs)) == content
    assert columns.frame.rows() == [job.values() for job in trace.jobs]
    assert columns.header == trace.header


@given(st.binary(max_size=300) | st.text("0123456789-. e\n;\t", max_size=300).map(str.encode))
@examples(200)
def test_any_bytes_are_read_alike_or_refused_alike(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.swf"
        path.write_bytes(content)
        for strict in (True, False):
            outcomes = []
            for read in (read_swf, load_columns):
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
    pattern = InteractivePattern(prologue_s, epilogue_s, busy, idle)
    assert InteractivePattern.from_extension(pattern.to_extension()) == pattern
    assert sum(pattern.periods_s) == pattern.total_s == pattern.busy_s + pattern.idle_s
    assert sum(pattern.periods_s[1::2]) == pattern.busy_s


def test_lines_can_be_streamed_without_a_file() -> None:
    stream = io.BytesIO(b"".join(swf_lines(SwfHeader(), [SwfJob(1, 0), SwfJob(2, 1)])))
    assert len(stream.readlines()) == 2
