"""What this host offers an embedded cluster, and how busy it is.

Slurm's programs, CPUs, memory, a cgroup freezer; and whether others use the CPUs, before something is
measured.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from foundation.cpu_time import CpuTime, cpu_time
from foundation.errors import HostError

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "srun", "taskset", "nice")
_PACKAGES = "slurmctld slurmd slurm-client munge util-linux"
_SBIN = "/usr/sbin:/sbin:/usr/local/sbin"

LOOK_S = 0.4
CALM = 0.2
"""Others that use up to this share of the CPUs change what is measured by less than the host's own drift."""


class CgroupVersion(StrEnum):
    """The hierarchy in which jobs can be tracked and frozen; NONE for a plain user or a bare container."""

    V1 = "v1"
    V2 = "v2"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class LocalHost:
    """This host, as an embedded cluster sees it.

    Attributes
    ----------
    name
        Short host name.
    name_is_loopback
        Whether that name's address is 127.0.0.1. Debian's default is 127.0.1.1.
    user
        Who runs the daemons (and the jobs).
    is_root
        Whether that is root.
    cpus
        CPUs that this process may use, ascending.
    memory_mib
        Physical memory, MiB.
    cgroup
        The hierarchy for process tracking.
    programs
        Path of each program by name.
    """

    name: str
    name_is_loopback: bool
    user: str
    is_root: bool
    cpus: tuple[int, ...]
    memory_mib: int
    cgroup: CgroupVersion
    programs: dict[str, str]

    def pinned(self, cpus: Sequence[int]) -> list[str]:
        """Return the words before a command that keep it on these CPUs; none if there are none."""
        return [self.programs["taskset"], "-c", ",".join(map(str, cpus))] if cpus else []


def find_program(name: str) -> str | None:
    """Return a program's path, also where sbin is not on the user's PATH."""
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":" + _SBIN)


def look_at_host(cgroup_root: Path = Path("/sys/fs/cgroup")) -> LocalHost:
    """Look at this host.

    Raises
    ------
    HostError
        One of Slurm's programs is missing; the message says which packages bring them.
    """
    found = {name: find_program(name) for name in PROGRAMS}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise HostError(
            f"not installed here: {', '.join(missing)}. As an administrator: apt-get install {_PACKAGES}"
        )
    is_root = os.geteuid() == 0
    name = _host_name()
    return LocalHost(
        name=name,
        name_is_loopback=_is_loopback(name),
        user=_user_name(),
        is_root=is_root,
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        memory_mib=psutil.virtual_memory().total // 2**20,
        cgroup=usable_cgroup(cgroup_root) if is_root else CgroupVersion.NONE,
        programs={name: path for name, path in found.items() if path},
    )


def _host_name() -> str:
    """Return the short host name; raises HostError for one that slurm.conf would read otherwise."""
    name = socket.gethostname().partition(".")[0]
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,62})", name):
        raise HostError(f"slurm.conf cannot hold this host's name {name!r}: give it another, `hostname NAME`")
    return name


def _is_loopback(name: str) -> bool:
    """Resolve the name; raises HostError where glibc resolves no name to an IPv4 address (AI_ADDRCONFIG)."""
    addresses = [entry for entries in psutil.net_if_addrs().values() for entry in entries]
    if all(entry.address == "127.0.0.1" for entry in addresses if entry.family == socket.AF_INET):
        raise HostError(
            "this host has no IPv4 address but 127.0.0.1, and Slurm resolves no host name then. "
            "As an administrator: ip address add 127.0.0.2/8 dev lo"
        )
    with suppress(OSError):
        return socket.gethostbyname(name) == "127.0.0.1"
    return False


def _user_name() -> str:
    """Return who this is by the kernel's word; his number where he has no name that slurm.conf can hold."""
    with suppress(KeyError):
        name = pwd.getpwuid(os.geteuid()).pw_name
        if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*", name):
            return name
    return str(os.geteuid())


def usable_cgroup(root: Path = Path("/sys/fs/cgroup")) -> CgroupVersion:
    """Return the hierarchy in which a root-owned Slurm can track jobs here."""
    freezer = root / "freezer"
    if (freezer / "cgroup.procs").exists() and os.access(freezer, os.W_OK):
        return CgroupVersion.V1
    if (root / "cgroup.controllers").exists() and os.access(root, os.W_OK):
        return CgroupVersion.V2
    return CgroupVersion.NONE


def busy_share(over_s: float = LOOK_S, read: Callable[[], CpuTime | None] = cpu_time) -> float | None:
    """Return the share of the host's CPU time that is used in the next ``over_s`` seconds, or stolen in them.

    None where the kernel does not tell.
    """
    before = read()
    time.sleep(over_s)
    after = read()
    if before is None or after is None:
        return None
    passed = after.since(before)
    return (passed.used_s + passed.steal_s) / passed.whole_s if passed.whole_s > 0 else None


def busy_warning() -> str | None:
    """Return what to say where others use this host's CPUs now; None where it is calm."""
    share = busy_share()
    if share is None or share <= CALM:
        return None
    return (
        f"this host is busy: others use {share:.0%} of its CPUs now (load {os.getloadavg()[0]:.1f}); what is "
        "measured meanwhile is of them, too"
    )
