"""CoSim: eviction of running jobs for a job that cannot wait (V claims)."""

from __future__ import annotations

from simulator.experiments.claim_study import ClaimStudy, Findings, Request


def _run(request: Request) -> Findings:
    from simulator.experiments.eviction.eviction_study import examine

    return examine(request)


STUDY = ClaimStudy(
    help="CoSim: evicting jobs for one that cannot wait; optimum, greedy, backtracking.",
    most_traces=1,
    traces_help="Theta (SWF); without it all scenarios are generated.",
    run=_run,
)
