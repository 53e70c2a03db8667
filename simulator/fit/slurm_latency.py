"""What a real cluster adds to a schedule: the time that submitting, scheduling, launching and ending take.

A simulated job is in the queue, starts and ends in no time. With latencies it enters the queue
``submission_s`` after it is due, holds its cores for ``scheduling_s`` before it starts and for ``release_s``
after it has ended, idle both times. Its run is longer than its dedicated time by its launch time. Some of the
run, at the beginning and at the end, passes without computing, whatever shares the cores; the rest computes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from foundation.errors import InputError
from foundation.units import seconds_to_us
from simulator.jit.field_records import Ints
from simulator.simulation import JobPeriods, SimulationResult, Workload, merged

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
    blocked_serial_s, blocked_parallel_s
        Of the run of a batch job of one core, or of several, what passes before its first step without
        computing: it waits for files, for the launcher, for MPI.
    ending_serial_s, ending_parallel_s
        The same from its last step to its end.
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
    blocked_serial_s: Seconds = 0.0
    blocked_parallel_s: Seconds = 0.0
    ending_serial_s: Seconds = 0.0
    ending_parallel_s: Seconds = 0.0
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

    def idle_us(self, workload: Workload) -> tuple[Ints, Ints]:
        """Return what each job idles at its beginning and at its end, shape (jobs,).

        None of an interactive job, whose periods say it; at most a quarter of the run each.
        """
        several = workload.nodes * workload.cores > 1
        most_us = np.where(workload.interactive, 0, (self.launch_us(workload) + workload.run_us) // 4)
        begin, end = (
            np.minimum(most_us, np.where(several, seconds_to_us(parallel_s), seconds_to_us(serial_s)))
            for serial_s, parallel_s in (
                (self.blocked_serial_s, self.blocked_parallel_s),
                (self.ending_serial_s, self.ending_parallel_s),
            )
        )
        return begin, end


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
    blocked_us, ending_us = (each.tolist() for each in latencies.idle_us(workload))
    bounds = workload.periods.at.tolist()
    us = workload.periods.us.tolist()
    pieces: list[list[int]] = []
    for job, launch in enumerate(launch_us.tolist()):
        own = [scheduling_us, launch, *us[bounds[job] : bounds[job + 1]]]
        # Idle periods have even places.
        own += [release_us] if len(own) % 2 == 0 else [0, release_us]
        idle_us = blocked_us[job] + ending_us[job]
        if idle_us:  # a batch job: it computes from its start to its end
            own = [scheduling_us + blocked_us[job], sum(own[1::2]) - idle_us, release_us + ending_us[job]]
        pieces.append(merged(own))
    periods = JobPeriods(
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


def undelayed(result: SimulationResult, workload: Workload, latencies: Latencies) -> SimulationResult:
    """Return what became of ``workload``: starts and ends of the jobs, not of their hold on the cores."""
    return replace(
        result,
        workload=workload,
        lag_us=seconds_to_us(latencies.submission_s),
        start_us=result.start_us + seconds_to_us(latencies.scheduling_s),
        end_us=result.end_us - seconds_to_us(latencies.release_s),
    )
