"""The study of time-sharing, from the request to the findings."""

from __future__ import annotations

from simulator.experiments.claim_study import Findings, Request
from simulator.experiments.experiment_page import Drawing
from simulator.experiments.timesharing.claims_load import load_rows, trace_rows
from simulator.experiments.timesharing.claims_map import map_rows, scaling_rows
from simulator.experiments.timesharing.claims_noise import noise_rows, spmd_rows
from simulator.experiments.timesharing.timesharing_survey import NOISE, steps_of, survey
from simulator.experiments.timesharing.timesharing_tables import tables
from simulator.experiments.timesharing.timesharing_world import generated, of_trace

DAYS, QUICK_DAYS = 36, 12


def examine(request: Request) -> Findings:
    """Run the study and judge every claim."""
    days = QUICK_DAYS if request.quick else DAYS
    world = of_trace(request.traces[0]) if request.traces else generated(days)
    found = survey(world, request.seeds, request.steps(steps_of(request.seeds)))
    facts = [
        world.told,
        (
            "Time-sharing admits by memory and has max-min fair rates; batch is first come first served with "
            f"backfilling. Noise: each node is slow with p = {NOISE:g} in each step of 10 s."
        ),
    ]

    def draw() -> list[Drawing]:
        from simulator.experiments.timesharing.timesharing_figures import drawings

        return drawings(found)

    return Findings(
        title="Time-sharing against batch again",
        facts=facts,
        claims=[
            *load_rows(found),
            *map_rows(found),
            *scaling_rows(found),
            *noise_rows(found),
            *spmd_rows(found),
            *trace_rows(found),
        ],
        tables=tables(found),
        figures=draw,
    )
