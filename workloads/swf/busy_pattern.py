"""The busy and idle periods of an interactive job, and their columns in an extended SWF line.

Source: thesis section 6.2.3 (model), section 6.3.4 and Table 6.1 (columns 22 and up).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from foundation.errors import InputError
from foundation.units import counted

RESERVED_COLUMNS = 3
"""Columns 19 to 21, which Table 6.1 leaves free."""


@dataclass(frozen=True, slots=True)
class InteractivePattern:
    """A job that is idle, then busy, idle, busy, ... and idle until it ends.

    Parameters
    ----------
    prologue_s
        Idle seconds before the first busy period.
    epilogue_s
        Idle seconds after the last one.
    activations_s
        The N busy periods, in seconds of CPU time of each worker.
    idles_s
        The N - 1 idle periods between them (none where N is 0).

    Raises
    ------
    InputError
        A period is negative or not finite, or the number of idle periods does not fit.
    """

    prologue_s: float
    epilogue_s: float
    activations_s: tuple[float, ...]
    idles_s: tuple[float, ...]

    def __post_init__(self) -> None:
        expected = max(0, len(self.activations_s) - 1)
        if len(self.idles_s) != expected:
            raise InputError(
                f"an interactive pattern of {counted(len(self.activations_s), 'busy period')} has {expected} "
                f"idle periods between them, not {len(self.idles_s)}"
            )
        for period_s in (self.prologue_s, self.epilogue_s, *self.activations_s, *self.idles_s):
            if not math.isfinite(period_s) or period_s < 0:
                raise InputError(f"an interactive pattern cannot have a period of {period_s} seconds")

    @classmethod
    def from_extension(cls, extension: tuple[float, ...]) -> InteractivePattern | None:
        """Read columns 22 and up; ``extension`` starts at column 19. ``None`` where they are absent.

        Raises
        ------
        InputError
            The repetition count does not fit the number of columns, or a period is negative.
        """
        columns = extension[RESERVED_COLUMNS:]
        if not columns or set(columns) == {-1}:
            return None
        if len(columns) < 3 or columns[2] < 0 or columns[2] != int(columns[2]):
            raise InputError("columns 22, 23 and 24 must be prologue, epilogue and a repetition count")
        count = int(columns[2])
        periods = columns[3:]
        expected = count + max(0, count - 1)
        if len(periods) != expected:
            raise InputError(
                f"column 24 announces {counted(count, 'busy period')}, so {counted(expected, 'column')} must "
                f"follow it, not {len(periods)}"
            )
        return cls(columns[0], columns[1], tuple(periods[:count]), tuple(periods[count:]))

    def to_extension(self, reserved: tuple[float, ...] = (-1, -1, -1)) -> tuple[float, ...]:
        """Return columns 19 and up; ``reserved`` fills columns 19 to 21."""
        head = (*reserved, self.prologue_s, self.epilogue_s, len(self.activations_s))
        return (*head, *self.activations_s, *self.idles_s)

    @property
    def periods_s(self) -> tuple[float, ...]:
        """Idle, busy, idle, ... seconds from start to end, idle first and last (thesis Table 7.3)."""
        if not self.activations_s:
            return (self.prologue_s + self.epilogue_s,)
        periods = [self.prologue_s]
        for busy_s, idle_s in zip(self.activations_s, (*self.idles_s, self.epilogue_s), strict=True):
            periods += (busy_s, idle_s)
        return tuple(periods)

    @property
    def busy_s(self) -> float:
        """Seconds of all busy periods."""
        return math.fsum(self.activations_s)

    @property
    def idle_s(self) -> float:
        """Seconds of all idle periods, prologue and epilogue among them."""
        return math.fsum((self.prologue_s, self.epilogue_s, *self.idles_s))

    @property
    def total_s(self) -> float:
        """Seconds from start to end on a dedicated core."""
        return math.fsum((self.prologue_s, self.epilogue_s, *self.activations_s, *self.idles_s))
