"""What a researcher and an administrator stumbled over on a second walk: each stumble stays mended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from osub.cli.main import run

LINE = "{0} {0} -1 100 1 -1 -1 1 200 -1 1 1 1 -1 1 -1 -1 -1\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.swf").write_text("".join(map(LINE.format, range(1, 9))))
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> str:
    """Run a command; return its one line of complaint, beside which it says nothing."""
    assert run(list(words)) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("osub: ")
    assert told.err.count("\n") == 1
    return told.err


@pytest.mark.parametrize(
    "words",
    [
        "simulate nowhere.swf --system N2C1 --out t.swf/x",
        "simulate nowhere.swf --system N2C1 --multiplicity 1,2 --out t.swf/x",
        "replay nowhere.swf --out t.swf/x",
        "demo --trace nowhere.swf --out t.swf/x",
        "sweep nowhere.toml --out t.swf/x",
        "sweep nowhere.toml --out x --html t.swf/x.html",
        "sweep tune nowhere.swf --system N2C1 --out t.swf/x",
        "experiment thesis-5 nowhere.swf --html t.swf/x.html",
        "experiment thesis-6 nowhere.swf --html t.swf/x.html",
        "experiment thesis-7 nowhere.swf --out t.swf/x",
        "experiment thesis-7 nowhere.swf --out x --html t.swf/x.html",
        "experiment eviction nowhere.swf --html t.swf/x.html",
        "evict nowhere.csv --free-nodes 1 --deadline 1 --html t.swf/x.html",
        "report nowhere --html t.swf/x.html",
        "report nowhere --csv t.swf/x.csv",
        "compare nowhere nowhere --html t.swf/x.html",
        "compare nowhere nowhere --csv t.swf/x.csv",
        "trace convert nowhere.swf --out t.swf/x.swf",
        "trace generate --jobs 10000000 --out t.swf/x.swf",
        "trace scale nowhere.swf --system N2C1 --out t.swf/x.swf",
        "trace scale nowhere.swf --system N2C1 --out x.swf --html t.swf/x.html",
        "trace interactive nowhere.swf --out t.swf/x.swf",
        "trace merge nowhere.swf nowhere.swf --out t.swf/x.swf",
        "trace patterns nowhere --synthesize 3 --out t.swf/x.swf",
        "trace record --pid 99999999 --out t.swf/x.csv",
        "trace export nowhere.swf --format batsim --out t.swf/x.json",
        "trace export nowhere.swf --format elastisim --out t.swf/x",
        "trace import nowhere.json --format batsim --out t.swf/x.swf",
        "trace import nowhere.csv --format evalys --out t.swf/x",
        "workloads assign nowhere.swf --out t.swf/x.csv",
        "predict fit --data nowhere --out t.swf/x.json",
        "predict evaluate --data nowhere --html t.swf/x.html",
        "predict import nowhere.tar --out t.swf/x",
        "predict matrix --data nowhere --csv t.swf/x.csv",
        "predict measure --apps lu --out t.swf/x",
    ],
)
def test_what_cannot_be_written_is_found_before_anything_is_read(
    here: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    before = sorted(here.rglob("*"))
    told = said(capsys, *words.split(), code=1)
    assert "t.swf" in told
    assert "nowhere" not in told
    assert sorted(here.rglob("*")) == before


def test_a_dry_sweep_makes_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "s.toml").write_text('[base]\ntrace = "t.swf"\nsystem = "N2C1"\n[grid]\nmultiplicity = [1, 2]\n')
    assert run(["sweep", "s.toml", "--out", "points", "--dry-run"]) == 0
    assert "2 points, 0 of them done" in capsys.readouterr().out
    assert not (here / "points").exists()


def test_no_is_no_interruption(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["simulate", "t.swf", "--system", "N2C1", "--out", "r"]) == 0
    capsys.readouterr()
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "n")
    assert run(["runs", "remove", "r"]) == 1
    assert "osub: nothing was removed" in capsys.readouterr().err
    assert (here / "r" / "run.json").exists()


NO_TEXT = "b\udcff"
"""What Python makes of the byte 255 in the name of a file."""


def test_names_that_are_no_text_are_refused_or_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / f"{NO_TEXT}.swf").write_bytes((here / "t.swf").read_bytes())
    assert run(["trace", "info", f"{NO_TEXT}.swf", "--json"]) == 0
    assert '"name": "b?"' in capsys.readouterr().out
    words = ["simulate", f"{NO_TEXT}.swf", "--system", "N2C1", "--out"]
    assert "is no text" in said(capsys, *words, NO_TEXT, code=1)
    assert run([*words, "r"]) == 0
    capsys.readouterr()
    (here / "r").rename(NO_TEXT)
    assert "is no text" in said(capsys, "report", NO_TEXT, code=1)


@pytest.mark.parametrize(
    ("redirection", "code", "told"),
    [(">/dev/full", 1, "No space left"), (">&-", 0, ""), ("2>&-", 0, ""), ("<&-", 0, "")],
)
def test_output_that_no_one_can_take_is_one_line_or_none(
    here: Path, redirection: str, code: int, told: str
) -> None:
    words = f"{sys.executable} -m osub.command trace info t.swf --json {redirection}"
    done = subprocess.run(words, shell=True, cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr.count("\n") == (1 if told else 0)
    assert told in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_locale_without_our_letters_gets_a_question_mark(here: Path, encoding: str) -> None:
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    (here / "trace-\N{GREEK SMALL LETTER ALPHA}.swf").write_bytes((here / "t.swf").read_bytes())
    for words in (
        ["trace", "info", "trace-\N{GREEK SMALL LETTER ALPHA}.swf"],
        ["trace", "generate", "--help"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "osub.command", *words],
            env=environment,
            cwd=here,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"trace" in done.stdout.lower()
