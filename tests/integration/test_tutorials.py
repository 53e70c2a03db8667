"""Each tutorial is followed word by word: its blocks marked ``bash`` run one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.container_engine import docker_engine
from tests.fixtures.golden import SHARED

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"


def follow(name: str, folder: Path, changed: tuple[str, str] = ("", "")) -> str:
    """Run the blocks of a tutorial in ``folder``; return what they printed.

    What the tutorial shows of it must be in it. ``changed`` is a word of a command, and the one in its place.
    """
    text = (TUTORIALS / name).read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    assert blocks
    commands = "\n".join(blocks)
    assert changed[0] in commands
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", commands.replace(*changed)], cwd=folder,
        env=dict(os.environ, HOME=str(folder), PATH=path), capture_output=True, text=True,
        check=False, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert_shown(text, done.stdout)
    return done.stdout


def assert_shown(page: str, printed: str) -> None:
    """Assert that what a page shows in blocks marked ``text`` was printed, whatever the width of lines."""
    words = " ".join(printed.split())
    for shown in re.findall(r"```text\n(.*?)```", page, re.DOTALL):
        assert " ".join(shown.split()) in words


def accounting(jobs: int) -> str:
    """Return what ``sacct`` prints of so many jobs, with the tutorial's columns."""
    columns = (
        "JobID|JobIDRaw|User|Account|Partition|QOS|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NCPUS|"
        "ReqCPUS|ReqMem|TotalCPU|MaxRSS|NTasks|JobName"
    )
    lines = [columns]
    for job in range(1, jobs + 1):
        hour, minute = divmod(job * 7, 60)
        shell = job % 5 == 0
        lines.append(
            f"{job}|{job}|user{job % 7}|lab|main|normal|COMPLETED|2026-03-02T{hour:02}:{minute:02}:00|"
            f"2026-03-02T{hour:02}:{minute:02}:30|2026-03-02T{hour + 1:02}:{minute:02}:30|3600|120|1|"
            f"{1 + job % 8}|{1 + job % 8}|4G|00:50:00|||{'bash' if shell else 'solver'}"
        )
    return "\n".join(lines) + "\n"


def test_from_clone_to_verdict(tmp_path: Path) -> None:
    said = follow("first-verdict.md", tmp_path)
    assert "shared" in said
    assert (tmp_path / "report.html").is_file()
    assert_shown((TUTORIALS.parents[1] / "README.md").read_text(encoding="utf-8"), said)


@pytest.mark.slow
def test_the_right_m(tmp_path: Path) -> None:
    assert "Best of 3 settings, assuming C_o = 1.2: M=2" in follow("right-m.md", tmp_path)
    assert (tmp_path / "sweep.html").is_file()


def test_a_policy_of_ones_own(tmp_path: Path) -> None:
    assert "shortest" in follow("policy.md", tmp_path)


@pytest.mark.long
def test_a_year_before(tmp_path: Path) -> None:
    log = SHARED / "traces" / "UniLu-Gaia-2014-1.swf.gz"
    if not log.is_file():
        pytest.skip("the shared traces are not here")
    (tmp_path / log.name).symlink_to(log)
    follow("advise.md", tmp_path)
    assert (tmp_path / "advice.html").is_file()


@pytest.mark.slurm
@pytest.mark.parallel
def test_a_log_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(accounting(60), encoding="utf-8")
    follow("own-log.md", tmp_path, ("--fit 20", "--fit 10"))
    assert (tmp_path / "run.html").is_file()


@pytest.mark.slurm
@pytest.mark.parallel
def test_a_job_the_moment_it_comes(tmp_path: Path) -> None:
    assert "preempted" in follow("on-demand.md", tmp_path)


@pytest.mark.long
@pytest.mark.slurm
def test_a_cluster_in_containers(tmp_path: Path) -> None:
    with docker_engine():
        said = follow("containers.md", tmp_path)
    print(said)
    assert "M=2" in said
