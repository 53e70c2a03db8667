"""Traces and RUNs as files of other simulators, and these as traces and RUNs.

A trace becomes a workload for Batsim or ElastiSim, a RUN the table that evalys reads; workloads of Batsim and
ElastiSim become traces, a jobs.csv a RUN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path

from foundation.errors import InputError, UsageError
from foundation.files import write_pieces, write_whole
from foundation.units import counted, verb
from workloads.exchange.batsim_workload import Batsim, batsim_jobs, batsim_pieces, look_at_batsim, machines_of
from workloads.exchange.elastisim.application_model import Models
from workloads.exchange.elastisim.elastisim_jobs import (
    JOBS,
    PLATFORM,
    Elastisim,
    ElastisimReading,
    elastisim_jobs,
    look_at_elastisim,
    write_elastisim,
)
from workloads.exchange.fields import Machines, Unit, fitting, header_lines, trace_pieces
from workloads.exchange.simgrid_platform import batsim_platform, read_platform
from workloads.exchange.sizes import read_job_sizes, sizes_pieces
from workloads.swf import SwfJob, iter_swf
from workloads.swf.swf_reader import Omissions


class ExchangeForm(StrEnum):
    """A simulator, or a tool that draws what simulators did."""

    BATSIM = "batsim"
    ELASTISIM = "elastisim"
    EVALYS = "evalys"


@dataclass(slots=True)
class Exported:
    """What was written: how many jobs, and which were left out."""

    jobs: int = 0
    left: Omissions = field(default_factory=Omissions)

    def counted(self, jobs: Iterable[SwfJob]) -> Iterator[SwfJob]:
        """Pass jobs on, and count them."""
        for job in jobs:
            self.jobs += 1
            yield job


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """How a trace is written for another simulator.

    Attributes
    ----------
    form
        Whose files they are.
    size
        Nodes and cores a node; None: as many nodes of one core as the trace says it had processors.
    unit
        What a resource is; None: what is usual there.
    platform
        Batsim: where the platform is written, too.
    sizes
        ElastiSim: the table of malleable jobs' sizes.
    speed
        Of a host in the platform, as SimGrid writes it.
    strict
        Whether a malformed line, or a job wider than the machines, is an error.
    """

    form: ExchangeForm
    size: tuple[int, int] | None = None
    unit: Unit | None = None
    platform: Path | None = None
    sizes: Path | None = None
    speed: str = "1Gf"
    strict: bool = True


def export_trace(source: Path, out: Path, asked: Export) -> Exported:
    """Write an SWF trace as a workload of Batsim or ElastiSim.

    Raises
    ------
    UsageError
        Neither the trace nor ``asked`` says how large the machine is.
    InputError, OutputError
        The trace or the table of sizes cannot be used; something cannot be written.
    """
    done = Exported()
    known = {} if asked.sizes is None else read_job_sizes(asked.sizes)
    reader = iter_swf(source, asked.strict)
    first = next(reader)
    header = reader.header
    if asked.size is None and header.system_procs is None:
        raise UsageError(f"{source} does not say how large the machine was: name it with --system N12C12")
    elastisim = asked.form is ExchangeForm.ELASTISIM
    unit = asked.unit or (Unit.NODE if elastisim else Unit.CORE)
    machines = Machines(*(asked.size or (header.system_procs or 1, 1)), unit)
    every = chain([first], reader)
    jobs = done.counted(fitting(every, machines, str(source), done.left, strict=asked.strict))
    if elastisim:
        write_elastisim(out, jobs, machines, header_lines(header), known, asked.speed, str(asked.sizes))
    else:
        write_pieces(out, batsim_pieces(jobs, machines, header_lines(header)))
    if asked.platform is not None:
        write_whole(asked.platform, batsim_platform(machines, asked.speed))
    if reader.report.skipped_lines:
        done.left.reasons["malformed lines"] = reader.report.skipped_lines
    return done


def export_run(source: Path, out: Path, size: tuple[int, int] | None, unit: Unit) -> Exported:
    """Write a finished RUN as the ``jobs.csv`` that evalys reads.

    Raises
    ------
    InputError
        It is no RUN, is not finished, or its jobs have no such places.
    OutputError
        The table cannot be written.
    """
    # Tables are slow to import, and a workload needs none of them.
    from foundation.records import load_run
    from workloads.exchange.jobs_csv.jobs_csv_write import jobs_csv_pieces

    run = load_run(source, placement=False)
    if not run.complete:
        raise InputError(f"the run in {source} is not finished: go on with it (--resume), then export it")
    named = Machines.named(run.info.system, unit, str(source)) if size is None else Machines(*size, unit)
    try:
        write_pieces(out, jobs_csv_pieces(run, named))
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    return Exported(jobs=run.jobs.height)


@dataclass(slots=True)
class Imported:
    """What was made, and what is to be said of it."""

    jobs: int
    system: str
    left: Omissions = field(default_factory=Omissions)
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
        done.jobs = sum(1 for _ in batsim_jobs(found, machines, Omissions(), strict=False))
    jobs = batsim_jobs(found, machines, done.left, strict=source.strict)
    _write(out, jobs, done, found, machines, "Batsim")
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
    reading = ElastisimReading(machines, Models(models or path.parent), Omissions(), strict=source.strict)
    done = Imported(found.count, machines.system, reading.left)
    if not source.strict:
        counting = ElastisimReading(machines, reading.models, Omissions(), strict=False)
        done.jobs = sum(1 for _ in elastisim_jobs(found, counting))
    _write(out, elastisim_jobs(found, reading), done, found, machines, "ElastiSim")
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


def _write(
    out: Path,
    jobs: Iterator[SwfJob],
    made: Imported,
    found: Batsim | Elastisim,
    machines: Machines,
    of: str,
) -> None:
    """Write the trace of so many jobs of another simulator's workload."""
    if not made.jobs:
        raise InputError(f"{found.path}: no job is left: none is known without a platform")
    if anew := found.numbering.renumbered:
        made.notes.append(f"{counted(anew, 'job')} without a number for a name: numbered after the largest")
    write_pieces(out, trace_pieces(found.header, jobs, made.jobs, machines, of, made.notes))
