"""What each of some applications loses to each other one: by a model, or as it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foundation.errors import InputError
from foundation.one_line import one_line
from predictor.dataset import STRESSOR, PairKind, Pairs
from predictor.model.pair_records import threshold_of
from predictor.model.stored_model import Model


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """A victim with an opponent: E_v, how likely it is dangerous (None: measured), and whether it is."""

    victim: str
    opponent: str
    e_v: float
    probability: float | None
    dangerous: bool


@dataclass(frozen=True, slots=True)
class Matrix:
    """The cells of some applications; a pair that was not measured has none."""

    kind: str
    names: list[str]
    cells: list[MatrixCell]


def predicted(model: Model, names: Sequence[str] | None = None) -> Matrix:
    """Return what a model says of the applications of these names; None: of all that it knows.

    Raises
    ------
    InputError
        It does not know one.
    """
    names = sorted(model.applications) if names is None else list(names)
    scaled = model.counters_of(names)
    losses, likely = model.matrix(scaled, scaled)
    cells = [
        MatrixCell(victim, other, float(losses[i, j]), float(likely[i, j]), bool(likely[i, j] > model.cut))
        for i, victim in enumerate(names)
        for j, other in enumerate(names)
    ]
    return Matrix(str(model.kind), names, cells)


def measured(pairs: Pairs, kind: PairKind, names: Sequence[str] | None = None) -> Matrix:
    """Return what was measured of the applications of these names; None: of all, stressors left out.

    Raises
    ------
    InputError
        No pair of one of them was measured.
    """
    known = set(pairs.applications.filter(pairs.applications["family"] != STRESSOR)["application"])
    own = pairs.pairs.filter(pairs.pairs["kind"] == str(kind)).sort("victim", "opponent")
    present = known & {*own["victim"], *own["opponent"]}
    odd = next((name for name in names or () if name not in present), None)
    if odd is not None:
        raise InputError(
            f"no pair of {one_line(odd, 80)} was measured of kind {kind}; there are "
            f"{', '.join(sorted(present)[:8])}"
        )
    chosen = sorted(present) if names is None else list(names)
    threshold = threshold_of(kind)
    cells = [
        MatrixCell(victim, other, loss, None, loss > threshold)
        for victim, other, loss in own.select("victim", "opponent", "e_v").iter_rows()
        if victim in chosen and other in chosen
    ]
    return Matrix(str(kind), chosen, cells)


def as_csv(matrix: Matrix) -> str:
    """Return the cells as CSV with a heading."""
    lines = ["victim,opponent,e_v,probability,dangerous"]
    for one in matrix.cells:
        likely = "" if one.probability is None else f"{one.probability:.4f}"
        lines.append(f"{one.victim},{one.opponent},{one.e_v:.4f},{likely},{int(one.dangerous)}")
    return "\n".join(lines) + "\n"
