"""Refusals remembered: a job like one that was just refused, and no shorter, need not be tried.

As long as nothing starts or ends it would get the same cores and stay there at least as long, so it would
delay the queue's head as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simulator.jit.compilation import kernel
from simulator.jit.field_records import IntegerRow, RecordTable, StateAllocator
from simulator.lifecycle.segments import asks_us
from simulator.state.engine_state import EngineState


@dataclass(slots=True, eq=False)
class RefusalRecord:
    """For a shape: the series in which one was refused last, and the shortest request refused in it."""

    series: int = 0
    shortest_us: int = 0


class Refusals(NamedTuple):
    """What was refused; ``series[0]`` counts up whenever earlier refusals lose their force."""

    series: IntegerRow
    by_shape: RecordTable[RefusalRecord]


def no_refusals(make: StateAllocator, shapes: int) -> Refusals:
    """Return the memory of a pass that has not begun, for ``shapes`` different shapes of job."""
    return Refusals(make.row([1]), make.table(RefusalRecord, shapes))


@kernel
def forget_refusals(refusals: Refusals) -> None:
    """Begin a new series: something has started or ended, or time has passed."""
    refusals.series[0] += 1


@kernel
def is_hopeless(state: EngineState, refusals: Refusals, job: int) -> bool:
    """Return whether a job like this one, but no longer, was refused in this series."""
    refused = refusals.by_shape[state.jobs[job].shape]
    return refused.series == refusals.series[0] and refused.shortest_us <= asks_us(state, state.lives, job)


@kernel
def note_refusal(state: EngineState, refusals: Refusals, job: int, request_us: int) -> None:
    """Remember that a job of the shape of ``job`` was refused, with a shorter request than any before."""
    refused = refusals.by_shape[state.jobs[job].shape]
    refused.series = refusals.series[0]
    refused.shortest_us = request_us
