"""Tables that chapters 5 and 6 have in common: who waits, and when the CPU time was done."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.experiments.paper_tables import ABSENT, ExperimentTable, against, hours, number, percent
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


def main_finding(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return in sentences who waits with one job a core, with the best of SQ and of MQ, and what that costs.

    The best is the case in which the fewest interactive jobs wait, then that with the least slowdown.
    """
    alone = outcomes.get("SQ, M=1")
    if alone is None:
        return []
    rest = [one for one in outcomes.values() if one is not alone]
    kinds = ([one for one in rest if one.label.startswith(kind)] for kind in ("SQ", "MQ"))
    best = [
        min(some, key=lambda one: (one.interactive_waited, one.slowdown_batch_max)) for some in kinds if some
    ]
    waits = "; ".join(f"with {one.label} {percent(one.interactive_waited)}" for one in best)
    costs = "; ".join(f"{number(one.slowdown_batch_max)} with {one.label}" for one in best)
    waiting = (
        f"Interactive jobs: with one job a core (SQ, M=1) {percent(alone.interactive_waited)} of them wait, "
        f"for {hours(alone.interactive_wait_max_s / 3600)} h at most; {waits}."
    )
    largest = f"{number(alone.slowdown_batch_max)} with one job a core; {costs}"
    return [waiting, f"Batch jobs: the largest S_OSub is {largest}."]
