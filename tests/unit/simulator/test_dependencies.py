"""SWF fields 17 and 18: a job that names a preceding one is submitted when its think time is over."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

import osub
from foundation.errors import UsageError
from workloads.swf.swf_columns import NOT_BEFORE, NOT_IN_TRACE

POLICY = """
class Plain:
    def schedule(self, context):
        for job in context.waiting:
            assert job.submit_us <= context.now_us
            if not context.start(job):
                return
"""


def trace_of(
    folder: Path, *jobs: tuple[int, int, int, int, int], queues: dict[int, int] | None = None
) -> Path:
    """Write jobs of (submit, run, processors, preceding, think)."""
    (path := folder / "jobs.swf").write_text(
        "".join(
            f"{number} {submit} -1 {run} {procs} -1 -1 {procs} {run} -1 1 1 1 1 "
            f"{(queues or {}).get(number, 1)} 1 {before} {think}\n"
            for number, (submit, run, procs, before, think) in enumerate(jobs, start=1)
        )
    )
    return path


def column(run: osub.Run, name: str) -> list[Any]:
    return run.jobs.sort("trace_job").get_column(name).to_list()


CHAIN = ((0, 10, 1, -1, -1), (1, 10, 1, 1, 5), (2, 10, 1, 2, 0), (3, 4, 1, -1, -1))


def test_a_job_comes_a_think_time_after_the_end_of_the_job_it_names(tmp_path: Path) -> None:
    run = osub.simulate(trace_of(tmp_path, *CHAIN), "N1C2", check=True)
    assert column(run, "submit_s") == [0, 15, 25, 3]
    assert column(run, "due_s") == [0, 15, 25, 3]
    assert column(run, "start_s") == [0, 15, 25, 3]
    assert (run.outcome["wait_mean_s"], run.info.options["dependent_jobs"]) == (0, 2)


@pytest.mark.parametrize(
    ("jobs", "system", "words", "submit_s", "left_out"),
    [
        # An unknown think time leaves the job its own submission, but not before that end.
        (
            ((0, 10, 1, -1, -1), (100, 10, 1, 1, 5), (100, 10, 1, 1, -1), (101, 10, 2, 3, -1)),
            "N1C1", {"oversize": "clip"}, [0, 15, 100, 110], {"too large, clipped": 1},
        ),
        (
            ((0, 10, 1, 3, 5), (1, 10, 1, 2, 5), (2, 10, 1, 1, -1), (3, 10, 1, 9, 5), (4, 10, 1, 0, 5)),
            "N5C1", {}, [0, 1, 10, 3, 4], {NOT_BEFORE: 2, NOT_IN_TRACE: 1},
        ),
        # A preceding job that never runs holds none back.
        (
            ((0, 10, 1, -1, -1), (1, 0, 1, 1, 5), (2, 10, 1, 2, 5), (3, 10, 9, 1, 5), (4, 10, 1, 4, 5)),
            "N2C1", {"oversize": "skip"}, [0, 2, 4],
            {
                "too large, skipped": 1, "without a run time": 1,
                "after a preceding job that is not simulated": 2,
            },
        ),
        # Queues of their own know nothing of each other.
        (
            ((0, 10, 1, -1, -1), (1, 10, 1, 1, 5), (2, 10, 1, 2, 5)), "N3C1",
            {"queues": "mq", "interactive_nodes": 1}, [0, 1, 16],
            {"after a preceding job in the other queue": 1},
        ),
        (CHAIN, "N1C2", {"dependencies": False}, [0, 1, 2, 3], {}),
        (CHAIN, "N1C2", {"speedup": 2}, [0, 7.5, 12.5, 1.5], {}),
    ],
)  # fmt: skip
def test_think_times_count_from_the_end_of_an_earlier_job(
    tmp_path: Path, jobs: tuple[Any, ...], system: str, words: dict[str, Any], submit_s: list[float],
    left_out: dict[str, int],
) -> None:  # fmt: skip
    trace = trace_of(tmp_path, *jobs, queues={1: 0} if "queues" in words else None)
    run = osub.simulate(trace, system, **words)
    assert column(run, "submit_s") == submit_s
    assert run.outcome["left_out"] == left_out
    assert "dependent_jobs" not in run.info.options or words.get("dependencies", True)


def test_of_a_real_cluster_the_submission_follows_the_real_end(tmp_path: Path) -> None:
    latency = tmp_path / "latency.json"
    latency.write_text(json.dumps({"submission_s": 0.5, "scheduling_s": 1.0, "release_s": 2.0}))
    run = osub.simulate(trace_of(tmp_path, *CHAIN), "N1C2", latency=latency)
    ends, dues = column(run, "end_s"), column(run, "due_s")
    assert dues[1] == ends[0] + 5
    assert dues[2] == ends[1] + 1.5  # the engine knows of an end when the cores are free, 2 s later
    assert column(run, "submit_s") == [due + 0.5 for due in dues]


def test_a_job_whose_node_failed_for_good_has_ended(tmp_path: Path) -> None:
    (tmp_path / "down.csv").write_text("node,down_s,up_s\nn1,5,6\n")
    run = osub.simulate(
        trace_of(tmp_path, *CHAIN[:2]), "N1C1", failures=tmp_path / "down.csv", after_failure="give-up"
    )
    assert column(run, "submit_s") == [0, 10]


def crowd(folder: Path, seed: int) -> Path:
    dice = Random(seed)
    jobs = [
        (
            dice.randint(0, 300),
            dice.randint(1, 30),
            dice.randint(1, 4),
            dice.choice((-1, dice.randint(0, 80))),
            0,
        )
        for _ in range(80)
    ]
    jobs.sort()
    return trace_of(folder, *((*job[:4], dice.choice((-1, 0, 0, 7, 40))) for job in jobs))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "multiplicity", "instants"),
    [
        *product(("easy", "fcfs", "plugin"), (1, 2), ("one-by-one", "together")),
        ("easy-ncs", 1, "together"),
        ("slurm", 1, "one-by-one"),
        ("malleable-avg", 1, "one-by-one"),
    ],
)
def test_every_loop_submits_alike(tmp_path: Path, policy: str, multiplicity: int, instants: str) -> None:
    words: dict[str, Any] = {"instants": instants, "multiplicity": multiplicity, "policy": policy}
    if policy == "plugin":
        (tmp_path / "plain.py").write_text(POLICY)
        words["policy"] = f"{tmp_path / 'plain.py'}:Plain"
    trace = crowd(tmp_path, 7 * multiplicity)
    run, checked = (osub.simulate(trace, "N2C4", check=check, **words) for check in (False, True))
    assert run.jobs.equals(checked.jobs)
    reported = {row["trace_job"]: row for row in run.jobs.iter_rows(named=True)}
    fields = [list(map(int, line.split())) for line in trace.read_text().splitlines()]
    first_s = fields[0][1]
    dependent = 0
    for number, submit, *_, before, think in fields:
        own_s = submit - first_s
        if not 0 < before < number:
            assert reported[number]["submit_s"] == own_s
            continue
        dependent += 1
        end_s = reported[before]["end_s"]
        expected = end_s + think if think >= 0 else max(own_s, end_s)
        assert reported[number]["submit_s"] == pytest.approx(expected, abs=1e-6)
        assert reported[number]["start_s"] >= reported[number]["submit_s"]
    assert dependent > 10


@pytest.mark.parametrize("policy", ["hybrid-n-paa", "timeshare"])
def test_a_policy_with_a_loop_of_its_own_says_that_it_passes_over_them(tmp_path: Path, policy: str) -> None:
    trace = trace_of(tmp_path, *CHAIN)
    run = osub.simulate(trace, "N4C1", policy=policy)
    assert run.outcome["left_out"][f"after a preceding job, which {policy} passes over"] == 2
    with pytest.raises(UsageError, match="takes no dependencies"):
        osub.simulate(trace, "N4C1", policy=policy, dependencies=True)
