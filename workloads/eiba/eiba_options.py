"""The command line of ``eiba``, read without loading what a short job does not need."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import UsageError
from workloads.eiba.busy_work import KERNELS, Load
from workloads.eiba.period_arguments import Periods, parse_periods
from workloads.eiba.trace_job import periods_of_job
from workloads.task.command_line import LineParser

WORKER_LIMIT = 4096
MEMORY_LIMIT_MIB = 2**30


@dataclass(frozen=True, slots=True)
class EibaOptions:
    """What the user asked for; ``workers`` None means as many as Slurm gave the job here."""

    periods: Periods
    workers: int | None
    report: Path | None
    rendezvous: Path | None
    rendezvous_wait_s: float
    load: Load


def parse_options(arguments: Sequence[str]) -> EibaOptions:
    """Read the command line.

    Raises
    ------
    UsageError
        It cannot be carried out as given.
    """
    parser = LineParser(
        prog="eiba",
        allow_abbrev=False,
        description="Be idle and busy in turn, as a user's interactive job is. "
        "Idle is wall time; busy is CPU time of every worker; all workers meet after each period.",
    )
    parser.add_argument(
        "--workers", metavar="W", help="worker processes on this node (default: the job's CPUs)"
    )
    parser.add_argument("--report", metavar="FILE", type=Path, help="also write the report here")
    parser.add_argument(
        "--rendezvous",
        metavar="FILE",
        type=Path,
        help="where the nodes of a job find each other, on a file system that all see "
        "(default: .eiba-JOB.STEP.RESTART.rendezvous in the working directory)",
    )
    parser.add_argument(
        "--rendezvous-wait-s",
        metavar="S",
        default="60",
        help="how long to wait for the other nodes (default: %(default)s)",
    )
    parser.add_argument(
        "--kernel", choices=sorted(KERNELS), default="smoother", help="what to compute (default: %(default)s)"
    )
    parser.add_argument(
        "--memory-mib", metavar="M", default="0", help="memory that each worker holds, in MiB (default: 0)"
    )
    parser.add_argument(
        "--traffic",
        metavar="SHARE",
        default="0",
        help="share of busy CPU time that reads and writes that memory, from 0 to 1 (default: 0)",
    )
    parser.add_argument(
        "--swf", metavar="TRACE", type=Path, help="take the periods from this extended SWF trace"
    )
    parser.add_argument("--job", metavar="J", help="of this job of the trace")
    parser.add_argument("periods", nargs="*", metavar="N t0 t1 ...", help="count, then seconds, idle first")
    options = parser.parse_args(list(arguments))
    return EibaOptions(
        periods=_periods(options),
        workers=_workers(options.workers),
        report=options.report,
        rendezvous=options.rendezvous,
        rendezvous_wait_s=_wait(options.rendezvous_wait_s),
        load=Load(options.kernel, _memory_mib(options.memory_mib), _traffic(options)),
    )


def _periods(options: argparse.Namespace) -> Periods:
    if options.swf is None and options.job is None:
        return parse_periods(options.periods)
    if options.swf is None or options.job is None or options.periods:
        raise UsageError("give N t0 t1 ..., or --swf TRACE and --job J, not parts of both")
    if not options.job.isascii() or not options.job.isdigit():
        raise UsageError(f"--job is {options.job!r}; expected a job number of the trace")
    return periods_of_job(options.swf, int(options.job))


def _memory_mib(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > MEMORY_LIMIT_MIB:
        raise UsageError(f"--memory-mib is {text!r}; expected a whole number of MiB")
    return int(text)


def _traffic(options: argparse.Namespace) -> float:
    try:
        share = float(options.traffic)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise UsageError(f"--traffic is {options.traffic!r}; expected a share from 0 to 1")
    if share > 0 and options.memory_mib == "0":
        raise UsageError("--traffic needs --memory-mib: the memory that is read and written")
    return share


def _workers(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= WORKER_LIMIT:
        raise UsageError(f"--workers is {text!r}; expected a whole number from 1 to {WORKER_LIMIT}")
    return int(text)


def _wait(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise UsageError(f"--rendezvous-wait-s is {text!r}; expected a number of seconds above 0")
    return seconds
