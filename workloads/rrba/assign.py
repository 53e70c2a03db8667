"""Which application a batch job runs, drawn at random as thesis 7.4.3 does it: LU, BT, MG and SP.

Only those are drawn that run on the job's number of ranks; a job for which there is none runs ``FALLBACK``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from foundation.errors import UsageError
from workloads.rrba.application import application_named

NAMES = ("lu", "bt", "mg", "sp")
FALLBACK = "jacobi"


def legal_applications(ranks: int, names: Sequence[str] = NAMES, grid_class: str | None = None) -> list[str]:
    """Return those of ``names`` that run on ``ranks``, on the grid of a class or their usual one.

    Raises
    ------
    UsageError
        A name is unknown, or has no such class.
    """
    legal = []
    for name in names:
        application = application_named(name)
        if grid_class is not None and grid_class not in application.classes:
            raise UsageError(f"{name} has no class {grid_class!r}")
        grid = application.classes[grid_class] if grid_class else application.usual_grid(ranks)
        try:
            application.check(grid, ranks)
        except UsageError:
            continue
        legal.append(name)
    return legal


def draw_arguments(
    ranks: int,
    target_s: float,
    rng: random.Random,
    names: Sequence[str] = NAMES,
    grid_class: str | None = None,
) -> str:
    """Return rrba's arguments for a job: an application by chance, the class if one is given, the target.

    Raises
    ------
    UsageError
        As ``legal_applications``.
    """
    legal = legal_applications(ranks, names, grid_class)
    name = rng.choice(legal) if legal else FALLBACK
    words = ["--app", name, *(["--class", grid_class] if grid_class and legal else [])]
    return " ".join([*words, "--target-s", f"{target_s:.3f}".rstrip("0").rstrip(".")])
