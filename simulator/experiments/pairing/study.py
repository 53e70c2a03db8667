"""The study of pairs, from the request to the findings."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from osub.claims import estimate
from osub.errors import InputError
from predictor.data import FOLDER
from simulator.experiments.claim_study import Findings, Request
from simulator.experiments.page import Drawing
from simulator.experiments.pairing import parallel
from simulator.experiments.pairing.claims import by_victim, rows
from simulator.experiments.pairing.effect import MEASURED, PREDICTED, RANDOM, RULES, Effect, Floats, effects
from simulator.experiments.pairing.measured import Measured, look_at
from simulator.experiments.tables import ExperimentTable
from simulator.pairing import PairTable, read_pair_table
from workloads.swf import SwfTrace, read_swf, write_swf
from workloads.trace.generate import generate_trace

NODES, CORES, LOAD = 8, 8, 0.9
JOBS, QUICK_JOBS = 400, 150
MOST_JOBS = 3000


def examine(request: Request) -> Findings:
    """Judge every claim, and simulate the rules."""
    found = look_at()
    table = read_pair_table(FOLDER)
    predicted = unseen_matrix(found, table)
    with tempfile.TemporaryDirectory(prefix="osub-pairing-") as scratch:
        trace, system, told = _trace(request, Path(scratch))
        step = request.steps(len(RULES) * request.seeds)
        made = effects(trace, system, table, predicted, FOLDER, range(1, request.seeds + 1), step)
    about = found.pairs.about
    facts = [
        (
            f"{found.shared.height} ordered pairs of {len(table.applications)} applications that take turns "
            f"on one core, measured on {about.host.cpu_model}, {about.started:%Y-%m-%d}; of "
            f"{found.report.excluded} the interval has 0.5 in it, and models are judged without these."
        ),
        told,
        f"Counters that the selection keeps: {', '.join(found.report.kept)}.",
    ]
    return Findings(
        title="Which applications may share a core",
        facts=facts,
        claims=rows(found),
        tables=[_effect_table(made), parallel.table(found), _victim_table(found)],
        figures=lambda: _drawings(found, made),
    )


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
                f"{jobs} jobs drawn from the Lublin-Feitelson model at a load of {LOAD:g} on {NODES} nodes "
                f"of {CORES} cores, M=2; "
                "which application a user runs is drawn by the seed."
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
            f"The first {count:,} jobs of {trace.name} on {nodes} nodes of {cores} cores, M=2; which "
            "application a user runs is "
            "drawn by the seed."
        ),
    )


def _shape(trace: SwfTrace) -> tuple[int, int]:
    procs = trace.header.system_procs
    if not procs:
        raise InputError(f"{trace.name} does not say how many processors its machine has (MaxProcs)")
    nodes = trace.header.max_nodes or procs
    return (nodes, max(1, procs // nodes)) if nodes <= procs else (procs, 1)


def _effect_table(made: dict[str, list[Effect]]) -> ExperimentTable:
    measures = (
        ("mean loss", "mean_loss", 1.0),
        ("95% of jobs lose at most", "p95_loss", 1.0),
        ("worst loss", "worst_loss", 1.0),
        ("mean wait (h)", "wait_s", 3600.0),
        ("jobs an hour", "jobs_an_hour", 1.0),
    )
    lines: list[tuple[str, ...]] = []
    for rule in RULES:
        values = {name: [getattr(one, name) / unit for one in made[rule]] for _, name, unit in measures}
        lines.append((rule, *(estimate(values[name]).text() for _, name, _ in measures)))
    notes = tuple(_against(made, rule) for rule in (PREDICTED, MEASURED))
    return ExperimentTable(
        name="Effect",
        title="what placement makes of the same jobs; losses are shares of a job's speed",
        columns=("who shares with whom", *(label for label, _, _ in measures)),
        rows=lines,
        notes=notes,
    )


def _against(made: dict[str, list[Effect]], rule: str) -> str:
    def change(name: str) -> str:
        pairs = [
            (getattr(one, name), getattr(other, name))
            for one, other in zip(made[rule], made[RANDOM], strict=True)
        ]
        return _percent([one / other - 1 for one, other in pairs if other])

    changes = ("mean_loss", "worst_loss", "wait_s")
    told = ", ".join(f"{name.removesuffix('_s').replace('_', ' ')} {change(name)}" for name in changes)
    return f"{rule} against {RANDOM}: {told}"


def _percent(shares: list[float]) -> str:
    found = estimate([100 * one for one in shares])
    if found.low is None or found.high is None:
        return f"{found.mean:+.1f}%"
    return f"{found.mean:+.1f}% [{found.low:+.1f}, {found.high:+.1f}]"


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


def _drawings(found: Measured, made: dict[str, list[Effect]]) -> list[Drawing]:
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
    bars = go.Figure()
    for label, name in (("mean", "mean_loss"), ("95%", "p95_loss"), ("worst", "worst_loss")):
        values = [[getattr(one, name) for one in made[rule]] for rule in RULES]
        bars.add_bar(name=label, x=list(RULES), y=[float(np.mean(one)) for one in values])
    bars.update_layout(barmode="group", yaxis_title="loss", template="plotly_white", height=380)
    return [("E_v of each pair", heat), ("Losses of jobs by who shares with whom", bars)]
