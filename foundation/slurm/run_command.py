"""How commands of Slurm are run: limits, environment, options of ``sbatch``.

Running one of Slurm's commands: for so long and so many bytes at most, in an environment of ours.

What a command prints and does must not depend on the caller's environment: variables such as SQUEUE_FORMAT,
SBATCH_PARTITION, SCANCEL_STATE or SLURM_TIME_FORMAT change it, and TZ and the locale change how times read.
Sources: the pages squeue(1), sbatch(1), scancel(1), scontrol(1) and sinfo(1), ENVIRONMENT.

The options of ``sbatch`` for a request, and which options of a site may be added.
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
from foundation.slurm.slurm_client import SubmitRequest

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

    @property
    def was_killed(self) -> bool:
        """Whether it did not come to its end, such as by SIGPIPE where munge or slurmctld hung up on it."""
        return self.returncode is None or self.returncode < 0


Runner = Callable[[Sequence[str], str | None, Mapping[str, str], float], CommandOutput]
_running: set[int] = set()
"""Groups of the commands that run, in all threads."""


def end_commands() -> None:
    """Kill the commands that other threads run: for a process that ends and does not wait for them."""
    for group in tuple(_running):
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def run_command(
    words: Sequence[str],
    stdin: str | None,
    environment: Mapping[str, str],
    timeout_s: float,
    most_bytes: int = MOST_BYTES,
    heard: Callable[[bytes], None] = lambda _: None,
) -> CommandOutput:
    """Run one command to its end, for ``timeout_s`` seconds or ``most_bytes`` of output at most.

    ``heard`` is called with each piece of output as it comes. Ctrl-C at the terminal is ours and does not
    reach it. If it has to be killed, so is what it has started.

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
        _running.add(process.pid)
        try:
            answer = _communicate(process, input_bytes or b"", timeout_s, most_bytes, heard)
            return answer
        finally:
            _running.discard(process.pid)
            if answer is None or answer.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            if process.poll() is None:
                process.kill()


def _communicate(
    process: subprocess.Popen[bytes],
    stdin: bytes,
    timeout_s: float,
    most_bytes: int,
    heard: Callable[[bytes], None],
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
                    heard(part)
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


# What a request sets itself, or what would change the meaning of a submission, and why a site may not set it.
_OWN = {
    name: why
    for why, names in {
        "osub sets it for each job": (
            "job-name nodes ntasks ntasks-per-node ntasks-per-core output error open-mode"
        ),
        "use --partition": "partition",
        "use --account": "account",
        "use --qos": "qos",
        "use --reservation": "reservation",
        "use --no-requeue": "no-requeue",
        "it follows from the partition": "oversubscribe share",
        "it comes from the trace": "time mem mem-per-cpu mem-per-gpu",
        "it would shorten the trace's requested times": "time-min",
        "a task has one core": (
            "cpus-per-task threads-per-core hint extra-node-info overcommit core-spec thread-spec"
        ),
        "jobs could not share cores": "exclusive",
        "each job of a trace is one job": "array",
        "the jobs of a trace are not heterogeneous": "hetjob het-group",
        "the job would never start": "hold",
        "jobs are submitted at their own instants": "begin deadline",
        "submissions would not return": "wait",
        "osub reads what sbatch prints": "parsable quiet verbose",
        "nothing would be submitted": "test-only help usage version",
        "osub writes the script": "wrap input chdir",
        "osub sets the environment": "export export-file get-user-env propagate",
        "jobs are the user's own": "uid gid",
        "a replay has one cluster; choose it by --cluster or SLURM_CONF": "clusters cluster-constraint",
        "it would reach the wrapper that stamps start and end": "signal",
        "an end would come from sbatch, not from the job": "kill-on-invalid-dep",
    }.items()
    for name in names.split()
}
_OPTION = re.compile(r"([a-z][a-z0-9-]*)(?:=([^\x00-\x1f\x7f]*))?", re.ASCII)
_LONGEST = 1024


def check_options(options: Sequence[str]) -> tuple[str, ...]:
    """Return options such as ``constraint=fast`` or ``requeue`` where a request may carry them.

    Names are sbatch's long ones, whole: sbatch would take an abbreviation of a name that is refused here.

    Raises
    ------
    UsageError
        One is no option, or must not be overridden; the message says which and why.
    """
    for option in options:
        match = _OPTION.fullmatch(option)
        if match is None or len(option) > _LONGEST:
            raise UsageError(
                f"--sbatch-option takes NAME=VALUE or NAME, a long option of sbatch without its dashes, not "
                f"{option[:80]!r}"
            )
        name = match[1]
        for own, why in _OWN.items():
            if own.startswith(name):
                short = "" if own == name else f" (sbatch reads it as --{own})"
                raise UsageError(f"--sbatch-option {name}{short} can't be set: {why}")
    return tuple(options)


def _shape(request: SubmitRequest) -> list[str]:
    """Return the words for nodes and tasks; a number of tasks would keep Slurm from giving fewer nodes."""
    if request.most_nodes is not None:
        return [f"--nodes={request.nodes}-{request.most_nodes}"]
    tasks = request.nodes * request.tasks_per_node
    return [f"--nodes={request.nodes}", f"--ntasks={tasks}", f"--ntasks-per-node={request.tasks_per_node}"]


def _as_it_is(path: Path) -> str:
    """Return a path as ``--output`` takes it: Slurm expands ``%j`` in it, unless a backslash is there.

    Source: ``sbatch(1)``, "filename pattern"; seen with 22.05.
    """
    text = str(path)
    return text.replace("\\", "\\\\") if "\\" in text else text.replace("%", "%%")


def sbatch_options(request: SubmitRequest) -> list[str]:
    """Return the words between ``sbatch`` and the script."""
    words = [
        "--parsable",
        "--export=ALL",
        f"--job-name={request.name}",
        *_shape(request),
        f"--output={_as_it_is(request.output or Path(os.devnull))}",
        "--open-mode=append",  # a job that starts again keeps what it printed before
    ]
    optional = {
        "partition": request.partition,
        "account": request.account,
        "qos": request.qos,
        "reservation": request.reservation,
        "ntasks-per-core": request.tasks_per_core,
        "mem-per-cpu": request.memory_per_cpu_mib and f"{request.memory_per_cpu_mib}M",
        "mem": request.memory_per_node_mib and f"{request.memory_per_node_mib}M",
        "time": request.time_limit_minutes,
        "comment": request.comment,
        "constraint": request.constraint,
        "chdir": request.working_directory,
    }
    words += [f"--{key}={value}" for key, value in optional.items() if value is not None]
    words += ["--no-requeue"] if request.no_requeue else []
    words += ["--oversubscribe"] if request.oversubscribe else []
    return words + [f"--{option}" for option in request.options]
