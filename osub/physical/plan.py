"""What is run, how compressed, how often, and how long that takes: decided before anything starts.

A *round* has every layout once, so that trials of different layouts lie next to each other in time. In each
round a layout's cluster replays the pair of Table 7.4 and the thesis's first hours; the whole day is replayed
in as many rounds as there are draws of it. A budget is met by compressing times more, then by fewer draws and
rounds, in the order of ``_WISHES``. A study may be of the pair alone; then only its rounds are fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from foundation.errors import UsageError
from foundation.units import counted, duration
from osub.physical.layouts import DEDICATED, GANGD, SharingLayout, layouts_of
from workloads.swf import SwfTrace
from workloads.trace.scaling import CORES, INTERACTIVE_QUEUE, NODES, ClusterSize, fcfs_makespan_s, keep_shares

THESIS_SIZE = ClusterSize(NODES, CORES, NODES)
LENGTH_S = 58_375.0
"""From the first arrival to the end of the longest interactive job: the length that compressions divide."""
START_S = 1.0
"""What Slurm and a job's launch add to a run, about."""
SHORTEST_RUN_S = 1.0
CLUSTER_S = 5.0
"""To start a cluster and to end it; 1 to 3 s on two calm CPUs."""
CONTAINERS_S = 30.0
"""The same in containers."""
PAIR_S, PAIR_JOBS = 6.0, 2
"""A job of the pair takes so long alone; together they are several slices of Slurm's long."""
PAIR_MARGIN = 1.25
"""The two begin when one alone has had its time and a quarter of it more: a host's pace drifts."""
PAIR_NAIVE_S = 4.0
"""What the two take longer than one after the other, naive or in Slurm's long slices, on two cores."""
PAIRS = 2
"""Trials of the pair in a round: they are short, and the interval of two is wider than any finding."""
PLACES_S, PLACES_CLUSTER_S = 124.0, 25.0
"""The replay of Table 7.8 on declared nodes, and its cluster's start and end."""
JUDGING_S, JUDGING_PAIR_S = 25.0, 3.0
"""Simulations, tables and figures in the end; of the pair alone, nothing is simulated."""
LONG_OVER_SHORT = 1.5
"""The whole day has more jobs than the first hours: its replay gets more time."""
LEAST_SHORT_S, MOST_SHORT_S = 30.0, 600.0
_WISHES = ((5, 3), (5, 2), (4, 2), (3, 2), (3, 1), (2, 1), (2, 0), (1, 0))
_COMFORT_S = 60.0
"""With less time than that for the first hours, starts are most of the jobs' times: rather fewer trials."""

FIRST, DAY, PAIR, PLACES = "first", "day", "pair", "places"


class PlannedReplay(msgspec.Struct, frozen=True, kw_only=True):
    """One replay: a workload under a layout, in a round; ``seed`` is the draw of the whole day."""

    workload: str
    layout: str
    trial: int
    seed: int = 1

    @property
    def name(self) -> str:
        """The folder of its RUN."""
        draw = f"-seed{self.seed}" if self.workload == DAY else ""
        return f"{self.workload}{draw}-{self.layout}-{self.trial}"


class StudyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The whole study.

    Attributes
    ----------
    nodes, cores
        The cluster at hand.
    layouts
        Keys of the layouts, the dedicated one first.
    rounds, draws
        How often everything is repeated, and seeds of the whole day.
    short_s, long_s
        Seconds that the first hours and the whole day are compressed to.
    pair_s
        Length of the jobs of the pair on cores of their own; 0: there is no pair.
    pairs
        How often a round has the pair.
    only
        ``"pair"``: nothing else is replayed, and ``short_s`` and ``long_s`` are 0.
    places
        Whether Table 7.8 is replayed on twelve declared nodes.
    estimate_s
        How long all of it takes, about.
    given_up
        What the budget left out, in words.
    """

    nodes: int
    cores: int
    layouts: tuple[str, ...]
    rounds: int
    draws: tuple[int, ...]
    short_s: float
    long_s: float
    pair_s: float
    places: bool
    estimate_s: float
    given_up: tuple[str, ...] = ()
    pairs: int = 1
    only: Literal["pair"] | None = None

    @property
    def pair_begins_s(self) -> float:
        """When the two jobs of the pair are submitted, from the submission of the one alone before them."""
        return round(PAIR_MARGIN * self.pair_s + 1.5 * START_S, 1)

    @property
    def values(self) -> int:
        """How many values a claim has at most."""
        return self.rounds * self.pairs if self.only else self.rounds + len(self.draws)

    def compression(self, workload: str) -> float:
        """Return what the times of a workload are divided by."""
        return LENGTH_S / (self.long_s if workload == DAY else self.short_s)

    def sessions(self) -> list[tuple[str, list[PlannedReplay]]]:
        """Return, in order, which layout has a cluster and what it replays.

        Rounds begin with the dedicated layout, which tells how much work the jobs are; the others change
        their order from round to round.
        """
        first, *others = self.layouts
        found: list[tuple[str, list[PlannedReplay]]] = []
        for number in range(1, self.rounds + 1):
            turned = (
                others[(number - 1) % len(others) :] + others[: (number - 1) % len(others)] if others else []
            )
            for layout in (first, *turned):
                items = [*self._pair_items(layout, number)]
                if self.only is None:
                    items.append(PlannedReplay(workload=FIRST, layout=layout, trial=number))
                    if number <= len(self.draws):
                        seed = self.draws[number - 1]
                        items.append(PlannedReplay(workload=DAY, layout=layout, trial=number, seed=seed))
                if items:
                    found.append((layout, items))
        if self.places:
            found.append((PLACES, [PlannedReplay(workload=PLACES, layout="sq-m2-naive", trial=1)]))
        return found

    def _pair_items(self, layout: str, number: int) -> Iterable[PlannedReplay]:
        """Return a round's replays of the pair; on dedicated cores one in all, which tells its steps."""
        if not self.pair_s or layout.startswith("mq"):
            return
        if layout == DEDICATED.key:
            if number == 1:
                yield PlannedReplay(workload=PAIR, layout=layout, trial=1)
            return
        for trial in range((number - 1) * self.pairs + 1, number * self.pairs + 1):
            yield PlannedReplay(workload=PAIR, layout=layout, trial=trial)

    def items(self) -> list[PlannedReplay]:
        """Return every replay, in order."""
        return [item for _, items in self.sessions() for item in items]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedPlan:
    """What is asked for.

    Attributes
    ----------
    nodes, cores
        The cluster at hand.
    layouts
        Those that there are clusters for.
    budget_s
        Seconds that the study may take.
    seeds
        Draws of the whole day at most; their numbers begin with 1.
    trials
        Rounds at most; None: as many as the budget allows.
    places
        Whether Slurm can be started here for Table 7.8.
    only
        ``"pair"``: the pair of Table 7.4 and nothing else.
    cluster_s
        Seconds to start a cluster and to end it.
    """

    nodes: int
    cores: int
    layouts: Sequence[SharingLayout]
    budget_s: float
    seeds: int = 3
    trials: int | None = None
    places: bool = True
    only: Literal["pair"] | None = None
    cluster_s: float = CLUSTER_S


def make_plan(wanted: RequestedPlan, first: SwfTrace, day: SwfTrace) -> StudyPlan:
    """Return the plan that makes most of the budget.

    Parameters
    ----------
    wanted
        What is asked for.
    first, day
        The thesis's first hours and a whole day, for N12C12.

    Raises
    ------
    UsageError
        The budget is too short for one round, the cluster is too small, or no layout has the pair.
    """
    if wanted.nodes * wanted.cores < PAIR_JOBS:
        raise UsageError(
            f"N{wanted.nodes}C{wanted.cores} has one core: nothing can be coordinated on it; the study takes "
            "two cores at least"
        )
    takes = _Takes(wanted, first, day)
    if wanted.only == PAIR:
        return _pair_plan(wanted, takes)
    wishes = [
        (rounds, min(draws, wanted.seeds))
        for rounds, draws in _WISHES
        if wanted.trials is None or rounds == min(wanted.trials, _WISHES[0][0])
    ]
    for least_s in (_COMFORT_S, LEAST_SHORT_S):
        for rounds, draws in wishes:
            for places in (True, False) if wanted.places else (False,):
                if (found := takes.fitted(rounds, draws, least_s, places=places)) is not None:
                    return found
    rounds = wishes[-1][0]
    raise _too_short(wanted, takes.plan(rounds, 0, LEAST_SHORT_S, places=False))


