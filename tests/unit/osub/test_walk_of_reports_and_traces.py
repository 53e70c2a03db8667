"""What somebody stumbled over in reports, comparisons, studies and logs of others: each stumble "
"stays mended."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import osub
from foundation.errors import UsageError
from foundation.units import counted, counted_of, verb
from osub.cli.main import run
from tests.fixtures.complaint import said

HEADING = "JobID|JobName|State|Submit|Start|End|NCPUS"
ROW = "{0}|solve|COMPLETED|2024-01-01T00:00:0{0}|2024-01-01T00:00:09|2024-01-01T00:01:09|1"
LINE = "{0} {1} -1 {2} 1 -1 -1 1 200000 -1 1 1 1 -1 1 -1 -1 -1\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OSUB_JIT", "0")
    (tmp_path / "t.swf").write_text("".join(LINE.format(one, one, 100) for one in range(1, 9)))
    (tmp_path / "other.swf").write_text(
        "".join(LINE.format(one, 977 * one, 7000 * one) for one in range(1, 9))
    )
    return tmp_path


def simulated(name: str, trace: str = "t.swf", *words: str) -> None:
    assert run(["simulate", trace, "--system", "N2C1", "--out", name, *words]) == 0


def test_one_is_no_plural() -> None:
    assert [counted(number, "job") for number in (0, 1, 1200)] == ["0 jobs", "1 job", "1,200 jobs"]
    assert counted(2, "process") == "2 processes"
    assert counted_of(1, 1, "job") == "1 of 1 job"
    assert counted_of(1, 2000, "job") == "1 of 2,000 jobs"
    assert [verb(1), verb(2), verb(1, "has", "have")] == ["is", "are", "has"]


def test_runs_of_different_traces_are_no_comparison(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers of jobs agree by chance; a verdict on them would be one on nothing."""
    simulated("a")
    simulated("b", "other.swf", "--multiplicity", "2")
    capsys.readouterr()
    assert "are not of one trace (t, other)" in said(capsys, "compare", "a", "b", code=2)
    with pytest.raises(UsageError, match="not of one trace"):
        osub.compare("a", "b")
    assert run(["report", "a", "b"]) == 0
    told = capsys.readouterr().out
    assert "is of another trace" in told
    assert "against" not in told


def test_a_trace_whose_arrivals_were_changed_is_compared(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["trace", "convert", "t.swf", "--gaps", "2", "--out", "dense.swf"]) == 0
    simulated("a")
    simulated("b", "dense.swf")
    assert run(["compare", "a", "b"]) == 0


def test_all_runs_are_removed_or_none(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulated("a")
    simulated("b")
    (here / "b" / "jobs.parquet").rename(here / "b" / "jobs.journal")
    capsys.readouterr()
    assert "b is not finished" in said(capsys, "runs", "remove", "a", "b", "--yes", code=1)
    assert (here / "a" / "run.json").exists()
    assert run(["runs", "remove", "a", "a", "./a", "--yes"]) == 0
    assert capsys.readouterr().out == "a is removed\n"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("report a --beta nan", "--beta"),
        ("compare a a --least-run nan", "--least-run"),
        ("trace convert t.swf --out o.swf --shortest nan", "--shortest"),
    ],
)
def test_what_is_no_number_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], words: str, option: str
) -> None:
    told = said(capsys, *words.split(), code=2)
    assert option in told
    assert "'nan' is not a valid number" in told


