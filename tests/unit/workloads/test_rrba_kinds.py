"""Which calibration a job needs, told from its arguments alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.errors import UsageError
from workloads.rrba.calibration_kinds import kind_from_words, kind_of, target_of
from workloads.rrba.cuts import PointGrid
from workloads.rrba.rrba_options import parse_options


def test_kind_is_application_grid_ranks_and_nodes_whatever_the_target() -> None:
    short = kind_of(["--app", "lu", "--class", "A", "--target-s", "5"], 4, 2)
    assert short == kind_of(["--app", "lu", "--grid", "64", "--target-s", "500"], 4, 2)
    assert short.name == "lu.A"
    assert short.arguments == ("--app", "lu", "--grid", "64x64x64")
    assert short != kind_of(["--app", "lu", "--class", "A", "--target-s", "5"], 4, 1)
    assert kind_of(["--app", "bt", "--grid", "20", "--itr", "5"], 4, 1).name == "bt.20x20x20"


@pytest.mark.parametrize(
    ("app", "expected"), [("lu", 33), ("bt", 24), ("sp", 36), ("mg", 32), ("jacobi", 64)]
)
def test_job_that_names_no_grid_has_the_usual_one(app: str, expected: int) -> None:
    assert kind_of(["--app", app, "--target-s", "5"], 4, 1).grid == PointGrid(expected, expected, expected)


def test_target_is_read_at_any_place() -> None:
    assert target_of(["--app", "lu", "--target-s", "2.5"]) == 2.5
    assert target_of(["--target-s=3", "--app", "lu"]) == 3.0
    assert target_of(["--app", "lu", "--itr", "5"]) is None
    with pytest.raises(UsageError, match="--target-s"):
        target_of(["--app", "lu", "--target-s", "soon"])


def test_stock_benchmark_is_a_kind_of_its_own(tmp_path: Path) -> None:
    ours = kind_from_words("sp", "S", 4, 1)
    stock = kind_from_words("sp", "S", 4, 1, ["--npb", str(tmp_path)])
    threads = kind_from_words("sp", "S", 3, 1, ["--npb", str(tmp_path), "--npb-omp", "--omp-wait-passive"])
    assert [kind.calibrated_as for kind in (ours, stock, threads)] == ["sp", "npb-sp", "npb-omp-sp-passive"]
    assert stock.name == "npb sp.S"
    assert stock.arguments == ("--app", "sp", "--npb", str(tmp_path), "--class", "S")
    targeted = kind_of(["--npb", str(tmp_path), "--app", "sp", "--class", "S", "--target-s", "9"], 4, 1)
    assert targeted == stock


@pytest.mark.parametrize(
    ("app", "grid_class", "ranks", "nodes", "complaint"),
    [
        ("bt", "S", 2, 1, "square number"),
        ("lu", "S", 4, 3, "do not divide among 3 nodes"),
        ("lu", "D", 4, 1, "lu has S, W, A, B, C"),
        ("jacobi", "S", 1, 1, "jacobi has none"),
        ("is", None, 1, 1, "there are bt, cg, ep, ft, jacobi"),
    ],
)
def test_kind_that_cannot_run_is_refused(
    app: str, grid_class: str | None, ranks: int, nodes: int, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        kind_from_words(app, grid_class, ranks, nodes)


def test_class_is_a_grid_and_itr_a_number_of_steps() -> None:
    options = parse_options(["--app", "mg", "--class", "W", "--itr", "7"])
    assert (options.grid, options.steps) == (PointGrid(128, 128, 128), 7)
    with pytest.raises(UsageError, match="not allowed with"):
        parse_options(["--app", "mg", "--class", "W", "--grid", "32", "--itr", "7"])
