"""Where Slurm put this task: its job, step, node and place among the others.

Read from the environment that ``srun`` and the batch step give (``man srun``, OUTPUT ENVIRONMENT
VARIABLES). Outside Slurm a task is the only one on the only node.

Bind a task of a job to the very core that Slurm gave it, where several nodes share one host.

On the embedded cluster a node's slurmd is confined to a set of CPUs, and Slurm's core ids are places
in the sorted list of that set. The starter of the job sets ``OSUB_PIN=1`` and ``OSUB_JOB_CORES``,
Slurm's core ids of the job by node: ``node1:0,1;node2:0-3,6``. What cannot be carried out is a
warning in the job's report, never a failed job: an unpinned task still does its work.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from foundation.errors import UsageError
from foundation.id_list import read_ids
from foundation.units import counted, verb


class LineParser(argparse.ArgumentParser):
    """An argument parser whose complaint is an exception with one line."""

    def error(self, message: str) -> NoReturn:
        """Raise what ``argparse`` would print with its usage."""
        raise UsageError(f"{message}; see {self.prog} --help")


def whole_option(name: str, text: str | None, most: int) -> int | None:
    """Return the whole number from 1 to ``most`` that an option has; None where it is not given."""
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        raise UsageError(f"{name} is {text!r}; expected a whole number from 1 to {most}")
    return int(text)


def number_of(text: str) -> float:
    """Return the number that a text is, NaN for none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def seconds_option(name: str, text: str) -> float:
    """Return the seconds, above 0, that an option has."""
    seconds = number_of(text)
    if not (math.isfinite(seconds) and seconds > 0):
        raise UsageError(f"{name} is {text!r}; expected a number of seconds above 0")
    return seconds


MEMORY = Path("/proc/meminfo")


def available_bytes(memory: Path = MEMORY) -> int | None:
    """Return what can be allocated without swapping (``MemAvailable``, proc(5)); None where none tells."""
    try:
        lines = memory.read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


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


def apply_pin(*pins: Pin) -> Pin:
    """Bind this process to the CPUs of all pins, or to nothing; return what came of it.

    There are several where its threads stand for several tasks.
    """
    unbound = next((pin for pin in pins if pin.cpu is None), None)
    if unbound is not None:
        return unbound
    cpus = sorted({pin.cpu for pin in pins if pin.cpu is not None})
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        where = f"CPU {cpus[0]}" if len(pins) == 1 else f"CPUs {cpus}"
        return Pin(warning=f"not pinned: {where}: {error.strerror}")
    return pins[0]


@dataclass(frozen=True, slots=True)
class SlurmTask:
    """One task's place in its step.

    Attributes
    ----------
    identity
        Names this step of this job, its restarts distinguished: ``JOB.STEP.RESTART``; None outside Slurm.
    node_name
        Slurm's name of the node; None outside Slurm.
    node_index
        This node's place among the step's nodes, from 0.
    nodes
        Nodes of the step.
    local_index
        This task's place among the step's tasks on this node, from 0.
    tasks
        Tasks of the step on all nodes; None where Slurm does not say.
    node_cpus
        CPUs that the job has on this node; None where Slurm does not say.
    launcher_address
        Address of the host that ran ``srun``; None where Slurm does not say.
    """

    identity: str | None
    node_name: str | None
    node_index: int
    nodes: int
    local_index: int
    tasks: int | None
    node_cpus: int | None
    launcher_address: str | None


def slurm_task(environment: Mapping[str, str]) -> SlurmTask:
    """Return the place that ``environment`` describes.

    Raises
    ------
    UsageError
        A variable of Slurm's does not hold what Slurm writes there.
    """
    nodes = _number(environment, "SLURM_STEP_NUM_NODES") or _number(environment, "SLURM_NNODES") or 1
    node_index = _number(environment, "SLURM_NODEID") or 0
    if node_index >= nodes:
        raise UsageError(f"SLURM_NODEID is {node_index} of {nodes} nodes; start this program with srun")
    job = environment.get("SLURM_JOB_ID")
    step = environment.get("SLURM_STEP_ID", "batch")
    return SlurmTask(
        identity=f"{job}.{step}.{environment.get('SLURM_RESTART_COUNT', '0')}" if job else None,
        node_name=environment.get("SLURMD_NODENAME"),
        node_index=node_index,
        nodes=nodes,
        local_index=_number(environment, "SLURM_LOCALID") or 0,
        tasks=_number(environment, "SLURM_STEP_NUM_TASKS"),
        node_cpus=_node_cpus(environment, node_index),
        launcher_address=environment.get("SLURM_LAUNCH_NODE_IPADDR"),
    )


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise UsageError(f"{name} is {text!r}; expected a whole number, as Slurm writes it")
    return int(text)


def _node_cpus(environment: Mapping[str, str], node_index: int) -> int | None:
    on_node = _number(environment, "SLURM_CPUS_ON_NODE")
    if on_node is not None:
        return on_node
    text = environment.get("SLURM_JOB_CPUS_PER_NODE")
    if text is None:
        return None
    # Slurm folds equal neighbours together: "4(x2),2" is 4, 4, 2.
    place = 0
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?", part)
        if match is None:
            raise UsageError(f"SLURM_JOB_CPUS_PER_NODE is {text!r}; expected the form 4(x2),2")
        place += int(match[2] or 1)
        if node_index < place:
            return int(match[1])
    return None
