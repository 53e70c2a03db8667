"""Beginning a replay, or going on with one that was killed: the trace in the run's own seconds, the RUN.

What a killed replay had done is found out, so that no job is lost and none is doubled. Three witnesses tell
that a job was submitted: its row in the RUN, a job of its name in Slurm, and the start stamp that the job
itself wrote (Slurm forgets an ended job after MinJobAge). An ``sbatch`` that outlived the replay is waited
for first, or its job would be missed and submitted again.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import msgspec
import psutil

from foundation.errors import ClusterError, OutputError, UsageError
from foundation.one_line import one_line
from foundation.records import TRACE_NAME, HostInfo, JobRecord, RunInfo, RunWriter
from foundation.slurm import SlurmClient, SlurmJob, SubmitRequest
from foundation.slurm.run_command import sbatch_options
from foundation.slurm.site_configuration import scheduling_config
from foundation.slurm.slurm_types import SlurmRefusedError
from foundation.units import checked_speedup
from submitter import plan as planning
from submitter.follow import JOBS_FOLDER, choose_copy, job_name, own_jobs, planned_row, read_stamps
from submitter.plan import Clock, PlannedJob, ReplayOptions, ReplayPlan, TargetCluster
from workloads.swf import SwfTrace, read_swf, write_swf
from workloads.trace.models import embed_patterns
from workloads.trace.transforms import compress, cut_window

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,62}")


def _comment(job: PlannedJob, run_id: str) -> str:
    """Return who submits the job and what it runs, the latter in gangd's word for it."""
    named = dict(pairwise(job.args)).get("--app") if job.app == planning.RRBA else job.app
    runs = job.application or named or ""
    return f"osub replay {run_id}" + (f" gangd-app={runs}" if _PLAIN.fullmatch(runs) else "")


def submit_request(
    job: PlannedJob, target: TargetCluster, options: ReplayOptions, run: Path
) -> SubmitRequest:
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
        script=planning.batch_script(job, run, pin=options.pin, calibration=options.calibration),
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
        options=(*left_out, *(options.sbatch_option or ())),
        environment=planning.job_environment(options.environment),
    )


def dry_run(plan: ReplayPlan, target: TargetCluster, options: ReplayOptions, run: Path) -> Iterator[str]:
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
        instant = f"second {job.due_s:.3f}"
        if job.after is not None:
            instant = f"{job.think_s or 0:.3f} s after the end of job {job.after}"
        yield f"# {instant}: {words} <<'EOF'\n{request.script.rstrip()}\nEOF\n"


APPS_NAME = "apps.csv"
# Of Slurm's words for a job that it does not take, those that no waiting changes.
_FOR_GOOD = re.compile(
    r"cli_filter|lua: |unspecified error"
    r"|unrecognized option|requires an argument|doesn't allow an argument|reservation is invalid|policy"
    r"|invalid (?:account|qos|partition|feature|generic|gres|license|node name)|permitted|denied",
    re.IGNORECASE,
)
# From the beginning to the run's second 0: time to write the RUN and to start the submitting thread.
_LEAD_S = 0.5

_WAIT_S = 60.0


def prepare_trace(trace: SwfTrace, options: ReplayOptions) -> SwfTrace:
    """Return the trace in the run's own seconds: cut, with interactive periods, compressed.

    The first submission of the part becomes second 0 unless ``options.start`` says otherwise.
    """
    checked_speedup(options.speedup)
    if not options.dependencies:
        jobs = [replace(job, preceding_job=None, think_s=None) for job in trace.jobs]
        trace = replace(trace, jobs=tuple(jobs))
    if trace.jobs:
        first = min(job.submit_s for job in trace.jobs)
        last = max(job.submit_s for job in trace.jobs)
        start = first if options.start is None else options.start
        length = max(1.0, last - start + 1.0) if options.length is None else options.length
        trace = cut_window(trace, start, length)
    if options.queue is not None:
        trace = embed_patterns(trace, options.queue, options.seed)
    return compress(trace, options.speedup) if options.speedup != 1 else trace


@dataclass(frozen=True, slots=True)
class DrawnUp:
    """What a replay is going to do, before anything is written or submitted.

    Attributes
    ----------
    trace
        In the run's own seconds.
    plan, target
        The jobs, and the cluster that they are for.
    apart, names
        How applications that harm each other are kept apart, by partition, and which job runs which.
    """

    trace: SwfTrace
    plan: ReplayPlan
    target: TargetCluster
    apart: Mapping[str, planning.Apart]
    names: Mapping[int, str]


