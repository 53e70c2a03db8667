"""The protocol that every view of Slurm fulfils, and the request to submit a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from foundation.slurm.job_accounting import Accounted
from foundation.slurm.job_updates import MarkField
from foundation.slurm.slurm_types import AccountingNames, Job, JobSnapshot, Node, Partition, Reservation


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
        Further long options of ``sbatch``, without dashes; see ``calling.sbatch_options.check_options``.
    """

    script: str
    name: str
    nodes: int = 1
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
    ``reading.record_faults``) when Slurm cannot be reached, does not answer in time, or refuses.
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

    def job(self, job_id: int) -> Job | None:
        """Return one job, or None where slurmctld does not know it (any more).

        Raises
        ------
        UnreadableJobError
            It knows the job, and what it says of it cannot be read.
        """
        ...

    def nodes(self) -> Sequence[Node]:
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
        """Cancel jobs, by id or ``Job.spec``, or those of them that have not started.

        One that has ended already is no error.
        """
        ...

    def put_back(self, job: int | str, *, held: bool = False) -> None:
        """End a job, if it has not ended by itself, and put it back to the queue, perhaps held there.

        Raises
        ------
        SlurmRefusedError
            It may not start a second time, Slurm does not know it any more, or it is somebody else's.
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
