"""Whether a live Slurm is set up for jobs that share cores, and what to write where it is not.

The rules by which a live configuration is judged, in the order in which they are printed.

* Sharing: which jobs come to share a core, and whether they fit there together. Sources: slurm.conf(5),
  SelectType, SelectTypeParameters, OverSubscribe, DefMemPerCPU; Slurm's page on sharing consumable resources.
* Freezing: timers of Slurm that run on while a job is frozen. Sources: slurm.conf(5),
  MessageTimeout, KillWait, UnkillableStepTimeout, HealthCheckProgram, PrologFlags.
* Nodes: what their daemons do with a job's processes, how they are found, bound and distinguished. Sources:
  slurm.conf(5), ProctrackType, TaskPlugin, JobAcctGatherType; cgroup.conf(5), CgroupPlugin, ConstrainCores,
  and CgroupJobIdPaths of Slurm 26.05.
* Accounting: who may move the end of a job, and how long it is known what came of one. Sources:
  slurm.conf(5), AccountingStorageType, MinJobAge, JobCompType; Slurm's page on accounting.
"""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from deploy.mpi_trial import Bound, MpiTrial
from foundation.slurm import Partition, SlurmClient, SlurmNode
from foundation.units import counted

_SIBLINGS = Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")


class Grade(StrEnum):
    """How a setting does: as it should be; works, with a loss that is named; does not work."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class Advice(msgspec.Struct, frozen=True):
    """One thing: how it does, what was found, why that matters, and the lines to write ("" for none)."""

    what: str
    grade: Grade
    found: str
    why: str
    write: str = ""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A live configuration.

    Attributes
    ----------
    values
        ``scontrol show config``, cgroup.conf's part of it included.
    partitions, nodes
        All of them.
    freeze_cap_s
        Longest time for which gangd would freeze a job without a pause.
    lease_s
        How long agents hold jobs without a word from gangd.
    host, host_threads
        Short name of the caller's host, and hardware threads of its cores; None where that is not known.
    """

    values: Mapping[str, str]
    partitions: Sequence[Partition]
    nodes: Sequence[SlurmNode]
    freeze_cap_s: float = 5.0
    lease_s: float = 2.0
    host: str = ""
    host_threads: int | None = None

    def value(self, key: str) -> str:
        """Return a value; "" where it is not set or this Slurm does not know it."""
        text = self.values.get(key, "")
        return "" if text in {"(null)", "N/A"} else text

    def words(self, key: str) -> frozenset[str]:
        """Return the words of a list, in capital letters."""
        return frozenset(word.upper() for word in re.split(r"[,\s]+", self.value(key)) if word)

    def number(self, key: str) -> float | None:
        """Return the number that a value begins with, such as 10 of ``10 sec``; None for none."""
        found = re.match(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(?: |$)", self.value(key))
        return None if found is None else float(found[1])

    @property
    def release(self) -> tuple[int, int] | None:
        """Year and month of slurmctld's release; None where it does not say."""
        return release_of(self.value("SLURM_VERSION"))

    @property
    def sharing(self) -> tuple[Partition, ...]:
        """The partitions whose cores may be shared."""
        return tuple(one for one in self.partitions if one.multiplicity > 1)


def release_of(version: str) -> tuple[int, int] | None:
    """Return year and month of a release, such as (22, 5) of ``22.05.8``; None for no version."""
    found = re.match(r"([0-9]{2})\.([0-9]{2})(?:\.|$)", version)
    return None if found is None else (int(found[1]), int(found[2]))


def look(client: SlurmClient, freeze_cap_s: float, lease_s: float) -> Configuration:
    """Return the configuration; raises what ``SlurmClient`` does."""
    host = socket.gethostname().partition(".")[0]
    parts = client.config(), client.partitions(), client.nodes()
    return Configuration(*parts, freeze_cap_s, lease_s, host, threads_here())


def threads_here(siblings: Path = _SIBLINGS) -> int | None:
    """Return the hardware threads of this host's first core; None where the kernel does not say."""
    try:
        lists = siblings.read_text(encoding="ascii").strip().split(",")
        return sum(
            int(last or first) - int(first) + 1 for first, _, last in (one.partition("-") for one in lists)
        )
    except (OSError, ValueError):
        return None


LEAST_MIB = 1

MOST_HEALTH_S = 60
TIMEOUTS_A_STEP = 5
"""``UnkillableStepTimeout`` is five times ``MessageTimeout`` by default since Slurm 24.05."""

OLDEST, NEWEST, SLUID_SINCE = (21, 8), (26, 5), (26, 5)

LEAST_AGE_S = 60

_REFUSED = frozenset({"INVAL", "INVALID_REG"})


def judge(found: Configuration) -> tuple[Advice, ...]:
    """Return what there is to say of each setting that matters, the good ones included."""
    return tuple(check(found) for check in _CHECKS)


def judge_start(trial: MpiTrial) -> Advice:
    """Return what there is to say of two ranks of MPI that were started."""
    grade = Grade.GOOD if trial.is_started is not False else Grade.WARNING
    why = "jobs of several nodes find each other"
    if trial.is_started is None:
        why = "not tried: no nodes were free, or there is no srun"
    elif not trial.is_started:
        why = "jobs of several nodes do not start so"
    return Advice("MPI start", grade, trial.found, why)


def judge_binding(bound: Bound) -> Advice:
    """Return what there is to say of the CPUs on which a job's two tasks and an ``mpiexec`` may run."""
    what = "CPUs of ranks"
    setting = f"srun -n2: {' and '.join(bound.tasks or ('not tried',))}"
    setting += f"; mpiexec under srun -n1 -c2: {bound.launcher or 'not tried'}"
    crowded = bound.tasks is not None and len(set(bound.tasks)) == 1 and bound.tasks[0].isdigit()
    if crowded or (bound.launcher or "").isdigit():
        why = "two ranks of one job run on one CPU: slowdowns are then of pinning, not of sharing"
        write = "TaskPlugin=task/cgroup,task/affinity\nConstrainCores=yes    # cgroup.conf"
        return Advice(what, Grade.WARNING, setting, why, write)
    if bound == Bound():
        return Advice(what, Grade.GOOD, "not tried", "no node has two cores free, or there is no srun")
    return Advice(what, Grade.GOOD, setting, "ranks of one job need not share a CPU")


def _select(found: Configuration) -> Advice:
    kind = found.value("SelectType")
    good = kind in {"select/cons_tres", "select/cons_res"}
    return Advice(
        "select plugin",
        Grade.GOOD if good else Grade.BAD,
        kind,
        "cores are handed out one by one"
        if good
        else "whole nodes are handed out: no two jobs come to share a core, and no core can be named",
        "" if good else "SelectType=select/cons_tres",
    )


def _core(found: Configuration) -> Advice:
    """Say what a core is here: what M counts jobs of, and gangd takes for shared."""
    words = found.words("SelectTypeParameters")
    threads = max((node.threads_per_core for node in found.nodes), default=1)
    setting = f"{found.value('SelectTypeParameters') or 'not set'}, {counted(threads, 'thread')} a core"
    if words & {"CR_SOCKET", "CR_SOCKET_MEMORY"}:
        why = "whole sockets are handed out: M counts jobs of a socket"
    elif words & {"CR_CPU", "CR_CPU_MEMORY"} and threads > 1:
        why = "M counts jobs of a thread, so more of them meet on one core; gangd goes by cores"
    elif words & {"CR_CPU", "CR_CPU_MEMORY"}:
        why = (
            "a CPU counts as a core: where `lscpu` shows several threads a core, jobs of two CPUs share one, "
            "which neither M nor gangd knows; `slurmd -C` prints the line of a node"
        )
    else:
        each = f"{threads} threads, handed out together" if threads > 1 else "one CPU"
        return Advice("a core", Grade.GOOD, setting, f"M counts jobs of a core, which is {each}")
    return Advice("a core", Grade.WARNING, setting, why, "SelectTypeParameters=CR_Core_Memory")


def _oversubscribe(found: Configuration) -> Advice:
    shared = found.sharing
    if not shared:
        names = ", ".join(one.name for one in found.partitions[:3])
        why = "no partition has cores that jobs may share: gangd has nothing to do"
        write = "PartitionName=... OverSubscribe=FORCE:2"
        return Advice("OverSubscribe", Grade.BAD, f"NO ({names})", why, write)
    setting = ", ".join(f"{one.name}={'FORCE' if one.forced else 'YES'}:{one.multiplicity}" for one in shared)
    asked = [one for one in shared if not one.forced]
    if asked:
        why = "with YES only jobs that ask for it (sbatch --oversubscribe) share cores"
        write = "\n".join(
            f"PartitionName={one.name} ... OverSubscribe=FORCE:{one.multiplicity}" for one in asked
        )
        return Advice("OverSubscribe", Grade.WARNING, setting, why, write)
    return Advice("OverSubscribe", Grade.GOOD, setting, "so many jobs may come to share a core")


def _memory_resource(found: Configuration) -> Advice:
    what, value = "memory as a resource", found.value("SelectTypeParameters")
    words = found.words("SelectTypeParameters")
    kinds = [word for word in words if word.startswith("CR_") and word.endswith("_MEMORY")]
    if kinds:
        return Advice(what, Grade.GOOD, value, "jobs share a core only where both fit into memory")
    why = "jobs that do not fit into memory together are put together, and the kernel kills one"
    return Advice(what, Grade.BAD, value or "not set", why, "SelectTypeParameters=CR_Core_Memory")


def _default_memory(found: Configuration) -> Advice:
    everywhere = found.number("DefMemPerCPU") or found.number("DefMemPerNode")
    without = [one for one in found.sharing if not (one.default_memory or everywhere)]
    if not without:
        return Advice("DefMemPerCPU", Grade.GOOD, "set", "a job that asks for no memory gets its share")
    write = "\n".join(
        f"PartitionName={one.name} ... DefMemPerCPU={_share_mib(one, found.nodes)}" for one in without
    )
    why = "a job that asks for no memory gets all of its node's, and no other job comes to share its cores"
    setting = f"not set for {', '.join(one.name for one in without)}"
    return Advice("DefMemPerCPU", Grade.BAD, setting, why, write)


def _share_mib(partition: Partition, nodes: Sequence[SlurmNode]) -> int:
    """Return the memory of a CPU's job if all of the smallest node's CPUs have as many as they may."""
    members = [one for one in nodes if one.name in set(partition.nodes)]
    shares = [
        one.memory_mib // (one.cores * one.threads_per_core * partition.multiplicity) for one in members
    ]
    return max(LEAST_MIB, min(shares, default=LEAST_MIB))


def _preempt(found: Configuration) -> Advice:
    modes = {"PreemptMode": found.words("PreemptMode")}
    modes |= {f"of {one.name}": frozenset(one.preempt_mode.upper().split(",")) for one in found.partitions}
    clashing = [where for where, words in modes.items() if words & {"GANG", "SUSPEND"}]
    value = found.value("PreemptMode") or "OFF"
    if not clashing:
        return Advice("PreemptMode", Grade.GOOD, value, "Slurm freezes no jobs by itself")
    why = "Slurm's own scheduler would freeze and thaw the jobs that gangd does: gangd does not start"
    setting = f"GANG or SUSPEND: {', '.join(clashing)}"
    return Advice("PreemptMode", Grade.BAD, setting, why, "PreemptMode=OFF")


def _seconds(found: Configuration, key: str) -> tuple[float | None, str]:
    seconds = found.number(key)
    return seconds, "unknown" if seconds is None else f"{seconds:g} s"


def _message_timeout(found: Configuration) -> Advice:
    seconds, setting = _seconds(found, "MessageTimeout")
    least = 2 * found.freeze_cap_s
    if seconds is not None and seconds < least:
        why = f"an srun that is frozen for {found.freeze_cap_s:g} s (freeze_cap_ms) may lose its step"
        return Advice("MessageTimeout", Grade.BAD, setting, why, f"MessageTimeout={max(10, round(least))}")
    return Advice(
        "MessageTimeout", Grade.GOOD, setting, f"twice the longest freeze, {found.freeze_cap_s:g} s, or more"
    )


def _kill_wait(found: Configuration) -> Advice:
    seconds, setting = _seconds(found, "KillWait")
    least = found.freeze_cap_s + found.lease_s
    if seconds is not None and seconds < least:
        why = f"a suspended job that gets SIGTERM may be resumed {least:g} s later, and could not tidy up"
        return Advice("KillWait", Grade.WARNING, setting, why, "KillWait=30")
    return Advice(
        "KillWait", Grade.GOOD, setting, "a job that gets SIGTERM has time to end, though it was suspended"
    )


def _unkillable(found: Configuration) -> Advice:
    seconds, setting = _seconds(found, "UnkillableStepTimeout")
    timeout_s = found.number("MessageTimeout") or 10
    least, bad = TIMEOUTS_A_STEP * timeout_s, 2 * (found.freeze_cap_s + found.lease_s)
    if seconds is None or seconds >= least:
        return Advice("UnkillableStepTimeout", Grade.GOOD, setting, "a slow end of a job drains no node")
    grade = Grade.BAD if seconds < bad else Grade.WARNING
    why = f"a step that ends slowly drains its node; {TIMEOUTS_A_STEP} x MessageTimeout is usual"
    return Advice(
        "UnkillableStepTimeout", grade, setting, why, f"UnkillableStepTimeout={max(60, round(least))}"
    )


def _health_check(found: Configuration) -> Advice:
    program, every_s = found.value("HealthCheckProgram"), found.number("HealthCheckInterval") or 0
    setting = f"{program or 'none'}, every {every_s:g} s" if every_s else program or "none"
    if program and 0 < every_s <= MOST_HEALTH_S:
        why = "runs where agent and guardian are both killed; it must call `gang-agent thaw --expired`"
        return Advice("health check", Grade.GOOD, setting, why)
    why = "if agent and guardian are both killed, jobs stay frozen until `gang-agent thaw` runs"
    write = (
        f"HealthCheckProgram={program or '/etc/slurm/gang-agent-health'}\n"
        "HealthCheckInterval=30\nHealthCheckNodeState=ANY"
    )
    return Advice("health check", Grade.WARNING, setting, why, write)


def _prolog(found: Configuration) -> Advice:
    prolog, flags = found.value("Prolog"), found.words("PrologFlags")
    setting = f"{prolog or 'none'}, flags {','.join(sorted(flags)).lower() or 'none'}"
    if "SERIAL" in flags:
        why = "prologs of one node wait for each other, and jobs that begin together begin one by one"
        return Advice("prolog", Grade.WARNING, setting, why, "PrologFlags=Alloc")
    if prolog and not flags & {"ALLOC", "CONTAIN", "X11"}:
        why = "the prolog runs at a node's first step, not when the job begins: the agent hears of it late"
        return Advice("prolog", Grade.WARNING, setting, why, "PrologFlags=Alloc")
    if flags & {"CONTAIN", "X11"}:
        return Advice(
            "prolog", Grade.GOOD, setting, "ssh logins that it takes in are held with the job (--extern)"
        )
    why = (
        "the agent hears of a job at once"
        if prolog
        else "optional: deploy/slurm/gang-bell tells the agent at once"
    )
    return Advice("prolog", Grade.GOOD, setting, why)


def _version(found: Configuration) -> Advice:
    version, release = found.value("SLURM_VERSION"), found.release
    others = Counter(
        node.version for node in found.nodes if node.version and release_of(node.version) != release
    )
    setting = f"slurmctld {version or 'unknown'}"
    if release is None or release < OLDEST:
        return Advice("versions", Grade.BAD, setting, "jobs are read as Slurm prints them from 21.08 on", "")
    if others:
        setting += "".join(
            f", slurmd {other} on {counted(count, 'node')}" for other, count in sorted(others.items())
        )
        why = "fine while nodes are upgraded; cgroups of another release may have other names"
        return Advice("versions", Grade.WARNING, setting, why)
    if release > NEWEST:
        return Advice(
            "versions", Grade.WARNING, setting, f"newer than what is known, {NEWEST[0]}.{NEWEST[1]:02}"
        )
    return Advice("versions", Grade.GOOD, setting, "known")


def _proctrack(found: Configuration) -> Advice:
    kind = found.value("ProctrackType")
    if kind == "proctrack/cgroup":
        return Advice("process tracking", Grade.GOOD, kind, "a job's processes are held all at once")
    why = (
        "without cgroups of Slurm's jobs are stopped one process after the other, by signals, and can see it"
    )
    return Advice("process tracking", Grade.WARNING, kind or "unknown", why, "ProctrackType=proctrack/cgroup")


def _cgroup(found: Configuration) -> Advice:
    plugin, wants = found.value("CgroupPlugin"), found.value("ProctrackType") == "proctrack/cgroup"
    if wants and plugin in {"disabled", "cgroup/disabled"}:
        why = "Slurm makes no cgroups, so there is nothing to hold a job by"
        return Advice("cgroup", Grade.BAD, plugin, why, "CgroupPlugin=autodetect    # cgroup.conf")
    if found.value("IgnoreSystemd").lower() == "yes" and plugin == "cgroup/v2":
        why = "slurmd makes its folders itself: a restart of systemd may move them"
        return Advice(
            "cgroup", Grade.WARNING, f"{plugin}, IgnoreSystemd=yes", why, "IgnoreSystemd=no    # cgroup.conf"
        )
    return Advice(
        "cgroup", Grade.GOOD, plugin or "unknown", "`osub doctor` on a node says what it can be held by"
    )


def _job_folders(found: Configuration) -> Advice:
    release, value = found.release, found.value("CgroupJobIdPaths").lower()
    if release is None or release < SLUID_SINCE:
        return Advice("names of job folders", Grade.GOOD, "by number", "as all Slurm before 26.05")
    if value in {"yes", "true", "1"}:
        return Advice("names of job folders", Grade.GOOD, "CgroupJobIdPaths=yes", "by number")
    why = "folders are named by SLUID; whose one is, is read from the title of its slurmstepd"
    setting = "by SLUID"
    return Advice(
        "names of job folders", Grade.WARNING, setting, why, "CgroupJobIdPaths=yes    # cgroup.conf"
    )


def _hardware(found: Configuration) -> Advice:
    """Say where ``NodeName`` lines and hardware differ: on nodes that slurmd refused, and on this host."""
    what, write = "CPUs of nodes", "NodeName=...    # the line that `slurmd -C` prints on the node"
    low = [one for one in found.nodes if one.states & _REFUSED or (one.reason or "").startswith("Low ")]
    if low:
        setting = f"{low[0].name}: {low[0].reason or 'refused'}" + (
            f" and {len(low) - 1} more" if low[1:] else ""
        )
        why = "the node has less than slurm.conf says: Slurm drains it, and no job starts there"
        return Advice(what, Grade.BAD, setting, why, write)
    here = [one for one in found.nodes if one.name == found.host]
    if here and found.host_threads not in (None, here[0].threads_per_core):
        setting = (
            f"{here[0].name}: {counted(here[0].threads_per_core, 'thread')} a core, "
            f"this host has {found.host_threads}"
        )
        why = "what Slurm calls cores are not: jobs on two of them share one, or half of the CPUs are unused"
        return Advice(what, Grade.WARNING, setting, why, write)
    return Advice(what, Grade.GOOD, "as slurm.conf says", "no node was refused for having less")


def _binding(found: Configuration) -> Advice:
    plugins, confines = found.words("TaskPlugin"), found.value("ConstrainCores").lower() == "yes"
    setting = f"TaskPlugin={found.value('TaskPlugin')}, ConstrainCores={'yes' if confines else 'no'}"
    if "TASK/AFFINITY" in plugins or ("TASK/CGROUP" in plugins and confines):
        return Advice("binding", Grade.GOOD, setting, "a job runs on the cores that Slurm gave it")
    why = "jobs run on any core of their node, not on those that Slurm says they share"
    write = "TaskPlugin=task/cgroup,task/affinity\nConstrainCores=yes    # cgroup.conf"
    return Advice("binding", Grade.WARNING, setting, why, write)


def _gather(found: Configuration) -> Advice:
    kind, plugin = found.value("JobAcctGatherType"), found.value("CgroupPlugin")
    if plugin == "cgroup/v1" and kind != "jobacct_gather/cgroup":
        why = "CPU time is summed over processes: of those that end between two looks it is missed"
        return Advice("CPU time", Grade.WARNING, kind, why, "JobAcctGatherType=jobacct_gather/cgroup")
    return Advice("CPU time", Grade.GOOD, kind or "unknown", "a job's use is read from its cgroup")


def _has_database(found: Configuration) -> bool:
    return found.value("AccountingStorageType") == "accounting_storage/slurmdbd"


def _storage(found: Configuration) -> Advice:
    kind = found.value("AccountingStorageType") or "accounting_storage/none"
    if _has_database(found):
        why = "gangd's user may be an operator, and move ends of held jobs"
        return Advice("accounting", Grade.GOOD, kind, why)
    why = "only root and Slurm's user may move ends of held jobs: run gangd as one, or move_ends = false"
    return Advice("accounting", Grade.WARNING, kind, why, "AccountingStorageType=accounting_storage/slurmdbd")


def _age(found: Configuration) -> Advice:
    seconds = found.number("MinJobAge")
    setting = "unknown" if seconds is None else f"MinJobAge={seconds:g} s"
    logged = found.value("JobCompType") == "jobcomp/filetxt"
    if _has_database(found) or logged or seconds is None or seconds >= LEAST_AGE_S:
        return Advice(
            "finished jobs", Grade.GOOD, setting, "what came of a job is known when it is asked for"
        )
    why = "slurmctld forgets what came of a job before a replay, or anybody, asks"
    return Advice("finished jobs", Grade.WARNING, setting, why, "MinJobAge=300\nJobCompType=jobcomp/filetxt")


_CHECKS = (
    *(_select, _core, _oversubscribe, _memory_resource, _default_memory, _preempt),
    *(_message_timeout, _kill_wait, _unkillable, _health_check, _prolog),
    *(_version, _proctrack, _cgroup, _job_folders, _hardware, _binding, _gather),
    *(_storage, _age),
)
