"""The plan of a replay: a pure function from a trace to timed submissions, and the batch script of each job.

The trace comes in the run's own seconds: cut, compressed and with its interactive patterns embedded, just
as it is stored in the RUN, so that a simulation of that file meets the same jobs.

The table that says which application a job of the trace runs: CSV ``trace_job,app,args``.

A fourth column, ``application``, may say what it is called where pairs of applications are spoken of.

The stamps lie in the RUN's ``jobs`` folder, which every node must see: ``<job>.start`` with the Slurm job
id, ``<job>.end`` with the exit code, ``<job>.report`` with the application's own account, ``<job>.out`` with
what it printed. A job that Slurm starts again stamps ``<job>.life1.start`` and so on. ``<job>.claim`` is a
link that the first copy to start makes, so that a second one does nothing. ``sh``, ``date`` and ``ln`` are
all it needs, and cost about 3 ms. A stamp is one write of one line, and a reader of half of it reads
nothing.
"""

from __future__ import annotations

import csv
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal

from foundation.errors import InputError, UsageError
from foundation.specification import PathText
from foundation.units import counted, counted_of, kib_to_mib, seconds_to_minutes_up
from submitter.plan.target_cluster import PartitionPool, TargetCluster
from workloads.job_shape import JobShape
from workloads.swf import SwfJob, SwfTrace

COLUMNS = ("trace_job", "app", "args")
NAME_COLUMN = "application"


@dataclass(frozen=True, slots=True)
class AppChoice:
    """An application and its arguments. ``eiba`` and ``rrba`` are ours; any other name is a command."""

    app: str
    args: tuple[str, ...]
    application: str | None = None


def read_apps(path: Path) -> dict[int, AppChoice]:
    """Read the table.

    Raises
    ------
    InputError
        The file cannot be read.
    UsageError
        It has other columns, a job number that is none, a job twice, or arguments that cannot be split.
    """
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.reader(stream))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file: {error}") from error
    if not rows or tuple(rows[0]) not in {COLUMNS, (*COLUMNS, NAME_COLUMN)}:
        raise UsageError(
            f"{path} must begin with the line {','.join(COLUMNS)}, or with {NAME_COLUMN} after these"
        )
    columns = rows[0]
    chosen: dict[int, AppChoice] = {}
    for number, row in enumerate(rows[1:], start=2):
        try:
            cells = dict(zip(columns, row, strict=True))
            key = int(cells["trace_job"])
            name = cells.get(NAME_COLUMN, "").strip() or None
            choice = AppChoice(cells["app"].strip(), tuple(shlex.split(cells["args"])), name)
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: not {','.join(columns)} ({error})") from error
        if not choice.app or key in chosen:
            raise UsageError(f"{path}, line {number}: {'no app' if not choice.app else f'job {key} again'}")
        chosen[key] = choice
    return chosen


COUNTS = (
    "skipped_oversize",
    "clipped_oversize",
    "clipped_memory",
    "skipped_limit",
    "clipped_limit",
    "skipped_empty",
    "unlinked",
)
EIBA = "eiba"
RRBA = "rrba"


class ReplayOversize(StrEnum):
    """What to do with a job that can never run on the cluster."""

    FAIL = "fail"
    SKIP = "skip"
    CLIP = "clip"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How a trace becomes submissions.

    Attributes
    ----------
    interactive_queue
        SWF queue number of interactive jobs; None: there are none.
    request_factor, interactive_factor
        What the requested time is multiplied by, of batch and of interactive jobs (None: as of batch jobs): M
        of their nodes without gang scheduling, 1 under gangd, which moves the end itself.
    oversize
        What to do with jobs that can never run; None: skip them, unless they are the most.
    use_memory
        Whether to ask Slurm for the trace's memory; otherwise the partition's default holds.
    rrba_app
        The kernel of batch jobs that no table names.
    """

    interactive_queue: int | None = 0
    request_factor: int = 1
    interactive_factor: int | None = None
    oversize: ReplayOversize | None = None
    use_memory: bool = True
    rrba_app: str = "jacobi"

    def factor(self, *, interactive: bool) -> int:
        """Return what a job's requested time is multiplied by."""
        factor = self.interactive_factor if interactive else None
        return self.request_factor if factor is None else factor


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """One submission; seconds are the run's own, ``due_s`` from its second 0.

    ``application`` is what the job runs, where a table names it; ``away_from`` nodes to which it must not go,
    and ``is_alone`` whether no other may share its cores (``submitter.plan.apart_applications``).
    ``after`` is the job that has to end first; see ``due_after`` for ``think_s``.
    """

    trace_job: int
    kind: Literal["batch", "interactive"]
    app: str
    args: tuple[str, ...]
    partition: str
    nodes: int
    cores_per_node: int
    due_s: float
    memory_per_core_mib: int | None = None
    requested_s: float | None = None
    limit_minutes: int | None = None
    dedicated_s: float
    busy_s: float
    user: str | None = None
    application: str | None = None
    away_from: tuple[str, ...] = ()
    is_alone: bool = False
    after: int | None = None
    think_s: float | None = None

    def due_after(self, end_s: float | None) -> float:
        """Return when it is due where the job before it ended at ``end_s``; None: that one never ran."""
        if end_s is None:
            return self.due_s
        return max(self.due_s, end_s) if self.think_s is None else end_s + self.think_s

    @property
    def cores(self) -> int:
        """Cores on all nodes together."""
        return self.nodes * self.cores_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """Submissions in order of ``due_s``, and what was left out or changed on the way."""

    jobs: tuple[PlannedJob, ...]
    skipped_oversize: int = 0
    clipped_oversize: int = 0
    clipped_memory: int = 0
    skipped_limit: int = 0
    clipped_limit: int = 0
    skipped_empty: int = 0
    unlinked: int = 0


