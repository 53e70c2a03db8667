"""A trace as a workload for Batsim or ElastiSim, a RUN as the table that evalys reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from pathlib import Path

from foundation.errors import InputError, UsageError
from foundation.files import write_pieces, write_whole
from workloads.exchange.batsim_workload import batsim_pieces
from workloads.exchange.elastisim.elastisim_jobs import write_elastisim
from workloads.exchange.fields import Machines, OmittedJobs, Unit, fitting, header_lines
from workloads.exchange.simgrid_platform import batsim_platform
from workloads.exchange.sizes import read_job_sizes
from workloads.swf import SwfJob, iter_swf


class ExchangeForm(StrEnum):
    """A simulator, or a tool that draws what simulators did."""

    BATSIM = "batsim"
    ELASTISIM = "elastisim"
    EVALYS = "evalys"


@dataclass(slots=True)
class Exported:
    """What was written: how many jobs, and which were left out."""

    jobs: int = 0
    left: OmittedJobs = field(default_factory=OmittedJobs)

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
