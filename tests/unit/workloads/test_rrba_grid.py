"""RRBA: grids, decomposition, kinds, assignment, options, calibration."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import HostError, InputError, OutputError, UsageError
from workloads.rrba import cuts
from workloads.rrba.calibration_kinds import kind_from_words, kind_of, target_of
from workloads.rrba.drawn_applications import draw_arguments, legal_applications
from workloads.rrba.main import launch_s
from workloads.rrba.rrba_options import parse_options
from workloads.rrba.solvers.applications import APPLICATIONS, application_named, check_fits
from workloads.rrba.steps.calibrations import (
    Calibration,
    Key,
    find_calibration,
    host_type,
    load_calibrations,
    store_calibration,
)
from workloads.task.process_clock import ProcessStart


def test_grid_is_a_cube_or_three_edges() -> None:
    assert cuts.parse_grid("48") == cuts.PointGrid(48, 48, 48)
    assert cuts.parse_grid("128x64x32") == cuts.PointGrid(128, 64, 32)
    assert str(cuts.parse_grid("128x64x32")) == "128x64x32"


@pytest.mark.parametrize(
    "text", ["", "0", "64x64", "64x0x64", "-3", "6.4", "64x64x64x64", "1000001", "99999"]
)
def test_wrong_grid_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--grid"):
        cuts.parse_grid(text)


@given(st.integers(1, 300), st.integers(1, 300))
def test_slabs_cover_every_plane_once_and_differ_by_one_at_most(planes: int, ranks: int) -> None:
    grid = cuts.PointGrid(planes, 4, 4)
    if ranks > planes:
        with pytest.raises(UsageError, match="each rank needs one"):
            cuts.slab_of(grid, ranks, 0)
        return
    slabs = [cuts.slab_of(grid, ranks, rank) for rank in range(ranks)]
    covered = [plane for slab in slabs for plane in range(slab.first, slab.first + slab.planes)]
    assert covered == list(range(planes))
    assert max(slab.planes for slab in slabs) - min(slab.planes for slab in slabs) <= 1


@given(st.integers(1, 5000))
def test_default_grid_has_planes_for_every_rank(ranks: int) -> None:
    APPLICATIONS["jacobi"].check(cuts.default_grid(ranks), ranks)


def test_unknown_application_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="there are bt, cg, ep, ft, jacobi, lu, mg, sp"):
        application_named("none-such")


def test_grid_beyond_the_memory_is_refused(tmp_path: Path) -> None:
    (memory := tmp_path / "meminfo").write_text("MemTotal: 4096 kB\nMemAvailable:    2048 kB\n")
    check_fits(cuts.PointGrid(8, 8, 8), 2 * 2**20, 1, memory)
    with pytest.raises(HostError, match="needs 3 MiB a rank, 1 of them here, and 2 MiB are available"):
        check_fits(cuts.PointGrid(8, 8, 8), 3 * 2**20, 1, memory)
    with pytest.raises(HostError, match="needs 1 MiB a rank, 3 of them here"):
        check_fits(cuts.PointGrid(8, 8, 8), 2**20, 3, memory)


@pytest.mark.parametrize("text", ["", "MemAvailable:\n", "MemAvailable: much kB\n"])
def test_host_that_does_not_report_its_memory_is_trusted(tmp_path: Path, text: str) -> None:
    (memory := tmp_path / "meminfo").write_text(text)
    check_fits(cuts.PointGrid(8, 8, 8), 2**60, 1, memory)
    check_fits(cuts.PointGrid(8, 8, 8), 2**60, 1, tmp_path / "missing")


SQUARES = (1, 4, 9, 16, 25, 36, 49, 64)


def legal(app: str, grid: cuts.PointGrid) -> list[int]:
    def is_legal(ranks: int) -> bool:
        try:
            APPLICATIONS[app].check(grid, ranks)
        except UsageError:
            return False
        return True

    return [ranks for ranks in range(1, 65) if is_legal(ranks)]


def test_legal_rank_counts_are_those_of_the_benchmarks() -> None:
    cube = cuts.PointGrid(64, 64, 64)
    assert legal("bt", cube) == legal("sp", cube) == list(SQUARES)
    assert legal("mg", cube) == [1, 2, 4, 8, 16, 32, 64]
    by_two = {a * b for a in range(1, 12) for b in range(1, 12) if a / 2 <= b <= a}
    assert legal("lu", cube) == sorted(ranks for ranks in by_two if ranks <= 64)
    assert {3, 5, 7, 10, 11}.isdisjoint(legal("lu", cube))
    assert {2, 4, 6, 8, 9, 12}.issubset(legal("lu", cube))


@pytest.mark.parametrize(
    ("app", "grid", "ranks", "complaint"),
    [
        ("bt", cuts.PointGrid(64, 64, 64), 2, "square number of ranks"),
        ("sp", cuts.PointGrid(12, 12, 12), 49, "needs 14 points"),
        ("lu", cuts.PointGrid(64, 64, 64), 3, "n1/2 <= n2 <= n1"),
        ("lu", cuts.PointGrid(64, 2, 64), 9, "needs 3 rows"),
        ("mg", cuts.PointGrid(64, 64, 64), 6, "power of two"),
        ("mg", cuts.PointGrid(48, 48, 48), 2, "cube with an edge"),
        ("mg", cuts.PointGrid(8, 8, 16), 2, "cube with an edge"),
        ("mg", cuts.PointGrid(8, 8, 8), 512, "an edge of 16"),
        ("cg", cuts.PointGrid(64, 64, 64), 1, "ORDERxENTRIESx1"),
        ("cg", cuts.PointGrid(64, 7, 1), 1, "even number"),
        ("cg", cuts.PointGrid(8, 4, 1), 9, "each rank needs one"),
        ("ft", cuts.PointGrid(64, 64, 64), 3, "do not divide"),
        ("ft", cuts.PointGrid(64, 6, 64), 4, "do not divide"),
        ("ep", cuts.PointGrid(4, 4, 4), 5, "each rank needs one"),
    ],
)
def test_illegal_count_says_which_are_legal(
    app: str, grid: cuts.PointGrid, ranks: int, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        APPLICATIONS[app].check(grid, ranks)


@pytest.mark.parametrize("ranks", SQUARES)
def test_multipartition_gives_every_point_to_one_rank_and_every_slab_one_cell_of_each(ranks: int) -> None:
    grid = cuts.PointGrid(17, 20, 23)
    owners = np.full((17, 20, 23), -1)
    for rank in range(ranks):
        part = cuts.multipartition(grid, ranks, rank)
        for cell in part.cells:
            box = tuple(slice(a, a + n) for a, n in zip(cell.first, cell.extent, strict=True))
            assert (owners[box] == -1).all()
            owners[box] = rank
        for axis, slab in itertools.product(range(3), range(part.cuts)):
            assert [cell.place[axis] for cell in part.cells].count(slab) == 1
    assert (owners >= 0).all()


@pytest.mark.parametrize("ranks", SQUARES[1:])
def test_neighbours_of_all_cells_of_a_rank_belong_to_one_rank(ranks: int) -> None:
    grid = cuts.PointGrid(16, 16, 16)
    parts = [cuts.multipartition(grid, ranks, rank) for rank in range(ranks)]
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
    grid = cuts.PointGrid(5, 19, 17)
    pencils = [cuts.pencil(grid, ranks, rank) for rank in range(ranks)]
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
    first, second = cuts.rank_grid(ranks)
    assert first * second == ranks


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16, 32, 64])
def test_boxes_are_equal_and_close_on_themselves(ranks: int) -> None:
    boxes = [cuts.box_of(ranks, rank) for rank in range(ranks)]
    assert np.prod(cuts.rank_box(ranks)) == ranks
    assert {box.first(32) for box in boxes} == set(
        itertools.product(*(range(0, 32, 32 // parts) for parts in cuts.rank_box(ranks)))
    )
    for rank, axis in itertools.product(range(ranks), range(3)):
        assert boxes[boxes[rank].neighbour(axis, 1)].neighbour(axis, -1) == rank


@pytest.mark.parametrize("app", ["lu", "bt", "sp", "mg", "cg", "ft"])
def test_memory_falls_with_the_ranks_and_the_large_class_needs_gibibytes(app: str) -> None:
    application = APPLICATIONS[app]
    assert list(application.classes) == ["S", "W", "A", "B", "C"]
    grid = application.classes["C"]
    alone, shared = application.rank_bytes(grid, 1), application.rank_bytes(grid, 16)
    assert alone > 2**28
    assert alone / 17 < shared < alone / 10


def test_kind_is_application_grid_ranks_and_nodes_whatever_the_target() -> None:
    short = kind_of(["--app", "lu", "--class", "A", "--target-s", "5"], 4, 2)
    assert short == kind_of(["--app", "lu", "--grid", "64", "--target-s", "500"], 4, 2)
    assert (short.name, short.arguments) == ("lu.A", ("--app", "lu", "--grid", "64x64x64"))
    assert short != kind_of(["--app", "lu", "--class", "A", "--target-s", "5"], 4, 1)
    assert kind_of(["--app", "bt", "--grid", "20", "--itr", "5"], 4, 1).name == "bt.20x20x20"


@pytest.mark.parametrize(
    ("app", "expected"), [("lu", 33), ("bt", 24), ("sp", 36), ("mg", 32), ("jacobi", 64)]
)
def test_job_that_names_no_grid_has_the_usual_one(app: str, expected: int) -> None:
    assert kind_of(["--app", app, "--target-s", "5"], 4, 1).grid == cuts.PointGrid(
        expected, expected, expected
    )


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
    assert (options.grid, options.steps) == (cuts.PointGrid(128, 128, 128), 7)
    with pytest.raises(UsageError, match="not allowed with"):
        parse_options(["--app", "mg", "--class", "W", "--grid", "32", "--itr", "7"])


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (1, ["lu", "bt", "mg", "sp"]),
        (2, ["lu", "mg"]),
        (4, ["lu", "bt", "mg", "sp"]),
        (9, ["lu", "bt", "sp"]),
        (3, []),
    ],
)
def test_only_applications_that_run_on_the_ranks_are_drawn(ranks: int, expected: list[str]) -> None:
    assert legal_applications(ranks) == expected


def test_draw_is_repeated_by_its_seed_and_takes_all_in_turn() -> None:
    first, again = (
        [draw_arguments(4, 2.5, rng, grid_class="W").split() for _ in range(200)]
        for rng in (random.Random(3), random.Random(3))
    )
    assert first == again
    kinds = Counter(kind_of(words, 4, 1).name for words in first)
    assert set(kinds) == {"lu.W", "bt.W", "mg.W", "sp.W"}
    assert min(kinds.values()) > 30
    assert {target_of(words) for words in first} == {2.5}


def test_ranks_that_suit_none_run_what_runs_on_any() -> None:
    assert draw_arguments(3, 10.0, random.Random(1), grid_class="W") == "--app jacobi --target-s 10"


def test_class_that_an_application_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match="lu has no class 'D'"):
        legal_applications(1, grid_class="D")


def test_target_leaves_the_grid_to_the_ranks() -> None:
    options = parse_options(["--app", "jacobi", "--target-s", "2.5"])
    assert (options.application.name, options.target_s, options.steps, options.grid) == (
        "jacobi",
        2.5,
        None,
        None,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--app", "jacobi"],
        ["--target-s", "1"],
        ["--app", "none-such", "--steps", "1"],
        ["--app", "jacobi", "--steps", "1", "--target-s", "1"],
        ["--app", "jacobi", "--steps", "0"],
        ["--app", "jacobi", "--steps", "1.5"],
        ["--app", "jacobi", "--steps", "9999999999999"],
        ["--app", "jacobi", "--target-s", "0"],
        ["--app", "jacobi", "--target-s", "-1"],
        ["--app", "jacobi", "--target-s", "nan"],
        ["--app", "jacobi", "--target-s", "inf"],
        ["--app", "jacobi", "--steps", "1", "--grid", "x"],
        ["--app", "jacobi", "--calibrate-s", "1"],
        ["--app", "jacobi", "--steps", "1", "--calibration", "file"],
        ["--app", "jacobi", "--steps", "1", "surplus"],
    ],
)
def test_wrong_options_are_refused(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_options(arguments)


@pytest.mark.parametrize(
    ("stamp", "seconds"), [("9750", 0.25), ("10001", 0.0), ("1", 0.0), ("soon", 0.0), ("", 0.0)]
)
def test_launch_counts_from_the_wrappers_stamp_if_it_can_be_true(stamp: str, seconds: float) -> None:
    begin = ProcessStart(monotonic_s=1.0, epoch_ms=10_000)
    assert launch_s({"OSUB_WRAPPER_START_MS": stamp}, begin) == seconds
    assert launch_s({}, begin) == 0.0


KEY = Key("x86_64, A, 2 CPUs", "jacobi", "64x64x64", 2, 1)


def calibration(key: Key = KEY, step_s: float = 0.001) -> Calibration:
    return Calibration(key, step_s, overhead_s=0.2, steps=1000, measured_ms=1)


def test_stored_calibration_is_found_by_its_key_alone(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    store_calibration(path, calibration())
    assert find_calibration(path, KEY) == calibration()
    assert find_calibration(path, Key("x86_64, B, 2 CPUs", "jacobi", "64x64x64", 2, 1)) is None
    assert find_calibration(path, Key(KEY.host_type, "jacobi", "64x64x64", 4, 1)) is None


def test_newer_calibration_takes_the_place_of_the_older(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    other = Key(KEY.host_type, "jacobi", "64x64x64", 1, 1)
    store_calibration(path, calibration(step_s=0.001))
    store_calibration(path, calibration(other, step_s=0.5))
    store_calibration(path, calibration(step_s=0.002))
    assert {entry.key: entry.step_s for entry in load_calibrations(path)} == {KEY: 0.002, other: 0.5}


def test_jobs_that_store_together_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    keys = [Key(KEY.host_type, "jacobi", "64x64x64", ranks, 1) for ranks in range(1, 9)]
    threads = [threading.Thread(target=store_calibration, args=(path, calibration(key))) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {entry.key for entry in load_calibrations(path)} == set(keys)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"schema": 2, "entries": []}', '{"schema": 1, "entries": [{"key": 1}]}', "\x00"]
)
def test_file_of_another_form_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    (path := tmp_path / "steps.json").write_text(text)
    with pytest.raises(InputError, match=r"steps\.json"):
        find_calibration(path, KEY)
    with pytest.raises(InputError):
        store_calibration(path, calibration())
    assert path.read_text() == text


def test_step_of_no_time_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    store_calibration(path, calibration(step_s=0.0))
    with pytest.raises(InputError, match=r"a step of 0\.0 s"):
        load_calibrations(path)


def test_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--calibrate-s"):
        find_calibration(tmp_path / "steps.json", KEY)


def test_folder_that_is_not_there_cannot_be_stored_in(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write calibration"):
        store_calibration(tmp_path / "missing" / "steps.json", calibration())


def test_host_type_names_the_processor(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Some   CPU @ 2 GHz\n\n")
    assert ", Some CPU @ 2 GHz, " in host_type(cpuinfo)
    assert ", unknown processor, " in host_type(tmp_path / "missing")