def make_plan(
    trace: SwfTrace, target: TargetCluster, options: PlanOptions, apps: Mapping[int, AppChoice] | None = None
) -> ReplayPlan:
    """Turn a trace into timed submissions.

    Jobs without a processor or with a run time of zero or unknown do not run and are counted as empty.
    Ties in the submit time keep the trace's order.

    Raises
    ------
    InputError
        The trace has no job that can run, a job number comes twice, or a job is larger than the cluster or
        asks for more time than its partition gives and ``options.oversize`` is ``fail``; or, where it says
        nothing, most of the jobs do.
    UsageError
        ``apps`` names jobs that the trace does not have.
    """
    _check_numbers(trace, apps or {})
    planned: list[PlannedJob] = []
    counts = dict.fromkeys(COUNTS, 0)
    for job in sorted(trace.jobs, key=lambda job: job.submit_s):
        if not job.run_s or not job.procs:
            counts["skipped_empty"] += 1
            continue
        interactive = options.interactive_queue is not None and job.queue == options.interactive_queue
        pool = target.interactive if interactive else target.batch
        shape = pool.shape(job.procs)
        if shape is None:
            shape = _oversize(job, pool, target, options.oversize)
            counts["clipped_oversize" if shape else "skipped_oversize"] += 1
            if shape is None:
                continue
        factor = options.factor(interactive=interactive)
        minutes = _minutes(job, factor)
        if minutes is not None and pool.most_minutes is not None and minutes > pool.most_minutes:
            keeps = _beyond_limit(job, minutes, factor, pool, options.oversize)
            counts["clipped_limit" if keeps else "skipped_limit"] += 1
            if not keeps:
                continue
            minutes = pool.most_minutes
        memory, clipped = _memory(job, pool, shape) if options.use_memory else (None, False)
        counts["clipped_memory"] += clipped
        choice = (apps or {}).get(job.job_number)
        run_s = float(job.run_s)
        app, args, busy_s = _application(job, choice, options, run_s, interactive=interactive)
        planned.append(
            PlannedJob(
                trace_job=job.job_number,
                kind="interactive" if interactive else "batch",
                app=app,
                args=args,
                partition=pool.partition,
                nodes=shape.nodes,
                cores_per_node=shape.cores,
                due_s=float(job.submit_s),
                memory_per_core_mib=memory,
                requested_s=_requested_s(job),
                limit_minutes=minutes,
                dedicated_s=run_s,
                busy_s=busy_s,
                user=None if job.user is None else str(job.user),
                application=None if choice is None else choice.application,
            )
        )
    never = counts["skipped_oversize"] + counts["skipped_limit"]
    if options.oversize is None and never > len(planned):
        raise InputError(
            f"{counted_of(never, never + len(planned), 'job')} of trace {trace.name} can never run on "
            f"{target.system}, for size or limit, and would be left out: --fit SECONDS scales the "
            "trace to the cluster; or say what becomes of them, --oversize skip or clip"
        )
    if not planned:
        raise InputError(f"trace {trace.name} has no job to replay ({_empty_because(trace, counts)})")
    planned, counts["unlinked"] = _linked(trace, planned)
    first = planned[0].due_s
    if first < 0:
        raise InputError(f"trace {trace.name} submits job {planned[0].trace_job} before its second 0")
    return ReplayPlan(jobs=tuple(planned), **counts)


