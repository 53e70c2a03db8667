from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import HostError, UsageError
from workloads.rrba.cuts import PointGrid, default_grid, parse_grid, slab_of
from workloads.rrba.solvers.applications import APPLICATIONS, application_named, check_fits


def test_grid_is_a_cube_or_three_edges() -> None:
    assert parse_grid("48") == PointGrid(48, 48, 48)
    assert parse_grid("128x64x32") == PointGrid(128, 64, 32)
    assert str(parse_grid("128x64x32")) == "128x64x32"


@pytest.mark.parametrize(
    "text", ["", "0", "64x64", "64x0x64", "-3", "6.4", "64x64x64x64", "1000001", "99999"]
)
def test_wrong_grid_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--grid"):
        parse_grid(text)


@given(st.integers(1, 300), st.integers(1, 300))
def test_slabs_cover_every_plane_once_and_differ_by_one_at_most(planes: int, ranks: int) -> None:
    grid = PointGrid(planes, 4, 4)
    if ranks > planes:
        with pytest.raises(UsageError, match="each rank needs one"):
            slab_of(grid, ranks, 0)
        return
    slabs = [slab_of(grid, ranks, rank) for rank in range(ranks)]
    covered = [plane for slab in slabs for plane in range(slab.first, slab.first + slab.planes)]
    assert covered == list(range(planes))
    assert max(slab.planes for slab in slabs) - min(slab.planes for slab in slabs) <= 1


@given(st.integers(1, 5000))
def test_default_grid_has_planes_for_every_rank(ranks: int) -> None:
    APPLICATIONS["jacobi"].check(default_grid(ranks), ranks)


def test_unknown_application_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="there are bt, cg, ep, ft, jacobi, lu, mg, sp"):
        application_named("none-such")


def test_grid_beyond_the_memory_is_refused(tmp_path: Path) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text("MemTotal: 4096 kB\nMemAvailable:    2048 kB\n")
    check_fits(PointGrid(8, 8, 8), 2 * 2**20, 1, memory)
    with pytest.raises(HostError, match="needs 3 MiB a rank, 1 of them here, and 2 MiB are available"):
        check_fits(PointGrid(8, 8, 8), 3 * 2**20, 1, memory)
    with pytest.raises(HostError, match="needs 1 MiB a rank, 3 of them here"):
        check_fits(PointGrid(8, 8, 8), 2**20, 3, memory)


@pytest.mark.parametrize("text", ["", "MemAvailable:\n", "MemAvailable: much kB\n"])
def test_host_that_does_not_report_its_memory_is_trusted(tmp_path: Path, text: str) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text(text)
    check_fits(PointGrid(8, 8, 8), 2**60, 1, memory)
    check_fits(PointGrid(8, 8, 8), 2**60, 1, tmp_path / "missing")
