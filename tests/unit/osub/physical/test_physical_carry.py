"""Carrying the study out: what is done is not done again, and a killed study goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec
import pytest

from analysis.metrics import HostUse, host_use
from foundation.errors import ClusterError, InputError, OutputError
from foundation.records import HOST, Run
from foundation.records.columns import JOBS
from foundation.records.records_folder import FolderLock
from osub.physical.carry import InterruptedStudyError, carry_out
from osub.physical.cluster_provider import Bed
from osub.physical.folder import KeptStudy, StudyFolder
from osub.physical.layouts import DEDICATED, GANGD, NAIVE
from osub.physical.plan import FIRST, PLACES, PlannedReplay, StudyPlan
from tests.unit.analysis.test_host_use import on_host
from tests.unit.analysis.test_verdict import made_run
from tests.unit.osub.physical.made import small_plan


class FakeBeds:
    """Clusters that only count; some of them do not start."""

    def __init__(self, fail: int = 0) -> None:
        self.began: list[str] = []
        self.up = 0
        self._fail = fail

    @contextmanager
    def bed(self, layout: str) -> Iterator[Bed]:
        if self._fail:
            self._fail -= 1
            raise ClusterError("it does not start")
        self.began.append(layout)
        self.up += 1
        try:
            yield cast("Bed", None)
        finally:
            self.up -= 1


class FakeReplays:
    """Replays that leave a finished RUN's files, until they are interrupted."""

    def __init__(self, folder: StudyFolder, until: int | None = None) -> None:
        self.made: list[str] = []
        self._folder, self._until = folder, until

    def __call__(self, item: PlannedReplay, _bed: Bed) -> None:
        if self._until is not None and len(self.made) == self._until:
            (path := self._folder.run(item)).mkdir()
            (path / "run.json").write_text("{}")
            raise InterruptedStudyError("Ctrl-C")
        (path := self._folder.run(item)).mkdir()
        (path / "run.json").write_text("{}")
        (path / JOBS.file_name).write_bytes(b"")
        self.made.append(item.name)


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    return StudyFolder(tmp_path / "study")


def carry(plan: StudyPlan, folder: StudyFolder, beds: FakeBeds, replays: FakeReplays) -> None:
    carry_out(plan, folder, beds.bed, replays, lambda _: None)


def test_every_replay_is_made_once_in_the_order_of_the_plan(folder: StudyFolder) -> None:
    plan, beds, replays = small_plan(), FakeBeds(), FakeReplays(folder)
    carry(plan, folder, beds, replays)
    assert replays.made == [item.name for item in plan.items()]
    assert beds.began == [layout for layout, _ in plan.sessions()]
    assert not folder.lacking(plan)


def test_a_study_that_was_interrupted_goes_on_with_what_lacks(folder: StudyFolder) -> None:
    plan, beds = small_plan(), FakeBeds()
    before = FakeReplays(folder, until=4)
    with pytest.raises(InterruptedStudyError):
        carry(plan, folder, beds, before)
    assert beds.up == 0
    after = FakeReplays(folder)
    carry(plan, folder, beds, after)
    assert before.made + after.made == [item.name for item in plan.items()]


def test_a_finished_study_starts_no_cluster(folder: StudyFolder) -> None:
    plan = small_plan()
    carry(plan, folder, FakeBeds(), FakeReplays(folder))
    beds = FakeBeds()
    carry(plan, folder, beds, FakeReplays(folder))
    assert beds.began == []


def test_a_cluster_that_does_not_start_is_tried_once_more(folder: StudyFolder) -> None:
    plan = small_plan()
    carry(plan, folder, FakeBeds(fail=1), FakeReplays(folder))
    assert not folder.lacking(plan)


def test_a_cluster_that_does_not_start_twice_ends_the_study(folder: StudyFolder) -> None:
    with pytest.raises(ClusterError, match="does not start"):
        carry(small_plan(), folder, FakeBeds(fail=2), FakeReplays(folder))


def test_table_7_8_comes_last_on_a_cluster_of_its_own(folder: StudyFolder) -> None:
    beds = FakeBeds()
    carry(small_plan(), folder, beds, FakeReplays(folder))
    assert beds.began[-1] == PLACES


def test_a_folder_of_another_users_is_never_removed(folder: StudyFolder) -> None:
    plan = small_plan()
    (mine := folder.run(plan.items()[0])).mkdir()
    (mine / "thesis.tex").write_text("precious")
    with pytest.raises(OutputError, match="no run of this study"):
        carry(plan, folder, FakeBeds(), FakeReplays(folder))
    assert (mine / "thesis.tex").exists()


