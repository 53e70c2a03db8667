"""The solvers after NPB against their known solutions, on one rank and on many."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpi4py
import numpy as np
import pytest
from numpy.typing import NDArray

# Here ranks are threads, and MPI need not be started.
mpi4py.rc.initialize = False

from tests.fixtures.thread_ranks import ThreadRank, run_on_ranks  # noqa: E402
from workloads.rrba.cuts import PointGrid  # noqa: E402
from workloads.rrba.ranks.lone_rank import LoneRank  # noqa: E402
from workloads.rrba.solvers import bt, mg, sp  # noqa: E402
from workloads.rrba.solvers.bt import BlockTridiagonal  # noqa: E402
from workloads.rrba.solvers.cg import SPREAD, ConjugateGradient  # noqa: E402
from workloads.rrba.solvers.ep import MODULUS, MULTIPLIER, SEED, GaussianPairs  # noqa: E402
from workloads.rrba.solvers.ft import FourierTransform  # noqa: E402
from workloads.rrba.solvers.lu import Relaxation  # noqa: E402
from workloads.rrba.solvers.mg import Multigrid, eigenvalue, operator_weights  # noqa: E402
from workloads.rrba.solvers.sp import ScalarPentadiagonal  # noqa: E402

SOLVERS: dict[str, Callable[[Any, PointGrid], Any]] = {
    "bt": BlockTridiagonal, "sp": ScalarPentadiagonal, "lu": Relaxation, "mg": Multigrid,
    "cg": ConjugateGradient, "ft": FourierTransform, "ep": GaussianPairs,
}  # fmt: skip
OTHERS = {"cg": PointGrid(60, 6, 1), "ft": PointGrid(8, 12, 5), "ep": PointGrid(8, 9, 7)}
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
Answer = tuple[float, float, float]


def steps_of(name: str, grid: PointGrid, steps: int) -> Callable[[ThreadRank], Answer]:
    def work(comm: ThreadRank) -> Answer:
        solver = SOLVERS[name](comm, grid)
        for _ in range(steps):
            solver.step()
        return solver.deviation(), solver.change_square(), solver.tolerance

    return work


@pytest.mark.parametrize("name", ["bt", "sp", "lu"])
def test_exact_solution_is_kept_to_rounding_on_an_uneven_grid(name: str) -> None:
    [(deviation, change, _)] = run_on_ranks(1, steps_of(name, PointGrid(9, 12, 10), 60))
    assert deviation < 1e-13
    assert change > 1e-3


def test_cycles_shrink_the_error_as_the_tolerance_says_and_then_keep_it() -> None:
    for steps in (1, 3, 6):
        [(deviation, _, tolerance)] = run_on_ranks(1, steps_of("mg", PointGrid(32, 32, 32), steps))
        assert 1e-8 < deviation < tolerance
    [(deviation, _, tolerance)] = run_on_ranks(1, steps_of("mg", PointGrid(16, 16, 16), 100))
    assert deviation < 1e-13 < tolerance


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        *(("bt", ranks) for ranks in (4, 9, 64)),
        *(("sp", ranks) for ranks in (9, 64)),
        *(("lu", ranks) for ranks in (2, 6, 64)),
        *(("mg", ranks) for ranks in (2, 8, 64)),
    ],
)
def test_many_ranks_give_the_answer_of_one(name: str, ranks: int) -> None:
    # 17 and 19 points do not divide evenly.
    grid = PointGrid(16, 16, 16) if name == "mg" else PointGrid(17, 16, 19)
    [alone] = run_on_ranks(1, steps_of(name, grid, 3))
    together = run_on_ranks(ranks, steps_of(name, grid, 3))
    # A point's arithmetic does not depend on the cuts: equal to the last bit. The order of a sum does.
    assert max(deviation for deviation, _, _ in together) == alone[0]
    assert sum(change for _, change, _ in together) == pytest.approx(alone[1], rel=1e-12)


@pytest.mark.parametrize(
    ("name", "steps"), [("cg", 1), ("cg", 5), ("ft", 1), ("ft", 30), ("ep", 1), ("ep", 4)]
)
def test_a_known_answer_is_found_again_after_any_number_of_steps(name: str, steps: int) -> None:
    solver = SOLVERS[name](LoneRank(), OTHERS[name])
    for _ in range(steps):
        solver.step()
    deviation, change, tolerance = solver.deviation(), solver.change_square(), solver.tolerance
    assert 0 < deviation < 1e-11 < tolerance
    assert change < 1e-18 if name == "cg" else change > 1e-3


def test_the_sparse_matrix_is_symmetric_with_eigenvalues_that_25_iterations_settle() -> None:
    order, entries = 40, 6
    grid = PointGrid(order, entries, 1)

    def dense(comm: ThreadRank) -> NDArray[np.float64]:
        solver = ConjugateGradient(comm, grid)  # type: ignore[arg-type]
        matrix = np.eye(order)
        np.add.at(matrix, (np.arange(order)[:, np.newaxis], solver._columns), solver._values)
        return matrix

    [matrix] = run_on_ranks(1, dense)
    assert matrix == pytest.approx(matrix.T)
    values = np.linalg.eigvalsh(matrix)
    assert 1 - SPREAD - 1e-12 < values[0] < values[-1] < 1 + SPREAD + 1e-12
    assert len(np.unique(np.linalg.norm(matrix, axis=1).round(9))) > 1  # entries lie anywhere


def test_pairs_of_all_ranks_are_those_of_the_benchmarks_one_sequence() -> None:
    first = SEED * MULTIPLIER % MODULUS
    assert first / MODULUS == pytest.approx(SEED * 1220703125 % 2**46 / 2**46)
    whole, grid = GaussianPairs, PointGrid(8, 9, 7)

    def sums(comm: ThreadRank) -> NDArray[np.float64]:
        solver = whole(comm, grid)  # type: ignore[arg-type]
        solver.step()
        solver.step()
        return solver._latest

    [alone] = run_on_ranks(1, sums)
    assert sum(run_on_ranks(3, sums)) == pytest.approx(alone, rel=1e-12)
    # A pair is accepted with probability pi / 4.
    assert alone[2:].sum() == pytest.approx(grid.points * np.pi / 4, rel=0.1)


MESSAGE_PASSING = """
import sys
from mpi4py import MPI
from workloads.rrba.solvers.applications import APPLICATIONS
from workloads.rrba.cuts import PointGrid

