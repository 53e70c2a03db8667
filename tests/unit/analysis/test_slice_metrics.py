from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
import pytest

from analysis.metrics import slice_metrics
from analysis.metrics.run_metrics import measure
from analysis.verdict import verdict_of
from foundation.records import JOBS, SLICES, Placement, SliceRecord, SliceRole
from foundation.records.table_files import frame_of
from tests.fixtures.records import make_ended
from tests.unit.analysis.test_verdict import made_run

ROLES: dict[str, SliceRole] = {"r": "run", "h": "held", "i": "idle", "f": "free"}


def slices_of(patterns: dict[int, str], nodes: tuple[str, ...] = ("n1",)) -> pl.DataFrame:
    """Build slices of one second from a letter a slice: run, held, idle, free, or . for no row."""
    rows = [
        SliceRecord(slice=number, start_s=number, length_s=1, job=job, node=node, role=ROLES[letter])
        for job, pattern in patterns.items()
        for number, letter in enumerate(pattern)
        if letter != "."
        for node in nodes
    ]
    return frame_of(rows, SLICES)


def jobs_on(places: dict[int, dict[str, tuple[int, ...]]]) -> pl.DataFrame:
    """Build jobs with a number of their own and the cores that they hold on each node."""
    rows = [
        make_ended(job, job_id=job, placement=tuple(Placement(node, cores) for node, cores in place.items()))
        for job, place in places.items()
    ]
    return frame_of(rows, JOBS)


def shares_of(slices: pl.DataFrame, jobs: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    return slice_metrics.attained_shares(slices, slice_metrics.busy_slices(slices), jobs)


def intervals(pattern: str, nodes: tuple[str, ...] = ("n1",)) -> dict[int, int]:
    busy = slice_metrics.busy_slices(slices_of({7: pattern}, nodes))
    return {interval: count for _, interval, count in slice_metrics.usage_intervals(busy).iter_rows()}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("rrrr", {1: 3}),
        ("rhrhr", {2: 2}),
        ("rhhr", {3: 1}),
        ("riir", {1: 1}),
        ("rhiihr", {3: 1}),
        ("r...r", {1: 1}),
        ("rhfr", {1: 1, 2: 1}),
        ("hhrhh", {}),
        ("ii", {}),
    ],
)
def test_usage_intervals_count_busy_slices_between_uses(pattern: str, expected: dict[int, int]) -> None:
    assert intervals(pattern) == expected


def test_a_job_on_two_nodes_counts_once() -> None:
    assert intervals("rhr", ("n1", "n2")) == {2: 1}


def test_two_jobs_that_take_turns_are_treated_fairly() -> None:
    shares, missing = shares_of(
        slices_of({1: "rhrh", 2: "hrhr"}), jobs_on({1: {"n1": (0,)}, 2: {"n1": (0, 1)}})
    )
    assert (shares["entitled_s"].to_list(), shares["attained_s"].to_list()) == ([2, 2], [2, 2])
    assert (slice_metrics.jain_index(shares["ratio"]), missing) == (1, 0)


def test_only_contended_busy_slices_count_for_fairness() -> None:
    # Job 2 is idle in the last two slices: what job 1 does then takes nothing from anybody.
    shares, _ = shares_of(slices_of({1: "rrhrr", 2: "hhrii"}), jobs_on({1: {"n1": (0,)}, 2: {"n1": (0,)}}))
    assert (shares["entitled_s"].to_list(), shares["attained_s"].to_list()) == ([1.5, 1.5], [2, 1])
    assert slice_metrics.jain_index(shares["ratio"]) == pytest.approx(0.9)


def test_jobs_on_other_cores_or_nodes_do_not_contend() -> None:
    shares, _ = shares_of(
        slices_of({1: "rr", 2: "rr", 3: "rr"}), jobs_on({1: {"n1": (0,)}, 2: {"n1": (1,)}, 3: {"n2": (0,)}})
    )
    assert shares.height == 0
    assert slice_metrics.jain_index(shares["ratio"]) is None


def test_the_most_crowded_core_decides_what_a_job_is_entitled_to() -> None:
    shares, _ = shares_of(
        slices_of({1: "r", 2: "h", 3: "h"}), jobs_on({1: {"n1": (0, 1)}, 2: {"n1": (0,)}, 3: {"n1": (0,)}})
    )
    assert shares["entitled_s"].to_list() == pytest.approx([1 / 3] * 3)
    wide, _ = shares_of(
        slices_of({1: "r", 2: "h", 3: "h"}), jobs_on({1: {"n1": (0, 1)}, 2: {"n1": (0,)}, 3: {"n1": (1,)}})
    )
    assert wide["entitled_s"].to_list() == [0.5, 0.5, 0.5]


