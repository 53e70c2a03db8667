"""How Slurm writes instants, lengths of time, memory, counts of resources and states.

Source: the manual pages of sacct and slurm.conf.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from itertools import product

from workloads.swf.swf_reader import Omissions


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
    """What a reader found: the jobs, and the lines that cannot be used.

    ``not_known`` counts values that cannot be, by column; they count as absent.
    """

    kind: str
    jobs: list[AccountingJob] = field(default_factory=list)
    omitted: Omissions = field(default_factory=Omissions)
    not_known: Counter[str] = field(default_factory=Counter)


_ABSENT = frozenset({"", "unknown", "none", "n/a", "invalid", "none assigned", "(null)", "null"})
_UNBOUNDED = frozenset({"unlimited", "partition_limit", "infinite"})
_LENGTH = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(?:(\d+):)?(\d+(?:\.\d+)?)")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTPE?]?)(?:i?B)?([nc]?)\??", re.IGNORECASE)
_KIB = {"B": 1 / 1024} | {unit: 1024.0**power for power, unit in enumerate("KMGTPE")}
_NOT_KNOWN = frozenset({"-1", "-2", "4294967294", "4294967295"})
"""Slurm's NO_VAL and INFINITE of 32 bits, as signed and as unsigned numbers."""
MOST = 10**15
"""No second, KiB, processor or job number is larger: SWF and who reads it have whole numbers up to 2**53."""
_LONGEST = 40
"""Characters of a number."""
_SHORT = 15
"""Digits that are fewer than these are no number beyond ``MOST``."""

COMPLETED = frozenset({"COMPLETED"})
CANCELLED = frozenset({"CANCELLED", "REVOKED", "PREEMPTED", "DEADLINE"})
UNFINISHED = frozenset({"RUNNING", "PENDING", "SUSPENDED", "CONFIGURING", "COMPLETING", "RESIZING"})
ENDS_OF_WAITING = frozenset({"CANCELLED", "DEADLINE", "REVOKED"})
"""How a job ends that never started; Slurm up to 20.02 writes that instant as its start, too."""
REQUEUED = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL"})
"""How a run ends after which Slurm may start the job anew, under the same number."""


class NotKnownError(ValueError):
    """A value of the right form that cannot be: beyond all bounds, of a unit beyond Slurm's, or NO_VAL."""


def is_absent(text: str) -> bool:
    """Return whether ``text`` means no value."""
    return text.strip().lower() in _ABSENT


def known_text(text: str | None) -> str | None:
    """Return a text, None for what means no value."""
    return None if text is None or is_absent(text) else text


def instant_s(text: str, zone: tzinfo | None) -> float | None:
    """Return the Unix time of ``text``: digits, or a date and time.

    A date without a zone is at ``zone``, or at this host's if that is ``None``. Raises ``ValueError``.
    """
    words = text.strip()
    if is_absent(words):
        return None
    if re.fullmatch(r"\d+(?:\.\d+)?", words):
        return _plain(float(words)) or None
    return _stamp_s(datetime.fromisoformat(words), zone)


def _stamp_s(found: datetime, zone: tzinfo | None) -> float:
    if found.tzinfo is None and zone is not None:
        found = found.replace(tzinfo=zone)
    try:
        return _plain(found.timestamp())
    except (OverflowError, OSError) as error:  # a year that this host's clock does not know
        raise ValueError(str(found)) from error


Instants = tuple[float | None, ...]
"""Unix times of submission, start and end."""
_SIXTY = {f"{number:02}": number for number in range(60)}
_ISO_LENGTH = len("2024-03-04T08:00:00")
_DISORDER = 1e6
"""How much worse a second of disorder is than one that the run time lacks."""


class LocalClock:
    """Reads instants in a time zone, and tells apart the two passes of the hour that autumn repeats.

    Slurm writes local time without its offset, so 02:30 of that night is two instants.
    """

    def __init__(self, zone: tzinfo | None) -> None:
        self._zone = zone
        self._hours: dict[str, float] = {}
        self._repeated: set[str] = set()

    def instant_s(self, text: str) -> float | None:
        """Return ``instant_s`` of ``text``; of two instants the first. Raises ``ValueError``."""
        hour = text[:13]
        base_s = self._hours.get(hour)
        if base_s is not None and _has_local_form(text):
            minute, second = _SIXTY.get(text[14:16]), _SIXTY.get(text[17:])
            if minute is not None and second is not None:
                return base_s + minute * 60 + second
        found_s = instant_s(text, self._zone)
        if found_s is not None and hour not in self._repeated and _has_local_form(text):
            # an hour that has 3,600 seconds once is known from here on
            ends = [f"{hour}:{rest}" for rest in ("00:00", "59:59")]
            begin_s = instant_s(ends[0], self._zone) or 0
            if [begin_s, begin_s + 3599] == [self._second_s(end) for end in ends]:
                self._hours[hour] = begin_s
            else:
                self._repeated.add(hour)
        return found_s

    def _second_s(self, text: str) -> float:
        return _stamp_s(datetime.fromisoformat(text).replace(fold=1), self._zone)

    def read(self, submit: str, start: str, end: str, run_s: float | None) -> tuple[Instants, bool]:
        """Return the instants of a job, and whether the repeated hour leaves no doubt about them.

        Each is the first or the second instant of its text, so that they follow each other and the run time
        is between start and end, where that can be. Of several such choices the one with the shortest run
        counts, then the shortest wait, then the earliest. Raises ``ValueError``.
        """
        texts = (submit, start, end)
        submit_s, start_s, end_s = map(self.instant_s, texts)
        if not self._repeated or self._repeated.isdisjoint(text[:13] for text in texts):
            return (submit_s, start_s, end_s), True
        ranked = sorted(
            (_misfit(chosen, run_s), chosen)
            for chosen in product(*map(self._passes, texts, (submit_s, start_s, end_s)))
        )
        return ranked[0][1], len(ranked) == 1 or ranked[1][0][0] > ranked[0][0][0]

    def _passes(self, text: str, first_s: float | None) -> list[float | None]:
        """Return the instants that ``text`` may be."""
        if first_s is None or text[:13] not in self._repeated or not _has_local_form(text):
            return [first_s]
        second_s = self._second_s(text)
        return [first_s, second_s] if second_s > first_s else [first_s]


