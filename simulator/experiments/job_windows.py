"""A window: the jobs that a system is sent for some days, on whole nodes; from a trace or made.

Windows are made from what the paper prints of its own (section 2.2, Tables 2 and 3; section 3). Printed are
the jobs, hours and nodes, some shares of the sizes and of the run times, the use with rigid jobs, for
HASWELL, KNL and EAGLE the mean run of rigid jobs (their turnaround less their wait), and for HASWELL that
there is a burst. The rest follows one rule, the same for all windows:

* sizes that no share is printed for are powers of two, each half as frequent as the one before; THETA's from
  128 nodes on, the least of its production queue;
* between two printed run times the logarithm of the run time is even; the shortest is 10 s;
* the longest run is the one with which the mean run is the paper's; THETA's is a day, its limit;
* how size and length go together (a rank correlation) is such that the jobs ask for as much node time as
  rigid jobs used in the paper;
* jobs are submitted at random, evenly over the window; where a burst is reported, a fiftieth of them within
  half an hour.

Nothing is fitted to how long jobs wait. A trace can replace THETA.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import ndtri
from scipy.stats import rankdata

from foundation.errors import InputError
from foundation.units import US_PER_S, counted
from simulator.model.system import System, single_queue
from simulator.simulation import Cleaning, Workload, make_workload
from workloads.swf import load_columns, procs_column

DAY_S = 86_400
WARM_UP_S = DAY_S // 2
"""Jobs submitted before are not counted (section 2.3)."""
MISSING_LIMIT = 1.25
"""Requested time over run time, where a job has none (section 2.2)."""
USUAL_UTILISATION = 0.7267
"""Of THETA with rigid jobs (section 3.4): a part of a trace is sought in which as much is asked for."""
_STEP_S = 7 * DAY_S
_MOST_NODES = 1_000_000

_HOUR_S = 3600
_SHORTEST_S, _LONGEST_S = 10.0, 30 * 86_400.0
_BURST_S, _BURST_SHARE = 1800, 0.02
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JobWindow:
    """Jobs for a system of whole nodes.

    Parameters
    ----------
    name, system, workload
        What it is called, where, and the jobs; the first comes at second 0.
    about
        What there is to say of it, in a sentence.
    is_made
        Whether it was generated.
    """

    name: str
    system: System
    workload: Workload
    about: str
    is_made: bool

    @property
    def counted_us(self) -> tuple[int, int]:
        """Between which instants jobs and use of nodes are counted."""
        return WARM_UP_S * US_PER_S, int(self.workload.submit_us.max())


def trace_window(path: Path, days: int) -> JobWindow:
    """Return a part of a trace, in which processors represent nodes.

    Of all parts of so many days, begun in weekly steps, it is the one that asks for what THETA did, nearly.

    Raises
    ------
    InputError
        The trace cannot be read, or has no jobs beyond the warm-up.
    """
    trace = load_columns(path)
    nodes = min(_MOST_NODES, trace.header.max_procs or _MOST_NODES)
    size = procs_column()
    frame = trace.frame.filter((pl.col("run_s") > 0) & (size >= 1) & (size <= nodes)).sort(
        "submit_s", "job_number"
    )
    if frame.is_empty():
        raise InputError(f"trace {path} has no job that ran on 1 to {counted(nodes, 'processor')}")
    nodes = min(nodes, trace.header.max_procs or int(frame.select(size.max()).item()))
    begin_s, asked = _usual_part(frame, nodes, days * DAY_S)
    end_s = begin_s + days * DAY_S
    part = frame.filter((pl.col("submit_s") >= begin_s) & (pl.col("submit_s") < end_s))
    submit_s = part.get_column("submit_s").to_numpy()
    if submit_s[-1] - submit_s[0] <= WARM_UP_S:
        raise InputError(f"trace {path} is too short: jobs of its first {WARM_UP_S} s are not counted")
    system = System(nodes, 1)
    workload = make_workload(
        replace(trace, frame=part, extensions={}),
        single_queue(system, 1),
        Cleaning(interactive_queue=None, dependencies=False),
    )
    from_day = (begin_s - float(frame.get_column("submit_s")[0])) / DAY_S
    return JobWindow(
        name=trace.name,
        system=system,
        workload=with_limits(workload),
        about=(
            f"{trace.name}, {counted(days, 'day')} from day {from_day:.0f} on: "
            f"{counted(workload.count, 'job')} on {system}, which ask for {asked:.0%} of the node time."
        ),
        is_made=False,
    )


def with_limits(workload: Workload) -> Workload:
    """Return the workload with a requested time for every job."""
    given_us = np.rint(workload.run_us * MISSING_LIMIT).astype(np.int64)
    return replace(workload, requested_us=np.where(workload.asked_us < 0, given_us, workload.requested_us))


def _usual_part(frame: pl.DataFrame, nodes: int, length_s: float) -> tuple[float, float]:
    """Return when a part of that length begins, and the share of the node time that it asks for."""
    submit_s = frame.get_column("submit_s").to_numpy()
    work = frame.select(pl.col("run_s") * procs_column()).to_series().to_numpy()
    last_s = max(submit_s[-1] - length_s, submit_s[0])
    begins_s = np.arange(submit_s[0], last_s + 1, _STEP_S)
    sums = np.concatenate(([0.0], np.cumsum(work)))
    asked = sums[np.searchsorted(submit_s, begins_s + length_s)] - sums[np.searchsorted(submit_s, begins_s)]
    shares = asked / (nodes * length_s)
    chosen = int(np.abs(shares - USUAL_UTILISATION).argmin())
    return float(begins_s[chosen]), float(shares[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What the paper prints of a window.

    Parameters
    ----------
    name, nodes, jobs, hours
        The system and its size, how many jobs in how many hours.
    sizes
        Ranges of sizes, from and to, and the share of the jobs in each. All up to the system add up to 1; a
        size that has a range of its own is not in the others.
    runs_s
        Run times, and the share of the jobs that run for no longer; ascending.
    burst_s
        When a burst of submissions begins; None: there is none.
    utilisation
        Share of the nodes in use with rigid jobs.
    mean_run_s
        Mean run of rigid jobs; None: it is not printed, and ``longest_s`` is the longest run.
    """

    name: str
    nodes: int
    jobs: int
    hours: int
    sizes: tuple[tuple[int, int, float], ...]
    runs_s: tuple[tuple[float, float], ...]
    burst_s: int | None = None
    utilisation: float
    mean_run_s: float | None = None
    longest_s: float = _LONGEST_S

    @property
    def length_s(self) -> int:
        """From the first submission to the last."""
        return self.hours * _HOUR_S


