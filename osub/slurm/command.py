"""Slurm through its commands: ``scontrol show -o -d``, ``sbatch --parsable``, ``scancel``."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from osub.errors import HostError
from osub.slurm.client import SubmitRequest
from osub.slurm.faults import (
    SlurmRefusedError,
    SlurmUnreachableError,
    SubmitUncertainError,
    UnreadableJobError,
)
from osub.slurm.sbatch import sbatch_options
from osub.slurm.text import read_config, read_jobs, read_nodes, read_partitions
from osub.slurm.types import Job, JobSnapshot, Node, Partition

# Slurm's words for a controller that is away or restarting: nothing was done, so one may try again.
_NEVER_ARRIVED = (
    "Unable to contact slurm controller",
    "connect failure",
    "Connection refused",
    "in standby mode",
)
# ... and for one that took the call and did not answer: it may have been carried out.
_NO_ANSWER = (
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Transport endpoint is not connected",
    "recv",
)
_NO_SUCH_JOB = "Invalid job id specified"
_ENDED_ALREADY = ("already completing or completed", "Job/step already completing", _NO_SUCH_JOB)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one command printed; ``returncode`` is None where it was killed for taking too long."""

    returncode: int | None
    stdout: str
    stderr: str


Runner = Callable[[Sequence[str], str | None, Mapping[str, str], float], Answer]


def run_command(
    words: Sequence[str], stdin: str | None, environment: Mapping[str, str], timeout_s: float
) -> Answer:
    """Run one command to its end or ``timeout_s`` seconds; raises HostError where it is not installed."""
    try:
        done = subprocess.run(
            words,
            input=stdin if stdin is not None else "",
            env=dict(environment),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise HostError(f"{words[0]} is not installed here; `osub doctor` says what is missing") from error
    except subprocess.TimeoutExpired:
        return Answer(None, "", f"no answer within {timeout_s:g} s")
    return Answer(done.returncode, done.stdout, done.stderr)


class CommandSlurm:
    """A live Slurm, seen through its commands.

    Parameters
    ----------
    conf
        The cluster's ``slurm.conf``; None takes the environment's (SLURM_CONF or /etc/slurm).
    timeout_s
        How long one command may take, seconds.
    tries
        How often a call that changes nothing, or surely never arrived, is made in all.
    pause_s
        Pause before the second try, seconds; doubled each time.
    runner
        Runs a command; tests put their own here.
    """

    def __init__(
        self,
        conf: Path | None = None,
        *,
        timeout_s: float = 20.0,
        tries: int = 3,
        pause_s: float = 0.5,
        runner: Runner = run_command,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._environment = dict(os.environ) | ({"SLURM_CONF": str(conf)} if conf else {})
        self._timeout_s = timeout_s
        self._tries = tries
        self._pause_s = pause_s
        self._runner = runner
        self._pause = pause
        self._threads: dict[str, int] | None = None

    def version(self) -> str:
        """Return slurmctld's version."""
        return self.config().get("SLURM_VERSION", "unknown")

    def config(self) -> Mapping[str, str]:
        """Return slurmctld's running configuration."""
        return read_config(self._ask("scontrol", "show", "config"))

    def jobs(self) -> JobSnapshot:
        """Return every job slurmctld knows, and those of which it says nothing that can be read."""
        return read_jobs(self._ask("scontrol", "show", "-o", "-d", "job"), self._threads_by_node())

    def job(self, job_id: int) -> Job | None:
        """Return one job, or None where slurmctld does not know it; see :class:`SlurmClient`."""
        try:
            text = self._ask("scontrol", "show", "-o", "-d", "job", str(job_id))
        except SlurmRefusedError as error:
            if _NO_SUCH_JOB in str(error):
                return None
            raise
        snapshot = read_jobs(text, self._threads_by_node())
        if snapshot.is_unreadable(job_id):
            raise UnreadableJobError(str(snapshot.unreadable[0]))
        return next((job for job in snapshot.jobs if job.job_id == job_id), None)

    def nodes(self) -> Sequence[Node]:
        """Return every node."""
        return read_nodes(self._ask("scontrol", "show", "-o", "node"))

    def partitions(self) -> Sequence[Partition]:
        """Return every partition."""
        return read_partitions(self._ask("scontrol", "show", "-o", "partition"))

    def submit(self, request: SubmitRequest) -> int:
        """Submit a batch job and return its id; see :class:`SlurmClient` for what it raises."""
        words = ["sbatch", *sbatch_options(request)]
        environment = dict(request.environment) | {
            key: self._environment[key] for key in ("SLURM_CONF", "PATH") if key in self._environment
        }
        for attempt in range(self._tries):
            answer = self._runner(words, request.script, environment, self._timeout_s)
            if answer.returncode == 0:
                return int(answer.stdout.strip().partition(";")[0])
            if answer.returncode is None or any(sign in answer.stderr for sign in _NO_ANSWER):
                raise SubmitUncertainError(f"submission of {request.name}: {_last_line(answer)}")
            if not any(sign in answer.stderr for sign in _NEVER_ARRIVED):
                raise SlurmRefusedError(f"Slurm refused {request.name}: {_last_line(answer)}")
            if attempt + 1 < self._tries:
                self._pause(self._pause_s * 2**attempt)
        raise SlurmUnreachableError(f"{request.name} not submitted: {_last_line(answer)}")

    def cancel(self, job_ids: Iterable[int], *, only_pending: bool = False) -> None:
        """Cancel jobs, or those of them that have not started; one that has ended already is no error."""
        ids = [str(job_id) for job_id in job_ids]
        if ids:
            self._tell("scancel", *(["--state=PENDING"] if only_pending else []), *ids)

    def move_end(self, job_id: int, end_time: int) -> None:
        """Move a running job's end to ``end_time``, seconds since the epoch."""
        local = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(end_time))
        self._tell("scontrol", "update", f"JobId={job_id}", f"EndTime={local}")

    def signal(self, job_id: int, signal_name: str) -> None:
        """Send a signal to a job's steps."""
        self._tell("scancel", f"--signal={signal_name}", str(job_id))

    def _tell(self, *words: str) -> None:
        """Carry out a verb that may be said twice; a job that has ended already is no error."""
        try:
            self._ask(*words)
        except SlurmRefusedError as error:
            if not any(sign in str(error) for sign in _ENDED_ALREADY):
                raise

    def _ask(self, *words: str) -> str:
        """Return what a command prints; retried while Slurm is away."""
        for attempt in range(self._tries):
            answer = self._runner(words, None, self._environment, self._timeout_s)
            if answer.returncode == 0:
                return answer.stdout
            away = answer.returncode is None or any(
                s in answer.stderr for s in (*_NEVER_ARRIVED, *_NO_ANSWER)
            )
            if not away:
                raise SlurmRefusedError(f"`{' '.join(words)}` failed: {_last_line(answer)}")
            if attempt + 1 < self._tries:
                self._pause(self._pause_s * 2**attempt)
        raise SlurmUnreachableError(
            f"Slurm does not answer ({_last_line(answer)}); is slurmctld running? Tried {self._tries} times"
        )

    def _threads_by_node(self) -> dict[str, int]:
        if self._threads is None:
            self._threads = {node.name: node.threads_per_core for node in self.nodes()}
        return self._threads


def _last_line(answer: Answer) -> str:
    lines = [line for line in (answer.stderr or answer.stdout).splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit code {answer.returncode}, nothing printed"
