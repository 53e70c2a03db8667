"""Where jobs are read from, and how often.

Where jobs are read from: JSON where Slurm prints it, else plain text. The one place that chooses.

The source on Slurm's C library is in ``pyslurm_library``; a process of its own reads from it
(``subprocess_reader``).

Sources of jobs that are asked less often while nothing changes: a cheap look spares the full one.

Once two full answers in a row were the same, something short is asked before the next one, and from then on
it alone: as long as it tells of no change, the answer is the one before. What it cannot tell is seen by a
full look now and then.

* ``QuietSource``: ``squeue --json`` writes a hundred fields of every job, six times the work of a short list.
  So a short list is taken, and compared to the byte, never read: it may hold what users write. What changes
  and changes back between two looks waits for the full one.
* ``QuietLibrary``: slurmctld is asked whether any job has changed since an instant by its own clock, and says
  that none has (``SLURM_NO_CHANGE_IN_DATA``) without packing a job. pyslurm (22.5 to 25.11) never gives such
  an instant; so the library that pyslurm has loaded is called directly. ``slurm_load_jobs`` says
  *no* in a few bytes, and *yes* with all jobs, which are thrown away. ``slurm_get_job_steps`` of 22.05 to
  25.05 says both in a few bytes, by the same note of when a job last changed: steps are asked for of a job
  that there is not. 25.11 has it without the instant. What is relied on (slurm.h) is these prototypes, that
  number, and the position in an answer of the instant at which it was made. Nothing else of an answer is
  looked at. What is no plausible instant, or a library that cannot be found, means that nothing is known, and
  all jobs are read.
"""

from __future__ import annotations

