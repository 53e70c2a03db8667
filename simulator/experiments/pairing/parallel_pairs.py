"""Tables 4.4 to 4.6 and claims P1 to P5: jobs of several ranks that share one core, all cores, or take turns.

The thesis tells the speed of a shared run against half of the dedicated speed: degradation = 1 - shared speed
/ (dedicated speed / 2), which of a loss E_v is 2 E_v - 1; 0 is the half.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from analysis.claims import Claim, Row, direction, not_comparable
from foundation.units import counted
from predictor.dataset import Kind
from simulator.experiments.pairing.measured_pairs import Floats, Measured
from simulator.experiments.paper_tables import ExperimentTable

THESIS = (
    ("bt.B", "9", -0.11, 0.28, 0.02),
    ("lu.B", "12", -0.03, 0.50, -0.11),
    ("mg.C", "8", 0.09, 0.55, 0.20),
    ("sp.B", "9", -0.20, 0.59, 0.01),
)
"""Application, processes, and degradation in Tables 4.4, 4.5 and 4.6."""

SPEEDS = "speeds of other machines"
_NO = "the pairs have no jobs of two ranks {}: measure them with --kinds {}"


def degradation(losses: Floats) -> Floats:
    """Return how far a shared speed is below half of the dedicated one, as a share of that half."""
    lost: Floats = 2.0 * losses - 1.0
    return lost


def partial(found: Measured) -> pl.DataFrame:
    """Return the pairs in which a job of several ranks shares one core of its cores with a job of one."""
    frame = found.of_kind(Kind.TIMESLICE)
    return frame.filter(pl.col("victim").is_in(found.coupled) & pl.col("opponent").is_in(found.single))


def rows(found: Measured) -> list[Row]:
    """Return P1 to P5."""
    naive, gang = found.of_kind(Kind.NAIVE), found.of_kind(Kind.GANG)
    one_core = partial(found)
    return [_partial(one_core, naive), _overall(naive), _gang(naive, gang), *_speeds()]


def _claim(id_: str, where: str, setting: str, paper: str, quantity: str = "degradation") -> Claim:
    return Claim(id=id_, where=where, setting=setting, quantity=quantity, paper=paper)


def _partial(one_core: pl.DataFrame, naive: pl.DataFrame) -> Row:
    claim = _claim("P1", "Table 4.4", "partial sharing", "-20% to 9%: near the half")
    both = _by_victim(one_core).join(_by_victim(naive), on="victim", suffix="_naive")
    if not both.height:
        return Row.of(claim, not_comparable(_NO.format("with one core shared", "timeslice")))
    lost = degradation(one_core["e_v"].to_numpy())
    gap = (both["e_v_naive"] - both["e_v"]).to_list()
    told = f"{_spread(lost)} over {counted(len(lost), 'pair')}; judged: less than with all cores shared"
    return Row.of(claim, direction(gap), told)


def _overall(naive: pl.DataFrame) -> Row:
    claim = _claim("P2", "Table 4.5", "overall sharing", "28% to 59%: far worse than the half")
    if not naive.height:
        return Row.of(claim, not_comparable(_NO.format("on the same cores", "naive")))
    losses = naive["e_v"].to_numpy()
    return Row.of(
        claim,
        direction((losses - 0.5).tolist()),
        f"{_spread(degradation(losses))} over {counted(len(losses), 'pair')}",
    )


def _gang(naive: pl.DataFrame, gang: pl.DataFrame) -> Row:
    claim = _claim("P3", "Table 4.6", "overall sharing, gang scheduling", "-11% to 20%: near the half")
    both = gang.join(naive, on=("victim", "opponent"), suffix="_naive")
    if not both.height:
        return Row.of(claim, not_comparable(_NO.format("in gang slices", "gang")))
    gap = (both["e_v_naive"] - both["e_v"]).to_list()
    told = (
        f"{_spread(degradation(gang['e_v'].to_numpy()))} over {counted(gang.height, 'pair')}; "
        "judged: less than naive"
    )
    return Row.of(claim, direction(gap), told)


def _speeds() -> list[Row]:
    papers = (
        ("P4", "bt.B, lu.B", "55.28, 30.71, 19.18, 27.18; 123.15, 63.41, 30.76, 68.07"),
        ("P5", "mg.C, sp.B", "50.15, 22.91, 11.21, 20.07; 46.10, 27.57, 9.37, 22.83"),
    )
    return [
        Row.of(_claim(id_, "Tables 4.4-4.6", apps, paper, "speed"), not_comparable(SPEEDS))
        for id_, apps, paper in papers
    ]


def table(found: Measured) -> ExperimentTable:
    """Return degradations of ours beside the thesis's: one core shared, all of them, all with gang slices."""
    kinds = (partial(found), found.of_kind(Kind.NAIVE), found.of_kind(Kind.GANG))
    means = [dict(_by_victim(frame).iter_rows()) for frame in kinds]
    lines: list[Sequence[str]] = [
        (name, "2", *(_percent(2 * own[name] - 1) if name in own else "-" for own in means))
        for name in sorted({name for own in means for name in own})
    ]
    lines += [(f"thesis: {name}", processes, *map(_percent, values)) for name, processes, *values in THESIS]
    return ExperimentTable(
        name="Parallel",
        title="how far jobs of several ranks fall below half of their speed alone (Tables 4.4 to 4.6)",
        columns=("victim", "ranks", "one core shared", "all shared", "all shared, gang slices"),
        rows=[tuple(line) for line in lines],
        notes=("means over all opponents; 0% is the half, below it is better than the half",),
    )


def _by_victim(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.group_by("victim").agg(pl.col("e_v").mean()).sort("victim")


def _spread(lost: Floats) -> str:
    return f"{lost.min():.0%} to {lost.max():.0%}, {np.median(lost):.0%} in the median,"


def _percent(value: float) -> str:
    return f"{value:.0%}"
