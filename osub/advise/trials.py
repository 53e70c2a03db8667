"""Settings that a site could choose, simulated on its log under what was never measured, and compared.

The unit of evidence is a week of submissions: jobs of a week wait for the same jobs, so they are no
independent observations. Weeks are drawn with replacement, the same ones for both settings.
Source: Efron and Tibshirani, *An Introduction to the Bootstrap* (1993), sections 8.6 and 13.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.claims import Estimate
from analysis.metrics import BETA_S
from analysis.quantiles import quantile, quantiles
from analysis.verdict.paired_differences import QuantityDifference
from foundation.errors import InputError, UsageError
from foundation.units import US_PER_S, counted_of
from osub.advise.site_log import (
    ASSUMED_UTILISATION,
    LEAST_BLOCKS,
    Bools,
    Floats,
    JobClass,
    SiteLog,
    efficiency,
)
from osub.sweep.tune import overheads_in
from simulator.fit import overheads_of
from simulator.jit.field_records import Ints
from simulator.recording import placement_arrays
from simulator.setting_choices import prepared, setting_of
from simulator.simulation import JobPeriods, SimulationResult, cleaning_of, make_workload, simulate
from simulator.simulation_spec import SimulationSpec

MEASURES = ("wait_s", "turnaround_s", "degradation", "bounded_slowdown")
CONFIDENCE = (0.025, 0.975)
_RESAMPLES = 2000
_WINDOW_BLOCKS = 4
"""Length of a window of a log that is too long, its first block for warming up."""
_CYCLES = 4
_LEAST_CYCLED_US = 60 * US_PER_S
_BUSY_FROM = 0.95
_LEAST_GAIN_S = 60.0
_NEARLY = 0.9
"""A choice that saves so much of what the best saves is as good."""

Group = Literal["all", "candidate", "rest"]
Outcome = Literal["helps", "depends", "harms", "too short"]


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What a site cannot choose: C_o, and the utilisation of interactive jobs where the log has none.

    ``all_busy`` takes every job as busy all along, whatever the log says of its CPU time.
    """

    overhead: float
    utilisation: float | None = None
    all_busy: bool = False

    def __str__(self) -> str:
        busy = "" if self.utilisation is None else f", interactive jobs {self.utilisation:.0%} busy"
        return f"C_o {self.overhead:g}{', every job busy' if self.all_busy else busy}"


class Sharing(msgspec.Struct, frozen=True):
    """A choice: at most ``multiplicity`` jobs a core, on ``nodes`` for the candidate (None: for all jobs).

    ``by_peaks`` admits a job where its peak fits, not what it asks for.
    """

    multiplicity: int
    nodes: int | None = None
    by_peaks: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether jobs share cores; the others are there to hold them against."""
        return self.multiplicity > 1


class Trial(msgspec.Struct, kw_only=True):
    """A choice under each scenario: differences from one job a core, by group and measure, and energy.

    Parameters
    ----------
    energy
        Least and most change, as a share of the reference's.
    left_out
        Jobs that cannot run under this choice, and so are not compared.
    least_gain_s
        What a user does not notice is no help.
    """

    sharing: Sharing
    differences: dict[str, dict[str, dict[str, QuantityDifference]]]
    energy: tuple[float, float]
    left_out: int
    least_gain_s: float

    def difference(self, scenario: Scenario, group: Group, measure: str) -> QuantityDifference:
        """Return one of the differences."""
        return self.differences[str(scenario)][group][measure]

    @property
    def target(self) -> Group:
        """Whose jobs share."""
        return "all" if self.sharing.nodes is None else "candidate"

    def helps_in(self, scenario: Scenario, most_degradation: float) -> bool:
        """Whether jobs that share clearly end sooner, and run mildly enough, and no group ends later."""
        groups = self.differences[str(scenario)]
        ends = groups[self.target]["turnaround_s"]
        sooner = ends.way == -1 and -ends.change.mean >= self.least_gain_s
        mild = groups[self.target]["degradation"].other <= most_degradation
        return sooner and mild and all(one["turnaround_s"].way != 1 for one in groups.values())

    def saved_s(self, scenario: Scenario) -> float:
        """By how much sooner a job ends, over all jobs."""
        return -self.difference(scenario, "all", "turnaround_s").change.mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of a log.

    Parameters
    ----------
    overheads, measured
        C_o to assume, the first before the others; or a simulation's fields as a real RUN has them.
    memory_gib
        Memory of a node; None: memory plays no part.
    candidate_nodes
        Nodes that the candidate's partition has of its own already; None: it has none.
    most_jobs
        A longer log is simulated in windows of several whole weeks.
    idle_w, busy_w
        Power of a node without work (least and most) and with work on all cores.
    """

    policy: str = "easy"
    multiplicities: tuple[int, ...] = (2, 4)
    overheads: tuple[float, ...] = (1.2, 1.0, 1.4)
    measured: dict[str, object] = field(default_factory=dict)
    memory_gib: float | None = None
    most_degradation: float = 1.5
    most_jobs: int = 100_000
    candidate_nodes: int | None = None
    idle_w: tuple[float, float] = (130.0, 215.0)
    busy_w: float = 430.0
    seed: int = 1


