"""What learning pairs live costs: ``pytest -m benchmark -s tests/benchmarks/test_pairs_learnt_figures.py``.

The measured pairs that come with osub, on different cores and, as shares beyond the half, on one core. At
each meeting two jobs are drawn, each runs together with the other for 0.3 to 1 of its CPU time, and CPU times
have log-normal noise. A meeting together costs the larger loss of the two, one that alternates the threshold:
the loss at which an administrator gives the same for both. Regret is what a rule costs more than knowing
every loss, in hundredths a meeting. "late" is the learner's in the second half; "covered" are 95% intervals
that have the true loss, of pairs that met.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pytest

from analysis.claims import estimate
from gangd.core.pairing import PairedJob, PairLearner, Victim
from predictor.data import FOLDER
from simulator.pairing import read_pair_table
from tests.fixtures.voice import say

pytestmark = pytest.mark.benchmark

SEEDS = range(1, 6)
Table = Mapping[tuple[str, str], float]


@dataclass(slots=True)
class Regret:
    """Of one run, in hundredths a meeting; shares for the last two."""

    learnt: float
    late: float
    together: float
    alternate: float
    tried: float
    covered: float


def measured(kind: str) -> Table:
    """Return losses of CPU time by pair; of jobs on one core what they lose beyond their turns."""
    table = read_pair_table(FOLDER, kind)
    losses = table.loss if kind == "cores" else 2 * table.loss - 1
    names = table.applications
    return {(one, other): float(losses[i, j]) for i, one in enumerate(names) for j, other in enumerate(names)}


def meet(losses: Table, noise: float, threshold: float, prior: Table, meetings: int, seed: int) -> Regret:
    """Let pairs of jobs meet, each decided by what was learnt of those before."""
    generator = np.random.default_rng(seed)
    learner = PairLearner(seed)
    learner.set_policy(prior, threshold, 0.1)
    names = sorted({name for name, _ in losses})
    work = dict(zip(names, generator.uniform(3, 8, len(names)), strict=True))
    costs = np.zeros((meetings, 3))
    tried = 0
    for number in range(meetings):
        pair = [names[place] for place in generator.choice(len(names), 2)]
        jobs = [PairedJob(2 * number + k, 0, Victim("user", pair[k], 1), pair[k]) for k in (0, 1)]
        harm = max(0.0, losses[pair[0], pair[1]], losses[pair[1], pair[0]])
        apart = learner.alternate(*jobs)
        learner.explore = 0.0
        tried += apart != learner.alternate(*jobs)
        learner.explore = 0.1
        costs[number] = np.array([threshold if apart else harm, harm, threshold]) - min(harm, threshold)
        for one, opponent in (pair, reversed(pair)):
            exposed = 0.0 if apart else generator.uniform(0.3, 1)
            cpu_s = np.exp(work[one] + generator.normal(0, noise)) / (1 - exposed * losses[one, opponent])
            learner.observe(Victim("user", one, 1), float(cpu_s), {opponent: exposed})
    known = [
        loss.low <= losses[v.application, name] <= loss.high
        for v, name, loss in learner.known()
        if loss.jobs > 1
    ]
    learnt, together, alternate = 100 * costs.mean(axis=0)
    late = 100 * float(costs[meetings // 2 :, 0].mean())
    return Regret(learnt, late, together, alternate, tried / meetings, float(np.mean(known)))


def row(kind: str, threshold: float, noise: float, table: str, runs: Sequence[Regret]) -> str:
    """Return one line of the table."""
    cells = []
    for name in ("learnt", "late", "together", "alternate"):
        found = estimate([getattr(run, name) for run in runs])
        cells.append(f"{found.mean:.2f} ({found.low:.2f} to {found.high:.2f})")
    shares = [f"{100 * np.mean([getattr(run, name) for run in runs]):.0f}%" for name in ("tried", "covered")]
    return f"| {kind} | {threshold:g} | {noise:.0%} | {table} | {' | '.join((*cells, *shares))} |"


def test_regret_of_learning() -> None:
    head = ["pairs", "threshold", "noise", "table", *(one.name for one in fields(Regret))]
    say(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for kind, thresholds, meetings in (("cores", (0.05, 0.1), 1000), ("timeslice", (0.1,), 4000)):
        losses = measured(kind)
        turned = {pair: losses[pair[::-1]] for pair in losses}  # a table that is wrong
        priors: list[tuple[str, Table]] = [("none", {})]
        if kind == "cores":
            priors += [("right", losses), ("wrong", turned)]
        for threshold in thresholds:
            for noise in (0.01, 0.03, 0.1):
                for table, prior in priors:
                    seeds = SEEDS if kind == "cores" else SEEDS[:3]
                    runs = [meet(losses, noise, threshold, prior, meetings, seed) for seed in seeds]
                    say(row(kind, threshold, noise, table, runs))
                    assert np.mean([run.learnt for run in runs]) < np.mean([run.alternate for run in runs])
