"""The demo: real runs and simulations of them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import polars as pl
import pytest

from analysis.metrics import job_faults
from deploy.compose.engine import EngineName
from deploy.shape import GangKind, Shape
from foundation.errors import ClusterError, OutputError, TrustError
from foundation.records import GangSettings, Run
from osub import demo
from tests.fixtures.fake_engine import FakeEngine
from tests.fixtures.real_runs import Row, real_run

JOBS: list[Row] = [("batch", 0, 0.2, 1.2, 12.2, 10, "0")]


def test_a_demos_own_run_is_replaced(tmp_path: Path) -> None:
    demo.clear_run(tmp_path / "m1")
    real_run(tmp_path / "m1", JOBS, 1)
    demo.clear_run(tmp_path / "m1")
    assert not (tmp_path / "m1").exists()
    assert (tmp_path / ".osub-demo").read_text() == "m1\n"


def test_a_run_of_ones_own_under_the_same_name_stays(tmp_path: Path) -> None:
    run = real_run(tmp_path / "m1", JOBS, 1)
    for _ in range(2):
        with pytest.raises(OutputError, match="no run of an earlier demo"):
            demo.clear_run(tmp_path / "m1")
    assert (run.path / "run.json").exists()


def test_a_link_in_the_place_of_a_run_is_not_followed(tmp_path: Path) -> None:
    run = real_run(tmp_path / "mine", JOBS, 1)
    demo.clear_run(tmp_path / "m1")
    (tmp_path / "m1").symlink_to(run.path)
    with pytest.raises(OutputError, match="no run of an earlier demo"):
        demo.clear_run(tmp_path / "m1")
    assert (run.path / "run.json").exists()


def test_a_cluster_that_could_not_be_taken_down_keeps_its_files() -> None:
    with demo.scratch_folder() as state:
        state.mkdir()
    assert state.is_dir()
    state.rmdir()
    state.parent.rmdir()
    with demo.scratch_folder() as state:
        pass
    assert not state.parent.exists()


def test_root_makes_no_runs_where_others_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo.make_out(tmp_path / "a" / "out")
    (tmp_path / "a").chmod(0o777)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(TrustError):
        demo.make_out(tmp_path / "a" / "out")


def test_later_settings_have_the_work_that_the_first_one_did() -> None:
    chosen = demo.choose_trace(None, 2, 1, 60.0, 1)
    assert chosen.block_jobs == 5
    first = chosen.apps({}).splitlines()
    assert first[0] == "trace_job,app,args"
    assert len(first) == 1 + len(chosen.coupled)
    assert all("--app lu --class S --target-s" in row for row in first[1:])
    # One of them was kept from its core.
    steps = {job: 30 if job == chosen.coupled[0] else 101 for job in chosen.coupled}
    for job, row in zip(chosen.coupled, chosen.apps(steps).splitlines()[1:], strict=True):
        assert row == f"{job},rrba,--app lu --class S --steps 101"


def test_a_host_of_one_cpu_has_a_trace_of_single_jobs() -> None:
    chosen = demo.choose_trace(None, 1, 1, 25.0, 1)
    assert chosen.coupled == ()
    assert chosen.block_jobs is None
    assert all(job.procs == 1 for job in chosen.trace.jobs)


@pytest.mark.slow
@pytest.mark.parametrize("mended", [True, False])
def test_a_setting_in_which_a_job_hung_is_repeated_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, mended: bool
) -> None:
    """The first run is kept, and said to be where it is."""
    replays: list[str] = []

    def replay(setting: demo.DemoSetting, stage: demo.Stage, *_: object) -> dict[int, int]:
        demo.clear_run(stage.out / setting.folder)
        run = real_run(stage.out / setting.folder, JOBS, 1)
        replays.append(setting.folder)
        if not (mended and len(replays) > 1):
            jobs = run.jobs.with_columns(state=pl.lit("TIMEOUT"))
            jobs.write_parquet(run.path / "jobs.parquet")
        return {1: len(replays)}

    monkeypatch.setattr("osub.demo.replay_under", replay)
    stage = demo.Stage(
        swf=tmp_path / "t.swf", chosen=demo.choose_trace(None, 1, 1, 25.0, 1), out=tmp_path,
        state=tmp_path / "c", nodes=1, cores=1,
    )  # fmt: skip
    said: list[str] = []
    for _ in range(2):
        replays.clear()
        run, made = demo.replayed(demo.SETTINGS[0], stage, {}, 60.0, lambda *_: True, said.append)
        assert (replays, made) == (["m1", "m1"], {1: 2})
        assert (job_faults(run) is None) is mended
        assert said[-1].startswith("M=1: 1 of 1 job hung, failed or never ended; job 1 first: killed")
        assert str(tmp_path / "m1-failed" / "jobs" / "1.out") in said[-1]
        assert (tmp_path / "m1-failed" / "run.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("busy", [True, False])
def test_a_setting_whose_time_others_took_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, busy: bool
) -> None:
    replays: list[str] = []

    def replay(setting: demo.DemoSetting, stage: demo.Stage, *_: object) -> dict[int, int]:
        demo.clear_run(stage.out / setting.folder)
        host = {
            "host": "h", "cpus": 2, "load": 9.0, "steal_s": 0.0, "used_s": 2.0,
            "own_s": 0.5 if busy else 2.0,
        }  # fmt: skip
        run = real_run(stage.out / setting.folder, JOBS, 1)
        seconds = [{"at_s": float(at), "length_s": 1.0, **host} for at in range(2, 12)]
        pl.DataFrame(seconds).write_parquet(run.path / "host.parquet")
        run.jobs.with_columns(state=pl.lit("CANCELLED")).write_parquet(run.path / "jobs.parquet")
        with (run.path / "log.jsonl").open("a") as log:
            log.write('{"at":"x","kind":"cancelled","left":1,"after_s":20.0}\n')
        replays.append(setting.folder)
        return {}

    monkeypatch.setattr("osub.demo.replay_under", replay)
    chosen, swf = demo.choose_trace(None, 1, 1, 25.0, 1), tmp_path / "t.swf"
    stage = demo.Stage(swf=swf, chosen=chosen, out=tmp_path, state=tmp_path / "c", nodes=1, cores=1)
    said: list[str] = []
    demo.replayed(demo.SETTINGS[0], stage, {}, 60.0, lambda *_: True, said.append)
    assert len(replays) == (1 if busy else 2)
    assert "the replay was cancelled after 20 s, when 1 of 1 job had not ended" in said[0]
    assert ("others used 75%" in said[0]) is busy


@pytest.mark.parametrize("code", [0, 1, 130])
def test_a_setting_in_containers_is_replayed_by_the_command_and_its_cluster_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    seen: list[object] = []

    class Cluster:
        def __init__(self, folder: Path) -> None:
            self.folder = folder

        def up(self, engine: EngineName, shape: Shape, _: object) -> None:
            seen.append((engine, shape.multiplicity, shape.gang))

        def down(self) -> None:
            seen.append("down")

    def forward(state: Path, _: object, inputs: object, out: Path, words: list[str]) -> int:
        assert words[:6] == ["replay", str(tmp_path / "t.swf"), "--cluster", str(state), "--out", str(out)]
        assert {"--no-memory", "--most-s", "--block-jobs"} <= set(words)
        assert inputs == (tmp_path / "t.swf", tmp_path / "apps.csv")
        real_run(out, JOBS, 1)
        return code

    monkeypatch.setattr("osub.physical.cluster_provider.ComposeCluster", Cluster)
    monkeypatch.setattr("osub.live.forward.forward_replay", forward)
    stage = demo.Stage(
        swf=tmp_path / "t.swf", chosen=demo.choose_trace(None, 2, 1, 60.0, 1), out=tmp_path,
        state=tmp_path / "c", nodes=2, cores=1, engine=EngineName.DOCKER,
    )  # fmt: skip
    ends: dict[int, AbstractContextManager[object]] = {
        0: nullcontext(),
        1: pytest.raises(ClusterError),
        130: pytest.raises(KeyboardInterrupt),
    }
    with ends[code]:
        demo.replay_under(demo.SETTINGS[2], stage, {}, 60.0, lambda *_: True)
    assert seen == [(EngineName.DOCKER, 2, GangKind.OSUB), "down"]


def test_a_demo_whose_images_cannot_be_built_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeEngine(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def cannot(*_: object, **__: object) -> None:
        raise ClusterError("the image cannot be built")

    monkeypatch.setattr("osub.demo.ensure_images", cannot)
    with pytest.raises(ClusterError, match="cannot be built"):
        demo.demonstrate(
            None, tmp_path / "demo", seconds=60.0, seed=1, lenient=False, say=lambda _: None,
            begin=lambda _: None, watch=lambda *_: True, engine_name=EngineName.DOCKER,
            hear=lambda _: nullcontext(),
        )  # fmt: skip
    assert not (tmp_path / "demo").exists()


SIMULATED_JOBS: list[Row] = [
    ("batch", 0, 0.2, 1.2, 12.2, 10, "0"),
    ("batch", 1, 1.2, 2.2, 23.2, 20, "1"),
    ("batch", 2, 2.2, 13.2, 34.2, 20, "0"),
]

GANGS = {
    "m2-gangd": GangSettings(kind="osub", quantum_ms=250),
    "m2-slurm": GangSettings(kind="slurm", quantum_ms=5000),
}


def demo_runs(out: Path) -> list[Run]:
    return [
        real_run(
            out / setting.folder,
            SIMULATED_JOBS,
            setting.multiplicity,
            GANGS.get(setting.folder),
            setting.label,
        )
        for setting in demo.SETTINGS
    ]


@pytest.mark.slow
def test_every_setting_is_simulated_with_the_latencies_of_the_first(tmp_path: Path) -> None:
    said: list[str] = []
    compared = demo.simulate_all(demo_runs(tmp_path), tmp_path, said.append)
    assert said == []
    assert [other.info.label for _, other in compared] == [
        "M=1 (sim)",
        "M=2 naive (sim)",
        "M=2 gangd (sim)",
        "M=2 Slurm gang (sim)",
    ]
    assert [other.info.multiplicity for _, other in compared] == [1, 2, 2, 2]
    assert [other.info.gang.quantum_ms for _, other in compared] == [None, None, 250, 5000]
    assert all(other.info.options["launch_serial_s"] == 1 for _, other in compared)
    real, alone = compared[0]
    assert alone.jobs["start_s"].to_list() == real.jobs["start_s"].to_list()
    assert alone.info.trace_name == real.info.trace_name


@pytest.mark.slow
def test_a_second_demo_replaces_the_simulations_of_the_first(tmp_path: Path) -> None:
    runs = demo_runs(tmp_path)[:2]
    demo.simulate_all(runs, tmp_path, lambda _: None)
    assert len(demo.simulate_all(runs, tmp_path, lambda _: None)) == 2


@pytest.mark.slow
def test_a_setting_that_cannot_be_simulated_is_left_out_and_reported(tmp_path: Path) -> None:
    runs = demo_runs(tmp_path)[:2]
    (tmp_path / "m1-sim").mkdir()
    said: list[str] = []
    assert len(demo.simulate_all(runs, tmp_path, said.append)) == 1
    assert len(said) == 1
    assert "m1-sim" in said[0]
