"""What a replay was asked for, kept in the RUN so that ``--resume`` does the same."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from foundation.errors import InputError, UsageError
from foundation.mpi_start import mpi_environment
from foundation.records import GangSettings, RunInfo
from foundation.records.row_types import Option
from submitter.plan.replay_plan import PlanOptions, ReplayOversize
from submitter.plan.target_cluster import RequestedTarget


class Clock(Protocol):
    """What a replay knows of time; tests have one that they turn themselves."""

    def wall(self) -> float:
        """Return seconds since the epoch, as Slurm and the jobs stamp them; this clock may be set."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never jumps: submissions are paced by it."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The host's clocks."""

    def wall(self) -> float:
        """Return ``time.time()``."""
        return time.time()

    def monotonic(self) -> float:
        """Return ``time.monotonic()``."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long, in seconds.

    Attributes
    ----------
    turn_s
        Between two looks at what the user wants.
    poll_s
        Between two questions to Slurm, at least.
    away_s
        Before a submission that did not reach Slurm is tried again.
    look_s
        How long Slurm must have answered, without the job, before a submission that got no answer is made
        again. Slurm's own messages last for MessageTimeout, and may wait in a controller that hangs.
    gone_s
        How long Slurm must have answered without a job, in a row, before the job is lost.
    stamps_s
        How long the stamps of a job that ended well may take to become visible (NFS).
    killed_s
        The same for a job that was killed and may never have written them, and for the second life of one
        whose node failed.
    never_s
        How long a job may wait for a reason that only another job could cure.
    patience_s
        How long a job may wait for a reason that an operator could cure.
    """

    turn_s: float = 0.1
    poll_s: float = 1.0
    away_s: float = 1.0
    look_s: float = 25.0
    gone_s: float = 15.0
    stamps_s: float = 60.0
    killed_s: float = 8.0
    never_s: float = 15.0
    patience_s: float = PATIENCE_S


_LEAST_LOOK_S = 25.0
_MESSAGES = 2.5


