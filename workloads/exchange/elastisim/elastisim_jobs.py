"""Jobs of ElastiSim as a trace with the sizes of malleable ones, and a trace as a folder of ElastiSim.

Rigid and malleable jobs are read whose applications only wait (``application_model``). Such a job has no
name: it is called by the attribute ``job`` if it has one, else by its place in the file. What a malleable job
asks for is not said either: it is what osub wrote, else its largest size.

The folder has jobs, two application models, a platform and a configuration. A rigid job waits busily for its
run time. A malleable one does so in steps of about a minute, between which it can be resized, and each step
takes as long as Amdahl's law says of its nodes. Source: ElastiSim's documentation, "Job", "Application
model", "Task types", "Performance models", "Configuration".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foundation.errors import InputError
from foundation.files import write_pieces, write_whole
from foundation.records.records_folder import new_folder
from foundation.units import counted
from workloads.exchange.elastisim.application_model import Models, NotToldError, run_time
from workloads.exchange.fields import (
    LEAVES_OUT,
    Fields,
    Machines,
    Numbering,
    carried,
    compact,
    given_back,
    header_of,
    record,
    shown,
)
from workloads.exchange.json_stream import members
from workloads.exchange.simgrid_platform import elastisim_platform
from workloads.exchange.sizes import MOST_NODES, JobSizes
from workloads.swf import SwfHeader, SwfJob
from workloads.swf.swf_job import LARGEST
from workloads.swf.swf_reader import Omissions

CLOSE = 1e-5
"""Part of a run time by which the one that was carried along may differ from what the model says."""
ROUGH = 0.01

JOBS, PLATFORM, RIGID, MALLEABLE = "jobs.json", "platform.xml", "rigid.json", "malleable.json"
STEP_S = 60
MOST_STEPS = 10_000

_MODELS: dict[str, dict[str, Any]] = {
    RIGID: {"phases": [{"tasks": [{"type": "busy_wait", "delay": "run", "pattern": "uniform"}]}]},
    MALLEABLE: {
        "phases": [
            {
                "iterations": "steps",
                "scheduling_point": True,
                "tasks": [
                    {
                        "type": "busy_wait",
                        "delay": "serial / steps * (1 - share + share / num_nodes)",
                        "pattern": "uniform",
                    }
                ],
            }
        ]
    },
}
_CONFIGURATION = {
    "scheduling_interval": 0,
    "min_scheduling_interval": 0,
    "schedule_on_job_submit": True,
    "schedule_on_job_finalize": True,
    "allow_oversubscription": False,
    "sensing": False,
    "zmq_url": "ipc:///tmp/elastisim.ipc",
    "jobs_file": JOBS,
    "platform_file": PLATFORM,
    "job_statistics": "job_statistics.csv",
    "node_utilization": "node_utilization.csv",
}


@dataclass(slots=True)
class Elastisim:
    """What the first pass over a file of jobs finds; ``most_nodes`` is the largest size of any job."""

    path: Path
    count: int = 0
    most_nodes: int = 1
    machines: Machines | None = None
    header: SwfHeader = field(default_factory=SwfHeader)
    numbering: Numbering = field(default_factory=Numbering)


@dataclass(slots=True)
class ElastisimReading:
    """What the second pass needs and gathers: sizes of malleable jobs, and how many are not Amdahl's."""

    machines: Machines
    models: Models
    left: Omissions
    strict: bool
    sizes: list[tuple[int, JobSizes]] = field(default_factory=list)
    not_amdahl: int = 0


def look_at_elastisim(path: Path) -> Elastisim:
    """Read what is to be known of the jobs before they are read.

    Raises
    ------
    InputError
        The file cannot be read, or has no jobs; the message names file, job and key.
    """
    found = Elastisim(path)
    for key, value in members(path, {"jobs": "["}):
        if key == "jobs":
            job = _named(path, value, found.count)
            if not found.numbering.meet(_name(job, found.count)):
                raise job.fault("attributes", "job: is there twice")
            found.count += 1
            found.most_nodes = max(found.most_nodes, _nodes(job)[1])
        elif key == "osub":
            about = record(f"{path}: osub", value)
            found.machines = Machines.named(about.text("system"), about.text("unit"), about.where)
            found.header = header_of(about.values.get("header"), f"{about.where}: header")
    if not found.count:
        raise InputError(f"{path}: jobs: is missing, or empty: is this a file of ElastiSim's jobs?")
    return found


def elastisim_jobs(found: Elastisim, reading: ElastisimReading) -> Iterator[SwfJob]:
    """Yield the jobs; those that cannot be read are an error, or (not ``strict``) counted as left out.

    Raises
    ------
    InputError
        A job is malformed, wants more than there is, or cannot be read; the message names file, job and key.
    """
    place = found.numbering.anew = 0
    for key, item in members(found.path, {"jobs": "["}):
        if key != "jobs":
            continue
        job = _named(found.path, item, place)
        number = found.numbering.number(_name(job, place), job.where)
        place += 1
        try:
            yield _job(job, number, reading)
        except NotToldError as error:
            what = f"{job.where}: {error}"
            reading.left.refuse(
                "jobs whose run time or size is unknown", what, strict=reading.strict, lenient=LEAVES_OUT
            )