def _pair_plan(wanted: RequestedPlan, takes: _Takes) -> StudyPlan:
    """Return the plan of the pair alone with the most rounds that the budget allows."""
    if all(layout.multiplicity == 1 for layout in wanted.layouts):
        raise UsageError(
            "--only pair: no cluster with one queue and M=2 is given, on which two jobs share cores"
        )
    most = _WISHES[0][0]
    for rounds in range(most, 0, -1) if wanted.trials is None else (min(wanted.trials, most),):
        plan = takes.plan(rounds, 0, 0.0, places=False)
        if plan.estimate_s <= wanted.budget_s:
            return plan
    raise _too_short(wanted, plan)


def _too_short(wanted: RequestedPlan, least: StudyPlan) -> UsageError:
    return UsageError(
        f"a budget of {wanted.budget_s / 60:.0f} min is too short: the least study on "
        f"N{wanted.nodes}C{wanted.cores}, {least.rounds} trial{'s' * (least.rounds > 1)} of each layout, "
        f"takes {least.estimate_s / 60 + 0.5:.0f} min"
    )


class _Takes:
    """How long parts of the study take."""

    def __init__(self, wanted: RequestedPlan, first: SwfTrace, day: SwfTrace) -> None:
        self._wanted = wanted
        self._traces = {FIRST: first, DAY: day}
        self._known: dict[tuple[str, float, int], float] = {}

    def fitted(self, rounds: int, draws: int, least_s: float, *, places: bool) -> StudyPlan | None:
        """Return the plan with the longest replays that the budget allows, None if they were too short."""
        budget_s = self._wanted.budget_s
        if self.plan(rounds, draws, least_s, places=places).estimate_s > budget_s:
            return None
        low, high = least_s, MOST_SHORT_S
        for _ in range(12):
            middle = (low + high) / 2
            fits = self.plan(rounds, draws, middle, places=places).estimate_s <= budget_s
            low, high = (middle, high) if fits else (low, middle)
        return self.plan(rounds, draws, low, places=places)

    def plan(self, rounds: int, draws: int, short_s: float, *, places: bool) -> StudyPlan:
        """Return a plan."""
        wanted = self._wanted
        draws = min(draws, rounds)
        long_s = LONG_OVER_SHORT * short_s
        plan = StudyPlan(
            nodes=wanted.nodes,
            cores=wanted.cores,
            layouts=tuple(
                layout.key
                for layout in wanted.layouts
                if wanted.only is None or layout.interactive_nodes is None
            ),
            rounds=rounds,
            draws=tuple(range(1, draws + 1)),
            short_s=round(short_s, 1),
            long_s=round(long_s, 1) if draws else 0.0,
            pair_s=PAIR_S,
            pairs=PAIRS,
            places=places,
            estimate_s=0.0,
            given_up=tuple(_given_up(wanted, rounds, draws, places=places)),
            only=wanted.only,
        )
        seconds = JUDGING_S if wanted.only is None else JUDGING_PAIR_S
        for layout, items in plan.sessions():
            seconds += max(wanted.cluster_s, PLACES_CLUSTER_S if layout == PLACES else 0.0)
            seconds += sum(self._item_s(plan, item) for item in items)
        return msgspec.structs.replace(plan, estimate_s=round(seconds, 1))

    def _item_s(self, plan: StudyPlan, item: PlannedReplay) -> float:
        if item.workload == PLACES:
            return PLACES_S
        if item.workload == PAIR:
            return _pair_item_s(plan, item)
        layout = next(one for one in self._wanted.layouts if one.key == item.layout)
        key = (item.workload, plan.compression(item.workload), layout.batch_nodes(plan.nodes))
        if key not in self._known:
            self._known[key] = replay_s(self._traces[item.workload], plan, layout, key[1])
        return self._known[key]


