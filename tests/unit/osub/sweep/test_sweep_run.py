"""A sweep runs each point once, whatever happens to its processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from foundation.records.records_folder import FolderLock
from osub.sweep.dask_points import Dask
from osub.sweep.page import _charts
from osub.sweep.points import Outcome, Point, point_of
from osub.sweep.run import SweepStore, run_sweep
from osub.sweep.spec import Parameters
from osub.sweep.tune import Goal, Tried, gain_over_seeds, kept, tune, under
from osub.sweep.workers import Processes
from tests.fixtures import sweep_work
from tests.fixtures.cli import Cli

pytestmark = pytest.mark.slow

SWF = "".join(
    f"{number} {10 * number} -1 {30 + 7 * (number % 5)} {1 + number % 3} -1 -1 -1 200 -1 1 {number % 4} "
    "1 -1 1 -1 -1 -1\n"
    for number in range(1, 41)
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (path := tmp_path / "log.swf").write_text(f"; MaxProcs: 4\n{SWF}")
    return path


def points_of(trace: Path, several: int = 5) -> list[Point]:
    return [
        point_of({"trace": str(trace), "system": "N2C2", "multiplicity": number})
        for number in range(1, several + 1)
    ]


def test_a_process_that_ends_leaves_the_files_of_the_others(trace: Path, tmp_path: Path) -> None:
    team = Processes(sweep_work.outlasts_the_first, 2)
    assert run_sweep(points_of(trace, 2), SweepStore(tmp_path / "out"), team).failures == {}


def test_what_is_done_is_not_done_again(trace: Path, tmp_path: Path) -> None:
    store = SweepStore(tmp_path / "out")
    left_s: list[float | None] = []
    team = Processes(sweep_work.counts, 2)
    first = run_sweep(points_of(trace, 3), store, team, watch=lambda _, seconds: left_s.append(seconds))
    assert (first.total, first.known, first.done, first.failures) == (3, 0, 3, {})
    again = run_sweep(points_of(trace, 5), store, team)
    assert (again.total, again.known, again.done) == (5, 3, 2)
    assert sorted((tmp_path / "calls").read_text().split()) == ["1", "2", "3", "4", "5"]
    assert again.table["multiplicity"].to_list() == [1, 2, 3, 4, 5]
    assert pl.read_parquet(tmp_path / "out" / "points.parquet").equals(again.table)
    assert (left_s[0], left_s[-1]) == (None, 0.0)


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (sweep_work.refuses_three, "three is not to be had"),
        (sweep_work.raises_at_three, "InputError: the file went away"),
        (sweep_work.dies_at_three, "its process was killed, or ran out of memory"),
    ],
)
def test_a_point_that_fails_takes_no_other_with_it(
    trace: Path, tmp_path: Path, work: Callable[[Parameters], Outcome], why: str
) -> None:
    store = SweepStore(tmp_path / "out")
    points = points_of(trace)
    sweep = run_sweep(points, store, Processes(work, 2))
    assert (sweep.done, sweep.failures) == (4, {points[2].key: why})
    (failed,) = json.loads((tmp_path / "out" / "failed.json").read_text())
    assert (failed["why"], failed["parameters"]["multiplicity"]) == (why, 3)
    mended = run_sweep(points, store, Processes(sweep_work.figures, 2))
    assert (mended.known, mended.done, mended.failures) == (4, 1, {})
    assert not (tmp_path / "out" / "failed.json").exists()


def test_a_point_whose_process_dies_once_is_done_in_the_end(trace: Path, tmp_path: Path) -> None:
    sweep = run_sweep(points_of(trace), SweepStore(tmp_path / "out"), Processes(sweep_work.dies_once, 2))
    assert (sweep.done, sweep.failures) == (5, {})


def test_a_worker_whose_answer_is_not_read_leaves_no_folder(tmp_path: Path) -> None:
    scratch = tmp_path / "osub-sweep-x" / "0"
    words = [sys.executable, "-m", "osub.sweep.worker", f"{__name__}:_double", str(scratch)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdout.close()
        worker.stdin.write("{}\n")
        worker.stdin.flush()
        time.sleep(3)  # it answers meanwhile, unless the host is very busy
        worker.stdin.close()
        assert worker.wait(60) == 0
    assert not scratch.parent.exists()


def _double(parameters: dict[str, object]) -> dict[str, object]:
    return {**parameters, "double": True}


def test_a_killed_sweep_loses_no_finished_point(trace: Path, tmp_path: Path, cli: Cli) -> None:
    out, spec = tmp_path / "out", tmp_path / "sweep.toml"
    seeds = list(range(400))
    spec.write_text(
        f'[base]\ntrace = "log.swf"\nsystem = "N2C2"\nnode_noise = 0.1\nmultiplicity = 2\n'
        f"[grid]\nseed = {seeds}\n"
    )
    words = [sys.executable, "-m", "osub.cli.main", "sweep", str(spec), "--out", str(out), "--workers", "1"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as sweep:
        limit = time.monotonic() + 240
        while len(list((out / "points").glob("*.json"))) < 3 and time.monotonic() < limit:
            time.sleep(0.05)
        sweep.send_signal(signal.SIGKILL)
    done = list((out / "points").glob("[0-9a-f]*.json"))
    assert 3 <= len(done) < 400
    kept = {path.name: path.stat().st_mtime_ns for path in done}
    spec.write_text(spec.read_text().replace(str(seeds), str(seeds[: len(done) + 5])))
    cli("sweep", spec, "--out", out, "--workers", "1")
    after = {path.name: path.stat().st_mtime_ns for path in (out / "points").glob("*.json")}
    assert all(after[name] == stamp for name, stamp in kept.items())
    assert pl.read_parquet(out / "points.parquet").height == len(done) + 5


@pytest.mark.usefixtures("trace")
def test_the_command_simulates_and_draws(tmp_path: Path, cli: Cli) -> None:
    (spec := tmp_path / "sweep.toml").write_text(
        '[base]\ntrace = "log.swf"\nsystem = "N2C2"\n'
        "[grid]\nmultiplicity = [1, 2, 9]\noverhead = [1.0, 1.2]\n"
    )
    page = tmp_path / "page.html"
    words = ["sweep", str(spec), "--out", str(tmp_path / "out"), "--workers", "1"]
    assert "6 points, 0 of them done; 6 to run" in cli(*words, "--dry-run").out
    document = json.loads(cli(*words, "--html", page, "--json", code=1).out)
    assert (document["points"], document["done"], document["failed"]) == (6, 4, 2)
    assert document["wall_s"] > 0
    table = pl.read_parquet(tmp_path / "out" / "points.parquet")
    alone = table.filter(multiplicity=1)
    assert alone["degradation_mean"].to_list() == [1.0, 1.0]
    assert table.filter(multiplicity=2)["wait_mean_s"].max() < alone["wait_mean_s"].min()  # type: ignore[operator]
    assert "choose 1 to 8" in (tmp_path / "out" / "failed.json").read_text()
    text = page.read_text()
    assert "mean wait (s) over multiplicity" in text
    assert "6 points" not in text
    assert "Least waiting in every scenario" in text
    assert "4 known, 0 run" in cli(*words, code=1).out


def test_a_page_distinguishes_settings_before_their_repeats(trace: Path, tmp_path: Path) -> None:
    points = [
        {"seed": seed, "multiplicity": jobs, "policy": policy, "wait_mean_s": 1.0, "degradation_mean": 1.0}
        for seed in (1, 2)
        for jobs in (1, 2)
        for policy in ("easy", "fcfs")
    ]
    drawn = _charts(pl.DataFrame(points), ["seed", "multiplicity", "policy"])
    (_, _, waits) = next(one for one in drawn if one[0] == "mean wait (s) over multiplicity")
    assert list(waits.layout.xaxis.tickvals) == [1, 2]
    assert {line.name for line in waits.data} == {"easy", "fcfs"}


def test_tuning_finds_what_a_whole_grid_finds(trace: Path, tmp_path: Path) -> None:
    choices = {"multiplicity": (1, 2, 3, 4, 5, 6)}
    base: Parameters = {"trace": str(trace), "system": "N2C2"}
    for most, best in ((2.5, 2), (4.0, 4), (99.0, 6)):
        goal = Goal(figure="wait", most_degradation=most)
        found = tune(base, choices, goal, SweepStore(tmp_path / "out"), sweep_work.figures, trials=20, seed=1)
        assert found[0].parameters["multiplicity"] == best
        assert len(found) <= 6


def test_the_best_setting_is_looked_for_again_under_another_overhead(trace: Path, tmp_path: Path) -> None:
    store, goal = SweepStore(tmp_path / "out"), Goal(figure="wait", most_degradation=99)

    def work(parameters: Parameters) -> Outcome:
        shared, overhead = int(parameters["multiplicity"]), float(parameters["overhead"])
        luck = int(parameters.get("seed", 0)) * float(parameters.get("node_noise", 0))
        return {"wait_mean_s": 10 - shared * (1.3 - overhead) + luck, "degradation_mean": float(shared)}

    def run(parameters: Parameters) -> Tried:
        return kept(parameters, store, work)

    base: Parameters = {"trace": str(trace), "system": "N2C2", "overhead": 1.2}
    found = tune(base, {"multiplicity": (1, 2)}, goal, store, work, trials=9, seed=1)
    assert found[0].parameters["multiplicity"] == 2
    other = under(found, {"overhead": 1.4}, goal, run)
    assert [one.parameters["multiplicity"] for one in other] == [1, 2]
    gain = gain_over_seeds(found[0], found[1], 3, goal, run)
    assert gain is not None
    assert gain.mean == pytest.approx(-0.1)
    assert gain.count == 3
    assert gain.low == pytest.approx(gain.high)  # seeds are shared, so that their luck is none of the gain


def test_the_tuning_command_answers_and_says_when_nothing_is_mild_enough(
    trace: Path, tmp_path: Path, cli: Cli
) -> None:
    words = ["sweep", "tune", str(trace), "--system", "N2C2", "--out", str(tmp_path / "out")]
    mild = [*words, "--multiplicity", "1,2", "--most-degradation"]
    document = cli.json(*mild, "9", "--json")
    assert document["best"] == {"multiplicity": 2}
    assert [one["overhead"] for one in document["scenarios"]] == [1.0, 1.4]
    assert (document["gain_over_seeds"]["count"], len(document["tried"])) == (5, 2)
    answer = " ".join(cli(*mild, "1").out.split())
    assert "Best of 2 settings, assuming C_o = 1.2: M=1. Jobs wait on average " in answer
    assert (
        "what is better slows running jobs more than 1 times (--most-degradation): M=2, the mildest" in answer
    )
    answer = " ".join(cli(*mild, "9").out.split())
    assert re.search(
        r"Best of 2 .*, assuming C_o = 1\.2: M=2\. Jobs wait on average [\d.]+ s instead of [\d.]+ s at M=1",
        answer,
    )
    assert "Slurm does it with OverSubscribe=FORCE:2" in answer
    for wrong, why in (
        (["--multiplicity", "x"], "takes whole numbers with commas"),
        (["--goal", "money"], "choose wait"),
        (["--most-degradation", "0.5"], "1 or more"),
        (["--seed", "-1"], "seed"),
        (["--overhead", "0.9"], "numbers from 1 on"),
        (["--overhead", "1.2,x"], "numbers from 1 on"),
        (["--seeds", "0"], "seeds"),
    ):
        assert why in cli.said(*words, *wrong, code=2)


def test_where_nothing_is_mild_enough_json_names_no_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    found = [Tried({"multiplicity": 1}, {"wait_mean_s": 5.0, "degradation_mean": 1.4})]
    monkeypatch.setattr("osub.sweep.tune.tune", lambda *_, **__: found)
    monkeypatch.setattr("osub.sweep.tune.under", lambda *_: found)
    words = ["sweep", "tune", "t.swf", "--system", "N2C2", "--out", str(tmp_path / "out")]
    output = cli(*words, "--most-degradation", "1.2", "--json", code=1)
    assert json.loads(output.out)["best"] is None
    assert "the mildest has 1.4" in output.err


def test_ctrl_c_says_what_is_kept_and_one_sweep_at_a_time_has_a_folder(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    out, spec = tmp_path / "out", tmp_path / "sweep.toml"
    spec.write_text(f'[base]\ntrace = "{trace.name}"\nsystem = "N2C2"\n[grid]\nmultiplicity = [1, 2, 3]\n')
    words = ["sweep", str(spec), "--out", str(out)]
    with FolderLock(SweepStore(out).folder):
        assert "another process is writing" in cli.said(*words, code=1)
        assert cli.json(*words, "--dry-run", "--json") == {"points": 3, "known": 0, "to_run": 3}

    def one_point(self: Processes, points: list[Point]) -> Iterator[tuple[Point, Outcome]]:
        yield points[0], sweep_work.figures(points[0].parameters)
        raise KeyboardInterrupt

    monkeypatch.setattr(Processes, "run", one_point)
    said = cli(*words, code=130).err
    assert "osub: interrupted: 1 of 3 points are done and kept; the same command goes on where it was" in said
    assert pl.read_parquet(out / "points.parquet").height == 1


@pytest.fixture
def dask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a scheduler with one worker, both processes of their own."""
    pytest.importorskip("distributed", reason="needs osub[sweep]")
    where, scratch = tmp_path / "scheduler.json", tmp_path / "scratch"
    monkeypatch.setenv("DASK_TEMPORARY_DIRECTORY", str(scratch))
    schedules = (
        "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file",
        where,
    )  # fmt: skip
    works = (
        *("worker", "--scheduler-file", where, "--nworkers", "1", "--nthreads", "1"),
        *("--no-nanny", "--no-dashboard", "--local-directory", scratch),
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "dask", *map(str, words)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for words in (schedules, works)
    ]
    try:
        limit = time.monotonic() + 60
        while not where.exists() and time.monotonic() < limit:
            time.sleep(0.05)
        yield where
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(30)