HASWELL = Recipe(
    name="HASWELL",
    nodes=2388,
    jobs=28_259,
    hours=120,
    sizes=((1, 1, 0.50), (2, 32, 0.478), (33, 2388, 0.022)),
    runs_s=((1000, 0.75),),
    burst_s=300_000,
    utilisation=0.7233,
    mean_run_s=2283,
)
KNL = Recipe(
    name="KNL",
    nodes=9688,
    jobs=41_524,
    hours=120,
    sizes=((4, 4, 0.63), (1, 32, 0.314), (33, 9688, 0.056)),
    runs_s=((600, 0.50), (800, 0.78), (1000, 0.80)),
    utilisation=0.855,
    mean_run_s=4327,
)
EAGLE = Recipe(
    name="EAGLE",
    nodes=2568,
    jobs=143_829,
    hours=672,
    sizes=((1, 1, 0.966), (2, 2568, 0.034)),
    runs_s=((10_000, 0.868),),
    utilisation=0.2871,
    mean_run_s=5808,
)
THETA = Recipe(
    name="THETA",
    nodes=4392,
    jobs=2550,
    hours=672,
    sizes=((1, 1, 0.348), (8, 8, 0.203), (256, 256, 0.126), (128, 4392, 0.323)),
    runs_s=((10_000, 0.847),),
    utilisation=USUAL_UTILISATION,
    longest_s=DAY_S,
)
RECIPES = (HASWELL, KNL, EAGLE, THETA)
"""KNL's share at 600 to 800 s is ours: the paper only draws that cluster."""


def made_window(recipe: Recipe, *, share: float = 1.0) -> JobWindow:
    """Return the window of a recipe, always the same; or its first part, a share of it."""
    dice = np.random.default_rng(2025)
    nodes = dice.permutation(sizes_of(recipe))
    runs_s = run_times_s(recipe, longest_run_s(recipe))
    run_us = np.rint(_by_size(recipe, nodes, runs_s, dice)).astype(np.int64) * US_PER_S
    submit_us = _submissions_s(recipe, dice) * US_PER_S
    order = np.argsort(submit_us, kind="stable")
    order = order[submit_us[order] <= share * recipe.length_s * US_PER_S]
    return _window(recipe, submit_us[order], nodes[order], run_us[order])


