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
from analysis.metrics.derived_columns import MetricOptions, stretches, with_derived
from analysis.metrics.run_metrics import completion_by_cpu_time, completion_by_jobs, measure, quantity
from analysis.metrics.slice_metrics import (
    busy_slices,
    core_entries,
    core_lists,
    jain_index,
    node_entries,
    occupancy,
    usage_intervals,
)
from analysis.quantiles import quantile
from foundation.records import JOBS, SLICES, JobRecord, Placement, Run, SliceRecord, parse_cores
from foundation.records.record_checks import check_agreement
from foundation.records.table_files import frame_of
from tests.fixtures.lifecycle_world import LifecycleWorld, lifecycle_world
from tests.fixtures.records import make_ended
from tests.fixtures.tier import examples

SECONDS = ["due_s", "submit_s", "start_s", "end_s", "dedicated_s", "busy_s", "cpu_s"]
instants = st.integers(0, 1000).map(float)


@st.composite
def jobs(draw: st.DrawFn, number: int) -> JobRecord:
    """Draw a job that ran somewhere on two nodes of three cores."""
    submit_s, start_s, end_s = sorted(draw(st.tuples(instants, instants, instants)))
    cores = st.frozensets(st.integers(0, 2), min_size=1).map(lambda ids: tuple(sorted(ids)))
    names = draw(st.sampled_from([("a",), ("b",), ("a", "b")]))
    return make_ended(
        number, submit_s=submit_s, start_s=start_s, end_s=end_s,
        dedicated_s=draw(st.none() | instants), cpu_s=draw(st.none() | instants),
        placement=tuple(Placement(name, draw(cores)) for name in names),
    )  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> pl.DataFrame:
    """Draw a table of up to eight jobs."""
    count = draw(st.integers(1, 8))
    return frame_of([draw(jobs(number)) for number in range(1, count + 1)], JOBS)


@given(tables(), st.integers(0, 100), st.integers(0, 100))
def test_completion_is_monotone_and_ends_with_the_last_job(table: pl.DataFrame, one: int, two: int) -> None:
    derived = with_derived(table)
    for done in (completion_by_jobs(derived, 0.0), completion_by_cpu_time(derived, 0.0)):
        low, high = done.at(min(one, two)), done.at(max(one, two))
        assert low is None or (high is not None and low <= high)
    assert completion_by_jobs(derived, 0.0).at(100) == table["end_s"].max()


@given(tables(), st.sampled_from([2.0, 0.5, 64.0]))
def test_slowdowns_do_not_depend_on_the_unit_of_time(table: pl.DataFrame, factor: float) -> None:
    scaled = table.with_columns(pl.col(SECONDS) * factor)
    for name in ("slowdown", "slowdown_osub", "degradation"):
        assert with_derived(scaled)[name].equals(with_derived(table)[name])
    bounded = with_derived(scaled, MetricOptions(beta_s=10 * factor))["bounded_slowdown"]
    assert bounded.equals(with_derived(table)["bounded_slowdown"])
    before, after = quantity(with_derived(table)["wait_s"]), quantity(with_derived(scaled)["wait_s"])
    assert before.max is not None
    assert after.max == before.max * factor


@given(tables())
def test_slowdowns_are_in_order(table: pl.DataFrame) -> None:
    for row in with_derived(table).iter_rows(named=True):
        assert row["slowdown"] is None or row["slowdown"] >= 1
        if row["slowdown_osub"] is not None:
            assert row["slowdown_osub"] >= row["degradation"]
            assert row["bounded_slowdown"] <= max(1.0, row["slowdown_osub"])


@given(tables())
def test_use_of_cores_is_what_counting_second_by_second_gives(table: pl.DataFrame) -> None:
    held = occupancy(stretches(table))
    entries = core_entries(stretches(table))
    assert held is not None
    assert entries is not None
    load: dict[tuple[str, int, int], int] = {}
    for row in entries.iter_rows(named=True):
        for second in range(int(row["start_s"]), int(row["end_s"])):
            key = (row["node"], row["core"], second)
            load[key] = load.get(key, 0) + 1
    assert (held.occupied_core_s, held.allocated_core_s) == (len(load), sum(load.values()))
    assert held.shared_core_s == sum(count > 1 for count in load.values())


@given(st.lists(st.none() | st.floats(-1e6, 1e6), max_size=30), st.floats(0, 1), st.floats(0, 1))
def test_quantiles_are_monotone_and_in_range(values: list[float | None], one: float, two: float) -> None:
    series = pl.Series(values, dtype=pl.Float64)
    low, high = quantile(series, min(one, two)), quantile(series, max(one, two))
    known = [value for value in values if value is not None]
    if not known:
        assert low is high is None
        return
    assert low is not None
    assert high is not None
    assert min(known) <= low <= high <= max(known)


@given(st.lists(st.floats(0.001, 1e3), min_size=1, max_size=20), st.floats(0.01, 100))
def test_jain_index_lies_between_one_job_and_all_and_has_no_unit(ratios: list[float], factor: float) -> None:
    index = jain_index(pl.Series(ratios))
    assert index is not None
    assert 1 / len(ratios) - 1e-9 <= index <= 1 + 1e-9
    assert jain_index(pl.Series(ratios) * factor) == pytest.approx(index)


@given(st.lists(st.sampled_from(["run", "held", "idle", "free"]), max_size=30))
def test_usage_intervals_add_up_to_the_busy_slices_between_the_first_and_the_last_use(
    roles: list[str],
) -> None:
    rows = [
        SliceRecord(slice=number, start_s=number, length_s=1, job=1, node="n", role=role)  # type: ignore[arg-type]
        for number, role in enumerate(roles)
    ]
    table = usage_intervals(busy_slices(frame_of(rows, SLICES)))
    busy = [role != "held" for role in roles if role != "idle"]
    uses = [turn for turn, used in enumerate(busy) if used]
    assert table["count"].sum() == max(len(uses) - 1, 0)
    total = (table["interval"].cast(pl.Int64) * table["count"]).sum()
    assert total == (uses[-1] - uses[0] if uses else 0)


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
