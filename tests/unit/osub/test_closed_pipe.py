"""``osub ... | head``: who reads no further hears no complaint, and the exit code is that of other tools."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TextIO

import click
import pytest

from osub.cli.main import READER_HAS_GONE, root, run

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
