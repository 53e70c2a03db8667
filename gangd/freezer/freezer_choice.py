"""Picks the best way of freezing that a host offers, and says why; and freezers that freeze nothing.

These are a dry run of any other, and one without processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import UsageError
from gangd.freezer.cgroup_freezer import CgroupFreezer
from gangd.freezer.holder import (
    Did,
    Holder,
    HoldOutcome,
    Ledger,
    Step,
    StepKey,
    StepState,
    Traits,
    Trouble,
    Unknown,
    WithoutFolders,
)
from gangd.freezer.procfs import WORK
from gangd.freezer.signal_freezer import SignalFreezer
from gangd.freezer.tree import CGROUP1, CGROUP2


class DryFreezer(WithoutFolders):
    """Wraps ``inner``; ``freeze`` and ``thaw`` change a set in memory and nothing on the host.

    ``state`` shows a step as frozen while we pretend to hold it, so that the agent above behaves as it would.
    """

    def __init__(self, inner: Holder) -> None:
        self.name = inner.name
        self.traits = inner.traits
        self.look, self.pids, self.cpu_ns, self.close = inner.look, inner.pids, inner.cpu_ns, inner.close
        self._inner = inner
        self._held: set[StepKey] = set()
        self._known: set[StepKey] = set()

    @property
    def unseen(self) -> frozenset[int]:  # type: ignore[override]
        """See ``Holder``."""
        return self._inner.unseen

    def adopt(
        self, found: tuple[Step, ...], pause: Callable[[], object] = WORK.pause_if_spent
    ) -> tuple[Step, ...]:
        """See ``Holder``."""
        steps = self._inner.adopt(found, pause)
        self._known = {step.key for step in steps}
        self._held &= self._known
        return steps

    def hold(self, key: StepKey) -> HoldOutcome:
        """See ``Holder``."""
        return self._pretend(key, hold=True)

    def release(self, key: StepKey) -> HoldOutcome:
        """See ``Holder``."""
        return self._pretend(key, hold=False)

    def disown(self, key: StepKey) -> None:
        """See ``Holder``."""
        self._held.discard(key)

    def state(self, key: StepKey) -> StepState:
        """See ``Holder``."""
        real = self._inner.state(key)
        return StepState.FROZEN if key in self._held and real is not StepState.GONE else real

    def folders(self) -> list[str]:
        """See ``Holder``."""
        return self._inner.folders()

    def unknown(self) -> list[Unknown]:
        """See ``Holder``."""
        return self._inner.unknown()

    def troubles(self) -> list[Trouble]:
        """See ``Holder``."""
        return self._inner.troubles()

    def _pretend(self, key: StepKey, *, hold: bool) -> HoldOutcome:
        if key not in self._known:
            return HoldOutcome(key, Did.GONE)
        if (key in self._held) is hold:
            return HoldOutcome(key, Did.NOTHING)
        (self._held.add if hold else self._held.discard)(key)
        return HoldOutcome(key, Did.WROTE)


class RecordingFreezer(WithoutFolders):
    """Steps that exist because the caller says so (``steps`` may be changed at any time).

    Attributes
    ----------
    frozen
        Keys that are frozen now, no matter by which process.
    ours
        Keys that this freezer froze.
    writes
        Every write in order: ``("freeze" | "thaw", key)``.
    """

    name = "recording"
    traits = Traits()

    def __init__(self, steps: Iterable[StepKey] = ()) -> None:
        self.steps: set[StepKey] = set(steps)
        self.frozen: set[StepKey] = set()
        self.ours: set[StepKey] = set()
        self.members: dict[StepKey, tuple[int, ...]] = {}
        self.writes: list[tuple[str, StepKey]] = []
        self._known: set[StepKey] = set()

    def expect(self, jobs: Iterable[int]) -> None:
        """See ``Holder``: pretend that exactly these jobs have a step here each."""
        self.steps = {StepKey(job, "0") for job in jobs}

    def look(self) -> tuple[Step, ...]:
        """See ``Holder``."""
        return tuple(Step(key, None) for key in sorted(self.steps))

    def adopt(self, found: tuple[Step, ...], pause: Callable[[], object] | None = None) -> tuple[Step, ...]:  # noqa: ARG002 - as its protocol has it
        """See ``Holder``."""
        self.frozen &= self.steps
        self.ours &= self.steps
        kept = self.ours - {step.key for step in found}
        steps = found + tuple(Step(key, None) for key in sorted(kept))
        self._known = {step.key for step in steps}
        return steps

    def hold(self, key: StepKey) -> HoldOutcome:
        """See ``Holder``."""
        if key not in self._known or key not in self.steps:
            return HoldOutcome(key, Did.GONE)
        if key in self.ours:
            return HoldOutcome(key, Did.NOTHING)
        self.writes.append(("freeze", key))
        self.ours.add(key)
        self.frozen.add(key)
        return HoldOutcome(key, Did.WROTE)

    def release(self, key: StepKey) -> HoldOutcome:
        """See ``Holder``."""
        if key not in self._known or key not in self.steps:
            return HoldOutcome(key, Did.GONE)
        if key not in self.ours:
            return HoldOutcome(key, Did.NOTHING)
        self.writes.append(("thaw", key))
        self.ours.discard(key)
        self.frozen.discard(key)
        return HoldOutcome(key, Did.WROTE)

    def disown(self, key: StepKey) -> None:
        """See ``Holder``."""
        self.ours.discard(key)

    def state(self, key: StepKey) -> StepState:
        """See ``Holder``."""
        if key not in self.steps:
            return StepState.GONE
        return StepState.FROZEN if key in self.frozen else StepState.THAWED

    def pids(self, key: StepKey) -> tuple[int, ...]:
        """See ``Holder``."""
        return self.members.get(key, ()) if key in self.steps else ()

    def cpu_ns(self, job: int) -> int | None:  # noqa: ARG002 - as its protocol has it
        """See ``Holder``: nothing runs, so nothing is known."""
        return None

    def close(self) -> None:
        """See ``Holder``."""


KINDS = ("auto", "cgroup1", "cgroup2", "signals", "recording")
CGROUP_MOUNT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class FreezerChoice:
    """A kind of freezer, the root of its hierarchy (None without one), and the reason in a sentence."""

    kind: str
    root: Path | None
    reason: str


def choose(kind: str, root: Path | None, proctrack: str | None, mount: Path = CGROUP_MOUNT) -> FreezerChoice:
    """Choose for this host.

    Parameters
    ----------
    kind
        One of ``KINDS``; anything but ``auto`` is obeyed.
    root
        The hierarchy's root as the site gave it, or None to look for it.
    proctrack
        Slurm's ``ProctrackType`` if it is known.
    mount
        Where cgroups are mounted.

    Raises
    ------
    UsageError
        ``kind`` is unknown, or the host has no such hierarchy.
    """
    if kind not in KINDS:
        raise UsageError(f"unknown freezer {kind}; known are {', '.join(KINDS)}")
    if kind in ("signals", "recording"):
        return FreezerChoice(kind, None, "asked for")
    unified = (mount / "cgroup.controllers").exists()
    v1_root = root or mount / "freezer"
    v2_root = root or (mount if unified else mount / "unified")
    if kind == "cgroup1":
        return FreezerChoice(kind, _existing(v1_root, "cgroup1"), "asked for")
    if kind == "cgroup2":
        return FreezerChoice(kind, _existing(v2_root, "cgroup2"), "asked for")
    if proctrack is not None and proctrack != "proctrack/cgroup":
        return FreezerChoice("signals", None, f"Slurm tracks processes by {proctrack}, not by cgroups")
    if unified and os.access(v2_root / "cgroup.procs", os.W_OK):
        return FreezerChoice("cgroup2", v2_root, f"{v2_root} is the unified hierarchy")
    if not unified and os.access(v1_root / "cgroup.procs", os.W_OK):
        return FreezerChoice("cgroup1", v1_root, f"{v1_root} is a v1 freezer hierarchy")
    return FreezerChoice("signals", None, f"no cgroup hierarchy below {mount} can be written by this user")


def make_freezer(
    choice: FreezerChoice, node: str, ledger: Ledger, own_root: Path | None = None, *, adopts: bool = False
) -> Holder:
    """Make what was chosen, for the steps of ``node``; all else as in ``SignalFreezer``."""
    if choice.kind == "signals":
        cpuacct = _cpuacct(CGROUP_MOUNT / "freezer")
        return SignalFreezer(node, ledger, cpuacct_root=cpuacct, own_root=own_root, adopts=adopts)
    if choice.kind == "recording" or choice.root is None:
        return RecordingFreezer()
    if choice.kind == "cgroup2":
        return CgroupFreezer(choice.root, CGROUP2, node, ledger)
    return CgroupFreezer(choice.root, CGROUP1, node, ledger, _cpuacct(choice.root))


def _existing(root: Path, kind: str) -> Path:
    if not root.is_dir():
        raise UsageError(f"{kind}: {root} does not exist; give the hierarchy's mount with --root")
    return root


def _cpuacct(root: Path) -> Path | None:
    """Accounting hierarchy next to a v1 freezer hierarchy, where Slurm may keep the same paths."""
    return next((path for name in ("cpuacct", "cpu,cpuacct") if (path := root.parent / name).is_dir()), None)
