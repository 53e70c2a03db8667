"""The rows of a RUN: jobs, their allocations, time slices of a gang scheduler, who used the host.

Seconds count from the run's first due time (``RunInfo.started``), in the run's own, possibly compressed,
time. ``None`` means unknown; no number does. ``docs/records.md`` is generated from the
annotations here.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

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
