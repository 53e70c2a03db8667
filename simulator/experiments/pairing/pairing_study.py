"""The study of pairs, from the request to the findings: what placements make of jobs, as tables and bars."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from analysis.claims import estimate
from foundation.errors import InputError
from foundation.units import counted
from predictor.data import FOLDER
from predictor.dataset import Kind
from predictor.model.judges_page import calibration_chart, map_chart
from simulator.experiments.claim_study import Findings, Request
from simulator.experiments.experiment_page import Drawing
from simulator.experiments.pairing import parallel_pairs as parallel
from simulator.experiments.pairing.beside_thesis import folds_of
from simulator.experiments.pairing.beside_thesis import tables as beside_thesis
from simulator.experiments.pairing.measured_pairs import Measured, look_at
from simulator.experiments.pairing.pairing_claims import by_victim, rows
from simulator.experiments.pairing.placement_effect import RANDOM, Effect, Floats, Rule, effects, rules_of
from simulator.experiments.paper_tables import ExperimentTable
from simulator.pairing import PairTable, read_pair_table, write_pair_table
from workloads.swf import SwfTrace, read_swf, write_swf
from workloads.trace.models import generate_trace

NODES, CORES, LOAD = 8, 8, 0.9
JOBS, QUICK_JOBS = 400, 150
MOST_JOBS = 3000
_SAME = "what placement makes of the same jobs (losses are shares of a job's speed)"

_MEASURES = (
    ("mean loss", "mean_loss", 1.0),
    ("95% of jobs lose at most", "p95_loss", 1.0),
    ("worst loss", "worst_loss", 1.0),
    ("mean wait (h)", "wait_s", 3600.0),
    ("mean wait and run (h)", "turnaround_s", 3600.0),
    ("jobs an hour", "jobs_an_hour", 1.0),
)
Made = dict[str, list[Effect]]
"""By rule, an effect a seed."""


def examine(request: Request) -> Findings:
    """Judge every claim, and simulate the rules."""
    found = look_at()
    table = read_pair_table(FOLDER)
    singles = rules_of(table, unseen_matrix(found, table))
    coupled, coupled_rules = _coupled(found)
    seeds = range(1, request.seeds + 1)
    with tempfile.TemporaryDirectory(prefix="osub-pairing-") as scratch:
        trace, system, told = _trace(request, Path(scratch))
        step = request.steps((len(singles) + len(coupled_rules)) * request.seeds)
        made = effects(trace, system, singles, FOLDER, seeds, step)
        of_coupled: Made = {}
        if coupled is not None:
            pairs = Path(scratch, "coupled.csv")
            write_pair_table(pairs, coupled)
            of_coupled = effects(trace, system, coupled_rules, pairs, seeds, step)
    folds = folds_of(found)
    about = found.pairs.about
    facts = [
        (
            f"{counted(found.shared.height, 'ordered pair')} of "
            f"{counted(len(table.applications), 'application')} that take turns on one core, measured on "
            f"{about.host.cpu_model}, {about.started:%Y-%m-%d}; of {found.report.excluded} the interval has "
            "0.5 in it, and models are judged without these."
        ),
        told,
        f"Counters that the selection keeps: {', '.join(found.report.kept)}.",
    ]
    return Findings(
        title="Which applications may share a core",
        facts=facts,
        claims=rows(found, folds),
        tables=[
            effect_table("Effect", f"{_SAME}, applications of one rank on one core", made),
            *(
                [effect_table("Effect, several ranks", f"{_SAME}, applications of two ranks", of_coupled)]
                if of_coupled
                else []
            ),
            parallel.table(found),
            *beside_thesis(found, folds),
            _victim_table(found),
        ],
        figures=lambda: _drawings(found, made, of_coupled),
    )


def _coupled(found: Measured) -> tuple[PairTable | None, list[Rule]]:
    """Return what jobs of several ranks lose to each other, and the rules for them; none if not measured."""
    if not found.of_kind(Kind.NAIVE).height:
        return None, []
    table = read_pair_table(FOLDER, Kind.NAIVE)
    gang = read_pair_table(FOLDER, Kind.GANG) if found.of_kind(Kind.GANG).height else None
    if gang is not None and gang.applications != table.applications:
        gang = None
    return table, rules_of(table, gang=gang)


def unseen_matrix(found: Measured, table: PairTable) -> Floats:
    """Return predicted losses by models that had not seen the victim; the half where a pair was left out."""
    records, place = found.report.records, {name: at for at, name in enumerate(table.applications)}
    names = records.features.applications
    matrix: Floats = np.full(table.loss.shape, 0.5)
    for victim, opponent, loss in zip(
        records.victim.tolist(), records.opponent.tolist(), found.report.unseen.loss.tolist(), strict=True
    ):
        matrix[place[names[victim]], place[names[opponent]]] = loss
    return matrix


def _trace(request: Request, scratch: Path) -> tuple[Path, str, str]:
    if not request.traces:
        jobs = QUICK_JOBS if request.quick else JOBS
        drawn = generate_trace(jobs, NODES, CORES, seed=1, load=LOAD)
        path = scratch / "drawn.swf"
        write_swf(path, drawn)
        return (
            path,
            f"N{NODES}C{CORES}",
            (
                f"{counted(jobs, 'job')} drawn from the Lublin-Feitelson model at a load of {LOAD:g} on "
                f"{NODES} nodes of {CORES} cores, M=2; which application a user runs is drawn by the seed."
            ),
        )
    trace = read_swf(request.traces[0])
    nodes, cores = _shape(trace)
    path = scratch / "part.swf"
    write_swf(path, trace.with_jobs(trace.jobs[:MOST_JOBS], f"the first {MOST_JOBS} jobs"))
    count = min(len(trace.jobs), MOST_JOBS)
    return (
        path,
        f"N{nodes}C{cores}",
        (
            f"The first {counted(count, 'job')} of {trace.name} on {counted(nodes, 'node')} of "
            f"{counted(cores, 'core')}, M=2; which application a user runs is drawn by the seed."
        ),
    )


def _shape(trace: SwfTrace) -> tuple[int, int]:
    procs = trace.header.system_procs
    if not procs:
        raise InputError(f"{trace.name} does not say how many processors its machine has (MaxProcs)")
    nodes = trace.header.max_nodes or procs
    return (nodes, max(1, procs // nodes)) if nodes <= procs else (procs, 1)


def _victim_table(found: Measured) -> ExperimentTable:
    lines = [
        (
            str(row["victim"]),
            f"{row['median']:.2f}",
            f"{row['least']:.2f}",
            f"{row['largest']:.2f}",
            str(row["by"]),
        )
        for row in by_victim(found).iter_rows(named=True)
    ]
    return ExperimentTable(
        name="Victims",
        title="E_v on one core, over all opponents",
        columns=("victim", "median", "least", "largest", "beside"),
        rows=lines,
    )


def _drawings(found: Measured, made: Made, coupled: Made) -> list[Drawing]:
    table = found.shared
    names = sorted(table["victim"].unique())
    place = {name: at for at, name in enumerate(names)}
    matrix = np.full((len(names), len(names)), np.nan)
    for row in table.iter_rows(named=True):
        matrix[place[row["victim"]], place[row["opponent"]]] = row["e_v"]
    heat = go.Figure(
        go.Heatmap(
            z=matrix,
            x=names,
            y=names,
            colorscale="RdBu_r",
            zmid=0.5,
            zmin=0.2,
            zmax=0.8,
            colorbar={"title": "E_v"},
        )
    )
    heat.update_layout(height=640, xaxis_title="opponent", yaxis_title="victim", template="plotly_white")
    drawings = [("E_v of each pair", heat), ("Losses of jobs by who shares with whom", effect_bars(made))]
    if coupled:
        drawings.append(("Losses of jobs of two ranks by who shares with whom", effect_bars(coupled)))
    report = found.report
    drawings.append(("Map of the applications by their counters", map_chart(report).figure))
    drawings.append(("Is a probability what it says?", calibration_chart(report).figure))
    return drawings


def effect_table(name: str, title: str, made: Made) -> ExperimentTable:
    """Return the table of the rules, with what each changes against drawing lots, seed by seed."""
    lines: list[tuple[str, ...]] = []
    for rule, own in made.items():
        values = {field: [getattr(one, field) / unit for one in own] for _, field, unit in _MEASURES}
        lines.append((rule, *(estimate(values[field]).text() for _, field, _ in _MEASURES)))
    return ExperimentTable(
        name=name,
        title=title,
        columns=("who shares with whom", *(label for label, _, _ in _MEASURES)),
        rows=lines,
        notes=tuple(_against(made, rule) for rule in made if rule != RANDOM),
    )


def _against(made: Made, rule: str) -> str:
    def change(field: str) -> str:
        pairs = [
            (getattr(one, field), getattr(other, field))
            for one, other in zip(made[rule], made[RANDOM], strict=True)
        ]
        return _percent([one / other - 1 for one, other in pairs if other])

    told = ", ".join(f"{label.removesuffix(' (h)')} {change(field)}" for label, field, _ in _MEASURES)
    return f"{rule} against {RANDOM}: {told}"


def _percent(shares: list[float]) -> str:
    if not shares:
        return "-"
    found = estimate([100 * one for one in shares])
    if found.low is None or found.high is None:
        return f"{found.mean:+.1f}%"
    return f"{found.mean:+.1f}% [{found.low:+.1f}, {found.high:+.1f}]"


def effect_bars(made: Made) -> go.Figure:
    """Return mean, 95% and worst loss of each rule."""
    bars = go.Figure()
    for label, field in (("mean", "mean_loss"), ("95%", "p95_loss"), ("worst", "worst_loss")):
        means = [float(np.mean([getattr(one, field) for one in own])) for own in made.values()]
        bars.add_bar(name=label, x=list(made), y=means)
    bars.update_layout(barmode="group", yaxis_title="loss", template="plotly_white", height=420)
    return bars
