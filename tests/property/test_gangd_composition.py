"""The arrays of the core against plain Python that follows the rules word by word."""

from __future__ import annotations

import pickle
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.core.cores import ConflictGraph, CoreMap, InvalidEvent
from gangd.core.gang_group import UNIT
from gangd.core.gang_settings import CoreSettings
from gangd.core.scheduler import GangScheduler
from gangd.core.scheduler_events import (
    AgentJoined,
    AgentLost,
    CpuSample,
    Event,
    GangJobState,
    JobView,
    NodeReport,
    Reload,
    SliceUse,
    SlurmSnapshot,
    Tick,
)
from gangd.core.states import GangState
from tests.fixtures.core_bench import MS, QUANTUM
from tests.fixtures.tier import examples

CORES = 6

core_sets = st.sets(st.integers(0, CORES - 1), min_size=1, max_size=CORES)
weights = st.sampled_from([1.0, 1.0, 1.0, 2.0, 3.0, 0.5])
turns = st.sampled_from([1, 1, 1, 2, 3, 5])
gangs = st.lists(st.tuples(core_sets, weights, turns), min_size=2, max_size=9)

Wanted = list[tuple[set[int], float, int]]


class Reference:
    """Slices of gangs that all want their cores from slice 0 on, as the head of ``compose`` says it."""

    def __init__(self, wanted: Wanted, cap_slices: int) -> None:
        self.cores = {number: cores for number, (cores, _, _) in enumerate(wanted, start=1)}
        self.weight = {number: weight for number, (_, weight, _) in enumerate(wanted, start=1)}
        self.turn = {number: turn for number, (_, _, turn) in enumerate(wanted, start=1)}
        self.cap = cap_slices
        self.rivals = {
            one: [other for other in self.cores if other != one and self.cores[other] & self.cores[one]]
            for one in self.cores
        }
        crowd = {core: sum(core in cores for cores in self.cores.values()) for core in range(CORES)}
        self.crowd = {one: max(crowd[core] for core in cores) for one, cores in self.cores.items()}
        self.time = dict.fromkeys(self.cores, 0)
        self.wait = dict.fromkeys(self.cores, 0)
        self.stay = dict.fromkeys(self.cores, 0)

    def charge(self, one: int) -> int:
        return round(UNIT / self.weight[one])

    def patience(self, one: int) -> int:
        rivals = sum(
            max(self.turn[other], self.turn[one] * self.charge(one) / self.charge(other))
            + self.turn[other]
            - 1
            for other in self.rivals[one]
        )
        return min(max(ceil((self.crowd[one] - 1) * rivals - 1e-9), 1), max(1, self.cap // 2))

    def slice(self) -> set[int]:
        """Who runs in the next slice; gangs without rivals always do."""
        contending = [one for one in self.cores if self.rivals[one]]
        overdue = [one for one in contending if self.wait[one] >= self.patience(one)]
        order = sorted(overdue, key=lambda one: (-self.wait[one], one))
        order += sorted(
            (one for one in contending if one not in overdue),
            key=lambda one: (not self.stay[one], self.stay[one] or self.time[one], -self.wait[one], one),
        )
        owners: set[int] = set()
        for one in order:
            if not owners & set(self.rivals[one]):
                owners.add(one)
        run = owners | {one for one in contending if self.wait[one] >= self.cap}
        for one in contending:
            self.stay[one] = (self.stay[one] or self.turn[one]) - 1 if one in run else 0
        for one in run:
            self.time[one] += self.charge(one)
        ends = {
            one: min(self.time[other] for other in self.rivals[one])
            + self.crowd[one] * self.charge(one) * self.turn[one]
            for one in contending
        }
        for one in contending:
            self.wait[one] = 0 if one in run else self.wait[one] + 1
            self.time[one] = min(self.time[one], ends[one])
        return run | {one for one in self.cores if not self.rivals[one]}


def connected(wanted: Wanted) -> bool:
    """Whether all gangs hang together: virtual time of separate groups is not compared."""
    reached, left = set(wanted[0][0]), [cores for cores, _, _ in wanted[1:]]
    while touching := [cores for cores in left if cores & reached]:
        for cores in touching:
            reached |= cores
            left.remove(cores)
    return not left


@examples(200)
@given(gangs.filter(connected), st.integers(2, 40))
def test_slices_are_composed_by_the_rules(wanted: Wanted, cap_slices: int) -> None:
    cores = CoreMap({"n": CORES})
    scheduler = GangScheduler(CoreSettings(grace_ns=0, freeze_cap_ns=cap_slices * QUANTUM), 0, cores)
    scheduler.handle(AgentJoined(0, "n"))
    views = tuple(
        JobView(number, number, cores.pack({"n": cores_of}), weight=weight, quantum_ns=turn * QUANTUM)
        for number, (cores_of, weight, turn) in enumerate(wanted, start=1)
    )
    scheduler.handle(SlurmSnapshot(0, 0, 0.0, views))
    reference = Reference(wanted, cap_slices)
    for number in range(100):
        now_ns = number * QUANTUM
        scheduler.handle(NodeReport(now_ns, "n"))
        scheduler.handle(Tick(now_ns))
        assert scheduler.owners(number + 2) == reference.slice(), f"slice {number + 2}"


@given(st.lists(st.dictionaries(st.integers(0, 60), st.none() | core_sets, max_size=60), max_size=6))
def test_the_conflict_graph_is_the_same_however_it_is_kept(changes: list[dict[int, set[int] | None]]) -> None:
    cores = CoreMap({"n": CORES})
    graph = ConflictGraph()
    held: dict[int, set[int]] = {}
    for change in changes:
        before = {slot: list(graph.neighbours[slot]) for slot in range(len(graph.neighbours))}
        packed = {slot: cores.pack({"n": wanted}) if wanted else None for slot, wanted in change.items()}
        dirty = graph.update(packed, cores.total_cores)
        for slot, wanted in change.items():
            held.pop(slot, None)
            if wanted is not None:
                held[slot] = wanted
        for slot in range(len(graph.neighbours)):
            mine = held.get(slot, set())
            expected = [other for other in sorted(held) if other != slot and held[other] & mine]
            assert graph.neighbours[slot] == expected
            if slot in held:
                assert graph.crowd[slot] == max(sum(core in one for one in held.values()) for core in mine)
            if expected != before.get(slot, []):
                assert slot in dirty


names = st.sampled_from(["n0", "n1", "nowhere"])
numbers = st.integers(1, 5)
times = st.integers(0, 60).map(lambda slices: slices * QUANTUM // 2)
packs = CoreMap({"n0": 2, "n1": 2})
PLACES: list[dict[str, tuple[int, ...]]] = [
    {"n0": (0,)},
    {"n0": (0, 1)},
    {"n1": (0,)},
    {"n0": (0,), "n1": (0, 1)},
]
views = st.builds(
    JobView,
    job=numbers,
    gang=numbers,
    cores=st.sampled_from([packs.pack(place) for place in PLACES]),
    state=st.sampled_from([GangJobState.RUNNING] * 5 + [GangJobState.SUSPENDED, GangJobState.TERMINATING]),
    start_s=st.sampled_from([1.0, 1.0, 1.0, 2.0]),
    end_s=st.none() | st.sampled_from([5.0, 500.0, float("nan")]),
    weight=st.sampled_from([1.0, 1.0, 2.0, 0.0, float("inf")]),
    opt_out=st.sampled_from([False] * 5 + [True]),
)
snapshots = st.builds(SlurmSnapshot, times, times, st.just(1e9), st.lists(views, max_size=6).map(tuple))
samples = st.builds(CpuSample, numbers, *[st.integers(0, 9)] * 3, numbers)
uses = st.builds(
    SliceUse, st.integers(0, 80), st.just(0), st.just(0), st.just(()),
    st.lists(samples, max_size=4).map(tuple),
)  # fmt: skip
some = st.lists(numbers, max_size=2).map(tuple)
reports = st.builds(NodeReport, times, names, st.lists(uses, max_size=2).map(tuple), some, some, some)
reloads = st.builds(
    Reload, times, st.sampled_from([CoreSettings(grace_ns=0), CoreSettings(quantum_ns=100 * MS, record=True)])
)
events = st.one_of(
    snapshots, snapshots, reports, reports, times.map(Tick), times.map(Tick), reloads,
    st.builds(AgentJoined, times, names), st.builds(AgentLost, times, names, st.just("")),
)  # fmt: skip


@examples(300)
@given(st.lists(events, max_size=40), st.booleans())
def test_any_event_is_taken_in_or_refused_without_a_trace(script: list[Any], in_order: bool) -> None:
    if in_order:
        script.sort(key=lambda event: event.now_ns)
    scheduler = GangScheduler(CoreSettings(grace_ns=0), 0, CoreMap({"n0": 2, "n1": 2}))
    for event in script:
        before = pickle.dumps(scheduler)
        try:
            scheduler.handle(event)
        except InvalidEvent:
            assert pickle.dumps(scheduler) == before
            continue
        judge(scheduler, event)


def judge(scheduler: GangScheduler, event: Event) -> None:
    """Whatever happened, only gangs that are busy, share, and have all their agents are held."""
    held_later = set(scheduler.gangs) - scheduler.owners(scheduler.horizon + 1)
    for gang in scheduler.gangs.values():
        assert gang.state is not GangState.GONE
        if isinstance(event, Tick) and gang.gang in held_later:
            assert gang.state is GangState.BUSY
            assert scheduler.neighbours(gang.gang)
            assert all(scheduler.agents.joined(node) for node in gang.cores.nodes)


def test_the_reference_sees_a_difference() -> None:
    """Guards the comparison above: another rule gives other slices."""
    wanted: Wanted = [({0}, 1.0, 1), ({0}, 1.0, 2), ({0}, 2.0, 1)]
    slices: list[list[set[int]]] = []
    for changed in (wanted, [(one, 1.0, turn) for one, _, turn in wanted], [(*one[:2], 1) for one in wanted]):
        reference = Reference(changed, 40)
        slices.append([reference.slice() for _ in range(8)])
    assert slices[0] != slices[1]
    assert slices[0] != slices[2]
    with pytest.raises(AssertionError):
        assert not connected([({0, 1}, 1.0, 1), ({1}, 1.0, 1)])
