"""``osub trace export``: a trace for Batsim or ElastiSim, a RUN for evalys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from foundation.errors import InputError, UsageError
from foundation.whole_file import write_pieces, write_whole
from osub.cli.trace_files import AsJson, Force, Lenient, check_free, print_json, working
from osub.cli.trace_scale import parse_system
from workloads.exchange.batsim_write import batsim_pieces
from workloads.exchange.carried import Left, fitting, header_lines
from workloads.exchange.elastisim_write import write_elastisim
from workloads.exchange.machines import Machines, Unit
from workloads.exchange.platform_write import batsim_platform
from workloads.exchange.sizes import read_job_sizes
from workloads.swf import SwfJob, iter_swf


class ExchangeFormat(StrEnum):
    """Whose files are read or written."""

    BATSIM = "batsim"
    ELASTISIM = "elastisim"
    EVALYS = "evalys"


@dataclass(slots=True)
class Exported:
    """What was written: how many jobs, and which were left out."""

    jobs: int = 0
    left: Left = field(default_factory=Left)

    def counted(self, jobs: Iterable[SwfJob]) -> Iterator[SwfJob]:
        """Pass jobs on, and count them."""
        for job in jobs:
            self.jobs += 1
            yield job


Format = Annotated[ExchangeFormat, typer.Option("--format", help="Whose files they are.")]
Hosts = Annotated[
    Unit | None,
    typer.Option("--unit", help="What a resource of Batsim's is: a core (the default) or a node."),
]


def export(
    source: Annotated[
        Path, typer.Argument(help="SWF trace, plain or gzip; for evalys a RUN.", metavar="TRACE|RUN")
    ],
    *,
    form: Format,
    out: Annotated[Path, typer.Option("--out", help="File to make; for elastisim a folder.", metavar="PATH")],
    system: Annotated[
        str | None, typer.Option(help="The machines, such as N12C12; default: the trace's, the RUN's.")
    ] = None,
    unit: Hosts = None,
    platform: Annotated[
        Path | None, typer.Option(help="Batsim: write the platform, too (XML).", metavar="FILE")
    ] = None,
    sizes: Annotated[
        Path | None,
        typer.Option(
            help="ElastiSim: CSV trace_job,min_nodes,preferred_nodes,max_nodes,parallel of malleable jobs.",
            metavar="FILE",
        ),
    ] = None,
    speed: Annotated[
        str, typer.Option(help="Speed of a host in the platform, as SimGrid writes it.")
    ] = "1Gf",
    force: Force = False,
    lenient: Lenient = False,
    as_json: AsJson = False,
) -> None:
    """Write a trace as a workload of Batsim or ElastiSim, or a RUN as the jobs.csv that evalys reads.

    Jobs without a run time or processors are left out, and told. A job wider than the system is an error,
    with --lenient it is left out, too.
    """
    _check_options(form, {"--platform": platform, "--unit": unit}, {"--sizes": sizes})
    if form is ExchangeFormat.ELASTISIM:
        if force:
            raise UsageError("--force: a folder is not replaced; choose another --out")
    else:
        check_free(out, force)
    if platform is not None:
        check_free(platform, force)
    if form is ExchangeFormat.EVALYS:
        done = _export_run(source, out, system, unit or Unit.CORE)
    else:
        done = _export_trace(source, form, out, system, unit, platform, sizes, speed, strict=not lenient)
    if as_json:
        print_json({"out": str(out), "jobs": done.jobs, "left_out": done.left.reasons})
        return
    if done.left.reasons:
        typer.echo(f"osub: left out of {source}: {done.left.line()}", err=True)
    typer.echo(f"{out}: {done.jobs:,} jobs")


def _check_options(
    form: ExchangeFormat, for_batsim: dict[str, object], for_elastisim: dict[str, object]
) -> None:
    if form is not ExchangeFormat.ELASTISIM and any(for_elastisim.values()):
        raise UsageError(f"{next(iter(for_elastisim))} is for --format elastisim")
    if form is ExchangeFormat.ELASTISIM and for_batsim["--unit"]:
        raise UsageError("--unit: a host of ElastiSim's is a node")
    if form is not ExchangeFormat.BATSIM and for_batsim["--platform"]:
        raise UsageError("--platform is for --format batsim")


def _export_trace(
    source: Path,
    form: ExchangeFormat,
    out: Path,
    system: str | None,
    unit: Unit | None,
    platform: Path | None,
    sizes: Path | None,
    speed: str,
    *,
    strict: bool,
) -> Exported:
    done = Exported()
    known = {} if sizes is None else read_job_sizes(sizes)
    reader = iter_swf(source, strict)
    first = next(reader)
    header = reader.header
    size = None if system is None else parse_system(system)
    if size is None and header.system_procs is None:
        raise UsageError(f"{source} does not say how large the machine was: name it with --system N12C12")
    used = unit or (Unit.NODE if form is ExchangeFormat.ELASTISIM else Unit.CORE)
    nodes, cores = (header.system_procs or 1, 1) if size is None else (size.nodes, size.cores)
    machines = Machines(nodes, cores, used)
    jobs = done.counted(fitting(chain([first], reader), machines, str(source), done.left, strict=strict))
    with working(f"writing {out.name}"):
        if form is ExchangeFormat.BATSIM:
            write_pieces(out, batsim_pieces(jobs, machines, header_lines(header)))
        else:
            write_elastisim(out, jobs, machines, header_lines(header), known, speed, str(sizes))
    if platform is not None:
        write_whole(platform, batsim_platform(machines, speed))
    if reader.report.skipped_lines:
        done.left.reasons["malformed lines"] = reader.report.skipped_lines
    return done


def _export_run(source: Path, out: Path, system: str | None, unit: Unit) -> Exported:
    from foundation.records import load_run
    from workloads.exchange.jobs_csv_write import jobs_csv_pieces

    with working(f"reading {source}"):
        run = load_run(source, placement=False)
    if not run.complete:
        raise InputError(f"the run in {source} is not finished: go on with it (--resume), then export it")
    size = parse_system(system or run.info.system)
    machines = Machines(size.nodes, size.cores, unit)
    with working(f"writing {out.name}"):
        try:
            write_pieces(out, jobs_csv_pieces(run, machines))
        except InputError as error:
            raise InputError(f"{source}: {error}") from error
    return Exported(jobs=run.jobs.height)
