"""A trace as a workload of Batsim: rigid jobs, each a delay.

Source: Batsim's documentation, "Workload" (JSON with ``nb_res``, ``jobs`` and ``profiles``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from workloads.exchange.carried import carried
from workloads.exchange.machines import Machines
from workloads.swf import SwfJob
from workloads.swf.swf_job import format_number


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
    yield f'{{\n"nb_res": {machines.hosts},\n"osub": {_compact(about)},\n"jobs": ['.encode()
    delays: dict[float, None] = {}
    for number, job in enumerate(jobs):
        run_s = job.run_s or 0
        delays[run_s] = None
        yield f"{',' if number else ''}\n{_compact(_job(job, run_s, machines))}".encode()
    yield b'\n],\n"profiles": {'
    for number, run_s in enumerate(delays):
        profile = _compact({"type": "delay", "delay": run_s})
        yield f"{',' if number else ''}\n{_compact(profile_name(run_s))}: {profile}".encode()
    yield b"\n}\n}\n"


def profile_name(run_s: float) -> str:
    """Return the name of the profile that takes so long."""
    return f"delay{format_number(run_s).decode()}"


def _job(job: SwfJob, run_s: float, machines: Machines) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": str(job.job_number),
        "subtime": job.submit_s,
        "res": machines.asked(job.procs or 0),
        "profile": profile_name(run_s),
    }
    if job.requested_s:
        found["walltime"] = job.requested_s
    # Batsim hands this on to the scheduler as it is, a text
    found["extra_data"] = _compact({"swf": carried(job)})
    return found


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
