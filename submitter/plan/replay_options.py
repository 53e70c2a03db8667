"""What a replay was asked for, kept in the RUN so that ``--resume`` does the same."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec

from foundation.errors import InputError, UsageError
from foundation.mpi_start import mpi_environment
from foundation.records import GangSettings, RunInfo
from foundation.records.row_types import Option
from foundation.specification import PathText, about
from foundation.units import counted
from submitter.plan.replay_plan import PlanOptions, ReplayOversize
from submitter.plan.target_cluster import DownNodes, RequestedTarget, TargetCluster
from workloads.swf import read_swf, write_swf
from workloads.trace.scaling import make_miniature
from workloads.trace.transforms import BusyWindow


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


class ReplaySpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay takes: options of ``osub replay``, keys of a sweep's replays."""

    trace: Annotated[PathText | None, about("Trace in SWF, plain or gzip.", argument=True)] = None
    out: Annotated[PathText | None, about("RUN folder to write.", swept=False, required=True)] = None
    cluster: Annotated[PathText | None, about("Folder with slurm.conf (an embedded cluster's).")] = None
    start: Annotated[float | None, about("First second of the trace to replay.")] = None
    length: Annotated[float | None, about("How many seconds of it.")] = None
    speedup: Annotated[float, about("Divide every time of the trace by this.")] = 1.0
    fit: Annotated[
        float | None,
        about(
            "Scale the trace to this cluster and to so many seconds: sizes, run times and arrivals.",
            metavar="SECONDS",
        ),
    ] = None
    interactive_queue: Annotated[int, about("SWF queue of interactive jobs; -1: there are none.")] = 0
    apps: Annotated[PathText | None, about("CSV trace_job,app,args[,application].")] = None
    pairing: Annotated[
        PathText | None,
        about(
            "Keep applications apart that harm each other: pairs measured, a model, or CSV.", metavar="FILE"
        ),
    ] = None
    pairing_threshold: Annotated[
        float | None, about("Loss from which a pair is harmful (default: 1 - 1/M + 0.05).", metavar="SHARE")
    ] = None
    oversize: Annotated[
        ReplayOversize | None,
        about("Jobs that can never run, for size or limit. Not said: skip, unless most never can."),
    ] = None
    dependencies: Annotated[
        bool,
        about(
            "Submit a job that names a preceding job (SWF field 17) after that one's end.",
            option="--dependencies/--no-dependencies",
        ),
    ] = True
    lenient: Annotated[bool, about("Skip and count malformed lines instead of stopping at the first.")] = (
        False
    )
    memory: Annotated[bool, about("Ask Slurm for the trace's memory.", option="--memory/--no-memory")] = True
    seed: Annotated[int, about("For interactive periods that the trace lacks.")] = 1
    label: Annotated[str | None, about("Name of the run in tables.", swept=False)] = None
    trial: Annotated[int, about("Number of the repetition.", ge=1)] = 1
    calibration: Annotated[PathText | None, about("rrba's stored step times.")] = None
    partition: Annotated[str | None, about("Partition of the jobs; by default the cluster's own.")] = None
    interactive_partition: Annotated[str | None, about("Another one for interactive jobs.")] = None
    down_nodes: Annotated[
        DownNodes, about("Nodes that take no jobs: an error, or left out.", swept=False)
    ] = DownNodes.FAIL
    account: Annotated[str | None, about("Account of the jobs.")] = None
    qos: Annotated[str | None, about("Quality of service of the jobs.")] = None
    reservation: Annotated[str | None, about("Reservation of the jobs.", swept=False)] = None
    sbatch_option: Annotated[
        Sequence[str] | None,
        about(
            "Another long option of sbatch, without dashes; may be repeated.",
            metavar="NAME[=VALUE]",
            swept=False,
        ),
    ] = None
    export: Annotated[
        Sequence[str] | None,
        about(
            "A variable for each job; may be repeated. The RUN keeps it. MPIR_CVAR_*, UCX_*, FI_* pass.",
            metavar="NAME[=VALUE]",
            swept=False,
        ),
    ] = None
    on_demand: Annotated[
        str | None,
        about(
            "Free nodes for on-demand jobs: n-paa, n-spaa, cua-paa, cua-spaa, cup-paa, cup-spaa, or share.",
            metavar="MECHANISM",
            swept=False,
        ),
    ] = None
    settings: Annotated[
        Sequence[str] | None,
        about(
            "An option of {on_demand} (docs/hybrid.md), such as jobs=FILE.csv; may be repeated.",
            metavar="NAME=VALUE",
            option="--set",
            swept=False,
        ),
    ] = None
    no_requeue: Annotated[bool, about("Slurm may not start a job a second time.", swept=False)] = False
    patience: Annotated[
        float,
        about(
            "Cancel a job that is held, or without nodes that are up, for so long.",
            metavar="SECONDS",
            swept=False,
        ),
    ] = PATIENCE_S
    gangd: Annotated[
        str,
        about(
            "State folder of the cluster's gangd; none: it has none.", metavar="DIR|auto|none", swept=False
        ),
    ] = "auto"

    @property
    def paths(self) -> tuple[Path, Path, Path | None, Path | None, Path | None]:
        """Trace, RUN, applications, pairs and calibration."""
        assert self.trace is not None
        assert self.out is not None
        apps, pairing, calibration = (
            None if path is None else Path(path) for path in (self.apps, self.pairing, self.calibration)
        )
        return Path(self.trace), Path(self.out), apps, pairing, calibration

    @property
    def queue(self) -> int | None:
        """SWF queue of interactive jobs, None for none."""
        return None if self.interactive_queue < 0 else self.interactive_queue

    @property
    def wanted(self) -> RequestedTarget:
        """Which part of the cluster to use."""
        return RequestedTarget(
            partition=self.partition,
            interactive_partition=self.interactive_partition,
            down_nodes=self.down_nodes,
        )


