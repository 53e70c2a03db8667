"""The program ``eiba``: read the command line, gather workers and nodes, replay, report.

One process on each node is started (``srun --ntasks-per-node=1 eiba ...``) and forks its workers; the first
node's reports for the whole job.
"""

from __future__ import annotations

import math
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from osub.errors import OsubError, UsageError
from workloads import job_report
from workloads.eiba.busy import KERNELS, Kernel
from workloads.eiba.inbox import Inbox
from workloads.eiba.messages import Message, PeerGoneError, Terminated
from workloads.eiba.nodes import Alone, Nodes, gather_nodes
from workloads.eiba.options import EibaOptions, parse_options
from workloads.eiba.replay import Progress, replay
from workloads.eiba.workers import WorkerPool
from workloads.job_report import COMPLETED, FAILED, TERMINATED, JobReport
from workloads.pinning import choose_pin
from workloads.process_clock import ProcessStart, process_start
from workloads.slurm_task import SlurmTask, slurm_task


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    begin = process_start()
    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments)
        task = slurm_task(os.environ)
        if task.tasks is not None and task.tasks > task.nodes:
            raise UsageError(
                f"{task.tasks} tasks on {task.nodes} nodes; start one on each: srun --ntasks-per-node=1"
            )
        job_report.check_writable(options.report)
        return _run(options, task, begin, os.environ)
    except OsubError as error:
        print(f"eiba: {error}", file=sys.stderr)
        return error.exit_code


def _run(options: EibaOptions, task: SlurmTask, begin: ProcessStart, environment: Mapping[str, str]) -> int:
    account: Message = {"host": task.node_name or socket.gethostname()}
    progress = Progress(accounts=[account])
    end: OsubError | Terminated | None = None
    with Inbox() as inbox:
        nodes: Nodes = Alone()
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


def _start_workers(
    inbox: Inbox, options: EibaOptions, task: SlurmTask, environment: Mapping[str, str]
) -> WorkerPool:
    allowed = os.sched_getaffinity(0)
    workers = options.workers or task.node_cpus or 1
    pins = [choose_pin(environment, task.node_name, index, allowed) for index in range(workers)]
    # Without a busy period nothing is computed, and nothing need be loaded.
    make_kernel: Callable[[], Kernel] = KERNELS[options.kernel]
    if options.periods.busy_s == 0:
        return WorkerPool(inbox, pins, lambda: lambda: None)
    return WorkerPool(inbox, pins, make_kernel)


def _report(
    options: EibaOptions,
    task: SlurmTask,
    begin: ProcessStart,
    progress: Progress,
    end: OsubError | Terminated | None,
) -> JobReport:
    accounts = progress.accounts
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own_cpu_s = math.fsum(usage.ru_utime + usage.ru_stime for usage in own)
    state = {type(None): COMPLETED, Terminated: TERMINATED}.get(type(end), FAILED)
    return JobReport(
        app="eiba",
        kernel=options.kernel,
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
