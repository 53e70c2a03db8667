"""Frozen time of all gangs, looked at in turns, so that no slice pays for all of them."""

from __future__ import annotations

from collections.abc import Mapping

from gangd.core.commands import MoveEnd
from gangd.core.gang import Gang
from gangd.core.limits import Limits
from gangd.core.rotation import Rotation
from gangd.core.settings import SECOND, Settings
from gangd.core.states import GangState

LOOK_EVERY_NS = 10 * SECOND


class Accounts:
    """Asks, in turns, which gangs were frozen and whose end is to be moved."""

    def __init__(self, rotation: Rotation, limits: Limits) -> None:
        self._rotation = rotation
        self._limits = limits
        self._turns: list[Gang] = []

    def look(
        self, gangs: Mapping[int, Gang], number: int, now_ns: int, wall_s: float, settings: Settings
    ) -> list[MoveEnd]:
        """Account the slices before ``number`` of those gangs whose turn it is; each has one every 10 s.

        Parameters
        ----------
        gangs
            All gangs.
        wall_s
            Wall clock at ``now_ns``.
        """
        if not self._turns:
            self._turns = list(gangs.values())
        rounds = max(1, LOOK_EVERY_NS // settings.quantum_ns)
        turn = [self._turns.pop() for _ in range(min(len(self._turns), -(-len(gangs) // rounds)))]
        groups = {id(group): group for gang in turn if (group := self._rotation.groups[gang.slot])}
        self._rotation.settle([group for group in groups.values() if group.settled < number], number)
        held_ns = self._rotation.held_ns
        moves = []
        for gang in turn:
            held = int(held_ns[gang.slot])
            if held and gang.state is not GangState.GONE:
                held_ns[gang.slot] = 0
                moves += self._move(gang, held, now_ns, wall_s, settings)
        return moves

    def _move(
        self, gang: Gang, held_ns: int, now_ns: int, wall_s: float, settings: Settings
    ) -> list[MoveEnd]:
        share = min(1.0, held_ns / max(1, now_ns - gang.looked_ns))
        gang.looked_ns = now_ns
        moves = []
        for job in gang.views:
            self._limits.frozen(job, held_ns / SECOND)
            moves.append(self._limits.due(job, share, now_ns, wall_s, settings))
        return [move for move in moves if move is not None]
