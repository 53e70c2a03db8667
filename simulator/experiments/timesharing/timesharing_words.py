"""What the T claims have in common: how they are put, and differences between settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from analysis.claims import Claim, Judgement, Row, estimate, not_comparable
from analysis.claims import claim_rules as rules
from analysis.claims.estimate import figures
from simulator.experiments.timesharing.timesharing_outcome import Outcome, Setting
from simulator.experiments.timesharing.timesharing_survey import Survey

OTHER_TRACE = "another trace than the paper's"
NO_SUCH_JOBS = "too few jobs of that kind"
Value = Callable[[Outcome], float]


def claim(identifier: str, where: str, setting: str, quantity: str, paper: str) -> Claim:
    """Return a claim."""
    return Claim(id=identifier, where=where, setting=setting, quantity=quantity, paper=paper)


def differences(survey: Survey, more: Setting, less: Setting, value: Value) -> list[float]:
    """Return by how much a value is larger in one setting than in the other, for each seed."""
    pairs = zip(survey.outcomes[more], survey.outcomes[less], strict=True)
    return [value(one) - value(other) for one, other in pairs]


def mean(survey: Survey, setting: Setting, value: Value) -> float:
    """Return the mean over the seeds."""
    return float(np.mean(survey.by_seed(setting, value)))


def shown(value: float) -> str:
    """Return a number as text; a dash where there is none."""
    return figures(value) if math.isfinite(value) else "-"


def told(values: Sequence[float]) -> str:
    """Return a mean with its interval, as text."""
    return estimate(list(values)).text() if all(map(math.isfinite, values)) else "-"


def direction(values: Sequence[float]) -> Judgement:
    """Judge a direction; where a seed has no such jobs it cannot be judged."""
    if not all(map(math.isfinite, values)):
        return not_comparable(NO_SUCH_JOBS)
    return rules.direction([float(value) for value in values])


def over_settings(settings: Mapping[str, Sequence[float]]) -> Judgement:
    """Judge a direction in several settings; where a seed has no such jobs it cannot be judged."""
    if not all(math.isfinite(value) for values in settings.values() for value in values):
        return not_comparable(NO_SUCH_JOBS)
    return rules.over_settings({name: [float(value) for value in of] for name, of in settings.items()})


def beside(judged: Judgement, ours: float, paper: float) -> Judgement:
    """Return a judgement that tells how far ours is from the paper's value, which is not judged."""
    if not math.isfinite(ours):
        return judged
    return noted(
        judged, f"ours is {(ours - paper) / paper:+.0%} from the paper's {figures(paper)}, not judged"
    )


def noted(judged: Judgement, note: str) -> Judgement:
    """Return a judgement with more to say."""
    return replace(judged, note=f"{judged.note}; {note}" if judged.note else note)


def row(said: Claim, judged: Judgement, ours: str) -> Row:
    """Return the row of a claim."""
    return Row.of(said, judged, ours)
