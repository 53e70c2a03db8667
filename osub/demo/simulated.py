"""The demo's other half: each setting that was replayed is simulated from the replay's own trace.

In a process of its own with ``OSUB_JIT=0``: a demo's jobs are few, so the simulator's kernels run uncompiled
in a second, and nobody waits the half minute that a first compilation takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from foundation.errors import OsubError
from foundation.records import Run, load_run
from osub.demo.run import SETTINGS, Setting, clear_run

SUFFIX = " (sim)"
_SLURM_SLICE_MS = 5000.0


def simulate_all(runs: Sequence[Run], out: Path, say: Callable[[str], None]) -> list[tuple[Run, Run]]:
    """Return each real run, in the order of ``SETTINGS``, with its simulation.

    A setting that cannot be simulated is left out, and ``say`` is told why: the real runs took minutes.
    """
    compared: list[tuple[Run, Run]] = []
    for run, setting in zip(runs, SETTINGS, strict=False):
        try:
            compared.append((run, simulate_as(run, setting, out, runs)))
        except OsubError as error:
            say(str(error))
    return compared


def simulate_as(real: Run, setting: Setting, out: Path, known: Sequence[Run]) -> Run:
    """Simulate the trace of ``real`` under its setting, and return the RUN.

    Parameters
    ----------
    real
        The replay.
    setting
        How the cluster was shared.
    out
        Folder of the demo.
    known
        The real runs so far: latencies are measured on the one with M=1, C_o on the naive one.

    Raises
    ------
    OsubError
        The simulation failed.
    """
    path = out / f"{setting.folder}-sim"
    clear_run(path)
    words = [*("--label", real.info.label + SUFFIX), *_words(real, setting, known)]
    command = [sys.executable, "-P", "-m", "osub.cli.main", "simulate", str(real.path), "--out", str(path)]
    done = subprocess.run(
        [*command, *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OSUB_JIT": "0"},
    )
    if done.returncode:
        why = done.stderr.strip().removeprefix("osub: ") or f"exit code {done.returncode}"
        raise OsubError(f"the simulation of {real.info.label} failed: {why}")
    return load_run(path)


def _words(real: Run, setting: Setting, known: Sequence[Run]) -> list[str]:
    words = ["--system", real.info.system, "--policy", "easy", "--placement", "lln"]
    words += ["--multiplicity", str(setting.multiplicity)]
    for run in known:
        if run.info.multiplicity == 1 and "COMPLETED" in run.jobs["state"]:
            words += ["--latency", str(run.path)]
    slice_ms = _SLURM_SLICE_MS if real.info.gang.kind == "slurm" else real.info.gang.quantum_ms
    return words + (["--slices", f"{slice_ms:g}"] if slice_ms else [])


_METHOD = (
    "Each real run is followed by a simulation of the very jobs that were replayed: EASY backfilling with "
    "Slurm's placement, the latencies of Slurm and of launching a job as measured on the real run with M=1, "
    "time slices by the gang scheduler's own core."
)
_LIMITS = (
    "Not modelled: time limits in whole minutes, which Slurm's backfilling plans with, and Slurm's own gang "
    "scheduler, for which the simulation has gangd's rule with slices of 5 s. Slurm's suspends jobs while "
    "they launch, which then may stand still for a minute or more; the simulation has nothing of that."
)
NOTES = (_METHOD, _LIMITS)
