"""What the claims of CoSim have in common: how they are put, and values by setting."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from analysis.claims import Claim, estimate
from simulator.experiments.eviction.eviction_survey import SETTINGS, Setting, Survey
from simulator.experiments.eviction.solver_measures import Measured


def claim(identifier: str, where: str, setting: str, quantity: str, paper: str) -> Claim:
    """Return a claim."""
    return Claim(id=identifier, where=where, setting=setting, quantity=quantity, paper=paper)


def by_setting(
    survey: Survey, value: Callable[[Measured], float], settings: Iterable[Setting] = SETTINGS
) -> dict[str, list[float]]:
    """Return a value for each seed, by the name of the setting."""
    return {str(setting): [value(one) for one in survey.settings[setting]] for setting in settings}


def means(values: dict[str, list[float]]) -> dict[str, float]:
    """Return the means over the seeds."""
    return {name: estimate(of).mean for name, of in values.items()}