def draw_up(
    trace_path: Path,
    client: SlurmClient,
    options: ReplayOptions,
    apps: Path | None,
    danger: planning.ConflictPairs | None = None,
    *,
    lenient: bool = False,
) -> DrawnUp:
    """Read the trace, look at the cluster, and make the plan; raises as :func:`begin_run`."""
    trace = prepare_trace(read_swf(trace_path, strict=not lenient), options)
    choices = planning.read_apps(apps) if apps else None
    target = planning.look_at_target(client, options.wanted)
    plan = planning.make_plan(
        trace,
        target,
        options.plan_options(target.batch.multiplicity, target.interactive.multiplicity),
        choices,
    )
    names = {} if danger is None else planning.applications_of(plan, danger)
    apart = {}
    if danger is not None:
        memory_counts = "memory" in client.config().get("SelectTypeParameters", "").lower()
        apart = planning.keep_apart(plan, target, danger, memory_counts=memory_counts)
        plan = planning.apply(plan, target, apart, names)
    _check_words(plan, target, client, options)
    return DrawnUp(trace, plan, target, apart, names)


def begin_run(
    trace_path: Path,
    out: Path,
    client: SlurmClient,
    options: ReplayOptions,
    apps: Path | None,
    clock: Clock,
    danger: planning.ConflictPairs | None = None,
    *,
    lenient: bool = False,
) -> tuple[RunWriter, ReplayPlan, TargetCluster]:
    """Read the trace, look at the cluster, make the plan and, when nothing is wrong, the RUN.

    Pairs of applications that are a ``danger`` to each other are kept apart. ``lenient``: malformed lines of
    the trace are passed over.

    Raises
    ------
    InputError, UsageError, ClusterError, OutputError
        As the parts raise; nothing is submitted and no RUN is left behind.
    """
    drawn = draw_up(trace_path, client, options, apps, danger, lenient=lenient)
    trace, plan, target, apart = drawn.trace, drawn.plan, drawn.target, drawn.apart
    info = _run_info(trace, target, client, options, clock)
    with tempfile.TemporaryDirectory(prefix="osub-") as scratch:
        prepared = Path(scratch, "trace.swf")
        write_swf(prepared, trace)
        writer = RunWriter.create(out, info, prepared)
    counts = {name: getattr(plan, name) for name in planning.COUNTS}
    writer.event("begun", jobs=len(plan.jobs), **counts, nodes_left_out=list(target.left_out))
    for partition, own in apart.items():
        writer.event("pairing", partition=partition, text=own.sentence())
    try:
        if apart:
            planning.write_apart(out, apart, drawn.names)
        (out / JOBS_FOLDER).mkdir()
        if apps:
            shutil.copyfile(apps, out / APPS_NAME)
    except OSError as error:
        writer.close()
        raise OutputError(f"cannot write in {out}: {error.strerror}") from error
    except OutputError:
        writer.close()
        raise
    return writer, plan, target


def _check_words(
    plan: ReplayPlan, target: TargetCluster, client: SlurmClient, options: ReplayOptions
) -> None:
    """Refuse to begin where Slurm would refuse every job, however small, for what is asked of it.

    What Slurm may take later (nodes are down, a reservation is to come) does not count. Some sites refuse
    jobs that ask for memory, others those that don't: a job of each kind that the plan has is tried.
    """
    first = {(job.partition, job.memory_per_core_mib is not None): job for job in reversed(plan.jobs)}

    def refusal(job: PlannedJob) -> str | None:
        least = replace(job, nodes=1, cores_per_node=1, limit_minutes=1, is_alone=False)
        try:
            client.check(submit_request(least, target, options, Path("/nonexistent")))
        except SlurmRefusedError as error:
            return str(error) if _FOR_GOOD.search(str(error)) else None
        return None

    for (_, asks_memory), job in first.items():
        why = refusal(job)
        if why is None:
            continue
        if asks_memory and refusal(replace(job, memory_per_core_mib=None)) is None:
            raise ClusterError(
                f"{why}; it takes the same job without memory: give --no-memory, and each job gets the "
                "partition's default"
            )
        raise ClusterError(f"{why}; look at --account, --qos, --reservation, --partition and --sbatch-option")


