"""Of a status only what concerns one job: the job, who shares cores with it, and its nodes."""

from __future__ import annotations

import msgspec

from foundation.errors import ClusterError
from gangd.controller.controller_status import JobStatus, Status


def about(status: Status, job: int | None) -> Status:
    """Return what concerns a job; all of it for None.

    Raises
    ------
    ClusterError
        The job shares no cores now, or does not run.
    """
    if job is None:
        return status
    own = next((one for one in status.jobs if one.job == job), None)
    if own is None:
        raise ClusterError(f"job {job} shares no cores now: it runs alone on them, waits, or is over")
    return msgspec.structs.replace(
        status,
        jobs=[one for one in status.jobs if one.gang == own.gang or _meet(one, own)],
        nodes=[node for node in status.nodes if node.node in own.cores],
        jobs_left_out=0,
    )


def _meet(one: JobStatus, other: JobStatus) -> bool:
    """Whether two jobs have a core in common."""
    return any(set(cores) & set(other.cores.get(node, ())) for node, cores in one.cores.items())
