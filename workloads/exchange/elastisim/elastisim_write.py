"""A trace as a folder that ElastiSim runs: jobs, two application models, a platform, a configuration.

A rigid job waits busily for its run time. A malleable one does so in steps of about a minute, between which
it can be resized, and each step takes as long as Amdahl's law says of its nodes. Source: ElastiSim's
documentation, "Job", "Application model", "Task types", "Performance models", "Configuration".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from foundation.errors import InputError
from foundation.records.records_folder import new_folder
from foundation.whole_file import write_pieces, write_whole
from workloads.exchange.carried import carried
from workloads.exchange.machines import Machines
from workloads.exchange.platform_write import elastisim_platform
from workloads.exchange.sizes import JobSizes
from workloads.swf import SwfJob

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
    "scheduling_interval": 60,
    "min_scheduling_interval": 1,
    "schedule_on_job_submit": True,
    "allow_oversubscription": False,
    "sensing": False,
    "zmq_url": "ipc:///tmp/elastisim.ipc",
    "jobs_file": JOBS,
    "platform_file": PLATFORM,
    "job_statistics": "job_statistics.csv",
    "node_utilization": "node_utilization.csv",
}


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
    yield f'{{\n"osub": {_compact(about)},\n"jobs": ['.encode()
    for number, job in enumerate(jobs):
        one = _job(job, machines, sizes.get(job.job_number), source)
        yield f"{',' if number else ''}\n{_compact(one)}".encode()
    yield b"\n]\n}\n"


def _job(job: SwfJob, machines: Machines, sizes: JobSizes | None, source: str) -> dict[str, Any]:
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
    return found | {"attributes": attributes | {"swf": _compact(known)}}


def _check(job: SwfJob, nodes: int, sizes: JobSizes, machines: Machines, source: str) -> None:
    where = f"{source}: job {job.job_number}"
    if not sizes.least <= nodes <= sizes.most:
        raise InputError(
            f"{where}: min_nodes, max_nodes: it asks for {nodes:,} nodes, not {sizes.least:,} to "
            f"{sizes.most:,}"
        )
    if sizes.most > machines.nodes:
        raise InputError(f"{where}: max_nodes: {sizes.most:,} are more than {machines.system} has")


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
