"""What the nodes' daemons do with a job's processes: how they are found, bound and told apart.

Sources: slurm.conf(5), ProctrackType, TaskPlugin, JobAcctGatherType; cgroup.conf(5), CgroupPlugin,
ConstrainCores, and CgroupJobIdPaths of Slurm 26.05.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from deploy.checks.configuration import Advice, Configuration, Grade, release_of

OLDEST, NEWEST, SLUID_SINCE = (21, 8), (26, 5), (26, 5)


def judge(found: Configuration) -> Iterator[Advice]:
    """Yield what there is to say."""
    yield _version(found)
    yield _proctrack(found)
    yield _cgroup(found)
    yield _job_folders(found)
    yield _binding(found)
    yield _gather(found)


def _version(found: Configuration) -> Advice:
    version, release = found.value("SLURM_VERSION"), found.release
    others = Counter(
        node.version for node in found.nodes if node.version and release_of(node.version) != release
    )
    told = f"slurmctld {version or 'not told'}"
    if release is None or release < OLDEST:
        return Advice("versions", Grade.BAD, told, "jobs are read as Slurm prints them from 21.08 on", "")
    if others:
        told += "".join(f", slurmd {other} on {count} nodes" for other, count in sorted(others.items()))
        why = "fine while nodes are upgraded; cgroups of another release may have other names"
        return Advice("versions", Grade.WARNING, told, why)
    if release > NEWEST:
        return Advice(
            "versions", Grade.WARNING, told, f"newer than what is known, {NEWEST[0]}.{NEWEST[1]:02}"
        )
    return Advice("versions", Grade.GOOD, told, "known")


def _proctrack(found: Configuration) -> Advice:
    kind = found.value("ProctrackType")
    if kind == "proctrack/cgroup":
        return Advice("process tracking", Grade.GOOD, kind, "a job's processes are held all at once")
    why = (
        "without cgroups of Slurm's jobs are stopped one process after the other, by signals, and can see it"
    )
    return Advice(
        "process tracking", Grade.WARNING, kind or "not told", why, "ProctrackType=proctrack/cgroup"
    )


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
        "cgroup", Grade.GOOD, plugin or "not told", "`osub doctor` on a node says what it can be held by"
    )


def _job_folders(found: Configuration) -> Advice:
    release, value = found.release, found.value("CgroupJobIdPaths").lower()
    if release is None or release < SLUID_SINCE:
        return Advice("names of job folders", Grade.GOOD, "by number", "as all Slurm before 26.05")
    if value in {"yes", "true", "1"}:
        return Advice("names of job folders", Grade.GOOD, "CgroupJobIdPaths=yes", "by number")
    why = "folders are named by SLUID; whose one is, is read from the title of its slurmstepd"
    told = "by SLUID"
    return Advice("names of job folders", Grade.WARNING, told, why, "CgroupJobIdPaths=yes    # cgroup.conf")


def _binding(found: Configuration) -> Advice:
    plugins, confines = found.words("TaskPlugin"), found.value("ConstrainCores").lower() == "yes"
    told = f"TaskPlugin={found.value('TaskPlugin')}, ConstrainCores={'yes' if confines else 'no'}"
    if "TASK/AFFINITY" in plugins or ("TASK/CGROUP" in plugins and confines):
        return Advice("binding", Grade.GOOD, told, "a job runs on the cores that Slurm gave it")
    why = "jobs run on any core of their node, not on those that Slurm says they share"
    write = "TaskPlugin=task/cgroup,task/affinity\nConstrainCores=yes    # cgroup.conf"
    return Advice("binding", Grade.WARNING, told, why, write)


def _gather(found: Configuration) -> Advice:
    kind, plugin = found.value("JobAcctGatherType"), found.value("CgroupPlugin")
    if plugin == "cgroup/v1" and kind != "jobacct_gather/cgroup":
        why = "CPU time is summed over processes: of those that end between two looks it is missed"
        return Advice("CPU time", Grade.WARNING, kind, why, "JobAcctGatherType=jobacct_gather/cgroup")
    return Advice("CPU time", Grade.GOOD, kind or "not told", "what a job uses is told by its cgroup")
