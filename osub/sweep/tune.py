"""Which settings for my machine? Searches instead of trying everything, for a goal that a user states."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from foundation.errors import InputError, UsageError
from osub.sweep.measure import Outcome
from osub.sweep.points import point_of
from osub.sweep.run import Store
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


@dataclass(frozen=True, slots=True)
class Tried:
    """A setting that was tried, and what came of it."""

    parameters: Parameters
    outcome: Outcome


def tune(
    base: Parameters,
    choices: Mapping[str, Sequence[str | int | float]],
    goal: Goal,
    store: Store,
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
        point = point_of(parameters)
        if point.key not in seen:
            known = store.finished([point]).get(point.key)
            outcome = work(parameters) if known is None else known
            if known is None and "error" not in outcome:
                store.keep(point, outcome)
            seen[point.key] = Tried(parameters, outcome)
            watch(len(seen), seen[point.key])
        return seen[point.key]

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
        room = math.prod(len(values) for values in choices.values())
        while len(seen) < trials and len(combinations) < room and len(study.trials) < 5 * trials:
            study.optimize(objective, n_trials=1)
    return sorted(seen.values(), key=lambda one: _rank(one, goal))


def reference(found: Sequence[Tried]) -> Tried:
    """Return the M=1 that was tried first: what a user has without sharing."""
    return next(one for one in found if one.parameters["multiplicity"] == DEDICATED)


def _rank(tried: Tried, goal: Goal) -> tuple[bool, float, float]:
    if "error" in tried.outcome:
        return True, math.inf, math.inf
    harm = goal.harm(tried.outcome)
    return harm > TOLERANCE, goal.value(tried.outcome), harm