def test_a_link_in_the_place_of_a_run_is_not_followed(folder: StudyFolder, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    (other / "run.json").write_text("{}")
    plan = small_plan()
    folder.run(plan.items()[0]).symlink_to(other)
    with pytest.raises(OutputError, match="no run of this study"):
        folder.forget(plan)
    assert (other / "run.json").exists()


def test_beginning_anew_removes_the_runs_and_nothing_else(folder: StudyFolder) -> None:
    plan = small_plan()
    folder.begin(KeptStudy(plan=plan, trace_name="log", trace_sha256="0"))
    folder.keep_work("first-1", {2814: (1, 200)})
    carry(plan, folder, FakeBeds(), FakeReplays(folder))
    (folder.path / "notes.txt").write_text("mine")
    folder.forget(plan)
    assert folder.study() is None
    assert folder.work() == {}
    assert len(folder.lacking(plan)) == len(plan.items())
    assert (folder.path / "notes.txt").exists()


def test_the_plan_comes_back_as_it_was_written(folder: StudyFolder) -> None:
    study = KeptStudy(plan=small_plan(), trace_name="log", trace_sha256="0")
    folder.begin(study)
    assert folder.study() == study


def test_a_study_whose_pair_was_measured_otherwise_is_refused(folder: StudyFolder) -> None:
    study = KeptStudy(plan=small_plan(), trace_name="log", trace_sha256="0")
    folder.begin(msgspec.structs.replace(study, version=1))
    with pytest.raises(InputError, match=r"version 1.*Table 7.4 otherwise; choose another --out"):
        folder.study()


@pytest.mark.parametrize("text", ["", "{", '{"version": 1}', "[]", '{"plan": 3, "trace_name": ""}'])
def test_a_damaged_plan_is_refused(folder: StudyFolder, text: str) -> None:
    (folder.path / "study.json").write_text(text)
    with pytest.raises(InputError, match="not a study of this version"):
        folder.study()


def test_two_calls_do_not_work_on_one_study(folder: StudyFolder) -> None:
    lock = FolderLock(folder.path)
    with lock, pytest.raises(OutputError, match="another process is writing"):
        FolderLock(folder.path)
    FolderLock(folder.path).release()


def test_a_cluster_that_a_killed_call_left_is_known(folder: StudyFolder, tmp_path: Path) -> None:
    folder.note_cluster(tmp_path / "cluster")
    assert StudyFolder(folder.path).cluster_folder() == tmp_path / "cluster"
    folder.note_cluster(None)
    assert folder.cluster_folder() is None


def test_replays_that_others_disturbed_are_made_again_with_what_was_simulated_from_them(
    tmp_path: Path,
) -> None:
    folder, plan = StudyFolder(tmp_path / "out"), small_plan(rounds=1)
    items = [item for item in plan.items() if item.workload == FIRST]
    dedicated = next(item for item in items if item.layout == DEDICATED.key)
    shared = next(item for item in items if item.layout == NAIVE.key)
    calm = next(item for item in items if item.layout == GANGD.key)
    run = made_run(tmp_path, "any", wait_s=1, degradation=1.0, jobs=5)
    for item, foreign in ((dedicated, 0.1), (shared, 1.0), (calm, 0.1)):
        keep(on_host(run, foreign=foreign), folder.run(item))
        keep(run, folder.simulated(item))
    assert (list(folder.unfit(plan)), folder.remove_unfit(plan)) == ([shared], 1)
    assert [folder.is_done(item) for item in (dedicated, shared, calm)] == [True, False, True]
    assert [folder.simulated(item).exists() for item in (dedicated, shared, calm)] == [True, False, True]
    assert folder.remove_unfit(plan) == 0

    folder.remove_run(folder.run(dedicated))
    keep(on_host(run, foreign=1.0), folder.run(dedicated))
    assert folder.remove_unfit(plan) == 1, "latencies of all simulations come from the dedicated replay"
    assert [folder.is_done(item) for item in (dedicated, shared, calm)] == [False, False, True]
    assert [folder.simulated(item).exists() for item in (dedicated, shared, calm)] == [False, False, False]


def test_a_replay_is_judged_once_although_the_plan_and_the_run_both_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = small_plan(rounds=1)
    item = next(item for item in plan.items() if item.workload == FIRST)
    run = on_host(made_run(tmp_path, "any", wait_s=1, degradation=1.0, jobs=5), foreign=1.0)
    keep(run, StudyFolder(tmp_path / "out").run(item))
    judged = []

    def judging(run: Run) -> HostUse:
        judged.append(run.path)
        return host_use(run)

    monkeypatch.setattr("osub.physical.pair.host_use", judging)
    assert list(StudyFolder(tmp_path / "out").unfit(plan)) == [item]
    assert StudyFolder(tmp_path / "out").remove_unfit(plan) == 1
    keep(run, StudyFolder(tmp_path / "out").run(item))
    assert list(StudyFolder(tmp_path / "out").unfit(plan)) == [item]
    assert len(judged) == 2, "once, and once more when it was made again"


def keep(run: Run, path: Path) -> None:
    """Keep a run where the study has it, with its samples of the host."""
    shutil.copytree(run.path, path)
    run.jobs.write_parquet(path / JOBS.file_name)
    if run.host is not None:
        run.host.write_parquet(path / HOST.file_name)
