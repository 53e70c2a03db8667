"""Chapter 6: interactive jobs that idle, C_o = 1.2.

This is experiment 1: SQ with M 1 to 4 against MQ with R 1 to 3% and M_I = 4 (Tables 6.2 and 6.3, Figure
6.6). Experiment 2 is in ``survey``.
"""

from __future__ import annotations

from simulator.experiments.paper_tables import ABSENT, ExperimentTable, against, number
from simulator.experiments.thesis.case_outcome import Outcome
from simulator.experiments.thesis.case_runs import Case, mq_cases, published_label, sq
from simulator.experiments.thesis.compared_cases import done_table, waited_table
from simulator.world import System

SYSTEM = System(150, 12)
OVERHEAD = "1.2"
SHARES = ("3%", "2%", "1%")
MULTIPLICITY_INTERACTIVE = 4

WAITED = {
    "SQ, M=4": 0.0,
    "SQ, M=3": 0.007,
    "SQ, M=2": 0.012,
    "SQ, M=1": 0.062,
    "MQ, R=3%": 0.0,
    "MQ, R=2%": 0.0,
    "MQ, R=1%": 0.083,
}
"""Table 6.2."""

DONE_H = {
    "SQ, M=4": (1859, 2004, 2194),
    "SQ, M=3": (1870, 2016, 2192),
    "SQ, M=2": (1883, 2013, 2154),
    "SQ, M=1": (1852, 2015, 2138),
    "MQ, R=3%": (1851, 2015, 2138),
    "MQ, R=2%": (1851, 2015, 2138),
    "MQ, R=1%": (1850, 2015, 2138),
}
"""Table 6.3: 90th, 95th, makespan."""

BATCH_SLOWDOWN = {"MQ, R=3%": 18652.0, "MQ, R=2%": 12697.0}
"""Largest slowdowns of batch jobs that the text gives for Figure 6.6(b)."""
ALL_SLOWDOWN = {"SQ, M=4": 4.8}
"""The same for all jobs."""


def cases() -> list[Case]:
    """Return the cases; MQ with R rounded down, and to the nearest number where that differs."""
    multiplicities = (4, 3, 2, 1)
    return [*map(sq, multiplicities), *mq_cases(SYSTEM, SHARES, MULTIPLICITY_INTERACTIVE)]


def tables(outcomes: dict[str, Outcome]) -> list[ExperimentTable]:
    """Return the tables."""
    return [
        waited_table("Table 6.2", outcomes, WAITED),
        done_table("Table 6.3", outcomes, DONE_H),
        _figure(outcomes),
    ]


def _figure(outcomes: dict[str, Outcome]) -> ExperimentTable:
    rows = []
    for label, outcome in outcomes.items():
        name = published_label(label)
        largest = max(outcome.slowdown_batch_max, outcome.slowdown_interactive_max)
        told = BATCH_SLOWDOWN.get(name) or ALL_SLOWDOWN.get(name)
        rows.append(
            (
                label,
                number(outcome.interactive_wait_max_s),
                number(outcome.slowdown_batch_max),
                number(outcome.slowdown_interactive_max),
                number(told) if told else ABSENT,
                against(outcome.slowdown_batch_max if name in BATCH_SLOWDOWN else largest, told),
            )
        )
    return ExperimentTable(
        name="Figure 6.6",
        title="longest wait of interactive jobs, largest S_OSub",
        columns=("case", "wait [s]", "S_OSub, batch", "S_OSub, interactive", "thesis", "difference"),
        rows=rows,
        notes=("The thesis tells that of batch jobs for MQ, and that of all jobs for SQ, M=4.",),
    )
