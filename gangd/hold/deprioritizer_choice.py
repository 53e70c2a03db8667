"""Picks the best way of yielding that a host offers, and says why.

Where tasks have cpu cgroups of their own, only those count; so the order is: on a unified hierarchy Slurm's
job folders, or groups of the agent's own where Slurm makes none; Slurm's job folders where v1 mounts ``cpu``
and ``cpuacct`` together and Slurm accounts by cgroup, groups of the agent's own in any other v1 ``cpu``
hierarchy; and the policy of threads where there is none.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import UsageError
from gangd.freezer.freezer_choice import CGROUP_MOUNT
from gangd.freezer.holder import Ledger
from gangd.freezer.procfs import PROC, scan
from gangd.hold.cpu_group import cpu_group
from gangd.hold.cpu_priority import IDLE1, IDLE2, SHARES1, WEIGHT2, has_cap_nice
from gangd.hold.deprioritizer import Deprioritizer
from gangd.hold.own_groups import OwnGroups
from gangd.hold.sched_idle import SchedIdle
from gangd.hold.slurm_job_folders import JobFolders

WAYS = ("auto", "cgroup2", "cgroup2-own", "cgroup1", "cgroup1-slurm", "sched-idle", "freeze")
KILL_WAIT_S = 30
AUTOGROUP = Path("sys/kernel/sched_autogroup_enabled")


@dataclass(frozen=True, slots=True)
class Way:
    """A way of yielding, the root of its hierarchy (None without one), and the reason in a sentence.

    ``freeze`` means that jobs cannot yield here and are frozen instead.
    """

    kind: str
    root: Path | None
    reason: str


@dataclass(frozen=True, slots=True)
class SlurmLimits:
    """What of Slurm's configuration matters here; None for what is not known, Slurm's default of KillWait."""

    proctrack: str | None = None
    jobacct: str | None = None
    task: str | None = None
    kill_wait_s: int = KILL_WAIT_S


def choose_way(
    kind: str, root: Path | None, slurm: SlurmLimits, mount: Path = CGROUP_MOUNT, proc: Path = PROC
) -> Way:
    """Choose for this host.

    Parameters
    ----------
    kind
        One of ``WAYS``; anything but ``auto`` is obeyed.
    root
        The cpu hierarchy's root as the site gave it, or None to look for it.
    slurm
        Slurm's configuration.
    mount, proc
        Where cgroups and processes are shown.

    Raises
    ------
    UsageError
        ``kind`` is unknown, or the host has no such hierarchy.
    """
    if kind not in WAYS:
        raise UsageError(f"unknown way of yielding {kind}; known are {', '.join(WAYS)}")
    if kind in ("sched-idle", "freeze"):
        return Way(kind, None, "asked for")
    if kind != "auto":
        place = root or (mount if kind.startswith("cgroup2") else _cpu_mount(mount))
        if place is None or not place.is_dir():
            raise UsageError(f"{kind}: no cpu hierarchy in {mount}; give its mount with --cpu-root")
        return Way(kind, place, "asked for")
    return _best(root, slurm, mount, proc)


def _best(root: Path | None, slurm: SlurmLimits, mount: Path, proc: Path) -> Way:
    if (mount / "cgroup.controllers").exists():
        place = root or mount
        if "cpu" not in (_read(place / "cgroup.controllers") or "").split():
            return _by_policy(f"{place} has no cpu controller to give", mount, proc)
        if not os.access(place / "cgroup.procs", os.W_OK):
            return _by_policy(f"{place} cannot be written by this user", mount, proc)
        if slurm.proctrack in (None, "proctrack/cgroup"):
            return Way("cgroup2", place, f"Slurm's job folders in {place} have a cpu controller")
        if slurm.jobacct == "jobacct_gather/cgroup" or "task/cgroup" in (slurm.task or ""):
            return _by_policy(
                f"Slurm tracks processes by {slurm.proctrack}, and has them in cgroups", mount, proc
            )
        enabled = "cpu" in (_read(place / "cgroup.subtree_control") or "").split()
        if not enabled and (place / "cgroup.type").exists():  # the kernel: not where processes are
            return _by_policy(f"{place} is not the top, and its cpu controller not enabled", mount, proc)
        return Way("cgroup2-own", place, f"Slurm keeps jobs in no cgroups of {place}")
    found = root or _cpu_mount(mount)
    if found is None or not os.access(found / "cgroup.procs", os.W_OK):
        return _by_policy(f"no cpu hierarchy below {mount} can be written by this user", mount, proc)
    if (found / "cpuacct.usage").exists() and slurm.jobacct in (None, "jobacct_gather/cgroup"):
        return Way("cgroup1-slurm", found, f"Slurm accounts in {found}, which has cpu and cpuacct")
    return Way("cgroup1", found, f"Slurm does not use the cpu hierarchy {found}")


def make_yielder(way: Way, node: str, ledger: Ledger) -> Deprioritizer | None:
    """Make what was chosen for ``node``; None if jobs cannot yield."""
    if way.kind == "sched-idle":
        return SchedIdle(ledger)
    if way.root is None:
        return None
    idle, weight = (IDLE2, WEIGHT2) if way.kind.startswith("cgroup2") else (IDLE1, SHARES1)
    knob = idle if _knows_idle(way.root) else weight
    if way.kind in ("cgroup1", "cgroup2-own"):
        return OwnGroups(way.root, knob, node, ledger)
    return JobFolders(way.root, knob, ledger)


def _knows_idle(root: Path) -> bool:
    """Whether the kernel has ``cpu.idle``; v2 shows it in no root, so a release that has it must do."""
    if (root / "cpu.idle").exists():
        return True
    words = os.uname().release.split("-", 1)[0].split(".")
    return tuple(int(word) for word in words[:2] if word.isdigit()) >= (5, 15)


def _by_policy(because: str, mount: Path, proc: Path) -> Way:
    """SCHED_IDLE, if it works and can be undone; else freezing. ``because`` says why no cgroup will do."""
    daemons = [stat.pid for stat in scan(proc) if stat.comm == "slurmd"] or [os.getpid()]
    at_top = any(cpu_group(pid, mount, proc) in (None, "") for pid in daemons)
    if _read(proc / AUTOGROUP) == "1" and at_top:
        return Way(
            "freeze",
            None,
            f"{because}, and kernel.sched_autogroup_enabled is 1: SCHED_IDLE counts inside of a session only",
        )
    soft, _ = resource.getrlimit(resource.RLIMIT_NICE)
    if not has_cap_nice(proc) and 0 <= soft < 20:
        return Way(
            "freeze",
            None,
            f"{because}, and SCHED_IDLE cannot be taken back without CAP_SYS_NICE or RLIMIT_NICE 20",
        )
    return Way("sched-idle", None, because)


def _cpu_mount(mount: Path) -> Path | None:
    return next((path for name in ("cpu", "cpu,cpuacct") if (path := mount / name).is_dir()), None)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