def _window(recipe: Recipe, submit_us: Ints, nodes: Ints, run_us: Ints) -> JobWindow:
    count = len(nodes)
    not_asked = np.full(count, -1, dtype=np.int64)
    workload = Workload.of_batch(submit_us - submit_us[0], run_us, nodes, run_us, not_asked)
    hours = int(submit_us[-1]) / US_PER_S / _HOUR_S
    return JobWindow(
        name=recipe.name,
        system=System(recipe.nodes, 1),
        workload=with_limits(workload),
        about=(
            f"{recipe.name}-like, made from what the paper prints: {counted(count, 'job')} in {hours:.0f} h "
            f"on {counted(recipe.nodes, 'node')}, up to {counted(nodes.max(), 'node')} and "
            f"{run_us.max() / US_PER_S:,.0f} s."
        ),
        is_made=True,
    )


def sizes_of(recipe: Recipe) -> Ints:
    """Return the nodes of each job, ascending: every size as often as its share says."""
    own = {first for first, last, _ in recipe.sizes if first == last}
    shares: dict[int, float] = {}
    for first, last, share in recipe.sizes:
        powers = [1 << bits for bits in range(last.bit_length()) if first <= 1 << bits <= last]
        kinds = [first] if first == last else [nodes for nodes in powers if nodes not in own]
        weights = 0.5 ** np.arange(len(kinds))
        shares |= dict(zip(kinds, (share * weights / weights.sum()).tolist(), strict=True))
    counts = _by_largest_remainders(np.array([shares[nodes] for nodes in sorted(shares)]) * recipe.jobs)
    return np.repeat(np.array(sorted(shares), dtype=np.int64), counts)


def _by_largest_remainders(wanted: Floats) -> Ints:
    counts: Ints = np.floor(wanted).astype(np.int64)
    counts[np.argsort(counts - wanted, kind="stable")[: round(wanted.sum()) - int(counts.sum())]] += 1
    return counts


def run_times_s(recipe: Recipe, longest_s: float) -> Floats:
    """Return the run times at evenly spaced quantiles, ascending."""
    points = ((_SHORTEST_S, 0.0), *recipe.runs_s, (longest_s, 1.0))
    seconds, shares = (np.array(column) for column in zip(*points, strict=True))
    quantiles = (np.arange(recipe.jobs) + 0.5) / recipe.jobs
    found: Floats = np.exp(np.interp(quantiles, shares, np.log(seconds)))
    return found


def longest_run_s(recipe: Recipe) -> float:
    """Return the longest run with which the mean run is the paper's."""
    if recipe.mean_run_s is None:
        return recipe.longest_s
    return _bisected(
        lambda longest_s: float(run_times_s(recipe, longest_s).mean()),
        recipe.mean_run_s,
        recipe.runs_s[-1][0],
        recipe.longest_s,
    )


def _by_size(recipe: Recipe, nodes: Ints, runs_s: Floats, dice: np.random.Generator) -> Floats:
    """Give each job a run time such that all ask for the node time that rigid jobs used."""
    chance = dice.standard_normal(recipe.jobs)
    place = rankdata(nodes) - 0.5
    score = ndtri(place / recipe.jobs)

    def given(correlation: float) -> Floats:
        order = np.argsort(correlation * score + math.sqrt(1 - correlation**2) * chance, kind="stable")
        found = np.empty_like(runs_s)
        found[order] = runs_s
        return found

    wanted = recipe.utilisation * recipe.nodes * recipe.length_s
    return given(_bisected(lambda correlation: float(nodes @ given(correlation)), wanted, -1.0, 1.0))


def _bisected(rising: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return high


def _submissions_s(recipe: Recipe, dice: np.random.Generator) -> Ints:
    """Return whole seconds of submission."""
    burst: Floats = np.zeros(0)
    if recipe.burst_s is not None:
        burst = recipe.burst_s + dice.random(round(_BURST_SHARE * recipe.jobs)) * _BURST_S
    others = dice.random(recipe.jobs - len(burst)) * recipe.length_s
    others[:2] = 0, recipe.length_s
    found: Ints = np.floor(dice.permutation(np.concatenate([burst, others]))).astype(np.int64)
    return found
