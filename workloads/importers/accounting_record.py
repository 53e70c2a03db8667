"""One job as a cluster's accounting tells it, whatever the format of the log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AccountingJob:
    """A job of an accounting log; what the log does not tell is ``None``.

    Parameters
    ----------
    job_id
        As the log writes it: ``4711``, ``4711_3`` of an array, ``4711+1`` of a heterogeneous job.
    raw_id
        A number of its own for every array task, where the log has one.
    state
        The first word of Slurm's state, such as COMPLETED.
    submit_s, start_s, end_s
        Unix time.
    run_s
        Elapsed time; without the time that the job was suspended.
    procs, requested_procs, nodes
        Counts over all nodes.
    requested_s
        The time limit; ``None`` also for UNLIMITED.
    requested_memory_kib, used_memory_kib
        Of the whole job.
    cpu_s
        CPU time of the whole job.
    user, account, partition, qos, name
        Texts.
    had_nodes
        Whether it ever had a node; ``None`` where the log does not tell.
    sure
        Whether its instants are; not where autumn repeats an hour and both passes fit.
    """

    job_id: str
    submit_s: float | None
    raw_id: int | None = None
    state: str | None = None
    start_s: float | None = None
    end_s: float | None = None
    run_s: float | None = None
    procs: int | None = None
    requested_procs: int | None = None
    nodes: int | None = None
    requested_s: float | None = None
    requested_memory_kib: float | None = None
    used_memory_kib: float | None = None
    cpu_s: float | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    name: str | None = None
    had_nodes: bool | None = None
    sure: bool = True


@dataclass(slots=True)
class AccountingLog:
    """What a reader found: the jobs, and how many lines it skipped, by reason, with a few examples.

    ``not_known`` counts values that cannot be, by column; they count as absent.
    """

    kind: str
    jobs: list[AccountingJob] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    not_known: Counter[str] = field(default_factory=Counter)

    def skip(self, reason: str, example: str) -> None:
        """Count a line that cannot be used."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1
        if len(self.examples) < 5:
            self.examples.append(example)
