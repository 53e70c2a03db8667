"""A fitted model as a file, what it says of two applications, and a matrix: predicted or measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from foundation.errors import InputError
from foundation.files import write_whole
from foundation.one_line import one_line
from predictor.dataset import STRESSOR, MeasuredHost, PairKind, Pairs, counter_name, harmful_loss
from predictor.model.pair_records import Floats, logarithms, probability, with_cpu

MODEL_VERSION = 1
LONGEST_MODEL = 1 << 24

Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Words = Annotated[str, msgspec.Meta(max_length=1_000)]


class Linear(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``constant`` + the standardised counters of victim and opponent, each times its weight."""

    constant: Finite
    victim: list[Finite]
    opponent: list[Finite]


class Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model was fitted on: how many records of how many applications, when measured; a digest."""

    records: Annotated[int, msgspec.Meta(ge=1)]
    applications: Annotated[int, msgspec.Meta(ge=2)]
    left_out: Annotated[int, msgspec.Meta(ge=0)]
    started: datetime
    ended: datetime
    digest: Words


class ModelledApplication(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An application that the model knows: family, counters, cluster, whether it was measured."""

    family: Words
    counters: list[Finite]
    cluster: Annotated[int, msgspec.Meta(ge=0)]
    measured: bool = True


class UnseenVictims(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How models like this one do on victims that they have not seen: shares of certain pairs judged right.

    ``margin_low`` and ``margin_high`` are the 95% interval of what they gain on always saying what holds for
    most pairs (``majority``).
    """

    accuracy: Share
    majority: Share
    margin_low: Finite
    margin_high: Finite


class ApplicationCluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of applications: its centre, and whether its members' median loss as victims exceeds t."""

    centre: list[Finite]
    dangerous: bool
    median_loss: Finite


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a victim loses to an opponent.

    Parameters
    ----------
    probability
        That E_v exceeds t.
    loss, low, high
        E_v with its 90 % interval.
    dangerous
        Whether the probability exceeds the model's cut.
    """

    probability: float
    loss: float
    low: float
    high: float
    dangerous: bool


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model of one kind of sharing on one kind of host.

    Attributes
    ----------
    version, osub
        Of the format; of the toolkit that fitted it.
    kind, host, data
        How the two share, where that was measured, on what it was fitted.
    threshold, cut
        t; the probability of E_v > t above which a pair is called dangerous.
    counters, floors, means, scales
        Names of the K counters, and how they become standardised: (log10(value + floor) - mean) / scale.
    danger, loss
        Of the log-odds of E_v > t; of E_v.
    half_width
        Of the 90 % interval of E_v for an application that the model has not seen.
    applications, clusters
        What it knows by name, and the groups of phase 1.
    unseen
        How far it can be trusted with an application that was not measured; None: a file of an older osub.
    """

    version: int
    osub: Words
    kind: PairKind
    host: MeasuredHost
    data: Data
    threshold: Finite
    cut: Share
    counters: list[Words]
    floors: list[Finite]
    means: list[Finite]
    scales: list[Finite]
    danger: Linear
    loss: Linear
    half_width: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
    applications: dict[str, ModelledApplication]
    clusters: list[ApplicationCluster]
    unseen: UnseenVictims | None = None

    def __post_init__(self) -> None:
        if self.version != MODEL_VERSION:
            raise ValueError(
                f"version is {self.version}, and this osub reads {MODEL_VERSION}: make it again with "
                "`osub predict fit`"
            )
        wanted = len(self.counters)
        lists = [self.floors, self.means, self.scales]
        for part in (self.danger, self.loss):
            lists += [part.victim, part.opponent]
        lists += [entry.counters for entry in self.applications.values()]
        lists += [cluster.centre for cluster in self.clusters]
        if not wanted or any(len(values) != wanted for values in lists):
            raise ValueError(f"a list has not {wanted} values, one a counter")
        if any(scale <= 0 for scale in self.scales) or any(floor <= 0 for floor in self.floors):
            raise ValueError("scales and floors must be above 0")
        if any(entry.cluster >= len(self.clusters) for entry in self.applications.values()):
            raise ValueError("an application is in a cluster that is not there")

    def is_trusted(self, name: str) -> bool:
        """Whether its word on an application it knows is worth more than always saying the same.

        It is on those that were measured. On others only if models surely did better on victims they had not
        seen: the interval of what they gain is above 0.
        """
        return self.applications[name].measured or (self.unseen is not None and self.unseen.margin_low > 0)

    def counters_of(self, names: Sequence[str]) -> Floats:
        """Return the standardised counters of applications; shape (names, K).

        Raises
        ------
        InputError
            The model does not know one.
        """
        for name in names:
            if name not in self.applications:
                known = sorted(self.applications)
                raise InputError(
                    f"the model knows no application {one_line(name, 80)}; it knows "
                    f"{', '.join(known[:8])}{f' and {len(known) - 8} more' if len(known) > 8 else ''}. "
                    "Give its counters (--counters NAME=FILE), or measure it and fit again"
                )
        return np.array([self.applications[name].counters for name in names], dtype=np.float64)

    def standardised(self, values: Mapping[str, float]) -> Floats:
        """Return a new application's counters, by name, as the model sees them; shape (K,).

        Raises
        ------
        InputError
            One that the model needs is not there.
        """
        values = with_cpu(values)
        missing = [name for name in self.counters if name not in values]
        if missing:
            raise InputError(
                f"the model needs the counter {missing[0]}"
                f"{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}, which the application "
                "lacks: count it with the same source"
            )
        raw = np.array([values[name] for name in self.counters], dtype=np.float64)
        scaled: Floats = (logarithms(raw, self.floors) - np.array(self.means)) / np.array(self.scales)
        return scaled

    def group_of(self, name: str) -> ApplicationCluster:
        """Return the group that an application which the model knows is of."""
        return self.clusters[self.applications[name].cluster]

    def knowing(self, name: str, values: Mapping[str, float]) -> Model:
        """Return the model with one more application, of which nothing is known but its counters.

        It inherits the cluster whose centre is nearest (phase 1), and is a family of its own.

        Raises
        ------
        InputError
            A counter that the model needs is not there, or the name is no plain word.
        """
        if not name or one_line(name) != name or len(name) > 100:
            raise InputError(f"{one_line(name, 40)!r} is no name of an application")
        own = self.standardised(values)
        gaps = [float(np.sum((own - np.array(cluster.centre)) ** 2)) for cluster in self.clusters]
        entry = ModelledApplication(
            family=name, counters=own.tolist(), cluster=gaps.index(min(gaps)) if gaps else 0, measured=False
        )
        return msgspec.structs.replace(self, applications=self.applications | {name: entry})

    def matrix(self, victims: Floats, opponents: Floats) -> tuple[Floats, Floats]:
        """Return E_v and the probability that it exceeds t, of each victim with each opponent.

        ``victims`` and ``opponents`` are standardised counters, shapes (V, K) and (O, K); both results have
        shape (V, O).
        """

        def summed(part: Linear) -> Floats:
            own = victims @ np.array(part.victim)
            other = opponents @ np.array(part.opponent)
            both: Floats = part.constant + own[:, np.newaxis] + other[np.newaxis, :]
            return both

        return summed(self.loss), probability(summed(self.danger))

    def forecast(self, victim: str, opponent: str) -> Forecast:
        """Return what ``victim`` loses to ``opponent``; raises InputError for a name it does not know."""
        pair = self.counters_of((victim, opponent))
        loss, likely = self.matrix(pair[:1], pair[1:])
        return Forecast(
            probability=float(likely[0, 0]),
            loss=float(loss[0, 0]),
            low=float(loss[0, 0] - self.half_width),
            high=float(loss[0, 0] + self.half_width),
            dangerous=bool(likely[0, 0] > self.cut),
        )

    def differs_from(self, cpu_model: str) -> str | None:
        """Return one line where the model is of another processor than ``cpu_model``, else None."""
        warning = differs(self.host.cpu_model, cpu_model)
        return None if warning is None else f"the model was {warning}"


def differs(measured: str, here: str) -> str | None:
    """Return one line where what was measured is of another processor than this host's, else None."""
    if measured == here:
        return None
    return (
        f"measured on {one_line(measured, 80)}, and this host has {one_line(here, 80)}: measure here with "
        "`osub predict measure`"
    )


def read_model(path: Path) -> Model:
    """Read a model.

    Raises
    ------
    InputError
        There is none, it is of another version, or damaged; one line.
    """
    try:
        with path.open("rb") as stream:
            text = stream.read(LONGEST_MODEL + 1)
    except OSError as error:
        raise InputError(
            f"cannot read the model {path}: {error.strerror}; `osub predict fit --out {path.name}` makes one"
        ) from error
    if len(text) > LONGEST_MODEL:
        raise InputError(f"{path} is longer than {LONGEST_MODEL} bytes; it is no model")
    try:
        model = msgspec.json.decode(text, type=Model)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is no model that can be used: {one_line(str(error))}") from error
    named = [name.split(":", 1) for name in model.counters]
    return msgspec.structs.replace(
        model,
        counters=[
            ":".join((source, *(counter_name(source, each) for each in rest))) for source, *rest in named
        ],
    )


def write_model(path: Path, model: Model) -> None:
    """Write a model, whole or not at all; raises OutputError."""
    write_whole(
        path, msgspec.json.format(msgspec.json.encode(model, order="sorted"), indent=1).decode() + "\n"
    )


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

    Dangerous is what loses more than ``harmful_loss``, as for a pair that is measured when asked for.

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
    most = harmful_loss(kind)
    cells = [
        MatrixCell(victim, other, loss, None, loss > most)
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
