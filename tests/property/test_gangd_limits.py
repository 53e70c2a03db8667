"""Whatever nodes report of whom they held: ends move by that, later only, seldom, and by no more."""

from __future__ import annotations

from collections import defaultdict
from random import Random

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gangd.core.scheduler_events import MoveEnd, NodeReport, SliceUse, Tick
from gangd.core.wall_clock_limits import MARGIN_S, SLACK_S
from tests.fixtures.core_bench import QUANTUM, WALL_S, Bench, only
from tests.fixtures.tier import choose

SLICE_S = QUANTUM / 1e9
INTERVAL_S, NEAR_S = 60.0, 180.0
TICKS = 4 * 100

calmly = settings(
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a smaller case tells no more
    deadline=None,
    max_examples=choose(5, 20, 200),
    suppress_health_check=[HealthCheck.too_slow],
)


class Site:
    """Three jobs on two nodes, agents that tell what dice say, and a Slurm that may be slow to move ends."""

    def __init__(self, seed: int, limit_s: float, report_chance: float, lies: float, answers: float) -> None:
        self.dice = Random(seed)
        self.report_chance, self.lies, self.answers = report_chance, lies, answers
        self.bench = Bench()
        for job, places in ((1, ("n0", "n1")), (2, ("n0", "n1")), (3, ("n1",))):
            self.bench.job(job, dict.fromkeys(places, (0, 1)))
        self.limit_s = limit_s
        self.end_s = dict.fromkeys(self.bench.jobs, WALL_S + limit_s)
        self.late: dict[int, float] = {}
        self.reported: dict[int, set[int]] = defaultdict(set)
        self.planned: dict[int, set[int]] = defaultdict(set)
        self.moved_s: dict[int, float] = {}

    @property
    def wall_s(self) -> float:
        return WALL_S + self.bench.now_ns / 1e9

    def lost_s(self, job: int) -> float:
        """What the job can have lost at most: it was to be held, and a node was sent that."""
        return SLICE_S * min(len(self.reported[job]), len(self.planned[job]))

    def report(self, node: str, number: int) -> None:
        here = self.bench.map.number(node)
        held = [job for job in self.bench.held(node, number) if self.dice.random() < self.report_chance]
        held += [
            job
            for job, view in self.bench.jobs.items()
            if here in view.cores.nodes and self.dice.random() < self.lies
        ]
        for job in held:
            self.reported[job].add(number)
        self.bench.tell(NodeReport(self.bench.now_ns, node, (SliceUse(number, 0, 0, tuple(held), ()),)))

    def turn(self) -> None:
        """One slice: reports, Slurm's answer, and the tick, after which ends are moved."""
        bench, number = self.bench, self.bench.slice - 1
        if number >= 0:
            for job in bench.jobs:
                if any(job in bench.held(node, number) for node in bench.names):
                    self.planned[job].add(number)
            for node in bench.names:
                self.report(node, number)
        for job, end_s in list(self.late.items()):
            if self.dice.random() < self.answers:
                self.end_s[job] = self.late.pop(job)
                assert self.end_s[job] == end_s
        for job, end_s in self.end_s.items():
            bench.change(job, end_s=end_s)
        bench.snapshot()
        for move in only(bench.tell(Tick(bench.now_ns)), MoveEnd):
            self.check(move)
            self.late[move.job] = move.end_s
        bench.slice += 1

    def check(self, move: MoveEnd) -> None:
        assert move.end_s > self.end_s[move.job], "later only"
        before_s = self.moved_s.get(move.job)
        assert before_s is None or self.wall_s - before_s >= INTERVAL_S, "once a minute at most"
        self.moved_s[move.job] = self.wall_s
        credit_s = move.end_s - (WALL_S + self.limit_s)
        near = self.end_s[move.job] - self.wall_s <= NEAR_S + SLACK_S
        lent_s = INTERVAL_S + MARGIN_S if near else 0.0
        assert credit_s <= self.lost_s(move.job) + lent_s, "no more than was reported, and lent near the end"
        assert move.lost_s <= self.lost_s(move.job) + 1e-6


@calmly
@given(
    seed=st.integers(0, 2**32),
    limit_s=st.sampled_from([30.0, 120.0, 200.0, 500.0, 5_000.0]),
    report_chance=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    lies=st.sampled_from([0.0, 0.2, 1.0]),
    answers=st.sampled_from([1.0, 0.3]),
)
def test_credit_follows_what_was_reported(
    seed: int, limit_s: float, report_chance: float, lies: float, answers: float
) -> None:
    site = Site(seed, limit_s, report_chance, lies, answers)
    for _ in range(TICKS):
        site.turn()
    kept = site.bench.scheduler.limits_state()
    for job in site.bench.jobs:
        lost_s = kept[str(job)]["lost_s"] if str(job) in kept else 0.0  # who lost nothing has no account
        assert lost_s <= site.lost_s(job) + 1e-6
        if report_chance == 1.0:  # and no less, but for what was not looked at yet
            assert lost_s >= SLICE_S * len(site.planned[job]) - 15.0
    if not report_chance and not lies:
        assert site.moved_s == {}
