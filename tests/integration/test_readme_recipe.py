"""README's recipe of a replay, word by word, on a log of a machine that is much larger than this host."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import LocalCluster
from foundation.records import load_run
from tests.fixtures.exchange import osub as call_osub
from workloads.swf import write_swf
from workloads.trace.models.generated_trace import generate_trace

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

README = Path(__file__).parents[2] / "README.md"
FIT_S = 10


def recipe() -> list[list[str]]:
    text = README.read_text(encoding="utf-8").partition("## A replay step by step")[2]
    block = re.search(r"```\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return [shlex.split(line, comments=True) for line in block[1].splitlines()]


def test_every_line_of_it_works_and_what_was_scaled_is_reported(tmp_path: Path) -> None:
    """In a folder with a blank in its name, which Slurm and MPI meet in each path."""
    (home := tmp_path / "my home").mkdir()
    write_swf(home / "trace.swf.gz", generate_trace(1500, 64, 16, seed=3, interactive_share=0.2))
    environment = dict(os.environ, HOME=str(home))
    lines = recipe()
    assert [line[1] for line in lines] == ["cluster", "trace", "replay", "report", "cluster"]
    lines.insert(1, ["osub", "cluster", "status", "--state", "~/c"])
    said: dict[str, str] = {}
    try:
        for line in lines:
            words = [word.replace("~", str(home)) for word in line[1:]]
            if "--fit" in words:
                words[words.index("--fit") + 1] = str(FIT_S)
            done = subprocess.run(
                [sys.executable, "-P", "-m", "osub.cli.main", *words], cwd=home, env=environment,
                capture_output=True, text=True, timeout=200, check=False,
            )  # fmt: skip
            assert done.returncode == 0, (words, done.stderr)
            said[words[0]] = done.stdout + done.stderr
    finally:
        down = [sys.executable, "-P", "-m", "osub.cli.main", *lines[-1][1:-1], str(home / "c")]
        subprocess.run(down, cwd=home, env=environment, capture_output=True, timeout=100, check=False)
    assert "trace.swf.gz fitted to N" in said["replay"]
    run = load_run(home / "run")
    assert run.jobs.height >= 4
    assert set(run.jobs["state"]) == {"COMPLETED"}
    assert (home / "report.html").stat().st_size > 100_000
    assert not (home / "c").exists() or not any((home / "c").iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fit", "3"], "--fit takes the seconds that the replay may take, 10 at least"),
        (["--fit", "inf"], "--fit must be a number"),
        (["--fit", "nan"], "'--fit': 'nan' is not a valid number"),
        (["--fit", "60", "--speedup", "2"], "neither with --apps nor with --speedup"),
        (["--fit", "60", "--start", "0"], "--start and --length together"),
        (["--fit", "60", "--start", "1e12", "--length", "5"], "no job"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    shared_cluster: LocalCluster, tmp_path: Path, words: list[str], said: str
) -> None:
    trace = tmp_path / "trace.swf.gz"
    write_swf(trace, generate_trace(200, 64, 16, seed=3))
    cluster = ("--cluster", shared_cluster.folder)
    refused = call_osub("replay", trace, *cluster, "--out", tmp_path / "run", *words)
    assert refused.code in {1, 2}, refused.err
    assert said in refused.err
    assert not (tmp_path / "run").exists()