class ReplayOptions(ReplaySpec, frozen=True, kw_only=True):
    """How to replay a trace: what was asked for, and what was found of the cluster.

    Attributes
    ----------
    gang
        Who takes turns on shared cores; under gangd the requested times stand.
    slices
        Where the gang scheduler writes its slices, None where there is none.
    pin
        Whether tasks bind themselves to Slurm's cores (embedded nodes of several cores).
    environment
        Variables of each job besides its PATH, HOME and LANG: of MPI's start, and what is exported.
    names
        Nodes of the RUN, where one is resumed.
    block_jobs
        The trace is the same so many jobs again and again; None: it is not known to repeat itself.
    run_id
        Part of the names of the jobs in Slurm.
    """

    gang: GangSettings = GangSettings()
    slices: Path | None = None
    pin: bool = False
    environment: Mapping[str, str] = msgspec.field(default_factory=lambda: mpi_environment(os.environ))
    names: tuple[str, ...] | None = None
    block_jobs: int | None = None
    run_id: str = msgspec.field(default_factory=lambda: secrets.token_hex(4))

    @property
    def wanted(self) -> RequestedTarget:
        """Which part of the cluster to use."""
        return replace(super().wanted, names=self.names)

    def stored(self) -> dict[str, Option]:
        """Return what ``restored`` needs, as options of ``run.json``."""
        return {_STORED_AS.get(name, name): _stored(name, getattr(self, name)) for name in _STORED}

    def timing(self, look_s: float) -> Timing:
        """Return how long to wait for what, where a submission without answer is looked for so long."""
        return Timing(look_s=look_s, patience_s=self.patience)

    def plan_options(self, multiplicity: int, multiplicity_interactive: int | None = None) -> PlanOptions:
        """Return how the plan is made on a cluster of this multiplicity (None: the same for both kinds)."""
        limits_stand = self.gang.kind == "osub"
        return PlanOptions(
            interactive_queue=self.queue,
            request_factor=1 if limits_stand else multiplicity,
            interactive_factor=None if limits_stand else multiplicity_interactive,
            oversize=self.oversize,
            use_memory=self.memory,
        )


