"""What a simulation takes: options of ``osub simulate``, keywords of ``osub.simulate``, keys of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from foundation.specification import PathText, about

INSTANTS = ("together", "one-by-one")


class SimulationSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A simulation. Python also takes a run or a trace for their path, and a ``Fit``."""

    trace: Annotated[PathText | None, about("Trace in (extended) SWF, plain or gzip.", argument=True)] = None
    system: Annotated[str, about("Nodes and cores a node, such as N150C12.")]
    out: Annotated[PathText | None, about("RUN folder to write.", required=True, swept=False)] = None
    policy: Annotated[str, about("A built-in policy (see --policies), or your own: FILE.py:NAME.")] = "easy"
    settings: Annotated[
        Mapping[str, object] | Sequence[str],
        about(
            "An option of the policy, as often as needed.", option="--set", metavar="NAME=VALUE", swept=False
        ),
    ] = ()
    malleable_share: Annotated[
        float | str | None, about("Malleable policies: share of the batch jobs that are malleable, 0 to 1.")
    ] = None
    preemption: Annotated[
        str | None, about("Hybrid policies: victims one by one (ascending), or the cheapest (optimal).")
    ] = None
    multiplicity: Annotated[int, about("M: most jobs a core, 1 to 8.")] = 1
    queues: Annotated[str, about("sq: one queue; mq: interactive nodes apart.")] = "sq"
    interactive_share: Annotated[
        str | None, about("mq: share of the nodes for interactive jobs, such as 5%.")
    ] = None
    interactive_nodes: Annotated[int | None, about("mq: number of nodes for interactive jobs.")] = None
    multiplicity_interactive: Annotated[int, about("mq: M on these nodes.")] = 4
    interactive_queue: Annotated[int, about("SWF queue of interactive jobs; -1: there are none.")] = 0
    overhead: Annotated[
        float | str,
        about(
            "C_o: speed on a shared core is 1/(m x C_o); a real RUN without gang scheduling (with "
            "{quantum_ms}: under gangd): as there.",
            metavar="NUMBER|RUN",
        ),
    ] = 1.2
    sharing: Annotated[
        str | None, about("pairwise (with {pairs}), or your own sharing model: FILE.py:NAME.")
    ] = None
    pairs: Annotated[
        PathText | None, about("What applications lose to each other: measured PAIRS, a model or a CSV.")
    ] = None
    apps: Annotated[
        str | None, about("Which a job runs: a CSV (job,application), or names to draw from (default: all).")
    ] = None
    node_noise: Annotated[float, about("Standard deviation of the nodes' speeds, such as 0.02.")] = 0.0
    quantum_ms: Annotated[
        float | None,
        about(
            "Exact time slices of so many ms, by the gang scheduler's own core: slow.",
            option="--slices",
            metavar="MS",
        ),
    ] = None
    hold: Annotated[
        str, about("With {quantum_ms}: what held jobs do: freeze (nothing) or yield (what is left).")
    ] = "yield"
    memory_gib: Annotated[float | None, about("Memory of a node; without it memory does not matter.")] = None
    memory: Annotated[
        str | None,
        about(
            "What a node of {memory_gib} reserves for a job: its requested, predicted or used memory, or "
            "nothing (ignored). Jobs whose real peaks do not fit are counted as killed. Not said: the "
            "request, else the used memory, and real peaks do not matter."
        ),
    ] = None
    memory_coverage: Annotated[
        float, about("With {memory} predicted: share of the peaks to be at most as predicted.")
    ] = 0.95
    memory_growth: Annotated[
        float | None,
        about(
            "With {memory} and {quantum_ms}: share of a job's work in which its memory grows to its peak. "
            "Jobs are killed during the run then, those with most memory first."
        ),
    ] = None
    memory_mib: Annotated[
        float | None,
        about("With {memory_growth}: as in gangd.toml, where less is available gangs are suspended before."),
    ] = None
    placement: Annotated[
        str, about("lln (Slurm's), thesis, lln-paired or lln-apart (with {pairs}), FILE.py:NAME.")
    ] = "lln"
    pairing_threshold: Annotated[
        float | None,
        about("lln-apart: jobs of which one loses more than this do not share (default: 1 - 1/M + 0.05)."),
    ] = None
    speedup: Annotated[float, about("Divide every time of the trace by this.")] = 1.0
    oversize: Annotated[
        str | None,
        about("Jobs that can never run: fail, skip or clip. Not said: skip, unless most never can."),
    ] = None
    zero_length: Annotated[str, about("Jobs without a run time: fail, skip or keep.")] = "skip"
    limits: Annotated[
        str, about("Run times beyond the request: raise (the request) or enforce (stop the job).")
    ] = "raise"
    dependencies: Annotated[
        bool | None,
        about(
            "Submit a job that names a preceding job (SWF field 17) after that one's end. Not said: where "
            "the trace has such jobs.",
            option="--dependencies/--no-dependencies",
        ),
    ] = None
    instants: Annotated[
        str | None,
        about(
            "Events at one instant: together (one scheduling pass after all) or one-by-one (one after each). "
            "Not said: together, unless the policy has times of its own (easy-ncs: one-by-one)."
        ),
    ] = None
    latency: Annotated[
        PathText | None,
        about(
            "Latencies of a real cluster: a JSON file, or a real RUN with M=1 to measure them on.",
            metavar="FILE|RUN",
        ),
    ] = None
    fit: Annotated[
        PathText | None,
        about(
            "With {policy} slurm: options and latencies as in a real RUN of this system; {settings} wins.",
            metavar="RUN",
            swept=False,
        ),
    ] = None
    order_of: Annotated[
        PathText | None,
        about("Start and end jobs in the order in which a real RUN did: no policy decides.", metavar="RUN"),
    ] = None
    failures: Annotated[
        PathText | None, about("When nodes fail: a CSV file node,down_s,up_s.", metavar="FILE")
    ] = None
    mtbf: Annotated[
        float | None, about("Or at random: mean hours between failures of a node.", metavar="HOURS")
    ] = None
    repair: Annotated[float, about("With {mtbf}: mean hours of a repair.")] = 6.0
    failure_shape: Annotated[
        float, about("With {mtbf}: shape of the Weibull distribution; 1 is the exponential.")
    ] = 1.0
    after_failure: Annotated[
        str, about("Jobs whose node failed: start again from their checkpoint, from scratch, or give-up.")
    ] = "checkpoint"
    checkpoint_interval: Annotated[
        float | None, about("Seconds of work between checkpoints of every job.", metavar="SECONDS")
    ] = None
    checkpoint_cost: Annotated[
        float, about("Seconds that writing a checkpoint takes.", metavar="SECONDS")
    ] = 0.0
    seed: Annotated[int, about("For whatever is drawn at random.", ge=0)] = 1
    label: Annotated[str | None, about("Name of the run in tables.", swept=False)] = None
    lenient: Annotated[bool, about("Pass over malformed lines of the trace instead of refusing it.")] = False
    check: Annotated[bool, about("Check the engine's invariants after every event: slow.")] = False
    vary_overhead: Annotated[
        bool,
        about(
            "Where cores are shared, simulate again at C_o 1.0 and 1.4 if that takes seconds at most, so "
            "that a verdict says what would change.",
            option=None,
            swept=False,
        ),
    ] = True
    slowdowns: tuple[tuple[float, float], tuple[float, float]] | None = None
    """Measured: those of jobs of one core and of several by each other, in the place of ``overhead``."""
    slice_cost: float = 1.0
    """Measured: seconds of its own slices that a job takes for a second of work, while it shares cores."""
