"""What ``import osub`` and ``osub --help`` import: nothing that takes long."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "dask", "msgspec", "numba", "numpy", "optuna", "pandas", "plotly", "polars", "prometheus_client",
    "psutil", "scipy", "sklearn", "statsmodels", "zmq",
)  # fmt: skip


def imported_by(program: str) -> set[str]:
    """Return which modules a fresh interpreter has after a program."""
    output = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules, sep='\\n', file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(output.stderr.split())


@pytest.mark.parametrize(
    "program",
    [
        "import osub",
        "from osub.cli.main import run; run(['--help'])",
        "from osub.cli.main import run; run(['--version'])",
        "from osub.cli.main import run; run(['no-such-command'])",
        "import osub.command",
    ],
)
def test_nothing_heavy_is_imported(program: str) -> None:
    got = imported_by(program)
    assert "osub" in got
    assert not got & set(HEAVY)


def test_the_first_use_of_a_name_imports_what_it_needs() -> None:
    assert "osub.api" in imported_by("import osub; osub.load")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "spared"),
    [
        ("trace", {"numba", "plotly", "zmq", "sklearn"}),
        ("cluster", {"numba", "plotly", "polars", "zmq", "sklearn"}),
        ("gang", {"numba", "plotly", "polars", "sklearn"}),
        ("simulate", {"numba", "plotly", "sklearn"}),
        ("compare", {"numba", "plotly", "zmq", "sklearn"}),
        ("report", {"numba", "plotly", "zmq", "sklearn"}),
        ("runs", {"numba", "plotly", "zmq", "sklearn"}),
    ],
)
def test_help_of_a_command_imports_no_more_than_the_command_needs(command: str, spared: set[str]) -> None:
    assert not imported_by(f"from osub.cli.main import run; run([{command!r}, '--help'])") & spared
