"""A trace like Edison's, which is not public: drawn to what is printed of it (Hofmeyr et al., section II).

90% of the jobs have less than 32 nodes; half of the node-hours come from jobs of more than 100, a fifth from
more than 1,000; 4,000 jobs a day; an offered load of 0.89 after the warm-up. Neither how size and length go
together nor how arrivals cluster is printed: here size and length are independent, and the rate of arrivals
has the course of a day and of a week, a factor for each day that resembles the last, and a spell
of high load.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foundation.units import US_PER_S
from simulator.timeshare.assumed_memory import draw_memory
from simulator.timeshare.timeshare_state import Demands

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NODES = 5576
DAYS, WARM_UP_DAYS, SPELL_DAY = 600, 100, 350
JOBS_A_DAY = 4000
LOAD = 0.89
DAY_S = 86_400
SHORTEST_S, LONGEST_S = 10, 172_800
_SIZES = (1, 2, 32, 101, 1001, 4097)
_SHARES = (0.45, 0.45, 0.0824, 0.0157, 0.0019)
"""How many jobs have from one of the sizes to below the next; within, the logarithm is uniform."""
_SPREAD = 2.0
"""Standard deviation of the logarithm of the length."""
_HOURS = np.array(
    [5, 4, 4, 4, 4, 4, 5, 6, 8, 10, 11, 11, 11, 11, 12, 12, 11, 10, 9, 8, 8, 7, 7, 6], dtype=float
)
_WEEK = np.array([1.1, 1.15, 1.15, 1.1, 1.1, 0.7, 0.7])
_DAY_SPREAD, _DAY_MEMORY = 0.25, 0.6
_SPELL = 1.35
_DAYS_A_SPELL_DAY = 50
ESTIMATES_S = np.array(
    [300, 600, 900, 1800, 3600, 7200, 14400, 21600, 28800, 43200, 64800, 86400, 129600, LONGEST_S]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edison:
    """What is drawn: for ``days`` days; loads and the spell are relative to the part after the warm-up."""

    nodes: int = NODES
    days: int = DAYS
    warm_up_days: int = WARM_UP_DAYS
    spell_day: int = SPELL_DAY
    jobs_a_day: int = JOBS_A_DAY
    load: float = LOAD

    def draw(self, seed: int) -> Demands:
        """Return the jobs, in order of arrival."""
        rng = np.random.default_rng([seed, 2016])
        submit_s = self._arrivals_s(rng)
        sizes = self._sizes(len(submit_s), rng)
        run_s = self._lengths_s(submit_s, sizes, rng)
        asked = run_s * (1 + rng.uniform(0, 4, len(run_s)))
        request_s = ESTIMATES_S[np.searchsorted(ESTIMATES_S, asked).clip(0, len(ESTIMATES_S) - 1)]
        return Demands(
            submit_us=submit_s * US_PER_S,
            run_us=run_s * US_PER_S,
            request_us=np.maximum(request_s, run_s) * US_PER_S,
            nodes=sizes,
            memory=draw_memory(len(run_s), seed),
        )

    def _arrivals_s(self, rng: np.random.Generator) -> Ints:
        walk = np.zeros(self.days)
        for day in range(1, self.days):
            walk[day] = _DAY_MEMORY * walk[day - 1] + rng.normal(0, _DAY_SPREAD)
        daily = np.exp(walk) * np.resize(_WEEK, self.days)
        half = max(1, self.days // _DAYS_A_SPELL_DAY // 2)
        daily[self.spell_day - half : self.spell_day + half] *= _SPELL
        rates = np.repeat(daily, 24) * np.tile(_HOURS, self.days)
        counts = rng.poisson(rates * (self.jobs_a_day * self.days / rates.sum()))
        hours = np.repeat(np.arange(len(rates)), counts)
        return np.sort(hours * 3600 + rng.integers(0, 3600, len(hours)))

    def _sizes(self, count: int, rng: np.random.Generator) -> Ints:
        edges = np.minimum(_SIZES, self.nodes + 1)
        kind = rng.choice(len(_SHARES), count, p=_SHARES)
        low, high = edges[kind], np.maximum(edges[kind + 1], edges[kind] + 1)
        drawn: Ints = np.floor(low * (high / low) ** rng.random(count)).astype(np.int64)
        return np.minimum(drawn, self.nodes)

    def _lengths_s(self, submit_s: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
        """Draw lengths, and scale them until the load after the warm-up is as it should be."""
        drawn: Floats = np.exp(rng.normal(0, _SPREAD, len(sizes)))
        after = submit_s >= self.warm_up_days * DAY_S
        wanted = self.load * self.nodes * (self.days - self.warm_up_days) * DAY_S
        low, high = 1.0, 1e6
        for _ in range(60):
            middle = (low * high) ** 0.5
            run_s = np.clip(drawn * middle, SHORTEST_S, LONGEST_S)
            low, high = (middle, high) if float(sizes[after] @ run_s[after]) < wanted else (low, middle)
        lengths: Ints = np.rint(np.clip(drawn * high, SHORTEST_S, LONGEST_S)).astype(np.int64)
        return lengths
