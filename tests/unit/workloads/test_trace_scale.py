from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from foundation.errors import UsageError
from workloads.swf import SwfHeader, SwfJob, SwfTrace
from workloads.trace.scaling.half_hours import scale_trace
from workloads.trace.scaling.slot_choice import (
    OTHER,
    POWER_OF_TWO,
    SERIAL,
    SlotChooser,
    halved,
    kind_of,
    nearest_of_kind,
)


def day(seed: int = 1, jobs: int = 1000) -> SwfTrace:
    """A day on 1,024 processors: a third serial, a third powers of two, a third others."""
    rng = np.random.default_rng(seed)
    made = []
    for number, submit_s in enumerate(sorted(rng.integers(0, 86_400, jobs).tolist()), start=1):
        size = (1, 2 ** int(rng.integers(1, 8)), 3 * int(rng.integers(1, 40)))[number % 3]
        queue = 0 if number % 10 == 0 else 1
        made.append(
            SwfJob(number, submit_s, run_s=60, allocated_procs=size, requested_procs=size, queue=queue)
        )
    return SwfTrace(SwfHeader().with_field("MaxProcs", 1024), tuple(made))


def test_slots_and_kinds_keep_their_shares() -> None:
    scaled, report = scale_trace(day(), 12, 12)
    assert report.slots_within >= 0.95 * len(report.slot_targets)
    assert report.cores == pytest.approx(report.target_cores, rel=0.02)
    assert report.serial_after == pytest.approx(report.serial_before, abs=0.03)
    assert report.power_of_two_after == pytest.approx(report.power_of_two_before, abs=0.03)
    assert report.arrival_distance < 0.1
    assert scaled.header.notes[-1].startswith(
        "osub scale: 1024 to 144 processors (12 nodes of 12), intensity 1, seed 1"
    )


@pytest.mark.parametrize(("size", "target"), [(200, 16.0), (61, 4.9), (128, 11.0), (200, 144.0), (7, 5.0)])
def test_single_wide_job_is_narrowed_until_its_slot_is_on_target(size: int, target: float) -> None:
    chooser = SlotChooser(np.array([0.2, 0.3, 0.5]), 144, 0.1, np.random.default_rng(1))
    places, widths = chooser.choose(np.array([size]), target)
    assert places.tolist() == [0]
    assert kind_of(int(widths[0])) == kind_of(size)
    nearest = nearest_of_kind(round(target), kind_of(size), min(size, 144))
    assert abs(widths[0] - target) <= max(1, 0.1 * target) or widths[0] == nearest


def test_other_seeds_choose_other_jobs() -> None:
    assert scale_trace(day(), 12, 12, seed=1)[0].jobs != scale_trace(day(), 12, 12, seed=2)[0].jobs


def test_interactive_jobs_are_kept_and_narrowed_to_a_node() -> None:
    scaled, report = scale_trace(day(), 12, 12)
    interactive = [job for job in scaled.jobs if job.queue == 0]
    assert len(interactive) == report.interactive_jobs == 100
    assert max(job.procs or 0 for job in interactive) <= 12
    half, _ = scale_trace(day(), 12, 12, interactive_share=0.5)
    assert sum(job.queue == 0 for job in half.jobs) == 50


def test_interactive_jobs_are_scaled_like_others_where_asked() -> None:
    _, report = scale_trace(day(), 12, 12, interactive_queue=None)
    assert (report.jobs_before, report.interactive_jobs) == (1000, 0)


def test_tiny_targets_are_reached_over_several_slots() -> None:
    _, report = scale_trace(day(), 2, 1, interactive_queue=None)
    assert report.cores == pytest.approx(report.target_cores, abs=3)


def test_larger_system_gets_copies_at_other_instants() -> None:
    scaled, report = scale_trace(day(jobs=100), 64, 64, interactive_queue=None)
    assert report.cores == pytest.approx(4 * sum(job.procs or 0 for job in day(jobs=100).jobs), rel=0.1)
    assert len({job.job_number for job in scaled.jobs}) == len(scaled.jobs) > 200
    assert len({job.submit_s for job in scaled.jobs}) > 200


def test_jobs_without_size_are_left_out_and_counted() -> None:
    trace = day(jobs=50)
    bare = replace(trace.jobs[0], allocated_procs=None, requested_procs=None)
    _, report = scale_trace(replace(trace, jobs=(bare, *trace.jobs[1:])), 12, 12)
    assert report.jobs_without_size == 1


def test_system_size_must_be_known() -> None:
    trace = replace(day(jobs=10), header=SwfHeader())
    with pytest.raises(UsageError, match="does not tell its system's size"):
        scale_trace(trace, 2, 1)
    assert scale_trace(trace, 12, 12, from_procs=1024)[0].header.max_procs == 144


@pytest.mark.parametrize(
    "arguments", [{"to_nodes": 0}, {"intensity": 0.0}, {"interactive_share": 1.5}, {"from_procs": 0}]
)
def test_arguments_out_of_range_are_a_usage_error(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        scale_trace(day(jobs=10), **{"to_nodes": 2, "to_cores_per_node": 1, **arguments})


def test_halving_keeps_the_kind_where_the_system_is_wide_enough() -> None:
    assert [halved(12, times, 144) for times in range(4)] == [12, 6, 3, 3]
    assert [halved(20, times, 144) for times in range(4)] == [20, 10, 5, 3]
    assert [halved(16, times, 144) for times in range(6)] == [16, 8, 4, 2, 2, 2]
    assert (halved(12, 0, 2), halved(16, 0, 2), halved(16, 0, 1), halved(1, 3, 1)) == (2, 2, 1, 1)
    assert halved(1024, 0, 144) == 128


def test_nearest_size_of_a_kind() -> None:
    assert nearest_of_kind(12, POWER_OF_TWO, 144) == 8
    assert nearest_of_kind(13, POWER_OF_TWO, 144) == 16
    assert nearest_of_kind(13, POWER_OF_TWO, 15) == 8
    assert nearest_of_kind(4, OTHER, 144) == 3
    assert nearest_of_kind(1, OTHER, 144) == 3
    assert nearest_of_kind(1, OTHER, 2) is None
    assert nearest_of_kind(7, SERIAL, 2) == 1
