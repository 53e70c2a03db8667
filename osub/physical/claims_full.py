"""Claims that the thesis's own size can tell: N12C12, simulated on several draws of the trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import mean

import polars as pl

from analysis.claims import (
    NEAR,
    Claim,
    ClaimRow,
    Judgement,
    best_of,
    direction,
    estimate,
    fact,
    magnitude,
    over_settings,
)
from osub.physical import published
from osub.physical.layouts import same_places
from osub.physical.outcome import SHARED, SHARES, SYSTEM, FullSize, ReplayOutcome
from osub.physical.tables import share_text
from workloads.trace.scaling import JOB_OF_FIGURE_7_8

MQ = ("MQ 1+11", "MQ 2+10", "MQ 3+9", "MQ 4+8")
SUFFIX = " sim"
"""After the number of a claim that is judged on the simulated N12C12."""
Value = Callable[[ReplayOutcome], float]


def full_rows(full: FullSize) -> list[ClaimRow]:
    """Judge what N12C12 tells."""
    return [*_waiting(full), *_completion(full), *_slowdowns(full), *_table_7_9(full), places_row(full)]


def _waiting(full: FullSize) -> list[ClaimRow]:
    waited = {case: _values(full, case, ReplayOutcome.waited) for case in full.outcomes}
    others = max(mean(waited[case]) for case in MQ[1:])
    interactive, batch = _longest("interactive"), _longest("batch")
    falls = {
        f"{less}, interactive": _differences(full, more, less, interactive)
        for more, less in pairwise(MQ)
        if any(_differences(full, more, less, interactive))
    }
    rises = {f"{more}, batch": _differences(full, more, less, batch) for less, more in pairwise(MQ)}
    start = [
        max(abs(one - other) for one, other in zip(mine.jobs["start_s"], more.jobs["start_s"], strict=True))
        for mine, more in zip(full.outcomes[SHARED], full.outcomes["SQ M=3"], strict=True)
    ]
    return [
        _row(
            "R4",
            "Table 7.5",
            "SQ M=1",
            "interactive jobs that wait",
            "43%",
            magnitude(waited["SQ M=1"], 0.43),
            share_text(waited["SQ M=1"]),
        ),
        _row(
            "R5",
            "Table 7.5",
            "SQ M=2",
            "interactive jobs that wait",
            "0%",
            magnitude(waited[SHARED], 0.0),
            share_text(waited[SHARED]),
        ),
        _row(
            "R6",
            "Table 7.5",
            "MQ, 1 to 4 interactive nodes",
            "interactive jobs that wait",
            "29%, 0%, 0%, 0%",
            _both(magnitude(waited["MQ 1+11"], 0.29), others == 0, "no job waits with two nodes or more"),
            ", ".join(share_text(waited[case]) for case in MQ),
        ),
        _row(
            "R7",
            "Fig. 7.5",
            "MQ, 1 to 4 interactive nodes",
            "longest wait",
            "interactive falls, batch rises",
            over_settings(falls | rises),
            "interactive "
            + ", ".join(f"{mean(_values(full, case, interactive)):,.0f}" for case in MQ)
            + " s; batch "
            + ", ".join(f"{mean(_values(full, case, batch)):,.0f}" for case in MQ)
            + " s",
        ),
        _row(
            "R8",
            "Fig. 7.5",
            "SQ, M = 1 to 2",
            "longest wait, both kinds",
            "falls to one or two seconds",
            over_settings(
                {
                    kind: _differences(full, "SQ M=1", SHARED, _longest(kind))
                    for kind in ("interactive", "batch")
                }
            ),
            "; ".join(
                f"{kind} {mean(_values(full, 'SQ M=1', _longest(kind))):,.0f} to "
                f"{mean(_values(full, SHARED, _longest(kind))):,.0f} s"
                for kind in ("interactive", "batch")
            ),
        ),
        _row(
            "R10",
            "7.5.1",
            "SQ, M = 3 against M = 2",
            "starts",
            "the same",
            fact(
                holds=mean(start) < 1.0,
                note=f"{sum(one == 0 for one in start)} of {len(start)} draws have every start alike",
                found=estimate(start),
            ),
            f"largest difference of a start: {estimate(start).text('s')}",
        ),
    ]


def _completion(full: FullSize) -> list[ClaimRow]:
    errors = []
    for label, thesis in published.PERCENTILES_S.items():
        case = SHARED if label.startswith("SQ M=2") else label
        errors += [
            mean(_values(full, case, _percentile(number))) / known - 1
            for number, known in enumerate(thesis)
            if known is not None
        ]
    worst = max(errors, key=abs)
    late = {case: _values(full, case, _percentile(1)) for case in (*MQ, "SQ M=1", SHARED)}
    return [
        _row(
            "R11",
            "Table 7.6",
            "seven runs",
            "90th, 95th, 100th percentile",
            "20 values",
            fact(
                holds=abs(worst) <= NEAR,
                note=f"{sum(abs(error) <= NEAR for error in errors)} of {len(errors)} within a fifth",
            ),
            f"mean difference {mean(errors):+.1%}, largest {worst:+.1%}",
        ),
        _row(
            "R12",
            "7.5.2",
            "MQ 4+8 against all others",
            "95th percentile",
            "clearly later",
            best_of(late, "MQ 4+8", lowest=False),
            f"{mean(late['MQ 4+8']):,.0f} s; others {min(map(mean, late.values())):,.0f} to "
            f"{max(mean(of) for case, of in late.items() if case != 'MQ 4+8'):,.0f} s",
        ),
    ]


def _slowdowns(full: FullSize) -> list[ClaimRow]:
    of_two = [
        mean(values)
        for values in zip(
            *(_values(full, case, lambda one: one.largest_slowdown("interactive")) for case in MQ[1:]),
            strict=True,
        )
    ]
    decided = [one.slowest_job("interactive") == JOB_OF_FIGURE_7_8 for one in full.outcomes[SHARED]]
    ranking = {case: _values(full, case, _percentile(1)) for case in MQ}
    answers = [mean(_values(full, case, ReplayOutcome.waited)) for case in (*MQ, SHARED)]
    holds = answers[0] > 0 and not any(answers[1:]) and mean(ranking[MQ[3]]) > mean(ranking[MQ[1]])
    return [
        _row(
            "R13",
            "Fig. 7.7",
            "MQ, two interactive nodes and more",
            "largest interactive slowdown",
            "about 1",
            magnitude(of_two, 1.0),
            estimate(of_two).text(),
        ),
        _row(
            "R16",
            "Fig. 7.7, 7.8",
            "SQ M=2",
            "job of the largest interactive slowdown",
            "5030",
            fact(
                holds=sum(decided) > len(decided) / 2,
                note="its busy time is known; that of the others is drawn",
            ),
            f"5030 in {sum(decided)} of {len(decided)} draws",
        ),
        _row(
            "R17",
            "Fig. 7.9",
            "MQ 2+10 against SQ M=2",
            "spread of the slowdowns, middle half",
            "MQ concentrated, SQ spread",
            direction(_differences(full, SHARED, "MQ 2+10", ReplayOutcome.spread)),
            f"{mean(_values(full, 'MQ 2+10', ReplayOutcome.spread)):.2g} and "
            f"{mean(_values(full, SHARED, ReplayOutcome.spread)):.2g}",
        ),
        _row(
            "R21",
            "7.5.4",
            "ranking by responsiveness first",
            "best layouts",
            "MQ 2+10, then 3+9; 1+11 fails on waiting, 4+8 on batch; SQ M=2 meets both",
            fact(holds=holds, note="waiting decides first, then the 95th percentile"),
            ", ".join(
                f"{case}: {answer:.0%} wait" for case, answer in zip((*MQ, SHARED), answers, strict=True)
            ),
        ),
    ]


def _table_7_9(full: FullSize) -> list[ClaimRow]:
    ours = full.outcomes[SHARED]
    at_once = [1 - one.waited() for one in ours]
    longest = [one.jobs.filter(pl.col("kind") == "interactive")["wait_s"].max() for one in ours]
    zero = all(wait == 0 for wait in longest)
    slow = {kind: [one.largest_slowdown(kind) for one in ours] for kind in ("batch", "interactive")}
    batch = magnitude(slow["batch"], published.SIMULATED_SLOWDOWN["batch"])
    errors = [
        mean(_values(full, SHARED, _percentile(number))) / known - 1
        for number, known in enumerate(published.SIMULATED_PERCENTILES_S)
    ]
    near = abs(mean(slow["interactive"]) / published.SIMULATED_SLOWDOWN["interactive"] - 1) <= NEAR
    return [
        _row(
            "R23",
            "Table 7.9",
            "SQ M=2",
            "interactive jobs that start at once, longest wait",
            "100%, 0 s",
            _both(magnitude(at_once, 1.0), zero, "no interactive job waits at all"),
            f"{share_text(at_once)}, {max(float(wait or 0) for wait in longest):,.0f} s",  # type: ignore[arg-type]  # of numbers
        ),
        _row(
            "R24",
            "Table 7.9",
            "SQ M=2",
            "largest slowdown, batch and interactive",
            "2.40, 2.02",
            _both(batch, near, "interactive within a fifth"),
            f"{estimate(slow['batch']).text()}, {estimate(slow['interactive']).text()}",
        ),
        _row(
            "R25",
            "Table 7.9",
            "SQ M=2",
            "90th, 95th, 100th percentile",
            "58,578, 67,223, 74,769 s",
            fact(
                holds=all(abs(error) <= NEAR for error in errors),
                note=", ".join(f"{error:+.1%}" for error in errors),
            ),
            ", ".join(
                f"{mean(_values(full, SHARED, _percentile(number))):,.0f}" for number in range(len(SHARES))
            )
            + " s",
        ),
        _against_real(ours),
    ]


def _against_real(ours: Sequence[ReplayOutcome]) -> ClaimRow:
    """Judge our simulation against what the thesis measured under BS."""
    errors = [
        mean(one.percentiles_s()[number] for one in ours) / known - 1
        for number, known in enumerate(published.PERCENTILES_S["SQ M=2 gangd"])
        if known is not None
    ]
    return _row(
        "R26",
        "7.5.5",
        "SQ M=2 against the thesis's real run under BS",
        "percentiles",
        "+0.3%, +4.5%, -2.0%",
        fact(holds=all(abs(error) <= NEAR for error in errors), note="judged: within a fifth"),
        ", ".join(f"{error:+.1%}" for error in errors),
    )


def places_row(full: FullSize) -> ClaimRow:
    """Judge that our simulation puts the first fifteen jobs where the thesis's does."""
    same = same_places(full.places, published.SIMULATED_PLACES)
    real = same_places(full.places, published.REAL_PLACES)
    ends = sum(abs(full.finish_s[job] - end_s) < 1 for job, end_s in published.SIMULATED_FINISH_S.items())
    whole = len(published.SIMULATED_PLACES)
    return _row(
        "R22",
        "Table 7.8",
        "first 15 jobs, simulated",
        "same place as in the thesis's real run",
        "13 of 15",
        fact(
            holds=real == published.SAME_PLACES,
            note=f"places of the thesis's simulation: {same} of {whole}, its finish times: {ends} of {whole}",
        ),
        f"{real} of {whole}",
    )


