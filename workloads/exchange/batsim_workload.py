"""A workload of Batsim as a trace, and a trace as a workload of Batsim.

Read are jobs whose profile is a delay, or a sequence of delays. What other profiles take depends on a
platform and its network, and is unknown without Batsim. The file is read twice, since the profiles may
stand behind the jobs: first for them and the names of the jobs, then for the jobs. Written are rigid jobs,
each a delay.

Source: Batsim's documentation, "Workload" (JSON with ``nb_res``, ``jobs`` and ``profiles``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foundation.errors import InputError
from foundation.one_line import one_line
from foundation.units import counted
from workloads.exchange.fields import (
    LEAVES_OUT,
    Fields,
    Machines,
    Numbering,
    Unit,
    carried,
    compact,
    given_back,
    header_of,
    record,
    shown,
)
from workloads.exchange.json_stream import members
from workloads.swf import SwfHeader, SwfJob
from workloads.swf.swf_job import LARGEST, format_number
from workloads.swf.swf_reader import Omissions

DELAYS = frozenset({"delay", "DelayProfile"})
SEQUENCES = frozenset({"composed", "sequential_composition", "SequentialCompositionProfile"})
DEEPEST = 50
_STREAMED = {"jobs": "[", "profiles": "{"}


@dataclass(frozen=True, slots=True)
class Sequence:
    """Profiles that are carried out one after another, so many times."""

    parts: tuple[str, ...]
    repeat: int


Profile = float | Sequence | str
"""A delay in seconds, a sequence, or the type of any other profile."""


@dataclass(slots=True)
class Batsim:
    """What the first pass over a workload finds.

    Parameters
    ----------
    path
        The file.
    resources
        ``nb_res``: the hosts that the workload is for.
    machines
        What osub said of them when it wrote the file; None for a file of another program.
    header
        The trace's comments, if osub wrote them.
    profiles
        By name.
    numbering
        Of the jobs.
    count
        How many jobs there are.
    """

    path: Path
    resources: int = 0
    machines: Machines | None = None
    header: SwfHeader = field(default_factory=SwfHeader)
    profiles: dict[str, Profile] = field(default_factory=dict)
    numbering: Numbering = field(default_factory=Numbering)
    count: int = 0


def look_at_batsim(path: Path) -> Batsim:
    """Read what is to be known of a workload before its jobs are.

    Raises
    ------
    InputError
        The file cannot be read, or is no workload; the message names file, job or profile, and key.
    """
    found = Batsim(path)
    rest: dict[str, Any] = {}
    there = set()
    for key, value in members(path, _STREAMED):
        there.add(key)
        if key == "jobs":
            _meet(found, value)
        elif key == "profiles":
            name, item = value
            if name in found.profiles:
                raise InputError(f"{path}: profile {shown(name)}: is there twice")
            found.profiles[name] = _profile(item, f"{path}: profile {shown(name)}")
        elif key in ("nb_res", "osub"):
            rest[key] = value
    for key in _STREAMED:
        if key not in there:
            raise InputError(f"{path}: {key}: is missing, or empty: is this a workload of Batsim?")
    found.resources = Fields(str(path), rest).whole("nb_res", least=1)
    about = Fields(str(path), rest).mapping("osub")
    if about:
        where = f"{path}: osub"
        written = Fields(where, about)
        found.machines = Machines.named(written.text("system"), written.text("unit"), where)
        if found.machines.hosts != found.resources:
            raise InputError(
                f"{path}: nb_res: {found.resources:,} are not the {counted(found.machines.hosts, 'host')} of "
                f"{found.machines.system} by {found.machines.unit}"
            )
        found.header = header_of(about.get("header"), f"{where}: header")
    return found


def batsim_jobs(found: Batsim, machines: Machines, left: Omissions, *, strict: bool) -> Iterator[SwfJob]:
    """Yield the jobs; those that are no delays are an error, or (not ``strict``) counted in ``left``.

    Raises
    ------
    InputError
        A job is malformed, wants more than there is, or is no delay; the message names file, job and key.
    """
    taken: dict[str, float | str] = {}
    found.numbering.anew = 0
    for key, item in members(found.path, _STREAMED):
        if key != "jobs":
            continue
        job = record(f"{found.path}: job", item)
        name = job.name("id")
        job = Fields(f"{found.path}: job {shown(name)}", job.values)
        number = found.numbering.number(name, job.where)
        made, why = _job(job, number, found, machines, taken)
        if made is not None:
            yield made
        else:
            left.refuse("jobs that are no delays or too wide", why, strict=strict, lenient=LEAVES_OUT)


def _meet(found: Batsim, item: object) -> None:
    found.count += 1
    job = record(f"{found.path}: jobs[{found.count - 1}]", item)
    name = job.name("id")
    if not found.numbering.meet(name):
        raise InputError(f"{found.path}: job {shown(name)}: id: is there twice")


def _profile(item: object, where: str) -> Profile:
    profile = record(where, item)
    kind = profile.text("type")
    if kind in DELAYS:
        return profile.number("delay", above=0)
    if kind not in SEQUENCES:
        return one_line(kind, 60)
    parts = profile.need("seq")
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) for part in parts):
        raise profile.fault("seq", "is no list of names of profiles")
    return Sequence(tuple(parts), profile.whole("repeat", least=1) if profile.has("repeat") else 1)


def _run_s(
    name: str, profiles: dict[str, Profile], taken: dict[str, float | str], depth: int = 0
) -> float | str:
    """Return how long a profile takes, or why that is unknown."""
    if name in taken:
        return taken[name]
    profile = profiles.get(name)
    if isinstance(profile, float | int):
        return profile
    if depth > DEEPEST:
        return f"its profiles are nested in more than {DEEPEST} levels, or in a circle"
    if profile is None:
        return f"there is no profile {shown(name)}"
    if isinstance(profile, str):
        return f"{shown(name)} is of type {profile}, whose time depends on the platform: only delays are read"
    parts: list[float] = []
    for part in profile.parts:
        part_s = _run_s(part, profiles, taken, depth + 1)
        if isinstance(part_s, str):
            return part_s
        parts.append(part_s)
    whole = profile.repeat * math.fsum(parts)
    if not whole <= LARGEST:
        return f"{shown(name)} takes too long"
    taken[name] = int(whole) if whole.is_integer() else whole
    return taken[name]


def _job(
    job: Fields, number: int, found: Batsim, machines: Machines, taken: dict[str, float | str]
) -> tuple[SwfJob | None, str]:
    submit_s = job.number("subtime")
    resources = job.whole("res", least=1)
    limit_s = None if job.values.get("walltime") in (None, -1) else job.number("walltime", above=0)
    run_s = _run_s(job.text("profile"), found.profiles, taken)
    if isinstance(run_s, str):
        return None, f"{job.where}: profile: {run_s}"
    if resources > found.resources:
        return None, f"{job.where}: res: {resources:,} are more than the {found.resources:,} of nb_res"
    known = _carried(job)
    if found.machines is None or _asked(known, machines) != resources:
        procs = resources * machines.cores_of_host
        known |= {"requested_procs": procs, "allocated_procs": procs}
    known["requested_s"] = limit_s if limit_s is not None else (0 if known.get("requested_s") == 0 else None)
    return SwfJob(job_number=number, submit_s=submit_s, run_s=run_s, **known), ""


def _asked(known: dict[str, Any], machines: Machines) -> int | None:
    procs = known.get("requested_procs") or known.get("allocated_procs")
    return machines.asked(procs) if procs else None


def _carried(job: Fields) -> dict[str, Any]:
    """Return the SWF fields that osub put into ``extra_data``; of anybody else's nothing is known."""
    extra = job.values.get("extra_data")
    if not isinstance(extra, str) or not extra.startswith('{"swf":'):
        return {}
    try:
        values = json.loads(extra)
    except (ValueError, RecursionError) as error:
        raise job.fault("extra_data", "is no JSON") from error
    return given_back(record(f"{job.where}: extra_data", values).mapping("swf"), f"{job.where}: extra_data")


