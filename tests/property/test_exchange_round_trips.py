"""What goes to another simulator's format comes back as it was, whatever is in it."""

from __future__ import annotations

import copy
import csv
import io
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foundation.errors import InputError
from foundation.records import JOBS, JobRecord, JobState, Placement, load_run, write_run
from foundation.records.record_checks import check_record
from foundation.records.table_files import frame_of
from tests.fixtures.exchange import BATSIM, CSV, ELASTISIM, MODEL, Said, osub
from tests.fixtures.records import make_info, make_trace, rows_of
from tests.fixtures.tier import examples
from workloads.exchange import json_stream
from workloads.exchange.elastisim.application_model import evaluate
from workloads.exchange.fields import Machines, Unit
from workloads.exchange.jobs_csv.jobs_csv_write import format_intervals, parse_intervals
from workloads.exchange.simgrid_platform import batsim_platform, elastisim_platform, read_platform
from workloads.exchange.sizes import JobSizes, read_job_sizes, sizes_pieces
from workloads.swf import SWF_FIELDS, SwfComment, SwfHeader, SwfJob, SwfTrace, read_swf, write_swf

NODES, CORES = 7, 5
whole = st.integers(0, 2**53)
number = whole | st.floats(0, 2**52, allow_nan=False, allow_infinity=False)
procs = st.integers(1, NODES * CORES)
FREE = [rule for rule in SWF_FIELDS if rule.number not in (1, 2, 4, 5, 8)]

swf_jobs = st.builds(
    SwfJob,
    job_number=whole,
    submit_s=number,
    run_s=st.floats(1e-6, 2**52) | st.integers(1, 2**52),
    requested_procs=st.none() | procs | st.just(0),
    allocated_procs=procs,
    **{rule.name: st.none() | (whole if rule.whole else number) for rule in FREE},
    extension=st.lists(st.integers(-1, 10**6) | st.floats(0, 1e9), max_size=9).map(tuple),
)
traces = st.lists(swf_jobs, min_size=1, max_size=6, unique_by=lambda job: job.job_number)
comments = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), max_size=20).map(
    lambda text: SwfComment(f"; {text}\n".encode())
)
machines = st.builds(Machines, st.integers(1, 10_000), st.integers(1, 500), st.sampled_from(Unit))


def through(folder: Path, made: Sequence[SwfJob], form: str, *words: object) -> tuple[SwfJob, ...]:
    """Write jobs as a trace, export and import them, and return what came back."""
    source, middle, back = folder / "t.swf", folder / "middle", folder / "back.swf"
    write_swf(source, SwfTrace(SwfHeader(), tuple(made)))
    system = f"N{NODES}C{CORES}"
    said = osub("trace", "export", source, "--format", form, "--out", middle, "--system", system, *words)
    assert said.code == 0, said.err
    said = osub("trace", "import", middle, "--format", form, "--out", back)
    assert said.code == 0, said.err
    return read_swf(back).jobs


@given(traces, st.sampled_from(Unit))
@examples(25)
def test_a_trace_survives_batsim(made: list[SwfJob], unit: Unit) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert through(Path(folder), made, "batsim", "--unit", unit) == tuple(made)


