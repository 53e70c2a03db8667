"""What the next controller needs to know of a gang to go on with it: its demand, its place in the rotation.

What is read back may be damaged: everything is brought within bounds, and nothing of it can freeze anybody
for longer, for slices are composed anew from it by the same rules.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remembered:
    """A gang when it was seen last.

    Attributes
    ----------
    gang
        Its id.
    jobs
        Its jobs, each with its wall-clock start: another start is another run, of which nothing is known.
    level, history, flaps, multi
        Its demand, see ``demand.Demand``.
    launched
        Whether its tasks ran on all of its nodes: then it has no launch grace any more.
    lead
        Virtual time ahead of the last of its group.
    wait
        Slices that it had waited.
    """

    gang: int
    jobs: tuple[tuple[int, float], ...]
    level: str = "busy"
    history: int = 0
    flaps: int = 0
    multi: bool = False
    launched: bool = False
    lead: int = 0
    wait: int = 0
