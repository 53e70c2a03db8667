"""Where jobs are read from: JSON where Slurm prints it, else plain text. The one place that chooses.

The source on Slurm's C library is in ``pyslurm_library``; a process of its own reads from it
(``subprocess_reader``).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from foundation.errors import ClusterError
from foundation.slurm.hosts import expand_hosts
from foundation.slurm.reading.json_jobs import JsonReader
from foundation.slurm.reading.nodebook import AT_MOST_EVERY_S, BadRecordError, NodeBook, snapshot_of
from foundation.slurm.reading.text_jobs import (
    SEPARATOR,
    Written,
    address_of,
    facts_words,
    job_of,
    read_cores,
    read_facts,
    state_of,
)
from foundation.slurm.slurm_types import (
    AnswerTooLongError,
    JobSnapshot,
    NodeCores,
    SlurmJob,
    SlurmRefusedError,
    UnknownFormatError,
    UnreadableJob,
)

log = logging.getLogger("foundation.slurm")

_NO_JSON = re.compile(r"(?:unrecognized|invalid|unknown) option|plugin|serializer|json", re.IGNORECASE)
_AGAIN_S = 60.0
_MOST_NEW = 200


class Ask(Protocol):
    """Runs a command and returns what it prints; raises what ``SlurmClient`` says."""

    def __call__(self, *words: str, check: Callable[[str], object] = len) -> str:
        """Run ``words``; ``check`` raises SlurmUnreachableError where the output says that Slurm is away."""
        ...


class JobSource(Protocol):
    """Reads all jobs that slurmctld knows."""

    def read(self, nodes: NodeBook) -> JobSnapshot:
        """Return them; raises what ``SlurmClient`` says."""
        ...


class JsonSource:
    """``squeue --json``: one call for everything."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._reader = JsonReader()

    def read(self, nodes: NodeBook) -> JobSnapshot:
        """Return all jobs.

        Raises
        ------
        AnswerTooLongError
            There are so many jobs, or their users wrote so much.
        UnknownFormatError
            This Slurm prints no JSON, or another one.
        """
        try:
            self._ask("squeue", "--json", "--all", "--states=all", check=self._reader.open)
        except SlurmRefusedError as error:
            if _NO_JSON.search(str(error)):
                raise UnknownFormatError(str(error)) from error
            raise
        nodes.renew()
        snapshot = self._reader.read(nodes.find, nodes.edition)
        if nodes.missed and nodes.renew(AT_MOST_EVERY_S):
            snapshot = self._reader.read(nodes.find, nodes.edition)
        self._reader.close()
        if snapshot.unreadable and not snapshot.jobs:
            raise UnknownFormatError(f"no record of `squeue --json` can be read: {snapshot.unreadable[0]}")
        return snapshot


