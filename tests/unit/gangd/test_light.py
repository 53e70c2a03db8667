"""What the daemons import: a compute node has no tables, pictures, compiler or MPI of Python's."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "polars",
    "plotly",
    "numba",
    "mpi4py",
    "typer",
    "jinja2",
    "rich",
    "scipy",
    "sklearn",
    "psutil",
    "dask",
    "prometheus_client",
}


@pytest.mark.parametrize(
    ("module", "more"),
    [
        ("gangd.agent.assemble", {"numpy"}),
        ("gangd.guardian.guardian_process", {"numpy", "zmq", "msgspec", "ClusterShell"}),
        ("gangd.agent.main", {"numpy", "zmq", "msgspec", "ClusterShell"}),
        ("gangd.main", set[str]()),
    ],
)
def test_daemons_import_little(module: str, more: set[str]) -> None:
    program = f"import sys, {module}; print(*sorted(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not (HEAVY | more) & set(done.stdout.split())