@dataclass(slots=True, kw_only=True)
class Advice:
    """What was found, for words, page and JSON.

    ``scenarios`` are those that a choice has to help in; ``stress`` is the worst, where CPU time is known.
    """

    question: Question
    candidate: JobClass | None
    scenarios: list[Scenario]
    stress: Scenario | None
    jobs: int
    jobs_in_log: int
    is_cut: bool
    blocks: int
    left_out: dict[str, int]
    own_wait_s: float | None
    simulated_wait_s: float
    energy_mwh: tuple[float, float]
    trials: list[Trial]

    @property
    def is_credible(self) -> bool | None:
        """Whether the simulated M=1 waits about as long as the log says; None: the log has no waits."""
        if self.own_wait_s is None:
            return None
        low, high = sorted((self.own_wait_s, self.simulated_wait_s))
        return high <= 1.5 * low or high - low < 60

    def outcome(self, trial: Trial) -> Outcome:
        """Return what becomes of a choice: whether it helps in every scenario, in some, or in none."""
        if trial.difference(self.scenarios[0], "all", "wait_s").change.low is None:
            return "too short"
        helped = [trial.helps_in(one, self.question.most_degradation) for one in self.scenarios]
        return "helps" if all(helped) else "depends" if any(helped) else "harms"

    @property
    def shared(self) -> list[Trial]:
        """The choices in which jobs share."""
        return [one for one in self.trials if one.sharing.is_shared]

    @property
    def best(self) -> Trial | None:
        """The choice that helps in most scenarios; of these the least M that saves nearly the most."""
        able = [one for one in self.shared if self.outcome(one) in ("helps", "depends")]
        if not able:
            return None
        tried = [*self.scenarios, *([self.stress] if self.stress else [])]
        most = self.question.most_degradation
        helped = [sum(one.helps_in(scenario, most) for scenario in tried) for one in able]
        robust = [one for one, count in zip(able, helped, strict=True) if count == max(helped)]
        saved_s = [min(map(one.saved_s, self.scenarios)) for one in robust]
        near = [one for one, saved in zip(robust, saved_s, strict=True) if saved >= _NEARLY * max(saved_s)]
        return min(near, key=lambda one: (one.sharing.by_peaks, one.sharing.multiplicity))


def overheads_named(text: str) -> tuple[tuple[float, ...], dict[str, object]]:
    """Return the C_o in ``1.2,1.0,1.4``, each once; or the one that a RUN measured, and its other fields.

    Raises
    ------
    UsageError
        They are no numbers from 1 on.
    InputError
        The RUN measures none.
    """
    if Path(text).is_dir():
        costs = overheads_of(text, None)
        return (float(costs.overhead),), {"slowdowns": costs.by_kind}
    return tuple(overheads_in(text)), {}


def drawn_periods(run_us: Ints, utilisation: Floats, seed: int) -> JobPeriods:
    """Return idle and busy periods in which each job computes for its share of the time, begun at random.

    Jobs shorter than a minute, and those that compute nearly always, are busy all along.
    """
    plain = JobPeriods.busy(run_us)
    pausing = (utilisation < _BUSY_FROM) & (run_us >= _LEAST_CYCLED_US)
    rows = np.flatnonzero(pausing)
    if not rows.size:
        return plain
    weights = np.random.default_rng(seed).uniform(0.5, 1.5, (len(rows), 2, _CYCLES))
    weights /= weights.sum(axis=2, keepdims=True)
    shares = np.stack([1 - utilisation[rows], utilisation[rows]], axis=1)[:, :, None]
    split = np.rint(run_us[rows, None, None] * shares * weights).astype(np.int64)
    phases = split.transpose(0, 2, 1).reshape(len(rows), 2 * _CYCLES)
    phases[:, -1] += run_us[rows] - phases.sum(axis=1)
    counts = np.diff(plain.at)
    of_pausing = np.repeat(pausing, counts)
    counts[rows] = 2 * _CYCLES
    us = np.empty(counts.sum(), dtype=np.int64)
    target = np.repeat(pausing, counts)
    us[target], us[~target] = phases.ravel(), plain.us[~of_pausing]
    return JobPeriods(np.concatenate(([0], np.cumsum(counts))), us, patterned=True)


