"""What changed of Slurm's jobs, told by itself: as good as all jobs told anew, for the cost of a change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.slurm import (
    JobSnapshot,
    NodeCores,
    Reservation,
    SlurmJob,
    SlurmJobState,
    SlurmNode,
    SnapshotDifference,
    UnreadableJob,
)
from gangd.controller.controller_config import Config
from gangd.controller.job_policy import policy_of
from gangd.controller.slurm_view import ClusterView
from gangd.core import (
    AgentJoined,
    CoreMap,
    CoreSettings,
    GangScheduler,
    JobView,
    NodeReport,
    SlurmChanges,
    SlurmSnapshot,
    Tick,
)
from tests.fixtures.tier import examples

NODES, CORES = 3, 2


def job(
    number: int, *places: tuple[int, int], state: SlurmJobState = SlurmJobState.RUNNING, **more: object
) -> SlurmJob:
    held = tuple(NodeCores(f"n{node}", (core,)) for node, core in places)
    known = SlurmJob(
        job_id=number,
        name=None,
        user="u",
        uid=1,
        partition="main",
        state=state,
        reason="None",
        num_nodes=len(held),
        cores=held,
        start_time=100,
        end_time=1000,
        time_limit_s=900,
    )
    return replace(known, **more)  # type: ignore[arg-type]


def a_view(cores: CoreMap | None = None) -> ClusterView:
    return ClusterView(
        cores or CoreMap(dict.fromkeys((f"n{node}" for node in range(NODES)), CORES)), policy_of(Config())
    )


class Source:
    """Tells of jobs, and how they differ from what it told before."""

    def __init__(self) -> None:
        self.jobs: dict[int, SlurmJob] = {}
        self.number = 0

    def tell(self, jobs: dict[int, SlurmJob], *, unreadable: tuple[UnreadableJob, ...] = ()) -> JobSnapshot:
        changed = tuple(one for key, one in jobs.items() if self.jobs.get(key) != one)
        gone = tuple(key for key in self.jobs if key not in jobs)
        self.jobs, self.number = dict(jobs), self.number + 1
        difference = SnapshotDifference(self.number, self.number - 1, changed, gone)
        return JobSnapshot(tuple(jobs.values()), unreadable, difference)


def test_only_what_changed_is_looked_at() -> None:
    view, source = a_view(), Source()
    jobs = {1: job(1, (0, 0)), 2: job(2, (0, 0))}
    first = source.tell(jobs)
    assert view.changes(first) is None
    assert len(view.views(first)) == 2
    assert view.changes(source.tell(jobs)) == ((), ())
    jobs[3] = job(3, (1, 1))
    jobs[1] = job(1, (0, 0), state=SlurmJobState.COMPLETED)
    del jobs[2]
    changes = view.changes(source.tell(jobs))
    assert changes is not None
    assert ([one.job for one in changes[0]], sorted(changes[1])) == ([3], [1, 2])


@pytest.mark.parametrize(
    "what", ["nothing told", "an answer was missed", "unreadable", "policy", "reservations", "nodes"]
)
def test_all_jobs_are_looked_at_where_the_difference_is_not_enough(what: str) -> None:
    view, source = a_view(), Source()
    jobs = {1: job(1, (0, 0))}
    view.views(source.tell(jobs))
    following = source.tell(jobs)
    if what == "nothing told":
        following = replace(following, difference=None)
    elif what == "an answer was missed":
        following = source.tell(jobs)
    elif what == "unreadable":
        following = replace(following, unreadable=(UnreadableJob(1, "torn"),))
    elif what == "policy":
        view.set_policy(policy_of(Config(hold="freeze")))
    elif what == "reservations":
        view.know_reservations([Reservation("r", 500, 900, frozenset({"n0"}))])
    else:
        view.know_nodes([node("n0", 2 * CORES)])
    assert view.changes(following) is None
    assert len(view.views(following)) == (0 if what == "unreadable" else 1) or what == "unreadable"
    assert view.changes(source.tell(jobs)) is None if what in {"nothing told", "unreadable"} else True


def node(name: str, cores: int) -> SlurmNode:
    return SlurmNode(
        name=name,
        states=frozenset({"IDLE"}),
        cores=cores,
        threads_per_core=1,
        memory_mib=1,
        cpus_allocated=0,
        features=frozenset(),
    )


def test_a_job_on_a_node_that_becomes_known_is_seen_although_it_did_not_change() -> None:
    view, source = a_view(), Source()
    jobs = {1: job(1, (0, 0)), 2: job(2, (NODES, 0))}
    view.views(source.tell({}))
    changes = view.changes(source.tell(jobs))
    assert changes is not None
    assert [one.job for one in changes[0]] == [1]
    assert list(view.unusable) == [2]
    view.know_nodes([node(f"n{NODES}", CORES)])
    after = source.tell(jobs)
    assert view.changes(after) is None
    assert [one.job for one in view.views(after)] == [1, 2]
    assert not view.unusable


def test_a_job_that_runs_on_no_known_cores_and_ends_is_forgotten() -> None:
    view, source = a_view(), Source()
    view.views(source.tell({}))
    view.changes(source.tell({2: job(2)}))
    assert list(view.unusable) == [2]
    view.changes(source.tell({}))
    assert not view.unusable


# The core


class World:
    """A core that is told all jobs each time, or what changed."""

    def __init__(self, *, by_changes: bool) -> None:
        self.cores = CoreMap(dict.fromkeys((f"n{number}" for number in range(NODES)), CORES))
        self.view = a_view(self.cores)
        self.core = GangScheduler(CoreSettings(quantum_ns=10**9, grace_ns=0), 0, self.cores)
        self.by_changes = by_changes
        self.now_ns = 0
        for name in self.cores:
            self.core.handle(AgentJoined(0, name))

    def look(self, snapshot: JobSnapshot) -> None:
        changes = self.view.changes(snapshot) if self.by_changes else None
        self.now_ns += 1
        if changes is None:
            self.core.handle(SlurmSnapshot(self.now_ns, self.now_ns, 0.0, self.view.views(snapshot)))
        else:
            self.core.handle(SlurmChanges(self.now_ns, self.now_ns, 0.0, *changes))

    def tick(self) -> None:
        self.now_ns += 10**9
        for name in self.cores:
            self.core.handle(NodeReport(self.now_ns, name))
        self.core.handle(Tick(self.now_ns))

    def facts(self) -> dict[int, object]:
        slices = range(self.core.horizon, self.core.horizon + 4)
        runs = [self.core.owners(number) for number in slices]
        return {
            key: (
                gang.state,
                sorted(gang.views),
                gang.weight,
                gang.cores,
                self.core.neighbours(key),
                [key in one for one in runs],
            )
            for key, gang in self.core.gangs.items()
        }


places = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, CORES - 1)),
    min_size=0,
    max_size=2,
    unique_by=lambda one: one[0],
)
one_job = st.builds(
    lambda number, where, state, comment, leader, start: job(
        number,
        *where,
        state=state,
        comment=comment,
        het_job_id=leader,
        start_time=start,
    ),
    st.integers(1, 6),
    places,
    st.sampled_from(
        [
            SlurmJobState.RUNNING,
            SlurmJobState.COMPLETING,
            SlurmJobState.SUSPENDED,
            SlurmJobState.PENDING,
            SlurmJobState.COMPLETED,
        ]
    ),
    st.sampled_from([None, "gangd=off"]),
    st.sampled_from([None, None, 1]),
    st.sampled_from([100, 100, 200]),
)


@examples(150)
@given(st.lists(st.lists(one_job, max_size=5), min_size=2, max_size=8))
def test_a_core_given_what_changed_equals_one_given_everything(
    looks: list[list[SlurmJob]],
) -> None:
    whole, some = World(by_changes=False), World(by_changes=True)
    source = Source()
    for look in looks:
        snapshot = source.tell({one.job_id: one for one in sorted(look, key=lambda one: one.job_id)})
        for world in (whole, some):
            world.look(snapshot)
            world.tick()
        assert whole.facts() == some.facts()
        assert whole.view.unusable == some.view.unusable


def test_views_that_are_given_again_as_they_are_change_nothing() -> None:
    world, source = World(by_changes=True), Source()
    jobs = {1: job(1, (0, 0)), 2: job(2, (0, 0))}
    world.look(source.tell(jobs))
    world.tick()
    before = world.facts()
    same: tuple[JobView, ...] = tuple(
        view for gang in world.core.gangs.values() for view in gang.views.values()
    )
    assert world.core.handle(SlurmChanges(world.now_ns, world.now_ns, 0.0, same, (99,))) == []
    assert world.facts() == before