def _named(path: Path, item: object, place: int) -> Fields:
    job = record(f"{path}: jobs[{place}]", item)
    name = job.mapping("attributes").get("job")
    has_name = isinstance(name, int | str) and not isinstance(name, bool)
    return Fields(f"{path}: job {shown(name)}" if has_name else job.where, job.values)


def _name(job: Fields, place: int) -> str:
    attributes = Fields(f"{job.where}: attributes", job.mapping("attributes"))
    return attributes.name("job") if attributes.has("job") else f"jobs[{place}]"


def _nodes(job: Fields) -> tuple[int, int]:
    """Return the fewest and the most nodes of a job."""
    if str(job.need("type")).lower() == "rigid":
        count = job.whole("num_nodes", least=1, most=MOST_NODES)
        return count, count
    least = job.whole("num_nodes_min", least=1, most=MOST_NODES)
    return least, job.whole("num_nodes_max", least=least, most=MOST_NODES)


def _job(job: Fields, number: int, reading: ElastisimReading) -> SwfJob:
    machines = reading.machines
    kind = job.text("type").lower()
    if kind not in ("rigid", "malleable"):
        raise NotToldError(f"type: {shown(kind)} has no counterpart here; rigid and malleable have")
    for key in ("num_gpus_per_node", "num_gpus_per_node_max"):
        if job.has(key) and job.whole(key):
            raise NotToldError(f"{key}: there are no GPUs here")
    submit_s = job.number("submit_time")
    least, most = _nodes(job)
    if most > machines.nodes:
        key = "num_nodes" if kind == "rigid" else "num_nodes_max"
        raise NotToldError(f"{key}: {most:,} are more than {machines.system} has")
    known = _carried(job)
    procs = known.get("requested_procs") or known.get("allocated_procs")
    given = machines.asked(procs) if procs else 0
    asked = given if least <= given <= most else most
    model = _model(job, reading)
    arguments = {name: _argument(job, name, value) for name, value in job.mapping("arguments").items()}
    run_s = run_time(model, arguments, asked)
    run_s = int(run_s) if run_s.is_integer() else run_s
    if not 0 < run_s <= LARGEST:
        raise NotToldError(f"application_model: {run_s:g} s is no run time")
    if kind == "malleable":
        reading.sizes.append((number, _sizes(job, (least, most, asked), model, arguments, reading)))
    if given != asked:
        known |= {"requested_procs": asked * machines.cores, "allocated_procs": asked * machines.cores}
    limit_s = job.number("walltime") if job.has("walltime") else 0
    return SwfJob(**_swf_fields(known, number, submit_s, run_s, limit_s))


def _swf_fields(
    known: dict[str, Any], number: int, submit_s: float, run_s: float, limit_s: float
) -> dict[str, Any]:
    """Return a job's fields: those that were carried along where they agree with what ElastiSim reads."""
    exact_submit_s, exact_run_s = known.pop("submit_s", None), known.pop("run_s", None)
    if exact_submit_s is not None and round(exact_submit_s) == submit_s:
        submit_s = exact_submit_s
    if exact_run_s is not None and math.isclose(exact_run_s, run_s, rel_tol=CLOSE, abs_tol=CLOSE):
        run_s = exact_run_s
    asked_s = known.pop("requested_s", None)
    if limit_s and (asked_s is None or math.ceil(asked_s) != limit_s):
        asked_s = limit_s
    elif not limit_s and asked_s:
        asked_s = None
    return {"job_number": number, "submit_s": submit_s, "run_s": run_s, "requested_s": asked_s, **known}


def _carried(job: Fields) -> dict[str, Any]:
    text = job.mapping("attributes").get("swf")
    if text is None:
        return {}
    where = f"{job.where}: attributes: swf"
    try:
        values = record(where, json.loads(text)).values
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{where}: is no JSON") from error
    own = Fields(where, values)
    exact = {name: own.number(name) for name in ("submit_s", "run_s") if own.has(name)}
    return given_back({name: value for name, value in values.items() if name not in exact}, where) | exact


def _model(job: Fields, reading: ElastisimReading) -> Mapping[str, Any]:
    try:
        return reading.models.model(job.text("application_model"))
    except InputError as error:
        if str(error).startswith(job.where):
            raise
        raise InputError(f"{job.where}: application_model: {error}") from error


def _argument(job: Fields, name: str, value: object) -> float:
    """Return an argument; a text is substituted as it is, and only counts if it is a number."""
    try:
        found = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        found = math.nan
    if not isinstance(value, str) and not math.isfinite(found):
        raise Fields(f"{job.where}: arguments", {}).fault(name, f"{shown(value)} is no number")
    return found


