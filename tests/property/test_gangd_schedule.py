"""The scheduler against a small world whose agents hear it through the wire, under every kind of churn."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.controller.fanout import Fanout
from gangd.core import scheduler_events
from gangd.core.cores import CoreMap
from gangd.core.gang_settings import CoreSettings
from gangd.core.scheduler import GangScheduler
from gangd.wire import messages as wire
from gangd.wire.slice_schedule import SliceSchedule
from gangd.wire.wire_frames import decode_down, encode_down
from tests.fixtures.tier import examples

MS = 1_000_000


@dataclass
class Job:
    """A job as it really is; the scheduler learns of its demand from samples only."""

    view: scheduler_events.JobView
    placement: dict[str, tuple[int, ...]]
    busy: bool = True
    waited: int = 0
    rivals: int = 0
    ran: int = 0
    entitled: float = 0.0

    @property
    def cores(self) -> set[tuple[str, int]]:
        return {(node, core) for node, cores in self.placement.items() for core in cores}


@dataclass
class World:
    nodes: int = 3
    cores: int = 2
    multiplicity: int = 3
    settings: CoreSettings = field(
        default_factory=lambda: CoreSettings(grace_ns=0, freeze_cap_ns=60_000 * MS)
    )
    holds: tuple[scheduler_events.HoldMode, ...] = (
        scheduler_events.HoldMode.FREEZE,
    )  # of the jobs, in turns
    lost_us: int = 0  # by each switch
    hasty: Random | None = None  # decides about more ticks, late in a slice, when something has changed

    def __post_init__(self) -> None:
        self.names = [f"n{index}" for index in range(self.nodes)]
        self.map = CoreMap(dict.fromkeys(self.names, self.cores))
        self.scheduler = GangScheduler(self.settings, 0, self.map)
        bounds = wire.Bounds(self.settings.freeze_cap_ns, 0)
        self.fanout = Fanout(
            wire.ControllerIdentity(b"c" * 16, 1),
            self.map,
            self.scheduler.time,
            self.settings.lease_ns,
            bounds,
        )
        self.agents = {name: SliceSchedule(name) for name in self.names}
        self.silent: set[str] = set()
        self.lossy: Random | None = None
        self.judging = True
        self.jobs: dict[int, Job] = {}
        self.known: dict[int, Job] = {}  # the ended ones too: final slices still name them
        self.next_id = 1
        self.slice = 0
        for name in self.names:
            self.tell(self.scheduler.handle(scheduler_events.AgentJoined(0, name)))
            self.fanout.resend(name)
        self.send()

    @property
    def now_ns(self) -> int:
        return self.scheduler.time.start_ns(self.slice) + self.settings.quantum_ns // 4

    def start(self, wanted: dict[str, int], weight: float = 1.0, **more: object) -> Job | None:
        """Start a job on the least loaded cores of some nodes, if they have free slots."""
        load = {
            (name, core): sum((name, core) in job.cores for job in self.jobs.values())
            for name in wanted
            for core in range(self.cores)
        }
        placement = {}
        for name, width in wanted.items():
            free = sorted((load[name, core], core) for core in range(self.cores))
            chosen = [core for loaded, core in free if loaded < self.multiplicity][:width]
            if len(chosen) < width:
                return None
            placement[name] = tuple(chosen)
        number = self.next_id
        self.next_id += 1
        hold = self.holds[number % len(self.holds)]
        view = scheduler_events.JobView(number, number, self.map.pack(placement), weight=weight, hold=hold)
        self.jobs[number] = self.known[number] = Job(view, placement)
        return self.jobs[number]

    def step(self) -> None:
        """One slice: what was seen in the last one is reported, Slurm is asked, slices are decided."""
        if self.hasty is not None and self.slice and self.hasty.random() < 0.5:
            late_ns = self.scheduler.time.start_ns(self.slice) - self.settings.quantum_ns // 4
            views = tuple(job.view for job in self.jobs.values())
            self.tell(self.scheduler.handle(scheduler_events.SlurmSnapshot(late_ns, late_ns, 1e9, views)))
            if self.scheduler.restless:
                self.tell(self.scheduler.handle(scheduler_events.Tick(late_ns)))
                assert not self.scheduler.restless
                self.send()
        for name in self.names:
            if name not in self.silent and self.slice:
                self.tell(
                    self.scheduler.handle(
                        scheduler_events.NodeReport(self.now_ns, name, (self.use(name, self.slice - 1),))
                    )
                )
        views = tuple(job.view for job in self.jobs.values())
        self.tell(self.scheduler.handle(scheduler_events.SlurmSnapshot(self.now_ns, self.now_ns, 1e9, views)))
        self.tell(self.scheduler.handle(scheduler_events.Tick(self.now_ns)))
        self.send()
        if self.judging:
            self.check()
        self.slice += 1

    def use(self, name: str, number: int) -> scheduler_events.SliceUse:
        held = self.agents[name].held(number)
        samples = tuple(
            scheduler_events.CpuSample(job.view.job, 900 * job.busy, 100 * job.busy, 1000, 1)
            for job in self.jobs.values()
            if name in job.placement and job.view.job not in held
        )
        return scheduler_events.SliceUse(number, self.lost_us, self.lost_us, tuple(held), samples)

    def tell(self, commands: list[scheduler_events.Command]) -> None:
        for command in commands:
            if isinstance(command, scheduler_events.Publish):
                self.fanout.publish(command)
            elif isinstance(command, scheduler_events.Exempt):
                self.fanout.exempt(command)

    def send(self) -> None:
        messages = self.fanout.messages(self.now_ns, self.scheduler.horizon)
        messages += self.fanout.beats(self.names, self.now_ns, self.scheduler.horizon)
        for message in messages:
            for name in self.names if message.node is None else [message.node]:
                if self.lossy is None or self.lossy.random() > 0.3:
                    self.deliver(message, name)

    def deliver(self, message: wire.DownMessage, name: str) -> None:
        try:
            self.agents[name].accept(decode_down(encode_down(message), name), self.now_ns)
        except wire.MissedPlanError:
            self.fanout.resend(name)

    def rotated(self) -> set[int]:
        """Jobs that contend in this slice: in a track with others, on whatever node."""
        together: dict[int, set[int]] = {}
        for name in self.names:
            for track in self.agents[name].tracks(self.slice):
                together.setdefault(track.track, set()).update(
                    job for sets in track.slices for job in (*sets.run, *sets.held)
                )
        return {job for jobs in together.values() if len(jobs) > 1 for job in jobs}

    def takes_turns(self, number: int) -> bool:
        """Whether a job must not share cores with its like."""
        job = self.known[number]
        return job.view.hold is scheduler_events.HoldMode.FREEZE or len(job.cores) > 1

    def check(self) -> None:
        """Judge the slice that just began."""
        held = {name: self.agents[name].held(self.slice) for name in self.names}
        rotated = self.rotated()
        exempt = {job for name in self.names for job in self.agents[name].exempt.opt_out}
        frozen = set().union(*held.values())
        for number in self.jobs:
            on = self.jobs[number].placement
            assert {number in held[name] for name in on} in ({True}, {False}), "nodes disagree"
        for name in self.names:
            for core in range(self.cores):
                here = {number for number, job in self.jobs.items() if (name, core) in job.cores}
                owners = (here & rotated) - frozen - exempt
                assert len(owners) <= 1, f"{owners} own core {core} of {name} together"
        for number, job in self.jobs.items():
            rivals = {other for other in rotated - {number} if self.known[other].cores & job.cores}
            if number in frozen:
                job.waited += 1
                job.rivals = max(job.rivals, len(rivals))
                assert rivals - frozen, f"job {number} is held for no other job"
                assert any(map(self.takes_turns, {number} | rivals)), f"job {number} is held for its like"
                assert job.waited <= self.multiplicity * job.rivals, f"job {number} waits {job.waited} slices"
            else:
                job.waited = job.rivals = 0
            if number in rotated:
                crowds = [sum(core in self.known[other].cores for other in rivals) for core in job.cores]
                job.ran += number not in frozen
                job.entitled += 1 / (max(crowds) + 1)


def jain(values: list[float]) -> float:
    shares = np.array(values)
    return float(shares.sum() ** 2 / (len(shares) * (shares**2).sum()))


def test_two_jobs_on_the_same_cores_take_turns() -> None:
    world = World(nodes=2, cores=2, multiplicity=2)
    one, two = world.start({"n0": 2, "n1": 2}), world.start({"n0": 2, "n1": 2})
    for _ in range(40):
        world.step()
    assert one
    assert two
    assert abs(one.ran - two.ran) <= 1
    assert one.ran + two.ran >= 36


churn = st.lists(
    st.one_of(
        st.tuples(
            st.just("start"),
            st.dictionaries(st.sampled_from(["n0", "n1", "n2"]), st.integers(1, 2), min_size=1),
        ),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("toggle"), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.integers(1, 9)),
    ),
    max_size=40,
)


@examples(150)
@given(
    churn,
    st.integers(2, 4),
    st.lists(st.sampled_from(scheduler_events.HoldMode), min_size=1, max_size=3),
    st.none() | st.randoms(),
)
def test_one_gang_a_core_no_job_starves_and_all_nodes_agree(
    script: list[tuple[str, object]], most: int, holds: list[scheduler_events.HoldMode], hasty: Random | None
) -> None:
    world = World(multiplicity=most, holds=tuple(holds), hasty=hasty)
    for what, which in script:
        numbers = list(world.jobs)
        if what == "start":
            assert isinstance(which, dict)
            world.start(which)
        elif what == "wait":
            assert isinstance(which, int)
            for _ in range(which):
                world.step()
        elif numbers:
            assert isinstance(which, int)
            number = numbers[which % len(numbers)]
            if what == "end":
                del world.jobs[number]
            else:
                world.jobs[number].busy = not world.jobs[number].busy
        world.step()
    for _ in range(30):
        world.step()


@examples(25)
@given(st.integers(0, 10**6), st.integers(2, 4))
def test_jobs_that_come_and_go_get_equal_shares(seed: int, most: int) -> None:
    dice = Random(seed)
    world = World(nodes=2, cores=1, multiplicity=most)
    for _ in range(240):  # a minute of slices
        if dice.random() < 0.04 and world.jobs:
            del world.jobs[dice.choice(list(world.jobs))]
        if dice.random() < 0.08:
            world.start({"n0": 1, "n1": 1})
        world.step()
    shares = [job.ran / job.entitled for job in world.known.values() if job.entitled >= 10]
    if shares:
        assert jain(shares) >= 0.99


@examples(50)
@given(churn, st.sets(st.sampled_from(["n0", "n1", "n2"]), min_size=1, max_size=2))
def test_no_job_with_a_silent_node_stays_held(script: list[tuple[str, object]], silent: set[str]) -> None:
    world = World(multiplicity=3)
    for what, which in script:
        if what == "start":
            assert isinstance(which, dict)
            world.start(which)
        world.step()
    world.silent = silent
    for _ in range(8 + 3):  # a lease, and the slices that are final
        world.step()
    held = {job for name in world.names for job in world.agents[name].held(world.slice)}
    assert all(not silent & world.known[job].placement.keys() for job in held)


@examples(50)
@given(churn, st.integers(0, 10**6))
def test_a_node_that_missed_messages_holds_nothing_wrong_and_catches_up(
    script: list[tuple[str, object]], seed: int
) -> None:
    world = World(multiplicity=3)
    world.lossy = Random(seed)
    world.judging = False
    for what, which in script:
        if what == "start":
            assert isinstance(which, dict)
            world.start(which)
        elif what == "end" and world.jobs:
            del world.jobs[min(world.jobs)]
        world.step()
    world.lossy = None
    for _ in range(4):
        world.step()
    world.judging = True
    for number in range(world.slice, world.slice + 6):
        held = [world.agents[name].held(number) for name in world.names]
        for job in world.jobs.values():
            assert len({job.view.job in held[world.names.index(name)] for name in job.placement}) == 1


@examples(50)
@given(churn, st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["n0", "n1", "n2"])), max_size=40))
def test_no_job_is_held_in_its_grace_before_its_tasks_run_everywhere(
    script: list[tuple[str, object]], launches: list[tuple[int, str]]
) -> None:
    grace = 6
    world = World(settings=CoreSettings(grace_ns=grace * 250 * MS, freeze_cap_ns=60_000 * MS))
    world.judging = False
    began: dict[int, int] = {}
    seen: set[tuple[int, str]] = set()
    for place, (what, which) in enumerate(script):
        if what == "start":
            assert isinstance(which, dict)
            world.start(which)
        for number in world.jobs:
            began.setdefault(number, world.slice)
        for ahead, node in launches[place : place + 1]:
            job = len(world.jobs) and world.next_id - 1 - ahead % 3  # maybe one that is unknown, or not there
            if job > 0:
                seen.add((job, node))
                world.tell(
                    world.scheduler.handle(
                        scheduler_events.NodeReport(world.scheduler.now_ns, node, launched=(job,))
                    )
                )
        world.step()
        held = set().union(*(world.agents[name].held(world.slice - 1) for name in world.names))
        for number in held & world.jobs.keys():
            on = world.jobs[number].placement
            assert world.slice - began[number] > grace or all((number, node) in seen for node in on)


@pytest.mark.parametrize("tunes", [False, True])
@examples(10)
@given(
    hours=st.lists(
        st.tuples(st.sampled_from([0, 1_000, 5_000, 20_000, 90_000]), st.integers(1, 60)), max_size=8
    ),
    most=st.integers(2, 4),
)
def test_slices_that_grow_and_shrink_change_nothing_but_their_length(
    hours: list[tuple[int, int]], most: int, *, tunes: bool
) -> None:
    least_ns = (125 if tunes else 250) * MS
    settings = CoreSettings(grace_ns=0, freeze_cap_ns=60_000 * MS, tune=tunes, quantum_min_ns=least_ns)
    world = World(nodes=2, multiplicity=most, settings=settings)
    jobs = [world.start({"n0": 2, "n1": 2}) for _ in range(most)]
    for world.lost_us, slices in hours:
        for _ in range(slices):
            world.step()
            assert least_ns <= world.scheduler.time.length_ns(world.slice) <= 1000 * MS
    if not tunes:
        world.lost_us = 0
    for _ in range(160):
        world.step()
    assert tunes or world.scheduler.time.length_ns(world.slice) == 250 * MS
    assert jain([job.ran / job.entitled for job in jobs if job is not None]) >= 0.99
