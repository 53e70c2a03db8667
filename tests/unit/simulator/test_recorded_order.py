"""``osub simulate --order-of RUN``: jobs start as a real Slurm started them, whatever their run times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foundation.errors import InputError, UsageError
from osub import simulate
from simulator.fit import Decision, order_of
from tests.fixtures.real_runs import Row, real_run

# Kind, due, submitted, start, end, dedicated; cores of the only node, which has two.
ROWS: list[Row] = [
    ("batch", 0, 0.1, 0.6, 10.6, 10, "0"),
    ("batch", 1, 1.1, 11.1, 20.0, 9, "0-1"),  # waits for the first
    ("batch", 2, 2.1, 2.5, 8.5, 6, "1"),  # overtakes the second
    ("batch", 3, 3.1, 20.7, 30.7, 10, "1"),
    ("batch", 4, 4.1, 20.6, 29.8, 9, "0"),  # of the same pass: its stamp was quicker
]
ORDER = [(1, False), (3, False), (3, True), (1, True), (2, False), (2, True), (4, False), (5, False)]


def test_the_order_of_starts_and_ends_is_read_from_a_run(tmp_path: Path) -> None:
    order = order_of(real_run(tmp_path / "r", ROWS))
    assert order == tuple(Decision(*one) for one in [*ORDER, (5, True), (4, True)])


def test_jobs_start_in_the_order_of_the_run_and_after_the_same_ends(tmp_path: Path) -> None:
    """Jobs 2 and 3 are as long as each other now: the policy alone would start job 2 behind job 4."""
    run = real_run(tmp_path / "r", ROWS)
    simulated = simulate(run.path, "N1C2", order_of=run.path, out=tmp_path / "s")
    jobs = {row["trace_job"]: row for row in simulated.jobs.to_dicts()}
    assert sorted(jobs, key=lambda job: (jobs[job]["start_s"], job)) == [1, 3, 2, 4, 5]
    assert jobs[2]["start_s"] == jobs[1]["end_s"] == 10
    assert jobs[4]["start_s"] == jobs[5]["start_s"] == jobs[2]["end_s"]
    assert (simulated.info.policy, simulated.info.options["order_of"]) == ("order-of", "real")


def test_jobs_that_the_run_has_not_started_come_last(tmp_path: Path) -> None:
    run = real_run(tmp_path / "r", ROWS)
    part = real_run(tmp_path / "part", ROWS[:1])
    jobs = simulate(run.path, "N1C2", order_of=part.path, out=tmp_path / "s").jobs.sort("start_s")
    assert jobs["trace_job"].to_list() == [1, 2, 3, 4, 5] or jobs["trace_job"][0] == 1


def test_with_slices_the_order_is_the_same(tmp_path: Path) -> None:
    run = real_run(tmp_path / "r", ROWS, multiplicity=2)
    done = simulate(run.path, "N1C2", multiplicity=2, quantum_ms=250, order_of=run.path, out=tmp_path / "s")
    starts = dict(done.jobs.select("trace_job", "start_s").iter_rows())
    assert starts[1] < starts[3] < starts[2] <= starts[4] == starts[5]


@pytest.mark.parametrize(
    "words",
    [
        {"policy": "malleable-avg"},
        {"policy": "timeshare"},
        {"queues": "mq", "interactive_nodes": 1, "system": "N2C2"},
        {"mtbf": 10.0},
    ],
)
def test_what_an_order_cannot_replace_is_refused(tmp_path: Path, words: dict[str, Any]) -> None:
    run = real_run(tmp_path / "r", ROWS)
    with pytest.raises(UsageError, match="place of a policy in one queue"):
        simulate(run.path, **{"system": "N1C2", **words}, order_of=run.path, out=tmp_path / "s")


def test_a_run_that_reports_no_order_of_these_jobs_is_refused(tmp_path: Path) -> None:
    run = real_run(tmp_path / "r", ROWS)
    simulated = simulate(run.path, "N1C2", out=tmp_path / "s")
    with pytest.raises(InputError, match="is a simulation"):
        simulate(run.path, "N1C2", order_of=simulated.path)
    other = tmp_path / "other.swf"
    other.write_text("; Version: 2.2\n77 0 -1 5 1 -1 -1 1 9 -1 1 1 1 -1 1 -1 -1 -1\n")
    with pytest.raises(InputError, match="has started none of"):
        simulate(other, "N1C2", order_of=run.path)
