"""What is asked of Slurm for a planned job, and the same as text, with nothing written or submitted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from foundation.one_line import one_line
from foundation.slurm import SubmitRequest
from foundation.slurm.calling.sbatch_options import sbatch_options
from submitter.follow import JOBS_FOLDER, job_name
from submitter.plan import RRBA, Plan, PlannedJob, ReplayOptions, Target, batch_script, job_environment

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,62}")


def _comment(job: PlannedJob, run_id: str) -> str:
    """Return who submits the job and what it runs, the latter in gangd's word for it."""
    named = dict(pairwise(job.args)).get("--app") if job.app == RRBA else job.app
    runs = job.application or named or ""
    return f"osub replay {run_id}" + (f" gangd-app={runs}" if _PLAIN.fullmatch(runs) else "")


def submit_request(job: PlannedJob, target: Target, options: ReplayOptions, run: Path) -> SubmitRequest:
    """Return the request for a job of the RUN ``run`` (absolute).

    Tasks have a core each. Where cores have several hardware threads, of which Slurm makes CPUs, that has to
    be said, and memory is asked for by node: by CPU it would be counted once for each thread.
    """
    pool = target.pool(job.partition)
    several = pool.threads > 1
    memory = job.memory_per_core_mib
    # A node that comes back would make another system of the run's.
    away = (*target.left_out, *job.away_from)
    left_out = [f"exclude={','.join(away)}"] if away else []
    if job.is_alone and not pool.shares_on_request:
        # Where cores are shared by force nothing but memory keeps others off.
        whole: int | None = pool.memory_mib
        memory = None
    else:
        whole = memory * job.cores_per_node if several and memory is not None else None
    return SubmitRequest(
        script=batch_script(job, run, pin=options.pin, calibration=options.calibration),
        name=job_name(options.run_id, job.trace_job),
        nodes=job.nodes,
        tasks_per_node=job.cores_per_node,
        tasks_per_core=1 if several else None,
        partition=job.partition,
        memory_per_cpu_mib=None if several else memory,
        memory_per_node_mib=whole,
        time_limit_minutes=job.limit_minutes,
        output=run / JOBS_FOLDER / f"{job.trace_job}.out",
        comment=_comment(job, options.run_id),
        account=options.account,
        qos=options.qos,
        reservation=options.reservation,
        no_requeue=options.no_requeue,
        oversubscribe=pool.shares_on_request and not job.is_alone,
        options=(*left_out, *options.sbatch_options),
        environment=job_environment(options.environment),
    )


def dry_run(plan: Plan, target: Target, options: ReplayOptions, run: Path) -> Iterator[str]:
    """Yield, for each job in the order of submission, its instant, sbatch's words, and the script.

    Parameters
    ----------
    plan, target, options
        What would be replayed, where, and how.
    run
        The RUN that would be made, absolute.
    """
    for job in plan.jobs:
        request = submit_request(job, target, options, run)
        words = one_line(shlex.join(["sbatch", *sbatch_options(request)]), 4096)
        yield f"# second {job.due_s:.3f}: {words} <<'EOF'\n{request.script.rstrip()}\nEOF\n"
