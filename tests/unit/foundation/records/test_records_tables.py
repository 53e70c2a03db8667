from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from foundation.errors import InputError, OutputError
from foundation.id_list import write_ids
from foundation.records import (
    ALLOCATIONS,
    JOBS,
    SLICES,
    AllocationRecord,
    Placement,
    PlacementArrays,
    SliceRecord,
    load_run,
    parse_cores,
    write_run,
)
from foundation.records.table_files import frame_of, rows_of
from tests.fixtures.records import make_ended, make_info, make_trace

JOB_COUNT = 70_000


def many_jobs(count: int = JOB_COUNT) -> tuple[pl.DataFrame, PlacementArrays]:
    """Make jobs of 0 to 3 nodes (none: the job was refused)."""
    rng = np.random.default_rng(7)
    nodes = rng.integers(0, 4, count)
    offsets = np.concatenate(([0], np.cumsum(nodes)))
    first = np.repeat(rng.integers(0, 40, count), nodes)
    placements = PlacementArrays(
        offsets=offsets,
        node=(first + np.arange(offsets[-1]) - np.repeat(offsets[:-1], nodes)) % 40,
        cores=rng.integers(0, 3, offsets[-1]),
        node_names=[f"node{number}" for number in range(40)],
        core_sets=["0-7", "0,2", "4-7"],
    )
    due_s = np.sort(rng.random(count) * 1e6).round(6)
    ran = pl.Series(nodes > 0)
    frame = pl.DataFrame(
        {
            "trace_job": np.arange(1, count + 1),
            "kind": np.where(rng.random(count) < 0.1, "interactive", "batch"),
            "nodes": np.maximum(nodes, 1),
            "cores": np.maximum(nodes, 1) * 8,
            "due_s": due_s,
            "submit_s": due_s,
            "start_s": due_s + 1.5,
            "end_s": due_s + 9.25,
            "state": np.where(nodes > 0, "COMPLETED", "REFUSED"),
        }
    ).with_columns(pl.when(ran).then(pl.col("start_s", "end_s")))
    return frame, placements


@pytest.fixture(name="trace")
def _trace(tmp_path: Path) -> Path:
    return make_trace(tmp_path)


def test_the_same_jobs_give_the_same_bytes_in_any_order_and_form(tmp_path: Path, trace: Path) -> None:
    jobs, placements = many_jobs()
    order = np.random.default_rng(1).permutation(jobs.height)
    listed = jobs.with_columns(placements.column().alias("placement"))
    info = make_info()
    write_run(tmp_path / "a", info, trace, jobs, placements=placements)
    write_run(tmp_path / "b", info, trace, jobs[order], placements=placements.reorder(order))
    write_run(tmp_path / "c", info, trace, listed)
    write_run(tmp_path / "d", info, trace, listed[order])
    contents = {(tmp_path / name / "jobs.parquet").read_bytes() for name in "abcd"}
    assert len(contents) == 1
    assert load_run(tmp_path / "d").jobs.select(listed.columns).equals(listed)


def test_the_number_of_threads_does_not_change_the_bytes(tmp_path: Path, trace: Path) -> None:
    program = (
        "import sys; from pathlib import Path;"
        "from tests.unit.foundation.records.test_records_tables import many_jobs;"
        "from tests.fixtures.records import make_info; from foundation.records import write_run;"
        "jobs, placements = many_jobs();"
        "write_run(Path(sys.argv[1]), make_info(), Path(sys.argv[2]), jobs, placements=placements)"
    )
    contents = set()
    for threads in ("1", "3"):
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / threads), str(trace)],
            check=True,
            env={**os.environ, "POLARS_MAX_THREADS": threads},
        )
        contents.add((tmp_path / threads / "jobs.parquet").read_bytes())
    assert len(contents) == 1


def test_a_run_can_be_read_without_its_placements(tmp_path: Path, trace: Path) -> None:
    jobs, placements = many_jobs(100)
    write_run(tmp_path / "RUN", make_info(), trace, jobs, placements=placements)
    light = load_run(tmp_path / "RUN", placement=False)
    assert light.jobs.equals(load_run(tmp_path / "RUN").jobs.drop("placement"))


def test_all_tables_and_events_come_back(tmp_path: Path, trace: Path) -> None:
    place = (Placement("n1", (0, 5)), Placement("n2", (1,)))
    job = make_ended(placement=place)
    allocation = AllocationRecord(job=101, from_s=1, to_s=3, placement=place, why="start", wasted_s=0.5)
    held = SliceRecord(slice=3, start_s=0.75, length_s=0.25, job=101, node="n1", role="held", skew_us=-3)
    write_run(
        tmp_path / "RUN",
        make_info(kind="simulated", wall_s=0.5, system="N2C6"),
        trace,
        frame_of([job], JOBS),
        allocations=frame_of([allocation], ALLOCATIONS),
        slices=frame_of([held], SLICES),
        events=[{"kind": "clipped", "trace_job": 1}],
    )
    run = load_run(tmp_path / "RUN")
    assert run.complete
    assert list(rows_of(run.jobs, JOBS)) == [job]
    assert run.allocations is not None
    assert list(rows_of(run.allocations, ALLOCATIONS)) == [allocation]
    assert run.slices is not None
    assert list(rows_of(run.slices, SLICES)) == [held]
    assert list(run.events()) == [{"kind": "clipped", "trace_job": 1}]


def test_a_broken_row_leaves_no_folder_and_names_the_final_file(tmp_path: Path, trace: Path) -> None:
    frame = frame_of([make_ended(3, nodes=0)], JOBS)
    with pytest.raises(InputError, match=r"/RUN/jobs\.parquet: column nodes of trace_job 3"):
        write_run(tmp_path / "RUN", make_info(), trace, frame)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.swf"]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"offsets": np.array([0, 2, 1])}, "offsets"),
        ({"node": np.array([0, 9])}, "node indices"),
        ({"cores": np.array([-1, 0])}, "core set indices"),
        ({"core_sets": ["3-1"]}, "ends before it begins"),
        ({"node_names": ["a", "a"]}, "empty or repeated"),
        ({"offsets": np.array([0, 2, 2]), "node": np.array([1, 1])}, "node twice"),
        ({"offsets": np.array([0, 2])}, "1 placement for 2 jobs"),
    ],
)
def test_placement_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, trace: Path, broken: dict[str, object], message: str
) -> None:
    fields: dict[str, object] = {
        "offsets": np.array([0, 1, 2]),
        "node": np.array([0, 1]),
        "cores": np.array([0, 0]),
        "node_names": ["a", "b"],
        "core_sets": ["0-1"],
        **broken,
    }
    jobs = frame_of([make_ended(1), make_ended(2)], JOBS).drop("placement")
    with pytest.raises(InputError, match=message):
        write_run(tmp_path / "RUN", make_info(), trace, jobs, placements=PlacementArrays(**fields))  # type: ignore[arg-type]


@pytest.fixture(name="small_disk")
def _small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("only root can mount the small disk of this test")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_leaves_nothing_half_written(small_disk: Path, trace: Path) -> None:
    jobs, placements = many_jobs()
    with pytest.raises(OutputError, match=r"RUN/jobs\.parquet: the disk is full; free some space"):
        write_run(small_disk / "RUN", make_info(), trace, jobs, placements=placements)
    assert list(small_disk.iterdir()) == []


def test_core_ids_have_one_notation() -> None:
    assert write_ids([7, 0, 1, 2, 9, 10]) == "0-2,7,9-10"
    assert parse_cores("0-2,7,9-10") == (0, 1, 2, 7, 9, 10)
    assert write_ids([]) == ""