def _sizes(
    job: Fields,
    nodes: tuple[int, int, int],
    model: Mapping[str, Any],
    arguments: Mapping[str, float],
    reading: ElastisimReading,
) -> JobSizes:
    """Return the sizes of a malleable job; its parallel share is that of its run times at both ends."""
    least, most, asked = nodes
    attributes = Fields(f"{job.where}: attributes", job.mapping("attributes"))
    preferred = attributes.whole("preferred", least, most) if attributes.has("preferred") else asked
    share = arguments.get("share")
    slow_s, quick_s = run_time(model, arguments, least), run_time(model, arguments, most)
    if not (share is not None and 0 <= share <= 1 and _fits(slow_s, quick_s, least, most, share)):
        share = _share(slow_s, quick_s, least, most)
    middle = max(least, min(most, round(math.sqrt(least * most))))
    found = JobSizes(least, preferred, most, share)
    expected_s = quick_s * found.time(middle) / found.time(most)
    if not math.isclose(run_time(model, arguments, middle), expected_s, rel_tol=ROUGH):
        reading.not_amdahl += 1
    return found


def _fits(slow_s: float, quick_s: float, least: int, most: int, share: float) -> bool:
    sizes = JobSizes(least, least, most, share)
    return math.isclose(slow_s * sizes.time(most), quick_s * sizes.time(least), rel_tol=CLOSE)


def _share(slow_s: float, quick_s: float, least: int, most: int) -> float:
    """Return Amdahl's share p of which T(least) / T(most) follows, from 0 to 1."""
    if least == most or quick_s <= 0:
        return 1.0
    ratio = slow_s / quick_s
    below = (1 - 1 / least) - ratio * (1 - 1 / most)
    share = (1 - ratio) / below if below else 0.0
    return min(1.0, max(0.0, share))


def write_elastisim(
    folder: Path,
    jobs: Iterable[SwfJob],
    machines: Machines,
    header: Iterable[str],
    sizes: Mapping[int, JobSizes],
    speed: str = "1Gf",
    sizes_source: str = "sizes",
) -> None:
    """Make the folder, whole or not at all; ``sizes_source`` is what errors of sizes name.

    Raises
    ------
    InputError
        The sizes of a job contradict its request or the system.
    OutputError
        The folder holds something already, or cannot be written.
    """
    with new_folder(folder) as made:
        write_pieces(made / JOBS, elastisim_pieces(jobs, machines, header, sizes, sizes_source))
        for name, document in (*_MODELS.items(), ("configuration.json", _CONFIGURATION)):
            write_whole(made / name, json.dumps(document, indent=2) + "\n")
        write_whole(made / PLATFORM, elastisim_platform(machines, speed))


def elastisim_pieces(
    jobs: Iterable[SwfJob],
    machines: Machines,
    header: Iterable[str],
    sizes: Mapping[int, JobSizes],
    source: str = "sizes",
) -> Iterator[bytes]:
    """Yield the jobs' document piece by piece; ElastiSim does not look at the member ``osub``."""
    about = {"system": machines.system, "unit": machines.unit, "header": list(header)}
    yield f'{{\n"osub": {compact(about)},\n"jobs": ['.encode()
    for number, job in enumerate(jobs):
        one = _written(job, machines, sizes.get(job.job_number), source)
        yield f"{',' if number else ''}\n{compact(one)}".encode()
    yield b"\n]\n}\n"


def _written(job: SwfJob, machines: Machines, sizes: JobSizes | None, source: str) -> dict[str, Any]:
    nodes = machines.asked(job.procs or 0)
    run_s = job.run_s or 0
    found: dict[str, Any] = {"type": "rigid", "submit_time": round(job.submit_s)}
    # whole seconds, of which a limit is not to take anything away
    limit = {"walltime": math.ceil(job.requested_s)} if job.requested_s else {}
    known = {"submit_s": job.submit_s, "run_s": run_s, **carried(job)}
    attributes: dict[str, Any] = {"job": job.job_number}
    if sizes is None:
        found |= {"num_nodes": nodes, **limit, "application_model": RIGID, "arguments": {"run": float(run_s)}}
    else:
        _check(job, nodes, sizes, machines, source)
        arguments = {
            "serial": run_s / sizes.time(nodes),
            "share": sizes.parallel,
            "steps": min(MOST_STEPS, max(1, round(run_s / STEP_S))),
        }
        found |= {"type": "malleable", "num_nodes_min": sizes.least, "num_nodes_max": sizes.most, **limit}
        found |= {"application_model": MALLEABLE, "arguments": arguments}
        attributes["preferred"] = sizes.preferred
    return found | {"attributes": attributes | {"swf": compact(known)}}


def _check(job: SwfJob, nodes: int, sizes: JobSizes, machines: Machines, source: str) -> None:
    where = f"{source}: job {job.job_number}"
    if not sizes.least <= nodes <= sizes.most:
        raise InputError(
            f"{where}: min_nodes, max_nodes: it asks for {counted(nodes, 'node')}, not {sizes.least:,} to "
            f"{sizes.most:,}"
        )
    if sizes.most > machines.nodes:
        raise InputError(f"{where}: max_nodes: {sizes.most:,} are more than {machines.system} has")
