"""The protocol that every view of Slurm fulfils, and the request to submit a job.

What became of jobs, by Slurm's accounting (sacct(1), slurmdbd), which forgets none that has ended.

Only fields are asked for in which no user writes, and a line that is not exactly of their form counts for
nothing, as if accounting had no record of that job.

Updates of many jobs by one command: ``scontrol`` reads what it is to do from its standard input.

Each job has a line of its own. After it comes a word that ``scontrol`` does not know: it says so on standard
error, which tells where the complaints of one job end and those of the next begin, and that the line before
was carried out. Nothing that a user writes goes in. Two things are written so:

* The *end* of a job: each has another one.
* A *mark*, a word about a job where its user sees it, once and in a field that is empty. Slurm has two fields
  for it (slurmctld/job_mgr.c). ``AdminComment`` is in every release, and takes the rights of root, of Slurm's
  user, or of an administrator in slurmdbd (an operator's do not suffice). ``Extra`` of jobs is there from
  23.02 on; operators may write it, and so may the job's owner. What is written replaces what was there: who
  marks has looked whether the field is empty, and who writes between the look and the mark loses.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from foundation.slurm.slurm_types import (
    STATES,
    AccountingNames,
    JobSnapshot,
    Partition,
    Reservation,
    SlurmJob,
    SlurmJobState,
    SlurmNode,
    instant_of,
)

MARK = "end-of-"
"""What comes before the number of a job whose line is over."""
_UNKNOWN = f"invalid keyword: {MARK}"

EXTRA_SINCE = (23, 2)
"""The first release in which jobs have an ``Extra``."""

_TEXT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:=_-]{0,127}")


def moving_script(ends: Mapping[int, int]) -> str:
    """Return what gives jobs these ends, seconds since the epoch, when ``scontrol`` reads it with TZ=UTC."""
    lines = []
    for job_id, end_time in ends.items():
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(end_time))
        lines.append(f"update JobId={job_id:d} EndTime={stamp}\n{MARK}{job_id:d}\n")
    return "".join(lines)


def read_outcomes(errors: str) -> dict[int, str]:
    """Return what was said of each job, in one line, empty if nothing was: its end was moved.

    A job that is missing was not come to: the command was ended before.
    """
    outcomes: dict[int, str] = {}
    said: list[str] = []
    for line in errors.splitlines():
        if not line.startswith(_UNKNOWN):
            said.append(line.strip())
            continue
        number = line.removeprefix(_UNKNOWN).strip()
        if number.isascii() and number.isdigit():
            outcomes[int(number)] = "; ".join(filter(None, said))
        said = []
    return outcomes


class MarkField(StrEnum):
    """Where the word is written, as ``scontrol`` names it."""

    ADMIN_COMMENT = "AdminComment"
    EXTRA = "Extra"

    def is_empty(self, job: SlurmJob) -> bool:
        """Whether the field is known to be empty."""
        return job.admin_comment is None if self is MarkField.ADMIN_COMMENT else job.extra == ""


def sharing_text(wall_s: float) -> str:
    """Return what is written of a job that shares its cores since an instant, seconds since the epoch."""
    return f"gangd-shares-cores={time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(wall_s))}"


def marking_script(job_ids: Iterable[int], where: MarkField, text: str) -> str:
    """Return what marks jobs when ``scontrol`` reads it; ``foundation.slurm.ends`` reads the outcome.

    Raises
    ------
    ValueError
        The text has characters that could be something else for ``scontrol``.
    """
    if not _TEXT.fullmatch(text):
        raise ValueError(f"{text!r} cannot be written with a job")
    return "".join(f"update JobId={job_id:d} {where}={text}\n{MARK}{job_id:d}\n" for job_id in job_ids)


FIELDS = ("JobIDRaw", "State", "ExitCode", "Submit", "Start", "End")
MOST_AT_ONCE = 500

_LINE = re.compile(
    r"([1-9][0-9]{0,9})\|([A-Z_]{1,20})(?: by [0-9]{1,10})?\|([0-9]{1,3}):([0-9]{1,3})"
    r"\|([0-9T:-]{19}|Unknown|None)\|([0-9T:-]{19}|Unknown|None)\|([0-9T:-]{19}|Unknown|None)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounted:
    """A job as accounting has it; times in epoch seconds, None for what has not happened.

    ``exit_code`` and ``exit_signal`` are the batch script's, the signal None for none.
    """

    job_id: int
    state: SlurmJobState
    exit_code: int
    exit_signal: int | None
    submit_time: int | None
    start_time: int | None
    end_time: int | None


def accounting_words(job_ids: Iterable[int]) -> tuple[str, ...]:
    """Return the command that lists the ends of jobs, earlier attempts of requeued jobs included."""
    return (
        *("sacct", "--noheader", "--parsable2", "--allocations", "--duplicates"),
        f"--format={','.join(FIELDS)}",
        f"--jobs={','.join(map(str, job_ids))}",
    )


def read_accounting(text: str) -> dict[int, Accounted]:
    """Return the last life of each job in what ``accounting_words`` prints under TZ=UTC."""
    found: dict[int, Accounted] = {}
    for line in text.split("\n"):
        parts = _LINE.fullmatch(line)
        state = None if parts is None else STATES.get(parts[2])
        if parts is None or state is None:
            continue
        one = Accounted(
            job_id=int(parts[1]),
            state=state,
            exit_code=int(parts[3]),
            exit_signal=int(parts[4]) or None,
            submit_time=instant_of(parts[5]),
            start_time=instant_of(parts[6]),
            end_time=instant_of(parts[7]),
        )
        before = found.get(one.job_id)
        if before is None or (one.submit_time or 0) >= (before.submit_time or 0):
            found[one.job_id] = one
    return found


class Receiver(StrEnum):
    """Which processes of a job a signal goes to (scancel(1), ``--batch`` and ``--full``)."""

    STEPS = "steps"
    BATCH = "batch"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest:
    """A batch job to submit.

    Attributes
    ----------
    script
        The batch script's text, from its ``#!`` line on.
    name
        Job name.
    partition
        Partition; None for the default one.
    nodes
        Number of nodes, at least 1.
    most_nodes
        The job takes as many nodes as are free, from ``nodes`` to so many; None: it takes ``nodes``.
    tasks_per_node
        Tasks on each node, one core each, at least 1.
    tasks_per_core
        Most tasks a core; 1 where a core has several hardware threads, each of which Slurm counts as a CPU.
    memory_per_cpu_mib
        Memory a CPU, MiB; None for the partition's default.
    memory_per_node_mib
        Memory a node, MiB, instead.
    time_limit_minutes
        Wall-clock limit, whole minutes; None for the partition's default.
    output
        Where stdout and stderr go; None discards them.
    comment
        Free text that Slurm keeps with the job.
    environment
        The job's whole environment.
    constraint
        Node features asked for.
    account, qos, reservation
        As ``sbatch`` has them; None for the user's default, or none.
    no_requeue
        Whether Slurm may never start the job again; otherwise the site's default holds.
    oversubscribe
        Whether the job shares its cores where the partition leaves that to the job (OverSubscribe=YES).
    options
        Further long options of ``sbatch``, without dashes; see ``run_command.check_options``.
    """

    script: str
    name: str
    nodes: int = 1
    most_nodes: int | None = None
    tasks_per_node: int = 1
    tasks_per_core: int | None = None
    partition: str | None = None
    memory_per_cpu_mib: int | None = None
    memory_per_node_mib: int | None = None
    time_limit_minutes: int | None = None
    output: Path | None = None
    comment: str | None = None
    constraint: str | None = None
    working_directory: Path | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    no_requeue: bool = False
    oversubscribe: bool = False
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class SlurmClient(Protocol):
    """What the toolkit needs of Slurm.

    Every method raises :class:`foundation.errors.ClusterError` (or one of the kinds in
    ``slurm_types``) when Slurm cannot be reached, does not answer in time, or refuses.
    """

    def version(self) -> str:
        """Return Slurm's version, such as ``22.05.8``."""
        ...

    def config(self) -> Mapping[str, str]:
        """Return slurmctld's running configuration (``scontrol show config``)."""
        ...

    def jobs(self) -> JobSnapshot:
        """Return every job slurmctld still knows, and those of which it says nothing that can be read."""
        ...

    def job(self, job_id: int) -> SlurmJob | None:
        """Return one job, or None where slurmctld does not know it (any more).

        Raises
        ------
        UnreadableJobError
            It knows the job, and what it says of it cannot be read.
        """
        ...

    def completed(self) -> frozenset[int]:
        """Return the jobs that ended well (COMPLETED) and that slurmctld still knows."""
        ...

    def nodes(self) -> Sequence[SlurmNode]:
        """Return every node."""
        ...

    def partitions(self) -> Sequence[Partition]:
        """Return every partition."""
        ...

    def reservations(self) -> Sequence[Reservation]:
        """Return the reservations of nodes, those to come included."""
        ...

    def accounted(self, submitted: Mapping[int, float]) -> Mapping[int, Accounted] | None:
        """Return what accounting has of jobs, the last life of each; None where there is no accounting.

        Parameters
        ----------
        submitted
            When each was submitted first, seconds since the epoch.
        """
        ...

    def accounting_names(self) -> AccountingNames:
        """Return which QOS and accounts there are; raises where there is no accounting."""
        ...

    def submit(self, request: SubmitRequest) -> int:
        """Submit a batch job and return its id.

        Raises
        ------
        SubmitUncertainError
            Slurm did not answer in time: the job may or may not exist.
        SlurmRefusedError
            Slurm refused the job.
        """
        ...

    def check(self, request: SubmitRequest) -> None:
        """Ask whether a job would be taken, without submitting it.

        Raises
        ------
        SlurmRefusedError
            Slurm says no, which may be for the moment only (nodes that are down, a reservation to come).
        """
        ...

    def cancel(self, job_ids: Iterable[int | str], *, only_pending: bool = False) -> None:
        """Cancel jobs, by id or ``SlurmJob.spec``, or those of them that have not started.

        One that has ended already is no error.
        """
        ...

    def put_back(self, job: int | str, *, held: bool = False) -> None:
        """End a job, if it has not ended by itself, and put it back to the queue, perhaps held there.

        Raises
        ------
        SlurmRefusedError
            It may not start a second time, Slurm does not know it any more, or it belongs to another user.
        """
        ...

    def move_ends(self, ends: Mapping[int, int]) -> Mapping[int, str]:
        """Move the ends of running jobs, in this order, to seconds since the epoch (operators only).

        Returns
        -------
        mapping
            Why Slurm refused, by job; those that are not in it have their new end.

        Raises
        ------
        SlurmUnreachableError
            Slurm did not answer for some of them: these ends may have been moved or not.
        """
        ...

    def mark(self, job_ids: Iterable[int], where: MarkField, text: str) -> Mapping[int, str]:
        """Write a word into a field of running jobs, in the place of what is there.

        Parameters
        ----------
        text
            Letters, digits and ``:=_-``, at most 128.

        Returns
        -------
        mapping
            Why Slurm refused, by job.

        Raises
        ------
        SlurmUnreachableError
            Slurm did not answer for some of them.
        """
        ...

    def signal(self, job: int | str, signal_name: str, receiver: Receiver = Receiver.STEPS) -> None:
        """Send a signal such as ``USR1`` to a job; one that has ended already is no error."""
        ...
