"""Bind a task of a job to the very core that Slurm gave it, where several nodes share one host.

On the embedded cluster a node's slurmd is confined to a set of CPUs, and Slurm's core ids are places
in the sorted list of that set. Whoever starts the job sets ``OSUB_PIN=1`` and ``OSUB_JOB_CORES``,
Slurm's core ids of the job by node: ``node1:0,1;node2:0-3,6``. What cannot be carried out is a
warning in the job's report, never a failed job: an unpinned task still does its work.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from foundation.id_list import read_ids
from foundation.units import counted, verb

# More than any node has: a typing error such as 0-99999999 must not fill the memory.
CORE_ID_LIMIT = 65_536


@dataclass(frozen=True, slots=True)
class Pin:
    """What is to be bound: to ``cpu``, or to nothing, and then ``warning`` says why if it was asked for."""

    cpu: int | None = None
    warning: str | None = None


def parse_job_cores(text: str) -> dict[str, tuple[int, ...]]:
    """Return Slurm's core ids of a job by node name, ascending.

    Raises
    ------
    ValueError
        ``text`` has not the form ``node1:0,1;node2:0-3,6``; the message quotes the part at fault.
    """
    cores: dict[str, tuple[int, ...]] = {}
    for part in filter(None, text.split(";")):
        node, colon, ids = part.partition(":")
        if not node or not colon or node in cores:
            raise ValueError(f"{part!r} is not of the form node:0,1 with each node once")
        try:
            cores[node] = read_ids(ids, CORE_ID_LIMIT)
        except ValueError as error:
            raise ValueError(f"{ids[:80]!r} is not a list of core ids: {error}") from error
    return cores


def choose_pin(environment: Mapping[str, str], node: str | None, index: int, allowed: Collection[int]) -> Pin:
    """Return the CPU for the task at place ``index`` of the job's tasks on ``node``.

    Parameters
    ----------
    environment
        Holds ``OSUB_PIN`` and ``OSUB_JOB_CORES``.
    node
        Slurm's name of this node.
    index
        The task's place among the job's tasks on the node, from 0.
    allowed
        The CPUs to which the node is confined.
    """
    text = environment.get("OSUB_JOB_CORES")
    if environment.get("OSUB_PIN") != "1" or text is None:
        return Pin()
    try:
        cores = parse_job_cores(text)
    except ValueError as error:
        return Pin(warning=f"not pinned: OSUB_JOB_CORES: {error}")
    if node is None or node not in cores:
        return Pin(warning=f"not pinned: OSUB_JOB_CORES does not name node {node}")
    if index >= len(cores[node]):
        return Pin(
            warning=f"not pinned: {node} has {counted(len(cores[node]), 'core')} of this job, none "
            f"for task {index}"
        )
    core, cpus = cores[node][index], sorted(allowed)
    if core >= len(cpus):
        return Pin(
            warning=f"not pinned: core {core} of {node}, but only {counted(len(cpus), 'CPU')} "
            f"{verb(len(cpus))} allowed there"
        )
    return Pin(cpu=cpus[core])


def apply_pins(pins: Sequence[Pin]) -> Pin:
    """Bind this process, whose threads stand for several tasks, to the CPUs of all of them, or to nothing."""
    unbound = next((pin for pin in pins if pin.cpu is None), None)
    if unbound is not None:
        return unbound
    cpus = {pin.cpu for pin in pins if pin.cpu is not None}
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        return Pin(warning=f"not pinned: CPUs {sorted(cpus)}: {error.strerror}")
    return pins[0]


def apply_pin(pin: Pin) -> Pin:
    """Bind this process as ``pin`` says; return what came of it."""
    if pin.cpu is None:
        return pin
    try:
        os.sched_setaffinity(0, {pin.cpu})
    except OSError as error:
        return Pin(warning=f"not pinned: CPU {pin.cpu}: {error.strerror}")
    return pin
