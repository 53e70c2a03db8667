"""The findings of a study: a verdict in sentences, claims (R1 to R3 here), tables and figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path
from statistics import mean

from analysis.claims import ClaimRow, Judgement, estimate, not_comparable, over_settings
from foundation.units import counted, several, verb
from osub.physical import published
from osub.physical.claims_full import full_rows
from osub.physical.claims_real import direction_of, real_rows
from osub.physical.folder import Results
from osub.physical.layouts import DEDICATED, GANGD, NAIVE, SLURM_GANG, SharingLayout, same_places
from osub.physical.outcome import SHARED, ReplayOutcome, longest_wait
from osub.physical.pair import PairTrial
from osub.physical.plan import DAY, FIRST, StudyPlan, fitted_trace, plan_lines
from osub.physical.tables import NAMES, all_tables, mean_text, share_text, table_7_4
from simulator.experiment_page import Drawing
from simulator.experiments.claim_study import StudyFindings, rows_of
from workloads.swf import SwfTrace

_NO_PAIR = "not replayed, or unfit to judge by"


def pair_rows(results: Results) -> list[ClaimRow]:
    """Judge the pair, one value a trial."""
    ranks = results.plan.nodes * results.plan.cores
    naive = results.pair_losses(NAIVE.key)
    unfair = [one.unfairness - other.unfairness for one, other in _both(results, SLURM_GANG.key, GANGD.key)]
    judged = {
        "R1": (
            direction_of(naive, "judged: a loss; its size is of 12 ranks", _NO_PAIR),
            mean_text(naive, percent=True),
        ),
        "R2": (
            direction_of(unfair, "5 s slices: jobs of some seconds end in the middle of a turn", _NO_PAIR),
            _loss_and_unfairness(results, SLURM_GANG),
        ),
        "R3": (_gangd(results), _loss_and_unfairness(results, GANGD)),
    }
    return rows_of(judged, f"two LU jobs of {counted(ranks, 'rank')}, ")


def pair_findings(results: Results) -> Iterator[str]:
    """Yield what came of the pair in plain words; a finding whose interval includes zero is undecided."""
    for layout, where in (
        (NAIVE, "Naive"),
        (SLURM_GANG, "Under Slurm's gang scheduler"),
        (GANGD, "Under gangd"),
    ):
        if losses := results.pair_losses(layout.key):
            yield f"{where} {_loss_sentence(losses)} (thesis, 12 ranks: {published.PAIR_TEXT[layout.label]})."
    if less := _less_than_naive(results):
        found = estimate([100 * one for one in less])
        if found.low is None or found.high is None or found.low <= 0 <= found.high:
            yield f"Whether gangd loses less than naive sharing is undecided: {found.text()} points less."
        else:
            word, points = ("less", less) if found.mean > 0 else ("more", [-one for one in less])
            difference = estimate([100 * one for one in points]).text()
            yield f"gangd loses {difference} percentage points {word} than naive sharing."
    if left := results.pairs_left_out():
        made = counted(len(left) + sum(len(of) for of in results.pairs.values()), "trial")
        name, why = next(iter(left.items()))
        out = f"{len(left)} {verb(len(left))} left out, as unfit to judge by"
        yield f"Of {made} of the pair {out} ({name}: {why})."


def _loss_sentence(losses: Sequence[float]) -> str:
    both = "two coupled jobs on the same cores"
    found = estimate(losses)
    if found.low is None or found.high is None:
        return f"it is undecided what {both} lose: {mean_text(losses, percent=True)} in one trial"
    trials = f"in {counted(found.count, 'trial')}"
    if found.low > 0:
        return f"{both} lose {mean_text(losses, percent=True)} of the speed of one alone {trials}"
    if found.high < 0:
        gains = [-loss for loss in losses]
        return f"{both} are together {mean_text(gains, percent=True)} faster than one alone {trials}"
    return (
        f"it is undecided whether {both} lose or gain: a loss of {mean_text(losses, percent=True)} {trials}"
    )


def _loss_and_unfairness(results: Results, layout: SharingLayout) -> str:
    losses = mean_text(results.pair_losses(layout.key), percent=True)
    return f"loss {losses}; unfairness {mean_text(_unfair(results, layout.key))}"


def _unfair(results: Results, layout: str) -> list[float]:
    return [trial.unfairness for trial in results.pairs.get(layout, {}).values()]


def _both(results: Results, one: str, other: str) -> list[tuple[PairTrial, PairTrial]]:
    """Return the trials that both layouts have."""
    first: Mapping[int, PairTrial] = results.pairs.get(one, {})
    second: Mapping[int, PairTrial] = results.pairs.get(other, {})
    return [(first[trial], second[trial]) for trial in first if trial in second]


def _less_than_naive(results: Results) -> list[float]:
    """Return how much less gangd loses than naive sharing, as shares of a job's speed alone."""
    return [naive.loss - gangd.loss for naive, gangd in _both(results, NAIVE.key, GANGD.key)]


