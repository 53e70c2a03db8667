"""Studies that end in a table of claims: what they are, and the one runner and judge of them all.

``osub experiment NAME`` runs any of ``STUDIES``. This module is cheap to import: what computes is imported by
``ClaimStudy.run``. What papers claim is data (``claims.csv``); ``run_grid`` runs, ``judged_rows`` judges.
"""

from __future__ import annotations

import csv
import functools
import importlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from analysis.claims import LEAST_SEEDS, Claim, ClaimRow, ClaimVerdict, Judgement, figures
from foundation.errors import UsageError
from foundation.units import counted, verb

if TYPE_CHECKING:
    from simulator.experiment_page import Drawing, ExperimentTable

QUICK_SEEDS = 3
ALIKE = 0.05
"""A figure of our world within this share of the paper's is the paper's."""
_WORDS, _TABLES = (Path(__file__).with_name(name) for name in ("claims.csv", "thesis_tables.csv"))

CellT = TypeVar("CellT")
FoundT = TypeVar("FoundT")
DrawnT = TypeVar("DrawnT")
Judged = tuple[Judgement, str]
"""A judgement, and our value in words; empty: the estimate says it."""
Step = Callable[[str], None]
"""Takes what was done, once a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRequest:
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
        Called with the number of steps; returns a function to call at each of them.
    """

    traces: tuple[Path, ...]
    seeds: int
    quick: bool
    steps: Callable[[int], Step]


@dataclass(frozen=True, slots=True)
class WorldFigure:
    """A figure of the world that a study simulates and that its paper prints, too: load, sizes, run times.

    ``claims`` are judged in that world; empty: all are.
    """

    name: str
    paper: float
    ours: float
    unit: str = ""
    claims: frozenset[str] = frozenset()

    @property
    def is_alike(self) -> bool:
        """Whether ours is within ``ALIKE`` of the paper's."""
        return abs(self.ours - self.paper) <= ALIKE * abs(self.paper)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFindings:
    """What a study found.

    Parameters
    ----------
    title
        Of the page.
    facts
        What the study found, in sentences, then its evidence, beginning with "Evidence:", and what was
        simulated. Its page opens with them up to the evidence.
    claims
        Every claim of the paper, judged.
    tables
        Figures behind the claims.
    figures
        Draws the figures of the page; called for a page only.
    world
        What is known of the paper's world, and ours.
    """

    title: str
    facts: Sequence[str]
    claims: Sequence[ClaimRow]
    tables: Sequence[ExperimentTable]
    figures: Callable[[], Sequence[Drawing]]
    world: Sequence[WorldFigure] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimStudy:
    """A study of the command line.

    Parameters
    ----------
    help
        One line.
    traces_help
        What its trace is, and what is done without one.
    module
        Where its ``examine`` is, which takes a ``StudyRequest``, returns ``StudyFindings`` and raises an
        ``OsubError`` for what cannot be done.
    most_traces
        How many traces it takes at most.
    """

    help: str
    traces_help: str
    module: str
    most_traces: int = 1

    def run(self, request: StudyRequest) -> StudyFindings:
        """Run the study and judge every claim."""
        found = importlib.import_module(self.module).examine(request)
        if not isinstance(found, StudyFindings):
            raise TypeError(f"{self.module}.examine returned no StudyFindings")
        return _in_its_world(found) if found.world else found


STUDIES = {
    "eviction": ClaimStudy(
        help="CoSim: evicting jobs for one that cannot wait; optimum, greedy, backtracking.",
        traces_help="Theta (SWF); without it all scenarios are generated.",
        module="simulator.experiments.eviction_study",
    ),
    "hybrid": ClaimStudy(
        help="Fan et al.: on-demand, rigid and malleable jobs; six mechanisms, and sharing instead.",
        traces_help="A year of Theta (SWF), on 4,392 nodes; without it a trace is made.",
        module="simulator.experiments.hybrid_study",
    ),
    "malleable": ClaimStudy(
        help="Zojer, Posner, Oezden: jobs that change size under MIN, PREF, AVG and KEEPPREF, over EASY.",
        traces_help="28 days of it replace THETA (SWF); without it windows like all four are made.",
        module="simulator.experiments.malleable_study",
    ),
    "pairing": ClaimStudy(
        help="Losses of pairs that share a core, their prediction, and placement that knows of them.",
        traces_help="SWF for the effect of placement, on the nodes of its header; without it one is drawn.",
        module="simulator.experiments.pairing_study",
    ),
    "timesharing": ClaimStudy(
        help="Time-sharing of whole nodes against batch: slowdowns by size and length, overhead, noise.",
        traces_help="Any SWF whose header has its nodes; without it days like Edison's are generated.",
        module="simulator.experiments.timesharing_study",
    ),
}
"""The studies by the names of their commands."""


