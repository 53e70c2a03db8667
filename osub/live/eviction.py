"""What is to be evicted from a live cluster, in which order: the simulator's answer as orders for Slurm."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from foundation.errors import UsageError
from foundation.one_line import one_line
from foundation.slurm import SlurmClient
from simulator.eviction import Choice
from simulator.eviction.eviction_problem import MOST_LOSS, MOST_MINUTES
from simulator.eviction.jobs_file import read_cells
from simulator.eviction.live_answers import LiveAnswers
from simulator.eviction.running_jobs import Known, Rules, Running, World, look
from submitter.eviction.eviction_orders import Fate, Order


def read_known(path: Path, *, has_system: bool) -> dict[str, Known]:
    """Read what is known of single jobs: CSV with ``job`` and any of ``loss``, ``ts_min`` and ``ta_min``.

    ``ts_min`` counts only where there is a command to checkpoint a job from outside.
    """
    return {
        cells.name: Known(
            loss=cells.number("loss", MOST_LOSS),
            ts_min=cells.number("ts_min", MOST_MINUTES) if has_system else None,
            ta_min=cells.number("ta_min", MOST_MINUTES),
        )
        for cells in read_cells(path, ("job",), ("loss", "ts_min", "ta_min"))
    }


def check_program(name: str) -> None:
    """Raise UsageError for a program that does not exist, before a job is ended without a checkpoint."""
    if shutil.which(name) is None:
        raise UsageError(f"--system-command: there is no program {one_line(name)} that could be run")


def look_at(client: SlurmClient, now: float, rules: Rules) -> World:
    """Return the jobs that may be evicted, and who holds which nodes.

    Raises
    ------
    UsageError
        There is no such partition.
    """
    partitions = client.partitions()
    if rules.partition is not None and rules.partition not in {part.name for part in partitions}:
        raise UsageError(f"--partition: this Slurm has no partition {rules.partition}")
    nodes = client.nodes()
    return look(client.jobs(), nodes, partitions, now, rules)


def orders_of(world: World, found: LiveAnswers) -> list[Order]:
    """Return what is to be done for the last deadline, kills first."""
    choices, question = found.answers[-1].choices, found.question
    orders = [
        Order(
            spec=running.spec,
            job_id=running.job_id,
            start_time=running.start_time,
            fate=Fate(choices[running.spec].value),
            planned_s=60 * question.minutes_of(question.steps_of(_minutes(running, choices)) or 0),
        )
        for running in world.jobs
        if running.spec in choices
    ]
    return sorted(orders, key=lambda order: order.fate is not Fate.KILL)


def _minutes(running: Running, choices: Mapping[str, Choice]) -> float | None:
    return running.job.minutes(choices[running.spec])
