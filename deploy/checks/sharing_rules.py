"""Which jobs come to share a core, and whether they fit there together.

Sources: slurm.conf(5), SelectType, SelectTypeParameters, OverSubscribe, DefMemPerCPU; Slurm's page on sharing
consumable resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deploy.checks.configuration import Advice, Configuration, Grade
from foundation.slurm import Node, Partition

LEAST_MIB = 1


def judge(found: Configuration) -> Iterator[Advice]:
    """Yield what there is to say."""
    yield _select(found)
    yield _oversubscribe(found)
    yield _memory_resource(found)
    yield _default_memory(found)
    yield _preempt(found)


def _select(found: Configuration) -> Advice:
    kind = found.value("SelectType")
    good = kind in {"select/cons_tres", "select/cons_res"}
    return Advice(
        "select plugin",
        Grade.GOOD if good else Grade.BAD,
        kind,
        "cores are handed out one by one"
        if good
        else "whole nodes are handed out: no two jobs come to share a core, and no core can be told",
        "" if good else "SelectType=select/cons_tres",
    )


def _oversubscribe(found: Configuration) -> Advice:
    shared = found.sharing
    if not shared:
        names = ", ".join(one.name for one in found.partitions[:3])
        why = "no partition has cores that jobs may share: gangd has nothing to do"
        write = "PartitionName=... OverSubscribe=FORCE:2"
        return Advice("OverSubscribe", Grade.BAD, f"NO ({names})", why, write)
    told = ", ".join(f"{one.name}={'FORCE' if one.forced else 'YES'}:{one.multiplicity}" for one in shared)
    asked = [one for one in shared if not one.forced]
    if asked:
        why = "with YES only jobs that ask for it (sbatch --oversubscribe) share cores"
        write = "\n".join(
            f"PartitionName={one.name} ... OverSubscribe=FORCE:{one.multiplicity}" for one in asked
        )
        return Advice("OverSubscribe", Grade.WARNING, told, why, write)
    return Advice("OverSubscribe", Grade.GOOD, told, "so many jobs may come to share a core")


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
    why = "a job that asks for no memory gets all of its node's, and nobody comes to share its cores"
    told = f"not set for {', '.join(one.name for one in without)}"
    return Advice("DefMemPerCPU", Grade.BAD, told, why, write)


def _share_mib(partition: Partition, nodes: Sequence[Node]) -> int:
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
    told = f"GANG or SUSPEND: {', '.join(clashing)}"
    return Advice("PreemptMode", Grade.BAD, told, why, "PreemptMode=OFF")
