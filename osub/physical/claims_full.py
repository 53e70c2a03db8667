"""Claims that the thesis's own size can tell: N12C12, simulated on several draws of the trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import mean

import polars as pl

from analysis import claims as rules
from analysis.claims import ClaimRow, Judgement
from osub.physical import published
from osub.physical.layouts import same_places
from osub.physical.outcome import (
    SHARED,
    SHARES,
    SYSTEM,
    FullSize,
    ReplayOutcome,
    case_of,
    largest_slowdown,
    longest_wait,
    percentile,
)
from osub.physical.tables import KINDS, share_text
from simulator.experiments.claim_study import Judged, rows_of
from workloads.trace.scaling import JOB_OF_FIGURE_7_8

MQ = ("MQ 1+11", "MQ 2+10", "MQ 3+9", "MQ 4+8")
ALONE = "SQ M=1"
SUFFIX = " sim"
"""After the number of a claim that is judged on the simulated N12C12."""


def full_rows(full: FullSize) -> list[ClaimRow]:
    """Judge what N12C12 tells."""
    judged = _waiting(full) | _completion(full) | _slowdowns(full) | _table_7_9(full) | {"R22": _places(full)}
    return rows_of({name + SUFFIX: of for name, of in judged.items()}, f"{SYSTEM} simulated, ")


def _waiting(full: FullSize) -> dict[str, Judged]:
    waited = {case: full.values(case, ReplayOutcome.waited) for case in full.outcomes}
    others = max(mean(waited[case]) for case in MQ[1:])
    interactive, batch = map(longest_wait, KINDS)
    falls = {
        f"{less}, interactive": full.differences(more, less, interactive)
        for more, less in pairwise(MQ)
        if any(full.differences(more, less, interactive))
    }
    rises = {f"{more}, batch": full.differences(more, less, batch) for less, more in pairwise(MQ)}
    start = [
        max(abs(one - other) for one, other in zip(mine.jobs["start_s"], more.jobs["start_s"], strict=True))
        for mine, more in zip(full.outcomes[SHARED], full.outcomes["SQ M=3"], strict=True)
    ]
    waits = {
        kind: ", ".join(f"{mean(full.values(case, longest_wait(kind))):,.0f}" for case in MQ)
        for kind in KINDS
    }
    shorter = {kind: full.differences(ALONE, SHARED, longest_wait(kind)) for kind in KINDS}
    alike = f"{sum(one == 0 for one in start)} of {len(start)} draws have every start alike"
    return {
        "R4": (rules.magnitude(waited[ALONE], 0.43), share_text(waited[ALONE])),
        "R5": (rules.magnitude(waited[SHARED], 0.0), share_text(waited[SHARED])),
        "R6": (
            _both(rules.magnitude(waited[MQ[0]], 0.29), others == 0, "no job waits with two nodes or more"),
            ", ".join(share_text(waited[case]) for case in MQ),
        ),
        "R7": (rules.over_settings(falls | rises), "; ".join(f"{kind} {waits[kind]} s" for kind in KINDS)),
        "R8": (
            rules.over_settings(shorter),
            "; ".join(
                f"{kind} {mean(full.values(ALONE, longest_wait(kind))):,.0f} to "
                f"{mean(full.values(SHARED, longest_wait(kind))):,.0f} s"
                for kind in KINDS
            ),
        ),
        "R10": (
            rules.fact(holds=mean(start) < 1.0, note=alike, found=rules.estimate(start)),
            f"largest difference of a start: {rules.estimate(start).text('s')}",
        ),
    }


def _completion(full: FullSize) -> dict[str, Judged]:
    errors = [
        error
        for label, thesis in published.PERCENTILES_S.items()
        for error in _errors(full.outcomes[case_of(label)], thesis)
    ]
    worst = max(errors, key=abs)
    near = f"{sum(abs(error) <= rules.NEAR for error in errors)} of {len(errors)} within a fifth"
    late = {case: full.values(case, percentile(1)) for case in (*MQ, ALONE, SHARED)}
    means = {case: mean(of) for case, of in late.items()}
    others = [of for case, of in means.items() if case != MQ[3]]
    return {
        "R11": (
            rules.fact(holds=abs(worst) <= rules.NEAR, note=near),
            f"mean difference {mean(errors):+.1%}, largest {worst:+.1%}",
        ),
        "R12": (
            rules.best_of(late, MQ[3], lowest=False),
            f"{means[MQ[3]]:,.0f} s; others {min(means.values()):,.0f} to {max(others):,.0f} s",
        ),
    }


def _slowdowns(full: FullSize) -> dict[str, Judged]:
    largest = [full.values(case, largest_slowdown("interactive")) for case in MQ[1:]]
    of_two = [mean(values) for values in zip(*largest, strict=True)]
    decided = [one.slowest_job("interactive") == JOB_OF_FIGURE_7_8 for one in full.outcomes[SHARED]]
    answers = {case: mean(full.values(case, ReplayOutcome.waited)) for case in (*MQ, SHARED)}
    first, *others = answers.values()
    later = mean(full.values(MQ[3], percentile(1))) > mean(full.values(MQ[1], percentile(1)))
    spread = {case: mean(full.values(case, ReplayOutcome.spread)) for case in (MQ[1], SHARED)}
    return {
        "R13": (rules.magnitude(of_two, 1.0), rules.estimate(of_two).text()),
        "R16": (
            rules.fact(
                holds=sum(decided) > len(decided) / 2,
                note="its busy time is known; that of the others is drawn",
            ),
            f"{JOB_OF_FIGURE_7_8} in {sum(decided)} of {len(decided)} draws",
        ),
        "R17": (
            rules.direction(full.differences(SHARED, MQ[1], ReplayOutcome.spread)),
            " and ".join(f"{of:.2g}" for of in spread.values()),
        ),
        "R21": (
            rules.fact(
                holds=first > 0 and not any(others) and later,
                note="waiting decides first, then the 95th percentile",
            ),
            ", ".join(f"{case}: {answer:.0%} wait" for case, answer in answers.items()),
        ),
    }


def _table_7_9(full: FullSize) -> dict[str, Judged]:
    ours = full.outcomes[SHARED]
    at_once = [1 - one.waited() for one in ours]
    longest = [one.jobs.filter(pl.col("kind") == "interactive")["wait_s"].max() for one in ours]
    zero = all(wait == 0 for wait in longest)
    slow = {kind: full.values(SHARED, largest_slowdown(kind)) for kind in KINDS}
    batch = rules.magnitude(slow["batch"], published.SIMULATED_SLOWDOWN["batch"])
    near = abs(mean(slow["interactive"]) / published.SIMULATED_SLOWDOWN["interactive"] - 1) <= rules.NEAR
    errors = _errors(ours, published.SIMULATED_PERCENTILES_S)
    done = [f"{mean(full.values(SHARED, percentile(number))):,.0f}" for number in range(len(SHARES))]
    against_real = _errors(ours, published.PERCENTILES_S["SQ M=2 gangd"])
    return {
        "R23": (
            _both(rules.magnitude(at_once, 1.0), zero, "no interactive job waits at all"),
            f"{share_text(at_once)}, {max(float(wait or 0) for wait in longest):,.0f} s",  # type: ignore[arg-type]  # of numbers
        ),
        "R24": (
            _both(batch, near, "interactive within a fifth"),
            f"{rules.estimate(slow['batch']).text()}, {rules.estimate(slow['interactive']).text()}",
        ),
        "R25": (_all_near(errors, _signed(errors)), f"{', '.join(done)} s"),
        "R26": (_all_near(against_real, "judged: within a fifth"), _signed(against_real)),
    }


def _errors(ours: Sequence[ReplayOutcome], thesis: Iterable[float | None]) -> list[float]:
    """Return how far the mean of each percentile is from the thesis's, where it prints one."""
    return [
        mean(one.percentiles_s()[number] for one in ours) / known - 1
        for number, known in enumerate(thesis)
        if known is not None
    ]


