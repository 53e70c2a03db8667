from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.metrics.derived_columns import MetricOptions, stretches, with_derived
from analysis.metrics.run_metrics import completion_by_cpu_time, completion_by_jobs, quantity
from analysis.metrics.slice_metrics import busy_slices, core_entries, jain_index, occupancy, usage_intervals
from analysis.quantiles import quantile
from foundation.records import JOBS, SLICES, JobRecord, Placement, SliceRecord
from foundation.records.table_files import frame_of
from tests.fixtures.records import make_ended

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
