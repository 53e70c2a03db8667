"""A study that ends in a table of claims: what it is asked for and what it finds.

``osub experiment NAME`` runs any module of ``simulator.experiments.studies``, by its ``STUDY``. Such a module
is cheap to import: what computes is imported by ``run``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.claims import LEAST_SEEDS, Row
from foundation.errors import UsageError
from foundation.units import counted, verb

if TYPE_CHECKING:
    from simulator.experiments.experiment_page import Drawing
    from simulator.experiments.paper_tables import ExperimentTable

QUICK_SEEDS = 3
_STUDIES = "simulator.experiments.studies"

Step = Callable[[str], None]
"""Told what is done next, once a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a study is asked for.

    Parameters
    ----------
    traces
        Traces that the user named; may be empty.
    seeds
        How many seeds; their numbers are 1, 2, ...
    quick
        Whether a smaller study will do.
    steps
        Told how many steps there are; returns what is to be called at each of them.
    """

    traces: tuple[Path, ...]
    seeds: int
    quick: bool
    steps: Callable[[int], Step]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a study found.

    Parameters
    ----------
    title
        Of the page.
    facts
        What was simulated, in sentences.
    claims
        Every claim of the paper, judged.
    tables
        Figures behind the claims.
    figures
        Draws the figures of the page; called for a page only.
    """

    title: str
    facts: Sequence[str]
    claims: Sequence[Row]
    tables: Sequence[ExperimentTable]
    figures: Callable[[], Sequence[Drawing]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimStudy:
    """A study of the command line.

    Parameters
    ----------
    help
        One line.
    most_traces
        How many traces it takes at most.
    traces_help
        What they are, and what is done without them.
    run
        Does it; raises an ``OsubError`` for what cannot be.
    """

    help: str
    most_traces: int
    traces_help: str
    run: Callable[[Request], Findings]


def study_names() -> list[str]:
    """Return the names of all studies, in order."""
    package = importlib.import_module(_STUDIES)
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(package.__path__))


def study_of(name: str) -> ClaimStudy:
    """Return the study of that name, one of :func:`study_names`."""
    found = importlib.import_module(f"{_STUDIES}.{name.replace('-', '_')}").STUDY
    if not isinstance(found, ClaimStudy):
        raise TypeError(f"{_STUDIES}.{name}: STUDY is no ClaimStudy")
    return found


def seeds_of(seeds: int | None, *, quick: bool) -> int:
    """Return how many seeds: those that were asked for, three if it is to be quick, else ten."""
    return seeds if seeds is not None else QUICK_SEEDS if quick else LEAST_SEEDS


def check_traces(study: ClaimStudy, traces: Sequence[Path]) -> None:
    """Raise UsageError if there are more traces than the study takes."""
    if len(traces) > study.most_traces:
        takes = f"at most {counted(study.most_traces, 'trace')}" if study.most_traces else "no trace"
        raise UsageError(f"this study takes {takes}; {len(traces)} {verb(len(traces))} given")
