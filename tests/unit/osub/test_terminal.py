"""What others wrote is shown, and steers no terminal: labels of runs, words of files, messages of errors."""

from __future__ import annotations

import io
import logging
import re

import pytest
from rich.table import Table
from rich.text import Text

from foundation.one_line import one_line
from gangd.main import OneLineEach
from osub.cli.terminal import Console
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
