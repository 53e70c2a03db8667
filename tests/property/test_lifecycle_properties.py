"""Jobs with several attempts: charts, metrics and tables agree."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.charts.gantt_chart import bars
from analysis.charts.run_curves import HEAT_COLUMNS, mean_load, use_over_time
from analysis.metrics.derived_columns import stretches, with_derived
from analysis.metrics.run_metrics import measure
from analysis.metrics.slice_metrics import core_lists, node_entries, occupancy
from foundation.records import Run, parse_cores
from foundation.records.record_checks import check_agreement
from tests.fixtures.lifecycle_world import LifecycleWorld, lifecycle_world
from tests.fixtures.tier import examples

worlds = st.builds(
    lifecycle_world,
    seed=st.integers(0, 2**32 - 1),
    jobs=st.sampled_from([1, 2, 20, 400]),
    nodes=st.sampled_from([1, 3, 200]),
    with_parts=st.booleans(),
)


def held_of(world: LifecycleWorld) -> pl.DataFrame:
    """Return the stretches of a world, which agrees with itself."""
    check_agreement(world.jobs, world.allocations, world.info, "a", "j")
    return stretches(world.jobs, world.allocations)


def core_seconds(world: LifecycleWorld) -> float:
    """Add up the rows one by one."""
    several = {row.job for row in world.held_rows}
    total = 0.0
    for job in world.job_rows:
        if job.job_id not in several:
            assert job.end_s is not None
            assert job.start_s is not None
            total += (job.end_s - job.start_s) * job.cores
    for row in world.held_rows:
        assert row.to_s is not None
        total += (row.to_s - row.from_s) * sum(len(entry.cores) for entry in row.placement or ())
    return total


@examples(40)
@given(worlds)
def test_core_seconds_of_lanes_load_map_and_metrics_are_those_of_the_allocations(
    world: LifecycleWorld,
) -> None:
    held = held_of(world)
    total = core_seconds(world)
    run = Run(Path("RUN"), world.info, world.jobs, world.allocations, None, complete=True)
    assert measure(run).work.allocated_core_s == pytest.approx(total)
    used = occupancy(held)
    assert used is not None
    assert used.allocated_core_s == pytest.approx(total)
    nodes = node_entries(held)
    counted = nodes.join(core_lists(nodes), on="cores", maintain_order="left")
    drawn, _ = bars(counted)
    assert sum((bar.end_s - bar.start_s) * bar.cores for bar in drawn) == pytest.approx(total)
    until = max(float(held["end_s"].max() or 0), 1.0)  # type: ignore[arg-type]
    weight = counted["core"].list.len().to_numpy().astype(float)
    start, end = counted["start_s"].to_numpy(), counted["end_s"].to_numpy()
    load = mean_load(np.zeros(len(weight), np.int64), start, end, weight, 1, until)
    assert load.sum() * until / HEAT_COLUMNS == pytest.approx(total)


@examples(40)
@given(worlds)
def test_time_in_use_is_useful_lost_or_set_up_again(world: LifecycleWorld) -> None:
    held = held_of(world)
    used = occupancy(held)
    assert used is not None
    assert min(used.useful_core_s, used.lost_core_s, used.again_core_s) >= -1e-6
    assert used.occupied_core_s <= used.allocated_core_s + 1e-6
    rows = held.with_columns(lasting=pl.col("end_s") - pl.col("start_s"))
    assert (rows["again_s"] + rows["lost_s"] <= rows["lasting"] + 1e-9).all()
    until = max(float(held["end_s"].max() or 0), 1.0)  # type: ignore[arg-type]
    use = use_over_time(held, world.info.capacity_cores, until)
    assert use is not None
    each = world.info.capacity_cores * until / HEAT_COLUMNS
    assert use.held.sum() * each == pytest.approx(used.occupied_core_s, abs=1e-6)
    assert use.useful.sum() * each == pytest.approx(used.useful_core_s, abs=1e-6)
    assert (use.useful <= use.held + 1e-9).all()


@examples(15)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 30, 120]), st.sampled_from([1, 3, 200]))
def test_use_is_what_counting_second_by_second_gives(seed: int, jobs: int, nodes: int) -> None:
    held = held_of(lifecycle_world(seed, jobs=jobs, nodes=nodes))
    cells: dict[tuple[str, int, int], list[str]] = defaultdict(list)
    for row in held.iter_rows(named=True):
        start, end = int(row["start_s"]), int(row["end_s"])
        for second in range(start, end):
            part = "again" if second < start + row["again_s"] else "useful"
            part = "lost" if second >= end - row["lost_s"] else part
            for entry in row["placement"]:
                for core in parse_cores(entry["cores"]):
                    cells[entry["node"], core, second].append(part)
    used = occupancy(held)
    assert used is not None
    assert used.occupied_core_s == len(cells)
    assert used.shared_core_s == sum(len(parts) > 1 for parts in cells.values())
    for part, core_s in (
        ("again", used.again_core_s),
        ("lost", used.lost_core_s),
        ("useful", used.useful_core_s),
    ):
        counted = sum(parts.count(part) / len(parts) for parts in cells.values())
        assert core_s == pytest.approx(counted, abs=1e-6)


@examples(40)
@given(worlds)
def test_a_job_waits_when_it_holds_nothing_between_submission_and_end(world: LifecycleWorld) -> None:
    derived = with_derived(world.jobs, held=held_of(world))
    allocated: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for one in world.held_rows:
        assert one.to_s is not None
        allocated[one.job].append((one.from_s, one.to_s))
    for row in derived.iter_rows(named=True):
        spans = allocated.get(row["job_id"], [(row["start_s"], row["end_s"])])
        run_s = sum(end - start for start, end in spans)
        assert (row["run_s"], row["wait_s"]) == (run_s, row["end_s"] - row["submit_s"] - run_s)
        assert row["first_wait_s"] == min(start for start, _ in spans) - row["submit_s"]
        assert 0 <= row["first_wait_s"] <= row["wait_s"]
        assert row["useful_s"] == pytest.approx(row["run_s"] - row["lost_s"] - row["again_s"], abs=1e-9)
        assert row["slowdown"] is None or row["slowdown"] >= 1 - 1e-12


@given(st.integers(0, 2**32 - 1))
def test_the_order_of_the_rows_changes_nothing(seed: int) -> None:
    world = lifecycle_world(seed, jobs=20)
    shuffled = world.allocations.sample(fraction=1.0, shuffle=True, seed=seed)
    lasting = pl.col("end_s") > pl.col("start_s")
    one, other = stretches(world.jobs, world.allocations), stretches(world.jobs, shuffled)
    assert one.filter(lasting).equals(other.filter(lasting))
