"""The study from trace to findings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.claims import estimate
from analysis.claims.estimate import figures
from foundation.units import counted
from simulator.experiments.claim_study import Findings, Request
from simulator.experiments.experiment_page import Drawing
from simulator.experiments.hybrid.hybrid_claims import claim_rows
from simulator.experiments.hybrid.hybrid_survey import QUICK, WHOLE, steps_of, survey
from simulator.experiments.hybrid.hybrid_tables import tables
from simulator.experiments.hybrid.made_theta import made_workload
from simulator.simulation import Workload, cleaning_of, make_workload
from simulator.world import System, single_queue
from workloads.swf import SwfColumns, load_columns, procs_column

NODES = 4392
"""Theta's."""
_ALIKE = 0.01
"""A log of Theta's may say a few nodes less, which were out of service for all of it."""
MADE_JOBS = 12_000
QUICK_JOBS = 3_000


def examine(request: Request) -> Findings:
    """Run the study and judge every claim."""
    workload, source, nodes = _jobs_of(request)
    effort = QUICK if request.quick else WHOLE
    found = survey(workload, nodes, request.seeds, effort, request.steps(steps_of(request.seeds, effort)))
    days = float(np.ptp(workload.submit_us)) / 86_400e6
    count = sum(map(len, found.runs.values()))
    cpu_s = sum(one.cpu_s for of in found.runs.values() for one in of)
    facts = [
        f"{source}: {workload.count:,} jobs in {days:.0f} days on {nodes:,} nodes, each node one job.",
        (
            f"{counted(request.seeds, 'seed')} for projects, kinds, set-up and notices; on-demand jobs are "
            f"{figures(100 * estimate(found.traces.shares).mean)}% of the jobs in the mean."
        ),
        (
            f"{count} runs of six mechanisms under five mixes of notices: {found.wall_s:.1f} s on two "
            f"threads, {cpu_s / count:.2f} s of CPU a run in the loop."
        ),
    ]

    def draw() -> list[Drawing]:
        from simulator.experiments.hybrid.hybrid_figures import drawings

        return drawings(found)

    return Findings(
        title="Hybrid scheduling again: on-demand, rigid and malleable jobs",
        facts=facts,
        claims=claim_rows(found),
        tables=tables(found),
        figures=draw,
    )


def _jobs_of(request: Request) -> tuple[Workload, str, int]:
    """Return the jobs, where they are from, and the nodes of their machine."""
    if not request.traces:
        made = made_workload(QUICK_JOBS if request.quick else MADE_JOBS, NODES)
        return made, "A trace that is made", NODES
    columns = load_columns(request.traces[0])
    nodes = nodes_of(columns)
    if request.quick:
        columns = replace(columns, frame=columns.frame.head(QUICK_JOBS))
    cleaning = cleaning_of(-1, 1.0, "skip", "skip", "raise")
    return make_workload(columns, single_queue(System(nodes, 1), 1), cleaning), columns.name, nodes


def nodes_of(columns: SwfColumns) -> int:
    """Return how many nodes a trace's machine has, where each processor that a job holds is a node.

    As its header says, or else as its widest job needs; Theta's for a log of Theta.
    """
    widest = columns.frame.select(procs_column().max()).item()
    procs = columns.header.system_procs or (widest if isinstance(widest, int) else NODES)
    return NODES if abs(procs - NODES) <= _ALIKE * NODES else procs
