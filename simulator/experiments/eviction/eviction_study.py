"""CoSim's study, from the request to the findings."""

from __future__ import annotations

from simulator.experiments.claim_study import Findings, Request
from simulator.experiments.eviction.eviction_claims import claim_rows
from simulator.experiments.eviction.eviction_survey import QUICK, WHOLE, steps_of, survey
from simulator.experiments.eviction.eviction_tables import tables
from simulator.experiments.eviction.scenarios import Theta
from simulator.experiments.eviction.trace_facts import facts_of
from simulator.experiments.experiment_page import Drawing
from workloads.swf import load_columns


def examine(request: Request) -> Findings:
    """Run the study and judge every claim."""
    theta = Theta(load_columns(request.traces[0])) if request.traces else None
    effort = QUICK if request.quick else WHOLE
    found = survey(theta, request.seeds, effort, request.steps(steps_of(request.seeds)))
    source = (
        "no trace: the jobs of all scenarios are generated"
        if theta is None
        else f"{theta.name}: scenarios 1 and 2 are instants of it, scenario 3 is generated from its sizes"
    )
    facts = [
        f"Eviction of K of about 4,352 nodes within 0 to 15 minutes; {source}.",
        (
            f"Memory, times and instants are drawn anew for each of the {request.seeds} seeds; B_a = 250 "
            f"GB/s, B_c = 1 GB/s. Backtracking has {effort.limit_s:g} s a question, {effort.hardest_s:g} s "
            "for the first of the hardest."
        ),
    ]

    def draw() -> list[Drawing]:
        from simulator.experiments.eviction.eviction_figures import drawings

        return drawings(found)

    return Findings(
        title="CoSim again: eviction for an on-demand job",
        facts=facts,
        claims=claim_rows(found, None if theta is None else facts_of(theta)),
        tables=tables(found),
        figures=draw,
    )
