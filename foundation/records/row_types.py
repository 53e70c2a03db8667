"""The rows of a RUN, and ``run.json``, which says what ran where.

Rows are jobs, their allocations, time slices of a gang scheduler, and who used the host.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from foundation.version import VERSION

SCHEMA_VERSION = 1

RunKind = Literal["real", "simulated"]
QueueLayout = Literal["sq", "mq"]
GangKind = Literal["none", "slurm", "osub"]
HoldKind = Literal["freeze", "yield"]
Option = str | int | float | bool | None

Text = Annotated[str, Meta(min_length=1)]
ConfigText = Annotated[str, Meta(max_length=4096)]
Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Duration = Annotated[float, Meta(ge=0)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
SystemName = Annotated[str, Meta(pattern="^N[1-9][0-9]*C[1-9][0-9]*$")]
UtcInstant = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$")]


class GangSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How jobs that share cores take turns."""

    kind: Annotated[
        GangKind,
        Meta(description="`none`: the operating system alone. `slurm`: its gang scheduler. `osub`: gangd."),
    ] = "none"
    quantum_ms: Annotated[Positive | None, Meta(description="Length of a time slice.")] = None
    lease_s: Annotated[Positive | None, Meta(description="Lease in gangd's messages.")] = None
    lookahead: Annotated[Whole | None, Meta(description="Slices published ahead.")] = None
    hold: Annotated[
        HoldKind | None,
        Meta(
            description="`freeze`: a suspended job does not run. `yield`: it runs on CPU time that the"
            " slice's owner leaves idle."
        ),
    ] = None
    freezer: Annotated[str | None, Meta(description="Freezer that the agents chose.")] = None


class HostInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machine on which the command ran."""

    name: Annotated[str, Meta(description="Host name.")]
    cpus: Annotated[Count | None, Meta(description="CPUs that the command could use.")] = None
    cpu_model: Annotated[str | None, Meta(description="Model of the CPU.")] = None
    memory_mib: Annotated[Whole | None, Meta(description="Memory.")] = None
    os: Annotated[str | None, Meta(description="Operating system and kernel.")] = None

    @classmethod
    def here(cls) -> HostInfo:
        """Describe this machine, leaving null what it does not tell."""
        return cls(
            name=platform.node() or "localhost",
            cpus=len(os.sched_getaffinity(0)),
            cpu_model=_first_value(Path("/proc/cpuinfo"), "model name", ":"),
            memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
            os=" ".join(
                part
                for part in (_first_value(Path("/etc/os-release"), "PRETTY_NAME", "="), platform.release())
                if part
            ),
        )


class RunInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of ``run.json``."""

    schema_version: Annotated[Count, Meta(description="Version of the RUN schema.")] = SCHEMA_VERSION
    kind: Annotated[RunKind, Meta(description="Whether a Slurm cluster or the simulator ran the trace.")]
    label: Annotated[Text, Meta(description="Short name for tables and charts.")]
    trace_name: Annotated[Text, Meta(description="Name of the trace.")]
    trace_sha256: Annotated[
        Sha256 | None,
        Meta(description="SHA-256 of the text in `trace.swf.gz`; the writer fills it in."),
    ] = None
    system: Annotated[SystemName, Meta(description="`N12C12` is 12 nodes of 12 cores.")]
    node_names: Annotated[
        tuple[str, ...] | None, Meta(description="Every node of the system, in its order; idle ones too.")
    ] = None
    queues: Annotated[
        QueueLayout,
        Meta(description="`sq`: one queue for all jobs. `mq`: some nodes are kept for interactive jobs."),
    ]
    policy: Annotated[Text, Meta(description="Queue policy, such as `fcfs` or `easy`.")]
    scheduler: Annotated[
        str | None, Meta(description="Program that applied it, such as `sched/backfill`; null if simulated.")
    ] = None
    multiplicity: Annotated[
        Count, Meta(description="M: jobs that may be allocated to a core (of the batch nodes, under `mq`).")
    ]
    multiplicity_interactive: Annotated[
        Count | None, Meta(description="The same for the interactive nodes; null under `sq`.")
    ] = None
    interactive_nodes: Annotated[
        Count | None, Meta(description="Nodes kept for interactive jobs; null under `sq`.")
    ] = None
    gang: Annotated[GangSettings, Meta(description="How jobs that share cores take turns.")] = GangSettings()
    seeds: Annotated[dict[str, int], Meta(description="Seeds of what was drawn at random, by name.")] = {}
    speedup: Annotated[Positive, Meta(description="Factor by which the trace's times were divided.")] = 1.0
    trial: Annotated[Count, Meta(description="Number of the repetition.")] = 1
    tool_version: Annotated[str, Meta(description="Version of osub.")] = msgspec.field(
        default_factory=lambda: VERSION
    )
    slurm_version: Annotated[str | None, Meta(description="Version of Slurm; null if simulated.")] = None
    slurm_config: Annotated[
        dict[Text, ConfigText] | None,
        Meta(
            description="What of Slurm's configuration says when jobs start, as `scontrol show config` has "
            "it; null if simulated, or not recorded."
        ),
    ] = None
    host: Annotated[HostInfo | None, Meta(description="Machine on which the command ran.")] = None
    started: Annotated[
        UtcInstant,
        Meta(description="Real: the UTC instant of second 0. Simulated: when the command started."),
    ]
    wall_s: Annotated[
        Duration | None,
        Meta(description="Wall time of the whole command; null until the run is finished."),
    ] = None
    cpu_s: Annotated[Duration | None, Meta(description="CPU time of the whole command.")] = None
    engine_cpu_s: Annotated[
        Duration | None,
        Meta(description="CPU time inside the simulator's engine, compiled and cached; null if real."),
    ] = None
    options: Annotated[
        dict[str, Option], Meta(description="Every other option that shaped the run, by its name.")
    ] = {}
    other_overheads: Annotated[
        dict[Text, dict[Text, float]],
        Meta(
            description="Simulated with shared cores: by another C_o, the means of `wait_s`, `turnaround_s` "
            "and `degradation` over the completed jobs; empty where none was simulated."
        ),
    ] = {}

    @property
    def most_a_core(self) -> int:
        """Most jobs that may share a core of any node."""
        return max(self.multiplicity, self.multiplicity_interactive or 1)

    @property
    def capacity_cores(self) -> int:
        """Cores of the whole system, from ``system``."""
        nodes, cores = self.system[1:].split("C")
        return int(nodes) * int(cores)


