"""``--instants``: a scheduling pass after each event of an instant, or one after all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import osub
from foundation.errors import UsageError
from osub.sweep.spec import known_parameters
from tests.fixtures.golden import SHARED

# of each job: processors, requested seconds; all come at once and run for 20 s (flux-sched issue 572)
WAVES = [
    *[(4, 80), (3, 80), (3, 80), (2, 80), (2, 80), (2, 80), (2, 80)],
    *[(1, limit_s) for limit_s in range(70, 20, -5)],
]
FIELD = SHARED / "field"
# ROCm/spur issue 732: a job of both nodes, and a stream of small ones that starves it without a reservation
WIDE = FIELD / "17-spur-732-wide-job-not-starved/jobs.swf"
POLICY = """
class Plain:
    def __init__(self):
        self.passes = []

    def hear(self, context, event):
        if type(event).__name__ != "SimulationStarted":
            self.heard = context.now_us

    def schedule(self, context):
        assert self.passes[-1:] != [context.now_us], "a second pass at one instant"
        assert self.heard == context.now_us
        self.passes.append(context.now_us)
        while context.waiting and context.start(context.waiting[0]):
            pass
"""


def trace_of(folder: Path, jobs: list[tuple[int, int, int, int]], queue: int = 1) -> Path:
    """Write jobs of (submit, run, processors, request)."""
    (path := folder / "jobs.swf").write_text(
        "".join(
            f"{number} {submit} -1 {run} {procs} -1 -1 {procs} {limit} -1 1 1 1 1 {queue} 1 -1 -1\n"
            for number, (submit, run, procs, limit) in enumerate(jobs, start=1)
        )
    )
    return path


def starts(run: osub.Run) -> list[float]:
    return run.jobs.sort("trace_job").get_column("start_s").to_list()


@pytest.mark.parametrize(
    ("instants", "expected"),
    [
        ("together", [0, 20, 40, 60, 60, 80, 80, 20, 40, 100, 100, 100, 100, 120, 120, 120, 120]),
        ("one-by-one", [0, 20, 40, 60, 80, 80, 100, 20, 40, 100, 100, 120, 60, 60, 120, 120, 120]),
    ],
)
def test_seventeen_jobs_that_end_in_waves(tmp_path: Path, instants: str, expected: list[float]) -> None:
    trace = trace_of(tmp_path, [(0, 20, procs, limit) for procs, limit in WAVES])
    run = osub.simulate(trace, "N4C1", instants=instants)
    assert starts(run) == expected
    assert run.info.options.get("instants") == (None if instants == "one-by-one" else instants)
    if instants == "together":
        assert starts(osub.simulate(trace, "N4C1")) == expected


@pytest.mark.parametrize("instants", ["together", "one-by-one"])
def test_of_jobs_with_equal_limits_none_overtakes(tmp_path: Path, instants: str) -> None:
    procs = [1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 4, 3, 2, 2, 2, 3]
    run = osub.simulate(trace_of(tmp_path, [(0, 20, n, 86_400) for n in procs]), "N4C1", instants=instants)
    assert starts(run) == [0, 0, 0, 20, 20, 20, 20, 40, 40, 40, 40, 60, 80, 100, 100, 120, 140]


@pytest.mark.skipif(not FIELD.is_dir(), reason="needs field inputs in OSUB_SHARED/field")
@pytest.mark.parametrize("policy", ["easy", "easy-elsewhere"])
@pytest.mark.parametrize("instants", ["together", "one-by-one"])
def test_a_wide_job_is_not_starved_by_small_ones(policy: str, instants: str) -> None:
    small = [1100, 1100, 1400, 1400, 1700, 1700, 2000, 2000, 2300, 2300, 2600, 2600]
    small += [2900, 2900, 3200, 3200, 3500, 3500]
    run = osub.simulate(WIDE, "N2C1", policy=policy, multiplicity=1, instants=instants)
    assert starts(run) == [0, 0, 1000, 200, 500, *small]


@pytest.mark.skipif(not FIELD.is_dir(), reason="needs field inputs in OSUB_SHARED/field")
def test_a_wide_job_is_not_starved_where_slurm_passes_or_jobs_share() -> None:
    assert 1000 <= starts(osub.simulate(WIDE, "N2C1", policy="slurm", multiplicity=1))[2] < 1030
    assert starts(osub.simulate(WIDE, "N2C1", policy="easy", multiplicity=2))[:3] == [0, 0, 10]
    assert starts(osub.simulate(WIDE, "N2C1", policy="timeshare"))[2] == 10


@pytest.mark.parametrize(("instants", "head_s"), [("together", 100), ("one-by-one", 200)])
@pytest.mark.parametrize("system", ["N2C1", "N1C2"])
def test_the_head_gets_two_cores_that_are_given_back_at_one_instant(
    tmp_path: Path, instants: str, head_s: float, system: str
) -> None:
    trace = trace_of(tmp_path, [(0, 100, 1, 100), (0, 100, 1, 200), (10, 100, 2, 100), (20, 100, 1, 100)])
    assert starts(osub.simulate(trace, system, instants=instants))[2] == head_s
    assert starts(osub.simulate(trace, system, instants=instants, check=True))[2] == head_s


@pytest.mark.parametrize("queues", [{}, {"queues": "mq", "interactive_nodes": 1}])
def test_a_policy_of_ones_own_makes_one_pass_an_instant(tmp_path: Path, queues: dict[str, Any]) -> None:
    (policy := tmp_path / "plain.py").write_text(POLICY)
    jobs = [(0, 10, 1, 10), (0, 10, 1, 10), (10, 10, 1, 10), (10, 5, 1, 5), (15, 5, 2, 5)]
    trace = trace_of(tmp_path, jobs)
    lines = trace.read_text().splitlines()
    lines[1] = lines[1].replace(" 1 1 -1 -1", " 0 1 -1 -1")  # an interactive job
    trace.write_text("\n".join(lines) + "\n")
    run = osub.simulate(trace, "N4C1", policy=f"{policy}:Plain", instants="together", check=True, **queues)
    fcfs = osub.simulate(trace, "N4C1", policy="fcfs", instants="together", **queues)
    assert starts(run) == starts(fcfs)


def test_exact_slices_take_an_instant_together(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, [(0, 100, 1, 100), (0, 100, 1, 200), (10, 100, 2, 100), (20, 100, 1, 100)])
    assert starts(osub.simulate(trace, "N1C2", quantum_ms=1000, instants="together"))[2] == 100


def test_a_node_that_fails_as_jobs_end_is_down_before_the_pass(tmp_path: Path) -> None:
    (tmp_path / "down.csv").write_text("node,down_s,up_s\nn1,100,150\n")
    trace = trace_of(tmp_path, [(0, 100, 1, 100), (0, 100, 1, 100), (10, 20, 1, 20)])
    states = {
        instants: osub.simulate(
            trace, "N2C1", failures=tmp_path / "down.csv", after_failure="give-up", instants=instants
        ).jobs.sort("trace_job")["state"][2]
        for instants in ("together", "one-by-one")
    }
    assert states == {"together": "COMPLETED", "one-by-one": "NODE_FAIL"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"instants": "both"}, "instants takes together or one-by-one, not 'both'"),
        ({"policy": "slurm", "instants": "together"}, "policy slurm times its passes itself"),
        ({"policy": "malleable-avg", "instants": "together"}, "policy malleable-avg times its passes itself"),
        ({"policy": "hybrid-n-paa", "instants": "together"}, "policy hybrid-n-paa times its passes itself"),
        ({"policy": "timeshare", "instants": "together"}, "policy timeshare times its passes itself"),
    ],
)
def test_what_makes_its_own_passes_refuses_the_option(
    tmp_path: Path, words: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        osub.simulate(trace_of(tmp_path, [(0, 1, 1, 1)]), "N1C1", **words)


def test_ncs_goes_one_by_one_by_default(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, [(0, 20, procs, limit) for procs, limit in WAVES])
    reported = {
        instants: osub.simulate(trace, "N4C1", policy="easy-ncs", instants=instants).info.options.get(
            "instants"
        )
        for instants in (None, "one-by-one", "together")
    }
    assert reported == {None: None, "one-by-one": None, "together": "together"}


def test_a_sweep_takes_it() -> None:
    assert "instants" in known_parameters("simulate")
