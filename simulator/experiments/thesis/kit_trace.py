"""Chapter 5 on the KIT trace: SQ with M 1 to 8 against MQ with R 0.5 to 7% on N1152C20.

Prints Tables 5.3(b) and 5.6 and the numbers behind Figures 5.4(b) to 5.7(b). Which queue has the highly
responsive (HRR) jobs is not said; it is the one with fewer of them, 2,349 of 114,347 jobs (Table 5.2).
"""

from __future__ import annotations

from foundation.errors import InputError
from simulator.experiments.paper_tables import ExperimentTable
from simulator.experiments.thesis.case_outcome import Outcome
from simulator.experiments.thesis.case_runs import Case, mq_cases, sq
from simulator.experiments.thesis.compared_cases import done_table, waited_table
from simulator.experiments.thesis.thesis5 import figures_table
from simulator.world import System
from workloads.swf import SwfColumns

SYSTEM = System(1152, 20)
SHARES = ("7%", "5%", "3%", "1%", "0.5%")

WAITED = {
    "SQ, M=8": 0.00042,
    "SQ, M=7": 0.00042,
    "SQ, M=6": 0.00042,
    "SQ, M=5": 0.0012,
    "SQ, M=4": 0.0093,
    "SQ, M=3": 0.30,
    "SQ, M=2": 0.18,
    "SQ, M=1": 0.41,
    "MQ, R=7%": 0.0,
    "MQ, R=5%": 0.0,
    "MQ, R=3%": 0.011,
    "MQ, R=1%": 0.18,
    "MQ, R=0.5%": 0.30,
}
"""Table 5.3(b)."""

CPU_TIME_DONE_H = {
    "SQ, M=8": (13566, 13728, 14147),
    "SQ, M=7": (13568, 13728, 14101),
    "SQ, M=6": (13569, 13728, 14108),
    "SQ, M=5": (13568, 13728, 14102),
    "SQ, M=4": (13568, 13728, 14109),
    "SQ, M=3": (13566, 13727, 14072),
    "SQ, M=2": (13566, 13726, 14047),
    "SQ, M=1": (13566, 13726, 13982),
    "MQ, R=7%": (12838, 13365, 13982),
    "MQ, R=5%": (12837, 13359, 13982),
    "MQ, R=3%": (12856, 13359, 13982),
    "MQ, R=1%": (12835, 13354, 13982),
    "MQ, R=0.5%": (12834, 13351, 13982),
}
"""Table 5.6."""

NOTES = (
    "Thesis, in words: one HRR job waits, for about 6 minutes, with M = 6 to 8; none with MQ from R=5% on.",
    "With MQ, R=3%, 3.2% of the jobs have S_OSub of at least 100; with SQ, M=8, none has more than 6.",
)


def cases() -> list[Case]:
    """Return the cases."""
    return [*(sq(multiplicity) for multiplicity in range(8, 0, -1)), *mq_cases(SYSTEM, SHARES, 1)]


def tables(outcomes: dict[str, Outcome]) -> list[ExperimentTable]:
    """Return the tables."""
    return [
        waited_table("Table 5.3(b)", outcomes, WAITED),
        done_table("Table 5.6", outcomes, CPU_TIME_DONE_H),
        figures_table("(b)", outcomes, NOTES),
    ]


def smaller_queue(trace: SwfColumns) -> int:
    """Return the queue with the fewest jobs.

    Raises
    ------
    InputError
        The trace has not two queues or more.
    """
    counts = trace.frame["queue"].drop_nulls().value_counts().sort("count", "queue")
    if counts.height < 2:
        raise InputError(f"trace {trace.name} has no two queues: it cannot be the KIT trace of the thesis")
    return int(counts["queue"][0])
