"""The study of pairs, from the request to the findings: what placements make of jobs, as tables and bars.

One trace is simulated under several rules of who shares a core with whom: at random, no twins, by loss,
apart. Every rule takes idle cores first, as Slurm's least-loaded placement does; they differ where a job must
share. What jobs lose is always as measured; only what a placement knows of it differs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from analysis.claims import estimate
from analysis.quantiles import quantiles
from foundation.errors import InputError
from foundation.units import counted
from predictor.data import FOLDER
from predictor.dataset import PairKind, harmful_loss
from predictor.model.judges_page import calibration_chart, map_chart
from simulator.experiment_page import Drawing, ExperimentTable
from simulator.experiments.claim_study import StudyFindings, StudyRequest, run_grid
from simulator.experiments.pairing_claims import by_victim, coupled_table, rows, world_of
from simulator.experiments.pairing_tables import Floats, MeasuredPairs, family, folds_of, look_at, share
from simulator.experiments.pairing_tables import tables as thesis_tables
from simulator.model.jobs import SimulatedJob
from simulator.pairing import PairTable, read_pair_table, write_pair_table
from simulator.placement import Cores, PairedPlacement, PlacementRule
from simulator.sharing import Pairwise
from simulator.simulation import Cleaning, SimulationResult
from simulator.simulation_session import SimulationSession
from simulator.simulation_spec import SimulationSpec
from simulator.state.allocations import PoolState
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
RANDOM, TWINS, PREDICTED, MEASURED = "at random", "no twins", "by predicted loss", "by measured loss"
APART, APART_PREDICTED = "apart, by measured loss", "apart, by predicted loss"
GANG = "at random, in gang slices"
APART_AT = 0.6
"""The loss beyond which two are kept apart: a tenth above the half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a rule made of a trace: losses are shares of a job's speed, waits are in seconds."""

    mean_loss: float
    p95_loss: float
    worst_loss: float
    wait_s: float
    turnaround_s: float
    jobs_an_hour: float


Made = dict[str, list[Effect]]
"""By rule, an effect a seed."""


def examine(request: StudyRequest) -> StudyFindings:
    """Judge every claim, and simulate the rules."""
    found = look_at()
    table = read_pair_table(FOLDER)
    singles = rules_of(table, unseen_matrix(found, table))
    coupled, coupled_rules = _coupled(found)
    seeds = range(1, request.seeds + 1)
    with tempfile.TemporaryDirectory(prefix="osub-pairing-") as scratch:
        trace, system, origin = _trace(request, Path(scratch))
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
        *learnt(found, made),
        (
            f"Evidence: {counted(found.shared.height, 'ordered pair')} of "
            f"{counted(len(table.applications), 'application')} that take turns on one core, measured on "
            f"{about.host.cpu_model}, {about.started:%Y-%m-%d}; of {found.report.excluded} the interval has "
            "0.5 in it, and models are judged without these."
        ),
        origin,
        f"Counters that the selection keeps: {', '.join(found.report.kept)}.",
    ]
    return StudyFindings(
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
            coupled_table(found),
            *thesis_tables(found, folds),
            _victim_table(found),
        ],
        figures=lambda: _drawings(found, made, of_coupled),
        world=world_of(found),
    )


def learnt(found: MeasuredPairs, made: Made) -> list[str]:
    """Return what pairs lose, what a model knows of unseen programs, and what placement makes of losses."""
    loss, report = found.batch()["e_v"].to_numpy(), found.report
    most = harmful_loss(PairKind.TIMESLICE)
    unseen = report.accuracies["application"].accuracy
    both = zip(made[APART], made[RANDOM], strict=True)
    change = estimate([100 * (one.mean_loss / other.mean_loss - 1) for one, other in both]).text("%")
    pairs = (
        f"Of {counted(len(loss), 'pair')} of programs that take turns on a core "
        f"{share(np.abs(loss - 0.5), 0.02):.0%} lose within 0.02 of the fair half, and "
        f"{1 - share(loss, most):.0%} more than {most:g}."
    )
    model = (
        f"Of pairs with a program that it has not seen a model calls {unseen:.0%} rightly; to call all alike "
        f"is right for {report.majority:.0%}."
    )
    placement = (
        "Against placement at random, placement that knows measured losses and keeps harmful pairs apart "
        f"changes the mean loss by {change}."
    )
    return [pairs, model, placement]


def _coupled(found: MeasuredPairs) -> tuple[PairTable | None, list[PairingRule]]:
    """Return what jobs of several ranks lose to each other, and the rules for them; none if not measured."""
    if not found.of_kind(PairKind.NAIVE).height:
        return None, []
    table = read_pair_table(FOLDER, PairKind.NAIVE)
    gang = read_pair_table(FOLDER, PairKind.GANG) if found.of_kind(PairKind.GANG).height else None
    if gang is not None and gang.applications != table.applications:
        gang = None
    return table, rules_of(table, gang=gang)


def unseen_matrix(found: MeasuredPairs, table: PairTable) -> Floats:
    """Return predicted losses by models that had not seen the victim; the half where a pair was left out."""
    records, place = found.report.records, {name: at for at, name in enumerate(table.applications)}
    names = records.features.applications
    matrix: Floats = np.full(table.loss.shape, 0.5)
    for victim, opponent, loss in zip(
        records.victim.tolist(), records.opponent.tolist(), found.report.unseen.loss.tolist(), strict=True
    ):
        matrix[place[names[victim]], place[names[opponent]]] = loss
    return matrix


