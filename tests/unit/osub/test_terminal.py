"""What others wrote is shown, and steers no terminal: labels of runs, words of files, messages of errors."""

from __future__ import annotations

import io
import logging
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TextIO

import click
import pytest
from rich.table import Table
from rich.text import Text

from foundation.one_line import one_line
from gangd.main import OneLineEach
from osub.cli.main import READER_HAS_GONE, root, run
from osub.cli.terminal import Console, waiting
from tests.fixtures.cli import Cli

EVIL = "a\x1b[31mb\x1b]0;title\x07\x9b2J\u202ec[/x][link=http://x]d"


def steers(text: str) -> bool:
    return any(not one.isprintable() and one != "\n" for one in text)


def test_a_terminal_shows_what_it_would_obey() -> None:
    out = io.StringIO()
    console = Console(file=out, width=200)
    console.print(EVIL, markup=False, highlight=False)
    table = Table(title=Text(EVIL))
    table.add_column(Text(EVIL))
    table.add_row(Text(EVIL))
    console.print(table)
    assert not steers(out.getvalue())
    assert out.getvalue().count("[/x][link=") == 4, "markup of others is text"


def test_our_own_colours_stay() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", width=80)
    console.print("[red]dead[/red]")
    assert "\x1b[31mdead\x1b[0m" in out.getvalue()


def test_an_error_is_one_line_that_can_be_printed(cli: Cli) -> None:
    said = cli("report", f"/no/{EVIL}\nx", "--html", "/no/x.html", code=1).err
    assert said.startswith("osub: ")
    assert said.count("\n") == 1
    assert not steers(said)


def test_a_log_line_is_one_line_whatever_is_in_it() -> None:
    record = logging.LogRecord(
        "gangd", logging.WARNING, __file__, 1, "node %s left", (f"{EVIL}\nforged",), None
    )
    line = OneLineEach("%(levelname)s %(message)s").format(record)
    assert line.isprintable()
    assert line.startswith("WARNING node a?[31mb")


def test_one_line_is_cut() -> None:
    assert one_line("x" * 300) == "x" * 197 + "..."
    assert one_line("a\tb\r\nc") == "a?b??c"
    assert one_line("é\U0001f4a9") == "é\U0001f4a9"


def test_a_place_in_a_file_is_no_picture() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print("log.swf.gz:1234: :warning: field 2", highlight=False)
    assert out.getvalue() == "log.swf.gz:1234: :warning: field 2\n"


def test_what_goes_to_a_pipe_is_not_broken_into_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    out = io.StringIO()
    Console(file=out).print("word " * 100)
    assert out.getvalue().count("\n") == 1
    monkeypatch.setenv("COLUMNS", "40")
    out = io.StringIO()
    Console(file=out).print("word " * 100)
    assert max(map(len, out.getvalue().splitlines())) <= 40


def test_a_spinner_leaves_nothing_in_a_pipe() -> None:
    out = io.StringIO()
    console = Console(file=out)
    with console.status("starting") as spinner:
        spinner.update("going on")
    console.print("done")
    assert out.getvalue() == "done\n"


def test_without_a_terminal_each_stage_is_a_line_on_stderr_once(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    with Console(file=out).stages("starting") as say:
        for what in ("building [an image]", "waiting", "waiting", "3 of 4\x1b[31m nodes"):
            say(what)
    assert out.getvalue() == ""
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ", 2)[2] for line in lines][:2] == ["building [an image]", "waiting"]
    assert len(lines) == 3
    assert all(re.fullmatch(r"osub: \d+ s: .+", line) and line.isprintable() for line in lines)


def test_on_a_terminal_stages_are_a_spinner(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    with Console(file=out, force_terminal=True, width=80).stages("starting") as say:
        say("building [an image]")
    assert "building [an image]" in out.getvalue()
    assert capsys.readouterr().err == ""


LINE = "{0} {0} -1 100 1 -1 -1 1 200 -1 1 1 1 -1 1 -1 -1 -1\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.swf").write_text("".join(map(LINE.format, range(1, 9))))
    (tmp_path / "s.toml").write_text('[base]\ntrace = "t.swf"\nsystem = "N2C1"\n[grid]\nseed = [1, 2]\n')
    return tmp_path


@contextmanager
def unread() -> Iterator[TextIO]:
    """Have standard output be a pipe whose reader has closed it."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as stream, redirect_stdout(stream):  # noqa: PTH123
        yield stream


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "--version",
        "gang --help",
        "trace info t.swf",
        "trace info t.swf --json",
        "runs list .",
        "runs list . --json",
        "completion bash",
        "cluster list",
        "sweep s.toml --out points --dry-run",
        "simulate --policies",
    ],
)
def test_a_reader_that_has_gone_is_no_error(
    here: Path, capfd: pytest.CaptureFixture[str], words: str
) -> None:
    with unread() as stream:
        assert run(words.split()) == READER_HAS_GONE
        print("what comes late goes nowhere", file=stream, flush=True)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_process_ends_as_quietly(here: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "osub.command", "trace", "info", "t.swf"]
    done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, cwd=here, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_another_pipe_that_breaks_is_reported(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the reader of our output may leave unheard."""

    def breaks(_: click.Context) -> None:
        ours, theirs = socket.socketpair()
        with ours:
            theirs.close()
            ours.send(b"x")

    monkeypatch.setattr(root, "invoke", breaks)
    assert run(["doctor"]) == 1
    assert "Broken pipe" in capfd.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_goes_on_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr("sys.stderr", out)
    deadline_s = time.monotonic() + 60
    with waiting("simulating \x1b[2Jtrace", after_s=0.0, every_s=0.01):
        while out.getvalue().count("osub: ") < 3:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
    assert "osub: simulating " in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[K")


def test_an_error_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr("sys.stderr", out)
    with pytest.raises(KeyboardInterrupt), waiting("x", after_s=100.0):
        raise KeyboardInterrupt
    assert out.getvalue() == ""


def test_a_pipe_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr("sys.stderr", out)
    with waiting("x", after_s=0.0):
        time.sleep(0.05)
    assert out.getvalue() == ""