@given(traces)
@examples(25)
def test_a_trace_survives_elastisim(made: list[SwfJob]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert through(Path(folder), made, "elastisim") == tuple(made)


@given(st.data(), traces)
@examples(15)
def test_sizes_of_malleable_jobs_survive_elastisim(data: st.DataObject, made: list[SwfJob]) -> None:
    sizes: dict[int, JobSizes] = {}
    for job in made:
        nodes = -(-(job.procs or 0) // CORES)
        least, most = data.draw(st.integers(1, nodes)), data.draw(st.integers(nodes, NODES))
        parallel = data.draw(st.floats(0, 1) | st.sampled_from([0.0, 1.0]))
        if data.draw(st.booleans()):
            sizes[job.job_number] = JobSizes(least, data.draw(st.integers(least, most)), most, parallel)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sizes.csv").write_bytes(b"".join(sizes_pieces(sizes.items())))
        assert through(folder, made, "elastisim", "--sizes", folder / "sizes.csv") == tuple(made)
        words = ("--format", "elastisim", "--out", folder / "again.swf", "--sizes", folder / "back.csv")
        assert osub("trace", "import", folder / "middle", *words).code == 0
        assert read_job_sizes(folder / "back.csv") == sizes


@given(traces, st.lists(comments, max_size=5))
@examples(10)
def test_a_header_survives_batsim(made: list[SwfJob], head: list[SwfComment]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_swf(folder / "t.swf", SwfTrace(SwfHeader(tuple(head)), tuple(made)))
        words = ("--format", "batsim", "--out", folder / "w", "--system", f"N{NODES}C{CORES}")
        assert osub("trace", "export", folder / "t.swf", *words).code == 0
        said = osub("trace", "import", folder / "w", "--format", "batsim", "--out", folder / "b.swf")
        assert said.code == 0, said.err
        kept = [comment.raw for comment in read_swf(folder / "b.swf").header.comments]
    fields = (b"; MaxJobs", b"; MaxRecords")
    assert [one.raw for one in head if not one.raw.startswith(fields)] == [
        raw for raw in kept if raw in {one.raw for one in head}
    ]


@given(machines)
@examples(60)
def test_a_system_survives_its_platform(made: Machines) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "p.xml").write_text(batsim_platform(made))
        assert read_platform(path) == made
        nodes = Machines(made.nodes, made.cores, Unit.NODE)
        path.write_text(elastisim_platform(nodes))
        assert read_platform(path) == nodes


@given(st.frozensets(st.integers(0, 60), max_size=40))
@examples(100)
def test_sets_of_hosts_survive_their_notation(hosts: frozenset[int]) -> None:
    text = format_intervals((host, host) for host in sorted(hosts))
    found = parse_intervals(text)
    assert {host for first, last in found for host in range(first, last + 1)} == hosts
    assert format_intervals(found) == text
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ['a,"b"', "two\nlines", "\r", "nan", ", ,", "x" * 70_000]
)
seconds = st.floats(0, 1e9)
NAMES = [f"n{place + 1}" for place in range(NODES)]
STATES = get_args(JobState)
OTHERS = ["a", "b,c", "node-3", "ü", 'd"', "e f", "n1"]


@st.composite
def run_jobs(draw: st.DrawFn) -> JobRecord:
    """Draw a job that a RUN may have."""
    submit_s, start_s, end_s = sorted(draw(st.lists(seconds, min_size=3, max_size=3)))
    state = draw(st.sampled_from(STATES))
    ran = state != "REFUSED" and (state == "COMPLETED" or draw(st.booleans()))
    cores = st.frozensets(st.integers(0, CORES - 1), min_size=1).map(lambda ids: tuple(sorted(ids)))
    places = draw(st.lists(st.integers(0, NODES - 1), min_size=1, unique=True).map(sorted)) if ran else []
    return JobRecord(
        trace_job=draw(st.integers(0, 2**53)),
        job_id=draw(st.none() | st.integers(0, 2**53)),
        kind=draw(st.sampled_from(["batch", "interactive", "ondemand"])),
        app=draw(st.none() | texts),
        args=draw(st.none() | texts),
        user=draw(st.none() | texts),
        nodes=draw(st.integers(1, 9)),
        cores=draw(st.integers(1, 10**6)),
        due_s=draw(st.just(submit_s) | seconds),
        submit_s=submit_s,
        start_s=start_s if ran else None,
        end_s=end_s if ran else None,
        requested_s=draw(st.none() | seconds),
        dedicated_s=draw(st.none() | seconds),
        cpu_s=draw(st.none() | seconds),
        exit_code=draw(st.none() | st.integers(0, 255)),
        preemptions=draw(st.integers(0, 3)),
        state=state,
        placement=tuple(Placement(str(place), draw(cores)) for place in places) or None,
    )


@given(
    st.lists(run_jobs(), min_size=1, max_size=5, unique_by=lambda job: job.trace_job), st.booleans(), texts
)
@examples(20)
def test_a_run_survives_its_jobs_csv(made: list[JobRecord], plain: bool, trace_name: str) -> None:
    names = NAMES if plain else OTHERS
    jobs = sorted((_named(job, names) for job in made), key=lambda job: job.trace_job)
    assume(trace_name)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        info = make_info(
            system=f"N{NODES}C{CORES}", node_names=tuple(names), trace_name=trace_name, wall_s=1.0
        )
        write_run(folder / "r", info, make_trace(folder), frame_of(jobs, JOBS))
        said = osub("trace", "export", folder / "r", "--format", "evalys", "--out", folder / "jobs.csv")
        assert said.code == 0, said.err
        words = ("--format", "evalys", "--out", folder / "back", "--system", f"N{NODES}C{CORES}")
        said = osub("trace", "import", folder / "jobs.csv", *words)
        assert said.code == 0, said.err
        assert list(rows_of(load_run(folder / "back").jobs, JOBS)) == jobs
        assert (folder / "back/jobs.parquet").read_bytes() == (folder / "r/jobs.parquet").read_bytes()


def _named(job: JobRecord, names: Sequence[str]) -> JobRecord:
    placement = tuple(Placement(names[int(one.node)], one.cores) for one in job.placement or ())
    return check_record(msgspec.structs.replace(job, placement=placement or None), "test")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.dictionaries(st.text(max_size=4), json_values, max_size=4),
    st.lists(json_values, max_size=5),
    st.dictionaries(st.text(max_size=4), json_values, max_size=4),
    st.integers(1, 9),
    st.sampled_from([None, 0, 3]),
)
@examples(80)
def test_a_document_is_read_in_pieces_of_any_size(
    rest: dict[str, Any], items: list[Any], pairs: dict[str, Any], piece: int, indent: int | None
) -> None:
    whole_document = {"items": items} | {f"r{key}": value for key, value in rest.items()} | {"pairs": pairs}
    text = json.dumps(whole_document, ensure_ascii=bool(piece % 2), indent=indent)
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(json_stream, "PIECE", piece):
        (path := Path(folder) / "d.json").write_text(text, encoding="utf-8")
        found = list(json_stream.members(path, {"items": "[", "pairs": "{"}))
    assert [value for key, value in found if key == "items"] == items
    assert dict(value for key, value in found if key == "pairs") == pairs
    assert {key: value for key, value in found if key[:1] == "r"} == {f"r{key}": rest[key] for key in rest}


