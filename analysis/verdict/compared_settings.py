"""Which runs are of one setting: repetitions, or a real run and its simulation."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from foundation.records import GangSettings, Run, RunInfo


@dataclass(frozen=True, slots=True)
class Group:
    """Repetitions of one setting, at least one; ``label`` is what they have in common, or the first one's."""

    label: str
    runs: tuple[Run, ...]

    @property
    def info(self) -> RunInfo:
        """What the first of them says of itself."""
        return self.runs[0].info

    @property
    def is_shared(self) -> bool:
        """Whether jobs may share cores."""
        return self.info.most_a_core > 1

    @property
    def overhead(self) -> str | None:
        """The C_o that a simulation assumed; None where it plays no part."""
        options, info = self.info.options, self.info
        plain = info.kind == "simulated" and info.gang.kind == "none" and options.get("sharing") is None
        return str(options["overhead"]) if plain and self.is_shared and options.get("overhead") else None

    def at_overhead(self, overhead: str) -> dict[str, float] | None:
        """Return the means of ``RunInfo.other_overheads``, over the runs; None where one has none."""
        each = [run.info.other_overheads.get(overhead) for run in self.runs]
        known = [one for one in each if one]
        if len(known) < len(each):
            return None
        return {name: math.fsum(one[name] for one in known) / len(known) for name in known[0]}


Key = tuple[object, ...]
_DUE_WITHIN_S, _WITHIN = 0.5, 0.01
_ADDED = re.compile(r"( \([^()]*\))?( #\d+)?$")


def layout_key(info: RunInfo) -> Key:
    """Return what two runs of one layout have in common: all but how jobs take turns, and where they ran."""
    return (
        info.trace_sha256 or info.trace_name,
        info.system,
        info.queues,
        info.multiplicity,
        info.multiplicity_interactive,
        info.interactive_nodes,
        info.speedup,
    )


def setting_key(info: RunInfo) -> Key:
    """Return what repetitions have in common; a simulated run is none of a real one."""
    options = tuple(sorted((name, str(value)) for name, value in info.options.items()))
    simulated = (info.policy, options) if info.kind == "simulated" else ()
    return (*layout_key(info), info.kind, turns(info.gang), *simulated)


def turns(gang: GangSettings) -> Key:
    """Return how jobs take turns."""
    return (gang.kind, gang.quantum_ms, gang.hold)


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Return the settings in the order in which the runs name them first."""
    found: dict[Key, list[Run]] = {}
    for run in runs:
        found.setdefault(setting_key(run.info), []).append(run)
    names = _names([[run.info.label for run in members] for members in found.values()])
    return [Group(name, tuple(members)) for name, members in zip(names, found.values(), strict=True)]


def _names(labels: Sequence[Sequence[str]]) -> list[str]:
    """Return a name for each setting: its runs' label without what ``told_apart`` added, where that tells."""
    stems = [{_ADDED.sub("", label) for label in some} for some in labels]
    common = [
        next(iter(stem)) if len(some) > 1 and len(stem) == 1 else some[0]
        for some, stem in zip(labels, stems, strict=True)
    ]
    return common if len(set(common)) == len(common) else [some[0] for some in labels]


def are_errors(reference: RunInfo, other: RunInfo) -> bool:
    """Whether differences between two runs are errors: of a simulation, or of a repetition."""
    alike = layout_key(reference)[1:] == layout_key(other)[1:]
    if reference.kind != other.kind:
        return alike
    return setting_key(reference) == setting_key(other)


def are_of_one_trace(reference: Run, other: Run) -> bool:
    """Whether jobs of one number are the same job in two runs.

    Traces of one SHA-256 are one. Else most of the jobs that both have must have been due at the same time,
    or be of the same size and length: a replay writes the trace anew, and arrivals may have been changed on
    purpose. Where no job is in both, nothing speaks against it.
    """
    known = (reference.info.trace_sha256, other.info.trace_sha256)
    if None not in known and known[0] == known[1]:
        return True
    columns = ("trace_job", "due_s", "nodes", "cores", "dedicated_s")
    both = reference.jobs.select(columns).join(other.jobs.select(columns), on="trace_job", suffix="_other")
    due, due_other = (pl.col(name) - pl.col(name).min() for name in ("due_s", "due_s_other"))
    alone, alone_other = pl.col("dedicated_s"), pl.col("dedicated_s_other")
    is_due_then = (due - due_other).abs() <= _DUE_WITHIN_S + _WITHIN * due.abs()
    is_as_large = (pl.col("nodes") == pl.col("nodes_other")) & (pl.col("cores") == pl.col("cores_other"))
    is_as_long = (alone - alone_other).abs() <= _WITHIN * alone
    same = both.select((is_due_then | (is_as_large & is_as_long)).fill_null(value=True).mean()).item()
    return same is None or same > 0.5
