"""Running one of Slurm's commands: for so long and so many bytes at most, in an environment of ours.

What a command prints and does must not depend on the caller's environment: variables such as SQUEUE_FORMAT,
SBATCH_PARTITION, SCANCEL_STATE or SLURM_TIME_FORMAT change it, and TZ and the locale change how times read.
Sources: the pages squeue(1), sbatch(1), scancel(1), scontrol(1) and sinfo(1), ENVIRONMENT.
"""

from __future__ import annotations

import errno
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from foundation.errors import HostError, UsageError
from foundation.one_line import one_line

MOST_BYTES = 64 << 20
"""Bytes of an answer that are read. Users make jobs by the thousand, and comments by the kilobyte."""

_CHUNK = 1 << 16

_OF_SLURM = re.compile(
    r"(?:SLURM|SLURMD|SLURMCTLD|SBATCH|SALLOC|SRUN|SQUEUE|SINFO|SCANCEL|SCONTROL|SACCT|SACCTMGR|SSTAT|SPRIO"
    r"|SSHARE|SREPORT|SDIAG|STRIGGER|SATTACH|SBCAST|SCRONTAB|SVIEW)_"
)
_WHOM_TO_ASK = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
"""Which Slurm is asked, and by whom: the caller's choice, unlike how the answer looks."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """What one command printed.

    Attributes
    ----------
    returncode
        None where it was killed: it took too long, or ``too_long``.
    stdout, stderr
        UTF-8; what is none has U+FFFD in its place. Line ends are as they were written.
    too_long
        It printed more than was to be read.
    """

    returncode: int | None
    stdout: str
    stderr: str
    too_long: bool = False


Runner = Callable[[Sequence[str], str | None, Mapping[str, str], float], CommandOutput]


def run_command(
    words: Sequence[str],
    stdin: str | None,
    environment: Mapping[str, str],
    timeout_s: float,
    most_bytes: int = MOST_BYTES,
) -> CommandOutput:
    """Run one command to its end, for ``timeout_s`` seconds or ``most_bytes`` of output at most.

    Ctrl-C at the terminal is ours and does not reach it. If it has to be killed, so is what it has started.

    Raises
    ------
    HostError
        It is not installed, or this host cannot start another process.
    UsageError
        A word, or the environment, is nothing that a command can be given.
    """
    try:
        input_bytes = None if stdin is None else stdin.encode()
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL if input_bytes is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            process_group=0,
        )
    except FileNotFoundError as error:
        raise HostError(f"{words[0]} is not installed here; `osub doctor` says what is missing") from error
    except ValueError as error:  # a NUL, or what is no Unicode
        raise UsageError(f"{words[0]} cannot be given these words: {error}") from error
    except OSError as error:
        if error.errno == errno.E2BIG:
            raise UsageError(f"{words[0]} cannot be given these words: they are too long") from error
        raise HostError(f"{words[0]} cannot be run: {error.strerror}") from error
    with process:
        answer = None
        try:
            answer = _communicate(process, input_bytes or b"", timeout_s, most_bytes)
            return answer
        finally:
            if answer is None or answer.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            if process.poll() is None:
                process.kill()


def _communicate(
    process: subprocess.Popen[bytes], stdin: bytes, timeout_s: float, most_bytes: int
) -> CommandOutput:
    deadline_s = time.monotonic() + timeout_s
    said: dict[int, list[bytes]] = {}
    left, count = memoryview(stdin), 0
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            said[pipe.fileno()] = []
            selector.register(pipe, selectors.EVENT_READ)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE)
        while selector.get_map():
            left_s = deadline_s - time.monotonic()
            ready = selector.select(left_s) if left_s > 0 else []
            if not ready:
                return CommandOutput(
                    None, "", f"no answer within {timeout_s:g} s{_complained(process, said)}"
                )
            for key, _ in ready:
                if key.fileobj is process.stdin:
                    left = _write(process.stdin, left)
                    if not left:
                        selector.unregister(process.stdin)
                        with suppress(BrokenPipeError):
                            process.stdin.close()
                    continue
                part = os.read(key.fd, _CHUNK)
                count += len(part)
                if count > most_bytes:
                    return CommandOutput(
                        None, "", f"it printed more than {most_bytes >> 20} MiB", too_long=True
                    )
                if part:
                    said[key.fd].append(part)
                else:
                    selector.unregister(key.fileobj)
    try:
        code = process.wait(max(0.0, deadline_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        return CommandOutput(None, "", f"no end within {timeout_s:g} s")
    out, err = (b"".join(parts).decode(errors="replace") for parts in said.values())
    return CommandOutput(code, out, err)


def _complained(process: subprocess.Popen[bytes], said: Mapping[int, Sequence[bytes]]) -> str:
    """Return the first line that a command has complained of before its time was over."""
    assert process.stderr is not None
    lines = b"".join(said[process.stderr.fileno()]).decode(errors="replace").splitlines()
    return f", but: {one_line(lines[0].strip())}" if lines else ""


def _write(pipe: IO[bytes], left: memoryview) -> memoryview:
    try:
        return left[os.write(pipe.fileno(), left[:_CHUNK]) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:  # it does not want to hear the rest
        return left[:0]


def without_slurm(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without Slurm's own variables."""
    return {key: value for key, value in environment.items() if not _OF_SLURM.match(key)}


def command_environment(caller: Mapping[str, str], conf: Path | None) -> dict[str, str]:
    """Return the environment for a command of Slurm.

    Parameters
    ----------
    caller
        This process's environment.
    conf
        The cluster's ``slurm.conf``; None keeps the caller's choice.
    """
    kept = {key: caller[key] for key in _WHOM_TO_ASK if key in caller}
    ours = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
    chosen = {"SLURM_CONF": str(conf)} if conf else {}
    return without_slurm(caller) | kept | ours | chosen


def submit_environment(job: Mapping[str, str], commands: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for ``sbatch``, which hands it on to the job.

    The job's own, and no more of ``commands`` (from :func:`command_environment`) than ``sbatch`` needs.
    """
    needed = (*_WHOM_TO_ASK, "PATH")
    return without_slurm(job) | {key: commands[key] for key in needed if key in commands}
