"""Which settings for my machine? Searches instead of trying everything, for a goal that a user states.

What a site can set is searched; C_o and seeds are scenarios, under which the settings are tried again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from analysis.claims import Estimate, estimate
from foundation.errors import InputError, UsageError
from foundation.one_line import one_line
from foundation.units import durations
from osub.sweep.points import Outcome, point_of
from osub.sweep.run import SweepStore
from osub.sweep.spec import Parameters

GOALS = {
    "wait": "wait_mean_s",
    "wait-p95": "wait_p95_s",
    "slowdown": "slowdown_mean",
    "slowdown-p95": "slowdown_p95",
}
GOAL_WORDS = {
    "wait": "Jobs wait on average",
    "wait-p95": "95% of jobs wait at most",
    "slowdown": "The mean slowdown is",
    "slowdown-p95": "95% of slowdowns are at most",
}
DEDICATED = 1
NODE_NOISE = 0.02
"""Standard deviation of the nodes' speeds where a setting is repeated with other seeds."""
TOLERANCE = 1e-9
"""So much harm beyond what is allowed is a rounding error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is to be small, and what harm is allowed.

    Parameters
    ----------
    figure
        One of ``GOALS``.
    most_degradation
        Mean degradation of running jobs at most; M=1 always has 1.
    """

    figure: str
    most_degradation: float

    def __post_init__(self) -> None:
        if self.figure not in GOALS:
            raise UsageError(f"--goal {self.figure}: choose {', '.join(GOALS)}")
        if not self.most_degradation >= 1:
            raise UsageError("--most-degradation is 1 or more: nothing is quicker than on cores of its own")

    def value(self, outcome: Outcome) -> float:
        """Return what is to be small; infinite for a point that fails."""
        found = outcome.get(GOALS[self.figure])
        return float(found) if found is not None else math.inf

    def harm(self, outcome: Outcome) -> float:
        """Return by how much a point harms more than is allowed; 0 or less: not at all."""
        return float(outcome.get("degradation_mean") or math.inf) - self.most_degradation

    def amounts(self, *settings: Tried) -> Callable[[float], str]:
        """Return what writes values of ``figure``; times all in the unit of the longest of these settings."""
        if not GOALS[self.figure].endswith("_s"):
            return "{:.3g}".format
        longest_s = max(self.value(one.outcome) for one in settings)
        return lambda value_s: durations(value_s, longest_s)[0]


@dataclass(frozen=True, slots=True)
class Tried:
    """A setting that was tried, and what came of it."""

    parameters: Parameters
    outcome: Outcome


