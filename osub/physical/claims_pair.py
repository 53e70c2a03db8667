"""Claims R1 to R3 (Table 7.4): two coupled jobs on the same cores."""

from __future__ import annotations

from analysis.claims import Claim, Judgement, Row, direction, not_comparable, over_settings
from foundation.units import counted
from osub.physical.cells import mean_text
from osub.physical.layouts import DEDICATED, GANGD, NAIVE, SLURM_GANG
from osub.physical.results import Pair, Results
from osub.physical.tables import pair_losses

WHERE = "Table 7.4"


def pair_rows(results: Results) -> list[Row]:
    """Judge the pair, one value a trial."""
    ranks = results.plan.nodes * results.plan.cores
    setting = f"two LU jobs of {counted(ranks, 'rank')}"
    naive, slurm, gangd = (pair_losses(results, one.key) for one in (NAIVE, SLURM_GANG, GANGD))
    return [
        Row.of(
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
        Row.of(
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
        Row.of(
            Claim(
                id="R3",
                where=WHERE,
                setting=f"{setting}, gangd (BS)",
                quantity="loss of joint speed; equal shares",
                paper="4.1%, equal",
            ),
            _gangd(results, naive, gangd),
            f"loss {mean_text(gangd, percent=True)}; unfairness {mean_text(_unfair(results, GANGD.key))}",
        ),
    ]


def unfair(both: Pair) -> float:
    """Return the difference of both speeds over their sum: 0 is fair."""
    return abs(both[0] - both[1]) / sum(both)


def _unfair(results: Results, layout: str) -> list[float]:
    return [unfair(both) for both in results.pairs.get(layout, {}).values()]


def _unfairness(results: Results) -> list[float]:
    slurm, gangd = (results.pairs.get(one.key, {}) for one in (SLURM_GANG, GANGD))
    return [unfair(slurm[trial]) - unfair(gangd[trial]) for trial in slurm if trial in gangd]


def _gangd(results: Results, naive: list[float], gangd: list[float]) -> Judgement:
    both = [results.pairs.get(one.key, {}) for one in (DEDICATED, NAIVE, GANGD)]
    trials = [trial for trial in both[2] if trial in both[0] and trial in both[1]]
    if not trials or len(naive) != len(gangd):
        return not_comparable("no trial has all of it")
    return over_settings(
        {
            "less is lost than naive": [more - less for more, less in zip(naive, gangd, strict=True)],
            "shares differ by under a tenth": [0.1 - unfair(both[2][trial]) for trial in trials],
        }
    )


def _direction(values: list[float], note: str) -> Judgement:
    if not values:
        return not_comparable("not replayed")
    judged = direction(values)
    return Judgement(
        verdict=judged.verdict, estimate=judged.estimate, note="; ".join(filter(None, (judged.note, note)))
    )
