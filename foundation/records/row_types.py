"""The rows of a RUN, and ``run.json``, which says what ran where.

Rows are jobs, their allocations, time slices of a gang scheduler, and who used the host.
"""

from __future__ import annotations

import os
import platform
from datetime import datetime
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
    """How jobs share cores."""

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
            description="`freeze`: a held job does not run. `yield`: it runs on CPU time that the slice's"
            " owner leaves idle."
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
    """What ran where."""

    schema_version: Annotated[Count, Meta(description="Version of the RUN schema.")] = SCHEMA_VERSION
    kind: Annotated[RunKind, Meta(description="Slurm cluster or simulator.")]
    label: Annotated[Text, Meta(description="Short name for tables and charts.")]
    trace_name: Annotated[Text, Meta(description="Name of the trace.")]
    trace_sha256: Annotated[Sha256 | None, Meta(description="SHA-256 of the text in `trace.swf.gz`.")] = None
    system: Annotated[SystemName, Meta(description="`N12C12` is 12 nodes of 12 cores.")]
    node_names: Annotated[
        tuple[str, ...] | None,
        Meta(description="Every node of the system, in its order, then those that came meanwhile."),
    ] = None
    queues: Annotated[
        QueueLayout,
        Meta(description="`sq`: one queue for all jobs. `mq`: interactive jobs have nodes of their own."),
    ]
    policy: Annotated[Text, Meta(description="Queue policy, such as `fcfs` or `easy`.")]
    scheduler: Annotated[
        str | None, Meta(description="Program that applied it, such as `sched/backfill`.")
    ] = None
    multiplicity: Annotated[
        Count, Meta(description="M: jobs that may share a core (`mq`: of the batch nodes).")
    ]
    multiplicity_interactive: Annotated[
        Count | None, Meta(description="The same of the interactive nodes; null under `sq`.")
    ] = None
    interactive_nodes: Annotated[
        Count | None, Meta(description="Nodes kept for interactive jobs; null under `sq`.")
    ] = None
    gang: Annotated[GangSettings, Meta(description="How jobs share cores (below).")] = GangSettings()
    seeds: Annotated[dict[str, int], Meta(description="Seeds of what was drawn at random, by name.")] = {}
    speedup: Annotated[Positive, Meta(description="Factor by which the trace's times were divided.")] = 1.0
    trial: Annotated[Count, Meta(description="Number of the repetition.")] = 1
    tool_version: Annotated[str, Meta(description="Version of osub.")] = msgspec.field(
        default_factory=lambda: VERSION
    )
    slurm_version: Annotated[str | None, Meta(description="Version of Slurm.")] = None
    slurm_config: Annotated[
        dict[Text, ConfigText] | None,
        Meta(description="What says when jobs start, as `scontrol show config` has it."),
    ] = None
    host: Annotated[HostInfo | None, Meta(description="Machine on which the command ran.")] = None
    started: Annotated[
        UtcInstant,
        Meta(description="Real: the UTC instant of second 0. Simulated: when the command started."),
    ]
    wall_s: Annotated[
        Duration | None, Meta(description="Wall time of the command; null until the run is finished.")
    ] = None
    cpu_s: Annotated[Duration | None, Meta(description="CPU time of the command.")] = None
    engine_cpu_s: Annotated[
        Duration | None,
        Meta(description="CPU time inside the simulator's engine."),
    ] = None
    options: Annotated[dict[str, Option], Meta(description="Every other option that shaped the run.")] = {}
    other_overheads: Annotated[
        dict[Text, dict[Text, float]],
        Meta(
            description="By each other C_o that was simulated, the means of `wait_s`, `turnaround_s` and"
            " `degradation` over the completed jobs."
        ),
    ] = {}

    @property
    def origin_s(self) -> float:
        """The epoch second of second 0, of a real run."""
        return datetime.fromisoformat(self.started).timestamp()

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
    """One job of the trace and what became of it."""

    job_id: Annotated[
        Number | None,
        Meta(
            description="The scheduler's number of the job, `job` in the other tables; simulated:"
            " `trace_job`. Null if the scheduler never took it."
        ),
    ] = None
    trace_job: Annotated[Number, Meta(description="Number in the trace (SWF field 1); the key.")]
    kind: Annotated[JobKind, Meta(description="Kind of job.")]
    elasticity: Annotated[
        Elasticity, Meta(description="`malleable`: its number of nodes may change while it runs.")
    ] = "rigid"
    app: Annotated[str | None, Meta(description="Application that ran, such as `eiba` or `rrba`.")] = None
    args: Annotated[str | None, Meta(description="Its arguments, as one shell-quoted line.")] = None
    user: Annotated[str | None, Meta(description="User of the job (SWF field 12).")] = None
    queue: Annotated[str | None, Meta(description="Its queue or partition (SWF field 15).")] = None
    nodes: Annotated[Nodes, Meta(description="Nodes asked for.")]
    cores: Annotated[
        Annotated[int, Meta(ge=1, extra={"unit": "cores"})],
        Meta(description="Cores asked for, all nodes together."),
    ]
    memory_mib: Annotated[
        Annotated[int, Meta(ge=0, extra={"unit": "MiB a core"})] | None,
        Meta(description="Memory asked for (SWF field 10, else 7); null is unconstrained."),
    ] = None
    due_s: Annotated[Seconds, Meta(description="When the trace wants the job submitted.")]
    submitted_s: Annotated[
        Seconds | None,
        Meta(
            description="When the submission call returned (minus `due_s`: the submission lag); a job may"
            " start before."
        ),
    ] = None
    submit_s: Annotated[
        Seconds | None,
        Meta(
            description="When the job entered the queue and its wait began. Real: the later of Slurm's stamp"
            " (whole seconds) and the beginning of the submission call."
        ),
    ] = None
    start_s: Annotated[
        Seconds | None,
        Meta(description="When its last attempt began to run; null if none did. Never before `submit_s`."),
    ] = None
    end_s: Annotated[
        Seconds | None,
        Meta(
            description="When the job ended, or was cancelled while it waited. Never before `submit_s` or"
            " `start_s`."
        ),
    ] = None
    requested_s: Annotated[
        Seconds | None,
        Meta(
            description="Run time asked for (SWF field 9), without allowance for sharing; null is no limit."
        ),
    ] = None
    dedicated_s: Annotated[
        Seconds | None, Meta(description="Run time with every core to itself (the thesis's T_a).")
    ] = None
    busy_s: Annotated[
        Seconds | None,
        Meta(description="The part of `dedicated_s` in which it computes."),
    ] = None
    cpu_s: Annotated[CoreSeconds | None, Meta(description="CPU time used.")] = None
    frozen_s: Annotated[Seconds | None, Meta(description="Wall time frozen by a gang scheduler.")] = None
    placement: Annotated[
        tuple[Placement, ...] | None,
        Meta(
            description="What the job held last; `cores` in Slurm's notation, such as `0-3,7`. Never an empty"
            " list."
        ),
    ] = None
    state: Annotated[
        JobState | None,
        Meta(
            description="How the job ended. `REFUSED`: the scheduler never took it; no start, no end. `LOST`:"
            " its end is unknown. `COMPLETED` has a start and an end. Null only while the run goes on."
        ),
    ] = None
    exit_code: Annotated[
        Number | None, Meta(description="Exit code; 128 plus the number of a signal that ended the job.")
    ] = None
    preemptions: Annotated[Number, Meta(description="How often the job was preempted.")] = 0
    notice_s: Annotated[Seconds | None, Meta(description="When an on-demand job announced itself.")] = None
    predicted_s: Annotated[Seconds | None, Meta(description="When it would arrive, by its notice.")] = None
    setup_s: Annotated[Seconds | None, Meta(description="Time for setting up, restarts included.")] = None
    wasted_s: Annotated[
        Seconds | None, Meta(description="Time on cores lost by preemption or requeue, without set-up.")
    ] = None
    steps: Annotated[Number | None, Meta(description="Time steps made.")] = None
    step_s: Annotated[
        Seconds | None,
        Meta(
            description="What a step takes on dedicated cores, as calibrated, or measured in the job's first"
            " quarter."
        ),
    ] = None
    steps_cpu_s: Annotated[
        Seconds | None,
        Meta(
            description="CPU time of the steps on the rank that used most; over `steps` times `step_s` the"
            " job's [pace](verdict.md#is-the-run-fit-to-judge-by)."
        ),
    ] = None
    first_step_s: Annotated[
        Seconds | None, Meta(description="When the first time step was made; before it is start-up.")
    ] = None
    last_step_s: Annotated[
        Seconds | None, Meta(description="When the last time step was made and the answer checked.")
    ] = None
    min_nodes: Annotated[Nodes | None, Meta(description="Fewest nodes that it runs on.")] = None
    max_nodes: Annotated[Nodes | None, Meta(description="Most nodes that it can use.")] = None
    preferred_nodes: Annotated[
        Nodes | None,
        Meta(description="Nodes that it prefers, between the two."),
    ] = None


class AllocationRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An interval in which a job held the same cores.

    Each start of a job, also after a requeue or a preemption, begins an *attempt*: one interval, and one more
    for each resize. The rows of a job are all of its intervals, none of which overlap; a job without rows had
    one attempt, which is in `jobs`.
    """

    job: Annotated[Number, Meta(description="`job_id` of the job.")]
    from_s: Annotated[Seconds, Meta(description="Beginning. Never before the job's `submit_s`.")]
    to_s: Annotated[
        Seconds | None, Meta(description="End. Never before `from_s`, nor after the job's `end_s`.")
    ] = None
    placement: Annotated[
        tuple[Placement, ...] | None,
        Meta(description="What was held, as in `jobs`."),
    ] = None
    why: Annotated[
        AllocationCause,
        Meta(
            description="What the interval began with. `start`: the first start. `resize`: other cores. A new"
            " attempt: `requeue` (from nothing), `preemption` (it was preempted, or suspended), `checkpoint`"
            " (from one that it had made)."
        ),
    ]
    setup_s: Annotated[
        Seconds | None,
        Meta(
            description="Set-up at its beginning; null: an equal part of the job's `setup_s` for each"
            " attempt."
        ),
    ] = None
    wasted_s: Annotated[
        Seconds | None,
        Meta(
            description="What was lost at its end, without set-up; null: what `jobs` says, else all of an"
            " attempt that a requeue ended."
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
            description="`run`: the slice is the job's. `held`: busy and frozen. `leftover`: busy and yields:"
            " it uses what the slice's owners leave. `idle`: nothing to compute, not held. `free`: it"
            " computes although the slice is not its own (it woke up, or shares no core). `unattended`:"
            " no agent acted, so the operating system shared the node's cores; rows of about a second."
        ),
    ]
    cpu_s: Annotated[CoreSeconds | None, Meta(description="CPU time used on the node in the slice.")] = None
    skew_us: Annotated[
        Annotated[float, Meta(extra={"unit": "µs"})] | None,
        Meta(description="How late the node acted on the slice; negative is early."),
    ] = None
    freeze_us: Annotated[
        Annotated[float, Meta(ge=0, extra={"unit": "µs"})] | None,
        Meta(description="Time until all tasks of the job were frozen or thawed."),
    ] = None


class HostRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """Use of a host's CPUs during about a second of a real run.

    Of the CPUs that the nodes of a cluster on it are pinned to, else of all. Used and stolen time is the
    kernel's (proc(5)); what is used and not the run's own is foreign.
    """

    at_s: Annotated[Seconds, Meta(description="End of the sample.")]
    length_s: Annotated[
        Annotated[float, Meta(gt=0, extra={"unit": "s"})], Meta(description="Length of the sample.")
    ]
    host: Annotated[Annotated[str, Meta(min_length=1)], Meta(description="Name of the host.")]
    cpus: Annotated[Annotated[int, Meta(ge=1, extra={"unit": "CPUs"})], Meta(description="CPUs sampled.")]
    load: Annotated[
        Annotated[float, Meta(ge=0)] | None, Meta(description="Load average of the host over one minute.")
    ] = None
    used_s: Annotated[CoreSeconds, Meta(description="CPU time used by all processes.")]
    steal_s: Annotated[
        CoreSeconds, Meta(description="CPU time that the hypervisor took while a process wanted it.")
    ]
    own_s: Annotated[
        CoreSeconds | None,
        Meta(description="CPU time of the run: jobs, the cluster's daemons, the command that replays."),
    ] = None
