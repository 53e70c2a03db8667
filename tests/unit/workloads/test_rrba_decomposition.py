"""Who has which points and meets whom, up to 64 ranks, by arithmetic alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from foundation.errors import UsageError
from workloads.rrba.cuts import PointGrid, box_of, multipartition, pencil, rank_box, rank_grid
from workloads.rrba.solvers.applications import APPLICATIONS

SQUARES = (1, 4, 9, 16, 25, 36, 49, 64)


def legal(app: str, grid: PointGrid) -> list[int]:
    def is_legal(ranks: int) -> bool:
        try:
            APPLICATIONS[app].check(grid, ranks)
        except UsageError:
            return False
        return True

    return [ranks for ranks in range(1, 65) if is_legal(ranks)]


def test_legal_rank_counts_are_those_of_the_benchmarks() -> None:
    cube = PointGrid(64, 64, 64)
    assert legal("bt", cube) == legal("sp", cube) == list(SQUARES)
    assert legal("mg", cube) == [1, 2, 4, 8, 16, 32, 64]
    by_two = {a * b for a in range(1, 12) for b in range(1, 12) if a / 2 <= b <= a}
    assert legal("lu", cube) == sorted(ranks for ranks in by_two if ranks <= 64)
    assert {3, 5, 7, 10, 11}.isdisjoint(legal("lu", cube))
    assert {2, 4, 6, 8, 9, 12}.issubset(legal("lu", cube))


@pytest.mark.parametrize(
    ("app", "grid", "ranks", "complaint"),
    [
        ("bt", PointGrid(64, 64, 64), 2, "square number of ranks"),
        ("sp", PointGrid(12, 12, 12), 49, "needs 14 points"),
        ("lu", PointGrid(64, 64, 64), 3, "n1/2 <= n2 <= n1"),
        ("lu", PointGrid(64, 2, 64), 9, "needs 3 rows"),
        ("mg", PointGrid(64, 64, 64), 6, "power of two"),
        ("mg", PointGrid(48, 48, 48), 2, "cube with an edge"),
        ("mg", PointGrid(8, 8, 16), 2, "cube with an edge"),
        ("mg", PointGrid(8, 8, 8), 512, "an edge of 16"),
        ("cg", PointGrid(64, 64, 64), 1, "ORDERxENTRIESx1"),
        ("cg", PointGrid(64, 7, 1), 1, "even number"),
        ("cg", PointGrid(8, 4, 1), 9, "each rank needs one"),
        ("ft", PointGrid(64, 64, 64), 3, "do not divide"),
        ("ft", PointGrid(64, 6, 64), 4, "do not divide"),
        ("ep", PointGrid(4, 4, 4), 5, "each rank needs one"),
    ],
)
def test_illegal_count_says_which_are_legal(app: str, grid: PointGrid, ranks: int, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        APPLICATIONS[app].check(grid, ranks)


@pytest.mark.parametrize("ranks", SQUARES)
def test_multipartition_gives_every_point_to_one_rank_and_every_slab_one_cell_of_each(ranks: int) -> None:
    grid = PointGrid(17, 20, 23)
    owners = np.full((17, 20, 23), -1)
    for rank in range(ranks):
        part = multipartition(grid, ranks, rank)
        for cell in part.cells:
            box = tuple(slice(a, a + n) for a, n in zip(cell.first, cell.extent, strict=True))
            assert (owners[box] == -1).all()
            owners[box] = rank
        for axis, slab in itertools.product(range(3), range(part.cuts)):
            assert [cell.place[axis] for cell in part.cells].count(slab) == 1
    assert (owners >= 0).all()


@pytest.mark.parametrize("ranks", SQUARES[1:])
def test_neighbours_of_all_cells_of_a_rank_belong_to_one_rank(ranks: int) -> None:
    grid = PointGrid(16, 16, 16)
    parts = [multipartition(grid, ranks, rank) for rank in range(ranks)]
    owner = {cell.place: rank for rank, part in enumerate(parts) for cell in part.cells}
    for part, axis in itertools.product(parts, range(3)):
        for cell in part.cells:
            for ahead, expected in ((1, part.below[axis]), (-1, part.above[axis])):
                place = list(cell.place)
                place[axis] += ahead
                if 0 <= place[axis] < part.cuts:
                    assert owner[place[0], place[1], place[2]] == expected


@pytest.mark.parametrize("ranks", [1, 2, 6, 12, 35, 64])
def test_pencils_cover_rows_and_columns_and_agree_on_neighbours(ranks: int) -> None:
    grid = PointGrid(5, 19, 17)
    pencils = [pencil(grid, ranks, rank) for rank in range(ranks)]
    covered = np.zeros((19, 17), dtype=int)
    for each in pencils:
        rows = slice(each.first_row, each.first_row + each.rows)
        covered[rows, each.first_column : each.first_column + each.columns] += 1
    assert (covered == 1).all()
    for rank, each in enumerate(pencils):
        if each.south is not None:
            assert pencils[each.south].north == rank
            assert pencils[each.south].first_row == each.first_row + each.rows
        if each.east is not None:
            assert pencils[each.east].west == rank
            assert pencils[each.east].first_column == each.first_column + each.columns
    first, second = rank_grid(ranks)
    assert first * second == ranks


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16, 32, 64])
def test_boxes_are_equal_and_close_on_themselves(ranks: int) -> None:
    boxes = [box_of(ranks, rank) for rank in range(ranks)]
    assert np.prod(rank_box(ranks)) == ranks
    assert {box.first(32) for box in boxes} == set(
        itertools.product(*(range(0, 32, 32 // parts) for parts in rank_box(ranks)))
    )
    for rank, axis in itertools.product(range(ranks), range(3)):
        after = boxes[rank].neighbour(axis, 1)
        assert boxes[after].neighbour(axis, -1) == rank


@pytest.mark.parametrize("app", ["lu", "bt", "sp", "mg", "cg", "ft"])
def test_memory_falls_with_the_ranks_and_the_large_class_needs_gibibytes(app: str) -> None:
    application = APPLICATIONS[app]
    assert list(application.classes) == ["S", "W", "A", "B", "C"]
    grid = application.classes["C"]
    alone, shared = application.rank_bytes(grid, 1), application.rank_bytes(grid, 16)
    assert alone > 2**28
    assert alone / 17 < shared < alone / 10
