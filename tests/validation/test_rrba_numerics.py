"""The solvers against their closed forms, and the same answer however many ranks compute it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import mpi4py
import numpy as np
import pytest

# The kernel is tested in this process, where MPI need not be started.
mpi4py.rc.initialize = False

from workloads.rrba.cuts import PointGrid, Slab  # noqa: E402
from workloads.rrba.solvers.jacobi import decay, exact, sweep  # noqa: E402

MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

SOLVE = """
import sys
import numpy as np
from mpi4py import MPI
from workloads.rrba.solvers.applications import application_named
from workloads.rrba.cuts import parse_grid, slab_of

name, grid, steps, out = sys.argv[1], parse_grid(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
comm = MPI.COMM_WORLD
solver = application_named(name).build(comm, grid)
for _ in range(steps):
    solver.step()
worst = comm.allreduce(solver.deviation(), MPI.MAX)
change = comm.allreduce(solver.change_square())
inner = comm.gather(solver._fields[steps % 2][1:-1])
solver.close()
if comm.Get_rank() == 0:
    np.savez(out, field=np.concatenate(inner), worst=worst, change=change)
"""


def test_sweep_takes_the_mean_of_six_neighbours() -> None:
    old = np.random.default_rng(7).random((5, 6, 7))
    new = old.copy()
    sweep(old, new, np.empty((3, 4, 5)))
    i, j, k = 2, 3, 4
    neighbours = [old[i - 1, j, k], old[i + 1, j, k], old[i, j - 1, k]]
    neighbours += [old[i, j + 1, k], old[i, j, k - 1], old[i, j, k + 1]]
    assert new[i, j, k] == pytest.approx(sum(neighbours) / 6, rel=1e-15)
    assert np.array_equal(new[0], old[0])
    assert np.array_equal(new[:, :, -1], old[:, :, -1])


def test_exact_solution_decays_by_the_factor_that_one_sweep_gives() -> None:
    grid = PointGrid(6, 9, 4)
    slab = Slab(0, 6)
    old = exact(grid, slab, 0)
    new = old.copy()
    sweep(old, new, np.empty((6, 9, 4)))
    assert np.max(np.abs(new - exact(grid, slab, 1))) < 1e-14
    assert decay(grid) < 1
    assert np.max(np.abs(new - exact(grid, slab, 0))) > 1e-3


def solve(ranks: int, grid: str, steps: int, folder: Path) -> dict[str, np.ndarray]:
    if MPIEXEC is None:
        pytest.skip("no mpiexec in this environment; install the package mpich")
    out = folder / f"{ranks}.npz"
    command = [MPIEXEC, "-n", str(ranks), sys.executable, "-c", SOLVE, "jacobi", grid, str(steps), str(out)]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    with np.load(out) as content:
        return dict(content)


def test_answer_is_the_same_on_any_number_of_ranks(tmp_path: Path) -> None:
    # 10 planes do not divide by 4, nor by 3.
    answers = [solve(ranks, "10x12x9", 37, tmp_path) for ranks in (1, 2, 3, 4)]
    for answer in answers:
        assert answer["field"].shape == (10, 14, 11)
        assert answer["worst"] < 1e-13
        # Each point's arithmetic is the same: equal to the last bit. The sum's order is not.
        assert np.array_equal(answer["field"], answers[0]["field"])
        assert answer["change"] == pytest.approx(answers[0]["change"], rel=1e-12)


def test_long_run_settles_at_the_wall_temperature_without_denormals(tmp_path: Path) -> None:
    answer = solve(1, "8", 4000, tmp_path)
    assert answer["worst"] < 1e-13
    assert answer["field"].min() > 0.9
    assert answer["change"] < 1e-25
