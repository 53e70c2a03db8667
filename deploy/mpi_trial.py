"""Trials with two tasks: ranks of MPI with used heaps say how they start, others on which CPUs they run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from foundation.mpi_start import DEADLINE, NETMOD, PROVIDER, mpi_environment
from foundation.one_line import last_words
from foundation.slurm.run_command import command_environment, without_slurm

START_S = 20.0
"""For the start of MPI alone, s; ended by the ranks themselves."""
MOST_S = 60.0
_FREE_S = 10
_KILL_S = 10.0
_RANK = (sys.executable, "-P", "-m", "foundation.mpi_start")
_ALLOWED = re.compile(r"^Cpus_allowed_list:\s*([0-9][0-9,-]{0,200})$", re.MULTILINE)
# What srun says where it did not get nodes at once.
_BUSY = ("Unable to allocate resources", "Requested nodes are busy", "allocation revoked")


@dataclass(frozen=True, slots=True)
class MpiTrial:
    """What became of two ranks: whether they found each other (None: not tried), and what was said."""

    is_started: bool | None
    found: str


@dataclass(frozen=True, slots=True)
class Bound:
    """CPUs, as the kernel lists them, of two tasks of one CPU each, and of one task of two.

    None where that was not tried: no node has two cores free, or there is no srun.
    """

    tasks: tuple[str, ...] | None = None
    launcher: str | None = None


def try_binding(conf: Path | None) -> Bound:
    """Ask tasks of a job for their CPUs: of ``srun -n2``, and of an ``mpiexec`` under ``srun -n1 -c2``.

    Parameters
    ----------
    conf
        The cluster's ``slurm.conf``; None takes the environment's.
    """
    environment = command_environment(os.environ, conf)
    tasks = _cpus(["--ntasks=2", "--cpus-per-task=1"], environment)
    launcher = _cpus(["--ntasks=1", "--cpus-per-task=2"], environment)
    return Bound(tasks if len(tasks) == 2 else None, launcher[0] if len(launcher) == 1 else None)


def _cpus(shape: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    words = ["srun", "--job-name=osub-doctor", "--nodes=1", *shape, "--time=2", f"--immediate={_FREE_S}"]
    words += ["grep", "Cpus_allowed_list", "/proc/self/status"]
    with tempfile.TemporaryFile() as stream:
        try:
            process = subprocess.Popen(
                words,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return ()
        _ended(process)
        stream.seek(0)
        return tuple(_ALLOWED.findall(stream.read(4096).decode("ascii", "replace")))


def try_here(mpiexec: Path) -> MpiTrial:
    """Start two ranks on this host by MPICH's own launcher."""
    return _try([str(mpiexec), "-n", "2"], without_slurm(os.environ), "PMI-1 of mpiexec")


def try_on_slurm(conf: Path | None, nodes: int, *, one_host: bool = False) -> MpiTrial:
    """Start two ranks on two nodes of a cluster, or on its only one, if it has them free within 10 s.

    Parameters
    ----------
    conf
        The cluster's ``slurm.conf``; None takes the environment's.
    nodes
        How many nodes it has.
    one_host
        Whether all of them are this host, as an embedded cluster's are.
    """
    spread = ["--nodes=2", "--ntasks-per-node=1"] if nodes > 1 else ["--nodes=1", "--overcommit"]
    words = ["srun", "--job-name=osub-doctor", "--ntasks=2", *spread, "--mpi=pmi2", "--kill-on-bad-exit=1"]
    words += ["--time=2", f"--immediate={_FREE_S}"]
    environment = command_environment(os.environ, conf)
    return _try(
        words, environment | mpi_environment(environment, one_host=one_host), "PMI-1 of srun --mpi=pmi2"
    )


def _try(launcher: Sequence[str], environment: Mapping[str, str], pmi: str) -> MpiTrial:
    variables = mpi_environment(environment)
    netmod = variables[NETMOD] + (f" over {variables[PROVIDER]}" if PROVIDER in variables else "")
    how = f"netmod {netmod}, {pmi}"
    with tempfile.TemporaryDirectory(prefix="osub-mpi-") as folder:
        output = Path(folder, "output")
        try:
            with output.open("wb") as stream:
                process = subprocess.Popen(
                    [*launcher, *_RANK],
                    env={**environment, **variables, DEADLINE: f"{START_S:g}"},
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=stream,
                )
        except OSError as error:
            return MpiTrial(None, f"{launcher[0]}: {error.strerror}")
        code = _ended(process)
        lines = output.read_text(errors="replace").splitlines()
        said = next((line for line in lines if line.startswith("trial: ")), None)
        if code == 0 and said is not None:
            return MpiTrial(is_started=True, found=f"{said.removeprefix('trial: ')}; {how}")
        words = last_words(output) or f"it ended with code {code}"
        is_busy = any(reason in line for line in lines for reason in _BUSY)
        return MpiTrial(None if is_busy else False, f"{words}; {how}")


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a launcher; end it where it takes too long, or this command is interrupted."""
    try:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(MOST_S)
    finally:
        if process.returncode is None:
            process.terminate()  # it ends what it has started, and removes its files
            try:
                process.wait(_KILL_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return process.wait()
