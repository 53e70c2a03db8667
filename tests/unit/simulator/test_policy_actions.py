"""Actions of policies besides starts: they work through the whole chain; an impossible one is one line."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from osub.cli.main import run
from tests.fixtures.cli import Cli
from tests.fixtures.swf_jobs import write_jobs

MAKE_WAY = Path(__file__).parents[3] / "docs" / "examples" / "make_way.py"

# number, submit, run, processors
JOBS = [(1, 0, 20_000, 4), (2, 10, 15_000, 4), (3, 20, 100, 4), (4, 30, 60, 2), (5, 9_000, 50, 8)]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_jobs(tmp_path / "five.swf", JOBS)


def words_of(trace: Path, out: Path, *words: str, system: str = "N4C2") -> list[str]:
    return ["simulate", str(trace), "--system", system, "--out", str(out), *words]


def refused(cli: Cli, trace: Path, out: Path, *words: str, code: int = 1) -> str:
    """Simulate what must fail; return its only line."""
    message = cli.said(*words_of(trace, out, *words), code=code)
    assert not out.exists()
    return message


@pytest.mark.slow
def test_the_documented_policy_goes_through_the_whole_chain(trace: Path, tmp_path: Path, cli: Cli) -> None:
    cli(*words_of(trace, tmp_path / "way", "--policy", f"{MAKE_WAY}:MakeWay", "--set", "patience_s=60"))
    cli(*words_of(trace, tmp_path / "fcfs", "--policy", "fcfs"))
    jobs = {row["trace_job"]: row for row in pl.read_parquet(tmp_path / "way" / "jobs.parquet").to_dicts()}
    assert jobs[3]["start_s"] == 200  # waited for 60 s from 20 s on, then for the warning of job 1
    assert jobs[1]["preemptions"] == 2  # for job 3, and for job 5
    rows = pl.read_parquet(tmp_path / "way" / "allocations.parquet").filter(pl.col("job") == 1)
    assert rows.get_column("why").to_list() == ["start", "checkpoint", "checkpoint"]
    assert (rows.get_column("to_s") - rows.get_column("from_s")).sum() == 20_000 + 2 * 120
    page = tmp_path / "page.html"
    assert run(["report", str(tmp_path / "way"), "--html", str(page)]) == 0
    assert page.stat().st_size > 10_000
    assert run(["compare", str(tmp_path / "way"), str(tmp_path / "fcfs")]) == 0


@pytest.mark.parametrize("check", [[], ["--check"]], ids=["plain", "checked"])
def test_jobs_go_on_from_their_checkpoint_when_a_node_has_failed(
    trace: Path, tmp_path: Path, cli: Cli, check: list[str]
) -> None:
    (tmp_path / "down.csv").write_text("node,down_s,up_s\nn1,5000,5100\n")
    words = ["--failures", str(tmp_path / "down.csv"), "--checkpoint-interval", "1000", *check]
    cli(*words_of(trace, tmp_path / "run", *words, "--checkpoint-cost", "10"))
    jobs = pl.read_parquet(tmp_path / "run" / "jobs.parquet").sort("trace_job")
    # job 1 saves after 1000, 2010, 3020, 4030 s (10 s each); what it did from 4040 s on is lost
    assert jobs.get_column("wasted_s").to_list() == [960, 0, 0, 0, 0]
    assert jobs.get_column("state").unique().to_list() == ["COMPLETED"]
    rows = pl.read_parquet(tmp_path / "run" / "allocations.parquet")
    assert rows.filter(pl.col("job") == 1).get_column("to_s").to_list()[0] == 5000
    assert rows.filter(pl.col("job") == 1).get_column("why").to_list() == ["start", "checkpoint"]


@pytest.mark.parametrize(
    ("how", "state", "wasted_s"), [("scratch", "COMPLETED", 5000.0), ("give-up", "NODE_FAIL", 960.0)]
)
def test_jobs_start_from_nothing_or_are_given_up_when_a_node_has_failed(
    trace: Path, tmp_path: Path, cli: Cli, how: str, state: str, wasted_s: float
) -> None:
    (tmp_path / "down.csv").write_text("node,down_s,up_s\nn1,5000,5100\n")
    words = [
        "--failures", str(tmp_path / "down.csv"), "--checkpoint-interval", "1000",
        "--after-failure", how,
    ]  # fmt: skip
    cli(*words_of(trace, tmp_path / "run", *words, "--checkpoint-cost", "10"))
    job = pl.read_parquet(tmp_path / "run" / "jobs.parquet").filter(pl.col("trace_job") == 1).to_dicts()[0]
    assert (job["state"], job["wasted_s"]) == (state, 4960.0 if how == "scratch" else wasted_s)


@pytest.mark.slow
def test_failures_drawn_with_the_same_seed_give_the_same_bytes(trace: Path, tmp_path: Path, cli: Cli) -> None:
    for name, seed in (("one", "3"), ("again", "3"), ("other", "4")):
        cli(*words_of(trace, tmp_path / name, "--mtbf", "3", "--repair", "0.1", "--seed", seed))
    one, again, other = (
        (tmp_path / name / "allocations.parquet").read_bytes() for name in ("one", "again", "other")
    )
    assert one == again
    assert one != other


def test_a_node_that_never_comes_back_is_reported(trace: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "down.csv").write_text("node,down_s,up_s\nn1,5,\n")
    message = refused(cli, trace, tmp_path / "run", "--failures", str(tmp_path / "down.csv"))
    assert "1 job never ends: too few nodes come back for one that asks for 4 nodes" in message


WRONG = {
    "starts it twice": (
        "context.start(job) and context.start(job)",
        "job 1 runs: the policy cannot start it",
    ),
    "resizes a rigid job": (
        "context.start(job) and context.resize(job, 1)",
        "job 1 is rigid and cannot be resized",
    ),
    "a size it has not": ("context.start(job, 1)", "job 1 runs on 2 nodes, not on 1"),
    "no such node": ("context.start(job, on={7: [0, 1], 8: [0, 1]})", "there is no node 7"),
    "cores twice": ("context.start(job, on={0: [0, 0], 1: [0, 1]})", "asks for 2 with a free slot"),
    "too few nodes": ("context.start(job, on={0: [0, 1]})", "job 1 runs on 2 nodes, not on 1"),
    "taken cores": (
        "context.start(job, on={0: [0, 1], 1: [0, 1]})",
        "job 2 cannot be given the cores [0, 1] of node 0",
    ),
    "a reserved node": (
        (
            "context.waiting[1:] and (context.reserve([0], job), "
            "context.start(context.waiting[1], on={0: [0, 1], 1: [0]}))"
        ),
        "job 2 cannot be given node 0, which is reserved for job 1",
    ),
    "a drained node": (
        "(context.drain(0), context.start(job, on={0: [0, 1], 1: [0, 1]}))",
        "node 0, which is drained",
    ),
    "reserves it twice": (
        "(context.reserve([0], job), context.reserve([0], job))",
        "it is reserved for job 1",
    ),
    "releases what is not its": ("context.release(job, [0])", "job 1 has no reservation of node 0"),
    "preempts who waits": (
        "context.preempt(job, Preemption.KILL)",
        "job 1 waits: the policy cannot preempt it",
    ),
    "an odd warning": (
        "context.start(job) and context.preempt(job, Preemption.KILL, warning_us=5)",
        "job 1 cannot be warned for 5 us before it is preempted by kill",
    ),
    "resumes a waiting job": ("context.resume(job)", "job 1 waits: the policy cannot resume it"),
    "a timer in the past": ("context.set_timer(-1, 'tick')", "in the past"),
    "raises": ("[][1]", "raised IndexError: list index out of range"),
    "raises on many lines": ("int('one\\ntwo')", "raised ValueError: invalid literal"),
    "starts no job": ("None", "job 1 waits for ever: nothing more happens"),
    "never resumes": (
        "context.start(job) and context.preempt(job, Preemption.SUSPEND)",
        "job 1 is suspended for ever",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_policy_cannot_do_is_one_line_that_names_policy_and_job(
    name: str, trace: Path, tmp_path: Path, cli: Cli
) -> None:
    code, reported = WRONG[name]
    (policy := tmp_path / "wrong.py").write_text(
        "from simulator.policy_interface import Preemption\n"
        "class Wrong:\n"
        "    def schedule(self, context):\n"
        "        for job in list(context.waiting):\n"
        f"            {code}\n"
    )
    message = refused(cli, trace, tmp_path / "run", "--policy", f"{policy}:Wrong")
    assert message.startswith(f"osub: policy {policy}:Wrong, at ")
    assert reported in message


@pytest.mark.parametrize(
    ("words", "expected_message"),
    [
        ("--policy easy --set depth=3", "policy easy has no option 'depth'"),
        ("--policy easy --set depth", "--set takes NAME=VALUE"),
        ("--policy easy --set a=1 --set a=2", "--set gives a twice"),
        ("--mtbf 0", "--mtbf is 0.001 to 1e+09 hours"),
        ("--mtbf 5 --repair -1", "--repair is a positive number"),
        ("--mtbf 5 --failures x.csv", "do not go together"),
        ("--mtbf 5 --slices 250", "nodes do not fail in a run with --slices"),
        ("--mtbf 5 --after-failure pray", "--after-failure takes checkpoint, scratch, give-up"),
        ("--checkpoint-interval 0", "--checkpoint-interval is positive"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    words: str, expected_message: str, trace: Path, tmp_path: Path, cli: Cli
) -> None:
    assert expected_message in refused(cli, trace, tmp_path / "run", *words.split(), code=2)


def test_the_policies_are_listed_with_one_line_each(cli: Cli) -> None:
    lines = cli("simulate", "--policies").out.splitlines()
    assert any(line.startswith("easy: ") for line in lines)


@pytest.mark.slow
def test_two_pools_run_on_one_time_line_and_see_each_other(trace: Path, tmp_path: Path, cli: Cli) -> None:
    (policy := tmp_path / "nosy.py").write_text(
        "class Nosy:\n"
        "    def schedule(self, context):\n"
        "        assert set(context.pools) == {'batch', 'interactive'}\n"
        "        assert {pool.now_us for pool in context.pools.values()} == {context.now_us}\n"
        "        while context.waiting and context.start(context.waiting[0]):\n"
        "            pass\n"
    )
    mixed = tmp_path / "mixed.swf"
    lines = trace.read_text().splitlines()
    mixed.write_text(
        "\n".join([*lines[:3], *(line.replace(" 1 -1 -1 -1", " 0 -1 -1 -1") for line in lines[3:])])
    )
    options = ["--queues", "mq", "--interactive-nodes", "2", "--oversize", "clip"]
    cli(*words_of(mixed, tmp_path / "nosy", "--policy", f"{policy}:Nosy", *options))
    cli(*words_of(mixed, tmp_path / "fcfs", "--policy", "fcfs", *options))
    same = [(tmp_path / name / "jobs.parquet").read_bytes() for name in ("nosy", "fcfs")]
    assert pl.read_parquet(same[0]).get_column("end_s").equals(pl.read_parquet(same[1]).get_column("end_s"))
