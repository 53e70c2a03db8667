"""Which pair is measured next: every pair once, then again, until its interval is narrow enough."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from analysis.claims.estimate import estimate
from predictor.dataset import STRESSOR
from predictor.measure.pair_trial import Row
from predictor.programs.program_catalogue import Application

# Student's t makes an interval of two trials useless.
LEAST_TRIALS = 3


def pairs_of(
    applications: Sequence[Application], against: Collection[str] | None = None
) -> list[tuple[Application, Application]]:
    """Return the unordered pairs to measure: all with all and themselves, but no stressor with a stressor.

    ``against``: names, of which each pair has one at least; of N other applications and K that are named
    these are N x K pairs and those of the K.
    """
    return [
        (first, second)
        for place, first in enumerate(applications)
        for second in applications[place:]
        if [first.family, second.family].count(STRESSOR) < 2
        and (against is None or first.name in against or second.name in against)
    ]


@dataclass(slots=True)
class Plan:
    """The state of a measurement of one kind.

    Attributes
    ----------
    pairs
        What is to be measured.
    width
        The 95% interval of E_v is to be as wide at most, each of the two as victim.
    most
        No pair has more trials.
    seed
        Of the order.
    losses
        E_v of the trials so far, by victim and opponent.
    failed
        Applications that died; no pair with one is measured.
    """

    pairs: list[tuple[Application, Application]]
    width: float
    most: int
    seed: int = 1
    losses: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def note(self, rows: Sequence[Row]) -> None:
        """Take the rows of a trial into account."""
        for row in rows:
            key = str(row["victim"]), str(row["opponent"])
            loss = row["e_v"]
            if isinstance(loss, float):
                self.losses.setdefault(key, []).append(loss)

    def trials(self, first: Application, second: Application) -> int:
        """Return how many trials a pair has."""
        return len(self.losses.get((first.name, second.name), ()))

    def is_done(self, first: Application, second: Application) -> bool:
        """Whether a pair needs no more trials."""
        if {first.name, second.name} & self.failed:
            return True
        count = self.trials(first, second)
        if count < min(LEAST_TRIALS, self.most):
            return False
        return count >= self.most or all(
            self._width(key) <= self.width for key in ((first.name, second.name), (second.name, first.name))
        )

    def rounds(self) -> Iterator[tuple[Application, Application]]:
        """Yield pairs until all are done: round by round, each round in an order of its own.

        Pairs with one application follow each other, so that a run alone serves two of them.
        """
        for number in range(1, self.most + 1):
            order = list({first.name for first, _ in self.pairs})
            order.sort()
            random.Random(self.seed * 1_000 + number).shuffle(order)  # noqa: S311 - an order, no secret
            place = {name: at for at, name in enumerate(order)}
            for first, second in sorted(self.pairs, key=lambda pair: place[pair[0].name]):
                if self.trials(first, second) < number and not self.is_done(first, second):
                    yield first, second

    def left(self) -> int:
        """Return how many trials are missing at least."""
        least = min(LEAST_TRIALS, self.most)
        return sum(
            max(1, least - self.trials(first, second))
            for first, second in self.pairs
            if not self.is_done(first, second)
        )

    def _width(self, key: tuple[str, str]) -> float:
        found = estimate(self.losses[key])
        return float("inf") if found.low is None or found.high is None else found.high - found.low