def _row(
    number: str, where: str, setting: str, quantity: str, paper: str, judged: Judgement, ours: str
) -> ClaimRow:
    claim = Claim(
        id=f"{number}{SUFFIX}",
        where=where,
        setting=f"{SYSTEM} simulated, {setting}",
        quantity=quantity,
        paper=paper,
    )
    return ClaimRow.of(claim, judged, ours)


def _both(judged: Judgement, also: bool, note: str) -> Judgement:
    """Return a judgement that holds only where a second fact is true, too."""
    more = f"{judged.note}; {note}: {'yes' if also else 'no'}"
    if also:
        return Judgement(verdict=judged.verdict, estimate=judged.estimate, note=more)
    return fact(holds=False, note=more, found=judged.estimate)


def _values(full: FullSize, case: str, value: Value) -> list[float]:
    return [value(outcome) for outcome in full.outcomes[case]]


def _differences(full: FullSize, more: str, less: str, value: Value) -> list[float]:
    pairs = zip(full.outcomes[more], full.outcomes[less], strict=True)
    return [value(one) - value(other) for one, other in pairs]


def _longest(kind: str) -> Value:
    return lambda outcome: outcome.longest_wait_s(kind)


def _percentile(number: int) -> Value:
    return lambda outcome: outcome.percentiles_s()[number]
