"""All settings of the study over all seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simulator.experiments.timesharing.slowdown_bins import Grid
from simulator.experiments.timesharing.timesharing_outcome import Outcome, Setting, grid_of, outcome_of
from simulator.experiments.timesharing.timesharing_world import World
from simulator.timeshare.timeshare_state import Demands

NOISE, PRINTED_NOISE = 0.001, 0.0001
"""What five or six slow nodes at a time need, and what is printed (CLAIMS 4c)."""
OVERHEADS = (0.02, 0.05, 0.08, 0.10, 0.13)

BATCH, SHARE = Setting(batch=True), Setting()
NOISY_BATCH, NOISY_SHARE = Setting(batch=True, noise=NOISE), Setting(noise=NOISE)
ANY_BATCH, ANY_SHARE = Setting(batch=True, spmd=False), Setting(spmd=False)
NOISY_ANY_BATCH = Setting(batch=True, noise=NOISE, spmd=False)
NOISY_ANY_SHARE = Setting(noise=NOISE, spmd=False)
LITTLE_BATCH, LITTLE_SHARE = Setting(batch=True, noise=PRINTED_NOISE), Setting(noise=PRINTED_NOISE)
SETTINGS = (
    BATCH,
    SHARE,
    *(Setting(overhead=overhead) for overhead in OVERHEADS),
    NOISY_BATCH,
    NOISY_SHARE,
    LITTLE_BATCH,
    LITTLE_SHARE,
    ANY_BATCH,
    ANY_SHARE,
    NOISY_ANY_BATCH,
    NOISY_ANY_SHARE,
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Survey:
    """What was simulated and what came of it: one outcome a seed for each setting.

    ``grids`` and ``jobs`` are the bins and the jobs of each seed.
    """

    world: World
    outcomes: Mapping[Setting, Sequence[Outcome]]
    grids: Sequence[Grid]
    jobs: Sequence[Demands]

    def by_seed(self, setting: Setting, value: Callable[[Outcome], float]) -> list[float]:
        """Return a value for each seed."""
        return [value(one) for one in self.outcomes[setting]]


def survey(world: World, seeds: int, step: Callable[[str], None]) -> Survey:
    """Simulate everything; ``step`` is told ``steps_of(seeds)`` times what comes next."""
    outcomes: dict[Setting, list[Outcome]] = {setting: [] for setting in SETTINGS}
    drawn = []
    for seed in range(1, seeds + 1):
        jobs = world.draw(seed)
        drawn.append(jobs)
        for setting in SETTINGS:
            step(f"seed {seed}: {setting}")
            outcomes[setting].append(outcome_of(world, jobs, setting, seed))
    return Survey(world=world, outcomes=outcomes, grids=[grid_of(world, jobs) for jobs in drawn], jobs=drawn)


def steps_of(seeds: int) -> int:
    """Return how often ``survey`` tells what comes next."""
    return seeds * len(SETTINGS)