@given(
    st.text(max_size=60)
    | st.sampled_from(
        [
            '{"jobs": [1, ',
            '{"jobs": [NaN]}',
            '{"a": 1, "a": 2}',
            '{"a": {"b": 1, "b": 1}}',
            "[" * 5_000,
            '{"a": ' + "[" * 100_000,
        ]
    )
)
@examples(80)
def test_what_is_no_document_is_one_line(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "d.json").write_text(text, encoding="utf-8", errors="replace")
        said = refusal(path)
        assert said is not None or isinstance(json.loads(text), dict)
        assert said is None or (str(path) in said and "\n" not in said)


def refusal(path: Path) -> str | None:
    try:
        list(json_stream.members(path, {"jobs": "["}))
    except InputError as error:
        return str(error)
    return None


@given(st.floats(-1e6, 1e6), st.floats(0.1, 1e6))
@examples(50)
def test_formulas_mean_what_they_say(a: float, n: float) -> None:
    names = {"a": a, "num_nodes": n}
    assert evaluate("a * (1 - 0.25 + 0.25/num_nodes)", names) == a * (1 - 0.25 + 0.25 / n)
    assert evaluate("-a + max(a, num_nodes)^2", names) == -a + math.pow(max(a, n), 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a +",
        "b",
        "9^9^9^9",
        "a.b",
        "[1]",
        "lambda: 1",
        "1/0",
        "open('x')",
        "1 if a else 2",
        "x" * 2_000,
        "True",
    ],
)
def test_what_is_no_formula_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S") as caught:
        evaluate(text, {"a": 1.0})
    assert "\n" not in str(caught.value)


ODD: list[Any] = [
    None, True, -1, 0, 1, 1.5, -0.0, 2**53, 2**53 + 1, 10**400, 1e308, float("nan"), float("inf"),
    "", "1", "a,b", 'q"', "two\nlines", "\r\x00\x1b[31m", "\ud800", "nan", "../../etc/passwd",
    "9^9^9^9", "x" * 65_536, [], [1], {}, {"a": 1}, [[[[[[]]]]]],
]  # fmt: skip
odd = st.sampled_from(ODD)
odd_texts = st.sampled_from(
    [value for value in ODD if isinstance(value, str) and value != "\ud800"]
) | st.sampled_from(
    ["-1", "inf", "1e400", "0-3 2", "5-1", "0-99999999999", "-0", '{"osub":{"state":null}}', '{"osub":[]}']
)


