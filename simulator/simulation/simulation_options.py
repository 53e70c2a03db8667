"""Options of a simulation, besides the trace."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from foundation.errors import UsageError
from simulator.engine.run_rules import RunRules
from simulator.model.system import PoolQueues, System
from simulator.pairing import PairTable

_Choice = TypeVar("_Choice", bound=StrEnum)


class OversizeRule(StrEnum):
    """What to do with a job that can never run on its pool."""

    FAIL = "fail"
    SKIP = "skip"
    CLIP = "clip"


class ZeroLength(StrEnum):
    """What to do with a job whose run time is zero or unknown."""

    FAIL = "fail"
    SKIP = "skip"
    KEEP = "keep"


class TimeLimitRule(StrEnum):
    """What a run time beyond the requested time means.

    ``RAISE``: the request was wrong and is raised to the run time. ``ENFORCE``: the job is stopped when its
    progress reaches the request.
    """

    RAISE = "raise"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """How a trace becomes jobs.

    Parameters
    ----------
    interactive_queue
        SWF queue of interactive jobs; None: there are none.
    speedup
        Divides submit, run, requested, busy and idle times.
    oversize, zero_length, limits
        See the enumerations.
    """

    interactive_queue: int | None = 0
    speedup: float = 1.0
    oversize: OversizeRule = OversizeRule.SKIP
    zero_length: ZeroLength = ZeroLength.SKIP
    limits: TimeLimitRule = TimeLimitRule.RAISE


def cleaning_of(
    interactive_queue: int, speedup: float, oversize: str, zero_length: str, limits: str
) -> Cleaning:
    """Return what the words of a command line mean; an ``interactive_queue`` of -1 is none.

    Raises
    ------
    UsageError
        A word is not known.
    """
    return Cleaning(
        interactive_queue=None if interactive_queue < 0 else interactive_queue,
        speedup=speedup,
        oversize=_choice(OversizeRule, "--oversize", oversize),
        zero_length=_choice(ZeroLength, "--zero-length", zero_length),
        limits=_choice(TimeLimitRule, "--limits", limits),
    )


def _choice(kind: type[_Choice], option: str, word: str) -> _Choice:
    try:
        return kind(word)
    except ValueError:
        raise UsageError(f"{option} takes {', '.join(kind)}, not {word!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSetting:
    """One simulated setting of a system: its queues and its rules."""

    system: System
    queues: PoolQueues
    rules: RunRules
    pairing: PairTable | None = None
