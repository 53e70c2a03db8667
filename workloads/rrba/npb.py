"""One rank of a stock benchmark: its input file, the binary as a child, the report.

This process makes no call of MPI: the child inherits the launcher's environment and descriptors and is the
rank. Only its first rank reads the input file and prints the account. An OpenMP binary runs once, with one
thread for each of the job's tasks; the other tasks end at once.

What NPB 3.4's LU, BT, SP and MG read and print: input files that set an iteration count, and results.

A benchmark that finds its file in the working directory reads it instead of its compiled-in defaults. All
other values written here are those defaults, by class. Source: the files ``*.data.sample`` and
``mg.input.sample`` of NPB 3.4, and the tables of NAS-95-020 and NPB 3.4 for the values.

A changed iteration count makes NPB print ``UNSUCCESSFUL`` and exit with code 0, since it compares with a
reference of the usual count. So that word says nothing here: a run is judged by whether it completed, by the
time that it reports, and by whether it made the iterations that were asked for. All of this is pure text.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import HostError, InputError, UsageError
from foundation.units import counted
from workloads.rrba.cuts import PointGrid
from workloads.rrba.rrba_options import NpbChoice, RrbaOptions
from workloads.rrba.solvers.applications import application_named
from workloads.rrba.steps.calibrations import find_calibration, host_type, key_of
from workloads.rrba.steps.step_plan import StepPlan, plan_steps
from workloads.task import job_report
from workloads.task.job_report import COMPLETED, FAILED, TERMINATED, JobReport
from workloads.task.process_clock import ProcessStart
from workloads.task.slurm_task import Pin, SlurmTask

_TIME_STEPS = {
    "lu": {"S": "0.5", "W": "1.5e-3", "A": "2.0", "B": "2.0", "C": "2.0"},
    "bt": {"S": "0.010", "W": "0.0008", "A": "0.0008", "B": "0.0003", "C": "0.0001"},
    "sp": {"S": "0.015", "W": "0.0015", "A": "0.0015", "B": "0.001", "C": "0.00067"},
}
_NAMES = (*_TIME_STEPS, "mg")
_RELAXATION = "1.2"
_TOLERANCE = "1.0e-08"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file for the benchmark's working directory."""

    name: str
    text: str


def benchmark_grid(name: str, grid_class: str) -> PointGrid:
    """Return the grid of a class.

    Raises
    ------
    UsageError
        The benchmark takes no iteration count from a file, or has no such class here.
    """
    if name not in _NAMES:
        raise UsageError(f"--npb runs {', '.join(_NAMES)}, not {name!r}")
    classes = application_named(name).classes
    if grid_class not in classes:
        raise UsageError(f"--class is {grid_class!r}; {name} has {', '.join(classes)}")
    return classes[grid_class]


def input_file(name: str, grid_class: str, iterations: int) -> InputFile:
    """Return the input file with which a benchmark makes ``iterations``.

    Raises
    ------
    UsageError
        As ``benchmark_grid``.
    """
    grid = benchmark_grid(name, grid_class)
    edges = f"{grid.planes} {grid.rows} {grid.columns}"
    if name == "mg":
        levels = grid.planes.bit_length() - 1
        lines = [str(levels), edges, str(iterations), "0 0 0 0 0 0 0 0"]
        return InputFile("mg.input", _text(lines))
    step = _TIME_STEPS[name][grid_class]
    if name == "lu":
        # Each value is on the third line of three; the two before are for the reader.
        groups = [
            ("printing: every so many iterations, and the norm's", f"1 {iterations}"),
            ("iterations", str(iterations)),
            ("time step", step),
            ("relaxation", _RELAXATION),
            ("tolerances of the five residuals", " ".join([_TOLERANCE] * 5)),
            ("grid", edges),
        ]
        return InputFile(
            "inputlu.data", _text([line for title, v in groups for line in ("#", f"# {title}", v)])
        )
    return InputFile(f"input{name}.data", _text([str(iterations), step, edges]))


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class NpbResult:
    """The benchmark's own account: seconds of its timed loop, and iterations."""

    time_s: float
    iterations: int


def read_result(output: str, iterations: int) -> NpbResult | str:
    """Return the account, or in a sentence why there is none or a wrong one.

    Parameters
    ----------
    output
        All that the benchmark printed.
    iterations
        What its input file asked for.
    """
    if not re.search(r"Benchmark Completed", output, re.IGNORECASE):
        last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "nothing")
        return f"the benchmark did not complete; it printed last: {last}"
    time_s = re.search(r"Time in seconds\s*=\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)", output)
    made = re.search(r"^\s*Iterations\s*=\s*([0-9]+)", output, re.MULTILINE)
    if time_s is None or made is None:
        return "the benchmark completed but printed no time, or no iterations"
    if int(made[1]) != iterations:
        return (
            f"the benchmark made {made[1]} iterations, not {iterations}: it did not read its input file; "
            "is it NPB 3.4 of this class?"
        )
    return NpbResult(float(time_s[1]), int(made[1]))


def find_binary(folder: Path, name: str, grid_class: str) -> Path:
    """Return the benchmark's program: ``bin/lu.B.x`` in ``folder``, or ``lu.B.x``.

    Raises
    ------
    InputError
        Neither is there.
    """
    program = f"{name}.{grid_class}.x"
    for path in (folder / "bin" / program, folder / program):
        if os.access(path, os.X_OK) and path.is_file():
            return path.resolve()
    raise InputError(
        f"{folder} has neither bin/{program} nor {program}; make it with `make {name} CLASS={grid_class}`"
    )