def _trace(request: StudyRequest, scratch: Path) -> tuple[Path, str, str]:
    if request.traces:
        whole = read_swf(request.traces[0])
        nodes, cores = _shape(whole)
        trace = whole.with_jobs(whole.jobs[:MOST_JOBS], f"the first {MOST_JOBS} jobs")
        origin = f"The first {counted(len(trace.jobs), 'job')} of {whole.name}"
    else:
        nodes, cores = NODES, CORES
        trace = generate_trace(QUICK_JOBS if request.quick else JOBS, nodes, cores, seed=1, load=LOAD)
        origin = f"{counted(len(trace.jobs), 'job')} of the Lublin-Feitelson model at a load of {LOAD:g}"
    path = scratch / "trace.swf"
    write_swf(path, trace)
    origin += f" on {counted(nodes, 'node')} of {counted(cores, 'core')}"
    return path, f"N{nodes}C{cores}", f"{origin}, M=2; which application a user runs is drawn by the seed."


def _shape(trace: SwfTrace) -> tuple[int, int]:
    procs = trace.header.system_procs
    if not procs:
        raise InputError(f"{trace.name} does not say how many processors its machine has (MaxProcs)")
    nodes = trace.header.max_nodes or procs
    return (nodes, max(1, procs // nodes)) if nodes <= procs else (procs, 1)


def _victim_table(found: MeasuredPairs) -> ExperimentTable:
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
        columns=("victim", "median", "least", "largest", "worst opponent"),
        rows=lines,
    )


def _drawings(found: MeasuredPairs, made: Made, coupled: Made) -> list[Drawing]:
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
        value = attrgetter(field)
        pairs = zip(map(value, made[rule]), map(value, made[RANDOM]), strict=True)
        return _percent([one / other - 1 for one, other in pairs if other])

    changes = ", ".join(f"{label.removesuffix(' (h)')} {change(field)}" for label, field, _ in _MEASURES)
    return f"{rule} against {RANDOM}: {changes}"


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


class AtRandom:
    """Any of the cores on which a job may share, drawn by a seed; idle ones first."""

    def __init__(self, applications: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._applications = applications

    def place(self, cluster: PoolState, job: SimulatedJob) -> Cores | None:
        """See ``PlacementRule``."""
        drawn = self._rng.random((self._applications, self._applications))
        return PairedPlacement(drawn).place(cluster, job)


@dataclass(frozen=True, slots=True)
class PairingRule:
    """A way to decide who shares with whom.

    Parameters
    ----------
    name
        As tables call it.
    placement
        Makes the placement of a seed.
    table
        What applications lose under it.
    """

    name: str
    placement: Callable[[int], PlacementRule]
    table: PairTable


def rules_of(
    table: PairTable, predicted: Floats | None = None, gang: PairTable | None = None
) -> list[PairingRule]:
    """Return the rules that are compared, who draws lots first.

    Parameters
    ----------
    table
        What applications lose, as measured.
    predicted
        What a model says that has not seen the victim; shape (A, A); None: there is none.
    gang
        What the same applications lose in gang slices; None: not measured.
    """
    families = [family(name) for name in table.applications]
    twins = np.array([[float(one == other) for other in families] for one in families])

    def rule_of(name: str, loss: Floats, most: float | None = None) -> PairingRule:
        return PairingRule(name, lambda _: PairedPlacement(loss, most), table)

    count = len(table.applications)
    rules = [PairingRule(RANDOM, lambda seed: AtRandom(count, seed), table), rule_of(TWINS, twins)]
    if predicted is not None:
        rules.append(rule_of(PREDICTED, predicted))
    rules.append(rule_of(MEASURED, table.loss))
    if predicted is not None:
        rules.append(rule_of(APART_PREDICTED, predicted, APART_AT))
    rules.append(rule_of(APART, table.loss, APART_AT))
    if gang is not None:
        rules.append(PairingRule(GANG, lambda seed: AtRandom(count, seed), gang))
    return rules


def effects(
    trace: Path,
    system: str,
    rules: Sequence[PairingRule],
    pairs: Path,
    seeds: Sequence[int],
    step: Callable[[str], None],
) -> dict[str, list[Effect]]:
    """Simulate a trace under each rule, once a seed; which application a user runs is drawn by the seed.

    Parameters
    ----------
    trace, system
        What is simulated, at M=2.
    rules
        Of the same applications.
    pairs
        The table that the applications are of, as ``read_pair_table`` reads it.
    seeds
        Of the draws.
    step
        Called with the next step.
    """
    rule_of = {rule.name: rule for rule in rules}

    def draw(seed: int) -> SimulationSession:
        words = SimulationSpec(
            system=system,
            multiplicity=2,
            sharing="pairwise",
            placement="lln-paired",
            pairs=pairs,
            overhead="1.0",
            instants="one-by-one",
            seed=seed,
        )
        return SimulationSession(trace, words, Cleaning(interactive_queue=None))

    def trial(session: SimulationSession, name: str, seed: int) -> Effect:
        rule, own = rule_of[name], session.setting
        changed = replace(own.rules, placement=rule.placement(seed), sharing=Pairwise(rule.table.slowdown))
        session.setting = replace(own, rules=changed)
        return _effect(session.run())

    return run_grid(rule_of, seeds, draw, trial, step)


def _effect(result: SimulationResult) -> Effect:
    run_s = result.workload.run_us / 1e6
    took_s = (result.end_us - result.start_us) / 1e6
    loss = 1.0 - run_s / np.maximum(took_s, run_s)
    span_h = (result.end_us.max() - result.submit_us.min()) / 3.6e9
    return Effect(
        mean_loss=float(loss.mean()),
        p95_loss=float(quantiles(loss, (0.95,))[0]),
        worst_loss=float(loss.max()),
        wait_s=float((result.start_us - result.submit_us).mean() / 1e6),
        turnaround_s=float((result.end_us - result.submit_us).mean() / 1e6),
        jobs_an_hour=float(len(loss) / span_h),
    )
