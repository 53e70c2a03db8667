"""Other simulators' files with anything in them: read, or refused in one line that names the file."""

from __future__ import annotations

import copy
import csv
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.exchange import BATSIM, CSV, ELASTISIM, MODEL, Said, osub
from tests.fixtures.tier import examples
from workloads.exchange.fields import Machines
from workloads.exchange.simgrid_platform import batsim_platform
from workloads.swf import read_swf

ODD: list[Any] = [
    None, True, -1, 0, 1, 1.5, -0.0, 2**53, 2**53 + 1, 10**400, 1e308, float("nan"), float("inf"),
    "", "1", "a,b", 'q"', "two\nlines", "\r\x00\x1b[31m", "\ud800", "nan", "../../etc/passwd",
    "9^9^9^9", "x" * 65_536, [], [1], {}, {"a": 1}, [[[[[[]]]]]],
]  # fmt: skip
odd = st.sampled_from(ODD)
texts = st.sampled_from(
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
            inside[draw(texts)] = inside.pop(last)
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
        row[data.draw(st.integers(0, len(row) - 1))] = data.draw(texts)
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
