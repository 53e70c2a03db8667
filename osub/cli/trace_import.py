"""``osub trace import``: workloads of Batsim and ElastiSim as traces, a jobs.csv as a RUN."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from foundation.errors import InputError, UsageError
from foundation.whole_file import write_pieces
from osub.cli.trace_export import ExchangeFormat, Format, Hosts
from osub.cli.trace_files import AsJson, Force, Lenient, check_free, print_json, working
from osub.cli.trace_scale import parse_system
from workloads.exchange.application_model import Models
from workloads.exchange.batsim_read import batsim_jobs, look_at_batsim, machines_of
from workloads.exchange.carried import Left, trace_pieces
from workloads.exchange.elastisim_read import Reading, elastisim_jobs, look_at_elastisim
from workloads.exchange.elastisim_write import JOBS, PLATFORM
from workloads.exchange.fields import Numbering
from workloads.exchange.machines import Machines, Unit
from workloads.exchange.platform_read import read_platform
from workloads.exchange.sizes import sizes_pieces


@dataclass(slots=True)
class Imported:
    """What was made, and what is to be said of it."""

    jobs: int
    system: str
    left: Left = field(default_factory=Left)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Asked:
    source: Path
    out: Path
    system: str | None
    unit: Unit | None
    platform: Path | None
    strict: bool

    def size(self) -> tuple[int, int] | None:
        """Return nodes and cores as the options say them."""
        if self.system is None:
            return None
        size = parse_system(self.system)
        return size.nodes, size.cores

    def machines(self, default: Unit) -> Machines | None:
        """Return the machines as the options say them."""
        if self.platform is not None:
            made = read_platform(self.platform)
            return made if self.unit is None else Machines(made.nodes, made.cores, self.unit)
        size = self.size()
        return None if size is None else Machines(*size, self.unit or default)


def import_workload(
    source: Annotated[
        Path,
        typer.Argument(
            help="Batsim: workload (JSON). ElastiSim: jobs (JSON), or the folder. evalys: jobs.csv.",
            metavar="FILE",
        ),
    ],
    *,
    form: Format,
    out: Annotated[Path, typer.Option("--out", help="SWF file to make; for evalys a RUN.", metavar="PATH")],
    system: Annotated[str | None, typer.Option(help="The machines, such as N12C12.")] = None,
    unit: Hosts = None,
    platform: Annotated[
        Path | None, typer.Option(help="The machines, from a platform (XML).", metavar="FILE")
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(help="ElastiSim: folder that the paths of application models are of.", metavar="DIR"),
    ] = None,
    sizes: Annotated[
        Path | None, typer.Option(help="ElastiSim: write the sizes of malleable jobs here.", metavar="FILE")
    ] = None,
    multiplicity: Annotated[
        int, typer.Option(min=1, help="evalys: how many jobs a core could have had.")
    ] = 1,
    policy: Annotated[str, typer.Option(help="evalys: name of the policy, for tables.")] = "imported",
    label: Annotated[str | None, typer.Option(help="evalys: name of the RUN, for tables.")] = None,
    force: Force = False,
    lenient: Lenient = False,
    as_json: AsJson = False,
) -> None:
    """Read a workload of Batsim or ElastiSim as an SWF trace, or a jobs.csv as a RUN to compare.

    A job whose run time or size cannot be told is an error; with --lenient it is left out, and told.
    """
    if system is not None and platform is not None:
        raise UsageError("--system and --platform both name the machines: give one of them")
    if form is not ExchangeFormat.ELASTISIM and (models is not None or sizes is not None):
        raise UsageError("--models and --sizes are for --format elastisim")
    asked = _Asked(source, out, system, unit, platform, not lenient)
    if form is ExchangeFormat.EVALYS:
        if force:
            raise UsageError("--force: a RUN is not replaced; choose another --out")
        done = _import_run(asked, multiplicity, policy, label)
    else:
        check_free(out, force)
        if sizes is not None:
            check_free(sizes, force)
        done = (
            _import_batsim(asked)
            if form is ExchangeFormat.BATSIM
            else _import_elastisim(asked, models, sizes)
        )
    if as_json:
        found: dict[str, Any] = {"out": str(out), "system": done.system, "jobs": done.jobs}
        print_json(found | {"left_out": done.left.reasons, "notes": done.notes})
        return
    if done.left.reasons:
        typer.echo(
            f"osub: left out of {source}: {done.left.line()}; {'; '.join(done.left.examples)}", err=True
        )
    for note in done.notes:
        typer.echo(note)
    typer.echo(f"{out}: {done.jobs:,} jobs for {done.system}")


def _import_batsim(asked: _Asked) -> Imported:
    with working(f"reading {asked.source.name}"):
        found = look_at_batsim(asked.source)
        named = None if asked.platform is None else asked.machines(Unit.CORE)
        if named is None:
            machines = machines_of(found, asked.size(), asked.unit)
        else:
            machines = machines_of(found, (named.nodes, named.cores), named.unit)
        done = Imported(found.count, machines.system)
        if not asked.strict:
            done.jobs = sum(1 for _ in batsim_jobs(found, machines, Left(), strict=False))
        _check_any(done.jobs, asked.source)
        done.notes += _renumbered(found.numbering)
        jobs = batsim_jobs(found, machines, done.left, strict=asked.strict)
        write_pieces(asked.out, trace_pieces(found.header, jobs, done.jobs, machines, "Batsim", done.notes))
    return done


def _import_elastisim(asked: _Asked, models: Path | None, sizes: Path | None) -> Imported:
    path = asked.source / JOBS if asked.source.is_dir() else asked.source
    beside = path.parent / PLATFORM
    if asked.system is None and asked.platform is None and asked.source.is_dir() and beside.is_file():
        asked = _Asked(asked.source, asked.out, None, None, beside, asked.strict)
    with working(f"reading {path.name}"):
        found = look_at_elastisim(path)
        machines = asked.machines(Unit.NODE) or found.machines or Machines(found.most_nodes, 1, Unit.NODE)
        machines = Machines(machines.nodes, machines.cores, Unit.NODE)
        reading = Reading(machines, Models(models or path.parent), Left(), strict=asked.strict)
        done = Imported(found.count, machines.system, reading.left)
        if not asked.strict:
            counting = Reading(machines, reading.models, Left(), strict=False)
            done.jobs = sum(1 for _ in elastisim_jobs(found, counting))
        _check_any(done.jobs, asked.source)
        done.notes += _renumbered(found.numbering)
        jobs = elastisim_jobs(found, reading)
        write_pieces(
            asked.out, trace_pieces(found.header, jobs, done.jobs, machines, "ElastiSim", done.notes)
        )
        if sizes is not None:
            write_pieces(sizes, sizes_pieces(reading.sizes))
    if reading.sizes and sizes is None:
        many = f"{len(reading.sizes):,}"
        done.notes.append(f"{many} jobs are malleable: --sizes FILE writes what sizes they can have")
    if reading.not_amdahl:
        done.notes.append(f"{reading.not_amdahl:,} jobs do not follow Amdahl's law: theirs is the nearest")
    return done


def _import_run(asked: _Asked, multiplicity: int, policy: str, label: str | None) -> Imported:
    from workloads.exchange.run_made import make_run

    machines = asked.machines(Unit.CORE)
    if machines is None:
        raise UsageError("name the machines: --system N12C12, or --platform FILE")
    with working(f"reading {asked.source.name}"):
        count = make_run(asked.source, asked.out, machines, multiplicity, policy, label)
    return Imported(count, machines.system)


def _check_any(jobs: int, source: Path) -> None:
    if not jobs:
        raise InputError(f"{source}: no job is left: none can be told without a platform")


def _renumbered(numbering: Numbering) -> list[str]:
    if not numbering.renumbered:
        return []
    return [f"{numbering.renumbered:,} jobs whose names are no numbers have those after the largest"]
