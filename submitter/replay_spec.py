"""What a replay takes: options of ``osub replay``, keys of a sweep's replays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from foundation.specification import PathText, about
from submitter.plan import PATIENCE_S, DownNodes, ReplayOversize


class ReplaySpec(msgspec.Struct, frozen=True, kw_only=True):
    """A replay; see ``ReplayOptions`` for what the replay itself is asked for."""

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
