"""Keeping applications apart that harm each other where they share cores.

Slurm does not know what a job runs. What it offers is where a job may go, and whether it shares. So
applications are put into groups without a dangerous pair, and each group's jobs may go to nodes of its own
only (``--exclude``). An application that harms its own kind, or for which no nodes are left, shares
with no other: it does not ask for sharing where the partition leaves that to jobs (OverSubscribe=YES), and
where the partition shares by force (FORCE) it asks for all memory of its nodes, so that no other job fits
next to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from foundation.errors import InputError, UsageError
from foundation.files import write_whole
from foundation.one_line import one_line
from foundation.units import counted
from submitter.plan.replay_plan import PlannedJob, ReplayPlan
from submitter.plan.target_cluster import PartitionPool, TargetCluster

PAIRING_NAME = "pairing.json"
_MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ConflictPairs:
    """Which applications must not share a core.

    Parameters
    ----------
    applications
        All that are known.
    pairs
        Dangerous ones, as (one, other) in ascending order; both may be the same.
    """

    applications: frozenset[str]
    pairs: frozenset[tuple[str, str]]

    def __call__(self, one: str, other: str) -> bool:
        """Whether one harms the other, or the other harms it."""
        return (min(one, other), max(one, other)) in self.pairs


class Apart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was decided, of one partition, kept in the RUN.

    Attributes
    ----------
    groups
        Of applications that are in danger of others: those that may share, and the nodes of each group. Who
        is in none goes anywhere.
    alone
        Applications that share with no other.
    together
        Dangerous pairs that this partition cannot keep apart.
    """

    groups: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    alone: tuple[str, ...] = ()
    together: tuple[tuple[str, str], ...] = ()

    def nodes_of(self, application: str) -> tuple[str, ...] | None:
        """Return the nodes that an application may go to, None for all."""
        return next((nodes for names, nodes in self.groups if application in names), None)

    def sentence(self) -> str:
        """Return it in a sentence."""
        parts = [
            f"{', '.join(names)} on {counted(len(nodes), 'node')}" for names, nodes in self.groups if names
        ]
        if self.alone:
            parts.append(f"{', '.join(self.alone)} shares with no other")
        if self.together:
            pairs = ", ".join(f"{one} and {other}" for one, other in self.together)
            parts.append(f"not kept apart here: {pairs}")
        return "; ".join(parts) or "all may share with all"


@dataclass(frozen=True, slots=True)
class _Need:
    """What an application's jobs need: core seconds of all, and nodes of the widest."""

    work: float
    nodes: int


def applications_of(plan: ReplayPlan, danger: ConflictPairs) -> dict[int, str]:
    """Return the application of each job of a plan, by the trace's number.

    It is what ``--apps`` says, or follows from rrba's arguments: ``lu.W``, and ``lu.W.2`` of two ranks where
    the pairs have that.

    Raises
    ------
    UsageError
        A job's application is not known.
    """
    found = {}
    for job in plan.jobs:
        names = _names(job)
        name = next((name for name in names if name in danger.applications), None)
        if name is None:
            said = one_line(names[-1], 80) if names else f"a command ({one_line(job.app, 80)})"
            known = sorted(danger.applications)
            raise UsageError(
                f"--pairing has no pairs of what job {job.trace_job} runs, {said}: give --apps a column "
                f"application, with names such as {', '.join(known[:4])}, or measure it "
                "(`osub predict measure`)"
            )
        found[job.trace_job] = name
    return found


def _names(job: PlannedJob) -> list[str]:
    if job.application is not None:
        return [job.application]
    words = dict(zip(job.args[::2], job.args[1::2], strict=False))
    size = words.get("--class") or words.get("--grid")
    if job.app != "rrba" or size is None or "--app" not in words:
        return []
    name = f"{words['--app']}.{size}"
    return [f"{name}.{job.cores}", name]


def keep_apart(
    plan: ReplayPlan, target: TargetCluster, danger: ConflictPairs, *, memory_counts: bool
) -> dict[str, Apart]:
    """Return how dangerous pairs are kept apart, by partition.

    Parameters
    ----------
    plan
        Whose applications are known (``applications_of``).
    target
        Where it runs.
    danger
        Which pairs must not meet.
    memory_counts
        Whether memory is a resource of this Slurm's, so that a job that asks for all of it is alone.

    Raises
    ------
    UsageError
        An application is not known.
    """
    names = applications_of(plan, danger)
    found = {}
    for pool in {pool.partition: pool for pool in (target.batch, target.interactive)}.values():
        needs: dict[str, _Need] = {}
        for job in plan.jobs:
            if job.partition == pool.partition:
                before = needs.get(names[job.trace_job], _Need(0.0, 1))
                needs[names[job.trace_job]] = _Need(
                    before.work + job.cores * job.dedicated_s, max(before.nodes, job.nodes)
                )
        possible = pool.shares_on_request or memory_counts
        found[pool.partition] = _decide(needs, pool, danger, possible=possible)
    return found


