"""Fan et al.: hybrid scheduling of on-demand, rigid and malleable jobs (H claims)."""

from __future__ import annotations

from simulator.experiments.claim_study import ClaimStudy, Findings, Request


def _run(request: Request) -> Findings:
    from simulator.experiments.hybrid.hybrid_study import examine

    return examine(request)


STUDY = ClaimStudy(
    help="Fan et al.: on-demand, rigid and malleable jobs; six mechanisms, and sharing instead.",
    most_traces=1,
    traces_help="A year of Theta (SWF), on 4,392 nodes; without it a trace is made.",
    run=_run,
)
