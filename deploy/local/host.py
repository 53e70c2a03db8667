"""What this host offers: to an embedded cluster, and to the toolkit.

What this host offers an embedded cluster, and how busy it is.

Slurm's programs, CPUs, memory, a cgroup freezer; and whether others use the CPUs, before something is
measured.

Examining a host: each thing that the toolkit can use, whether it is here, and how to get it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import pwd
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from deploy.mpi_trial import try_here
from deploy.shape import natural_shape
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


class HostFinding(msgspec.Struct, frozen=True):
    """One thing: whether it is here, what was found, and what it is for or how to get it."""

    what: str
    here: Literal["yes", "no", "partly"]
    found: str
    advice: str


def examine_host(cgroup_root: Path = Path("/sys/fs/cgroup")) -> list[HostFinding]:
    """Look at everything; nothing is changed."""
    return [
        *_machine(),
        _programs(
            "Slurm", ("slurmctld", "slurmd", "sbatch", "srun", "scontrol"), "slurmctld slurmd slurm-client"
        ),
        _programs("munge", ("munged",), "munge"),
        _mpi(),
        _cgroup(cgroup_root),
        _freezer(cgroup_root),
        _realtime(),
        _pmu(),
    ]


def _machine() -> Iterator[HostFinding]:
    cpus = sorted(os.sched_getaffinity(0))
    nodes, cores = natural_shape(len(cpus))
    memory = psutil.virtual_memory()
    share = busy_share()
    busy = "" if share is None else f"{share:.0%} busy now, "
    is_calm = share is None or share <= CALM
    yield HostFinding(
        "CPUs",
        "yes" if is_calm else "partly",
        f"{len(cpus)} usable of {os.cpu_count()}, {busy}load {os.getloadavg()[0]:.2f}",
        f"the embedded cluster is N{nodes}C{cores} by default"
        if is_calm
        else "others use them now: measure when it is calm",
    )
    yield HostFinding(
        "memory",
        "yes",
        f"{memory.total / 2**30:.1f} GiB, {memory.available / 2**30:.1f} free",
        "Slurm shares it out",
    )
    yield HostFinding("kernel", "yes", f"{platform.system()} {platform.release()}", "")
    who = "root" if os.geteuid() == 0 else f"user id {os.geteuid()}"
    yield HostFinding(
        "privilege",
        "yes" if os.geteuid() == 0 else "partly",
        who,
        "root: cgroup freezer and tracking; a plain user: signals and process trees",
    )


def _programs(what: str, names: tuple[str, ...], packages: str) -> HostFinding:
    found = {name: find_program(name) for name in names}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        return HostFinding(what, "no", f"missing: {', '.join(missing)}", f"apt-get install {packages}")
    return HostFinding(what, "yes", _version(str(found[names[0]])), "")


def _version(path: str) -> str:
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run([path, "-V"], capture_output=True, text=True, timeout=10, check=False)
        return (done.stdout + done.stderr).strip().splitlines()[0]
    return path


def _mpi() -> HostFinding:
    try:
        found = f"mpi4py {metadata.version('mpi4py')}, MPICH {metadata.version('mpich')}"
    except metadata.PackageNotFoundError as error:
        return HostFinding("MPI", "no", f"no {error.name}", "pip install mpi4py mpich (rrba needs them)")
    plugins = [Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib")]
    pmi2 = any(next(root.glob("**/slurm*/mpi_pmi2.so"), None) for root in plugins if root.is_dir())
    if not pmi2:
        return HostFinding(
            "MPI", "partly", found, "no Slurm plugin mpi_pmi2 found: jobs of several ranks can't start"
        )
    own_mpiexec = Path(sys.executable).with_name("mpiexec")
    trial = try_here(own_mpiexec if own_mpiexec.exists() else Path("mpiexec"))
    if trial.is_started is False:
        return HostFinding("MPI", "partly", f"{found}: {trial.found}", "two ranks did not start on this host")
    advice = (
        "`osub doctor --cluster` tries it across nodes" if trial.is_started else "no mpiexec to try it by"
    )
    return HostFinding("MPI", "yes", f"{found}, srun --mpi=pmi2: {trial.found}", advice)


def _cgroup(root: Path) -> HostFinding:
    unified = (root / "cgroup.controllers").exists()
    legacy = (root / "freezer").is_dir()
    kind = "v2" if unified else "v1" if legacy else "none mounted"
    if legacy and (root / "unified").is_dir():
        kind = "v1 and v2 (hybrid)"
    usable = usable_cgroup(root) if os.geteuid() == 0 else CgroupVersion.NONE
    here: Literal["yes", "no"] = "no" if usable is CgroupVersion.NONE else "yes"
    advice = "Slurm tracks processes in it" if here == "yes" else "needs root; process trees are used instead"
    return HostFinding("cgroup", here, kind, advice)


def _freezer(root: Path) -> HostFinding:
    usable = usable_cgroup(root) if os.geteuid() == 0 else CgroupVersion.NONE
    if usable is CgroupVersion.NONE:
        return HostFinding(
            "freezer", "partly", "signals (SIGSTOP, SIGCONT)", "the cgroup freezer is better: run as root"
        )
    return HostFinding("freezer", "yes", f"cgroup {usable}", "")


def _realtime() -> HostFinding:
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return HostFinding(
            "SCHED_FIFO", "no", "not permitted", "exact switching wants CAP_SYS_NICE or an rtprio limit"
        )
    os.sched_setscheduler(0, policy, parameter)
    return HostFinding("SCHED_FIFO", "yes", "permitted", "time slices begin to the fraction of a millisecond")


def _pmu() -> HostFinding:
    """Try to open a hardware instruction counter for this process (perf_event_open(2))."""
    attribute = struct.pack("IIQQQQQ", 0, 112, 1, 0, 0, 3, 1 << 5 | 1 << 6).ljust(112, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    number = {"x86_64": 298, "aarch64": 241}.get(platform.machine())
    descriptor = -1 if number is None else libc.syscall(number, attribute, 0, -1, -1, 0)
    if descriptor < 0:
        code = ctypes.get_errno()
        why = os.strerror(code) if number else f"unknown machine {platform.machine()}"
        if number and code in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
            why = "this host has no counter of instructions"
        return HostFinding(
            "PMU", "no", why.lower(), "performance counters: needs hardware, or a lower perf_event_paranoid"
        )
    try:
        sum(range(300_000))
        instructions, _, running_ns = struct.unpack("QQQ", os.read(descriptor, 24))
    finally:
        os.close(descriptor)
    return pmu_finding(instructions, running_ns)


def pmu_finding(instructions: int, running_ns: int) -> HostFinding:
    """Return what a counter says that ran so long in this process, which was busy.

    A counter that never ran (of the other kind of core) says nothing. Some virtual machines have one that
    hardly counts: a busy core has more than one instruction in 100 ns.
    """
    if instructions * 100 < running_ns:
        found = f"not believed: {instructions:,} instructions in {running_ns / 1e6:.1f} ms"
        return HostFinding("PMU", "no", found, "performance counters: needs a host whose PMU counts")
    return HostFinding("PMU", "yes", "instructions can be counted", "")