def _has_local_form(text: str) -> bool:
    return len(text) == _ISO_LENGTH and text[13] == text[16] == ":"


def _misfit(times_s: Instants, run_s: float | None) -> tuple[float, float, float]:
    """Return by how many seconds instants contradict each other or the run time; the run; the wait."""
    submit_s, start_s, end_s = times_s
    wait_s = 0.0 if submit_s is None or start_s is None else start_s - submit_s
    span_s = 0.0 if start_s is None or end_s is None else end_s - start_s
    off_s = abs(span_s - run_s) if run_s is not None and start_s is not None and end_s is not None else 0.0
    return off_s + _DISORDER * (max(0.0, -wait_s) + max(0.0, -span_s)), span_s, wait_s


def length_s(text: str, unit_s: float = 1) -> float | None:
    """Return the seconds of ``1-02:03:04``, ``02:03:04``, ``03:04`` (minutes and seconds) or a number.

    A plain number counts in ``unit_s``. ``None`` where there is none or no bound. Raises ``ValueError``,
    ``NotKnownError`` for what is no length of a job.
    """
    words = text.strip()
    if words in _NOT_KNOWN:
        raise NotKnownError(words)
    if words.isdecimal() and len(words) < _SHORT:
        return int(words) * unit_s
    if is_absent(words) or words.lower() in _UNBOUNDED:
        return None
    found = _LENGTH.fullmatch(words)
    if found is None or len(words) > _LONGEST:
        raise ValueError(words)
    days, first, second, last = found.groups()
    if first is None:
        if days is None:
            return _plain(float(last) * unit_s)
        return _plain(86_400 * int(days) + 3600 * float(last))
    if second is None and days is not None:
        return _plain(86_400 * int(days) + 3600 * int(first) + 60 * float(last))
    hours, minutes = (0, int(first)) if second is None else (int(first), int(second))
    return _plain(86_400 * int(days or 0) + 3600 * hours + 60 * minutes + float(last))


def memory_kib(text: str, procs: int | None, nodes: int | None, plain: str = "M") -> float | None:
    """Return the KiB of the whole job of ``16G``, ``4000Mc`` (a processor) or ``8Gn`` (a node).

    A number without a letter counts in ``plain``. Raises ``ValueError``, ``NotKnownError`` for ``16?`` (Slurm
    has no letter for more than 1,024 P) and what no job has.
    """
    words = text.strip()
    if is_absent(words):
        return None
    if words in _NOT_KNOWN:
        raise NotKnownError(words)
    found = _MEMORY.fullmatch(words)
    if found is None or len(words) > _LONGEST:
        raise ValueError(words)
    if found[2] == "?":
        raise NotKnownError(words)
    kib = float(found[1]) * _KIB[found[2].upper() or plain]
    per = {"c": procs, "n": nodes}.get(found[3].lower(), 1)
    return None if per is None or kib == 0 else _bounded(kib * per)


def resources(text: str) -> dict[str, str]:
    """Return the counts of ``cpu=4,mem=8G,node=1``."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip(): value.strip() for name, _, value in pairs}


def state_word(text: str) -> str | None:
    """Return COMPLETED, CANCELLED (of ``CANCELLED by 1000``) and so on."""
    words = text.split()
    return words[0].rstrip("+").upper() if words else None


def swf_status(state: str | None) -> int | None:
    """Return SWF's status: 1 completed, 5 cancelled, 0 failed in any other way."""
    if state is None:
        return None
    if state in COMPLETED:
        return 1
    return 5 if state in CANCELLED else 0


def count(text: str) -> int | None:
    """Return a whole number, ``None`` for none and for 0. Raises ``ValueError``, for NO_VAL NotKnownError."""
    if text.isdecimal() and len(text) < _SHORT and text not in _NOT_KNOWN:
        return int(text) or None
    if is_absent(text):
        return None
    if text.strip() in _NOT_KNOWN:
        raise NotKnownError(text)
    number = float(text)
    if not 0 <= number <= MOST or number != int(number):
        raise ValueError(text)
    return int(number) or None


def _plain(seconds: float) -> float:
    return int(seconds) if float(_bounded(seconds)).is_integer() else seconds


def _bounded(number: float) -> float:
    if not abs(number) <= MOST:
        raise NotKnownError(f"{number:g}")
    return number