import ctypes
import logging
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from foundation.errors import ClusterError
from foundation.slurm.hosts import AT_MOST_EVERY_S, BadRecordError, NodeBook, expand_hosts, snapshot_of
from foundation.slurm.json_jobs import JsonReader
from foundation.slurm.slurm_types import (
    AnswerTooLongError,
    JobSnapshot,
    NodeCores,
    SlurmJob,
    SlurmRefusedError,
    UnknownFormatError,
    UnreadableJob,
)
from foundation.slurm.text_jobs import (
    FACTS,
    SEPARATOR,
    Written,
    address_of,
    facts_words,
    job_of,
    read_cores,
    read_facts,
    state_of,
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
                self._written[run] = Written(
                    comment=self._of(facts, "Comment"),
                    admin_comment=self._of(facts, "admin_comment"),
                    features=self._of(facts, "Feature"),
                    account=self._of(facts, "Account"),
                    qos=self._of(facts, "QOS"),
                    reservation=self._of(facts, "Reservation"),
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

    def _of(self, facts: dict[str, str], field: str) -> str | None:
        """Return one field of one job, asked for alone: no other user's text is in the answer.

        ``squeue --jobs`` prints all components of a heterogeneous job, also for ``ID+OFFSET``: then each line
        is to begin with the component's id. These lines are one user's, so a forged one harms only himself.
        """
        address, form = address_of(facts), f"{field}:0"
        is_component = "+" in address
        if is_component:
            form = f"JobID:0{SEPARATOR},{form}"
        words = ("squeue", "--noheader", "--all", "--states=all", f"--jobs={address}")
        try:
            said = self._ask(*words, f"--Format={form}")
        except (SlurmRefusedError, AnswerTooLongError):
            return None
        if is_component:
            bar = re.escape(SEPARATOR)
            own = re.search(rf"(?:\A|\n){facts['JobID']}{bar}(.*?)(?=\n[0-9]+{bar}|\n?\Z)", said, re.DOTALL)
            said = own[1] if own else ""
        said = said.removesuffix("\n")
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


FULL_EVERY_S = 30.0
"""A full look comes so often all the same."""
_WRITTEN = ("Name", "Comment", "Feature", "Reason", "Account", "QOS")
_WORDS = (
    "squeue",
    "--noheader",
    "--all",
    "--states=all",
    "--noconvert",
    f"--Format={','.join(f'{field}:0{SEPARATOR}' for field in (*FACTS, *_WRITTEN))}",
)

NO_CHANGE = 1900
_SHOW_ALL_HERE = ctypes.c_uint16(0x0011)
_NO_JOB, _ALL_STEPS = ctypes.c_uint32(0x7FFFFFFF), ctypes.c_uint32(0xFFFFFFFE)
_STEPS_BY_INSTANT = range(38, 44)
"""Versions of the library in which steps are asked for since an instant: of Slurm 22.05 to 25.05."""
_PLAUSIBLE_S = 86_400.0
_LIBRARY = re.compile(r"(/\S+/libslurm(?:full)?(?:-[0-9.]+)?\.so(?:\.[0-9.]+)?)$", re.MULTILINE)


class QuietSource:
    """Another source, asked less often while nothing changes.

    Parameters
    ----------
    source
        What is asked for full answers.
    ask
        Runs a command.
    """

    def __init__(self, source: JobSource, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._ask = ask
        self._clock = clock
        self._last: JobSnapshot | None = None
        self._last_s = float("-inf")
        self._pulse: str | None = None
        self._quiet = False

    def read(self, nodes: NodeBook) -> JobSnapshot:
        """Return all jobs."""
        pulse = self._take() if self._quiet else None
        recent = self._clock() < self._last_s + FULL_EVERY_S
        if self._last is not None and pulse is not None and pulse == self._pulse and recent:
            return self._last
        now_s = self._clock()
        snapshot = self._source.read(nodes)
        self._quiet = snapshot == self._last
        self._last, self._last_s, self._pulse = snapshot, now_s, pulse
        return snapshot

    def _take(self) -> str | None:
        try:
            return self._ask(*_WORDS)
        except AnswerTooLongError:
            return None


class ChangeProbe(Protocol):
    """Asks slurmctld whether anything has changed."""

    @property
    def is_short(self) -> bool:
        """Whether the answer "changed" is also a few bytes, not all jobs."""
        ...

    def since(self, instant_s: int) -> int | None:
        """Return 0 if no job has changed since an instant; else a later one that is past.

        Both by slurmctld's clock. With 0 for ``instant_s`` an instant always comes. None where it is not
        known.
        """
        ...


class _Jobs(ctypes.Structure):
    _fields_ = (("last_backfill", ctypes.c_long), ("last_update", ctypes.c_long))


class _Licences(ctypes.Structure):
    _fields_ = (("last_update", ctypes.c_long),)


class LibraryPulse:
    """The pulse by ``libslurm``, as this process has loaded it.

    Parameters
    ----------
    library
        Path of the library; None for the one that is loaded.
    """

    def __init__(self, library: Path | None = None, wall: Callable[[], float] = time.time) -> None:
        self._path = library
        self._library: ctypes.CDLL | None = None
        self._wall = wall

    @property
    def is_short(self) -> bool:
        """See ``ChangeProbe``."""
        library = self._loaded()
        return library is not None and library.slurm_api_version() >> 16 in _STEPS_BY_INSTANT

    def since(self, instant_s: int) -> int | None:
        """See ``ChangeProbe``."""
        library = self._loaded()
        if library is None:
            return None
        if not self.is_short:
            return self._by_jobs(library, instant_s)
        if instant_s and _no_step_since(library, instant_s):
            return 0
        return self._now(library)

    def _by_jobs(self, library: ctypes.CDLL, instant_s: int) -> int | None:
        answer = ctypes.POINTER(_Jobs)()
        ctypes.set_errno(0)
        if library.slurm_load_jobs(ctypes.c_long(instant_s), ctypes.byref(answer), _SHOW_ALL_HERE):
            return 0 if instant_s and ctypes.get_errno() == NO_CHANGE else None
        try:
            updated_s = int(answer.contents.last_update)
        except ValueError:  # no answer, and no error
            return None
        library.slurm_free_job_info_msg(answer)
        return self._plausible(updated_s)

    def _now(self, library: ctypes.CDLL) -> int | None:
        """Return slurmctld's time, from the head of its list of licences."""
        answer = ctypes.POINTER(_Licences)()
        if library.slurm_load_licenses(ctypes.c_long(0), ctypes.byref(answer), _SHOW_ALL_HERE):
            return None
        try:
            updated_s = int(answer.contents.last_update)
        except ValueError:  # no answer, and no error
            return None
        library.slurm_free_license_info_msg(answer)
        return self._plausible(updated_s)

    def _plausible(self, instant_s: int) -> int | None:
        return instant_s if abs(instant_s - self._wall()) < _PLAUSIBLE_S else None

    def _loaded(self) -> ctypes.CDLL | None:
        if self._library is None:
            try:
                path = self._path or _path_of_loaded()
                if path is None:
                    return None
                library = ctypes.CDLL(str(path), use_errno=True)
                library.slurm_api_version.restype = ctypes.c_long
                library.slurm_load_jobs.restype = ctypes.c_int
                library.slurm_free_job_info_msg.restype = None
            except (OSError, AttributeError):
                return None
            self._library = library
        return self._library


def _no_step_since(library: ctypes.CDLL, instant_s: int) -> bool:
    """Whether no job has changed since an instant, which is said before the job is missed."""
    answer = ctypes.c_void_p()
    ctypes.set_errno(0)
    if library.slurm_get_job_steps(
        ctypes.c_long(instant_s), _NO_JOB, _ALL_STEPS, ctypes.byref(answer), _SHOW_ALL_HERE
    ):
        return ctypes.get_errno() == NO_CHANGE
    library.slurm_free_job_step_info_response_msg(answer)  # there are no jobs at all
    return False


def _path_of_loaded(maps: Path = Path("/proc/self/maps")) -> Path | None:
    """Return the Slurm library that this process has loaded; None for none."""
    found = _LIBRARY.search(maps.read_text(errors="replace"))
    return None if found is None else Path(found[1])


class QuietLibrary:
    """The library's source, asked for jobs only when some have changed.

    What is kept of an answer is an instant by slurmctld's clock that it is no older than. While each look
    brings news nothing is asked beforehand: after two in a row, or, where the answer "changed" carries all
    jobs, which are not needed (``ChangeProbe.is_short``), after one.
    """

    def __init__(
        self, source: JobSource, pulse: ChangeProbe, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self._pulse = pulse
        self._clock = clock
        self._last: JobSnapshot | None = None
        self._last_s = float("-inf")
        self._instant_s = 0
        self._news = 2

    def read(self, nodes: NodeBook) -> JobSnapshot:
        """Return all jobs; raises as the source."""
        asks = self._news < (2 if self._pulse.is_short else 1)
        instant_s = self._pulse.since(self._instant_s) if asks else None
        now_s = self._clock()
        if instant_s == 0 and self._last is not None and now_s < self._last_s + FULL_EVERY_S:
            return self._last
        snapshot = self._source.read(nodes)
        self._news = 0 if snapshot == self._last else self._news + 1
        self._last, self._last_s = snapshot, now_s
        self._instant_s = instant_s or self._instant_s
        return snapshot