def block_difference(
    reference: Floats, other: Floats, blocks: Ints, draws: npt.NDArray[np.int64]
) -> QuantityDifference:
    """Return the means over jobs of two settings, and their difference with its interval over drawn blocks.

    Parameters
    ----------
    reference, other
        Of each job.
    blocks
        Of each job, from 0 on.
    draws
        Blocks of each resample; shape (resamples, blocks), without columns for no interval.
    """
    if not reference.size:
        return QuantityDifference(
            reference=0.0, other=0.0, change=Estimate(mean=0.0, low=None, high=None, count=0)
        )
    change = other - reference
    most = int(max(blocks.max(), draws.max(initial=0))) + 1
    sums, counts = np.bincount(blocks, change, most), np.bincount(blocks, minlength=most)
    low = high = None
    if draws.size:
        drawn = counts[draws].sum(axis=1)
        means = (sums[draws].sum(axis=1) / np.maximum(drawn, 1))[drawn > 0]
        low, high = (float(bound) for bound in quantiles(means, CONFIDENCE))
    return QuantityDifference(
        reference=float(reference.mean()),
        other=float(other.mean()),
        change=Estimate(mean=float(change.mean()), low=low, high=high, count=max(1, draws.shape[1])),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Simulated:
    """Measures by job of the log (NaN: not simulated), and for how many node seconds nodes held jobs."""

    values: dict[str, Floats]
    occupied_s: float
    left_out: dict[str, int]


class _Trials:
    """The simulations of one log."""

    def __init__(self, log: SiteLog, candidate: JobClass | None, question: Question) -> None:
        self.log, self.question = log, question
        self.members: Bools = np.zeros(len(log.run_s), dtype=bool) if candidate is None else candidate.members
        self.chosen, self.counted = _windows(log.block, question.most_jobs)
        queue = np.where(self.members, 0, 1)
        frame = log.columns.frame.with_columns(queue=pl.Series(queue, dtype=pl.Int64))
        self.columns = replace(log.columns, frame=frame.filter(pl.Series(self.chosen)), extensions={})
        numbers = self.columns.frame["job_number"].to_numpy()
        self.order = np.flatnonzero(self.chosen)[np.argsort(numbers, kind="stable")]
        self.numbers = np.sort(numbers)
        run_us = np.rint(log.run_s * US_PER_S).astype(np.int64)
        self.run_us = run_us
        blocks = np.unique(log.block[self.counted])
        self.blocks = len(blocks)
        draws = (_RESAMPLES, len(blocks) if len(blocks) >= LEAST_BLOCKS else 0)
        self.draws = blocks[np.random.default_rng(question.seed).integers(0, max(1, len(blocks)), draws)]

    def utilisation(self, scenario: Scenario, interactive: Bools) -> Floats:
        """Return for which share of its time each job computes: the log's, else the scenario's, else all."""
        if scenario.all_busy:
            return np.ones(len(interactive))
        assumed = np.where(interactive, scenario.utilisation or 1.0, 1.0)
        return np.where(np.isnan(self.log.utilisation), assumed, self.log.utilisation)

    def run(self, sharing: Sharing, scenario: Scenario, utilisation: Floats) -> _Simulated:
        """Simulate one choice under one scenario."""
        question = self.question
        apart = sharing.nodes is not None
        spec = SimulationSpec(
            system=str(self.log.system),
            policy=question.policy,
            overhead=scenario.overhead,
            multiplicity=1 if apart else sharing.multiplicity,
            queues="mq" if apart else "sq",
            interactive_nodes=sharing.nodes,
            multiplicity_interactive=sharing.multiplicity if apart else 4,
            memory_gib=question.memory_gib,
            seed=question.seed,
            **question.measured,  # type: ignore[arg-type]  # fields as a RUN has them
        )
        setting = setting_of(spec)
        columns = self.columns
        if sharing.by_peaks:
            peaks = pl.coalesce("used_memory_kib", "requested_memory_kib")
            columns = replace(columns, frame=columns.frame.with_columns(requested_memory_kib=peaks))
        workload = make_workload(
            columns, setting.queues, cleaning_of(spec), node_memory_kib=setting.rules.node_memory_kib
        )
        rows = self.order[np.searchsorted(self.numbers, workload.number)]
        if sharing.is_shared:
            workload = replace(
                workload, periods=drawn_periods(self.run_us, utilisation, question.seed).select(rows)
            )
        result = simulate(prepared(spec, setting, workload), setting)
        return _Simulated(self._measures(result, rows), occupied_s(result), dict(workload.left_out))

    def _measures(self, result: SimulationResult, rows: Ints) -> dict[str, Floats]:
        submit, start, end = (one / US_PER_S for one in (result.submit_us, result.start_us, result.end_us))
        run_s = self.log.run_s[rows]
        found = {
            "wait_s": start - submit,
            "turnaround_s": end - submit,
            "degradation": (end - start) / run_s,
            "bounded_slowdown": np.maximum(1.0, (end - submit) / np.maximum(run_s, BETA_S)),
        }
        whole = {name: np.full(len(self.chosen), np.nan) for name in found}
        for name, values in found.items():
            whole[name][rows] = values
        return whole

    def differences(
        self, reference: _Simulated, other: _Simulated
    ) -> tuple[dict[str, dict[str, QuantityDifference]], int]:
        """Return the differences over the jobs that both have, and how many the other lacks."""
        has = ~np.isnan(reference.values["wait_s"])
        both = has & ~np.isnan(other.values["wait_s"])
        groups = {"all": both}
        if self.members.any():
            groups |= {"candidate": both & self.members, "rest": both & ~self.members}
        found = {
            group: {
                name: block_difference(
                    reference.values[name][jobs := own & self.counted],
                    other.values[name][jobs],
                    self.log.block[jobs],
                    self.draws,
                )
                for name in MEASURES
            }
            for group, own in groups.items()
        }
        return found, int((has & ~both).sum())

    def nodes_for(self, sharing: int) -> int | None:
        """Return how many nodes suffice when 95% of the candidate's jobs begin; None where that is all."""
        log, system = self.log, self.log.system
        mine = np.flatnonzero(self.members & self.chosen & (log.core_s > 0))
        if not mine.size or system.nodes < 2:
            return None
        start = log.column("submit_s")[mine] + np.nan_to_num(log.wait_s[mine])
        procs = log.procs[mine]
        times = np.concatenate((start + log.run_s[mine], start))  # of one instant ends come first
        order = np.argsort(times, kind="stable")
        used = np.cumsum(np.concatenate((-procs, procs))[order])[order >= len(mine)]
        cores = max((quantile(used, 0.95) or 0.0) / sharing, procs.max())
        nodes = self.question.candidate_nodes or max(1, math.ceil(cores / system.cores))
        return nodes if nodes < system.nodes else None


def _windows(block: Ints, most_jobs: int) -> tuple[Bools, Bools]:
    """Return which jobs are simulated, and which of them count: not those of the first block of a window."""
    last = int(block.max()) + 1
    windows = 1 + int(len(block) > most_jobs) * (
        max(1, most_jobs * last // (len(block) * _WINDOW_BLOCKS)) - 1
    )
    chosen = np.zeros(last, dtype=bool)
    warming = np.zeros(last, dtype=bool)
    if len(block) <= most_jobs or last <= _WINDOW_BLOCKS:
        chosen[:] = True
        warming[0] = last > LEAST_BLOCKS
    else:
        for first in np.linspace(0, last - _WINDOW_BLOCKS, windows).astype(int):
            warming[first] = not chosen[first]
            chosen[first : first + _WINDOW_BLOCKS] = True
    return chosen[block], (chosen & ~warming)[block]


def occupied_s(result: SimulationResult) -> float:
    """Return for how many node seconds nodes held a job."""
    places = placement_arrays(result)
    count = np.ones(len(places.node), np.int64) if places.count is None else places.count.astype(np.int64)
    job = np.repeat(np.repeat(np.arange(result.workload.count), np.diff(places.offsets)), count)
    node = np.repeat(places.node, count) + np.arange(len(job)) - np.repeat(np.cumsum(count) - count, count)
    after_us = int(result.end_us.max()) + 1
    start = result.start_us[job] + node * after_us
    order = np.argsort(start, kind="stable")
    end = np.maximum.accumulate((result.end_us[job] + node * after_us)[order])
    begin = np.maximum(start[order], np.concatenate(([0], end[:-1])))
    return float(np.maximum(end - begin, 0).sum() / US_PER_S)


def advise(
    log: SiteLog,
    candidate: JobClass | None,
    interactive: Bools,
    question: Question,
    step: Callable[[int, int], None] = lambda _, __: None,
) -> Advice:
    """Simulate one job a core and every choice under every scenario, and compare.

    Parameters
    ----------
    log, candidate
        The log, and the jobs that could have a partition of their own.
    interactive
        Jobs whose utilisation, where it isn't known, is a scenario.
    step
        Called with the simulations done and all.

    Raises
    ------
    InputError
        No job can be simulated.
    UsageError
        Most jobs can never run on the system.
    """
    _refuse_a_rest(log)
    trials = _Trials(log, candidate, question)
    unmeasured = np.isnan(log.utilisation)
    unknown = bool(interactive.any()) and efficiency(log, interactive) is None
    scenarios = [
        Scenario(overhead=overhead, utilisation=busy)
        for overhead in question.overheads
        for busy in (ASSUMED_UTILISATION if unknown else (None,))
    ]
    stress = None if unmeasured.all() else Scenario(overhead=question.overheads[0], all_busy=True)
    tried = [*scenarios, *([stress] if stress else [])]
    own_nodes = question.candidate_nodes
    plain = trials.run(Sharing(1, own_nodes), scenarios[0], np.ones(0))
    choices = [Sharing(number) for number in question.multiplicities if own_nodes is None]
    for number in question.multiplicities if candidate is not None else ():
        nodes = trials.nodes_for(number)
        if nodes is not None:
            apart = () if own_nodes or choices[-1].nodes else (Sharing(1, nodes),)
            choices += [*apart, Sharing(number, nodes)]
    peaks = (log.column("used_memory_kib") > 0) & (log.column("requested_memory_kib") > 0)
    if question.memory_gib is not None and peaks.any():
        shared = [one for one in choices if one.is_shared]
        choices += [msgspec.structs.replace(one, by_peaks=True) for one in shared]
    work_s = {one: log.core_s * trials.utilisation(one, interactive) for one in tried}
    span_s = log.block_s * len(np.unique(log.block[trials.chosen])) * log.system.nodes
    found: list[Trial] = []
    for place, sharing in enumerate(choices):
        differences, changes, left_out = {}, [], 0
        for at, scenario in enumerate(tried):
            step(1 + place * len(tried) + at, 1 + len(choices) * len(tried))
            if at == 0 or sharing.is_shared:  # else C_o plays no part
                other = trials.run(sharing, scenario, trials.utilisation(scenario, interactive))
            differences[str(scenario)], left_out = trials.differences(plain, other)
            if scenario == stress:
                continue
            core_s = float(work_s[scenario][trials.chosen].sum()) / log.system.cores
            for idle_w in question.idle_w:
                for cost in (1.0, scenario.overhead):
                    # nodes that stay on without a job, and nodes that are switched off without one
                    for before_s, after_s in ((span_s, span_s), (plain.occupied_s, other.occupied_s)):
                        work = (question.busy_w - idle_w) * core_s
                        changes.append((idle_w * after_s + work * cost) / (idle_w * before_s + work) - 1)
        energy = min(changes), max(changes)
        found.append(
            Trial(
                sharing=sharing,
                differences=differences,
                energy=energy,
                left_out=left_out,
                least_gain_s=_LEAST_GAIN_S / log.speedup,
            )
        )
    waits = plain.values["wait_s"]
    own = ~np.isnan(waits) & ~np.isnan(log.wait_s) & trials.counted
    low_w, high_w = question.idle_w
    cores_s = float(work_s[scenarios[0]][trials.chosen].sum()) / log.system.cores
    return Advice(
        question=question,
        candidate=candidate,
        scenarios=scenarios,
        stress=stress,
        jobs=int((~np.isnan(waits) & trials.counted).sum()),
        jobs_in_log=len(log.run_s),
        is_cut=not trials.chosen.all(),
        blocks=trials.blocks,
        left_out={**log.columns.report.skipped, **plain.left_out},
        own_wait_s=float(log.wait_s[own].mean()) if own.any() else None,
        simulated_wait_s=float(waits[own if own.any() else ~np.isnan(waits) & trials.counted].mean()),
        energy_mwh=(
            (low_w * plain.occupied_s + (question.busy_w - low_w) * cores_s) / 3.6e9,
            (high_w * span_s + (question.busy_w - high_w) * cores_s) / 3.6e9,
        ),
        trials=found,
    )


def _refuse_a_rest(log: SiteLog) -> None:
    """Refuse a log that would tell of another one, or of nothing."""
    ran = log.core_s > 0
    too_large = int((ran & (log.procs > log.system.nodes * log.system.cores)).sum())
    if 2 * too_large > ran.sum():
        raise UsageError(
            f"{counted_of(too_large, int(ran.sum()), 'job')} can never run on {log.system} "
            f"({log.system_source}): name the log's own system, --system N40C48"
        )
    if ran.sum() < 2:
        raise InputError("one job that ran is no workload: take a log of some months")
