"""What an agent makes of the gang scheduler's commands: who is held in a slice."""

from __future__ import annotations

from gangd.core import Command, Exempt, Publish, ThawAll, TrackPlan


class PlanFollower:
    """Follows ``Publish`` and ``Exempt``; slices are asked for in ascending order."""

    def __init__(self) -> None:
        self._tracks: dict[int, list[tuple[int, TrackPlan | None]]] = {}
        self._exempt: set[int] = set()

    def apply(self, command: Command) -> None:
        """Take in a command; those that concern nobody's freezing are ignored."""
        match command:
            case Publish():
                for name in command.drop:
                    self._tracks.setdefault(name, []).append((command.first_slice, None))
                for track in command.tracks:
                    self._tracks.setdefault(track.name, []).append((command.first_slice, track))
            case Exempt():
                (self._exempt.add if command.on else self._exempt.discard)(command.member.gang)
            case ThawAll():
                self._tracks.clear()

    def held(self, number: int) -> set[int]:
        """Return the jobs that are held in slice ``number``."""
        held: set[int] = set()
        for name, plans in list(self._tracks.items()):
            while len(plans) > 1 and plans[1][0] <= number:
                plans.pop(0)
            first, track = plans[0]
            if first > number:
                continue
            if track is None:
                if len(plans) == 1:
                    del self._tracks[name]
                continue
            held.update(_held_in(track, number))
        return held - self._exempt


def _held_in(track: TrackPlan, number: int) -> list[int]:
    rows = track.run
    place = number - track.first_slice
    if place >= len(rows):
        if not track.repeat:
            return []
        place %= len(rows)
    return [
        job
        for runs, member in zip(rows[place], track.members, strict=True)
        if not runs
        for job, _ in member.jobs
    ]