def _pair_item_s(plan: StudyPlan, item: PlannedReplay) -> float:
    """Return about how long one alone and the two after it take; on dedicated cores, one alone."""
    if item.layout == DEDICATED.key:
        return plan.pair_s + 2 * START_S
    more_s = 0.0 if item.layout == GANGD.key else PAIR_NAIVE_S
    return plan.pair_begins_s + PAIR_JOBS * (plan.pair_s + START_S) + more_s


def fitted_trace(trace: SwfTrace, plan: StudyPlan, layout: SharingLayout, compression: float) -> SwfTrace:
    """Return a trace of N12C12 as it is replayed under a layout."""
    small = ClusterSize(plan.nodes, plan.cores, layout.batch_nodes(plan.nodes))
    return keep_shares(trace, THESIS_SIZE, small, compression, SHORTEST_RUN_S, INTERACTIVE_QUEUE).trace


def replay_s(trace: SwfTrace, plan: StudyPlan, layout: SharingLayout, compression: float) -> float:
    """Return about how long a replay takes: first come, first served, one job a core."""
    jobs = fitted_trace(trace, plan, layout, compression).jobs
    if layout.interactive_nodes is None:
        return fcfs_makespan_s(jobs, plan.nodes * plan.cores, START_S)
    batch = [job for job in jobs if job.queue != INTERACTIVE_QUEUE]
    return fcfs_makespan_s(batch, layout.batch_nodes(plan.nodes) * plan.cores, START_S)


def _given_up(wanted: RequestedPlan, rounds: int, draws: int, *, places: bool) -> Iterable[str]:
    most = _WISHES[0][0] if wanted.trials is None else wanted.trials
    if wanted.only is not None:
        if rounds < most:
            yield f"{counted(rounds * PAIRS, 'trial')} of the pair instead of {most * PAIRS}"
        return
    if rounds < most:
        yield f"{rounds} trial{'s' * (rounds > 1)} instead of {most}"
    if draws < wanted.seeds:
        some = f"{draws} draw{'s' * (draws > 1)} of the day instead of {wanted.seeds}"
        yield some if draws else "the whole day is not replayed"
    if wanted.places and not places:
        yield "no replay of Table 7.8 on twelve declared nodes"


def plan_lines(plan: StudyPlan) -> list[str]:
    """Return the plan in sentences."""
    size = f"N{plan.nodes}C{plan.cores}: "
    took = duration(plan.estimate_s, rough=True)
    end = f", interleaved; {counted(len(plan.items()), 'replay')} in about {took}."
    if plan.only is None:
        trials = f"{plan.rounds} trial{'s' * (plan.rounds > 1)} of each"
        if plan.pair_s and plan.pairs > 1:
            trials += f" ({plan.rounds * plan.pairs} of the pair)"
        lines = [f"{size}{len(plan.layouts)} layouts, {trials}{end}", *_trace_lines(plan)]
    else:
        shared = counted(len(plan.layouts) - 1, "layout")
        trials = counted(plan.rounds * plan.pairs, "trial")
        lines = [f"{size}the pair of Table 7.4 alone, {trials} in {shared}{end}"]
    if plan.given_up:
        lines.append(f"For the budget: {'; '.join(plan.given_up)}.")
    return lines


def _trace_lines(plan: StudyPlan) -> list[str]:
    first = f"First hours (29 jobs): {LENGTH_S:,.0f} s in {plan.short_s:.0f} s, times divided by "
    lines = [f"{first}{plan.compression(FIRST):,.0f}."]
    if plan.draws:
        lines.append(
            f"Whole day (82 jobs), seeds {', '.join(map(str, plan.draws))}: in {plan.long_s:.0f} s, times "
            f"divided by {plan.compression(DAY):,.0f}."
        )
    lines.append(
        "Kept: numbers, order and relative distance of arrivals, each job's share of the system's time, busy "
        "to idle, who is serial. Not kept: sizes, and with them the proportions of run times; no run is "
        f"shorter than {SHORTEST_RUN_S:g} s. Under MQ batch jobs are narrower where their nodes are fewer."
    )
    return lines


def known_layouts(plan: StudyPlan) -> dict[str, SharingLayout]:
    """Return the plan's layouts by key."""
    every = {layout.key: layout for layout in layouts_of(plan.nodes)}
    return {key: every[key] for key in plan.layouts}
