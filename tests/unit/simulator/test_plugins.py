"""Plug-ins in plain Python: the documented ones work, and what cannot be is reported."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from foundation.errors import InputError, UsageError
from simulator.setting_choices import setting_of
from simulator.simulation.one_simulation import SimulationResult, simulate
from simulator.simulation.simulation_options import Cleaning
from simulator.simulation.trace_workload import make_workload
from simulator.simulation_spec import SimulationSpec
from tests.fixtures.swf_jobs import write_jobs
from workloads.swf import load_columns

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "simulator_plugins.py"

# number, submit, run, processors, request
JOBS = [(1, 0, 100, 4, 100), (2, 1, 60, 4, 60), (3, 2, 20, 4, 20), (4, 3, 30, 2, 30)]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_jobs(tmp_path / "four.swf", JOBS)


def run(trace: Path, words: SimulationSpec) -> SimulationResult:
    setting = setting_of(words)
    return simulate(make_workload(load_columns(trace), setting.queues, Cleaning()), setting)


def starts_s(result: SimulationResult) -> list[float]:
    return [start / 1e6 for start in result.start_us.tolist()]


def test_the_documented_policy_runs_the_shortest_job_first(trace: Path) -> None:
    words = SimulationSpec(system="N2C2", policy=f"{EXAMPLES}:ShortestFirst", multiplicity=1)
    assert starts_s(run(trace, words)) == [0, 150, 100, 120]


def test_the_documented_placement_fills_nodes_one_after_the_other(trace: Path) -> None:
    words = SimulationSpec(system="N4C2", placement=f"{EXAMPLES}:Packed", multiplicity=2)
    placed = run(trace, words).pools[0].run
    assert [list(placed.cores_of(job)) for job in range(4)] == [[0, 1], [0, 1], [2, 3], [2]]


def test_the_documented_sharing_model_slows_shared_cores(trace: Path) -> None:
    words = SimulationSpec(system="N2C2", sharing=f"{EXAMPLES}:FastWhenAlone", multiplicity=2, policy="fcfs")
    result = run(trace, words)
    # From 1 s on jobs 1 and 2 run at 0.375, so that job 2 ends at 161 s, and job 3 takes its slots.
    assert (result.end_us[1], result.start_us[2]) == (161_000_000, 161_000_000)


def test_all_three_together_use_each_core_at_most_twice(trace: Path) -> None:
    words = SimulationSpec(
        system="N2C2",
        policy=f"{EXAMPLES}:ShortestFirst",
        placement=f"{EXAMPLES}:Packed",
        sharing=f"{EXAMPLES}:FastWhenAlone",
        multiplicity=2,
    )
    result = run(trace, words)
    assert (result.end_us > result.start_us).all()
    changes = [
        (when, change, place)
        for job, (start, end) in enumerate(zip(result.start_us, result.end_us, strict=True))
        for place in result.pools[0].run.cores_of(job).items()
        for when, change in ((end, -1), (start, 1))
    ]
    held: Counter[tuple[int, int]] = Counter()
    for _, change, (node, cores) in sorted(changes):
        held.update({(node, core): change for core in cores})
        assert max(held.values()) <= 2
    assert not any(held.values())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("missing.py:Thing", InputError),
        ("no-colon.py:", UsageError),
        (f"{EXAMPLES}:Absent", UsageError),
        (f"{EXAMPLES}:Packed", UsageError),
    ],
)
def test_a_file_or_a_name_that_is_no_policy_is_reported(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        setting_of(SimulationSpec(system="N2C2", policy=text))


def test_a_plug_in_that_fails_when_it_is_loaded_is_an_input_error(tmp_path: Path) -> None:
    (path := tmp_path / "broken.py").write_text("raise RuntimeError('not today')\n")
    with pytest.raises(InputError, match="not today"):
        setting_of(SimulationSpec(system="N2C2", policy=f"{path}:Policy"))


def test_a_placement_that_gives_the_wrong_cores_is_reported(tmp_path: Path, trace: Path) -> None:
    path = tmp_path / "greedy.py"
    path.write_text("class Greedy:\n    def place(self, cluster, job):\n        return {0: [0]}\n")
    with pytest.raises(InputError, match="placement gave job 1"):
        run(trace, SimulationSpec(system="N2C2", placement=f"{path}:Greedy"))


def test_an_error_for_a_missing_plug_in_class_lists_those_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no ShortestFrist: it has .*ShortestFirst"):
        setting_of(SimulationSpec(system="N2C2", policy=f"{EXAMPLES}:ShortestFrist"))
    (path := tmp_path / "empty.py").write_text("x = 3\n")
    with pytest.raises(UsageError, match="has no Policy: write a class Policy with the method schedule"):
        setting_of(SimulationSpec(system="N2C2", policy=f"{path}:Policy"))