def test_dask_runs_points_and_their_deaths_are_theirs(trace: Path, tmp_path: Path, dask: Path) -> None:
    store = SweepStore(tmp_path / "out")
    points = points_of(trace)
    sweep = run_sweep(points, store, Dask(sweep_work.raises_at_three, str(dask)))
    assert (sweep.done, sweep.failures) == (4, {points[2].key: "InputError: the file went away"})
    again = run_sweep(points, store, Dask(sweep_work.figures, str(dask)))
    assert (again.known, again.done, again.failures) == (4, 1, {})


def test_a_killed_sweep_on_dask_loses_no_finished_point(
    trace: Path, tmp_path: Path, dask: Path, cli: Cli
) -> None:
    out, spec = tmp_path / "out", tmp_path / "sweep.toml"
    spec.write_text(
        f'[base]\ntrace = "{trace.name}"\nsystem = "N2C2"\nnode_noise = 0.1\nmultiplicity = 2\n'
        f"[grid]\nseed = {list(range(400))}\n"
    )
    words = ["sweep", str(spec), "--out", str(out), "--dask", str(dask)]
    command_line = [sys.executable, "-m", "osub.cli.main", *words]
    with subprocess.Popen(command_line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as sweep:
        limit = time.monotonic() + 120
        while len(list((out / "points").glob("[0-9a-f]*.json"))) < 3 and time.monotonic() < limit:
            time.sleep(0.05)
        sweep.send_signal(signal.SIGKILL)
    kept = {path.name: path.stat().st_mtime_ns for path in (out / "points").glob("[0-9a-f]*.json")}
    assert 3 <= len(kept) < 400
    spec.write_text(spec.read_text().replace(str(list(range(400))), str(list(range(len(kept) + 3)))))
    cli(*words)
    after = {path.name: path.stat().st_mtime_ns for path in (out / "points").glob("[0-9a-f]*.json")}
    assert all(after[name] == stamp for name, stamp in kept.items())
    assert pl.read_parquet(out / "points.parquet").height == len(kept) + 3