def tune(
    base: Parameters,
    choices: Mapping[str, Sequence[str | int | float]],
    goal: Goal,
    store: SweepStore,
    work: Callable[[Parameters], Outcome],
    *,
    trials: int,
    seed: int,
    watch: Callable[[int, Tried], None] = lambda _, __: None,
) -> list[Tried]:
    """Search for the best setting; returns each one that was tried, the best first.

    M=1 is tried first, as the reference. Points that a sweep has in the same folder are not run again.
    Optuna's TPE sampler proposes, with the harm as a constraint; what fails counts as harmful.

    Raises
    ------
    InputError
        Not even one job a core can be simulated.
    UsageError
        Optuna is missing.
    """
    try:
        import optuna
    except ImportError as error:
        raise UsageError("osub sweep tune needs Optuna: pip install 'osub[sweep]'") from error
    import warnings

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seen: dict[str, Tried] = {}
    combinations: set[tuple[object, ...]] = set()

    def run(parameters: Parameters) -> Tried:
        key = point_of(parameters).key
        if key not in seen:
            seen[key] = kept(parameters, store, work)
            watch(len(seen), seen[key])
        return seen[key]

    first = {name: values[0] for name, values in choices.items()}
    alone = run(base | first | {"multiplicity": DEDICATED})
    if "error" in alone.outcome:
        raise InputError(str(alone.outcome["error"]))

    def objective(trial: optuna.Trial) -> float:
        chosen = {name: trial.suggest_categorical(name, list(values)) for name, values in choices.items()}
        combinations.add(tuple(chosen.values()))
        tried = run(base | {name: value for name, value in chosen.items() if value is not None})
        bad = "error" in tried.outcome
        trial.set_user_attr("harm", 1e9 if bad else goal.harm(tried.outcome))
        return 1e18 if bad else goal.value(tried.outcome)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constraints are marked as experimental
        sampler = optuna.samplers.TPESampler(
            seed=seed,
            n_startup_trials=max(4, trials // 4),
            constraints_func=lambda one: (one.user_attrs["harm"],),
        )
        study = optuna.create_study(sampler=sampler)
        size = math.prod(len(values) for values in choices.values())
        while len(seen) < trials and len(combinations) < size and len(study.trials) < 5 * trials:
            study.optimize(objective, n_trials=1)
    return ranked(seen.values(), goal)


def kept(parameters: Parameters, store: SweepStore, work: Callable[[Parameters], Outcome]) -> Tried:
    """Return what came of a setting, from the folder if it is known there; else run it and keep it."""
    point = point_of(parameters)
    known = store.finished([point]).get(point.key)
    outcome = work(parameters) if known is None else known
    if known is None and "error" not in outcome:
        store.keep(point, outcome)
    return Tried(parameters, outcome)


def ranked(tried: Iterable[Tried], goal: Goal) -> list[Tried]:
    """Return settings, the best first: those that harm too much after all others."""
    return sorted(tried, key=lambda one: _rank(one, goal))


def under(
    found: Sequence[Tried], scenario: Parameters, goal: Goal, run: Callable[[Parameters], Tried]
) -> list[Tried]:
    """Return the settings that were tried under another scenario, such as another C_o, the best first."""
    return ranked((run(one.parameters | scenario) for one in found if "error" not in one.outcome), goal)


def gain_over_seeds(
    best: Tried, alone: Tried, seeds: int, goal: Goal, run: Callable[[Parameters], Tried]
) -> Estimate | None:
    """Return by how much the goal changes from one setting to another, with its interval over seeds.

    Both run with the same seeds on nodes whose speeds differ by ``NODE_NOISE``, so the interval is that of
    the differences seed by seed. None where a run fails.
    """
    noisy: list[Parameters] = [{"seed": seed, "node_noise": NODE_NOISE} for seed in range(1, seeds + 1)]
    pairs = [[goal.value(run(one.parameters | seed).outcome) for one in (best, alone)] for seed in noisy]
    changes = [one - other for one, other in pairs]
    return estimate(changes) if changes and all(map(math.isfinite, changes)) else None


def overheads_in(text: str) -> list[float]:
    """Return the numbers in ``1.2,1.0,1.4``, each once.

    Raises
    ------
    UsageError
        They are no numbers from 1 on.
    """
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(1 <= one < 100 for one in found):
        raise UsageError(
            f"--overhead takes numbers from 1 on with commas, such as 1.2,1.0,1.4; not {one_line(text, 60)}"
        )
    return list(dict.fromkeys(found))


def _rank(tried: Tried, goal: Goal) -> tuple[bool, float, float]:
    if "error" in tried.outcome:
        return True, math.inf, math.inf
    harm = goal.harm(tried.outcome)
    return harm > TOLERANCE, goal.value(tried.outcome), harm


@dataclass(slots=True)
class Tuned:
    """What a search found, at the C_o that is assumed and at others, the best first in each."""

    goal: Goal
    names: Sequence[str]
    overhead: float
    found: Sequence[Tried]
    elsewhere: dict[float, list[Tried]] = field(default_factory=dict)
    gain: Estimate | None = None

    @property
    def best(self) -> Tried | None:
        """The best setting; None where all harm too much."""
        return self.mild(self.found)

    @property
    def alone(self) -> Tried:
        """The M=1 that it is held against."""
        return next(one for one in self.found if one.parameters["multiplicity"] == DEDICATED)

    def mild(self, found: Sequence[Tried]) -> Tried | None:
        """Return the first of some settings where it harms no more than is allowed."""
        return found[0] if found and self.goal.harm(found[0].outcome) <= TOLERANCE else None

    def chosen(self, one: Tried | None) -> dict[str, object] | None:
        """Return what is chosen in a setting, for JSON."""
        if one is None:
            return None
        return {name: one.parameters[name] for name in self.names if name in one.parameters}

    def named(self, one: Tried) -> str:
        """Return what is chosen in a setting, in words."""
        others = [f"{name} {one.parameters[name]}" for name in self.names[1:] if name in one.parameters]
        return ", ".join([f"M={one.parameters['multiplicity']}", *others])
