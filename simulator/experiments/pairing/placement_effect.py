"""One trace under several rules of who shares a core with whom: at random, no twins, by loss, apart.

Every rule takes idle cores first, as Slurm's least-loaded placement does; they differ where a job must share.
What jobs lose is always as measured; only what a placement is told of it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from analysis.quantiles import quantiles
from simulator.engine.state.cluster_view import Cluster
from simulator.experiments.pairing.measured_pairs import family
from simulator.pairing import PairTable
from simulator.placement import Cores, PairedPlacement, Placement
from simulator.setting_choices import Words
from simulator.sharing import Pairwise
from simulator.simulation import Cleaning, Result, cleaning_of
from simulator.simulation_session import Session
from simulator.world import Job

Floats = npt.NDArray[np.float64]
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


class AtRandom:
    """Any of the cores on which a job may share, drawn by a seed; idle ones first."""

    def __init__(self, applications: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._applications = applications

    def place(self, cluster: Cluster, job: Job) -> Cores | None:
        """See ``Placement``."""
        drawn = self._rng.random((self._applications, self._applications))
        return PairedPlacement(drawn).place(cluster, job)


@dataclass(frozen=True, slots=True)
class Rule:
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
    placement: Callable[[int], Placement]
    table: PairTable


def rules_of(table: PairTable, predicted: Floats | None = None, gang: PairTable | None = None) -> list[Rule]:
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

    def told(name: str, loss: Floats, most: float | None = None) -> Rule:
        return Rule(name, lambda _: PairedPlacement(loss, most), table)

    count = len(table.applications)
    rules = [Rule(RANDOM, lambda seed: AtRandom(count, seed), table), told(TWINS, twins)]
    if predicted is not None:
        rules.append(told(PREDICTED, predicted))
    rules.append(told(MEASURED, table.loss))
    if predicted is not None:
        rules.append(told(APART_PREDICTED, predicted, APART_AT))
    rules.append(told(APART, table.loss, APART_AT))
    if gang is not None:
        rules.append(Rule(GANG, lambda seed: AtRandom(count, seed), gang))
    return rules


def effects(
    trace: Path,
    system: str,
    rules: Sequence[Rule],
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
        Told what is done next.
    """
    found: dict[str, list[Effect]] = {rule.name: [] for rule in rules}
    for seed in seeds:
        words = Words(
            system=system,
            multiplicity=2,
            sharing="pairwise",
            placement="lln-paired",
            pairs=pairs,
            overhead="1.0",
            seed=seed,
        )
        session = Session(trace, words, _cleaning())
        own = session.setting
        for rule in rules:
            step(f"seed {seed}, {rule.name}")
            changed = replace(
                own.rules, placement=rule.placement(seed), sharing=Pairwise(rule.table.slowdown)
            )
            session.setting = replace(own, rules=changed)
            found[rule.name].append(_effect(session.run()))
    return found


def _cleaning() -> Cleaning:
    return cleaning_of(-1, 1.0, "skip", "skip", "raise")


def _effect(result: Result) -> Effect:
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
