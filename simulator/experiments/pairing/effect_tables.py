"""What placements made of a trace, as a table and as bars."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from analysis.claims import estimate
from simulator.experiments.pairing.placement_effect import RANDOM, Effect
from simulator.experiments.paper_tables import ExperimentTable

_MEASURES = (
    ("mean loss", "mean_loss", 1.0),
    ("95% of jobs lose at most", "p95_loss", 1.0),
    ("worst loss", "worst_loss", 1.0),
    ("mean wait (h)", "wait_s", 3600.0),
    ("mean wait and run (h)", "turnaround_s", 3600.0),
    ("jobs an hour", "jobs_an_hour", 1.0),
)
Made = dict[str, list[Effect]]
"""By rule, an effect a seed."""


def effect_table(name: str, title: str, made: Made) -> ExperimentTable:
    """Return the table of the rules, with what each changes against drawing lots, seed by seed."""
    lines: list[tuple[str, ...]] = []
    for rule, own in made.items():
        values = {field: [getattr(one, field) / unit for one in own] for _, field, unit in _MEASURES}
        lines.append((rule, *(estimate(values[field]).text() for _, field, _ in _MEASURES)))
    return ExperimentTable(
        name=name,
        title=title,
        columns=("who shares with whom", *(label for label, _, _ in _MEASURES)),
        rows=lines,
        notes=tuple(_against(made, rule) for rule in made if rule != RANDOM),
    )


def _against(made: Made, rule: str) -> str:
    def change(field: str) -> str:
        pairs = [
            (getattr(one, field), getattr(other, field))
            for one, other in zip(made[rule], made[RANDOM], strict=True)
        ]
        return _percent([one / other - 1 for one, other in pairs if other])

    told = ", ".join(f"{label.removesuffix(' (h)')} {change(field)}" for label, field, _ in _MEASURES)
    return f"{rule} against {RANDOM}: {told}"


def _percent(shares: list[float]) -> str:
    if not shares:
        return "-"
    found = estimate([100 * one for one in shares])
    if found.low is None or found.high is None:
        return f"{found.mean:+.1f}%"
    return f"{found.mean:+.1f}% [{found.low:+.1f}, {found.high:+.1f}]"


def effect_bars(made: Made) -> go.Figure:
    """Return mean, 95% and worst loss of each rule."""
    bars = go.Figure()
    for label, field in (("mean", "mean_loss"), ("95%", "p95_loss"), ("worst", "worst_loss")):
        means = [float(np.mean([getattr(one, field) for one in own])) for own in made.values()]
        bars.add_bar(name=label, x=list(made), y=means)
    bars.update_layout(barmode="group", yaxis_title="loss", template="plotly_white", height=420)
    return bars
