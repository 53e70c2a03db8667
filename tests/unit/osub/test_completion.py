"""A shell completes commands and options."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from osub.cli.main import run
from tests.fixtures.cli import Cli


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str, cli: Cli) -> None:
    said = cli("completion", shell).out
    assert "_OSUB_COMPLETE" in said
    assert "osub" in said


def test_another_shell_is_refused(cli: Cli) -> None:
    assert cli("completion", "tcsh", code=2).err.count("\n") == 1


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("osub trace info ", "file,"),
        ("osub sweep sp", "file,sp"),
        ("osub report --html pa", "file,pa"),
        ("osub sweep ", "plain,tune"),
        ("osub top --state /tmp/o", "plain,/tmp/one"),
        ("osub cluster down --state ", "plain,/tmp/one"),
        ("osub doctor --cluster ", "plain,environment"),
        ("osub replay t.swf --cluster /srv/", "file,/srv/"),
    ],
)
def test_files_and_running_clusters_are_completed(
    words: str, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters = [SimpleNamespace(folder=Path("/tmp/one")), SimpleNamespace(folder=Path("/tmp/other"))]
    monkeypatch.setattr("osub.cli.completion.live_clusters", lambda: clusters)
    monkeypatch.setenv("_OSUB_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    with pytest.raises(SystemExit) as ended:
        run([])
    assert ended.value.code == 0
    assert kind in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("shell", "said"), [("zsh", "file\nt\n_"), ("fish", "file,t")])
def test_other_shells_complete_files_too(
    shell: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"_OSUB_COMPLETE": f"{shell}_complete", "COMP_WORDS": "osub trace info t"}
    for name, value in (asked | {"COMP_CWORD": "t" if shell == "fish" else "3"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        run([])
    assert said in capsys.readouterr().out
