"""Claims R1 to R3 (Table 7.4), two coupled jobs on the same cores, and what came of them in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from analysis.claims import Claim, ClaimRow, Judgement, direction, estimate, not_comparable, over_settings
from foundation.units import counted, verb
from osub.physical import published
from osub.physical.cells import mean_text
from osub.physical.layouts import GANGD, NAIVE, SLURM_GANG
from osub.physical.pair import PairTrial
from osub.physical.results import Results

WHERE = "Table 7.4"


def pair_rows(results: Results) -> list[ClaimRow]:
    """Judge the pair, one value a trial."""
    ranks = results.plan.nodes * results.plan.cores
    setting = f"two LU jobs of {counted(ranks, 'rank')}"
    naive, slurm, gangd = (results.pair_losses(one.key) for one in (NAIVE, SLURM_GANG, GANGD))
    return [
        ClaimRow.of(
            Claim(
                id="R1",
                where=WHERE,
                setting=f"{setting}, naive",
                quantity="loss of joint speed",
                paper="76.1%",
            ),
            _direction(naive, "judged: a loss; its size is of 12 ranks"),
            mean_text(naive, percent=True),
        ),
        ClaimRow.of(
            Claim(
                id="R2",
                where=WHERE,
                setting=f"{setting}, Slurm's gang scheduler",
                quantity="one job gets more than the other: difference over sum, Slurm's less gangd's",
                paper="unfair (0.41 in three trials of five) and unstable",
            ),
            _direction(_unfairness(results), "5 s slices: jobs of some seconds end in the middle of a turn"),
            f"loss {mean_text(slurm, percent=True)}; "
            f"unfairness {mean_text(_unfair(results, SLURM_GANG.key))}",
        ),
        ClaimRow.of(
            Claim(
                id="R3",
                where=WHERE,
                setting=f"{setting}, gangd (BS)",
                quantity="loss of joint speed; equal shares",
                paper="4.1%, equal",
            ),
            _gangd(results),
            f"loss {mean_text(gangd, percent=True)}; unfairness {mean_text(_unfair(results, GANGD.key))}",
        ),
    ]


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


def _unfair(results: Results, layout: str) -> list[float]:
    return [trial.unfairness for trial in results.pairs.get(layout, {}).values()]


def _both(results: Results, one: str, other: str) -> list[tuple[PairTrial, PairTrial]]:
    """Return the trials that both layouts have."""
    first: Mapping[int, PairTrial] = results.pairs.get(one, {})
    second: Mapping[int, PairTrial] = results.pairs.get(other, {})
    return [(first[trial], second[trial]) for trial in first if trial in second]


def _unfairness(results: Results) -> list[float]:
    return [slurm.unfairness - gangd.unfairness for slurm, gangd in _both(results, SLURM_GANG.key, GANGD.key)]


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


def _direction(values: list[float], note: str) -> Judgement:
    if not values:
        return not_comparable("not replayed, or unfit to judge by")
    judged = direction(values)
    return Judgement(
        verdict=judged.verdict, estimate=judged.estimate, note="; ".join(filter(None, (judged.note, note)))
    )
