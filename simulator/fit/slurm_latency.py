"""What a real cluster adds to a schedule: the time that submitting, scheduling, launching and ending take.

A simulated job is in the queue, starts and ends in no time. With latencies it enters the queue
``submission_s`` after it is due, holds its cores for ``scheduling_s`` before it starts and for ``release_s``
after it has ended, idle both times, and computes for its launch time before its own work.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from foundation.errors import InputError
from foundation.units import seconds_to_us
from simulator.engine.kernels.field_records import Ints
from simulator.simulation import Periods, Result, Workload, merged

Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class Latencies(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Latencies, in the run's own seconds.

    Parameters
    ----------
    submission_s
        From when a job is due until Slurm has it.
    scheduling_s
        From when a job could start until it does.
    release_s
        From the end of a job until another may start on its cores, beyond ``scheduling_s``.
    launch_serial_s, launch_parallel_s, launch_interactive_s
        What the run of a batch job of one core, of several, or of an interactive job takes on dedicated cores
        beyond its dedicated time.
    pace
        Of the host that they were measured on: CPU time of steps over what they take as calibrated. Nothing
        is simulated with it; a comparison takes it out.
    """

    submission_s: Seconds = 0.0
    scheduling_s: Seconds = 0.0
    release_s: Seconds = 0.0
    launch_serial_s: Seconds = 0.0
    launch_parallel_s: Seconds = 0.0
    launch_interactive_s: Seconds = 0.0
    pace: Annotated[float, msgspec.Meta(gt=0, le=1000)] | None = None

    def launch_us(self, workload: Workload) -> Ints:
        """Return the launch time of each job, shape (jobs,)."""
        batch = np.where(
            workload.nodes * workload.cores > 1,
            seconds_to_us(self.launch_parallel_s),
            seconds_to_us(self.launch_serial_s),
        )
        launch: Ints = np.where(workload.interactive, seconds_to_us(self.launch_interactive_s), batch)
        return launch


def read_latencies(path: Path) -> Latencies:
    """Read latencies from a JSON file with the fields of ``Latencies``; absent ones are zero.

    Raises
    ------
    InputError
        The file cannot be read, or is no such file.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Latencies)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InputError(f"{path} is no file of latencies: {error}") from error


def delayed(workload: Workload, latencies: Latencies) -> Workload:
    """Return the workload as the engine is to see it; ``undelayed`` takes the latencies out again."""
    scheduling_us, release_us = seconds_to_us(latencies.scheduling_s), seconds_to_us(latencies.release_s)
    launch_us = latencies.launch_us(workload)
    bounds = workload.periods.at.tolist()
    us = workload.periods.us.tolist()
    pieces: list[list[int]] = []
    for job, launch in enumerate(launch_us.tolist()):
        own = [scheduling_us, launch, *us[bounds[job] : bounds[job + 1]]]
        # Idle periods have even places.
        own += [release_us] if len(own) % 2 == 0 else [0, release_us]
        pieces.append(merged(own))
    periods = Periods(
        np.concatenate(([0], np.cumsum([len(piece) for piece in pieces]))),
        np.array([period for piece in pieces for period in piece], dtype=np.int64),
        workload.periods.patterned,
    )
    return replace(
        workload,
        submit_us=workload.submit_us + seconds_to_us(latencies.submission_s),
        planned_us=workload.limit_us + scheduling_us + launch_us + release_us,
        periods=periods,
    )


def undelayed(result: Result, workload: Workload, latencies: Latencies) -> Result:
    """Return what became of ``workload``: starts and ends of the jobs, not of their hold on the cores."""
    return replace(
        result,
        workload=workload,
        lag_us=seconds_to_us(latencies.submission_s),
        start_us=result.start_us + seconds_to_us(latencies.scheduling_s),
        end_us=result.end_us - seconds_to_us(latencies.release_s),
    )
