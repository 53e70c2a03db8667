"""Minami, chapter 4: which applications may share a core, and what knowing it is worth (P claims)."""

from __future__ import annotations

from simulator.experiments.claim_study import ClaimStudy, Findings, Request


def _run(request: Request) -> Findings:
    from simulator.experiments.pairing.pairing_study import examine

    return examine(request)


STUDY = ClaimStudy(
    help="Losses of pairs that share a core, their prediction, and placement that knows of them.",
    most_traces=1,
    traces_help="SWF for the effect of placement, on the nodes of its header; without it one is drawn.",
    run=_run,
)
