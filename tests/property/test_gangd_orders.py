"""Orders at run time keep what the schedule promises: one gang a core, no job held for ever, shares."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.slurm import NodeCores, SlurmJobState
from foundation.slurm import SlurmJob as SlurmJob
from gangd.controller.orders import OrderBook, OrderRequest, OrderTarget, Verb
from tests.fixtures.tier import examples
from tests.property.test_gangd_schedule import MS, Job, World, churn

verbs: st.SearchStrategy[Verb] = st.sampled_from(["pause", "drain", "resume", "resume"])
places = st.sampled_from(
    [
        OrderTarget("all"),
        OrderTarget("node", "n0"),
        OrderTarget("node", "n1"),
        OrderTarget("partition", "even"),
        *(OrderTarget("job", str(number)) for number in range(1, 5)),
    ]
)
orders = st.lists(st.tuples(verbs, places), max_size=40)


class Ordered:
    """A world whose jobs are judged by a book of orders before each slice, as the controller does it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.book = OrderBook()
        self.began: dict[int, int] = {}

    def say(self, verb: Verb, target: OrderTarget, weight: float | None = None) -> None:
        if verb != "drain" or target.kind != "job":
            self.book.apply(
                OrderRequest(verb=verb, targets=(target,), weight=weight), 0, "root", self.world.slice
            )

    def slurm_job(self, job: Job) -> SlurmJob:
        number = job.view.job
        return SlurmJob(
            job_id=number, name=None, user="a", uid=1, partition="even" if number % 2 == 0 else "odd",
            state=SlurmJobState.RUNNING, reason="None", num_nodes=len(job.placement),
            cores=tuple(NodeCores(node, cores) for node, cores in job.placement.items()),
            start_time=self.began[number],
        )  # fmt: skip

    def step(self) -> set[int]:
        """Go on by a slice; returns the jobs that are let run by orders."""
        free = set()
        for number, job in self.world.jobs.items():
            self.began.setdefault(number, self.world.slice)
            standing = self.book.standing(self.slurm_job(job))
            job.view = replace(job.view, opt_out=standing.free is not None, weight=standing.weigh(1.0))
            if standing.free is not None:
                free.add(number)
        self.world.step()
        held = set().union(*(self.world.agents[name].held(self.world.slice - 1) for name in self.world.names))
        assert not held & free, f"{held & free} are let run, and held"
        return free


@examples(100)
@given(churn, orders, st.integers(2, 4), st.none() | st.randoms())
def test_whatever_is_paused_drained_and_resumed_the_schedule_keeps_its_promises(
    script: list[tuple[str, object]], ordered: list[tuple[Verb, OrderTarget]], most: int, hasty: Random | None
) -> None:
    world = World(multiplicity=most, hasty=hasty)  # ``check`` judges each slice
    held = Ordered(world)
    for place, (what, which) in enumerate(script):
        numbers = list(world.jobs)
        if what == "start":
            assert isinstance(which, dict)
            world.start(which)
        elif numbers and what in ("end", "toggle"):
            assert isinstance(which, int)
            number = numbers[which % len(numbers)]
            if what == "end":
                del world.jobs[number]
            else:
                world.jobs[number].busy = not world.jobs[number].busy
        for verb, target in ordered[place : place + 1]:
            held.say(verb, target)
        held.step()
    for order in held.book.orders:
        held.say("resume", order.target)
    for job in world.jobs.values():
        job.busy = True
    for _ in range(60):
        assert held.step() == set()
    runs = dict.fromkeys(world.jobs, 0)
    for _ in range(40):
        held.step()
        for number, job in world.jobs.items():
            runs[number] += all(
                number not in world.agents[name].held(world.slice - 1) for name in job.placement
            )
    assert all(runs.values()), f"after all was resumed some never ran: {runs}"


@pytest.mark.slow
@examples(20)
@given(
    st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0, 4.0]), min_size=2, max_size=4),
    st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0]), min_size=2, max_size=4),
    st.lists(st.sampled_from([1, 1, 2, 4]), min_size=4, max_size=4),
)
def test_weights_are_honoured_in_the_long_run_for_any_user_and_quanta(
    ordered: list[float], own: list[float], turns: list[int]
) -> None:
    world = World(nodes=2, multiplicity=len(ordered))
    world.judging = False  # the bound on waits that it checks is that of equal weights
    held = Ordered(world)
    jobs = [world.start({"n0": 2, "n1": 2}) for _ in ordered]
    for _ in range(20):
        held.step()
    for number, weight in enumerate(ordered, start=1):
        held.say("weight", OrderTarget("job", str(number)), weight)
    for job, turn in zip(jobs, turns, strict=False):
        assert job is not None
        job.view = replace(job.view, quantum_ns=turn * 250 * MS)
    for number, weight in enumerate(own, start=1):
        request = OrderRequest(verb="weight", targets=(OrderTarget("job", str(number)),), weight=weight)
        held.book.apply(request, 1, "owner", 0.0, owner=True)
    weights = [min([weight, *own[place : place + 1]]) for place, weight in enumerate(ordered)]
    for _ in range(60):
        held.step()
    ran = dict.fromkeys(range(1, len(weights) + 1), 0)
    slices, waits, longest = 1200, dict.fromkeys(ran, 0), dict.fromkeys(ran, 0)
    for _ in range(slices):
        held.step()
        for number in ran:
            runs = number not in world.agents["n0"].held(world.slice - 1)
            ran[number] += runs
            waits[number] = 0 if runs else waits[number] + 1
            longest[number] = max(longest[number], waits[number])
    for number, weight in enumerate(weights, start=1):
        share = weight / sum(weights)
        assert abs(ran[number] / slices - share) <= 0.02, (weights, turns, ran)
        crowd, turn = len(weights), turns[number - 1]
        stretch = sum(
            max(turns[other], turn * weights[other] / weight) + turns[other] - 1
            for other in range(len(weights))
            if other != number - 1
        )
        assert longest[number] <= (crowd - 1) * stretch + crowd, (weights, turns, longest)
