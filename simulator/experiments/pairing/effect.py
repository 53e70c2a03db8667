"""One trace, three rules of who shares a core with whom: at random, no twins, and by loss.

Every rule takes idle cores first, as Slurm's least-loaded placement does; they differ where a job must share.
What jobs lose is always as measured; only what a placement is told of it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from simulator.choices import Words
from simulator.engine.cluster import Cluster
from simulator.experiments.pairing.measured import family
from simulator.job import Job
from simulator.options import Cleaning, cleaning_of
from simulator.pairing import PairTable
from simulator.placement.paired import PairedPlacement
from simulator.placement.rule import Cores, Placement
from simulator.session import Session
from simulator.simulate import Result

Floats = npt.NDArray[np.float64]
RANDOM, TWINS, PREDICTED, MEASURED = "at random", "no twins", "by predicted loss", "by measured loss"
RULES = (RANDOM, TWINS, PREDICTED, MEASURED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a rule made of a trace: losses are shares of a job's speed, waits are in seconds."""

    mean_loss: float
    p95_loss: float
    worst_loss: float
    wait_s: float
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


def effects(
    trace: Path,
    system: str,
    table: PairTable,
    predicted: Floats,
    pairs: Path,
    seeds: Sequence[int],
    step: Callable[[str], None],
) -> dict[str, list[Effect]]:
    """Simulate a trace under each rule, once a seed; which application a user runs is drawn by the seed.

    Parameters
    ----------
    trace, system
        What is simulated, at M=2.
    table
        What applications lose, as measured.
    predicted
        What a model says that has not seen the victim; shape (A, A).
    pairs
        The folder that the table is of.
    seeds
        Of the draws.
    step
        Told what is done next.
    """
    families = [family(name) for name in table.applications]
    twins = np.array([[float(one == other) for other in families] for one in families])
    found: dict[str, list[Effect]] = {rule: [] for rule in RULES}
    for seed in seeds:
        rules: Mapping[str, Placement] = {
            RANDOM: AtRandom(len(table.applications), seed),
            TWINS: PairedPlacement(twins),
            PREDICTED: PairedPlacement(predicted),
            MEASURED: PairedPlacement(table.loss),
        }
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
        for rule, placement in rules.items():
            step(f"seed {seed}, {rule}")
            session.setting = replace(own, rules=replace(own.rules, placement=placement))
            found[rule].append(_effect(session.run()))
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
        p95_loss=float(np.quantile(loss, 0.95)),
        worst_loss=float(loss.max()),
        wait_s=float((result.start_us - result.submit_us).mean() / 1e6),
        jobs_an_hour=float(len(loss) / span_h),
    )