_STORED = (
    *("run_id", "start", "length", "interactive_queue", "oversize", "memory", "pin", "calibration"),
    *("partition", "interactive_partition", "account", "qos", "reservation", "sbatch_option", "no_requeue"),
    *("environment", "patience", "slices", "block_jobs", "on_demand", "settings"),
)
_STORED_AS = {
    "start": "start_s",
    "length": "length_s",
    "memory": "use_memory",
    "sbatch_option": "sbatch_options",
    "patience": "patience_s",
    "settings": "on_demand_settings",
}
"""Names in ``run.json`` that are not those of the fields."""
_LISTS = ("sbatch_option", "environment", "settings")


def _stored(name: str, value: Any) -> Option:
    if name in _LISTS:
        return shlex.join(map("=".join, value.items()) if isinstance(value, Mapping) else value or ())
    if name == "interactive_queue" and value < 0:
        return None
    if name == "oversize":
        return str(value or ReplayOversize.SKIP)
    return str(value) if isinstance(value, Path) else value


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
    if info.kind != "real" or not isinstance(info.options.get("run_id"), str):
        raise InputError(f"run {info.label} was not begun by a replay: it can't be resumed")
    given: dict[str, Any] = {name: info.options.get(_STORED_AS.get(name, name)) for name in _STORED}
    # The RUN's trace is the part that was asked for.
    del given["start"], given["length"]
    lists = {name: tuple(shlex.split(given.pop(name) or "")) or None for name in _LISTS}
    variables = dict(one.split("=", 1) for one in lists.pop("environment") or ())
    queue, oversize, slices = (given.pop(name) for name in ("interactive_queue", "oversize", "slices"))
    return ReplayOptions(
        **{name: value for name, value in (given | lists).items() if value is not None},
        environment=variables or mpi_environment(os.environ),
        interactive_queue=-1 if queue is None else queue,
        oversize=ReplayOversize(oversize or ReplayOversize.SKIP),
        slices=None if slices is None else Path(slices),
        speedup=info.speedup,
        seed=info.seeds.get("interactive", 1),
        gang=info.gang,
        label=info.label,
        trial=info.trial,
        names=info.node_names,
    )


SHORTEST_S = 10.0


@contextmanager
def fitting(trace: Path, options: ReplaySpec, target: TargetCluster) -> Iterator[tuple[Path, str]]:
    """Give the miniature of a trace as a file, while the context lasts, and a sentence about it.

    It keeps what ``osub trace scale`` keeps: proportions of sizes, run times and arrivals of a busy day, or
    of the stretch from ``start_s``.

    Raises
    ------
    UsageError
        The numbers are none that a replay can have, or the stretch has no jobs.
    InputError
        The trace can't be read.
    """
    seconds = options.fit or 0.0
    if not seconds >= SHORTEST_S:
        raise UsageError(f"--fit takes the seconds that the replay may take, {SHORTEST_S:g} at least")
    start_s, length_s, queue = options.start, options.length, options.queue
    if (start_s is None) != (length_s is None):
        raise UsageError("--fit takes --start and --length together, or finds a busy day itself")
    window = None
    if start_s is not None and length_s is not None:
        end_s = start_s + length_s
        window = BusyWindow(start_s, start_s, end_s, end_s, "--start and --length")
    pool = target.batch
    small = make_miniature(
        read_swf(trace, strict=not options.lenient),
        len(pool.names),
        pool.cores,
        seconds,
        seed=options.seed,
        interactive_queue=queue or 0,
        interactive_jobs=0 if queue is None else None,
        window=window,
    )
    summary = (
        f"{trace.name} fitted to N{len(pool.names)}C{pool.cores}: {counted(len(small.trace.jobs), 'job')}, "
        "about "
        f"{small.makespan_s:.0f} s with one job a core; times between jobs divided by "
        f"{small.arrivals_speedup:.0f}, a run of an hour takes "
        f"{small.run_factor * 3600**small.run_exponent:.1f} s"
    )
    with tempfile.TemporaryDirectory(prefix="osub-fit-") as folder:
        path = Path(folder) / f"{trace.name.removesuffix('.gz').removesuffix('.swf')}-fit.swf.gz"
        write_swf(path, small.trace)
        yield path, summary
