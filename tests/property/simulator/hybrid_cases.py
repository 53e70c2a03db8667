"""Random hybrid worlds: a few nodes, rigid, malleable and on-demand jobs, and every mechanism."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random

import numpy as np
from hypothesis import strategies as st

from simulator.hybrid.drawn_jobs import linear_sizes
from simulator.hybrid.hybrid_build import Mechanism
from simulator.hybrid.hybrid_state import BASELINE, COLLECT, NOTHING, PLAN, SHARE
from simulator.model.jobs import JobLifecycle, PoolJobs


@dataclass(frozen=True)
class HybridWorld:
    """Nodes, jobs, and what the scheduler does."""

    nodes: int
    jobs: PoolJobs
    mechanism: Mechanism


def _notice(dice: Random, arrival_us: int) -> JobLifecycle:
    kind = dice.choice(("none", "accurate", "early", "late", "absent"))
    lead_us = dice.randint(5, 25)
    predicted_us = {
        "none": 0,
        "accurate": arrival_us,
        "early": arrival_us + dice.randint(0, lead_us),
        "late": arrival_us - dice.randint(0, 15),
        "absent": arrival_us - dice.randint(15, 60),
    }[kind]
    if kind == "none":
        return JobLifecycle(on_demand=True)
    notice_us = max(0, min(predicted_us - lead_us, arrival_us))
    return JobLifecycle(on_demand=True, notice_us=notice_us, predicted_us=max(predicted_us, notice_us))


def _life(dice: Random, kind: str, run_us: int, nodes: int, arrival_us: int) -> JobLifecycle:
    setup_us = dice.randint(0, run_us // 3)
    if kind == "malleable":
        return JobLifecycle(sizes=linear_sizes(nodes, dice.choice((0.2, 0.5, 1.0))), setup_us=setup_us)
    if kind == "ondemand":
        return _notice(dice, arrival_us)
    every_us = dice.choice((None, 3, 7, 20))
    return JobLifecycle(setup_us=setup_us, checkpoint_every_us=every_us, checkpoint_us=dice.randint(0, 3))


def world_of(seed: int, kinds: tuple[str, ...] = ("rigid", "malleable", "ondemand")) -> HybridWorld:
    """Return the world of a seed."""
    dice = Random(seed)
    count, nodes = dice.randint(1, 24), dice.randint(1, 12)
    crowd = dice.choice((20, 90, 300))
    submit = [dice.randint(0, crowd) for _ in range(count)]
    run = [dice.randint(1, 60) for _ in range(count)]
    size = [dice.randint(1, nodes) for _ in range(count)]
    lifecycles = [_life(dice, dice.choice(kinds), *job) for job in zip(run, size, submit, strict=True)]
    ones, zeros = np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    run_us = np.array(run, dtype=np.int64)
    jobs = PoolJobs(
        submit_us=np.array(submit, dtype=np.int64),
        requested_us=run_us + np.array([dice.choice((0, 0, 5, 40)) for _ in range(count)], dtype=np.int64),
        nodes=np.array(size, dtype=np.int64),
        cores=ones,
        memory_kib=zeros,
        app=zeros,
        phase_at=np.arange(0, 2 * count + 1, 2, dtype=np.int64),
        phase_us=np.stack((zeros, run_us), axis=1).ravel(),
        lifecycles=lifecycles,
    )
    mechanism = Mechanism(
        strategy=dice.choice((NOTHING, COLLECT, PLAN)),
        shrinks=dice.random() < 0.5,
        weight=dice.choice((1, 3, 4)),
        warning_us=dice.choice((0, 4, 9)),
        release_us=dice.choice((0, 5, 30)),
        squatting=dice.random() < 0.8,
        interval=dice.choice((Fraction(1), Fraction(1, 2), Fraction(3, 2))),
    )
    return HybridWorld(nodes, jobs, mechanism)


def sharing(world: HybridWorld) -> HybridWorld:
    """Return the world with an on-demand job that shares cores."""
    return replace(world, mechanism=replace(world.mechanism, strategy=SHARE))


def baseline(world: HybridWorld) -> HybridWorld:
    """Return the world under EASY alone."""
    return replace(world, mechanism=replace(world.mechanism, strategy=BASELINE))


SEEDS = st.integers(0, 10**9)
