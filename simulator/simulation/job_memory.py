"""What a node reserves for a job's memory, and which jobs a node would kill for what they really use."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import numpy.typing as npt

from foundation.errors import InputError
from predictor.memory import COVERAGE, log_of_frame, replayed
from simulator.engine.pool_run import PoolRun
from simulator.jit.field_records import Ints
from workloads.swf import SwfColumns

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class MemoryRule(StrEnum):
    """What a node reserves for a job: its request, its predicted or its real peak, or nothing."""

    REQUESTED = "requested"
    PREDICTED = "predicted"
    USED = "used"
    IGNORED = "ignored"


def reserved_kib(trace: SwfColumns, rule: MemoryRule, most_kib: Floats, coverage: float = COVERAGE) -> Floats:
    """Return the memory a processor that is reserved for each job of a trace.

    Parameters
    ----------
    most_kib
        A processor's share of a node's memory, for each job: what is reserved for it at most, and where
        nothing is known of it.

    Raises
    ------
    InputError
        The trace has no used memory.
    """
    log = log_of_frame(trace.frame)
    if not (log.used_kib > 0).any():
        raise InputError.naming(
            "trace {name} has no used memory (SWF field 7), which {memory} needs", name=trace.name
        )
    if rule is MemoryRule.IGNORED:
        return np.zeros(len(most_kib))
    kib = log.requested_kib
    if rule is not MemoryRule.REQUESTED:
        known = log.used_kib if rule is MemoryRule.USED else replayed(log, coverage)[0]
        kib = np.where(np.isnan(known), kib, known)
    return np.minimum(np.where(np.isnan(kib), most_kib, kib), most_kib)


def killed(run: PoolRun, nodes: int, used_kib: Ints, node_kib: int) -> Bools:
    """Return which jobs of a pool find no memory for their real peaks on one of their nodes.

    A job holds its peak from its start to its end. Where the peaks on a node exceed its memory, the youngest
    job is killed whole, which is the one that has just started. The schedule is as if it had lived.

    Parameters
    ----------
    used_kib
        Shape (jobs of the pool,): what each uses on each of its nodes.
    """
    places = run.places
    jobs = np.flatnonzero(run.end_us > run.start_us)
    who = np.concatenate((jobs, jobs))
    order = np.lexsort((np.repeat((0, 1), len(jobs)), np.concatenate((run.end_us[jobs], run.start_us[jobs]))))
    free = np.full(nodes, node_kib, dtype=np.int64)
    found = np.zeros(len(used_kib), dtype=bool)
    for at in order.tolist():
        job = int(who[at])
        need = int(used_kib[job])
        if need == 0 or found[job]:
            continue
        held = range(int(places.offsets[job]), int(places.offsets[job + 1]))
        parts = [free[int(places.first[one]) :][: int(places.count[one])] for one in held]
        if at < len(jobs):
            for part in parts:
                part += need
        elif any((part < need).any() for part in parts):
            found[job] = True
        else:
            for part in parts:
                part -= need
    return found
