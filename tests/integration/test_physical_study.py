"""The thesis's physical study on real embedded clusters, small: interrupted, gone on with, and judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.claims import ClaimVerdict
from osub.physical.carry import InterruptedStudyError, StudyReplays, carry_out
from osub.physical.cluster_provider import OwnBeds
from osub.physical.folder import StudyFolder, gather
from osub.physical.found import claims
from osub.physical.layouts import DEDICATED, GANGD
from osub.physical.plan import FIRST, PlannedReplay, StudyPlan, known_layouts
from submitter.replay.replay_loop import Replay
from submitter.replay.replay_progress import Collect, Look
from tests.unit.osub.physical.made import first_trace, full_size
from workloads.swf import SwfTrace

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

JOBS = (2814, 2815, 2819, 2823, 4963, 5030)


def few_jobs() -> SwfTrace:
    """Return four batch jobs, two of them of two ranks, and both interactive ones."""
    first = first_trace()
    return first.with_jobs([job for job in first.jobs if job.job_number in JOBS], "a few of them")


def plan() -> StudyPlan:
    return StudyPlan(
        nodes=2, cores=1, layouts=(DEDICATED.key, GANGD.key), rounds=1, draws=(), short_s=10.0,
        long_s=0.0, pair_s=0.0, places=False, estimate_s=60.0,
    )  # fmt: skip


class Follow:
    """Carries replays out, up to the one at which the user ends the study."""

    def __init__(self, ends_at: int | None = None) -> None:
        self.titles: list[str] = []
        self._ends_at = ends_at

    def __call__(
        self, session: Replay, title: str, collect: Collect | None, _most_s: float, look: Look | None
    ) -> bool:
        self.titles.append(title)
        if len(self.titles) == self._ends_at:
            return False
        return session.run(collect=collect, look=look)


@pytest.fixture
def study(tmp_path: Path) -> Callable[[Follow], None]:
    folder = StudyFolder(tmp_path / "study")
    layouts = known_layouts(plan())

    def carry(follow: Follow) -> None:
        beds = OwnBeds(2, 1, layouts, folder)
        beds.clear()
        replays = StudyReplays(plan(), folder, layouts, {(FIRST, 1): few_jobs()}, follow)
        carry_out(plan(), folder, beds.bed, replays, lambda _: None)

    return carry


def test_a_study_that_is_ended_leaves_no_cluster_and_goes_on(
    tmp_path: Path, study: Callable[[Follow], None]
) -> None:
    folder = StudyFolder(tmp_path / "study")
    with pytest.raises(InterruptedStudyError):
        study(Follow(ends_at=2))
    assert folder.cluster_folder() is None
    assert [item.layout for item in folder.lacking(plan())] == [GANGD.key]
    again = Follow()
    study(again)
    assert len(again.titles) == 1
    assert not folder.lacking(plan())

    work = folder.work()["first-1"]
    assert set(work) == {"2814", "2815", "2819", "2823"}
    table = (
        folder.path / "inputs" / f"{PlannedReplay(workload=FIRST, layout=GANGD.key, trial=1).name}.csv"
    ).read_text()
    assert all(f"--steps {steps}" in table for _, steps in work.values())

    results = gather(plan(), folder, known_layouts(plan()), full_size())
    assert results.unsimulated == ()
    assert set(results.simulated) == set(results.real) == {DEDICATED.key, GANGD.key}
    rows = {row.id: row for row in claims(results)}
    assert rows["R28"].verdict is ClaimVerdict.HOLDS, rows["R28"]
    assert rows["R28"].ours == "12 jobs completed, 0 did not"


def test_a_cluster_that_a_killed_call_left_is_taken_down_by_the_next(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    layouts = known_layouts(plan())
    left = OwnBeds(2, 1, layouts, folder).bed(DEDICATED.key)
    left.__enter__()
    place = folder.cluster_folder()
    assert place is not None
    assert place.exists()
    try:
        assert OwnBeds(2, 1, layouts, folder).clear()
        assert folder.cluster_folder() is None
        assert not place.exists()
    finally:
        left.__exit__(None, None, None)
