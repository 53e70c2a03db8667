"""A controller that begins with what another remembered: the rotation goes on, damage does no harm."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gangd.core import scheduler_events as core
from gangd.core.cores import CoreMap
from gangd.core.gang import Remembered
from gangd.core.gang_settings import CoreSettings
from gangd.core.scheduler import GangScheduler
from tests.fixtures.core_bench import QUANTUM
from tests.fixtures.tier import examples

CORES = 4
core_sets = st.sets(st.integers(0, CORES - 1), min_size=1, max_size=CORES)
weights = st.sampled_from([1.0, 1.0, 2.0, 0.5])
gangs = st.lists(st.tuples(core_sets, weights, st.booleans()), min_size=2, max_size=6)
Wanted = list[tuple[set[int], float, bool]]


class Line:
    """A scheduler for one node, and what its agent sees."""

    def __init__(self, wanted: Wanted, memory: list[Remembered], began_ns: int) -> None:
        self.cores = CoreMap({"n": CORES})
        self.scheduler = GangScheduler(CoreSettings(), began_ns, self.cores, memory=memory)
        self.scheduler.handle(core.AgentJoined(began_ns, "n"))
        self.busy = {number: busy for number, (_, _, busy) in enumerate(wanted, start=1)}
        views = tuple(
            core.JobView(number, number, self.cores.pack({"n": cores_of}), start_s=5.0, weight=weight)
            for number, (cores_of, weight, _) in enumerate(wanted, start=1)
        )
        self.began_ns = began_ns
        self.scheduler.handle(core.SlurmSnapshot(began_ns, began_ns, 0.0, views))

    def step(self, number: int, *, first: int = 2) -> set[int]:
        """Go through slice ``number``; returns who owns slice ``number + first``."""
        now_ns = self.began_ns + number * QUANTUM
        uses: tuple[core.SliceUse, ...] = ()
        if number:
            held = self.scheduler.gangs.keys() - self.scheduler.owners(number - 1)
            samples = tuple(
                core.CpuSample(job, 1000 * self.busy[job], 0, 1000, 2)
                for job in self.scheduler.gangs
                if job not in held
            )
            uses = (core.SliceUse(number - 1, 0, 0, tuple(sorted(held)), samples),)
        self.scheduler.handle(core.NodeReport(now_ns, "n", uses, launched=tuple(self.busy)))
        self.scheduler.handle(core.Tick(now_ns))
        return self.scheduler.owners(number + first)


@examples(150)
@given(gangs, st.integers(20, 40))
def test_the_rotation_goes_on_where_it_stood(wanted: Wanted, slices: int) -> None:
    former = Line(wanted, [], 0)
    for number in range(slices):
        former.step(number)
    memory = msgspec.json.decode(msgspec.json.encode(former.scheduler.memory()), type=list[Remembered])
    begin = max(former.scheduler.horizon, slices - 1)  # the memory has all credits before this slice
    later = Line(wanted, memory, begin * QUANTUM - QUANTUM)
    levels = {number: gang.demand.level for number, gang in former.scheduler.gangs.items()}
    assert {number: gang.demand.level for number, gang in later.scheduler.gangs.items()} == levels
    assert {number: gang.state for number, gang in later.scheduler.gangs.items()} == {
        number: gang.state for number, gang in former.scheduler.gangs.items()
    }
    expected = [former.scheduler.owners(begin + ahead) for ahead in range(4)]
    later.step(0)
    assert [later.scheduler.owners(1 + ahead) for ahead in range(4)] == expected


damaged = st.lists(
    st.builds(
        Remembered,
        gang=st.integers(-2, 6),
        jobs=st.lists(st.tuples(st.integers(1, 6), st.sampled_from([5.0, 6.0])), max_size=2).map(tuple),
        level=st.sampled_from(["busy", "idle", "waking", "", "frozen"]),
        history=st.integers(-(2**62), 2**62),
        flaps=st.integers(-(2**62), 2**62),
        multi=st.booleans(),
        launched=st.booleans(),
        lead=st.integers(-(2**62), 2**62),
        wait=st.integers(-(2**62), 2**62),
    ),
    max_size=8,
)


@examples(100)
@given(gangs, damaged)
def test_whatever_is_remembered_everybody_busy_runs_again_and_again(
    wanted: Wanted, memory: list[Remembered]
) -> None:
    line = Line([(cores, weight, True) for cores, weight, _ in wanted], memory, 0)
    last = dict.fromkeys(line.busy, 0)
    for number in range(120):
        for gang in line.step(number):
            last[gang] = number
    assert all(number > 60 for number in last.values()), last
