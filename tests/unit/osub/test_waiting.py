"""What takes long says so, on a terminal, and leaves nothing there."""

from __future__ import annotations

import io
import time

import pytest

from osub.cli.terminal import waiting


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
