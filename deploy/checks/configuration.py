"""What is known of a live configuration, how Slurm is asked for it, and what is said of it."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from foundation.slurm import Partition, SlurmClient, SlurmNode

_SIBLINGS = Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")


class Grade(StrEnum):
    """How a setting does: as it should be; works, with a loss that is named; does not work."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class Advice(msgspec.Struct, frozen=True):
    """One thing: how it does, what was found, why that matters, and the lines to write ("" for none)."""

    what: str
    grade: Grade
    found: str
    why: str
    write: str = ""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A live configuration.

    Attributes
    ----------
    values
        ``scontrol show config``, cgroup.conf's part of it included.
    partitions, nodes
        All of them.
    freeze_cap_s
        Longest time for which gangd would freeze a job without a pause.
    lease_s
        How long agents hold jobs without a word from gangd.
    host, host_threads
        Short name of the caller's host, and hardware threads of its cores; None where that is not known.
    """

    values: Mapping[str, str]
    partitions: Sequence[Partition]
    nodes: Sequence[SlurmNode]
    freeze_cap_s: float = 5.0
    lease_s: float = 2.0
    host: str = ""
    host_threads: int | None = None

    def value(self, key: str) -> str:
        """Return a value; "" where it is not set or this Slurm does not know it."""
        text = self.values.get(key, "")
        return "" if text in {"(null)", "N/A"} else text

    def words(self, key: str) -> frozenset[str]:
        """Return the words of a list, in capital letters."""
        return frozenset(word.upper() for word in re.split(r"[,\s]+", self.value(key)) if word)

    def number(self, key: str) -> float | None:
        """Return the number that a value begins with, such as 10 of ``10 sec``; None for none."""
        found = re.match(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(?: |$)", self.value(key))
        return None if found is None else float(found[1])

    @property
    def release(self) -> tuple[int, int] | None:
        """Year and month of slurmctld's release; None where it does not say."""
        return release_of(self.value("SLURM_VERSION"))

    @property
    def sharing(self) -> tuple[Partition, ...]:
        """The partitions whose cores may be shared."""
        return tuple(one for one in self.partitions if one.multiplicity > 1)


def release_of(version: str) -> tuple[int, int] | None:
    """Return year and month of a release, such as (22, 5) of ``22.05.8``; None for no version."""
    found = re.match(r"([0-9]{2})\.([0-9]{2})(?:\.|$)", version)
    return None if found is None else (int(found[1]), int(found[2]))


def look(client: SlurmClient, freeze_cap_s: float, lease_s: float) -> Configuration:
    """Return the configuration; raises what ``SlurmClient`` does."""
    host = socket.gethostname().partition(".")[0]
    parts = client.config(), client.partitions(), client.nodes()
    return Configuration(*parts, freeze_cap_s, lease_s, host, threads_here())


def threads_here(siblings: Path = _SIBLINGS) -> int | None:
    """Return the hardware threads of this host's first core; None where the kernel does not say."""
    try:
        lists = siblings.read_text(encoding="ascii").strip().split(",")
        return sum(
            int(last or first) - int(first) + 1 for first, _, last in (one.partition("-") for one in lists)
        )
    except (OSError, ValueError):
        return None