def test_arrivals_that_no_memory_holds_are_refused(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workloads.trace.transforms.busy_window.MOST_JOBS", 100)
    told = said(capsys, "trace", "convert", "t.swf", "--arrivals", "20", "--out", "o.swf", code=2)
    assert "makes 160 jobs of t's 8" in told


@pytest.mark.parametrize("packed", [False, True])
def test_a_byte_order_mark_is_no_part_of_a_log(
    here: Path, capsys: pytest.CaptureFixture[str], packed: bool
) -> None:
    """Spreadsheets and PowerShell write one."""
    texts = {"log": f"{HEADING}\r\n{ROW.format(1)}\r\n", "trace": (here / "t.swf").read_text()}
    for name, text in texts.items():
        data = b"\xef\xbb\xbf" + text.encode()
        (here / name).write_bytes(gzip.compress(data) if packed else data)
    assert run(["trace", "convert", "log", "--out", "log.swf"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "log.swf: 1 of 1 job"
    assert run(["trace", "info", "trace", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == 8


def test_text_of_16_bits_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "log").write_bytes(f"{HEADING}\n{ROW.format(1)}\n".encode("utf-16"))
    assert "save it as UTF-8" in said(capsys, "trace", "convert", "log", "--out", "o.swf", code=1)


def test_a_study_page_may_be_written_again_without_force(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--force`` begins the study anew: half an hour of replays would be gone for a page."""
    (here / "page.html").write_text("mine")
    words = ["experiment", "thesis-7", "nowhere.swf", "--out", "study", "--html", "page.html"]
    assert "--force" not in said(capsys, *words, code=1)
    assert (here / "page.html").read_text() == "mine"
    (here / "page.html").write_text("<title>The thesis&#39;s physical study (chapter 7) again</title>")
    assert "there is no nowhere.swf" in said(capsys, *words, code=1)


def test_one_file_takes_one_result_and_a_device_is_no_file(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated("a")
    capsys.readouterr()
    assert "cannot take both" in said(capsys, "report", "a", "--csv", "y", "--html", "./y", code=2)
    assert "cannot take both" in said(capsys, "compare", "a", "a", "--csv", "y", "--html", "y", code=2)
    assert not (here / "y").exists()
    assert run(["report", "a", "--csv", "/dev/null"]) == 0


def test_a_label_is_no_formula_of_a_spreadsheet(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulated("a", "t.swf", "--label", "=1+1")
    assert run(["report", "a", "--csv", "a.csv"]) == 0
    assert (here / "a.csv").read_text().startswith("figure,'=1+1\n")


def test_times_of_one_table_have_one_unit(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict's too: who reads of 4 h there looks for 4 h in the table."""
    simulated("a", "other.swf")
    capsys.readouterr()
    assert run(["report", "a"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if " done [" in line or "makespan" in line]
    assert len(rows) >= 3
    assert all(" [h] " in line for line in rows)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("experiment eviction t.swf t.swf", "takes at most 1 trace; 2 are given"),
        ("experiment thesis-5 t.swf --kit-queue 3", "give --kit, too"),
        ("experiment thesis-6 t.swf --survey 9", "there are data sets 1 to 6, not 9"),
        ("experiment thesis-6 t.swf --survey 0-2", "there are data sets 1 to 6, not 0-2"),
    ],
)
def test_what_a_study_cannot_take_is_reported(
    here: Path, capsys: pytest.CaptureFixture[str], words: str, told: str
) -> None:
    assert told in said(capsys, *words.split(), code=2)


@pytest.mark.parametrize("name", ["quantum_ms", "checkpoint_interval", "speedup"])
def test_what_is_no_number_is_refused_from_python_by_name(here: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} takes a number, not nan"):
        osub.simulate("t.swf", "N2C1", **{name: float("nan")})


def test_thresholds_that_are_no_number_are_refused_by_name(here: Path) -> None:
    simulated("a")
    with pytest.raises(UsageError, match="beta_s takes a number, 0 s or more, not nan"):
        osub.load("a").metrics(beta_s=float("nan"))


def test_a_damaged_trace_that_no_run_can_keep_is_mended_as_the_message_says(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = gzip.compress("".join(LINE.format(one, one, one % 97) for one in range(1, 400)).encode())
    (here / "cut.swf.gz").write_bytes(whole[: len(whole) // 2])
    words = ["--system", "N2C1", "--out", "r", "--lenient"]
    assert "osub trace convert --lenient" in said(capsys, "simulate", "cut.swf.gz", *words, code=1)
    assert run(["trace", "convert", "cut.swf.gz", "--lenient", "--out", "sound.swf"]) == 0
    assert run(["simulate", "sound.swf", *words]) == 0
