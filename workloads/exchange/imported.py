"""Workloads of Batsim and ElastiSim as traces, a jobs.csv as a RUN."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from foundation.errors import InputError, UsageError
from foundation.files import write_pieces
from foundation.units import counted, verb
from workloads.exchange.batsim_workload import batsim_jobs, look_at_batsim, machines_of
from workloads.exchange.elastisim.application_model import Models
from workloads.exchange.elastisim.elastisim_jobs import (
    JOBS,
    PLATFORM,
    ElastisimReading,
    elastisim_jobs,
    look_at_elastisim,
)
from workloads.exchange.fields import Machines, Numbering, OmittedJobs, Unit, trace_pieces
from workloads.exchange.simgrid_platform import read_platform
from workloads.exchange.sizes import sizes_pieces


@dataclass(slots=True)
class Imported:
    """What was made, and what is to be said of it."""

    jobs: int
    system: str
    left: OmittedJobs = field(default_factory=OmittedJobs)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSource:
    """What is read, and what is said of the machines that it is for.

    Attributes
    ----------
    path
        The file; of ElastiSim also its folder.
    size
        Nodes and cores a node, None where that is not said.
    unit
        What a resource is, None where that is not said.
    platform
        A platform file with the machines, in the place of ``size``.
    strict
        Whether a job without known run time or size is an error.
    """

    path: Path
    size: tuple[int, int] | None = None
    unit: Unit | None = None
    platform: Path | None = None
    strict: bool = True

    def machines(self, default: Unit) -> Machines | None:
        """Return the machines as they are said, None where they are not; raises InputError."""
        if self.platform is not None:
            made = read_platform(self.platform)
            return made if self.unit is None else replace(made, unit=self.unit)
        return None if self.size is None else Machines(*self.size, self.unit or default)


def import_batsim(source: ImportSource, out: Path) -> Imported:
    """Write Batsim's workload as an SWF trace; raises InputError and OutputError."""
    found = look_at_batsim(source.path)
    named = None if source.platform is None else source.machines(Unit.CORE)
    if named is None:
        machines = machines_of(found, source.size, source.unit)
    else:
        machines = machines_of(found, (named.nodes, named.cores), named.unit)
    done = Imported(found.count, machines.system)
    if not source.strict:
        done.jobs = sum(1 for _ in batsim_jobs(found, machines, OmittedJobs(), strict=False))
    _check_any(done.jobs, source.path)
    done.notes += _renumbered(found.numbering)
    jobs = batsim_jobs(found, machines, done.left, strict=source.strict)
    write_pieces(out, trace_pieces(found.header, jobs, done.jobs, machines, "Batsim", done.notes))
    return done


def import_elastisim(
    source: ImportSource, out: Path, models: Path | None = None, sizes: Path | None = None
) -> Imported:
    """Write ElastiSim's jobs as an SWF trace.

    Parameters
    ----------
    models
        The folder that the paths of application models are of; None: the jobs' own.
    sizes
        Where the sizes of malleable jobs are written, None for nowhere.

    Raises
    ------
    InputError, OutputError
        They cannot be read; something cannot be written.
    """
    path = source.path / JOBS if source.path.is_dir() else source.path
    sibling = path.parent / PLATFORM
    if source.size is None and source.platform is None and source.path.is_dir() and sibling.is_file():
        source = replace(source, platform=sibling, unit=None)
    found = look_at_elastisim(path)
    machines = source.machines(Unit.NODE) or found.machines or Machines(found.most_nodes, 1)
    machines = replace(machines, unit=Unit.NODE)
    reading = ElastisimReading(machines, Models(models or path.parent), OmittedJobs(), strict=source.strict)
    done = Imported(found.count, machines.system, reading.left)
    if not source.strict:
        counting = ElastisimReading(machines, reading.models, OmittedJobs(), strict=False)
        done.jobs = sum(1 for _ in elastisim_jobs(found, counting))
    _check_any(done.jobs, source.path)
    done.notes += _renumbered(found.numbering)
    jobs = elastisim_jobs(found, reading)
    write_pieces(out, trace_pieces(found.header, jobs, done.jobs, machines, "ElastiSim", done.notes))
    if sizes is not None:
        write_pieces(sizes, sizes_pieces(reading.sizes))
    elif reading.sizes:
        many = len(reading.sizes)
        done.notes.append(
            f"{counted(many, 'job')} {verb(many)} malleable: --sizes FILE writes what sizes they can have"
        )
    if reading.not_amdahl:
        done.notes.append(
            f"{counted(reading.not_amdahl, 'job')} {verb(reading.not_amdahl, 'does', 'do')} not follow "
            "Amdahl's law: the model's is the nearest"
        )
    return done


def import_run(
    source: ImportSource, out: Path, multiplicity: int, policy: str, label: str | None
) -> Imported:
    """Write a jobs.csv as a RUN; raises InputError, OutputError, UsageError where no machines are said."""
    # Tables are slow to import, and a trace needs none of them.
    from workloads.exchange.jobs_csv.jobs_csv_read import make_run

    machines = source.machines(Unit.CORE)
    if machines is None:
        raise UsageError("name the machines: --system N12C12, or --platform FILE")
    return Imported(make_run(source.path, out, machines, multiplicity, policy, label), machines.system)


def _check_any(jobs: int, source: Path) -> None:
    if not jobs:
        raise InputError(f"{source}: no job is left: none is known without a platform")


def _renumbered(numbering: Numbering) -> list[str]:
    if not numbering.renumbered:
        return []
    return [f"{counted(numbering.renumbered, 'job')} without a number for a name: numbered after the largest"]
