"""``run.json``: what ran where, so that a RUN can be read without the command line that made it."""

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