class TextSource:
    """``squeue -O`` for all jobs, and seven more calls for each job that has cores, once in its run.

    Parameters
    ----------
    ask
        Runs a command.
    uid
        The names of this user's jobs are read, and of no others.
    """

    def __init__(self, ask: Ask, uid: int) -> None:
        self._ask = ask
        self._uid = uid
        self._cores: dict[tuple[str, ...], tuple[NodeCores, ...] | BadRecordError] = {}
        self._written: dict[tuple[str, ...], Written] = {}
        self._edition = 0
        self._left = 0

    def read(self, nodes: NodeBook) -> JobSnapshot:
        """Return all jobs; comments and features as they were when a job started."""
        text = self._ask(*facts_words())
        self._left = _MOST_NEW
        names = self._column("Name", f"--user={self._uid}")
        reasons = self._column("Reason")
        nodes.renew()
        if nodes.edition != self._edition:
            self._edition = nodes.edition
            self._cores.clear()
        jobs: list[SlurmJob] = []
        unreadable: list[UnreadableJob] = []
        runs: set[tuple[str, ...]] = set()
        for number, facts in read_facts(text):
            if facts is None or number is None:
                unreadable.append(UnreadableJob(number, "its line is malformed"))
                continue
            run = tuple(facts[key] for key in ("JobID", "StartTime", "RestartCnt", "NodeList", "NumCPUs"))
            runs.add(run)
            try:
                cores, written = self._held(run, facts, nodes)
                jobs.append(job_of(facts, cores, written, names.get(number), reasons.get(number, "None")))
            except BadRecordError as error:
                unreadable.append(UnreadableJob(number, str(error)))
        self._cores = {run: cores for run, cores in self._cores.items() if run in runs}
        self._written = {run: written for run, written in self._written.items() if run in runs}
        return snapshot_of(jobs, unreadable)

    def _held(
        self, run: tuple[str, ...], facts: dict[str, str], nodes: NodeBook
    ) -> tuple[tuple[NodeCores, ...], Written]:
        """Return what a job holds and what its user wrote; nothing for one that holds no cores.

        Of jobs that have ended only one's own are asked for, and of all no more at once than take seconds.
        """
        state = state_of(facts)
        own = state.is_over and facts["UserID"] == str(self._uid)
        if run not in self._cores and facts["NodeList"] and (state.holds_cores or own):
            if self._left <= 0:
                if state.is_over:
                    return (), Written()
                raise BadRecordError("many jobs began at once; it has not been asked for yet")
            self._left -= 1
            self._cores[run] = self._ask_cores(facts, nodes)
            if state.holds_cores:
                address = address_of(facts)
                self._written[run] = Written(
                    comment=self._of(address, "Comment"),
                    admin_comment=self._of(address, "admin_comment"),
                    features=self._of(address, "Feature"),
                    account=self._of(address, "Account"),
                    qos=self._of(address, "QOS"),
                    reservation=self._of(address, "Reservation"),
                )
        cores = self._cores.get(run, ())
        if isinstance(cores, BadRecordError):
            if state.holds_cores:
                raise cores
            cores = ()
        return cores if state.holds_cores or state.is_over else (), self._written.get(run, Written())

    def _ask_cores(self, facts: dict[str, str], nodes: NodeBook) -> tuple[NodeCores, ...] | BadRecordError:
        """Return the cores, or why they cannot be known in this run; raises the latter where it may pass."""
        try:
            text = self._ask("scontrol", "show", "--detail", "--oneliner", "job", address_of(facts))
        except SlurmRefusedError as error:
            raise BadRecordError("scontrol does not know it") from error
        except AnswerTooLongError:
            return BadRecordError("its record is too long")
        try:
            if nodes.missed or any(nodes.find(name) is None for name in expand_hosts(facts["NodeList"])):
                nodes.renew(AT_MOST_EVERY_S)
            return read_cores(text, facts, nodes.find)
        except (BadRecordError, ClusterError) as error:
            return BadRecordError(str(error))

    def _of(self, address: str, field: str) -> str | None:
        """Return one field of one job, asked for alone: no other user's text is in the answer."""
        words = ("squeue", "--noheader", "--all", "--states=all")
        try:
            text = self._ask(*words, f"--jobs={address}", f"--Format={field}:0")
        except (SlurmRefusedError, AnswerTooLongError):
            return None
        said = text.removesuffix("\n")
        return None if said in {"", "(null)"} else said

    def _column(self, field: str, *which: str) -> dict[int, str]:
        """Return a field by job; where two lines have a job's id, its field is left out."""
        words = ("squeue", "--noheader", "--all", "--states=all", f"--Format=JobID:0{SEPARATOR},{field}:0")
        found: dict[int, str] = {}
        twice = set()
        for line in self._ask(*words, *which).split("\n"):
            number, separator, value = line.partition(SEPARATOR)
            if separator and re.fullmatch(r"[0-9]{1,10}", number):
                if int(number) in found:
                    twice.add(int(number))
                found[int(number)] = value
        return {number: value for number, value in found.items() if number not in twice}


class ChosenSource:
    """The first of several sources that can be read; one that cannot be is tried again after a minute.

    Parameters
    ----------
    sources
        By what they read from, the best one first. The last one is read whatever it raised before.

    Attributes
    ----------
    name
        What was read from last.
    why_not
        Why a source was not read when it was tried last, by name.
    """

    def __init__(self, sources: Mapping[str, JobSource], clock: Callable[[], float] = time.monotonic) -> None:
        self.name: str | None = None
        self.why_not: dict[str, str] = {}
        self._sources = sources
        self._last = [*sources][-1]
        self._clock = clock
        self._again_s: dict[str, float] = {}

    def read(self, nodes: NodeBook) -> JobSnapshot:
        """Return all jobs; raises what the last source does."""
        for name, source in self._sources.items():
            if self._clock() < self._again_s.get(name, float("-inf")):
                continue
            try:
                snapshot = source.read(nodes)
            except (UnknownFormatError, AnswerTooLongError) as error:
                if name == self._last:
                    raise
                self.why_not[name] = str(error)
                self._again_s[name] = self._clock() + _AGAIN_S
                continue
            self.why_not.pop(name, None)
            if name != self.name:
                worse = self.name is not None or bool(self.why_not)
                why = "".join(f"; {text}" for text in self.why_not.values())
                log.log(logging.WARNING if worse else logging.INFO, "jobs are read from %s%s", name, why)
                self.name = name
            return snapshot
        raise AssertionError("the last source is always read")
