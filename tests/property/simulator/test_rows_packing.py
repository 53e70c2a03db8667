"""Slurm's rows, packed from where something has changed, are those that packing all jobs gives."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest

from simulator.cores.row_packing import BLOCK
from simulator.cores.slurm_rows import sort_rows
from simulator.engine.build_state import build_state
from simulator.jit.field_records import StateAllocator
from simulator.lifecycle.job_progress import hold, let_go
from simulator.model.jobs import PoolJobs
from simulator.model.system import NodePool
from simulator.sharing import Proportional
from simulator.state.allocations import members, parts_of, words_of
from simulator.state.engine_state import NEVER, EngineState
from tests.fixtures.tier import choose

Place = tuple[int, int]


@dataclass
class PlainRows:
    """Rows as lists of jobs, in their order; ``outside`` are jobs that fit in none."""

    places: dict[int, set[Place]]
    rows: list[list[int]]
    outside: list[int] = field(default_factory=list)
    failures: int = 0

    def cores(self, row: list[int]) -> set[Place]:
        return {place for job in row for place in self.places[job]}

    def enter(self, job: int) -> None:
        open_rows = [row for row in self.rows if not self.cores(row) & self.places[job]]
        (open_rows[0] if open_rows else self.outside).append(job)

    def sort(self) -> None:
        for first in range(len(self.rows)):
            for second in range(first + 1, len(self.rows)):
                if len(self.cores(self.rows[second])) > len(self.cores(self.rows[first])):
                    self.rows[first], self.rows[second] = self.rows[second], self.rows[first]

    def leave(self, job: int) -> None:
        for row in (*self.rows, self.outside):
            if job in row:
                row.remove(job)
        before = copy.deepcopy((self.rows, self.outside))
        # jobs of equal turn stay in the order of their rows
        jobs = [job for row in (*self.rows, self.outside) for job in row]
        jobs.sort(key=lambda job: (min(self.places[job]), len(self.places[job])))
        self.rows = [[] for _ in self.rows]
        self.outside = []
        for job in jobs:
            open_rows = [row for row in self.rows if not self.cores(row) & self.places[job]]
            if not open_rows:
                self.failures += 1
                self.rows, self.outside = before
                return
            open_rows[0].append(job)
            self.sort()


def new_state(pool: NodePool, dice: Random, jobs: int) -> EngineState:
    nodes = np.array([min(pool.nodes, dice.choice((1, 1, 1, 1, 2, 3))) for _ in range(jobs)])
    cores = np.array([dice.choice((1, 2, 2, 3)) for _ in range(jobs)])
    zeros = np.zeros(jobs, dtype=np.int64)
    every = PoolJobs(
        submit_us=zeros, requested_us=zeros + 1, nodes=nodes, cores=cores, memory_kib=zeros,
        app=zeros, phase_at=np.arange(jobs + 1) * 2, phase_us=np.tile([0, 1], jobs),
    )  # fmt: skip
    tables = Proportional.of(1).tables(pool.multiplicity, pool.first, pool.nodes)
    return build_state(StateAllocator(compiled=False), every, pool, tables, with_rows=True)


def choose_cores(state: EngineState, dice: Random, job: int) -> bool:
    """Name in the parts of a job cores that have a free slot, on any nodes; return whether there are any."""
    slots, cores = state.rules[0].slots, state.jobs[job].cores
    spare = {
        node: sorted(
            set(range(state.rules[0].cores))
            - set(members(words_of(state.occupied, state.class_of[node], slots - 1)))
        )
        for node in range(state.rules[0].nodes)
    }
    suited = [node for node, ids in spare.items() if len(ids) >= cores]
    if len(suited) < state.jobs[job].nodes:
        return False
    chosen = sorted(dice.sample(suited[: max(3, len(suited) // 2)], state.jobs[job].nodes))
    for part, node in zip(parts_of(state, job), chosen, strict=True):
        ids = [spare[node][0], *dice.sample(spare[node][1:], cores - 1)]
        state.parts[part].node = node
        state.mask[part, 0] = sum(1 << core for core in ids)
    return True


def rows_in_order(state: EngineState) -> list[int]:
    assert state.rows is not None
    return [state.rows.order[rank] for rank in range(state.rules[0].slots)]


def shown(state: EngineState) -> list[set[int]]:
    """Return the jobs of each row, in the order of the rows."""
    assert state.rows is not None
    places = [state.rows.turns[place] for place in range(state.rows.packing[0].length)]
    running = [job for job in places if job != NEVER]
    order = rows_in_order(state)
    by_row = {row: {job for job in running if state.rows.jobs[job].row == row} for row in range(NEVER, 8)}
    return [by_row[row] for row in (*order, NEVER)]


def cells(state: EngineState, row: int) -> set[Place]:
    assert state.rows is not None
    return {
        (node, core)
        for node in range(state.rules[0].nodes)
        for core in members(words_of(state.rows.cells, row, state.class_of[node]))
    }


def check_ranking(state: EngineState) -> None:
    """Every node is in the one set, of each kind, of the cores that are not idle or not free in a row."""
    assert state.rows is not None
    cores, slots = state.rules[0].cores, state.rules[0].slots
    for kind in range(slots + 1):
        loads: dict[int, list[int]] = {load: [] for load in range(cores + 1)}
        for node in range(state.rules[0].nodes):
            depth = slots - 1 if kind else 0
            taken = set(members(words_of(state.occupied, state.class_of[node], depth)))
            if kind:
                taken |= set(members(words_of(state.rows.cells, kind - 1, state.class_of[node])))
            assert state.rows.taken[kind, state.class_of[node]] == len(taken)
            loads[len(taken)].append(node)
        for load, nodes in loads.items():
            assert members(words_of(state.ranking.sets, kind, load)) == nodes
            assert state.ranking.size[kind, load] == len(nodes)
        assert members(words_of(state.ranking.loads, kind)) == [load for load in loads if loads[load]]


def overlapping(places: dict[int, set[Place]], running: set[int], job: int) -> set[int]:
    return {other for other in running if other != job and places[other] & places[job]}


def linked(state: EngineState, job: int) -> set[int]:
    assert state.links is not None
    found = set()
    record = state.links.of[job].first
    while record != NEVER:
        found.add(state.links.records[record].job)
        record = state.links.records[record].after
    assert len(found) == state.links.of[job].count
    return found


@pytest.mark.parametrize("multiplicity", [2, 3, 5])
@pytest.mark.parametrize("seed", range(choose(1, 2, 40)))
def test_rows_are_those_of_packing_everything(multiplicity: int, seed: int) -> None:
    dice = Random(seed)
    pool = NodePool(name="main", first=0, nodes=60, cores=4, multiplicity=multiplicity)
    jobs = 150
    state = new_state(pool, dice, jobs)
    assert state.rows is not None
    assert state.links is not None
    plain = PlainRows({}, [[] for _ in range(multiplicity)])
    running: set[int] = set()
    most = most_pairs = 0
    for _ in range(300):
        if dice.random() < 0.1:  # as a placement does that looks into the rows
            sort_rows(state.rows)
            plain.sort()
        idle = sorted(set(range(jobs)) - running)
        if idle and dice.random() < (0.8 if len(running) < 100 else 0.4):
            job = dice.choice(idle)
            if not choose_cores(state, dice, job):
                continue
            hold(state, job)
            running.add(job)
            plain.places[job] = {
                (state.parts[part].node, core)
                for part in parts_of(state, job)
                for core in members(words_of(state.mask, part))
            }
            plain.enter(job)
        elif running:
            job = dice.choice(sorted(running))
            let_go(state, job)
            running.remove(job)
            plain.leave(job)
        most = max(most, len(running))
        assert shown(state) == [set(row) for row in (*plain.rows, plain.outside)]
        for row, inside in zip(rows_in_order(state), plain.rows, strict=True):
            assert cells(state, row) == plain.cores(inside)
            assert state.rows.size[row] == len(plain.cores(inside))
        if dice.random() < 0.1:
            check_ranking(state)
        pairs = sum(state.links.of[job].count for job in running) // 2
        most_pairs = max(most_pairs, pairs)
        assert state.links.pool[0].used == 2 * most_pairs <= len(state.links.records)
        if running:
            one = dice.choice(sorted(running))
            assert linked(state, one) == overlapping(plain.places, running, one)
    assert most > 2 * BLOCK
    assert plain.failures > 10


def test_what_is_kept_reaches_to_the_last_job() -> None:
    """As many jobs as lie between two marks are packed; then one behind them comes and goes."""
    pool = NodePool(name="main", first=0, nodes=BLOCK + 3, cores=3, multiplicity=2)
    state = new_state(pool, Random(1), BLOCK + 2)
    assert state.rows is not None
    for job in range(BLOCK + 2):
        state.jobs[job].nodes, state.jobs[job].cores = 1, 1
        state.jobs[job].part_end = state.jobs[job].part_at + 1
        state.parts[state.jobs[job].part_at].node = job
        state.mask[state.jobs[job].part_at, 0] = 1
    for job in range(BLOCK + 1):
        hold(state, job)
    let_go(state, 0)
    hold(state, BLOCK + 1)
    let_go(state, BLOCK + 1)
    assert sorted(state.rows.size[row] for row in rows_in_order(state)) == [0, BLOCK]
