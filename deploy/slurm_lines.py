"""Lines of slurm.conf that every test cluster has, wherever it runs (slurm.conf(5))."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

from deploy.shape import GangKind, Scheduler, Shape

_JOB_RANGES, _JOBS_A_RANGE = 60_000, 1000


def common_lines(shape: Shape, cluster_name: str) -> dict[str, str]:
    """Return how jobs are scheduled, shared and numbered."""
    return {
        "ClusterName": cluster_name,
        "MailProg": "/bin/true",
        "MpiDefault": "none",
        "SwitchType": "switch/none",
        "ReturnToService": "2",
        "JobRequeue": "0",
        "EnforcePartLimits": "ALL",
        "MaxJobCount": "200000",
        "MinJobAge": "3600",
        "FirstJobId": str(first_job_id(cluster_name)),
        "TaskPlugin": "task/none",
        "SlurmdParameters": "config_overrides",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory,CR_LLN",
        "SchedulerType": f"sched/{'backfill' if shape.scheduler is Scheduler.BACKFILL else 'builtin'}",
        "SchedulerParameters": "sched_interval=1,batch_sched_delay=1,bf_interval=1,bf_resolution=1,"
        "bf_job_part_count_reserve=1,default_queue_depth=10000",
        "PreemptType": "preempt/none",
        "PreemptMode": "GANG" if shape.gang is GangKind.SLURM else "OFF",
        "SchedulerTimeSlice": "5",
    }


def with_settings(lines: Mapping[str, str], settings: Iterable[str]) -> dict[str, str]:
    """Return the lines with the user's own ``Key=Value``, which win over ours."""
    result = dict(lines)
    for setting in settings:
        key, _, value = setting.partition("=")
        result = {name: text for name, text in result.items() if name.lower() != key.lower()}
        result[key] = value
    return result


def first_job_id(cluster_name: str) -> int:
    """Return the number of a cluster's first job, another one for (almost) every cluster.

    MPICH names the shared memory of a job's ranks after Slurm's job and step and nothing else. Two clusters
    of one host that both count from 1 would have their jobs write into each other's messages.
    """
    return _JOBS_A_RANGE * (1 + zlib.crc32(cluster_name.encode()) % _JOB_RANGES) + 1
