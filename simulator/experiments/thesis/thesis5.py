"""Chapter 5: interactive jobs as short batch jobs, C_o = 1.0, SQ with M 1 to 4 against MQ with R 1 to 12%.

Prints Tables 5.3(a), 5.4 and 5.5 and the numbers behind Figures 5.4 to 5.7 for the UniLu trace on N150C12. MQ
has no oversubscribing here.
"""

from __future__ import annotations

from simulator.experiments.paper_tables import ExperimentTable, against, number, percent
from simulator.experiments.thesis.case_outcome import Outcome
from simulator.experiments.thesis.case_runs import Case, mq_cases, sq
from simulator.experiments.thesis.compared_cases import done_table, waited_table
from simulator.world import System

SYSTEM = System(150, 12)
OVERHEAD = "1.0"
SHARES = ("12%", "10%", "7%", "5%", "3%", "1%")
EXAMPLES = (2819, 918, 9121)

WAITED = {
    "SQ, M=4": 0.0,
    "SQ, M=3": 0.0011,
    "SQ, M=2": 0.021,
    "SQ, M=1": 0.17,
    "MQ, R=12%": 0.0,
    "MQ, R=10%": 0.0,
    "MQ, R=7%": 0.0023,
    "MQ, R=5%": 0.0085,
    "MQ, R=3%": 0.072,
    "MQ, R=1%": 0.72,
}
"""Table 5.3(a)."""

CPU_TIME_DONE_H = {
    "SQ, M=4": (1883, 2015, 2139),
    "SQ, M=3": (1889, 2015, 2139),
    "SQ, M=2": (1874, 2016, 2193),
    "SQ, M=1": (1850, 2015, 2139),
    "MQ, R=12%": (1859, 2015, 2139),
    "MQ, R=10%": (1833, 1989, 2139),
    "MQ, R=7%": (1833, 1989, 2139),
    "MQ, R=5%": (1833, 1989, 2139),
    "MQ, R=3%": (1832, 1989, 2139),
    "MQ, R=1%": (1832, 1989, 2158),
}
"""Table 5.5."""

JOBS = {
    (2819, "MQ, R=5%"): (2938, 29289, 11.0),
    (2819, "SQ, M=4"): (5876, 0, 2.0),
    (918, "MQ, R=5%"): (119, 0, 1.0),
    (918, "SQ, M=4"): (119, 0, 1.0),
    (9121, "MQ, R=5%"): (20920, 12702, 7.07),
    (9121, "SQ, M=4"): (41840, 0, 2.0),
}
"""Table 5.4: run time, wait, S_OSub."""

NOTES = (
    "Thesis, in words: with M = 4 no job waits and S_OSub is at most 4.",
    "With MQ, R=10%, S_OSub of all HRR jobs is 1.",
    "With MQ, R=5%, 1.3% of the jobs have S_OSub of at least 100.",
    "The larger R, the larger S_OSub of normal jobs.",
)


def cases() -> list[Case]:
    """Return the cases; MQ with R rounded down, and to the nearest number where that differs."""
    return [*(sq(multiplicity) for multiplicity in (4, 3, 2, 1)), *mq_cases(SYSTEM, SHARES, 1)]


def tables(outcomes: dict[str, Outcome]) -> list[ExperimentTable]:
    """Return the tables of the chapter."""
    return [
        waited_table("Table 5.3(a)", outcomes, WAITED),
        _examples(outcomes),
        done_table("Table 5.5", outcomes, CPU_TIME_DONE_H),
        figures_table("(a)", outcomes, NOTES),
    ]


def _examples(outcomes: dict[str, Outcome]) -> ExperimentTable:
    rows = []
    for (job, label), thesis in JOBS.items():
        found = [example for example in outcomes[label].examples if example.job == job]
        if not found:
            continue
        one = found[0]
        ours = (one.run_s, one.wait_s, one.slowdown_osub)
        cells = [
            f"{number(mine)} ({number(theirs)}, {against(mine, theirs)})"
            for mine, theirs in zip(ours, thesis, strict=True)
        ]
        rows.append((str(job), label, *cells))
    return ExperimentTable(
        name="Table 5.4",
        title="single jobs; the thesis's numbers in parentheses",
        columns=("job", "case", "run time [s]", "wait [s]", "S_OSub"),
        rows=rows,
        notes=(
            "The run time of 20,920 s in the thesis's row of job 9121 is that of job 9087 in the trace.",
            "With a wait of 12,702 s that would make an S_OSub of 1.61, not 7.07.",
        ),
    )


def figures_table(part: str, outcomes: dict[str, Outcome], notes: tuple[str, ...]) -> ExperimentTable:
    """Return the numbers behind one half of Figures 5.4 to 5.7."""
    rows = [
        (
            label,
            number(outcome.interactive_wait_max_s),
            number(outcome.slowdown_batch_max),
            number(outcome.slowdown_interactive_max),
            percent(outcome.slowdown_from_100),
            number(outcome.slowdown_long_batch_max),
        )
        for label, outcome in outcomes.items()
    ]
    return ExperimentTable(
        name=", ".join(f"{figure}{part}" for figure in ("Figures 5.4", "5.5", "5.6", "5.7")),
        title="longest wait of interactive jobs, largest S_OSub, jobs with S_OSub of at least 100",
        columns=("case", "wait [s]", "S_OSub, normal", "S_OSub, HRR", "S_OSub >= 100", "S_OSub, long normal"),
        rows=rows,
        notes=notes,
    )
