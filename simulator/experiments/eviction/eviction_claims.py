"""Every V claim of CoSim, judged."""

from __future__ import annotations

import math

from analysis.claims import Judgement, Row, Verdict, fact, not_comparable
from simulator.experiments.eviction.claims_loss import loss_rows
from simulator.experiments.eviction.claims_time import growth_row, time_rows
from simulator.experiments.eviction.eviction_survey import Survey
from simulator.experiments.eviction.eviction_words import claim
from simulator.experiments.eviction.scenarios import NODES
from simulator.experiments.eviction.trace_facts import Facts

NO_TRACE = "no trace was named"


def claim_rows(survey: Survey, facts: Facts | None) -> list[Row]:
    """Return the rows of V1 to V16; without a trace V12 to V14 are not comparable."""
    found = [
        _v1(survey),
        *time_rows(survey),
        *loss_rows(survey),
        growth_row(survey),
        *_trace_rows(facts),
        _v15(survey),
    ]
    verdict = {row.id: row.verdict for row in found}
    said = claim("V16", "VI", "conclusions 1 and 2", "trade-off", "optimum in ms; greedy's loss does not pay")
    rests_on = [verdict["V6"], verdict["V7"]]
    worst = next(
        (one for one in (Verdict.FAILS, Verdict.NOT_COMPARABLE, Verdict.TIE) if one in rests_on), None
    )
    judged = Judgement(verdict=worst or Verdict.HOLDS, note="the lesser of both")
    return [*found, Row.of(said, judged, f"V6 {verdict['V6']}, V7 {verdict['V7']}")]


def _v1(survey: Survey) -> Row:
    said = claim("V1", "IV-C, IV-E", "all", "loss of the programme against backtracking", "equal everywhere")
    alike = ended = 0
    for one in (one for of in survey.settings.values() for one in of):
        ended += one.ended
        pairs = zip(one.optimum, one.backtracking, strict=False)
        alike += one.ended and all(math.isclose(best, found, abs_tol=1e-4) for best, found in pairs)
    ours = (
        f"equal in {survey.worlds_alike:,} of {survey.worlds:,} random worlds and in {alike} of the {ended} "
        "questions of which backtracking came to an end"
    )
    return Row.of(said, fact(holds=survey.worlds_alike == survey.worlds and alike == ended), ours)


def _v15(survey: Survey) -> Row:
    said = claim("V15", "III-C", "one solution", "other node counts 0..M", "come with the same table")
    ours = f"{survey.needs_alike:,} of {survey.needs:,} answered as by a table of their own"
    return Row.of(said, fact(holds=survey.needs_alike == survey.needs), ours)


def _trace_rows(facts: Facts | None) -> list[Row]:
    occupancy = claim(
        "V12",
        "IV-A",
        "Theta 2019, 91,217 jobs",
        "most frequent occupancy",
        "4,352 nodes, 34 days; all 4,392 1.5 days",
    )
    running = claim("V13", "IV-A", "Theta 2019 near capacity", "running jobs", "up to about 25")
    short = claim("V14", "IV-A", "Theta 2019", "jobs under 30 minutes", "61%")
    if facts is None:
        return [Row.of(one, not_comparable(NO_TRACE)) for one in (occupancy, running, short)]
    other = f"another trace: {facts.name}, {facts.jobs:,} jobs in {facts.days:.0f} days"
    same = facts.busiest == NODES
    return [
        Row.of(
            occupancy,
            fact(holds=True, note=f"{other}; judged is which is the most frequent")
            if same
            else not_comparable(other),
            f"{facts.busiest:,} nodes, {facts.busiest_days:.1f} days; all 4,392 {facts.full_days:.1f} days",
        ),
        Row.of(
            running,
            not_comparable(other),
            f"up to {facts.most_jobs}, 99% of the time up to {facts.common_jobs}",
        ),
        Row.of(short, not_comparable(other), f"{facts.short:.0%}"),
    ]
