"""The figures behind the claims, as tables; and where sharing wins and loses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analysis.claims import Verdict, direction, estimate
from analysis.claims.estimate import figures
from simulator.experiments.hybrid.hybrid_measures import Measured
from simulator.experiments.hybrid.hybrid_survey import EVEN, MECHANISMS, OVERHEAD, Survey
from simulator.experiments.paper_tables import ExperimentTable
from simulator.hybrid.drawn_jobs import MIXES

_COLUMNS: tuple[tuple[str, Callable[[Measured], float], float], ...] = (
    ("turnaround h", lambda one: one.turnaround, 1),
    ("rigid h", lambda one: one.rigid, 1),
    ("malleable h", lambda one: one.malleable, 1),
    ("on demand h", lambda one: one.on_demand, 1),
    ("utilisation %", lambda one: one.utilisation, 100),
    ("wasted %", lambda one: one.wasted, 100),
    ("instant %", lambda one: one.instant, 100),
    ("within 0 s %", lambda one: one.at_once, 100),
    ("rigid preempted %", lambda one: one.rigid_preempted, 100),
    ("malleable preempted %", lambda one: one.malleable_preempted, 100),
)
_AGAINST: tuple[tuple[str, Callable[[Measured], float], bool], ...] = (
    ("turnaround of all", lambda one: one.turnaround, True),
    ("of rigid jobs", lambda one: one.rigid, True),
    ("of malleable jobs", lambda one: one.malleable, True),
    ("of on-demand jobs", lambda one: one.on_demand, True),
    ("slowdown on demand, up to 1 h", lambda one: one.short, True),
    ("slowdown on demand, over 1 h", lambda one: one.long, True),
    ("instant starts", lambda one: one.instant, False),
    ("starts within 0 s", lambda one: one.at_once, False),
    ("wasted node time", lambda one: one.wasted, True),
)


def tables(survey: Survey) -> list[ExperimentTable]:
    """Return mechanisms, mixes, sharing, and sharing against the six."""
    return [_mechanisms(survey), _mixes(survey), _sharing(survey), _against(survey)]


def _row(name: str, measured: Sequence[Measured]) -> tuple[str, ...]:
    cells = (figures(scale * estimate([value(one) for one in measured]).mean) for _, value, scale in _COLUMNS)
    return name, *cells


def _mechanisms(survey: Survey) -> ExperimentTable:
    rows = [_row("FCFS/EASY", survey.base)]
    rows += [_row(name, survey.runs[name, EVEN]) for name in MECHANISMS]
    weight = 4 if any(weight == 4 for weight, _ in survey.shared) else next(iter(survey.shared))[0]
    rows.append(_row(f"sharing, weight {weight}", survey.shared[weight, OVERHEAD]))
    return ExperimentTable(
        name="Mechanisms",
        title=f"notices of all kinds alike ({EVEN}), mean over the seeds",
        columns=("mechanism", *(name for name, _, _ in _COLUMNS)),
        rows=rows,
        notes=("Wasted: lost, repeated set-up and warnings, over the node time that jobs held.",),
    )


def _mixes(survey: Survey) -> ExperimentTable:
    rows = [
        (name, *(figures(estimate([one.turnaround for one in survey.runs[name, mix]]).mean) for mix in MIXES))
        for name in MECHANISMS
    ]
    return ExperimentTable(
        name="Notices",
        title="mean turnaround in hours by mix, mean over the seeds",
        columns=("mechanism", *MIXES),
        rows=rows,
        notes=("Mostly no notice, accurate, early, late; a quarter each.",),
    )


def _sharing(survey: Survey) -> ExperimentTable:
    rows = [
        _row(f"weight {weight}, C_o {float(overhead):g}", measured)
        for (weight, overhead), measured in survey.shared.items()
    ]
    return ExperimentTable(
        name="Sharing",
        title="on-demand jobs that share cores, by their weight and what sharing costs",
        columns=("setting", *(name for name, _, _ in _COLUMNS)),
        rows=rows,
    )


def _against(survey: Survey) -> ExperimentTable:
    """Return where sharing is better or worse than each mechanism, if the interval says so."""
    keys = [key for key in survey.shared if key[1] == OVERHEAD]
    chosen = (4, OVERHEAD) if (4, OVERHEAD) in keys else keys[0]
    shared = survey.shared[chosen]
    rows = [
        (told, *(_better(shared, survey.runs[name, EVEN], value, is_lower) for name in MECHANISMS))
        for told, value, is_lower in _AGAINST
    ]
    return ExperimentTable(
        name="Sharing against",
        title=f"weight {chosen[0]}, C_o {float(chosen[1]):g}: sharing is better, worse, or neither",
        columns=("figure", *MECHANISMS),
        rows=rows,
        notes=("In brackets sharing's mean over the mechanism's.",),
    )


def _better(
    mine: Sequence[Measured], other: Sequence[Measured], value: Callable[[Measured], float], lower: bool
) -> str:
    sign = 1.0 if lower else -1.0
    gains = [sign * (value(b) - value(a)) for a, b in zip(mine, other, strict=True)]
    verdict = direction(gains).verdict
    word = {Verdict.HOLDS: "better", Verdict.FAILS: "worse"}.get(verdict, "neither")
    ours, theirs = (estimate([value(one) for one in of]).mean for of in (mine, other))
    return f"{word} ({ours / theirs:.2f})" if theirs else word
