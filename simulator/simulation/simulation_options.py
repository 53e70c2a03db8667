"""What a simulation is set to, and which jobs can run under that.

Nodes and cores a node for every job of a trace, and what becomes of jobs that fit nowhere.

Source: thesis section 5.2.4; the rule itself is ``workloads.job_shape``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from foundation.errors import InputError, UsageError
from foundation.units import counted
from predictor.memory import COVERAGE
from simulator.engine.run_rules import RunRules
from simulator.jit.field_records import Ints
from simulator.model.system import NodePool, PoolQueues, System
from simulator.pairing import PairTable
from simulator.simulation.job_memory import MemoryRule
from simulator.simulation_spec import SimulationSpec
from workloads.job_shape import JobShape, job_shape

_Choice = TypeVar("_Choice", bound=StrEnum)


class OversizeRule(StrEnum):
    """What to do with a job that can never run on its pool."""

    FAIL = "fail"
    SKIP = "skip"
    CLIP = "clip"


class ZeroLength(StrEnum):
    """What to do with a job whose run time is zero or unknown."""

    FAIL = "fail"
    SKIP = "skip"
    KEEP = "keep"


class TimeLimitRule(StrEnum):
    """What a run time beyond the requested time means.

    ``RAISE``: the request was wrong and is raised to the run time. ``ENFORCE``: the job is stopped when its
    progress reaches the request.
    """

    RAISE = "raise"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """How a trace becomes jobs.

    Parameters
    ----------
    interactive_queue
        SWF queue of interactive jobs; None: there are none.
    speedup
        Divides submit, run, requested, busy and idle times.
    oversize, zero_length, limits
        See the enumerations.
    dependencies
        Whether a job that names a preceding one is submitted after its end; None: where the policy can.
    memory, memory_coverage
        What a node reserves for a job, and the coverage of predicted peaks; None: its memory in the trace.
    """

    interactive_queue: int | None = 0
    speedup: float = 1.0
    oversize: OversizeRule = OversizeRule.SKIP
    zero_length: ZeroLength = ZeroLength.SKIP
    limits: TimeLimitRule = TimeLimitRule.RAISE
    dependencies: bool | None = None
    memory: MemoryRule | None = None
    memory_coverage: float = COVERAGE


def cleaning_of(spec: SimulationSpec) -> Cleaning:
    """Return how a specification makes jobs of its trace; an ``interactive_queue`` of -1 is none.

    Raises
    ------
    UsageError
        A word is not known.
    """
    return Cleaning(
        interactive_queue=None if spec.interactive_queue < 0 else spec.interactive_queue,
        speedup=spec.speedup,
        oversize=_choice(OversizeRule, "oversize", spec.oversize or "skip"),
        zero_length=_choice(ZeroLength, "zero_length", spec.zero_length),
        limits=_choice(TimeLimitRule, "limits", spec.limits),
        dependencies=spec.dependencies,
        memory=None if spec.memory is None else _choice(MemoryRule, "memory", spec.memory),
        memory_coverage=spec.memory_coverage,
    )


def _choice(kind: type[_Choice], field: str, word: str) -> _Choice:
    try:
        return kind(word)
    except ValueError:
        raise UsageError.naming(
            f"{{{field}}} takes {{known}}, not {{word!r}}", known=", ".join(kind), word=word
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSetting:
    """One simulated setting of a system: its queues and its rules."""

    system: System
    queues: PoolQueues
    rules: RunRules
    pairing: PairTable | None = None


SKIPPED, CLIPPED = "too large, skipped", "too large, clipped"
"""Reasons by which jobs that fit nowhere are counted."""
_KIB_PER_MIB = 1024


class DemandColumns(Protocol):
    """The columns of a trace that shapes depend on."""

    name: str
    number: Ints
    procs: Ints
    memory_kib: npt.NDArray[np.float64]
    interactive: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """Nodes (0: left out), cores a node and memory a processor of each job, and counts by reason."""

    nodes: Ints
    cores: Ints
    memory_kib: npt.NDArray[np.float64]
    counts: Mapping[str, int]


def job_shapes(
    trace: DemandColumns,
    keep: npt.NDArray[np.bool_],
    queues: PoolQueues,
    oversize: OversizeRule,
    node_memory_kib: int | None,
) -> Shapes:
    """Return the shapes of the jobs in ``keep``.

    A job that is clipped gets the largest shape with at most its processors, and at most the memory that this
    shape leaves to a processor.

    Raises
    ------
    InputError
        A job fits nowhere and ``oversize`` is ``FAIL``.
    """
    nodes = np.zeros(len(keep), dtype=np.int64)
    cores = np.zeros(len(keep), dtype=np.int64)
    memory_kib = trace.memory_kib.copy()
    counts = {SKIPPED: 0, CLIPPED: 0}
    for pool in queues.pools:
        belongs = (trace.interactive == (pool is queues.interactive)) if queues.is_mq else keep
        mine = np.flatnonzero(keep & belongs)
        kib = memory_kib[mine] if node_memory_kib is not None else np.full(len(mine), np.nan)
        kinds, members = _kinds(trace.procs[mine], kib)
        table = np.zeros((3, len(kinds)))
        for kind, first in enumerate(kinds):
            procs = int(trace.procs[mine[first]])
            known_kib = None if np.isnan(kib[first]) else float(kib[first])
            shape = _shape(procs, known_kib, pool, node_memory_kib)
            most_kib = np.inf
            if shape is None:
                jobs = int((members == kind).sum())
                if oversize is OversizeRule.FAIL:
                    raise _never_fits(trace, int(mine[first]), procs, known_kib, pool)
                if oversize is OversizeRule.SKIP:
                    counts[SKIPPED] += jobs
                    continue
                counts[CLIPPED] += jobs
                shape, most_kib = _clipped(procs, known_kib, pool, node_memory_kib)
            table[:, kind] = shape.nodes, shape.cores, most_kib
        nodes[mine], cores[mine] = table[:2, members]
        memory_kib[mine] = np.minimum(memory_kib[mine], table[2, members])
    return Shapes(nodes, cores, memory_kib, counts)


def whole_node_shapes(
    trace: DemandColumns,
    keep: npt.NDArray[np.bool_],
    queues: PoolQueues,
    oversize: OversizeRule,
    node_memory_kib: int | None,
) -> Shapes:
    """Return as few whole nodes as have each job's processors, and the memory that they are to have.

    Memory is that of a processor held, so that of a node is the same as if only those asked for were held.

    Raises
    ------
    InputError
        A job fits nowhere and ``oversize`` is ``FAIL``.
    """
    pool = queues.batch
    each = np.full(len(keep), pool.cores, dtype=np.int64)
    if node_memory_kib is not None:
        fitting = node_memory_kib // np.maximum(np.nan_to_num(trace.memory_kib), 1)
        each = np.minimum(each, fitting.astype(np.int64))
    nodes = np.where(keep & (each > 0), -(-trace.procs // np.maximum(each, 1)), 0)
    too_large = keep & ((each == 0) | (nodes > pool.nodes))
    memory_kib = trace.memory_kib * (-(-trace.procs // np.maximum(nodes, 1))) / pool.cores
    counts = {SKIPPED: 0, CLIPPED: 0}
    if too_large.any():
        job = int(np.flatnonzero(too_large)[0])
        if oversize is OversizeRule.FAIL:
            known_kib = None if np.isnan(trace.memory_kib[job]) else float(trace.memory_kib[job])
            raise _never_fits(trace, job, int(trace.procs[job]), known_kib, pool)
        clips = oversize is OversizeRule.CLIP
        counts[CLIPPED if clips else SKIPPED] = int(too_large.sum())
        nodes[too_large] = pool.nodes if clips else 0
        if node_memory_kib is not None:
            memory_kib = np.minimum(memory_kib, node_memory_kib / pool.cores)
    return Shapes(nodes, np.where(nodes > 0, pool.cores, 0), memory_kib, counts)


def _kinds(procs: Ints, kib: npt.NDArray[np.float64]) -> tuple[Ints, Ints]:
    """Return the first job of each different demand, and for each job which demand it has."""
    rank = np.unique(kib, return_inverse=True, equal_nan=True)[1]
    _, first, inverse = np.unique(
        procs * (rank.max(initial=0) + 1) + rank, return_index=True, return_inverse=True
    )
    return first, inverse


def _shape(procs: int, kib: float | None, pool: NodePool, node_memory_kib: int | None) -> JobShape | None:
    return job_shape(
        procs,
        pool.nodes,
        pool.cores,
        None if kib is None else kib / _KIB_PER_MIB,
        None if node_memory_kib is None else node_memory_kib / _KIB_PER_MIB,
    )


def _clipped(
    procs: int, kib: float | None, pool: NodePool, node_memory_kib: int | None
) -> tuple[JobShape, float]:
    """Return the largest shape of at most ``procs`` processors, and the memory (KiB) it leaves to each."""
    size = min(procs, pool.nodes * pool.cores)
    while size > 1 and _shape(size, kib, pool, node_memory_kib) is None:
        size -= 1
    shape = _shape(size, kib, pool, node_memory_kib) or JobShape(1, 1)
    return shape, np.inf if node_memory_kib is None else node_memory_kib / shape.cores


def _never_fits(trace: DemandColumns, job: int, procs: int, kib: float | None, pool: NodePool) -> InputError:
    memory = "" if kib is None else f" with {kib / _KIB_PER_MIB:.0f} MiB each"
    where = f"the {pool.nodes} nodes of {pool.cores} cores for {pool.name} jobs"
    return InputError.naming(
        f"job {trace.number[job]} of trace {{name}} asks for {counted(procs, 'processor')}{memory} and "
        f"can never run on {where}: choose {{oversize}} skip or clip",
        name=trace.name,
    )
