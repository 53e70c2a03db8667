"""The program ``eiba``: read the command line, gather workers and nodes, replay, report.

One process on each node is started (``srun --ntasks-per-node=1 eiba ...``) and forks its workers; the first
node's reports for the whole job.

The replay of idle and busy periods on one node, barrier after barrier.

Theory of operation. A period begins at the instant at which the barrier before it opened; the first one
at the process's start, so that the time to start up is a part of the first idle period and not an
addition to it. An idle period ends at a deadline on CLOCK_MONOTONIC. A busy period ends when every
worker of every node has consumed its CPU time, however long sharing makes that last (thesis 7.4.4,
listing 3). Source of the accounting: what was measured, never what was asked.
"""

from __future__ import annotations

import math
import os
import resource
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from foundation.errors import HostError, OsubError, UsageError
from foundation.units import counted
from workloads.eiba.busy_work import load_libraries, make_kernel
from workloads.eiba.eiba_options import BusyPeriods, EibaOptions, parse_options
from workloads.eiba.forked_workers import WorkerPool
from workloads.eiba.inbox import Inbox, Message, PeerGoneError, Terminated
from workloads.eiba.node_barrier import OtherNodes, gather_nodes
from workloads.task import job_report
from workloads.task.job_report import COMPLETED, FAILED, TERMINATED, JobReport
from workloads.task.process_clock import ProcessStart, process_start
from workloads.task.slurm_task import SlurmTask, available_bytes, choose_pin, slurm_task


@dataclass(slots=True)
class EibaProgress:
    """What has been done so far; readable at any instant, also after a failure.

    Attributes
    ----------
    done
        Periods completed.
    busy_s
        CPU seconds consumed in the completed busy periods, by the busiest worker of this node in each.
    busy_wall_s
        Wall seconds of the completed busy periods.
    idle_s
        Wall seconds of the completed idle periods.
    skew_max_s
        The longest wait of a worker for the last one of its node at the end of a busy period.
    startup_s
        From the process's start until its workers were ready.
    accounts
        The latest account of every node, in node order; on the first node only.
    """

    done: int = 0
    busy_s: float = 0.0
    busy_wall_s: float = 0.0
    idle_s: float = 0.0
    skew_max_s: float = 0.0
    startup_s: float | None = None
    accounts: list[Message] = field(default_factory=list)


def replay(
    periods: BusyPeriods,
    pool: WorkerPool,
    nodes: OtherNodes,
    inbox: Inbox,
    begin_s: float,
    account: Message,
    progress: EibaProgress,
) -> None:
    """Run ``periods`` from ``begin_s`` (CLOCK_MONOTONIC) on, keeping ``progress`` up to date.

    Parameters
    ----------
    periods, pool, nodes, inbox
        What to do, who computes, who else takes part, and who waits.
    begin_s
        When the first period began.
    account
        What this node says of itself at each barrier; the CPU seconds so far are added.
    progress
        Updated after each period.

    Raises
    ------
    PeerGoneError
        A worker or another node died.
    Terminated
        A signal ends the job.
    """
    for index, seconds in enumerate(periods.seconds):
        if periods.is_busy(index):
            period = pool.busy(seconds)
            progress.busy_s += period.cpu_s
            progress.skew_max_s = max(progress.skew_max_s, period.skew_s)
            progress.busy_wall_s += time.monotonic() - begin_s
        else:
            inbox.sleep_until(begin_s + seconds)
            progress.idle_s += time.monotonic() - begin_s
        here = account | {"cpu_s": pool.cpu_s + time.process_time(), "busy_s": progress.busy_s}
        progress.accounts = nodes.meet(here | {"skew_max_s": progress.skew_max_s})
        begin_s = time.monotonic()
        progress.done = index + 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    begin = process_start()
    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments)
        task = slurm_task(os.environ)
        if task.tasks is not None and task.tasks > task.nodes:
            raise UsageError(
                f"{counted(task.tasks, 'task')} on {counted(task.nodes, 'node')}; start one on "
                "each: srun --ntasks-per-node=1"
            )
        job_report.check_writable(options.report)
        _check_memory(options, _worker_count(options, task))
        return _run(options, task, begin, os.environ)
    except OsubError as error:
        print(f"eiba: {error}", file=sys.stderr)
        return error.exit_code


