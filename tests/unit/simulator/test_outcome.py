"""What is reported of a simulated case: CPU time is what jobs compute, not what they sit on."""

from __future__ import annotations

from pathlib import Path

from simulator.experiments.thesis_cases import outcome_of
from simulator.setting_choices import setting_of
from simulator.simulation.one_simulation import simulate
from simulator.simulation.simulation_options import Cleaning
from simulator.simulation.trace_workload import make_workload
from simulator.simulation_spec import SimulationSpec
from workloads.swf import load_columns

LINES = """\
1 0 -1 3600 1 -1 -1 1 3600 -1 1 1 1 -1 1 -1 -1 -1
2 0 -1 36000 1 -1 -1 1 36000 -1 1 1 1 -1 0 -1 -1 -1 -1 -1 -1 17990 17990 1 20
"""


def test_idle_time_of_interactive_jobs_is_no_cpu_time(tmp_path: Path) -> None:
    path = tmp_path / "two.swf"
    path.write_text(LINES)
    setting = setting_of(SimulationSpec(system="N1C2", overhead="1.0"))
    workload = make_workload(load_columns(path), setting.queues, Cleaning())
    result = simulate(workload, setting)
    outcome = outcome_of("two", workload, result.start_us, result.end_us, 0.0)
    # the batch job computes for an hour, the interactive one for 20 s of its ten
    assert outcome.cpu_time_done_h == (1.0, 1.0, 10.0)
    assert outcome.jobs_done_h == (10.0, 10.0, 10.0)
