"""What a source of counters offers: run a command, return counts; or say in one line why it can't.

Names are those of PAPI's presets where one means the same (PAPI_L2_DCM: data cache misses of level 2).
Counts are per instruction, or per second of the run where the name has no instruction in it. What was not
measured is None.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol

import msgspec

from foundation.errors import HostError, InputError
from foundation.one_line import one_line
from predictor.dataset import CounterSource

Per = Literal["instruction", "second"]

_MOST_BYTES = 1 << 20
_MOST_VALUE = 1e30


@dataclass(frozen=True, slots=True)
class Count:
    """A counter's value per instruction or per second; None: not measured.

    ``scaled`` is the share of time in which the event was on a counter of the processor; None where nothing
    was multiplexed.
    """

    counter: str
    per: Per
    value: float | None
    scaled: float | None = None


class Provider(Protocol):
    """A source of counters."""

    @property
    def source(self) -> CounterSource:
        """Which one."""
        ...

    def missing(self) -> str | None:
        """Return in one line why this host does not have it, and what to do; None if it does."""
        ...

    def count(self, command: Sequence[str], environment: Mapping[str, str]) -> list[Count]:
        """Run the command to its end, with all that it starts, and return its counters.

        Raises
        ------
        HostError
            The command cannot be started or fails, or the source does.
        """
        ...


def per(value: float | None, base: float | None) -> float | None:
    """Return value/base; None if either is not known, or there is no base."""
    return None if value is None or not base else value / base


def run_whole(
    words: Sequence[str], command: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself; its output is dropped.

    Raises
    ------
    HostError
        It cannot be started, or ends with another code than 0.
    """
    try:
        done = subprocess.run(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=dict(environment),
            check=False,
        )
    except OSError as error:
        raise HostError(f"cannot start {one_line(words[0])}: {error.strerror}") from error
    if done.returncode != 0:
        said = [line for line in done.stderr.strip().splitlines() if not line.startswith("==")]
        last_words = f": {one_line(said[-1])}" if said else ""
        how = f"ended with code {done.returncode}" if done.returncode > 0 else "was killed"
        raise HostError(f"{one_line(' '.join(command), 80)} {how}{last_words}")
    return done


class _CounterValue(msgspec.Struct, frozen=True):
    counter: Annotated[str, msgspec.Meta(max_length=100)]
    per: Per
    value: float | None = None


def read_counts(path: Path) -> dict[str, float]:
    """Return what was counted, by source and counter: ``os:cpu_user``; what was not measured is left out.

    Raises
    ------
    InputError
        It cannot be read, or is none; one line.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is larger than {_MOST_BYTES >> 20} MiB; it is no list of counters")
        by_source = msgspec.json.decode(path.read_bytes(), type=dict[CounterSource, list[_CounterValue]])
    except OSError as error:
        raise InputError(
            f"cannot read counters from {path}: {error.strerror}; "
            "`osub predict counters --json -- CMD... > FILE` makes them"
        ) from error
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is not what `osub predict counters --json` prints: {one_line(str(error), 120)}"
        ) from error
    found = {
        f"{source}:{count.counter}": count.value
        for source, counts in by_source.items()
        for count in counts
        if count.value is not None
    }
    odd = next((name for name, value in found.items() if not 0 <= value < _MOST_VALUE), None)
    if odd is not None:
        raise InputError(f"{path}: {one_line(odd, 60)} cannot be {found[odd]:g}")
    return found
