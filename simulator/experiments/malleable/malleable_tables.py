"""The figures behind the claims: every strategy at every share, ranges, and other settings of the model."""

from __future__ import annotations

from statistics import fmean

from analysis.claims import estimate
from analysis.quantiles import quantiles
from simulator.experiments.malleable.malleable_judging import ALL, NAMES, RIGID_SHARE, value_text
from simulator.experiments.malleable.malleable_survey import RIGID, SHARES, STRATEGIES, Case, Outcomes
from simulator.experiments.paper_tables import ABSENT, ExperimentTable
from simulator.policies.policy_family import Value

FIGURES = {"HASWELL": "Figure 6", "KNL": "Figure 7", "EAGLE": "Figure 8", "THETA": "Figure 9"}
COLUMNS = {
    "turnaround_s": "turnaround",
    "wait_s": "wait",
    "run_s": "run",
    "utilisation": "utilisation",
    "expansions": "expansions",
    "shrinks": "shrinks",
}

Options = tuple[tuple[str, Value], ...]
VARIANTS: dict[str, Options] = {
    "as above": (),
    "passes every 10 s": (("tick", 10.0),),
    "a resize costs 2 s and 0.25 s a node": (("cost", 2.0), ("cost_a_node", 0.25)),
    "nodes are taken only while one idles": (("shrink_needs_idle", "yes"),),
    "the head of the queue is not protected": (("protect_head", "no"),),
    "speed-up by Downey, sigma 1": (("conversion", "downey"),),
    "half to twice the request": (("conversion", "fractions"),),
}
"""Readings of the model that the paper leaves open."""
VARIANT_SEEDS = 3


def share_table(system: str, found: Outcomes) -> ExperimentTable:
    """Return the means of every measure at every share, and ranges (Figures 6 to 9)."""
    cases = [("EASY, all rigid", STRATEGIES[0], RIGID_SHARE)]
    cases += [(f"{NAMES[policy]}, {share}%", policy, share) for policy in STRATEGIES for share in SHARES]
    return ExperimentTable(
        name=FIGURES.get(system, system),
        title=f"{found.window.name}, means over the seeds; quartiles of the turnaround over seeds, over jobs",
        columns=("strategy, malleable jobs", *COLUMNS.values(), "seeds", "jobs"),
        rows=[
            (
                label,
                *(value_text(metric, fmean(found.values(metric, policy, share))) for metric in COLUMNS),
                _between(*quantiles(found.values("turnaround_s", policy, share), (0.25, 0.75))),
                _between(
                    fmean(found.values("turnaround_low_s", policy, share)),
                    fmean(found.values("turnaround_high_s", policy, share)),
                ),
            )
            for label, policy, share in cases
        ],
        notes=("Expansions and shrinks are those of a malleable job.",),
    )


def _between(low: float, high: float) -> str:
    return f"{low:,.0f} to {high:,.0f} s"


def variant_cases(seeds: int) -> list[Case]:
    """Return the cases of other settings: all jobs malleable, and rigid ones where it concerns them."""
    return [
        *(
            Case(policy=policy, share=ALL, seed=seed, options=options)
            for options in VARIANTS.values()
            if options
            for policy in STRATEGIES
            for seed in range(1, min(seeds, VARIANT_SEEDS) + 1)
        ),
        _unprotected(),
    ]


def _unprotected() -> Case:
    return Case(policy=STRATEGIES[0], options=VARIANTS["the head of the queue is not protected"])


def variant_table(system: str, found: Outcomes) -> ExperimentTable:
    """Return how the turnaround changes under other settings."""
    rigid = found.by_case[RIGID].turnaround_s
    rows = []
    for label, options in VARIANTS.items():
        easy = ABSENT
        if options == _unprotected().options:
            easy = f"{100 * (found.by_case[_unprotected()].turnaround_s / rigid - 1):+.0f}%"
        cells = []
        for policy in STRATEGIES:
            cases = [
                Case(policy=policy, share=ALL, seed=seed, options=options)
                for seed in range(1, min(found.seeds, VARIANT_SEEDS) + 1)
            ]
            changes = [100 * (found.by_case[case].turnaround_s / rigid - 1) for case in cases]
            cells.append(estimate(changes).text("%"))
        rows.append((label, easy, *cells))
    return ExperimentTable(
        name="Readings",
        title=f"{system}: mean turnaround against EASY, all jobs malleable",
        columns=("setting", "EASY", *NAMES.values()),
        rows=rows,
        notes=(f"{min(found.seeds, VARIANT_SEEDS)} seeds; with all jobs malleable nothing is drawn.",),
    )