def _gangd(results: Results) -> Judgement:
    less = _less_than_naive(results)
    if not less:
        return not_comparable("no trial has both naive and gangd")
    return over_settings(
        {
            "less is lost than naive": less,
            "shares differ by under a tenth": [0.1 - one for one in _unfair(results, GANGD.key)],
        }
    )


TITLE = "The thesis's physical study (chapter 7) again"
_HEAD_BYTES = 4096


def is_page(path: Path) -> bool:
    """Whether a file is a page of such a study, which another one may replace."""
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES).decode("utf-8", errors="replace")
    return f"<title>{TITLE}</title>" in unescape(head)


def findings(results: Results, first: SwfTrace, day: SwfTrace) -> StudyFindings:
    """Return everything that is shown; ``first`` and ``day`` are the traces for N12C12."""
    if results.plan.only is not None:
        return _pair_findings(results)

    def draw() -> list[Drawing]:
        from osub.physical.figures import drawings

        return drawings(results, day)

    return StudyFindings(
        title=TITLE,
        facts=[*verdict(results), *plan_lines(results.plan)],
        claims=claims(results),
        tables=all_tables(results, _traces(results.plan, results.layouts[DEDICATED.key], first, day)),
        figures=draw,
    )


def _pair_findings(results: Results) -> StudyFindings:
    """Return what is shown of a study of the pair alone."""

    def draw() -> list[Drawing]:
        from osub.physical.figures import PAIR_TITLE, pairs

        return [(PAIR_TITLE, pairs(results))] if results.pairs else []

    return StudyFindings(
        title=TITLE,
        facts=[*pair_findings(results), _evidence(results), *plan_lines(results.plan)],
        claims=pair_rows(results),
        tables=[table_7_4(results)],
        figures=draw,
    )


def claims(results: Results) -> list[ClaimRow]:
    """Return all claims by number; the thesis's own size after the cluster at hand."""
    rows = [*pair_rows(results), *real_rows(results), *full_rows(results.full)]
    return sorted(rows, key=lambda row: (int(row.id.split()[0][1:]), " " in row.id))


def verdict(results: Results) -> list[str]:
    """Return what came of it in a few sentences."""
    lines: list[str] = []
    for workload in results.workloads():
        lines += _waits(results, workload)
    lines += pair_findings(results)
    same = same_places(results.full.places, published.SIMULATED_PLACES)
    at_once = mean(1 - one.waited() for one in results.full.outcomes[SHARED])
    lines.append(
        f"At the thesis's own size, simulated, {same} of {len(published.SIMULATED_PLACES)} jobs of Table 7.8 "
        f"lie where its simulation puts them, and SQ M=2 starts {at_once:.0%} of the interactive jobs at "
        "once."
    )
    lines.append(_evidence(results))
    return lines


def _waits(results: Results, workload: str) -> Iterator[str]:
    waits, shares = (
        [results.values(key, value, workload) for key in (DEDICATED.key, NAIVE.key, GANGD.key)]
        for value in (longest_wait("interactive"), ReplayOutcome.waited)
    )
    if waits[0] and (waits[1] or waits[2]):
        alone, naive, gangd = (f"{mean_text(of)} s" if of else "not known" for of in waits)
        yield (
            f"{NAMES[workload].capitalize()}: the longest wait of an interactive job is {alone} with M=1, "
            f"{naive} with M=2 naive, {gangd} under gangd; of these "
            f"jobs {', '.join(map(share_text, shares))} wait at all."
        )


def _evidence(results: Results) -> str:
    whole = len(results.plan.items())
    planned = "" if results.made >= whole else f" (of {whole} planned)"
    replays = f"{results.made}{planned} {several(results.made, 'replay')}"
    failed = sum(outcome.failed for of in results.real.values() for outcome in of.values())
    if failed:
        replays += f" in which {counted(failed, 'job')} did not complete"
    if not results.unfit:
        known = f", {results.unwatched} of them without a watch on the host" if results.unwatched else ""
        return f"Evidence: {replays}{known}; none is known to be disturbed by others' work."
    why = next(iter(results.unfit.values()))
    return (
        f"Evidence: {len(results.unfit)} of {replays} {verb(len(results.unfit))} unfit to "
        f"judge by (in the first {why}): make them again on a quiet host (--again-unfit) before anything is "
        "concluded from its times."
    )


def _traces(
    plan: StudyPlan, layout: SharingLayout, first: SwfTrace, day: SwfTrace
) -> Sequence[tuple[str, SwfTrace]]:
    here = f"N{plan.nodes}C{plan.cores}"
    found = [
        ("first hours, N12C12", first),
        (f"first hours, {here}", fitted_trace(first, plan, layout, plan.compression(FIRST))),
        ("whole day, N12C12", day),
    ]
    if plan.draws:
        found.append((f"whole day, {here}", fitted_trace(day, plan, layout, plan.compression(DAY))))
    return found
