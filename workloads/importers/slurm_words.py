"""How Slurm writes instants, lengths of time, memory, counts of resources and states.

Source: the manual pages of sacct and slurm.conf.
"""

from __future__ import annotations

import re
from datetime import datetime, tzinfo

_ABSENT = frozenset({"", "unknown", "none", "n/a", "invalid", "none assigned", "(null)", "null"})
_UNBOUNDED = frozenset({"unlimited", "partition_limit", "infinite"})
_LENGTH = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(?:(\d+):)?(\d+(?:\.\d+)?)")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)(?:i?B)?([nc]?)", re.IGNORECASE)
_KIB = {"B": 1 / 1024, "K": 1.0, "M": 1024.0, "G": 1024.0**2, "T": 1024.0**3, "P": 1024.0**4}
MOST = 10**15
"""No second, KiB, processor or job number is larger: SWF and who reads it have whole numbers up to 2**53."""
_LONGEST = 40
"""Characters of a number."""

COMPLETED = frozenset({"COMPLETED"})
CANCELLED = frozenset({"CANCELLED", "REVOKED", "PREEMPTED", "DEADLINE"})
UNFINISHED = frozenset({"RUNNING", "PENDING", "SUSPENDED", "CONFIGURING", "COMPLETING", "RESIZING"})
REQUEUED = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL"})
"""How a run ends after which Slurm may start the job anew, under the same number."""


def is_absent(text: str) -> bool:
    """Return whether ``text`` stands for nothing."""
    return text.strip().lower() in _ABSENT


def instant_s(text: str, zone: tzinfo | None) -> float | None:
    """Return the Unix time of ``text``: digits, or a date and time.

    A date without a zone is at ``zone``, or at this host's if that is ``None``. Raises ``ValueError``.
    """
    words = text.strip()
    if is_absent(words):
        return None
    if re.fullmatch(r"\d+(?:\.\d+)?", words):
        return _plain(float(words)) or None
    found = datetime.fromisoformat(words)
    if found.tzinfo is None and zone is not None:
        found = found.replace(tzinfo=zone)
    try:
        return _plain(found.timestamp())
    except OverflowError as error:  # a year that this host's clock does not know
        raise ValueError(words) from error


def length_s(text: str, unit_s: float = 1.0) -> float | None:
    """Return the seconds of ``1-02:03:04``, ``02:03:04``, ``03:04`` (minutes and seconds) or a number.

    A plain number counts in ``unit_s``. ``None`` where there is none or no bound. Raises ``ValueError``.
    """
    words = text.strip()
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

    A number without a letter counts in ``plain``. Raises ``ValueError``.
    """
    words = text.strip().rstrip("?")
    if is_absent(words):
        return None
    found = _MEMORY.fullmatch(words)
    if found is None or len(words) > _LONGEST:
        raise ValueError(words)
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
    """Return a whole number, ``None`` for none and for 0. Raises ``ValueError``."""
    if is_absent(text):
        return None
    number = float(text)
    if not 0 <= number <= MOST or number != int(number):
        raise ValueError(text)
    return int(number) or None


def _plain(seconds: float) -> float:
    return int(seconds) if float(_bounded(seconds)).is_integer() else seconds


def _bounded(number: float) -> float:
    if not abs(number) <= MOST:
        raise ValueError(f"{number:g}")
    return number
