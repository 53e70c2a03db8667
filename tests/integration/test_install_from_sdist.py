"""A release in clean environments: an sdist, the wheel made from it, and what works once it is installed."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from foundation.version import VERSION
from tests.fixtures.installed import PACKAGES, ROOT, Built, build, new_environment, run

AGENT = ("clustershell", "msgspec", "pyzmq", "pyyaml")
NOT_SHIPPED = {".so", ".pyc", ".pem"}
TRACE = "1 0 -1 10 2 -1 -1 2 20 -1 1 1 1 -1 1 -1 -1 -1\n2 1 -1 5 4 -1 -1 4 9 -1 1 1 1 -1 1 -1 -1 -1\n"
READS_ITS_DATA = """
import analysis.pages, deploy.compose.image, predictor
from pathlib import Path
from predictor.model import read_model
print(read_model(Path(predictor.__file__).parent / "data" / "model.json").version)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def programs(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_environment(tmp_path_factory.mktemp("whole"), built.wheel, None)


def shipped(package: str) -> set[str]:
    """Return the files of a package that its users need."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in NOT_SHIPPED and "__pycache__" not in path.parts
    }


def test_the_wheel_has_every_file_of_every_package_and_no_other(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as packed:
        names = set(packed.namelist())
    expected = set().union(*map(shipped, PACKAGES))
    assert expected <= names
    others = {name for name in names - expected if ".dist-info/" not in name}
    assert others <= {"gangd/agent/_switch.so"}
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_sdist_has_what_it_takes_to_build_test_and_read_about_it(built: Built) -> None:
    with tarfile.open(built.sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    for needed in (
        "pyproject.toml",
        "hatch_build.py",
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "scripts/test",
    ):
        assert needed in names
    assert {"requirements.lock", "docs/index.md", "tests/conftest.py", "tests/golden/README.md"} <= names
    assert not [name for name in names if name.startswith((".git/", ".venv/"))]


def test_a_release_names_its_version_everywhere(built: Built, programs: Path) -> None:
    assert built.sdist.name == f"osub-{VERSION}.tar.gz"
    assert built.wheel.name.startswith(f"osub-{VERSION}-")
    assert VERSION in run(programs / "osub", "--version").stdout
    metadata = "from importlib.metadata import version; print(version('osub'))"
    assert run(programs / "python", "-c", metadata).stdout.strip() == VERSION


@pytest.mark.parametrize("program", ["osub", "gangd", "gang-agent", "eiba", "rrba"])
def test_every_command_comes_with_the_wheel_and_reports_its_use(program: str, programs: Path) -> None:
    assert "usage" in run(programs / program, "--help").stdout.lower()


def test_an_installed_release_simulates_a_trace_and_draws_its_report(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.swf").write_text(TRACE)
    words = ("simulate", "tiny.swf", "--system", "N1C4", "--multiplicity", "2", "--out", "run", "--json")
    assert json.loads(run(programs / "osub", *words, cwd=tmp_path).stdout)
    run(programs / "osub", "report", "run", "--html", "report.html", cwd=tmp_path)
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")[:500]


def test_an_installed_release_finds_its_own_data(programs: Path) -> None:
    found = run(programs / "python", "-c", READS_ITS_DATA + "print(predictor.__file__)").stdout.split()
    assert found[0].isdigit()
    assert found[1].startswith(str(programs.parent)), "it is the wheel's package, not this tree's"


def test_a_compute_node_s_install_runs_the_agent_and_says_what_it_lacks(built: Built, tmp_path: Path) -> None:
    programs = new_environment(tmp_path, built.wheel, AGENT)
    assert "usage" in run(programs / "gang-agent", "--help").stdout.lower()
    # Its status is that of the host, where another cluster may have suspended a job meanwhile.
    assert run(programs / "gang-agent", "thaw", "--expired", check=False).stdout.startswith("thawed ")
    refused = run(programs / "osub", "doctor", check=False)
    assert refused.returncode == 1
    assert "pip install 'osub[all]'" in refused.stderr
    assert refused.stderr.count("\n") == 1