def test_a_busy_job_without_a_known_place_is_counted_as_missing() -> None:
    _, missing = shares_of(slices_of({1: "r", 9: "h"}), jobs_on({1: {"n1": (0,)}}))
    assert missing == 1


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [([1.0, 1.0], 1), ([1.0, 0.0], 0.5), ([2.0, 1.0], 0.9), ([0.0, 0.0], 1), ([], None)],
)
def test_jain_index(ratios: list[float], expected: float | None) -> None:
    assert slice_metrics.jain_index(pl.Series(ratios, dtype=pl.Float64)) == pytest.approx(expected)


def test_a_spread_says_what_it_lacks() -> None:
    values = slice_metrics.spread(pl.Series([5.0, None, -1.0, 3.0]))
    assert (values.known, values.missing, values.min, values.p50, values.p99, values.max) == (
        3, 1, -1, 3, 4.96, 5,
    )  # fmt: skip
    assert slice_metrics.spread(pl.Series([None], dtype=pl.Float64)).p99 is None


def test_the_share_lost_to_switching_is_up_to_the_last_task_thawed() -> None:
    rows = [
        SliceRecord(
            slice=0, start_s=0, length_s=0.25, job=1, node="a", role="run", skew_us=500, freeze_us=500
        ),
        SliceRecord(
            slice=0, start_s=0, length_s=0.25, job=3, node="a", role="run", skew_us=500, freeze_us=2000
        ),
        SliceRecord(
            slice=0, start_s=0, length_s=0.25, job=2, node="a", role="held", skew_us=500, freeze_us=9000
        ),
        SliceRecord(slice=0, start_s=0, length_s=0.25, job=1, node="b", role="run", skew_us=-50),
    ]
    metrics = slice_metrics.measure_slices(frame_of(rows, SLICES), frame_of([], JOBS))
    assert metrics.switching_share == pytest.approx((0.01 + 0) / 2)


def test_crowds_that_change_in_every_slice_are_distinguished() -> None:
    # Job 3 comes and goes on the cores of two jobs of two gangs: entitled 1/3 where it is busy, else 1/2.
    shares, _ = shares_of(
        slices_of({1: "rhhrhh", 2: "hrhhrh", 3: "iiriir"}), jobs_on({job: {"n1": (0,)} for job in (1, 2, 3)})
    )
    assert shares["entitled_s"].to_list() == pytest.approx([4 / 2 + 2 / 3, 4 / 2 + 2 / 3, 2 / 3])
    assert shares["attained_s"].to_list() == [2, 2, 2]


def test_a_controller_that_restarts_and_counts_anew_changes_no_figure() -> None:
    places = jobs_on({1: {"n1": (0,)}, 2: {"n1": (0,)}})
    whole = slices_of({1: "rhrhrh", 2: "hrhrhr"})
    anew = whole.with_columns(pl.col("slice") % 3)
    assert slice_metrics.measure_slices(anew, places) == slice_metrics.measure_slices(whole, places)


def gap(node: str, job: int, start_s: float, length_s: float) -> SliceRecord:
    return SliceRecord(
        slice=int(start_s), start_s=start_s, length_s=length_s, job=job, node=node, role="unattended"
    )


def test_time_without_an_agent_counts_once_a_node_and_in_no_other_metric() -> None:
    attended = slices_of({1: "rhrh", 2: "hrhr", 3: "iiii"})
    gaps = frame_of(
        [gap("n1", 1, 4, 1), gap("n1", 2, 4.5, 0.5), gap("n1", 1, 5, 1), gap("n2", 1, 4, 2)], SLICES
    )
    both = pl.concat([attended, gaps])
    assert slice_metrics.unattended_by_node(both).rows() == [("n1", 4.0, 2.0), ("n2", 0.0, 2.0)]
    jobs = jobs_on({1: {"n1": (0,)}, 2: {"n1": (0,)}, 3: {"n1": (0,)}})
    without, found = slice_metrics.measure_slices(attended, jobs), slice_metrics.measure_slices(both, jobs)
    assert (without.unattended_share, found.unattended_share) == (0.0, 0.5)
    assert msgspec.structs.replace(found, unattended_share=0.0) == without
    assert slice_metrics.measure_slices(gaps, jobs).unattended_share == 1.0


@pytest.mark.parametrize(("length_s", "is_unfit"), [(0.5, False), (2.0, True)])
def test_a_run_without_agents_for_more_than_a_hundredth_is_unfit_and_says_where(
    tmp_path: Path, length_s: float, is_unfit: bool
) -> None:
    run = made_run(tmp_path, "alone", wait_s=10, degradation=1.0, jobs=20)
    attended = slices_of({1: "r" * 100})
    gang = replace(run, slices=pl.concat([attended, frame_of([gap("n2", 1, 100, length_s)], SLICES)]))
    why = measure(gang).unfit
    assert (why is not None) == is_unfit
    if why is not None:
        assert "no agent of gangd acted in 2.0% of the time" in why
        assert "on n2 for 2.00 s" in why
        assert verdict_of([run, gang]).unfit