def run_npb(
    options: RrbaOptions, npb: NpbChoice, begin: ProcessStart, task: SlurmTask, pin: Pin, launch_s: float
) -> int:
    """Run this rank of the benchmark; return its exit code.

    Raises
    ------
    OsubError
        It cannot be run, or did not do what it was asked.
    """
    rank, ranks = _place(os.environ)
    name = options.application.name
    if npb.omp and task.nodes > 1:
        raise UsageError(f"an OpenMP binary runs on one node, not on {task.nodes}")
    if npb.omp and rank > 0:
        return 0
    grid = benchmark_grid(name, npb.grid_class)
    if not npb.omp:
        options.application.check(grid, ranks)
    binary = find_binary(npb.folder, name, npb.grid_class)
    job_report.check_writable(options.report)
    plan, step_s = _plan(options, npb, ranks, task.nodes)
    environment = dict(os.environ)
    if npb.omp:
        environment["OMP_NUM_THREADS"] = str(ranks)
    if npb.passive:
        environment["OMP_WAIT_POLICY"] = "passive"
    with tempfile.TemporaryDirectory(prefix="npb-") as folder:
        file = input_file(name, npb.grid_class, plan.steps)
        Path(folder, file.name).write_text(file.text, encoding="ascii")
        code, output, stopped = _run_child(binary, Path(folder), environment)
    answer: NpbResult | str = (
        f"the benchmark exited with code {code}" if code else read_result(output, plan.steps)
    )
    if rank > 0:
        return 128 + stopped if stopped else int(code != 0)
    result = answer if isinstance(answer, NpbResult) else None
    failure = None if result or stopped else str(answer)
    now_s = time.monotonic()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    report = JobReport(
        app="rrba",
        kernel=f"npb {name}.{npb.grid_class}",
        state=TERMINATED if stopped else FAILED if failure else COMPLETED,
        start_ms=begin.epoch_ms,
        end_ms=round(time.time() * 1000),
        nodes=task.nodes,
        tasks=ranks,
        hosts=[task.node_name or socket.gethostname()],
        affinity=[sorted(os.sched_getaffinity(0))],
        pinned=pin.cpu is not None,
        # The other ranks are unknown to this process.
        cpu_s=usage.ru_utime + usage.ru_stime if npb.omp or ranks == 1 else None,
        busy_s=result.time_s if result else None,
        startup_s=now_s - begin.monotonic_s - result.time_s + launch_s if result else None,
        host_type=host_type(),
        target_s=options.target_s,
        grid=str(grid),
        steps_asked=plan.steps,
        steps=result.iterations if result else None,
        step_s=step_s,
        calibration=str(options.calibration) if step_s is not None else None,
        clipped=plan.clipped,
        omp_wait_policy=environment.get("OMP_WAIT_POLICY") if npb.omp else None,
        warnings=[pin.warning] if pin.warning else [],
        failure=failure,
    )
    job_report.publish(report, options.report)
    if stopped:
        return 128 + stopped
    if failure:
        raise HostError(failure)
    return 0


def _plan(options: RrbaOptions, npb: NpbChoice, ranks: int, nodes: int) -> tuple[StepPlan, float | None]:
    """Return the iterations, and the stored step time they follow from."""
    if options.steps is not None:
        return StepPlan(options.steps, clipped=False), None
    assert options.target_s is not None
    assert options.calibration is not None
    grid = benchmark_grid(options.application.name, npb.grid_class)
    key = key_of(npb.calibrated_as(options.application.name), grid, ranks, nodes)
    stored = find_calibration(options.calibration, key)
    if stored is None:
        raise InputError(
            f"{options.calibration} has no calibration of {key.app} {key.grid} on {counted(ranks, 'rank')} "
            f"and {counted(nodes, 'node')} of {key.host_type}; make one with `osub workloads calibrate --npb`"
        )
    return plan_steps(options.target_s, stored.overhead_s, stored.step_s), stored.step_s


def _place(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return which rank this task is, and of how many, as the launcher tells it, without MPI."""

    def number(*names: str) -> int | None:
        texts = (environment.get(name, "") for name in names)
        return next((int(text) for text in texts if text.isascii() and text.isdigit()), None)

    # A job's batch step has the job's variables but is one task.
    in_step = "SLURM_STEP_NUM_TASKS" in environment or "PMI_RANK" in environment
    if not in_step:
        return 0, 1
    return number("PMI_RANK", "SLURM_PROCID") or 0, number("PMI_SIZE", "SLURM_STEP_NUM_TASKS") or 1


def _run_child(binary: Path, folder: Path, environment: Mapping[str, str]) -> tuple[int, str, int]:
    """Run ``binary`` in ``folder``; return its exit code, its output, and the signal that stopped it or 0."""
    stopped = 0
    try:
        # With its descriptors: through one of them the launcher speaks to the rank.
        child = subprocess.Popen(
            [binary],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            close_fds=False,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise HostError(f"cannot run {binary}: {error.strerror}") from error

    def stop(number: int, _: object) -> None:
        nonlocal stopped
        stopped = number
        child.send_signal(number)

    old = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        output, _ = child.communicate()
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    return child.returncode, output, stopped