def _all_near(errors: Sequence[float], note: str) -> Judgement:
    return rules.fact(holds=all(abs(error) <= rules.NEAR for error in errors), note=note)


def _signed(errors: Sequence[float]) -> str:
    return ", ".join(f"{error:+.1%}" for error in errors)


def _places(full: FullSize) -> Judged:
    """Judge that our simulation puts the first fifteen jobs where the thesis's does."""
    same = same_places(full.places, published.SIMULATED_PLACES)
    real = same_places(full.places, published.REAL_PLACES)
    ends = sum(abs(full.finish_s[job] - end_s) < 1 for job, end_s in published.SIMULATED_FINISH_S.items())
    whole = len(published.SIMULATED_PLACES)
    note = f"places of the thesis's simulation: {same} of {whole}, its finish times: {ends} of {whole}"
    return rules.fact(holds=real == published.SAME_PLACES, note=note), f"{real} of {whole}"


def _both(judged: Judgement, also: bool, note: str) -> Judgement:
    """Return a judgement that holds only where a second fact is true, too."""
    more = f"{judged.note}; {note}: {'yes' if also else 'no'}"
    if also:
        return Judgement(verdict=judged.verdict, estimate=judged.estimate, note=more)
    return rules.fact(holds=False, note=more, found=judged.estimate)
