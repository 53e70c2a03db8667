"""``--policy timeshare`` and ``timeshare-batch``: rates, memory, backfilling, records, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
import typer
from click.testing import Result as Outcome
from typer.testing import CliRunner

from foundation.errors import InputError, OsubError, UsageError
from foundation.records import load_run
from osub.cli.simulate import simulate

app = typer.Typer()
app.command()(simulate)

Line = tuple[int, float, float, int, float]  # number, submission, run time, processors, requested time


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSUB_JIT", "0")


def write_trace(folder: Path, lines: list[Line], memory_kib: dict[int, int] | None = None) -> Path:
    path = folder / "small.swf"
    known = memory_kib or {}
    rows = [
        f"{number} {submit:g} -1 {run:g} {procs} -1 -1 {procs} {asked:g} {known.get(number, -1)} "
        "1 1 1 -1 1 -1 -1 -1"
        for number, submit, run, procs, asked in lines
    ]
    path.write_text("; Version: 2.2\n" + "\n".join(rows) + "\n")
    return path


def call(
    trace: Path, *words: str, policy: str = "timeshare", system: str = "N2C4", run: str = "run"
) -> Outcome:
    out = trace.parent / run
    return CliRunner().invoke(
        app, [str(trace), "--system", system, "--policy", policy, "--out", str(out), *words, "--json"]
    )


def jobs_of(
    trace: Path, *words: str, policy: str = "timeshare", system: str = "N2C4", run: str = "run"
) -> pl.DataFrame:
    done = call(trace, *words, policy=policy, system=system, run=run)
    assert done.exit_code == 0, (done.output, done.exception)
    return load_run(trace.parent / run).jobs.sort("trace_job")


def ends(
    trace: Path, *words: str, policy: str = "timeshare", system: str = "N2C4", run: str = "run"
) -> list[float]:
    return jobs_of(trace, *words, policy=policy, system=system, run=run)["end_s"].to_list()


def test_jobs_on_a_node_share_it_and_go_on_alone_when_the_other_has_ended(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, [(1, 0, 100, 4, 100), (2, 50, 20, 4, 20)])
    assert ends(trace, system="N1C4") == [120, 90]


def test_a_job_is_as_fast_as_its_slowest_node_and_leaves_the_rest_to_others(tmp_path: Path) -> None:
    """The paper's example: job 1 has a node with two jobs and one with four; job 2 gets three quarters."""
    few: list[Line] = [(number, 1, 1000, 4, 1000) for number in (3, 4, 5)]
    lines: list[Line] = [(1, 0, 1000, 8, 1000), (2, 1, 30, 4, 30), *few]
    trace = write_trace(tmp_path, lines, {1: 25, 2: 212, 3: 15, 4: 15, 5: 15})
    jobs = jobs_of(trace, "--memory-gib", str(1000 / 1024**2), "--check")
    assert jobs["nodes"].to_list() == [2, 1, 1, 1, 1]
    assert jobs.filter(pl.col("trace_job") == 2)["end_s"].item() == 1 + 30 / 0.75


def test_jobs_that_are_not_spmd_use_every_share(tmp_path: Path) -> None:
    lines: list[Line] = [(1, 0, 75, 8, 75), (2, 0, 1000, 4, 1000)]
    trace = write_trace(tmp_path, lines)
    assert (ends(trace)[0], ends(trace, "--set", "jobs=any", run="any")[0]) == (150, 100)


def test_overhead_slows_every_job_even_alone(tmp_path: Path) -> None:
    assert ends(write_trace(tmp_path, [(1, 0, 87, 4, 100)]), "--set", "overhead=0.13") == [100]


def test_a_job_waits_until_there_is_memory_and_smaller_ones_pass(tmp_path: Path) -> None:
    lines: list[Line] = [(1, 0, 100, 4, 100), (2, 10, 10, 4, 10), (3, 20, 10, 4, 10)]
    trace = write_trace(tmp_path, lines, {1: 200, 2: 100, 3: 10})
    memory = ("--memory-gib", str(1000 / 1024**2))
    assert jobs_of(trace, *memory, system="N1C4")["start_s"].to_list() == [0, 110, 20]
    strict = jobs_of(trace, *memory, "--set", "queue=strict", system="N1C4", run="strict")
    assert strict["start_s"].to_list() == [0, 100, 100]


def test_memory_that_is_not_known_is_drawn_by_the_seed(tmp_path: Path) -> None:
    lines: list[Line] = [(number, number, 500, 4, 500) for number in range(1, 40)]
    trace = write_trace(tmp_path, lines)
    words = ("--set", "memory=0.3", "--set", "memory_spread=1")
    runs = [
        ends(trace, *words, "--seed", seed, system="N1C4", run=f"run-{place}")
        for place, seed in enumerate(("1", "1", "2"))
    ]
    assert runs[0] == runs[1] != runs[2]


