"""Tables that chapters 5 and 6 have in common: who waits, and when the CPU time was done."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.experiments.paper_tables import ABSENT, ExperimentTable, against, hours, percent
from simulator.experiments.thesis.case_outcome import Outcome
from simulator.experiments.thesis.case_runs import published_label


def waited_table(
    name: str, outcomes: Mapping[str, Outcome], published: Mapping[str, float]
) -> ExperimentTable:
    """Return the shares of the interactive jobs that wait (Tables 5.3 and 6.2)."""
    rows = []
    for label, outcome in outcomes.items():
        thesis = published.get(published_label(label))
        ours = outcome.interactive_waited
        rows.append(
            (label, percent(ours), ABSENT if thesis is None else percent(thesis), against(ours, thesis))
        )
    return ExperimentTable(
        name=name,
        title="interactive jobs that wait",
        columns=("case", "ours", "thesis", "difference"),
        rows=rows,
    )


def done_table(
    name: str, outcomes: Mapping[str, Outcome], published: Mapping[str, tuple[int, int, int]]
) -> ExperimentTable:
    """Return when 90, 95 and 100% of the CPU time was done (Tables 5.5, 5.6 and 6.3)."""
    rows = []
    for label, outcome in outcomes.items():
        thesis = published.get(published_label(label), (None, None, None))
        cells = [
            hours(mine) if theirs is None else f"{hours(mine)} ({theirs}, {against(mine, theirs)})"
            for mine, theirs in zip(outcome.cpu_time_done_h, thesis, strict=True)
        ]
        rows.append((label, *cells))
    return ExperimentTable(
        name=name,
        title="when 90, 95 and 100% of the CPU time was done [h]; the thesis's numbers in parentheses",
        columns=("case", "90th", "95th", "100th"),
        rows=rows,
    )