def plan_again(
    writer: RunWriter, client: SlurmClient, options: ReplayOptions
) -> tuple[ReplayPlan, TargetCluster]:
    """Make the plan of a RUN that was begun earlier from the files in it."""
    trace = read_swf(writer.path / TRACE_NAME)
    apps = writer.path / APPS_NAME
    target = planning.look_at_target(client, options.wanted)
    if target.system != writer.info.system:
        raise UsageError(f"the run was begun on {writer.info.system}; this cluster is {target.system}")
    factors = writer.info.multiplicity, writer.info.multiplicity_interactive
    choices = planning.read_apps(apps) if apps.exists() else None
    plan = planning.make_plan(trace, target, options.plan_options(*factors), choices)
    decided = planning.read_apart(writer.path)
    return plan if decided is None else planning.apply(plan, target, *decided), target


def _run_info(
    trace: SwfTrace, target: TargetCluster, client: SlurmClient, options: ReplayOptions, clock: Clock
) -> RunInfo:
    config = client.config()
    scheduler = config.get("SchedulerType", "sched/backfill")
    instant = datetime.fromtimestamp(clock.wall() + _LEAD_S, UTC)
    gang = options.gang.kind
    share = f"M={target.batch.multiplicity}" + ("" if gang == "none" else f", gang {gang}")
    return RunInfo(
        kind="real",
        label=options.label or f"{target.system} {'MQ' if target.is_mq else 'SQ'} {share}",
        trace_name=trace.name,
        system=target.system,
        node_names=target.node_names,
        queues="mq" if target.is_mq else "sq",
        policy="fcfs" if scheduler.endswith("builtin") else "backfill",
        scheduler=scheduler,
        multiplicity=target.batch.multiplicity,
        multiplicity_interactive=target.interactive.multiplicity if target.is_mq else None,
        interactive_nodes=target.interactive.nodes if target.is_mq else None,
        gang=options.gang,
        seeds={"interactive": options.seed},
        speedup=options.speedup,
        trial=options.trial,
        slurm_version=config.get("SLURM_VERSION"),
        slurm_config=scheduling_config(config),
        host=HostInfo.here(),
        started=instant.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        options=options.stored(),
    )


def wait_for_orphans(run_id: str, own_pid: int, pause: Callable[[float], None] = time.sleep) -> None:
    """Wait until no ``sbatch`` of this run is under way.

    Raises
    ------
    ClusterError
        One still is after a minute; the message names it.
    """
    mark = f"--job-name={job_name(run_id, 0)[:-1]}"
    deadline = time.monotonic() + _WAIT_S
    while orphans := _marked(mark, own_pid):
        if time.monotonic() > deadline:
            raise ClusterError(f"a submission of the earlier replay does not end (pid {orphans[0]})")
        pause(0.05)


def _marked(mark: str, own_pid: int) -> list[int]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != own_pid and any(word.startswith(mark) for word in process.cmdline()):
                found.append(process.pid)
    return found


def recover_rows(
    planned: Iterable[PlannedJob],
    known: Collection[int],
    jobs: Iterable[SlurmJob],
    folder: Path,
    run_id: str,
    origin: float,
) -> list[JobRecord]:
    """Return rows of jobs that were submitted although the RUN does not say so.

    Parameters
    ----------
    planned
        The whole plan.
    known
        The trace's numbers of the jobs that the RUN knows.
    jobs
        Slurm's jobs.
    folder
        The RUN's ``jobs`` folder.
    run_id, origin
        The run's id and the epoch second of its second 0.
    """
    in_slurm = own_jobs(jobs, run_id, {os.geteuid()})
    recovered = []
    for plan in planned:
        if plan.trace_job in known:
            continue
        stamps = read_stamps(folder, plan.trace_job)
        copies = {job.job_id: job for job in in_slurm.get(plan.trace_job, ())}
        choice = choose_copy(copies.values(), None, stamps.slurm_job)
        if choice is None:
            continue
        job = copies.get(choice.job_id)
        stamped = [
            job.submit_time if job and not job.restarts else None,
            stamps.start_ms and stamps.start_ms / 1000,
        ]
        entered = min((instant for instant in stamped if instant is not None), default=origin + plan.due_s)
        row = planned_row(plan)
        entered_s = round(max(entered - origin, plan.due_s), 3)
        recovered.append(msgspec.structs.replace(row, job_id=choice.job_id, submit_s=entered_s))
    return recovered
