"""Picks the best way of freezing that a host offers, and says why.

cgroup v2 before v1 before signals. Slurm 22.05 uses v2 where ``/sys/fs/cgroup`` itself is the unified
hierarchy, and v1 where it holds one folder per controller (also together with a unified one: hybrid); a
cluster that does not track processes by cgroup leaves only signals.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import UsageError
from gangd.freezer.cgroup_freezer import CgroupFreezer
from gangd.freezer.harmless_freezers import RecordingFreezer
from gangd.freezer.holder import Holder, Ledger
from gangd.freezer.signal_freezer import SignalFreezer
from gangd.freezer.tree import CGROUP1, CGROUP2

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


def make_freezer(choice: FreezerChoice, node: str, ledger: Ledger) -> Holder:
    """Make what was chosen, for the steps of ``node``."""
    if choice.kind == "signals":
        return SignalFreezer(node, ledger)
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
