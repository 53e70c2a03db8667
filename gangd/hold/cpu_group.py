"""One open cpu cgroup that yields and gets its weight back: Slurm's folders and our own groups alike."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from gangd.freezer.holder import Did, Ledger, StepKey, Write
from gangd.freezer.tree import is_gone
from gangd.hold.cpu_weight_control import CpuWeightControl
from gangd.hold.deprioritizer import Yielded


@dataclass(slots=True, kw_only=True)
class CpuGroup:
    """An open cgroup.

    Attributes
    ----------
    path
        Where it is, below the mount.
    fds
        The files that turn it, by name.
    slot
        Its record in the ledger; None while the ledger is full.
    weight
        What it has when it does not yield.
    low
        It is held by us.
    torn
        Its release has begun and is not complete: it may be low or not, and both have to be written anew.
    """

    path: str
    fds: dict[str, int]
    weight: int
    slot: int | None = None
    low: bool = False
    torn: bool = False

    def note(self, write: Write) -> None:
        """See ``WriteTarget``."""
        self.torn = not write.completes
        if write.completes:
            self.low = write.holds

    def close(self) -> None:
        """Close the files."""
        for fd in self.fds.values():
            os.close(fd)


@dataclass(frozen=True, slots=True)
class Turner:
    """Turns cpu cgroups; its caller makes sure that no other thread does meanwhile.

    Parameters
    ----------
    knob
        With which files.
    ledger
        Remembers what yields, for the guardian.
    write
        How control files are written.
    """

    knob: CpuWeightControl
    ledger: Ledger
    write: Callable[[int, bytes, int], int]

    def turn(self, group: CpuGroup, *, low: bool) -> Yielded:
        """Let a cgroup yield, or give it its weight back."""
        if group.low is low and not group.torn:
            return Yielded(Did.NOTHING)
        if group.slot is None:
            return Yielded(Did.FAILED, "the ledger is full: it does not yield")
        if low:
            self.ledger.hold(group.slot)
        try:
            for file, data in self.knob.writes(group.weight, low=low):
                self.write(group.fds[file], data, 0)
        except OSError as error:
            if group.low:
                group.torn = True
            else:
                self.ledger.release(group.slot)
            if is_gone(error):
                return Yielded(Did.GONE)
            return Yielded(Did.FAILED, f"{group.path}: {error.strerror}")
        group.low, group.torn = low, False
        if not low:
            self.ledger.release(group.slot)
        return Yielded(Did.WROTE)

    def plan(
        self, group: CpuGroup, key: StepKey, ours: dict[int, bool], *, holds: bool
    ) -> list[Write] | None:
        """List what ``turn`` would write; see ``Holder``."""
        if group.slot is None or group.torn:
            return None
        if ours.get(group.slot, group.low) is holds:
            return []
        ours[group.slot] = holds
        writes = self.knob.writes(group.weight, low=holds)
        return [
            Write(
                key,
                holds,
                group.fds[file],
                data,
                group.slot,
                group,
                completes=place == len(writes),
                yields=True,
            )
            for place, (file, data) in enumerate(writes, 1)
        ]
