"""A trace of one system scaled to another's size, half hour by half hour.

The idea is thesis section 7.4.3 and Listing 2: in each of the day's 48 slots, choose jobs at random until
their cores, relative to the system's, are within 10 % of the original's; halve sizes where that does not work
out; keep the shares of serial and of power-of-two jobs. What is different, so that it ends for every input:

* Slots follow the trace, not one day, so a trace of any length is scaled.
* What a slot could not place (its target may be a fraction of a core) is carried to the next.
* Halving keeps the kind of a job: a power of two stays one (at least 2), another parallel size stays
  another (at least 3), as far as the target system is wide enough. Serial jobs are not made.
* Where no halving of one or two wide jobs is near enough, the widest gets a size between two halvings.
* A bounded number of random selections is tried at each of finitely many halvings. Of those within 10 % the
  one is taken that brings the shares of kinds nearest to the original; if none is, the nearest to the target.
* At the end, sizes are moved to their neighbours where that mends the shares of kinds.
* For a larger target, jobs are chosen several times; copies get new numbers and other instants in their slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from foundation.errors import UsageError
from foundation.units import counted, counted_of
from workloads.swf import SwfJob, SwfTrace
from workloads.trace.local_clock import to_ms
from workloads.trace.models import interactive_flags
from workloads.trace.scaling.slot_choice import (
    POWER_OF_TWO,
    SERIAL,
    SlotChooser,
    count_kinds,
    halved,
    mend_kinds,
    slack_cores,
)
from workloads.trace.transforms import SLOT_S

MOST_INTENSITY = 1000.0


@dataclass(frozen=True, slots=True)
class ScaleReport:
    """How well a scaled trace resembles its original (batch jobs, but for ``interactive_jobs``).

    Parameters
    ----------
    jobs_before, jobs_after, interactive_jobs, jobs_without_size
        Counts; jobs without a number of processors are left out.
    slots, slot_before, slot_targets, slot_cores
        Half hours of the trace that had jobs, by number from second 0; their cores in the original, and
        those asked for and reached.
    slots_within
        Slots within the tolerance of their target, or within one core of it.
    serial_before, serial_after, power_of_two_before, power_of_two_after
        Shares of the jobs.
    arrival_distance, job_distance
        Kolmogorov-Smirnov distance between the submission instants before and after: weighted by cores, and
        with all jobs alike.
    """

    jobs_before: int
    jobs_after: int
    interactive_jobs: int
    jobs_without_size: int
    slots: tuple[int, ...]
    slot_before: tuple[int, ...]
    slot_targets: tuple[float, ...]
    slot_cores: tuple[int, ...]
    slots_within: int
    serial_before: float
    serial_after: float
    power_of_two_before: float
    power_of_two_after: float
    arrival_distance: float
    job_distance: float

    @property
    def slot_errors(self) -> tuple[float, ...]:
        """Relative error of every slot that asked for cores: reached over asked for, minus 1."""
        return tuple(
            cores / target - 1
            for cores, target in zip(self.slot_cores, self.slot_targets, strict=True)
            if target
        )

    @property
    def target_cores(self) -> float:
        """Cores asked for in all slots."""
        return sum(self.slot_targets)

    @property
    def cores(self) -> int:
        """Cores reached in all slots."""
        return sum(self.slot_cores)


def scale_trace(
    trace: SwfTrace,
    to_nodes: int,
    to_cores_per_node: int,
    seed: int = 1,
    from_procs: int | None = None,
    interactive_queue: int | None = 0,
    interactive_share: float = 1.0,
    intensity: float = 1.0,
    tolerance: float = 0.1,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[SwfTrace, ScaleReport]:
    """Scale ``trace`` to a system of ``to_nodes`` nodes with ``to_cores_per_node`` cores each.

    Parameters
    ----------
    trace
        The original; job numbers, times and queues are kept, sizes become those on the target.
    to_nodes, to_cores_per_node
        The target system. No job is wider than all of it.
    seed
        Of all random choices: the same arguments give the same trace.
    from_procs
        Processors of the original system; by default what the header says.
    interactive_queue
        Jobs of this queue are no part of the slots' targets: a random ``interactive_share`` of them is
        kept and narrowed to one node (thesis Table 7.2). ``None`` scales all jobs alike.
    intensity
        Factor on the target core counts: above 1 for more jobs than the sizes of the systems ask for.
    tolerance
        Of a slot's target.
    progress
        Called with (slots done, slots in all) after every slot.

    Raises
    ------
    UsageError
        An argument is out of range, or the original system's size is not known.
    """
    widest = to_nodes * to_cores_per_node
    size_before = from_procs if from_procs is not None else trace.header.system_procs
    if size_before is None:
        raise UsageError(
            f"the header of {trace.name} does not tell its system's size: give the number of processors"
        )
    if not _in_range(to_nodes, to_cores_per_node, size_before, intensity, interactive_share, tolerance):
        raise UsageError(
            "scaling needs systems of 1 core or more, an intensity above 0 and at most 1,000, an "
            "interactive share of 0 to 1 and a tolerance of 0 or more"
        )
    rng = np.random.default_rng(seed)
    flags = interactive_flags(trace, interactive_queue)
    sized = [(job, flag) for job, flag in zip(trace.jobs, flags, strict=True) if job.procs]
    batch = [job for job, flag in sized if not flag]
    interactive = [job for job, flag in sized if flag]
    ratio = intensity * widest / size_before
    chosen, targets = _scaled(batch, ratio, widest, tolerance, rng, progress or (lambda _done, _all: None))
    kept = sorted(rng.permutation(len(interactive))[: round(interactive_share * len(interactive))].tolist())
    narrowed = [_resized(interactive[i], halved(_width(interactive[i]), 0, to_cores_per_node)) for i in kept]
    if not chosen and not narrowed:
        raise UsageError(
            f"nothing is left of {trace.name} on {counted(widest, 'core')}: take a longer window "
            "or more intensity"
        )
    jobs = sorted(_renumbered([*chosen, *narrowed], trace.jobs), key=lambda job: job.submit_s)
    note = (
        f"osub scale: {size_before} to {counted(widest, 'processor')} ({counted(to_nodes, 'node')} of "
        f"{to_cores_per_node}), intensity {intensity:g}, seed {seed}, "
        f"{counted_of(len(jobs), len(trace.jobs), 'job')}"
    )
    scaled = trace.with_jobs(jobs, note)
    header = scaled.header.with_field("MaxNodes", to_nodes).with_field("MaxProcs", widest)
    report = _report(batch, chosen, targets, tolerance, len(narrowed), len(trace.jobs) - len(sized))
    return replace(scaled, header=header), report


def _in_range(nodes: int, cores: int, procs: int, intensity: float, share: float, tolerance: float) -> bool:
    return (
        min(nodes, cores, procs) >= 1
        and 0 < intensity <= MOST_INTENSITY
        and 0 <= share <= 1
        and tolerance >= 0
    )


def _width(job: SwfJob) -> int:
    return job.procs or 0


def _slot(job: SwfJob) -> int:
    return to_ms(job.submit_s) // (SLOT_S * 1000)


def _scaled(
    batch: list[SwfJob],
    ratio: float,
    widest: int,
    tolerance: float,
    rng: np.random.Generator,
    progress: Callable[[int, int], None],
) -> tuple[list[SwfJob], dict[int, float]]:
    """Return the chosen jobs with their new sizes, and the target of every slot."""
    slots: dict[int, list[SwfJob]] = {}
    for job in batch:
        slots.setdefault(_slot(job), []).append(job)
    targets = {slot: ratio * sum(map(_width, slots[slot])) for slot in sorted(slots)}
    shares = count_kinds([_width(job) for job in batch]) / max(1, len(batch))
    chooser = SlotChooser(shares, widest, tolerance, rng)
    copies = max(1, int(np.ceil(ratio)))
    chosen: list[SwfJob] = []
    widths: list[int] = []
    for done, (slot, target) in enumerate(targets.items(), start=1):
        pool = slots[slot]
        sizes = np.tile(np.array([_width(job) for job in pool], dtype=np.int64), copies)
        places, picked = chooser.choose(sizes, target)
        chosen += (_copy(pool, place, slot, rng) for place in places.tolist())
        widths += picked.tolist()
        progress(done, len(targets))
    slot_of = [_slot(job) for job in chosen]
    mended = mend_kinds(widths, slot_of, partial(_fits, targets, tolerance), shares, widest, rng)
    return [_resized(job, width) for job, width in zip(chosen, mended, strict=True)], targets


def _fits(targets: dict[int, float], tolerance: float, slot: int, cores: int) -> bool:
    return abs(cores - targets[slot]) <= slack_cores(targets[slot], tolerance)


def _copy(pool: list[SwfJob], place: int, slot: int, rng: np.random.Generator) -> SwfJob:
    """Return the job at ``place``; beyond the pool's end, a copy of it at another instant of the slot."""
    job = pool[place % len(pool)]
    if place < len(pool):
        return job
    submit_s = slot * SLOT_S + int(rng.integers(SLOT_S))
    return replace(job, submit_s=submit_s, preceding_job=None, think_s=None)