def _decide(
    needs: Mapping[str, _Need], pool: PartitionPool, danger: ConflictPairs, *, possible: bool
) -> Apart:
    """Return groups with nodes, and who is alone where that is ``possible``."""
    order = sorted(needs, key=lambda name: (-needs[name].work, name))
    alone = [name for name in order if danger(name, name)] if possible else []
    while True:
        shared = [name for name in order if name not in alone]
        groups = _groups(shared, danger)
        least = [max(needs[name].nodes for name in own) for own in groups]
        if sum(least) <= pool.nodes:
            break
        if not possible:
            groups, least = [], []
            break
        # The last group has the least work of those in danger; it gives up sharing.
        alone += groups[-1]
    work = [sum(needs[name].work for name in own) for own in groups]
    places, at = [], 0
    for own, count in zip(groups, _shares(pool.nodes, work, least), strict=True):
        places.append((tuple(sorted(own)), pool.names[at : at + count]))
        at += count
    home = {name: number for number, own in enumerate(groups) for name in own}
    together = [
        (min(one, other), max(one, other))
        for place, one in enumerate(shared)
        for other in shared[place:]
        if danger(one, other) and home.get(one) == home.get(other)
    ]
    return Apart(tuple(places), tuple(sorted(alone)), tuple(sorted(together)))


def _groups(shared: Sequence[str], danger: ConflictPairs) -> list[list[str]]:
    """Return groups without a dangerous pair of those that are in danger of others; the rest go anywhere."""
    groups: list[list[str]] = []
    for name in shared:
        if any(danger(name, other) for other in shared if other != name):
            home = next((own for own in groups if not any(danger(name, each) for each in own)), None)
            if home is None:
                groups.append([name])
            else:
                home.append(name)
    return groups


def _shares(nodes: int, work: Sequence[float], least: Sequence[int]) -> list[int]:
    """Return how many of the nodes each group has: in proportion to its work, none fewer than its least."""
    counts = list(least)
    for _ in range(nodes - sum(least) if counts else 0):
        # Each node goes to the group with most work a node so far.
        counts[max(range(len(counts)), key=lambda at: (work[at] / counts[at], -at))] += 1
    return counts


def apply(
    plan: ReplayPlan, target: TargetCluster, apart: Mapping[str, Apart], names: Mapping[int, str]
) -> ReplayPlan:
    """Return the plan with what is asked of Slurm for each job: nodes to keep away from, and to be alone."""
    jobs = []
    for job in plan.jobs:
        own, name = apart[job.partition], names[job.trace_job]
        nodes = own.nodes_of(name)
        pool = target.pool(job.partition)
        away = () if nodes is None else tuple(node for node in pool.names if node not in nodes)
        jobs.append(replace(job, away_from=away, is_alone=name in own.alone))
    return replace(plan, jobs=tuple(jobs))


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    apart: dict[str, Apart]
    jobs: dict[int, str]


def write_apart(run: Path, apart: Mapping[str, Apart], names: Mapping[int, str]) -> None:
    """Keep in the RUN what was decided; raises OutputError."""
    stored = msgspec.json.encode(_Stored(dict(apart), dict(names)))
    write_whole(run / PAIRING_NAME, msgspec.json.format(stored, indent=2).decode() + "\n")


def read_apart(run: Path) -> tuple[dict[str, Apart], dict[int, str]] | None:
    """Return what was decided when the RUN was begun; None where nothing was.

    Raises
    ------
    InputError
        The file is damaged.
    """
    path = run / PAIRING_NAME
    if not path.exists():
        return None
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is larger than {_MOST_BYTES >> 20} MiB")
        stored = msgspec.json.decode(path.read_bytes(), type=_Stored)
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(f"cannot read {path}: {one_line(str(error))}") from error
    return stored.apart, stored.jobs


def checked_threshold(threshold: float | None, multiplicity: int) -> float:
    """Return the loss from which a pair is dangerous: as said, or a twentieth above the ideal 1 - 1/M.

    Raises
    ------
    UsageError
        It is no share.
    """
    if threshold is None:
        return 1.0 - 1.0 / multiplicity + 0.05
    if not (math.isfinite(threshold) and 0 < threshold < 1):
        raise UsageError(f"--pairing-threshold is a share between 0 and 1, not {threshold:g}")
    return threshold
