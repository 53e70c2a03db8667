"""The study of malleable jobs, from the request to the findings."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.experiments.claim_study import Findings, Request
from simulator.experiments.experiment_page import Drawing
from simulator.experiments.malleable.job_windows import Window, trace_window
from simulator.experiments.malleable.made_windows import RECIPES, made_window
from simulator.experiments.malleable.malleable_claims import claim_rows
from simulator.experiments.malleable.malleable_survey import Case, Outcomes, cases_of, run_cases
from simulator.experiments.malleable.malleable_tables import share_table, variant_cases, variant_table
from simulator.experiments.malleable.malleable_words import THETA

DAYS = 28
QUICK_SHARE = 0.25
"""How much of a made window will do for a quick study."""


def examine(request: Request) -> Findings:
    """Run the study and judge every claim."""
    windows = _windows(request)
    cases = {system: _cases(system, request) for system in windows}
    step = request.steps(sum(map(len, cases.values())))
    found = {
        system: Outcomes(window, run_cases(window, cases[system], step), request.seeds)
        for system, window in windows.items()
    }

    def draw() -> Sequence[Drawing]:
        from simulator.experiments.malleable.malleable_figures import drawings

        return drawings(found)

    tables = [share_table(system, one) for system, one in found.items()]
    if THETA in found and not request.quick:
        tables.append(variant_table(THETA, found[THETA]))
    return Findings(
        title="Malleable strategies over EASY again",
        facts=[*(window.about for window in windows.values()), *_facts(request)],
        claims=claim_rows(found),
        tables=tables,
        figures=draw,
    )


def _windows(request: Request) -> dict[str, Window]:
    """Return the windows by system: a trace stands for THETA; without one the others are made."""
    if request.traces:
        return {THETA: trace_window(request.traces[0], DAYS)}
    share = QUICK_SHARE if request.quick else 1.0
    return {recipe.name: made_window(recipe, share=share) for recipe in RECIPES}


def _cases(system: str, request: Request) -> list[Case]:
    more = variant_cases(request.seeds) if system == THETA and not request.quick else []
    return [*cases_of(request.seeds), *more]


def _facts(request: Request) -> list[str]:
    told = [
        (
            "Jobs submitted in the first 12 hours are not counted, nor is the use of nodes after the last "
            "submission. Sizes and speed-up by Amdahl's law with efficiencies 0.95, 0.8 and 0.5; a pass at "
            f"every event; a resize costs nothing. {request.seeds} seeds choose the malleable jobs."
        )
    ]
    if request.traces:
        told.append("The trace stands for THETA; it is not the paper's, so directions are judged.")
    else:
        told.append(
            "The windows are made from the figures that the paper prints, with the node time that rigid jobs "
            "used there; how long jobs wait is not fitted. So directions are judged."
        )
    return told