def _linked(trace: SwfTrace, planned: list[PlannedJob]) -> tuple[list[PlannedJob], int]:
    """Return the jobs with those that precede them, and how many name one in vain.

    That one has to be on an earlier line (SWF: "a previous job in the workload") and in the plan.
    """
    ours = {job.trace_job for job in planned}
    before: set[int] = set()
    links: dict[int, tuple[int, float | None]] = {}
    wanting = 0
    for job in trace.jobs:
        if job.preceding_job and job.job_number in ours:
            if job.preceding_job in before:
                links[job.job_number] = job.preceding_job, job.think_s
            else:
                wanting += 1
        if job.job_number in ours:
            before.add(job.job_number)
    unlinked: tuple[None, None] = (None, None)
    linked = []
    for entry in planned:
        after, think_s = links.get(entry.trace_job, unlinked)
        linked.append(entry if after is None else replace(entry, after=after, think_s=think_s))
    return linked, wanting


def _check_numbers(trace: SwfTrace, apps: Mapping[int, AppChoice]) -> None:
    numbers: set[int] = set()
    for job in trace.jobs:
        if job.job_number in numbers:
            raise InputError(
                f"trace {trace.name} has job {job.job_number} twice; a replay needs unique numbers"
            )
        numbers.add(job.job_number)
    unknown = sorted(set(apps) - numbers)
    if unknown:
        raise UsageError(f"--apps names jobs that the trace does not have, such as {unknown[0]}")


def _empty_because(trace: SwfTrace, counts: Mapping[str, int]) -> str:
    if not trace.jobs:
        return "it has no jobs at all"
    return ", ".join(f"{value} {key.replace('_', ' ')}" for key, value in counts.items() if value)


def _oversize(
    job: SwfJob, pool: PartitionPool, target: TargetCluster, rule: ReplayOversize | None
) -> JobShape | None:
    if rule is ReplayOversize.FAIL:
        raise InputError(
            f"job {job.job_number} asks for {counted(job.procs or 0, 'core')} and can never run on the "
            f"{counted(pool.nodes, 'node')} of {counted(pool.cores, 'core')} of partition {pool.partition} "
            f"({target.system}): --fit SECONDS scales the trace to the cluster; or choose --oversize skip or "
            "clip"
        )
    if rule is not ReplayOversize.CLIP:
        return None
    procs = min(job.procs or 1, pool.nodes * pool.cores)
    return next(shape for size in range(procs, 0, -1) if (shape := pool.shape(size)))


def _requested_s(job: SwfJob) -> float | None:
    return None if job.requested_s is None else max(float(job.requested_s), float(job.run_s or 0))


def _minutes(job: SwfJob, factor: int) -> int | None:
    """Return the limit to ask for."""
    requested_s = _requested_s(job)
    return None if requested_s is None else seconds_to_minutes_up(requested_s * factor)


def _beyond_limit(
    job: SwfJob, minutes: int, factor: int, pool: PartitionPool, rule: ReplayOversize | None
) -> bool:
    """Return whether a job that asks for more time than it can have is kept; raises InputError if neither."""
    if rule is not ReplayOversize.FAIL:
        return rule is ReplayOversize.CLIP
    more = f", {factor} times its own," if factor > 1 else ""
    raise InputError(
        f"job {job.job_number} asks for {counted(minutes, 'minute')}{more} and can never start: partition "
        f"{pool.partition} gives {pool.most_minutes} at most; choose --oversize skip or clip, another "
        "--partition, or a --speedup"
    )


def _memory(job: SwfJob, pool: PartitionPool, shape: JobShape) -> tuple[int | None, bool]:
    """Return MiB a core to ask for, cut to what a node has, and whether it was cut."""
    if job.memory_kib is None:
        return None, False
    asked, most = max(1, kib_to_mib(job.memory_kib)), pool.memory_mib // shape.cores
    return min(asked, most), asked > most


def _application(
    job: SwfJob, choice: AppChoice | None, options: PlanOptions, run_s: float, *, interactive: bool
) -> tuple[str, tuple[str, ...], float]:
    """Return application, arguments and busy seconds."""
    pattern = job.pattern if interactive else None
    busy_s = pattern.busy_s if pattern else run_s
    if choice is not None:
        return choice.app, choice.args, busy_s
    if not interactive:
        return RRBA, ("--app", options.rrba_app, "--target-s", _plain(run_s)), busy_s
    if pattern is None:
        # A session without a description is busy all the time: no idle period, then one busy one.
        return EIBA, ("2", "0", _plain(run_s)), busy_s
    periods = pattern.periods_s
    return EIBA, (str(len(periods)), *map(_plain, periods)), busy_s


