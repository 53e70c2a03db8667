"""What two applications lose by sharing: E_v and E_o of Minami's thesis (chapter 4), from speeds.

The thesis measures times. A victim runs alone in T_v,Ded, beside an opponent in T_v,OSub; the opponent is
busy for T_o,Ded alone and for T_o,OSub beside the victim::

    (4.1)  E_v = (T_v,OSub - T_v,Ded) / T_o,OSub
    (4.2)  E_o = (T_o,OSub - T_o,Ded) / T_o,OSub

Both are dedicated seconds lost in a second of overlap. Here both applications run all the time, so nothing
overlaps partly, and the speed (steps a second) says the same: in a window of W seconds the victim does what
alone would take it W * shared/alone, and the overlap is the part of W in which the opponent is busy. So a
loss is a loss of work.
"""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """How two applications shared; records of different kinds are never mixed.

    ``timeslice``: one core, shared by the operating system. ``threads``: two hardware threads of a core.
    ``cores``: neighbours on different cores, that share caches and memory only. ``naive``: two jobs of two
    ranks, both ranks' cores shared by the operating system. ``gang``: the same with gang slices.
    """

    TIMESLICE = "timeslice"
    THREADS = "threads"
    CORES = "cores"
    NAIVE = "naive"
    GANG = "gang"


def ideal_loss(kind: Kind, multiplicity: int = 2) -> float:
    """Return E_v where sharing costs nothing but the share itself: 1 - 1/M; 0 on cores of one's own.

    The thesis has M = 2, where it is 0.5 (equation 4.5).
    """
    return 0.0 if kind is Kind.CORES else 1.0 - 1.0 / multiplicity


def victim_loss(alone: float, shared: float, opponent_busy: float = 1.0) -> float:
    """Return E_v: dedicated seconds that a victim loses in a second in which its opponent is busy.

    Parameters
    ----------
    alone, shared
        The victim's speed, steps a second of wall time; ``alone`` is above 0.
    opponent_busy
        The share of the window, above 0 and at most 1, in which the opponent computed or wanted to.
    """
    return (1.0 - shared / alone) / opponent_busy


def opponent_loss(alone: float, shared: float) -> float:
    """Return E_o: the part of an opponent's busy time that it would not have needed alone.

    Parameters
    ----------
    alone, shared
        The opponent's speed, steps a second of its *busy* time; ``alone`` is above 0.
    """
    return 1.0 - shared / alone