def _report(
    batch: list[SwfJob],
    chosen: list[SwfJob],
    targets: dict[int, float],
    tolerance: float,
    interactive_jobs: int,
    jobs_without_size: int,
) -> ScaleReport:
    cores, before = dict.fromkeys(targets, 0), dict.fromkeys(targets, 0)
    for job in chosen:
        cores[_slot(job)] += _width(job)
    for job in batch:
        before[_slot(job)] += _width(job)
    return ScaleReport(
        jobs_before=len(batch),
        jobs_after=len(chosen),
        interactive_jobs=interactive_jobs,
        jobs_without_size=jobs_without_size,
        slots=tuple(targets),
        slot_before=tuple(before.values()),
        slot_targets=tuple(targets.values()),
        slot_cores=tuple(cores.values()),
        slots_within=sum(_fits(targets, tolerance, slot, cores[slot]) for slot in targets),
        serial_before=_share(batch, SERIAL),
        serial_after=_share(chosen, SERIAL),
        power_of_two_before=_share(batch, POWER_OF_TWO),
        power_of_two_after=_share(chosen, POWER_OF_TWO),
        arrival_distance=arrival_distance(batch, chosen),
        job_distance=arrival_distance(_of_one_core(batch), _of_one_core(chosen)),
    )


def _of_one_core(jobs: Sequence[SwfJob]) -> list[SwfJob]:
    return [replace(job, allocated_procs=1, requested_procs=None) for job in jobs]