def _run(options: EibaOptions, task: SlurmTask, begin: ProcessStart, environment: Mapping[str, str]) -> int:
    account: Message = {"host": task.node_name or socket.gethostname()}
    progress = EibaProgress(accounts=[account])
    end: OsubError | Terminated | None = None
    with Inbox() as inbox:
        nodes = OtherNodes(inbox, {})
        pool = None
        try:
            pool = _start_workers(inbox, options, task, environment)
            account |= pool.describe()
            progress.startup_s = time.monotonic() - begin.monotonic_s
            deadline_s = time.monotonic() + options.rendezvous_wait_s
            nodes = gather_nodes(inbox, task, options.rendezvous, deadline_s)
            replay(options.periods, pool, nodes, inbox, begin.monotonic_s, account, progress)
        except PeerGoneError as error:
            end = pool.explain(error) if pool is not None else error
        except (OsubError, Terminated) as error:
            end = error
        finally:
            if end is not None:
                nodes.leave(end)
            if pool is not None:
                pool.kill()
    if task.node_index == 0:
        job_report.publish(_report(options, task, begin, progress, end), options.report)
    if isinstance(end, Terminated):
        return 128 + end.signal_number
    if end is not None:
        raise end
    return 0


def _worker_count(options: EibaOptions, task: SlurmTask) -> int:
    return options.workers or task.node_cpus or 1


def _check_memory(options: EibaOptions, workers: int) -> None:
    """Refuse a footprint that this host cannot hold, before any of it is touched."""
    available = available_bytes()
    if available is not None and options.load.memory_bytes * workers > available:
        raise HostError(
            f"{counted(workers, 'worker')} with {options.load.memory_mib} MiB each, and {available >> 20} "
            "MiB are available; choose a smaller --memory-mib"
        )


def _start_workers(
    inbox: Inbox, options: EibaOptions, task: SlurmTask, environment: Mapping[str, str]
) -> WorkerPool:
    allowed = os.sched_getaffinity(0)
    workers = _worker_count(options, task)
    pins = [choose_pin(environment, task.node_name, index, allowed) for index in range(workers)]
    load = options.load
    # Without a busy period or memory nothing is computed, and nothing need be loaded.
    if options.periods.busy_s == 0 and load.memory_mib == 0:
        return WorkerPool(inbox, pins, lambda: lambda: None)
    load_libraries()
    return WorkerPool(inbox, pins, lambda: make_kernel(load))


def _report(
    options: EibaOptions,
    task: SlurmTask,
    begin: ProcessStart,
    progress: EibaProgress,
    end: OsubError | Terminated | None,
) -> JobReport:
    accounts = progress.accounts
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own_cpu_s = math.fsum(usage.ru_utime + usage.ru_stime for usage in own)
    state = {type(None): COMPLETED, Terminated: TERMINATED}.get(type(end), FAILED)
    return JobReport(
        app="eiba",
        kernel=options.load.kernel,
        memory_mib=options.load.memory_mib,
        traffic=options.load.traffic,
        state=state,
        start_ms=begin.epoch_ms,
        end_ms=round(time.time() * 1000),
        nodes=task.nodes,
        tasks=sum(len(account.get("affinity", [])) for account in accounts),
        hosts=[account["host"] for account in accounts],
        affinity=[cpus for account in accounts for cpus in account.get("affinity", [])],
        pinned=all(account.get("pinned", False) for account in accounts),
        # Of the other nodes as they said it last; of this one to the end, its reaped workers included.
        cpu_s=own_cpu_s + math.fsum(account["cpu_s"] for account in accounts[1:]),
        busy_asked_s=options.periods.busy_s,
        busy_s=max(progress.busy_s, *(account.get("busy_s", 0.0) for account in accounts)),
        busy_wall_s=progress.busy_wall_s,
        idle_asked_s=options.periods.idle_s,
        idle_s=progress.idle_s,
        startup_s=progress.startup_s,
        skew_max_s=max(progress.skew_max_s, *(account.get("skew_max_s", 0.0) for account in accounts)),
        periods=len(options.periods.seconds),
        periods_done=progress.done,
        warnings=[warning for account in accounts for warning in account.get("warnings", [])],
        failure=str(end) if state == FAILED else None,
    )
