"""From a utilisation series to busy and idle periods, and back.

Source: thesis section 6.2.3: a sampling period of 5 s with more than 20 % of a core in use is part of a
busy period, any other of an idle one. How many cores are in use while busy is not modelled.
"""

from __future__ import annotations

import math
from itertools import groupby

from foundation.errors import UsageError
from workloads.behaviour.utilisation_series import SAMPLE_S, UtilisationSeries
from workloads.swf import InteractivePattern
from workloads.trace.durations import to_ms, to_s

THRESHOLD_CORES = 0.2


def busy_idle(series: UtilisationSeries, threshold_cores: float = THRESHOLD_CORES) -> InteractivePattern:
    """Return the busy and idle periods of ``series``.

    Raises
    ------
    UsageError
        ``threshold_cores`` is negative.
    """
    if not threshold_cores >= 0:
        raise UsageError(f"a threshold of {threshold_cores:g} cores is not possible: give 0 or more")
    samples = zip(series.lengths_s, series.cores, strict=True)
    runs = [
        (busy, sum(to_ms(length_s) for length_s, _ in members))
        for busy, members in groupby(samples, key=lambda sample: sample[1] > threshold_cores)
    ]
    activations = tuple(to_s(length_ms) for busy, length_ms in runs if busy)
    if not activations:
        return InteractivePattern(to_s(sum(length_ms for _, length_ms in runs)), 0, (), ())
    prologue_s = 0 if runs[0][0] else to_s(runs[0][1])
    epilogue_s = 0 if runs[-1][0] else to_s(runs[-1][1])
    inner = tuple(to_s(length_ms) for busy, length_ms in runs[1:-1] if not busy)
    return InteractivePattern(prologue_s, epilogue_s, activations, inner)


def sampled(name: str, pattern: InteractivePattern, sample_s: float = SAMPLE_S) -> UtilisationSeries:
    """Return the series that a sampler would record of ``pattern``: one core while busy, none while idle.

    The last sample is as long as what is left.
    """
    total_ms, step_ms = to_ms(pattern.total_s), to_ms(sample_s)
    count = math.ceil(total_ms / step_ms)
    busy_ms = [0] * count
    start_ms, busy = 0, False
    for period_s in pattern.periods_s:
        end_ms = start_ms + to_ms(period_s)
        place = start_ms // step_ms
        while busy and start_ms < end_ms:
            until_ms = min(end_ms, (place + 1) * step_ms)
            busy_ms[place] += until_ms - start_ms
            start_ms, place = until_ms, place + 1
        start_ms, busy = end_ms, not busy
    lengths = [min(step_ms, total_ms - place * step_ms) for place in range(count)]
    return UtilisationSeries(
        name,
        tuple(to_s(length) for length in lengths),
        tuple(used / length for used, length in zip(busy_ms, lengths, strict=True)),
    )