def places(document: Any, *before: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value of a document."""
    pairs = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in pairs:
        yield (*before, key)
        if isinstance(value, dict | list):
            yield from places(value, *before, key)


@st.composite
def spoilt(draw: st.DrawFn, documents: list[Any]) -> list[Any]:
    """Draw documents of which one to three values, or keys, are others."""
    made = copy.deepcopy(documents)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(list(places(made))))
        inside = made
        for key in way:
            inside = inside[key]
        if draw(st.booleans()) or not isinstance(inside, dict):
            inside[last] = copy.deepcopy(draw(odd))
        else:
            inside[draw(odd_texts)] = inside.pop(last)
    return made


def judge(said: Said, path: Path, out: Path, before: set[Path]) -> None:
    """Fail unless the file was read whole, or refused in one line with nothing left."""
    if said.code == 0:
        assert read_swf(out).jobs
        return
    assert said.code == 1
    assert said.err.startswith((f"osub: {path}", f"osub: trace {path} is a"))
    assert said.err.count("\n") == 1
    assert said.err.rstrip("\n").isprintable()
    assert len(said.err) < 1_000
    assert set(path.parent.iterdir()) == before


@given(spoilt([BATSIM]), st.booleans())
@examples(60)
def test_any_workload_of_batsim_is_read_or_refused(documents: list[Any], lenient: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "w.json", Path(folder) / "o.swf"
        path.write_text(json.dumps(documents[0]))
        words = ["--lenient"] if lenient else []
        said = osub("trace", "import", path, "--format", "batsim", "--out", out, *words)
        judge(said, path, out, {path})


@given(spoilt([ELASTISIM, MODEL]), st.booleans())
@examples(60)
def test_any_jobs_of_elastisim_are_read_or_refused(documents: list[Any], lenient: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, model, out = (Path(folder) / name for name in ("jobs.json", "model.json", "o.swf"))
        path.write_text(json.dumps(documents[0]))
        model.write_text(json.dumps(documents[1]))
        words = ["--lenient"] if lenient else []
        said = osub("trace", "import", path, "--format", "elastisim", "--out", out, *words)
        judge(said, path, out, {path, model})


@given(st.data(), st.integers(1, 3))
@examples(40)
def test_any_table_is_read_or_refused(data: st.DataObject, count: int) -> None:
    rows = list(csv.reader(io.StringIO(CSV)))
    for _ in range(count):
        row = data.draw(st.sampled_from(rows))
        row[data.draw(st.integers(0, len(row) - 1))] = data.draw(odd_texts)
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "jobs.csv", Path(folder) / "r"
        with path.open("w", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
        said = osub("trace", "import", path, "--format", "evalys", "--out", out, "--system", "N2C4")
        judge(said, path, out / "trace.swf.gz", {path})


@given(
    st.binary(max_size=60),
    st.integers(0, 900),
    st.sampled_from(["batsim", "elastisim", "evalys", "platform"]),
)
@examples(40)
def test_any_bytes_are_read_or_refused(noise: bytes, at: int, form: str) -> None:
    whole = {
        "batsim": json.dumps(BATSIM).encode(),
        "elastisim": json.dumps(ELASTISIM).encode(),
        "evalys": CSV.encode(),
        "platform": batsim_platform(Machines(2, 4)).encode(),
    }[form]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, out, workload = folder / "f", folder / "o", folder / "w.json"
        path.write_bytes(whole[:at] + noise + whole[at + len(noise) // 2 :])
        workload.write_text(json.dumps(BATSIM))
        (folder / "model.json").write_text(json.dumps(MODEL))
        before = set(folder.iterdir())
        words = ["--format", "batsim" if form == "platform" else form, "--out", out]
        words += (
            ["--platform", path] if form == "platform" else ["--system", "N2C4"] if form == "evalys" else []
        )
        said = osub("trace", "import", workload if form == "platform" else path, *words)
        if said.code and said.err.startswith(f"osub: {workload}: nb_res"):
            return
        judge(said, path, out / "trace.swf.gz" if form == "evalys" else out, before)
