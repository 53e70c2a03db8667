"""Whatever fails, in whatever order: each job of the trace has one row, in the end state that Slurm had.

Schedules of failures are drawn: answers to submissions that are lost, late or never were; outages; records
that cannot be read; requeues, holds, cancellations and failing nodes; kills of the replay at any instant.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from foundation.records import load_run
from foundation.slurm import JobSnapshot, SlurmJob, SlurmJobState, SubmitRequest, UnreadableJob
from submitter.follow.job_rows import _STATES
from submitter.plan.replay_options import ReplayOptions, Timing
from submitter.replay.replay_progress import ReplayProgress, Wish
from tests.fixtures.fake_slurm import SubmitFault
from tests.fixtures.replay_world import START, World, make_world, write_trace
from tests.fixtures.tier import choose

EXAMPLES = choose(10, 60, 5_000)
JOBS = 5
LONGEST_S = 400.0

instants = st.floats(0.1, 120.0).map(lambda second: round(second, 1))


@dataclass(frozen=True)
class Happening:
    """Something that happens to the cluster or to a job at an instant."""

    at_s: float
    kind: str
    job: int
    length_s: float


happenings = st.builds(
    Happening,
    at_s=instants,
    kind=st.sampled_from(["outage", "hidden", "requeue", "hold", "release", "cancel", "node fails", "kill"]),
    job=st.integers(1, JOBS),
    length_s=st.floats(0.5, 60.0).map(lambda second: round(second, 1)),
)


class Killed(BaseException):
    """The replay is killed: nothing of it is done any more, not even what was submitted is recorded."""


class Theatre:
    """A world in which a schedule of failures is played."""

    def __init__(self, folder: Path, schedule: list[Happening], late_s: float) -> None:
        self.world = make_world(folder, nodes=2, cores=1, multiplicity=2, run_s=8.0, timing=TIMING)
        self.world.slurm.late_s = late_s
        self.work: Counter[tuple[str, int]] = Counter()
        self.is_killed = False
        self.hidden_until = 0.0
        start, jobs = self.world.slurm.on_start, self.world.slurm.jobs

        def noted(job: SlurmJob, request: SubmitRequest) -> bool:
            works = start(job, request)
            self.work[str(job.name), job.restarts] += works
            return works

        def shown() -> JobSnapshot:
            snapshot = jobs()
            if self.world.now < self.hidden_until:
                return JobSnapshot((), tuple(UnreadableJob(job.job_id, "odd") for job in snapshot.jobs))
            return snapshot

        self.world.slurm.on_start = noted
        self.world.slurm.jobs = shown  # type: ignore[method-assign]
        for one in schedule:
            self.world.at(one.at_s, self._plays(one))

    def _plays(self, one: Happening) -> Callable[[], None]:
        slurm = self.world.slurm

        def play() -> None:
            job = {job.job_id: job for job in FakeJobs(self.world)}.get(one.job)
            if one.kind == "outage":
                slurm.reachable = False
                self.world.plans.append((self.world.now + one.length_s, self._back))
            elif one.kind == "hidden":
                self.hidden_until = self.world.now + one.length_s
            elif one.kind == "kill":
                self.is_killed = True
            elif job is None or not slurm.reachable:
                return
            elif one.kind == "requeue" and job.state is SlurmJobState.RUNNING:
                slurm.requeue(job.job_id, after_s=one.length_s)
            elif one.kind == "hold" and job.state is SlurmJobState.RUNNING:
                slurm.requeue(job.job_id, reason="job_requeued_in_held_state")
            elif one.kind == "release" and job.state is SlurmJobState.PENDING:
                slurm.release(job.job_id)
            elif one.kind == "cancel":
                slurm.cancel([job.job_id])
            elif one.kind == "node fails" and job.state is SlurmJobState.RUNNING:
                slurm.end(job.job_id, SlurmJobState.NODE_FAIL)

        return play

    def _back(self) -> None:
        self.world.slurm.reachable = True

    def watch(self, _: ReplayProgress) -> Wish:
        assert self.world.now < START + LONGEST_S, "no end"
        if self.is_killed:
            self.is_killed = False
            self.session._drain = lambda _: None  # type: ignore[method-assign, assignment]
            raise Killed
        return Wish.GO_ON

    def replay(self, trace: Path) -> None:
        """Replay to the end, however often it is killed."""
        self.session = self.world.begin(trace, ReplayOptions())
        try:
            self.session.run(self.watch)
        except Killed:
            self.resume()

    def resume(self) -> None:
        while True:
            self.world.employed.clear()
            try:
                if not self.world.slurm.reachable:
                    self.world.sleep(1.0)
                    continue
                self.session = self.world.resume()
                self.session.run(self.watch)
            except Killed:
                continue
            return


def FakeJobs(world: World) -> list[SlurmJob]:
    return [entry.job for entry in world.slurm._entries.values()]


TIMING = Timing(look_s=20.0, gone_s=10.0, stamps_s=10.0, killed_s=4.0, never_s=5.0, patience_s=30.0)


@given(
    faults=st.lists(st.one_of(st.none(), st.sampled_from(list(SubmitFault))), max_size=JOBS + 3),
    schedule=st.lists(happenings, max_size=6),
    late_s=st.sampled_from([2.0, 15.0, 35.0]),
    killed_stamp=st.booleans(),
    late_stamps_s=st.sampled_from([0.0, 0.0, 3.0]),
)
# The third job has no answer, is not there when it is looked for, is refused the second time, and runs then.
@example(
    faults=[None, None, SubmitFault.LATE, None, SubmitFault.LATE, SubmitFault.REFUSED],
    schedule=[],
    late_s=35.0,
    killed_stamp=False,
    late_stamps_s=0.0,
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_each_job_of_the_trace_has_one_row_in_slurm_s_own_end_state(
    faults: list[SubmitFault | None],
    schedule: list[Happening],
    late_s: float,
    killed_stamp: bool,
    late_stamps_s: float,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        theatre = Theatre(Path(name), schedule, late_s)
        world = theatre.world
        world.stamps_when_killed, world.late_stamps_s = killed_stamp, late_stamps_s
        world.slurm.faults.extend(faults)
        trace = write_trace(Path(name, "t.swf"), *((n, 4.0 * n, 8, 1) for n in range(1, JOBS + 1)))
        theatre.replay(trace)
        run = load_run(world.out)
        assert run.complete
        assert run.jobs["trace_job"].to_list() == list(range(1, JOBS + 1))
        known = {job.job_id: job for job in FakeJobs(world)}
        for row in run.jobs.to_dicts():
            if row["state"] == "REFUSED":
                assert row["job_id"] is None
                continue
            job = known[row["job_id"]]
            assert job.state.is_over
            assert row["state"] == _STATES[job.state], row
        # No attempt of a job did the work twice, and nothing that ran is missing from the RUN.
        assert all(count == 1 for count in theatre.work.values() if count)
        ran = {name for (name, _), count in theatre.work.items() if count}
        recorded = {
            f"osub-{run.info.options['run_id']}-{row['trace_job']}"
            for row in run.jobs.to_dicts()
            if row["start_s"] is not None
        }
        assert ran == recorded
        held = [] if run.allocations is None else run.allocations.to_dicts()
        assert len({(one["job"], one["from_s"]) for one in held}) == len(held)
        assert {one["job"] for one in held} <= {row["job_id"] for row in run.jobs.to_dicts()}
        # Each attempt that did work is there, seen or not; a job of one attempt may be in its row alone.
        if not late_stamps_s:
            for row in run.jobs.drop_nulls("start_s").to_dicts():
                name = f"osub-{run.info.options['run_id']}-{row['trace_job']}"
                done = sum(count for (who, _), count in theatre.work.items() if who == name)
                reported = sum(one["job"] == row["job_id"] for one in held)
                assert reported == done or (reported, done) == (0, 1)
        world.sleep(60.0)
        assert all(count <= 1 for count in theatre.work.values())
        assert not [job for job in FakeJobs(world) if not job.state.is_over]