def machines_of(found: Batsim, system: tuple[int, int] | None, unit: Unit | None) -> Machines:
    """Return what the resources are: as osub wrote, else by the options, else cores of one node each.

    Raises
    ------
    InputError
        The options contradict the workload.
    """
    if system is None:
        if found.machines is not None:
            return found.machines
        cores = 1
        return Machines(found.resources, cores, unit or Unit.CORE)
    made = Machines(*system, unit or (found.machines.unit if found.machines else Unit.CORE))
    if made.hosts != found.resources:
        raise InputError(
            f"{found.path}: nb_res: {found.resources:,} are not the {counted(made.hosts, 'host')} of "
            f"{made.system} by {made.unit}"
        )
    return made


def batsim_pieces(jobs: Iterable[SwfJob], machines: Machines, header: Iterable[str]) -> Iterator[bytes]:
    """Yield the document piece by piece; jobs of one run time share a profile.

    Parameters
    ----------
    jobs
        Jobs with a run time and processors that fit the machines.
    machines
        What the resources of the workload are.
    header
        The trace's comments, which Batsim does not look at.
    """
    about = {"system": machines.system, "unit": machines.unit, "header": list(header)}
    yield f'{{\n"nb_res": {machines.hosts},\n"osub": {compact(about)},\n"jobs": ['.encode()
    delays: dict[float, None] = {}
    for number, job in enumerate(jobs):
        run_s = job.run_s or 0
        delays[run_s] = None
        yield f"{',' if number else ''}\n{compact(_written(job, run_s, machines))}".encode()
    yield b'\n],\n"profiles": {'
    for number, run_s in enumerate(delays):
        profile = compact({"type": "delay", "delay": run_s})
        yield f"{',' if number else ''}\n{compact(profile_name(run_s))}: {profile}".encode()
    yield b"\n}\n}\n"


def profile_name(run_s: float) -> str:
    """Return the name of the profile that takes so long."""
    return f"delay{format_number(run_s).decode()}"


def _written(job: SwfJob, run_s: float, machines: Machines) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": str(job.job_number),
        "subtime": job.submit_s,
        "res": machines.asked(job.procs or 0),
        "profile": profile_name(run_s),
    }
    if job.requested_s:
        found["walltime"] = job.requested_s
    # Batsim hands this on to the scheduler as it is, a text
    found["extra_data"] = compact({"swf": carried(job)})
    return found
