"""Zojer, Posner, Oezden: malleable strategies over EASY (M claims)."""

from __future__ import annotations

from simulator.experiments.claim_study import ClaimStudy, Findings, Request


def _run(request: Request) -> Findings:
    from simulator.experiments.malleable.malleable_study import examine

    return examine(request)


STUDY = ClaimStudy(
    help="Zojer, Posner, Oezden: jobs that change size under MIN, PREF, AVG and KEEPPREF, over EASY.",
    most_traces=1,
    traces_help="28 days of it stand for THETA (SWF); without it windows like the other three are made.",
    run=_run,
)
