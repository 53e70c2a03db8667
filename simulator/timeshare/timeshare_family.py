"""The options of ``--policy timeshare`` and ``--policy timeshare-batch``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from foundation.units import seconds_to_us
from simulator.policies.policy_family import Family, Value, choice, number
from simulator.timeshare.timeshare_pool import MEDIAN, SPREAD, Noise, TimeSharing
from simulator.timeshare.timeshare_state import MOST_JOBS, SharingConfig

if TYPE_CHECKING:
    from simulator.model.system import PoolQueues
    from simulator.simulation import Workload


def _share(values: Mapping[str, Value]) -> TimeSharing:
    manner = SharingConfig(
        cap=int(values["cap"]),
        in_order=values["queue"] == "strict",
        spmd=values["jobs"] == "spmd",
        overhead=float(values["overhead"]),
        tick_us=seconds_to_us(float(values["tick"])),
    )
    return TimeSharing(
        manner=manner,
        noise=_noise(values),
        memory=float(values["memory"]),
        memory_spread=float(values["memory_spread"]),
    )


def _batch(values: Mapping[str, Value]) -> TimeSharing:
    manner = SharingConfig(
        batch=True,
        backfills=values["backfill"] == "yes",
        spmd=values["jobs"] == "spmd",
        tick_us=seconds_to_us(float(values["tick"])),
    )
    return TimeSharing(manner=manner, noise=_noise(values))


def _noise(values: Mapping[str, Value]) -> Noise:
    return Noise(probability=float(values["noise"]), least=float(values["noise_least"]))


def _prepare(workload: Workload, _: PoolQueues, values: Mapping[str, Value], __: int) -> Workload:
    """Round submissions to the nearest tick, halves up."""
    tick_us = seconds_to_us(float(values["tick"]))
    if not tick_us:
        return workload
    return replace(workload, submit_us=(2 * workload.submit_us + tick_us) // (2 * tick_us) * tick_us)


_COMMON = (
    choice(
        "jobs", ("spmd", "any"), "a job is as fast as its slowest node (spmd), or as the mean of its nodes"
    ),
    number("noise", 0.0, 0.0, 1.0, "probability of each node to be slow in a step of 10 s"),
    number("noise_least", 0.5, 0.01, 1.0, "a slow node's speed is drawn from here to 1"),
    number(
        "tick",
        0.0,
        0.0,
        86_400.0,
        "seconds to which submissions are rounded, and at which jobs end; 0: exact",
    ),
)

FAMILIES = (
    Family(
        name="timeshare",
        help="time-sharing of whole nodes: jobs start where there is memory and get max-min fair rates",
        make=_share,
        prepare=_prepare,
        whole_nodes=True,
        options=(
            number("cap", 0, 0, MOST_JOBS, "most jobs on a node; 0: any number"),
            choice(
                "queue", ("each", "strict"), "of those that wait each that fits starts, or the first blocks"
            ),
            number("overhead", 0.0, 0.0, 0.9, "share of every job's performance that is lost"),
            *_COMMON,
            number(
                "memory",
                MEDIAN,
                0.0001,
                0.9,
                "median of the memory of jobs whose memory is not known, as a share of a node",
            ),
            number("memory_spread", SPREAD, 0.0, 3.0, "standard deviation of its logarithm"),
        ),
    ),
    Family(
        name="timeshare-batch",
        help="the batch scheduler for comparison: whole nodes, in order, backfilling by requested time",
        make=_batch,
        prepare=_prepare,
        whole_nodes=True,
        options=(
            choice(
                "backfill",
                ("yes", "no"),
                "a later job starts if it asks for less time than the first must wait",
            ),
            *_COMMON,
        ),
    ),
)