def _first_value(path: Path, key: str, separator: str) -> str | None:
    """Return the value of the first ``key`` line of a file of the system, or None."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, found, value = line.partition(separator)
        if found and name.strip() == key:
            return value.strip().strip('"')
    return None


JobKind = Literal["batch", "interactive", "ondemand"]
Elasticity = Literal["rigid", "malleable"]
JobState = Literal["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "REFUSED", "LOST"]
AllocationCause = Literal["start", "resize", "requeue", "checkpoint", "preemption"]
SliceRole = Literal["run", "held", "leftover", "idle", "free", "unattended"]

Number = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0, extra={"unit": "s"})]
CoreSeconds = Annotated[float, Meta(ge=0, extra={"unit": "core s"})]
Nodes = Annotated[int, Meta(ge=1, extra={"unit": "nodes"})]


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cores that a job holds on one node.

    Parameters
    ----------
    node
        Name of the node.
    cores
        Core ids on that node, ascending, each once, at least one.
    """

    node: str
    cores: tuple[int, ...]


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job of the trace and what became of it.

    The key is ``trace_job``. While a run is being written ``state`` may be null ("not ended yet"); a finished
    run has a state in every row.
    """

    job_id: Annotated[
        Number | None,
        Meta(
            description="Number by which the scheduler knows the job; simulated runs repeat `trace_job`."
            " Null if the scheduler never took it. `job` in the other tables means this number."
        ),
    ] = None
    trace_job: Annotated[Number, Meta(description="Number of the job in the trace (SWF field 1); the key.")]
    kind: Annotated[JobKind, Meta(description="Which of the three kinds of job it is.")]
    elasticity: Annotated[
        Elasticity, Meta(description="Whether the number of nodes may change while the job runs.")
    ] = "rigid"
    app: Annotated[str | None, Meta(description="Application that ran, such as `eiba` or `rrba`.")] = None
    args: Annotated[str | None, Meta(description="Its arguments, as one shell-quoted line.")] = None
    user: Annotated[str | None, Meta(description="User of the job (SWF field 12).")] = None
    queue: Annotated[
        str | None, Meta(description="Queue or partition that the job was submitted to (SWF field 15).")
    ] = None
    nodes: Annotated[Nodes, Meta(description="Nodes that the job asks for.")]
    cores: Annotated[
        Annotated[int, Meta(ge=1, extra={"unit": "cores"})],
        Meta(description="Cores that the job asks for, all of its nodes together."),
    ]
    memory_mib: Annotated[
        Annotated[int, Meta(ge=0, extra={"unit": "MiB a core"})] | None,
        Meta(description="Memory asked for each core (SWF field 10, else 7); null is unconstrained."),
    ] = None
    due_s: Annotated[Seconds, Meta(description="When the trace wants the job submitted.")]
    submitted_s: Annotated[
        Seconds | None,
        Meta(
            description="When the submission call returned; minus `due_s` it is the submission lag."
            " A job may start before the call returns."
        ),
    ] = None
    submit_s: Annotated[
        Seconds | None,
        Meta(
            description="When the job entered the queue: waiting counts from here. Slurm stamps whole"
            " seconds, so a real run takes the later of that stamp and the beginning of the submission call."
        ),
    ] = None
    start_s: Annotated[
        Seconds | None,
        Meta(
            description="When the job began to run, the last time if it began again; null if it never did."
            " Never before `submit_s`."
        ),
    ] = None
    end_s: Annotated[
        Seconds | None,
        Meta(
            description="When the job ended, or was cancelled while it waited. Never before `start_s`,"
            " nor before `submit_s`."
        ),
    ] = None
    requested_s: Annotated[
        Seconds | None,
        Meta(
            description="Run time that the trace asks for (SWF field 9), before any allowance for sharing;"
            " null is no limit."
        ),
    ] = None
    dedicated_s: Annotated[
        Seconds | None, Meta(description="Run time with every core to itself (the thesis's T_a).")
    ] = None
    busy_s: Annotated[
        Seconds | None,
        Meta(description="The part of `dedicated_s` in which the job computes; the rest it idles."),
    ] = None
    cpu_s: Annotated[
        CoreSeconds | None, Meta(description="CPU time that the job used, all of its cores together.")
    ] = None
    frozen_s: Annotated[
        Seconds | None, Meta(description="Wall time that a gang scheduler kept the job frozen.")
    ] = None
    placement: Annotated[
        tuple[Placement, ...] | None,
        Meta(
            description="What the job held last: a list of `node` and `cores`, the latter core ids in Slurm's"
            " notation, such as `0-3,7`. Never an empty list."
        ),
    ] = None
    state: Annotated[
        JobState | None,
        Meta(
            description="How the job ended. `REFUSED`: the scheduler never took it; it has no start and no"
            " end. `LOST`: its end is unknown. `COMPLETED` has a start and an end. Null only while the run"
            " goes on."
        ),
    ] = None
    exit_code: Annotated[
        Number | None,
        Meta(description="Exit code; 128 plus the signal's number for a job that a signal ended."),
    ] = None
    preemptions: Annotated[Number, Meta(description="How often the job was preempted.")] = 0
    notice_s: Annotated[Seconds | None, Meta(description="When an on-demand job announced itself.")] = None
    predicted_s: Annotated[
        Seconds | None, Meta(description="When its notice said that an on-demand job would arrive.")
    ] = None
    setup_s: Annotated[Seconds | None, Meta(description="Time spent on setting up, restarts included.")] = (
        None
    )
    wasted_s: Annotated[
        Seconds | None,
        Meta(description="Time on cores that preemption or a requeue threw away, set-up aside."),
    ] = None
    steps: Annotated[Number | None, Meta(description="Time steps that the application made.")] = None
    step_s: Annotated[
        Seconds | None,
        Meta(
            description="What one of them takes on dedicated cores, as calibrated, or as the job measured in"
            " its first quarter."
        ),
    ] = None
    steps_cpu_s: Annotated[
        Seconds | None,
        Meta(
            description="CPU time that the steps took on the rank that used most. Over `steps` times `step_s`"
            " it is the job's pace: 1.1 is a host slower by a tenth than the calibrated one."
        ),
    ] = None
    first_step_s: Annotated[
        Seconds | None,
        Meta(description="When the application made its first time step; before it is the job's start-up."),
    ] = None
    last_step_s: Annotated[
        Seconds | None,
        Meta(description="When the application had made its last time step and checked the answer."),
    ] = None
    min_nodes: Annotated[Nodes | None, Meta(description="Fewest nodes that a malleable job runs on.")] = None
    max_nodes: Annotated[Nodes | None, Meta(description="Most nodes that a malleable job can use.")] = None
    preferred_nodes: Annotated[
        Nodes | None, Meta(description="Nodes that a malleable job prefers, between the two.")
    ] = None


class AllocationRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stretch of time in which a job held the same cores.

    A job has a *life* for each time that it is started: the first one, and one more after each requeue or
    preemption. A life is one stretch, and one more for each resize. Where a job has rows here they are all of
    its stretches, and no two of them overlap; a job without rows has one life, which `jobs` tells.
    """

    job: Annotated[Number, Meta(description="`job_id` of the job.")]
    from_s: Annotated[Seconds, Meta(description="Beginning. Never before the job's `submit_s`.")]
    to_s: Annotated[
        Seconds | None,
        Meta(description="End; null if it is not known. Never before `from_s`, nor after the job's `end_s`."),
    ] = None
    placement: Annotated[
        tuple[Placement, ...] | None,
        Meta(description="What was held, as in `jobs`; null if not observed."),
    ] = None
    why: Annotated[
        AllocationCause,
        Meta(
            description="What the stretch began with. `start`: the job's first start. `resize`: the same life"
            " goes on with other cores. The others begin a new life. `requeue`: the job was put back to the"
            " queue, to start from nothing. `preemption`: it was preempted, or suspended. `checkpoint`: it"
            " goes on from one that it had made."
        ),
    ]
    setup_s: Annotated[
        Seconds | None,
        Meta(
            description="The part of the stretch, at its beginning, that went on setting up; null: an equal"
            " part of the job's `setup_s` for each life."
        ),
    ] = None
    wasted_s: Annotated[
        Seconds | None,
        Meta(
            description="The part of the stretch, at its end and without the set-up, that was lost;"
            " null: what `jobs` says, and without a value there, all of an attempt that a requeue ended."
        ),
    ] = None


class SliceRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """What one job did on one node in one time slice."""

    slice: Annotated[Number, Meta(description="Number of the slice, the same on every node.")]
    start_s: Annotated[Seconds, Meta(description="Published start of the slice.")]
    length_s: Annotated[
        Annotated[float, Meta(gt=0, extra={"unit": "s"})], Meta(description="Length of the slice.")
    ]
    job: Annotated[Number, Meta(description="`job_id` of the job.")]
    node: Annotated[Annotated[str, Meta(min_length=1)], Meta(description="Name of the node.")]
    role: Annotated[
        SliceRole,
        Meta(
            description="`run`: the slice is the job's. `held`: the job is busy and frozen. `leftover`: the"
            " job is busy and yields: it uses what the slice's owners leave of their cores. `idle`: the job"
            " has nothing to compute and is not held. `free`: the job computes although the slice is not its"
            " own (it woke up, or shares no core). `unattended`: no agent acted on the node,"
            " so the job shared its cores as the operating system has it; rows are about a second long."
        ),
    ]
    cpu_s: Annotated[
        CoreSeconds | None, Meta(description="CPU time that the job used on the node in the slice.")
    ] = None
    skew_us: Annotated[
        Annotated[float, Meta(extra={"unit": "µs"})] | None,
        Meta(description="How late the node acted on the slice; negative is early."),
    ] = None
    freeze_us: Annotated[
        Annotated[float, Meta(ge=0, extra={"unit": "µs"})] | None,
        Meta(description="Time until all tasks of the job were frozen or thawed."),
    ] = None


class HostRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """Who used a host's CPUs during about a second of a real run.

    Of the CPUs that the nodes of an embedded cluster are pinned to, all of the host's where they are not.
    Used and stolen time is the kernel's (proc(5)); what is used and not the run's own is foreign.
    """

    at_s: Annotated[Seconds, Meta(description="End of the sample.")]
    length_s: Annotated[
        Annotated[float, Meta(gt=0, extra={"unit": "s"})], Meta(description="Length of the sample.")
    ]
    host: Annotated[Annotated[str, Meta(min_length=1)], Meta(description="Name of the host.")]
    cpus: Annotated[
        Annotated[int, Meta(ge=1, extra={"unit": "CPUs"})], Meta(description="CPUs that the sample is of.")
    ]
    load: Annotated[
        Annotated[float, Meta(ge=0)] | None, Meta(description="The host's load average over one minute.")
    ] = None
    used_s: Annotated[CoreSeconds, Meta(description="CPU time that anybody used.")]
    steal_s: Annotated[
        CoreSeconds, Meta(description="CPU time that the hypervisor took while a process wanted it.")
    ]
    own_s: Annotated[
        CoreSeconds | None,
        Meta(description="CPU time of the run: jobs, the cluster's daemons, the command that replays."),
    ] = None
