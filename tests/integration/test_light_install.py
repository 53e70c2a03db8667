"""A wheel of the project in clean environments: a compute node's, and a controller's; what they weigh."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_MB = {"agent": 60, "controller": 150}
COMMANDS = {
    "agent": (["gang-agent", "--help"], ["gang-agent", "thaw", "--expired"]),
    "controller": (["gangd", "--help"], ["gangd", "run", "--help"]),
}

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def run(*words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, env=clean, cwd="/", check=False)
    assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("source") / "osub"
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", "osub-demo", ".*_cache", "_switch.so")
    shutil.copytree(ROOT, copy, ignore=ignored)
    out = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.whl"))


def megabytes(folder: Path) -> float:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


@pytest.mark.parametrize("kind", ["agent", "controller"])
def test_it_installs_small_and_its_commands_work(kind: str, wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "env")
    python = tmp_path / "env/bin/python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
    site = Path(run(python, "-c", "import site; print(site.getsitepackages()[0])").stdout.strip())
    empty_mb = megabytes(site)
    locked = run(*pip, "--require-hashes", "-r", ROOT / f"requirements-{kind}.lock", check=False)
    if locked.returncode:
        pytest.skip(f"no package index here: {locked.stderr.strip().splitlines()[-1][:200]}")
    run(*pip, "--no-deps", wheel)
    grown_mb = megabytes(site) - empty_mb
    print(f"{kind}: {grown_mb:.1f} MB")
    assert grown_mb < MOST_MB[kind]
    for words in COMMANDS[kind]:
        run(tmp_path / "env/bin" / words[0], *words[1:])
    module = {"agent": "gangd.agent.assemble", "controller": "gangd.main"}[kind]
    took = run(
        python, "-c", f"import time; a = time.perf_counter(); import {module}; print(time.perf_counter() - a)"
    )
    print(f"{kind}: import {float(took.stdout):.2f} s")
    refused = run(tmp_path / "env/bin/osub", "doctor", check=False)
    assert refused.returncode == 1
    assert "pip install 'osub[all]'" in refused.stderr
    assert refused.stderr.count("\n") == 1
    for name in ("systemd/gang-agent.service", "systemd/gangd.toml", "slurm/job_submit.lua"):
        assert (site / "deploy" / name).is_file(), "what an administrator installs is in the wheel"
