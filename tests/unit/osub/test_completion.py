"""A shell completes commands and options."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from osub.cli.main import run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    said = capsys.readouterr().out
    assert "_OSUB_COMPLETE" in said
    assert "osub" in said


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "found"), [("osub simu", "simulate"), ("osub cluster u", "up"), ("osub report --cs", "--csv")]
)
def test_commands_and_options_are_completed(words: str, found: str) -> None:
    asked = {"_OSUB_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", "from osub.cli.main import main; main()"],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"plain,{found}" in done.stdout.splitlines()
