"""The program ``rrba``: read the command line, take the core, start MPI, run the job.

Started with one process for each rank (``srun --mpi=pmi2 rrba ...`` or ``mpiexec -n 4 rrba ...``), or
as it is for one, which needs no MPI.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from foundation.errors import OsubError
from foundation.mpi_start import is_lone, mpi_environment, start_mpi
from workloads.rrba.rrba_options import RrbaOptions, parse_options
from workloads.task.process_clock import ProcessStart, process_start
from workloads.task.slurm_task import SlurmTask, apply_pin, choose_pin, slurm_task

# A wrapper's stamp further back than this is not of this start of the program.
LAUNCH_LIMIT_S = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    begin = process_start()
    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments)
        return _run(options, begin, slurm_task(os.environ))
    except OsubError as error:
        if _is_first(os.environ):
            print(f"rrba: {error}", file=sys.stderr)
        return error.exit_code


def launch_s(environment: Mapping[str, str], begin: ProcessStart) -> float:
    """Return the seconds from the job's start, stamped by its wrapper, to this process's; 0 if unknown."""
    text = environment.get("OSUB_WRAPPER_START_MS", "")
    if not text.isascii() or not text.isdigit():
        return 0.0
    seconds = (begin.epoch_ms - int(text)) / 1000
    return seconds if 0 <= seconds <= LAUNCH_LIMIT_S else 0.0


def _is_first(environment: Mapping[str, str]) -> bool:
    """Say, without MPI, whether this is the rank that speaks for all."""
    return environment.get("PMI_RANK", environment.get("SLURM_PROCID", "0")) == "0"


def _run(options: RrbaOptions, begin: ProcessStart, task: SlurmTask) -> int:
    # Before numpy and MPI start: memory and helper threads then stay with the core.
    allowed = os.sched_getaffinity(0)
    if options.npb is not None and options.npb.omp:
        # The threads of this one process are the job's tasks.
        places = range(task.tasks or 1)
    else:
        places = range(task.local_index, task.local_index + 1)
    pin = apply_pin(*(choose_pin(os.environ, task.node_name, place, allowed) for place in places))
    os.environ.update(mpi_environment(os.environ))
    if options.npb is not None:
        from workloads.rrba.npb import run_npb

        return run_npb(options, options.npb, begin, task, pin, launch_s(os.environ, begin))
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    if is_lone(os.environ):
        from workloads.rrba.ranks.lone_rank import LoneRank
        from workloads.rrba.rrba_run import Origin, run_job

        return run_job(LoneRank(), options, Origin(begin, task, pin, launch_s(os.environ, begin)))
    from workloads.rrba.ranks.shared_segments import check_mapped, clear_the_way, discard_segments

    clear_the_way(os.environ)
    start_mpi("rrba", lambda rank: discard_segments(Path(f"/proc/{rank}/maps")))
    from mpi4py import MPI

    from workloads.rrba.rrba_run import Origin, run_job

    try:
        check_mapped()
    except OsubError as error:
        print(f"rrba: {error}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)
        raise
    try:
        code = run_job(MPI.COMM_WORLD, options, Origin(begin, task, pin, launch_s(os.environ, begin)))
    except OsubError:
        MPI.Finalize()
        raise
    except BaseException:
        # The other ranks wait for this one in a call that will never return.
        traceback.print_exc()
        discard_segments()
        MPI.COMM_WORLD.Abort(1)
        raise
    MPI.Finalize()
    return code
