"""``osub trace patterns``: what a folder of recorded behaviour holds, and new patterns like them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from foundation.errors import InputError, UsageError
from foundation.units import counted
from osub.cli.terminal import Console
from osub.cli.trace.files import AsJson, Force, Seed, check_free, deliver, print_json, working
from osub.cli.trace.tables import behaviour_table
from workloads.behaviour.behaviour_figures import PUBLISHED, behaviour_statistics
from workloads.behaviour.pattern_synthesis import synthesize
from workloads.behaviour.period_model import THRESHOLD_CORES
from workloads.behaviour.recording_library import pattern_trace, read_library


def patterns(
    folder: Annotated[Path, typer.Argument(help="Folder of recordings (*.csv, *.swf).", metavar="DIR")],
    synthesize_count: Annotated[
        int | None, typer.Option("--synthesize", min=1, help="Make so many new patterns like them.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="SWF file for the new patterns.", metavar="FILE")
    ] = None,
    clusters: Annotated[
        int | None, typer.Option(min=1, help="Of the recordings; by default from their number.")
    ] = None,
    threshold: Annotated[
        float, typer.Option(min=0, help="Cores above which a sample of a recording is busy.")
    ] = THRESHOLD_CORES,
    seed: Seed = 1,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Print the statistics of recorded patterns next to the published ones; synthesize more of them.

    Recordings are clustered by dynamic time warping, and barycentres of a cluster's members are new patterns.
    The file of new patterns may be put into a folder for `osub trace interactive --patterns`.
    """
    if (synthesize_count is None) != (out is None):
        raise UsageError("--synthesize and --out go together: how many new patterns, and where to")
    if out is not None:
        check_free(out, force)
    library = read_library(folder, threshold)
    sources = [recording.pattern for recording in library.recordings]
    found = behaviour_statistics(sources)
    if found is None:
        raise InputError(f"{folder} has no recording with a length")
    sizes: tuple[int, ...] = ()
    made = None
    if synthesize_count is not None and out is not None:
        with working(f"synthesizing {counted(synthesize_count, 'pattern')}"):
            synthesis = synthesize(sources, synthesize_count, seed, clusters)
        sizes = synthesis.cluster_sizes
        made = behaviour_statistics(synthesis.patterns)
        note = (
            f"osub patterns: {synthesize_count} synthesized from {counted(len(sources), 'recording')} in "
            f"{counted(len(sizes), 'cluster')}, seed {seed}"
        )
        deliver(pattern_trace(synthesis.patterns, note), out)
    if as_json:
        print_json(
            {
                "recordings": len(sources),
                "skipped": list(library.skipped),
                "statistics": asdict(found),
                "clusters": list(sizes),
                "synthesized": None if made is None else asdict(made),
                "out": None if out is None else str(out),
                "published": PUBLISHED,
            }
        )
        return
    console = Console()
    for reason in library.skipped:
        console.print(f"Skipped: {reason}", markup=False, highlight=False, soft_wrap=True)
    if made is None:
        console.print(behaviour_table(found))
        return
    console.print(f"Clusters of {', '.join(map(str, sizes))} recordings", highlight=False)
    console.print(behaviour_table(made, ("recorded", found)))
    console.print(f"Patterns: {out}", markup=False, highlight=False, soft_wrap=True)