def _plain(seconds: float) -> str:
    """Return seconds to the millisecond, without an exponent."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".")


def quoted(args: tuple[str, ...]) -> str:
    """Return arguments as one shell-quoted line, as the RUN records them."""
    return shlex.join(args)


def left_out(plan: ReplayPlan) -> list[str]:
    """Return a sentence for each reason for which jobs of the trace are not replayed as they are."""
    reasons = {
        "skipped_empty": "left out: they have no run time or no processor",
        "skipped_oversize": "left out: larger than the cluster, they can never run",
        "clipped_oversize": "cut to the cluster's size",
        "skipped_limit": "left out: their partition gives no job so much time",
        "clipped_limit": "cut to the most time that their partition gives",
        "clipped_memory": "cut to the memory of a node",
        "unlinked": "submitted at their own times: their preceding job comes later, or is left out",
    }
    counts = {name: getattr(plan, name) for name in COUNTS}
    jobs = len(plan.jobs) + sum(count for name, count in counts.items() if name.startswith("skipped"))
    return [f"{count:,} of {counted(jobs, 'job')} {reasons[name]}" for name, count in counts.items() if count]


_HEAD = """\
#!/bin/sh
# Job {trace_job} of a replay
at={stem}
stamp() {{ date +%s%3N; }}
note() {{ printf '%s\\n' "$2" > "$at.$1"; }}
OSUB_WRAPPER_START_MS=$(stamp)
export OSUB_WRAPPER_START_MS
if [ ! -d "${{at%/*}}" ]; then
  echo "${{at%/*}} is not there: the replay is over, or $(hostname) does not see its folder" >&2
  exit 1
fi
if ! ln -s "$SLURM_JOB_ID" "$at.claim" 2>/dev/null; then
  owner=$(readlink "$at.claim")
  if [ -n "$owner" ] && [ "$owner" != "$SLURM_JOB_ID" ]; then
    echo "a second copy of job {trace_job}, which belongs to $owner: nothing to do" >&2
    exit 0
  fi
fi
[ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] || at=$at.life$SLURM_RESTART_COUNT
note start "{{\\"slurm_job\\":$SLURM_JOB_ID,\\"ms\\":$OSUB_WRAPPER_START_MS}}"
"""

_PIN = """\
OSUB_PIN=1
OSUB_JOB_CORES=$(scontrol show -d job "$SLURM_JOB_ID" |
  sed -n 's/^ *Nodes=\\([^ ]*\\) CPU_IDs=\\([^ ]*\\) Mem=.*/\\1 \\2/p' |
  while read -r nodes ids; do
    for node in $(scontrol show hostnames "$nodes"); do
      printf '%s:%s;' "$node" "$ids"
    done
  done)
OSUB_JOB_CORES=${OSUB_JOB_CORES%;}
export OSUB_PIN OSUB_JOB_CORES
"""

_TAIL = """\
{command} &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' TERM
trap 'kill -USR1 "$child" 2>/dev/null' USR1
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
note end "{{\\"ms\\":$(stamp),\\"exit_code\\":$code}}"
exit "$code"
"""


def job_environment(chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a job; of the caller's only ``chosen`` reaches it."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        **chosen,
    }


def batch_script(
    job: PlannedJob, run: Path, *, pin: bool = False, calibration: PathText | None = None
) -> str:
    """Return the batch script of a job.

    Parameters
    ----------
    job
        The planned job.
    run
        The RUN folder, absolute.
    pin
        Whether ranks and workers bind themselves to the cores that Slurm gave them (nodes of an embedded
        cluster with several cores, where Slurm itself can't).
    calibration
        Stored step times for rrba.
    """
    stem = run / "jobs" / str(job.trace_job)
    head = _HEAD.format(trace_job=job.trace_job, stem=shlex.quote(str(stem)))
    command = shlex.join(_command(job, stem, calibration))
    return head + (_PIN if pin else "") + _TAIL.format(command=command)


def _command(job: PlannedJob, stem: Path, calibration: PathText | None) -> list[str]:
    report = ["--report", f"{stem}.report"]
    nodes, cores = str(job.nodes), str(job.cores_per_node)
    if job.app == EIBA:
        eiba = [sys.executable, "-P", "-m", "workloads.eiba", "--workers", cores, *report]
        if job.nodes == 1:
            return [*eiba, *job.args]
        across = ["srun", "--nodes", nodes, "--ntasks", nodes, "--ntasks-per-node", "1"]
        return [*across, *eiba, "--rendezvous", f"{stem}.rendezvous", *job.args]
    if job.app == RRBA:
        known = ["--calibration", str(calibration)] if calibration else []
        rrba = [sys.executable, "-P", "-m", "workloads.rrba", *job.args, *known, *report]
        if job.cores == 1:
            return rrba
        ranks = [
            "srun",
            "--mpi=pmi2",
            "--kill-on-bad-exit=1",  # a rank that fails in MPI_Init leaves others in it
            "--nodes",
            nodes,
            "--ntasks",
            str(job.cores),
            "--ntasks-per-node",
            cores,
        ]
        return [*ranks, *rrba]
    return [job.app, *job.args]