def run_grid(
    cells: Iterable[CellT],
    seeds: Iterable[int],
    draw: Callable[[int], DrawnT],
    trial: Callable[[DrawnT, CellT, int], FoundT],
    step: Step,
    *,
    workers: int = 1,
) -> dict[CellT, list[FoundT]]:
    """Run every cell of a grid with every seed.

    Parameters
    ----------
    cells, seeds
        What is crossed.
    draw
        Returns what all cells of a seed have in common.
    trial
        Runs a cell with a seed.
    step
        Called after each trial with its seed and cell.
    workers
        Trials of a seed that run at once; compiled loops leave the interpreter to each other.

    Returns
    -------
    dict
        By cell one result a seed, in the order of the seeds.
    """
    found: dict[CellT, list[FoundT]] = {cell: [] for cell in cells}
    for seed in seeds:
        run = functools.partial(_one, trial, draw(seed), seed)
        for cell, one in run_trials(found, run, step, f"seed {seed}", workers=workers).items():
            found[cell].append(one)
    return found


def run_trials(
    trials: Iterable[CellT], run: Callable[[CellT], FoundT], step: Step, label: str, *, workers: int = 1
) -> dict[CellT, FoundT]:
    """Run each trial, ``workers`` of them at once, and call ``step`` with the label and its name.

    An error, or a signal, waits for no trial: a thread may be compiling for ten seconds.
    """
    found: dict[CellT, FoundT] = {}
    pool = ThreadPoolExecutor(workers)
    try:
        one, another = itertools.tee(trials)
        results = map(run, one) if workers == 1 else pool.map(run, one)
        for trial, result in zip(another, results, strict=True):
            found[trial] = result
            step(f"{label}: {trial}")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return found


def _one(trial: Callable[[DrawnT, CellT, int], FoundT], drawn: DrawnT, seed: int, cell: CellT) -> FoundT:
    return trial(drawn, cell, seed)


def judged_rows(judges: Mapping[str, Callable[[FoundT], Judged]], found: FoundT) -> list[ClaimRow]:
    """Return the row of each claim, judged by its judge."""
    return rows_of({name: judge(found) for name, judge in judges.items()})


def rows_of(judged: Mapping[str, Judged], where: str = "") -> list[ClaimRow]:
    """Return the row of each claim; ``where`` opens its setting."""
    return [ClaimRow.of(claim_of(name, where), *of) for name, of in judged.items()]


def claim_of(name: str, where: str = "") -> Claim:
    """Return what a paper claims, by the claim's identifier; ``where`` opens its setting."""
    claim = _claims()[name]
    return msgspec.structs.replace(claim, setting=where + claim.setting)


@functools.cache
def _claims() -> dict[str, Claim]:
    with _WORDS.open(encoding="utf-8", newline="") as file:
        return {line["id"]: Claim(**line) for line in csv.DictReader(file)}


def published_rows(table: str) -> list[list[str]]:
    """Return the rows of a table of the thesis."""
    with _TABLES.open(encoding="utf-8", newline="") as file:
        return [cells for name, *cells in csv.reader(file) if name == table]


def _in_its_world(found: StudyFindings) -> StudyFindings:
    """Open the tables with world against paper; a claim fails only in a world that is like the paper's."""
    from simulator.experiment_page import ExperimentTable  # heavy: it draws, too

    rows = [
        (
            one.name,
            f"{figures(one.paper)} {one.unit}".strip(),
            f"{figures(one.ours)} {one.unit}".strip(),
            "yes" if one.is_alike else f"no: {one.ours / one.paper - 1:+.0%}",
        )
        for one in found.world
    ]
    table = ExperimentTable(
        name="World",
        title="what the paper prints of its world, and ours",
        columns=("figure", "paper", "ours", f"within {ALIKE:.0%}"),
        rows=rows,
        notes=("Where one differs, a claim that fails here is not comparable.",),
    )
    return replace(
        found, tables=[table, *found.tables], claims=[_in_world(row, found.world) for row in found.claims]
    )


def _in_world(row: ClaimRow, world: Sequence[WorldFigure]) -> ClaimRow:
    other = [
        f"{one.name} {one.ours / one.paper - 1:+.0%}"
        for one in world
        if not one.is_alike and (not one.claims or row.id in one.claims)
    ]
    if not other or row.verdict is not ClaimVerdict.FAILS:
        return row
    note = f"fails here, where the world is another ({', '.join(other)})"
    return msgspec.structs.replace(
        row, verdict=ClaimVerdict.NOT_COMPARABLE, note=f"{note}; {row.note}" if row.note else note
    )


def seeds_of(seeds: int | None, *, quick: bool) -> int:
    """Return how many seeds: those that were asked for, three if it is to be quick, else ten."""
    return seeds if seeds is not None else QUICK_SEEDS if quick else LEAST_SEEDS


def check_traces(study: ClaimStudy, traces: Sequence[Path]) -> None:
    """Raise UsageError if there are more traces than the study takes."""
    if len(traces) > study.most_traces:
        takes = f"at most {counted(study.most_traces, 'trace')}" if study.most_traces else "no trace"
        raise UsageError(f"this study takes {takes}; {len(traces)} {verb(len(traces))} given")
