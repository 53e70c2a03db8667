"""The command line of ``eiba``, with its periods; read without loading what a short job does not need.

Periods are words ``N t0 t1 t2 ...``, idle first, or those of a job of a trace. Source: thesis table 7.3, with
decimals, since a compressed trace has periods below a second; for a trace, section 6.3.4 and Table 6.1,
columns 22 and up.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import UsageError
from workloads.eiba.busy_work import KERNELS, Load
from workloads.task.slurm_task import LineParser, number_of, seconds_option, whole_option

WORKER_LIMIT = 4096
MEMORY_LIMIT_MIB = 2**30

FORM = "expected N t0 t1 t2 ...: the number of periods, then each one's seconds, idle first"


@dataclass(frozen=True, slots=True)
class EibaOptions:
    """What the user asked for; ``workers`` None means as many as Slurm gave the job here."""

    periods: BusyPeriods
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
        workers=whole_option("--workers", options.workers, WORKER_LIMIT),
        report=options.report,
        rendezvous=options.rendezvous,
        rendezvous_wait_s=seconds_option("--rendezvous-wait-s", options.rendezvous_wait_s),
        load=Load(options.kernel, _memory_mib(options.memory_mib), _traffic(options)),
    )


def _periods(options: argparse.Namespace) -> BusyPeriods:
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
    share = number_of(options.traffic)
    if not 0 <= share <= 1:
        raise UsageError(f"--traffic is {options.traffic!r}; expected a share from 0 to 1")
    if share > 0 and options.memory_mib == "0":
        raise UsageError("--traffic needs --memory-mib: the memory that is read and written")
    return share


@dataclass(frozen=True, slots=True)
class BusyPeriods:
    """Alternating periods in seconds, the first one idle."""

    seconds: tuple[float, ...]

    @property
    def idle_s(self) -> float:
        """Idle seconds asked for, in wall time."""
        return math.fsum(self.seconds[0::2])

    @property
    def busy_s(self) -> float:
        """Busy seconds asked for, in each worker's own CPU time."""
        return math.fsum(self.seconds[1::2])

    def is_busy(self, index: int) -> bool:
        """Say whether period ``index`` (from 0) is a busy one."""
        return index % 2 == 1


def parse_periods(words: Sequence[str]) -> BusyPeriods:
    """Read the arguments of the application.

    Raises
    ------
    UsageError
        The count is missing, below 1 or not that of the durations, or a duration is not a finite
        number of seconds, 0 or more.
    """
    if not words:
        raise UsageError(f"no periods given; {FORM}")
    if not words[0].isascii() or not words[0].isdigit() or int(words[0]) < 1:
        raise UsageError(f"the number of periods is {words[0]!r}, not a whole number of at least 1; {FORM}")
    if int(words[0]) != len(words) - 1:
        raise UsageError(f"{words[0]} periods announced, {len(words) - 1} given; {FORM}")
    return BusyPeriods(tuple(_duration(place, word) for place, word in enumerate(words[1:])))


def _duration(place: int, word: str) -> float:
    seconds = number_of(word)
    if not math.isfinite(seconds) or seconds < 0:
        raise UsageError(f"period t{place} is {word!r}; a period is a number of seconds, 0 or more")
    return seconds


def periods_of_job(trace: Path, number: int) -> BusyPeriods:
    """Return the periods of job ``number`` of ``trace``.

    Raises
    ------
    InputError
        The trace cannot be read.
    UsageError
        It has no such job, or the job has no busy and idle periods.
    """
    from workloads.swf import iter_swf  # here, since periods on the command line need no reader

    reader = iter_swf(trace, strict=False)
    try:
        job = next((job for job in reader if job.job_number == number), None)
    finally:
        reader.close()
    if job is None:
        raise UsageError(f"{trace} has no job {number}; choose another --job")
    if job.pattern is None:
        raise UsageError(
            f"job {number} of {trace} has no busy and idle periods (columns 22 and up); "
            "add them with `osub trace interactive`"
        )
    return BusyPeriods(job.pattern.periods_s)
