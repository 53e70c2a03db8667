"""Long traces under a measured overhead, whose model counts work in very small units."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.errors import InputError
from simulator.setting_choices import setting_of
from simulator.simulation.one_simulation import SimulationResult, simulate
from simulator.simulation.simulation_options import Cleaning
from simulator.simulation.trace_workload import make_workload
from simulator.simulation_spec import SimulationSpec
from tests.fixtures.swf_jobs import write_jobs
from workloads.swf import load_columns

DAY_S = 86_400


def run(tmp_path: Path, run_s: int, submit_s: int) -> SimulationResult:
    jobs = [(number, at, run_s, 1) for number, at in enumerate((0, submit_s, submit_s), 1)]
    path = write_jobs(tmp_path / "long.swf", jobs)
    setting = setting_of(SimulationSpec(system="N1C1", multiplicity=2, overhead="1.103"))
    return simulate(make_workload(load_columns(path), setting.queues, Cleaning()), setting)


def test_a_trace_of_a_year_runs_with_a_measured_overhead(tmp_path: Path) -> None:
    result = run(tmp_path, run_s=100, submit_s=365 * DAY_S)
    assert result.end_us.tolist()[0] == 100_000_000
    # two jobs on one core, each at 1/(2 x 1.103)
    assert [end - 365 * DAY_S * 1_000_000 for end in result.end_us.tolist()[1:]] == [220_600_000] * 2


def test_a_job_too_long_for_the_units_of_work_is_reported_with_its_length(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a job runs or asks for 3\.1536e\+11 s, too long for"):
        run(tmp_path, run_s=10_000 * 365 * DAY_S, submit_s=1)