def test_batch_backfills_who_asks_for_less_than_the_first_must_wait(tmp_path: Path) -> None:
    """Job 2 waits until 100 by the requests; of those behind, 3 asks for less than that and 4 for as long."""
    lines: list[Line] = [(1, 0, 80, 4, 100), (2, 10, 50, 8, 50), (3, 20, 30, 4, 79), (4, 20, 30, 4, 80)]
    trace = write_trace(tmp_path, lines)
    assert jobs_of(trace, policy="timeshare-batch")["start_s"].to_list() == [0, 80, 20, 130]
    plain = jobs_of(trace, "--set", "backfill=no", policy="timeshare-batch", run="plain")
    assert plain["start_s"].to_list() == [0, 80, 130, 130]


def test_capped_at_one_time_sharing_is_fcfs_job_by_job(tmp_path: Path) -> None:
    lines: list[Line] = [
        (number, 7 * number % 50, 10 + 13 * number % 40, 4 * (1 + number % 3), 100) for number in range(1, 40)
    ]
    trace = write_trace(tmp_path, lines)
    words = ("--set", "cap=1", "--set", "queue=strict")
    shared = jobs_of(trace, *words, system="N3C4", run="shared")
    batch = jobs_of(trace, "--set", "backfill=no", policy="timeshare-batch", system="N3C4", run="batch")
    fcfs = jobs_of(trace, policy="fcfs", system="N3C4", run="fcfs")
    for name in ("start_s", "end_s"):
        assert shared[name].to_list() == batch[name].to_list() == fcfs[name].to_list()


def test_in_ticks_submissions_are_rounded_and_jobs_end_at_their_ends(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, [(1, 0, 12, 4, 100), (2, 5, 3, 4, 100), (3, 14, 1, 4, 100)])
    jobs = jobs_of(trace, "--set", "tick=10", system="N3C4")
    assert (jobs["submit_s"].to_list(), jobs["end_s"].to_list()) == ([0, 10, 10], [20, 20, 20])


@pytest.mark.slow
def test_noise_slows_jobs_by_the_seed(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, [(1, 0, 1000, 8, 1000)])
    slow = ends(trace, "--set", "noise=0.5", "--set", "noise_least=0.5")
    again = ends(trace, "--set", "noise=0.5", "--set", "noise_least=0.5", run="again")
    any_jobs = ends(trace, "--set", "noise=0.5", "--set", "jobs=any", run="any")
    assert slow == again
    assert 1000 < any_jobs[0] < slow[0] < 2000


def test_the_run_reports_whole_nodes_and_the_most_jobs_on_one(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, [(1, 0, 100, 5, 100), (2, 0, 100, 1, 100), (3, 0, 100, 1, 100)])
    jobs = jobs_of(trace, "--check")
    info = load_run(tmp_path / "run").info
    assert (jobs["nodes"].to_list(), jobs["cores"].to_list()) == ([2, 1, 1], [8, 4, 4])
    assert jobs["placement"].to_list()[0] == [{"node": "n1", "cores": "0-3"}, {"node": "n2", "cores": "0-3"}]
    assert (info.multiplicity, info.policy, info.label) == (2, "timeshare", "N2C4 timeshare (sim)")
    assert "placement" not in info.options


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--multiplicity", "2"), "takes no --multiplicity"),
        (("--queues", "mq", "--interactive-nodes", "1"), "takes no --queues"),
        (("--node-noise", "0.1"), "takes no --node-noise"),
        (("--placement", "thesis"), "takes no --placement"),
        (("--mtbf", "100"), "takes no --mtbf"),
        (("--checkpoint-interval", "60"), "takes no --checkpoint-interval"),
        (("--set", "overhead=1"), "--set overhead takes a number from 0 to 0.9, not '1'"),
        (("--set", "cap=-1"), "--set cap takes a whole number from 0 to 1000, not '-1'"),
        (("--set", "queue=any"), "--set queue takes each, strict, not 'any'"),
    ],
)
def test_what_does_not_go_with_it_is_refused(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = call(write_trace(tmp_path, [(1, 0, 100, 4, 100)]), *words)
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("lines", "words", "message"),
    [
        ([(1, 0, 10, 4, 10), (7, 0, 10, 9, 10)], ("--oversize", "fail"), "job 7 of trace small asks for 9"),
        ([(1, 0, 10, 4, 10), (5, 0, 1e8, 4, 10)], (), "job 5: a run time (run_s) of 1e+08 s is too long"),
    ],
)
def test_a_job_that_cannot_be_is_named(
    tmp_path: Path, lines: list[Line], words: tuple[str, ...], message: str
) -> None:
    done = call(write_trace(tmp_path, lines), *words)
    assert isinstance(done.exception, InputError)
    assert isinstance(done.exception, OsubError)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not (tmp_path / "run").exists()


def test_jobs_too_large_are_skipped_or_clipped(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, [(1, 0, 10, 4, 10), (2, 0, 10, 9, 10)], {1: 10, 2: 10})
    assert json.loads(call(trace).stdout)["left_out"] == {"too large, skipped": 1}
    assert json.loads(call(trace, "--oversize", "clip", run="clipped").stdout)["jobs"] == 2


def test_memory_beyond_a_node_takes_more_nodes(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, [(1, 0, 10, 4, 10)], {1: 400})
    assert jobs_of(trace, "--memory-gib", str(1000 / 1024**2))["nodes"].to_list() == [2]
