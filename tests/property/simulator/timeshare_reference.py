"""Max-min fair rates from scratch, with fractions, and what must hold after every instant of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from simulator.timeshare.fair_rates import seat
from simulator.timeshare.timeshare_state import MEMORY, WHOLE, TimeshareState


def fair_rates(
    jobs: Mapping[int, Sequence[int]], capacity: Sequence[int], *, spmd: bool
) -> dict[int, Fraction]:
    """Return the rate of each job on its nodes, by the definition."""
    on = {node: [job for job, nodes in jobs.items() if node in nodes] for node in range(len(capacity))}
    if not spmd:
        shares = {node: Fraction(capacity[node], len(here)) for node, here in on.items() if here}
        return {job: Fraction(sum(shares[node] for node in nodes), len(nodes)) for job, nodes in jobs.items()}
    rates: dict[int, Fraction] = {}
    while len(rates) < len(jobs):
        level = {
            node: Fraction(capacity[node] - sum(rates.get(job, Fraction(0)) for job in here))
            / sum(job not in rates for job in here)
            for node, here in on.items()
            if any(job not in rates for job in here)
        }
        lowest = min(level.values())
        for node, reached in level.items():
            if reached == lowest:
                rates |= {job: lowest for job in on[node] if job not in rates}
    return rates


class Watch:
    """Called after each instant: rates are fair, memory and places are not over, time is conserved."""

    def __init__(self) -> None:
        self.instants = 0
        self.node_us = 0
        self.rate_now = 0
        self.then = 0

    def __call__(self, floor: TimeshareState) -> None:
        rules, clock = floor.rules[0], floor.clock[0]
        self.instants += 1
        self.node_us += self.rate_now * (clock.now - self.then)
        self.then, self.rate_now = clock.now, clock.progress
        running = {floor.agenda[place] for place in range(clock.running)}
        jobs = {slot: self._nodes(floor, slot) for slot in running}
        for place in range(rules.nodes):
            node = floor.nodes[place]
            here = [slot for slot, held in jobs.items() if place in held]
            members = [floor.members[seat(floor, place, index)] for index in range(node.count)]
            assert sorted(here) == sorted(members)
            assert len(here) <= rules.depth
            used = sum(floor.jobs[floor.slots[slot].job].memory for slot in here)
            assert node.free == MEMORY - used
            assert used <= MEMORY
            if rules.is_spmd:
                assert sum(floor.rate[slot] for slot in here) <= node.capacity
        capacity = [floor.nodes[place].capacity for place in range(rules.nodes)]
        fair = fair_rates(jobs, capacity, spmd=bool(rules.is_spmd))
        for slot, rate in fair.items():
            assert abs(floor.rate[slot] - rate) <= 2 * len(running), (slot, rate)
        total = sum(len(held) * floor.rate[slot] for slot, held in jobs.items())
        assert total == clock.progress
        assert total <= WHOLE * rules.nodes

    @staticmethod
    def _nodes(floor: TimeshareState, slot: int) -> list[int]:
        job = floor.slots[slot].job
        return [floor.part[at] for at in range(floor.jobs[job].part_at, floor.jobs[job + 1].part_at)]