def look_back_s(config: Mapping[str, str]) -> float:
    """Return ``look_s`` for a Slurm with this configuration: two and a half message timeouts."""
    words = config.get("MessageTimeout", "").split()
    timeout_s = int(words[0]) if words and words[0].isdecimal() else 10
    return max(_LEAST_LOOK_S, _MESSAGES * timeout_s)


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}", re.ASCII)
_FOREIGN = re.compile(r"(?:SLURM|SBATCH|SRUN|PMI|PMIX)_")
_WORDS = ("partition", "interactive_partition", "account", "qos", "reservation")
_TEXTS = ("calibration", "slices", "sbatch_options", "environment", "on_demand", "on_demand_settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How to replay a trace.

    Attributes
    ----------
    start_s, length_s
        Part of the trace to replay, in its own seconds; None: from the first submission, to the end.
    speedup
        What every time of the trace is divided by.
    interactive_queue
        SWF queue of interactive jobs, None for none.
    seed
        For the busy and idle periods of interactive jobs that the trace gives none.
    oversize
        What to do with jobs that can never run; None: skip them, unless they are the most.
    dependencies
        Whether a job that names a preceding one is submitted after its end; else the RUN's trace has no such
        jobs.
    use_memory
        Whether Slurm is asked for the trace's memory.
    gang
        Who takes turns on shared cores; under gangd the requested times stand.
    pin
        Whether tasks bind themselves to Slurm's cores (embedded nodes of several cores).
    calibration
        rrba's stored step times.
    label, trial
        Name for tables, and number of the repetition.
    wanted
        Which part of the cluster to use.
    account, qos, reservation, sbatch_options
        As ``sbatch`` has them; ``foundation.slurm.run_command.check_options`` has seen the last.
    no_requeue
        Whether Slurm may never start a job again.
    environment
        Variables of each job besides its PATH, HOME and LANG: of MPI's start, and what is exported.
    patience_s
        How long a job may wait for a reason that does not pass by itself.
    slices
        Where the gang scheduler writes its slices, None where there is none.
    on_demand, on_demand_settings
        The mechanism for on-demand jobs, such as ``cua-paa``, and its settings ``NAME=VALUE``; None: none.
    block_jobs
        The trace is the same so many jobs again and again; None: it is not known to repeat itself.
    run_id
        Part of the names of the jobs in Slurm.
    """

    start_s: float | None = None
    length_s: float | None = None
    speedup: float = 1.0
    interactive_queue: int | None = 0
    seed: int = 1
    oversize: ReplayOversize | None = None
    dependencies: bool = True
    use_memory: bool = True
    gang: GangSettings = field(default_factory=GangSettings)
    pin: bool = False
    calibration: Path | None = None
    label: str | None = None
    trial: int = 1
    wanted: RequestedTarget = field(default_factory=RequestedTarget)
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    sbatch_options: tuple[str, ...] = ()
    no_requeue: bool = False
    environment: Mapping[str, str] = field(default_factory=lambda: mpi_environment(os.environ))
    patience_s: float = PATIENCE_S
    slices: Path | None = None
    block_jobs: int | None = None
    on_demand: str | None = None
    on_demand_settings: tuple[str, ...] = ()
    run_id: str = field(default_factory=lambda: secrets.token_hex(4))

    def stored(self) -> dict[str, Option]:
        """Return what ``restored`` needs, as options of ``run.json``."""
        return {
            "run_id": self.run_id,
            "start_s": self.start_s,
            "length_s": self.length_s,
            "interactive_queue": self.interactive_queue,
            "oversize": str(self.oversize or ReplayOversize.SKIP),
            "use_memory": self.use_memory,
            "pin": self.pin,
            "calibration": None if self.calibration is None else str(self.calibration),
            "partition": self.wanted.partition,
            "interactive_partition": self.wanted.interactive_partition,
            "account": self.account,
            "qos": self.qos,
            "reservation": self.reservation,
            "sbatch_options": shlex.join(self.sbatch_options),
            "no_requeue": self.no_requeue,
            "environment": shlex.join(f"{name}={value}" for name, value in self.environment.items()),
            "patience_s": self.patience_s,
            "slices": None if self.slices is None else str(self.slices),
            "block_jobs": self.block_jobs,
            "on_demand": self.on_demand,
            "on_demand_settings": shlex.join(self.on_demand_settings),
        }

    def timing(self, look_s: float) -> Timing:
        """Return how long to wait for what, where a submission without answer is looked for so long."""
        return Timing(look_s=look_s, patience_s=self.patience_s)

    def plan_options(self, multiplicity: int, multiplicity_interactive: int | None = None) -> PlanOptions:
        """Return how the plan is made on a cluster of this multiplicity (None: the same for both kinds)."""
        limits_stand = self.gang.kind == "osub"
        return PlanOptions(
            interactive_queue=self.interactive_queue,
            request_factor=1 if limits_stand else multiplicity,
            interactive_factor=None if limits_stand else multiplicity_interactive,
            oversize=self.oversize,
            use_memory=self.use_memory,
        )


def exported(words: Sequence[str], caller: Mapping[str, str], *, one_host: bool = False) -> dict[str, str]:
    """Return the variables of words ``NAME`` or ``NAME=VALUE``, and those of MPI's start.

    ``one_host``: all nodes are this host.

    Raises
    ------
    UsageError
        A word has no name, names what osub or Slurm sets, or names a variable that ``caller`` does not have.
    """
    chosen: dict[str, str] = {}
    for word in words:
        name, given, value = word.partition("=")
        if not _NAME.fullmatch(name):
            raise UsageError(f"--export takes NAME or NAME=VALUE, the name of a variable, not {word[:80]!r}")
        if name in {"PATH", "HOME"} or _FOREIGN.match(name):
            raise UsageError(f"--export {name} can't be set: osub, Slurm or the launcher sets it in each job")
        if not given and name not in caller:
            raise UsageError(f"--export {name}: it is not set here; set it, or give {name}=VALUE")
        chosen[name] = value if given else caller[name]
    return mpi_environment({**caller, **chosen}, one_host=one_host) | chosen


def restored(info: RunInfo) -> ReplayOptions:
    """Return the options of a RUN that a replay began.

    Raises
    ------
    InputError
        It is no such RUN.
    """
    options = info.options
    run_id, queue = options.get("run_id"), options.get("interactive_queue")
    words = {
        name: value if isinstance(value := options.get(name), str) else None for name in (*_WORDS, *_TEXTS)
    }
    patience_s, block_jobs = options.get("patience_s"), options.get("block_jobs")
    if info.kind != "real" or not isinstance(run_id, str):
        raise InputError(f"run {info.label} was not begun by a replay: it can't be resumed")
    variables = shlex.split(words["environment"] or "")
    return ReplayOptions(
        speedup=info.speedup,
        interactive_queue=queue if isinstance(queue, int) else None,
        seed=info.seeds.get("interactive", 1),
        oversize=ReplayOversize(str(options.get("oversize", ReplayOversize.SKIP))),
        use_memory=bool(options.get("use_memory", True)),
        gang=info.gang,
        pin=bool(options.get("pin", False)),
        calibration=None if words["calibration"] is None else Path(words["calibration"]),
        label=info.label,
        trial=info.trial,
        wanted=RequestedTarget(
            partition=words["partition"],
            interactive_partition=words["interactive_partition"],
            names=info.node_names,
        ),
        account=words["account"],
        qos=words["qos"],
        reservation=words["reservation"],
        sbatch_options=tuple(shlex.split(words["sbatch_options"] or "")),
        no_requeue=bool(options.get("no_requeue", False)),
        environment=dict(one.split("=", 1) for one in variables) or mpi_environment(os.environ),
        patience_s=patience_s if isinstance(patience_s, float) else PATIENCE_S,
        slices=None if words["slices"] is None else Path(words["slices"]),
        block_jobs=block_jobs if isinstance(block_jobs, int) else None,
        on_demand=words["on_demand"],
        on_demand_settings=tuple(shlex.split(words["on_demand_settings"] or "")),
        run_id=run_id,
    )