def _resized(job: SwfJob, width: int) -> SwfJob:
    if width == job.allocated_procs and job.requested_procs in (None, width):
        return job
    requested = None if job.requested_procs is None else width
    return replace(job, allocated_procs=width, requested_procs=requested)


def _renumbered(jobs: list[SwfJob], original: tuple[SwfJob, ...]) -> Iterator[SwfJob]:
    following = max(job.job_number for job in original) + 1
    seen: set[int] = set()
    for job in jobs:
        if job.job_number in seen:
            yield replace(job, job_number=following)
            following += 1
        else:
            seen.add(job.job_number)
            yield job


def _share(jobs: list[SwfJob], kind: int) -> float:
    return float(count_kinds([_width(job) for job in jobs])[kind]) / len(jobs) if jobs else 0.0


def arrival_distance(before: Sequence[SwfJob], after: Sequence[SwfJob]) -> float:
    """Return the largest gap between the shares of cores submitted up to any instant, before and after."""
    if not before or not after:
        return float(bool(before) != bool(after))
    instants = np.unique([job.submit_s for job in (*before, *after)])
    curves = [_submitted_share(jobs, instants) for jobs in (before, after)]
    return float(np.abs(curves[0] - curves[1]).max())


def _submitted_share(jobs: Sequence[SwfJob], instants: NDArray[np.float64]) -> NDArray[np.float64]:
    cores = np.zeros(len(instants))
    np.add.at(cores, np.searchsorted(instants, [job.submit_s for job in jobs]), [_width(job) for job in jobs])
    shares: NDArray[np.float64] = np.cumsum(cores) / cores.sum()
    return shares
