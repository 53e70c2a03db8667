"""A wheel of the project in clean environments: a compute node's, and a controller's; what they weigh."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fixtures.installed import ROOT, build, run

MOST_MB = {"agent": 60, "controller": 150}
COMMANDS = {
    "agent": (["gang-agent", "--help"], ["gang-agent", "thaw", "--expired"]),
    "controller": (["gangd", "--help"], ["gangd", "run", "--help"]),
}

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("release")).wheel


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
