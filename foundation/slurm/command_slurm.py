"""Slurm through its commands. What is read from which: ``job_sources`` and ``site_configuration``."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from foundation.errors import HostError
from foundation.one_line import LONGEST_MESSAGE, one_line
from foundation.slurm.completions import TYPE as COMPLETIONS
from foundation.slurm.completions import CompletionFile
from foundation.slurm.hosts import NodeBook
from foundation.slurm.job_sources import ChosenSource, JobSource, JsonSource, QuietSource, TextSource
from foundation.slurm.run_command import (
    CommandOutput,
    Runner,
    command_environment,
    run_command,
    sbatch_options,
    submit_environment,
)
from foundation.slurm.site_configuration import read_config, read_nodes, read_partitions, read_reservations
from foundation.slurm.slurm_client import MOST_AT_ONCE as MOST_ACCOUNTED
from foundation.slurm.slurm_client import (
    Accounted,
    MarkField,
    Receiver,
    SubmitRequest,
    accounting_words,
    marking_script,
    moving_script,
    read_accounting,
    read_outcomes,
)
from foundation.slurm.slurm_types import (
    AccountingNames,
    AnswerTooLongError,
    JobSnapshot,
    Partition,
    Reservation,
    SlurmJob,
    SlurmNode,
    SlurmRefusedError,
    SlurmUnreachableError,
    SubmitUncertainError,
    UnreadableJobError,
)
from foundation.units import counted_of

# Slurm's words for a controller that is away or restarting: nothing was done, so one may try again.
_NEVER_ARRIVED = (
    "Unable to contact slurm controller",
    "connect failure",
    "Connection refused",
    "in standby mode",
    "Protocol authentication error",  # munged is down or restarting
)
# ... and for one that took the call and did not answer: it may have been carried out.
_NO_ANSWER = (
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Transport endpoint is not connected",
    "recv",
)
# What scontrol says of a single command of several that slurmctld did not answer.
_AWAY = (*_NEVER_ARRIVED, *_NO_ANSWER, "Unexpected message received")
_ENDED_ALREADY = (
    "already completing or completed",
    "Job/step already completing",
    "Invalid job id specified",
)
# Last line of a command that printed the reason before it: about slurm.conf, or a host without an address.
_SAYS_NO_REASON = re.compile(r"fatal: Unable to process configuration file|error: No error$")
_MOST_AT_ONCE = 1_000  # jobs in one command: it has to end in time, and its words have to fit
_MOST_FILTER_LINES = 5
_SUBMITTED = re.compile(r"([0-9]{1,10})(?:;[^\n]*)?")


def cancel_words(*jobs: int | str) -> tuple[str, ...]:
    """Return the command that cancels jobs."""
    return ("scancel", *map(str, jobs))


def put_back_words(job: int | str, *, held: bool) -> tuple[str, ...]:
    """Return the command that ends a job and puts it back to the queue."""
    return ("scontrol", "requeuehold" if held else "requeue", str(job))


def signal_words(job: int | str, signal_name: str, receiver: Receiver) -> tuple[str, ...]:
    """Return the command that sends a job a signal."""
    which = () if receiver is Receiver.STEPS else (f"--{receiver}",)
    return ("scancel", f"--signal={signal_name}", *which, str(job))


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
        self._environment = command_environment(os.environ, conf)
        self._timeout_s = timeout_s
        self._tries = tries
        self._pause_s = pause_s
        self._runner = runner
        self._pause = pause
        self._book = NodeBook(self._ask_nodes)
        self._completions: CompletionFile | None = None
        text = TextSource(self._ask, os.getuid())
        chosen = ChosenSource({"JSON": JsonSource(self._ask), "plain text": text})
        self._source: JobSource = QuietSource(chosen, self._ask)

    def version(self) -> str:
        """Return slurmctld's version."""
        return self.config().get("SLURM_VERSION", "unknown")

    @property
    def book(self) -> NodeBook:
        """The cluster's nodes, as they were asked for last."""
        return self._book

    @property
    def source(self) -> JobSource:
        """Where it reads jobs from."""
        return self._source

    def config(self) -> Mapping[str, str]:
        """Return slurmctld's running configuration."""
        return read_config(self._ask("scontrol", "show", "config"))

    def jobs(self) -> JobSnapshot:
        """Return every job slurmctld knows, and those of which it says nothing that can be read."""
        return self._source.read(self._book)

    def job(self, job_id: int) -> SlurmJob | None:
        """Return one job, or None where slurmctld does not know it; see :class:`SlurmClient`."""
        snapshot = self.jobs()
        for job in snapshot.jobs:
            if job.job_id == job_id:
                return job
        if snapshot.is_unreadable(job_id):
            raise UnreadableJobError("; ".join(map(str, snapshot.unreadable[:3])))
        return None

    def completed(self) -> frozenset[int]:
        """Return the jobs that ended well and that slurmctld still knows."""
        words = ("squeue", "--noheader", "--all", "--states=COMPLETED", "--format=%A")
        return frozenset(int(word) for word in self._ask(*words).split() if word.isdigit())

    def nodes(self) -> Sequence[SlurmNode]:
        """Return every node."""
        nodes = self._ask_nodes()
        self._book.keep(nodes)
        return nodes

    def partitions(self) -> Sequence[Partition]:
        """Return every partition."""
        return read_partitions(self._ask("scontrol", "show", "-o", "partition"))

    def reservations(self) -> Sequence[Reservation]:
        """Return the reservations of nodes, those to come included."""
        return read_reservations(self._ask("scontrol", "show", "-o", "reservation"))

    def accounted(self, submitted: Mapping[int, float]) -> Mapping[int, Accounted] | None:
        """Return what accounting has of jobs, or else Slurm's completion log; None where there is neither."""
        accounted = self._by_slurmdbd(submitted)
        return self._by_log(submitted) if accounted is None else accounted

    def _by_slurmdbd(self, job_ids: Iterable[int]) -> Mapping[int, Accounted] | None:
        """Return what slurmdbd has; None where there is none, or no ``sacct``."""
        ids, found = list(job_ids), dict[int, Accounted]()
        for first in range(0, len(ids), MOST_ACCOUNTED):
            words = accounting_words(ids[first : first + MOST_ACCOUNTED])
            try:
                found |= read_accounting(self._ask(*words))
            except (SlurmRefusedError, HostError):
                return None
        return found

    def _by_log(self, submitted: Mapping[int, float]) -> Mapping[int, Accounted] | None:
        """Return what the completion log has; None where Slurm writes none, or it is not to be had here."""
        if self._completions is None:
            try:
                config = self.config()
            except (SlurmRefusedError, HostError):
                return None
            if config.get("JobCompType") != COMPLETIONS or not config.get("JobCompLoc", "").startswith("/"):
                return None
            user = config.get("SlurmUser", "").partition("(")[0] or None
            self._completions = CompletionFile(Path(config["JobCompLoc"]), user)
        read = self._completions.read()
        return None if read is None else read.accounted(submitted)

    def accounting_names(self) -> AccountingNames:
        """Return which QOS and accounts slurmdbd knows."""
        words = ("sacctmgr", "--noheader", "--parsable2", "show")
        qos, accounts = (
            frozenset(self._ask(*words, what, f"format={field}").split())
            for what, field in (("qos", "Name"), ("account", "Account"))
        )
        return AccountingNames(qos, accounts)

    def submit(self, request: SubmitRequest) -> int:
        """Submit a batch job and return its id; see :class:`SlurmClient` for what it raises."""
        return self._submit(request.name, sbatch_options(request), request.script, request.environment)

    def submit_by(self, words: Sequence[str]) -> int:
        """Submit a batch job by words for ``sbatch``, in the caller's environment; see ``submit``."""
        return self._submit("the job", ["--parsable", *words], None, os.environ)

    def _submit(
        self, name: str, options: Sequence[str], script: str | None, job_environment: Mapping[str, str]
    ) -> int:
        words = ["sbatch", *options]
        environment = submit_environment(job_environment, self._environment)
        for attempt in range(self._tries):
            answer = self._runner(words, script, environment, self._timeout_s)
            if answer.returncode == 0:
                printed = _SUBMITTED.fullmatch(answer.stdout.strip())
                if printed is None:
                    raise SubmitUncertainError(f"submission of {name}: sbatch printed no job id")
                return int(printed.group(1))
            if answer.was_killed or any(sign in answer.stderr for sign in _NO_ANSWER):
                raise SubmitUncertainError(f"submission of {name}: {_last_line(answer)}")
            if not any(sign in answer.stderr for sign in _NEVER_ARRIVED):
                raise SlurmRefusedError(f"Slurm refused {name}: {_why_refused(answer)}")
            if attempt + 1 < self._tries:
                self._pause(self._pause_s * 2**attempt)
        raise SlurmUnreachableError(f"{name} not submitted: {_last_line(answer)}")

    def check(self, request: SubmitRequest) -> None:
        """Ask whether a job would be taken, without submitting it; see :class:`SlurmClient`."""
        words = ["sbatch", "--test-only", *sbatch_options(request)]
        environment = submit_environment(request.environment, self._environment)
        answer = self._runner(words, request.script, environment, self._timeout_s)
        if answer.returncode == 0:
            return
        if answer.was_killed or any(s in answer.stderr for s in (*_NEVER_ARRIVED, *_NO_ANSWER)):
            raise SlurmUnreachableError(f"Slurm does not answer ({_last_line(answer)})")
        raise SlurmRefusedError(f"Slurm refuses a job: {_why_refused(answer)}")

    def cancel(self, job_ids: Iterable[int | str], *, only_pending: bool = False) -> None:
        """Cancel jobs, or those of them that have not started; one that has ended already is no error."""
        ids = [str(job_id) for job_id in job_ids]
        which = ("--state=PENDING",) if only_pending else ()
        for first in range(0, len(ids), _MOST_AT_ONCE):
            self._tell(*cancel_words(*which, *ids[first : first + _MOST_AT_ONCE]))

    def move_ends(self, ends: Mapping[int, int]) -> Mapping[int, str]:
        """Move the ends of running jobs by one command; see :class:`SlurmClient`."""
        return self._update("moved the ends of", list(ends), moving_script(ends))

    def mark(self, job_ids: Iterable[int], where: MarkField, text: str) -> Mapping[int, str]:
        """Write a word into a field of running jobs by one command; see :class:`SlurmClient`."""
        ids = list(job_ids)
        return self._update("marked", ids, marking_script(ids, where, text))

    def put_back(self, job: int | str, *, held: bool = False) -> None:
        """End a job and put it back to the queue; see :class:`SlurmClient`."""
        self._ask(*put_back_words(job, held=held))

    def signal(self, job: int | str, signal_name: str, receiver: Receiver = Receiver.STEPS) -> None:
        """Send a signal to a job; see :class:`SlurmClient`."""
        self._tell(*signal_words(job, signal_name, receiver))

    def reserve(self, name: str, nodes: Iterable[str], length_s: int, user: str, *, anew: bool) -> None:
        """Keep nodes, whatever runs on them, for jobs that name a reservation (administrators only).

        Parameters
        ----------
        name, nodes, user
            Of the reservation, which other reservations may overlap.
        length_s
            It ends by itself after so many seconds from now.
        anew
            Whether it is made, or changed.

        Raises
        ------
        SlurmRefusedError
            The caller may not, or Slurm has another reason.
        """
        verb = ("create", "StartTime=now", "Flags=IGNORE_JOBS,OVERLAP") if anew else ("update",)
        words = (f"Nodes={','.join(nodes)}", f"EndTime=now+{length_s}", f"Users={user}")
        self._ask("scontrol", *verb, f"ReservationName={name}", *words)

    def unreserve(self, name: str) -> None:
        """End a reservation; raises SlurmRefusedError where a job is in it, or there is none."""
        self._ask("scontrol", "delete", f"reservation={name}")

    def release(self, job: int | str) -> None:
        """Let a held job start; raises SlurmRefusedError where it is another user's, or has ended."""
        self._ask("scontrol", "release", str(job))

    def change_job(self, job: int | str, **fields: str) -> None:
        """Change fields of a job, by their names in ``scontrol update``; raises SlurmRefusedError."""
        self._ask(
            "scontrol", "update", f"JobId={job}", *(f"{name}={value}" for name, value in fields.items())
        )

    def _update(self, what: str, job_ids: Sequence[int], script: str) -> Mapping[int, str]:
        """Carry out one update of each job; returns why Slurm refused, by job."""
        answer = self._runner(["scontrol"], script, self._environment, self._timeout_s)
        outcomes = read_outcomes(answer.stderr)
        away = [job for job, said in outcomes.items() if any(sign in said for sign in _AWAY)]
        missing = [job for job in job_ids if job not in outcomes]
        if away or missing:
            said = outcomes[away[0]] if away else _last_line(answer)
            silent = len(away) + len(missing)
            raise SlurmUnreachableError(
                f"Slurm did not say that it {what} {counted_of(silent, len(job_ids), 'job')} ({said})"
            )
        return {job: one_line(said) for job, said in outcomes.items() if said}

    def _ask_nodes(self) -> list[SlurmNode]:
        return read_nodes(self._ask("scontrol", "show", "-o", "node"))

    def _tell(self, *words: str) -> None:
        """Carry out a verb that may be said twice; a job that has ended already is no error."""
        try:
            self._ask(*words)
        except SlurmRefusedError as error:
            if not any(sign in str(error) for sign in _ENDED_ALREADY):
                raise

    def _ask(self, *words: str, check: Callable[[str], object] = len) -> str:
        """Return what a command prints; retried while Slurm is away.

        ``check`` raises SlurmUnreachableError where it is the output that says so.
        """
        for attempt in range(self._tries):
            answer = self._runner(words, None, self._environment, self._timeout_s)
            if answer.returncode == 0:
                try:
                    check(answer.stdout)
                except SlurmUnreachableError as error:
                    answer = CommandOutput(None, "", str(error))
                else:
                    return answer.stdout
            if answer.too_long:
                raise AnswerTooLongError(f"`{' '.join(words)}`: {answer.stderr}")
            away = answer.was_killed or any(s in answer.stderr for s in (*_NEVER_ARRIVED, *_NO_ANSWER))
            if not away:
                raise SlurmRefusedError(f"`{one_line(' '.join(words))}` failed: {_last_line(answer)}")
            if attempt + 1 < self._tries:
                self._pause(self._pause_s * 2**attempt)
        raise SlurmUnreachableError(
            f"Slurm does not answer ({_last_line(answer)}); is slurmctld running? Tried {self._tries} times"
        )


def _why_refused(answer: CommandOutput) -> str:
    """Return why sbatch takes no job: what the site's own filters print, and the last line, which is Slurm's.

    A cli_filter or job_submit plugin says why in lines of its own (``slurm.log_error``, ``slurm.log_user``),
    and Slurm after it only that it ended with an error.
    """
    last = _last_line(answer)
    lines = [line.partition("error: ")[2].strip() for line in answer.stderr.splitlines()[:-1]]
    before = [one_line(words) for words in lines if words and not last.endswith(words)]
    return "; ".join([*before[:_MOST_FILTER_LINES], last])


def _last_line(answer: CommandOutput) -> str:
    """Return a command's last line, and the reason where only an earlier line gives it."""
    printed = (answer.stderr or answer.stdout).splitlines()
    lines = [line.strip() for line in printed if line.strip() and not line.startswith('Try "')]
    if not lines:
        return f"exit code {answer.returncode}, nothing printed"
    *before, last = lines
    why = next((line for line in before if " error: " in line), None)
    if why is None or not _SAYS_NO_REASON.search(last):
        return one_line(last)
    return one_line(f"{why}; {last}", LONGEST_MESSAGE)
