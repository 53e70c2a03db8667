"""Which application a batch job runs, drawn at random as thesis 7.4.3 does it: LU, BT, MG and SP.

Only those are drawn that run on the job's number of ranks; a job for which there is none runs ``FALLBACK``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from foundation.errors import UsageError
from foundation.files import write_whole
from workloads.rrba.solvers.applications import application_named
from workloads.swf import SwfTrace

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


def draw_for_trace(
    trace: SwfTrace,
    seed: int,
    *,
    speedup: float = 1.0,
    interactive_queue: int | None = 0,
    names: Sequence[str] = NAMES,
    grid_class: str | None = None,
) -> dict[int, str]:
    """Return rrba's arguments for each batch job that ran, by its number.

    Targets are run times divided by ``speedup``. Raises UsageError as ``legal_applications``.
    """
    rng = random.Random(seed)  # noqa: S311 - a draw to be repeated, no secret
    return {
        job.job_number: draw_arguments(job.procs, job.run_s / speedup, rng, names, grid_class)
        for job in trace.jobs
        if job.queue != interactive_queue and job.run_s and job.procs
    }


def write_apps(path: Path, drawn: Mapping[int, str]) -> None:
    """Write what was drawn as the CSV that ``osub replay --apps`` takes; raises OutputError."""
    rows = "".join(f"{number},rrba,{words}\n" for number, words in drawn.items())
    write_whole(path, "trace_job,app,args\n" + rows, mode=0o644)


def count_by_application(drawn: Mapping[int, str]) -> dict[str, int]:
    """Return how many jobs have which application, by name."""
    return dict(sorted(Counter(words.split()[1] for words in drawn.values()).items()))
