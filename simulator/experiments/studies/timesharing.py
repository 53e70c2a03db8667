"""Hofmeyr et al.: time-sharing a petascale machine against batch scheduling (T claims)."""

from __future__ import annotations

from simulator.experiments.claim_study import ClaimStudy, Findings, Request


def _run(request: Request) -> Findings:
    from simulator.experiments.timesharing.timesharing_study import examine

    return examine(request)


STUDY = ClaimStudy(
    help="Time-sharing of whole nodes against batch: slowdowns by size and length, overhead, noise.",
    most_traces=1,
    traces_help="Any SWF whose header has its nodes; without it days like Edison's are generated.",
    run=_run,
)