world = MPI.COMM_WORLD
runs = [("bt", (1, 4)), ("sp", (1, 4)), ("lu", (1, 2, 4)), ("mg", (1, 2, 4))]
runs += [("cg", (1, 3)), ("ft", (1, 2, 4)), ("ep", (1, 3))]
grids = {"mg": (8, 8, 8), "cg": (60, 6, 1), "ft": (8, 12, 5), "ep": (8, 9, 7)}
for name, counts in runs:
    for count in counts:
        part = world.Split(world.Get_rank() < count, world.Get_rank())
        if world.Get_rank() < count:
            grid = PointGrid(*grids.get(name, (9, 10, 11)))
            solver = APPLICATIONS[name].build(part, grid)
            for _ in range(3):
                solver.step()
            worst = part.allreduce(solver.deviation(), MPI.MAX)
            change = part.allreduce(solver.change_square())
            if world.Get_rank() == 0:
                print(name, count, worst.hex(), change)
        part.Free()
        world.Barrier()
"""


def test_real_message_passing_gives_the_answer_of_one_rank() -> None:
    if MPIEXEC is None:
        pytest.skip("no mpiexec in this environment; install the package mpich")
    done = subprocess.run(
        [MPIEXEC, "-n", "4", sys.executable, "-c", MESSAGE_PASSING],
        check=True,
        timeout=120,
        capture_output=True,
        text=True,
    )
    answers: dict[str, list[tuple[str, float]]] = {}
    for line in done.stdout.splitlines():
        name, _, worst, change = line.split()
        answers.setdefault(name, []).append((worst, float(change)))
    cg, ep = answers.pop("cg"), answers.pop("ep")
    assert len(cg) == len(ep) == 2
    assert all(float.fromhex(worst) < 1e-11 for worst, _ in (*cg, *ep))
    expected = {"bt": 2, "sp": 2, "lu": 3, "mg": 3, "ft": 3}
    assert {name: len(found) for name, found in answers.items()} == expected
    for found in answers.values():
        assert {worst for worst, _ in found} == {found[0][0]}
        assert all(change == pytest.approx(found[0][1], rel=1e-12) for _, change in found)


def lines(*shape: int) -> NDArray[np.float64]:
    return np.random.default_rng(3).random(shape)


def test_block_elimination_in_two_cells_is_the_solution_of_the_whole_line() -> None:
    rng = np.random.default_rng(5)
    off_diagonal = np.asarray(-0.2 * rng.random((5, 5)))
    diagonal = np.eye(5) + 2 * np.diag(np.abs(off_diagonal).sum(axis=1))
    values = lines(7, 5)
    matrix = np.kron(np.eye(7), diagonal) + np.kron(np.eye(7, k=1) + np.eye(7, k=-1), off_diagonal)
    expected = np.linalg.solve(matrix, values.reshape(-1)).reshape(7, 5)
    carry, cells = np.zeros(30), (values[:3].copy(), values[3:].copy())
    blocks = [np.empty(cell.size * 5) for cell in cells]
    for cell, block in zip(cells, blocks, strict=True):
        leaving = np.empty(30)
        bt.eliminate(
            cell.reshape(-1), block, carry, leaving, diagonal, off_diagonal, (len(cell), 1, 1, 5, 5, 5)
        )
        carry = leaving
    carry = np.zeros(5)
    for cell, block in zip(reversed(cells), reversed(blocks), strict=True):
        leaving = np.empty(5)
        bt.substitute(cell.reshape(-1), block, carry, leaving, (len(cell), 1, 1, 5, 5, 5))
        carry = leaving
    assert np.concatenate(cells) == pytest.approx(expected, rel=1e-12)


def test_pentadiagonal_elimination_solves_the_band_matrix_with_its_walls() -> None:
    diffusion, dissipation, points = np.array([0.3, 0.5, 0.7, 0.9, 1.1]), 0.05, 8
    values = lines(points, 5)
    second = np.diag(np.full(points, -2.0)) + np.eye(points, k=1) + np.eye(points, k=-1)
    # The fourth difference of a function that is odd at both walls is the square of the second.
    expected = [
        np.linalg.solve(np.eye(points) - diffusion[m] * second + dissipation * second @ second, values[:, m])
        for m in range(5)
    ]
    change, upper = values.copy().reshape(-1), np.empty(points * 10)
    shape = (points, 1, 1, 5, 5, 5)
    sp.eliminate(change, upper, np.zeros(30), np.empty(30), diffusion, dissipation, True, True, shape)
    sp.substitute(change, upper, np.zeros(10), np.empty(10), shape)
    assert change.reshape(points, 5) == pytest.approx(np.array(expected).T, rel=1e-12)


def test_restriction_is_the_transpose_of_prolongation_but_for_its_scale() -> None:
    coarse, fine = np.zeros((6, 6, 6)), np.zeros((10, 10, 10))
    inner = (slice(1, -1),) * 3
    fine[inner] = lines(8, 8, 8)
    fine = np.pad(fine[inner], 1, mode="wrap")
    mg.restrict(coarse, fine)
    test = np.pad(lines(4, 4, 4), 1, mode="wrap")
    prolonged = np.zeros_like(fine)
    mg.prolong(prolonged, test)
    assert 2 * np.vdot(coarse[inner], test[inner]) == pytest.approx(np.vdot(fine[inner], prolonged[inner]))


def test_operator_has_the_eigenvalue_that_the_exact_solution_is_made_from() -> None:
    edge, periods = 16, (1, 2, 3)
    x, y, z = np.meshgrid(*(np.arange(edge),) * 3, indexing="ij")
    phase = 2 * np.pi / edge * (periods[0] * x + periods[1] * y + periods[2] * z)
    wave = np.pad(np.cos(phase), 1, mode="wrap")
    applied = np.zeros_like(wave)
    mg.residual(applied, np.zeros_like(wave), wave, operator_weights(edge))
    inner = (slice(1, -1),) * 3
    assert -applied[inner] == pytest.approx(eigenvalue(edge, periods) * wave[inner], rel=1e-11, abs=1e-12)
