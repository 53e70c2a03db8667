"""The demo simulates what it replayed, and what cannot be simulated costs no real run."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.records import GangSettings, Run
from osub.demo import SETTINGS, simulate_all
from tests.fixtures.real_runs import Row, real_run

pytestmark = pytest.mark.slow

JOBS: list[Row] = [
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
        real_run(out / setting.folder, JOBS, setting.multiplicity, GANGS.get(setting.folder), setting.label)
        for setting in SETTINGS
    ]


def test_every_setting_is_simulated_with_the_latencies_of_the_first(tmp_path: Path) -> None:
    said: list[str] = []
    compared = simulate_all(demo_runs(tmp_path), tmp_path, said.append)
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


def test_a_second_demo_replaces_the_simulations_of_the_first(tmp_path: Path) -> None:
    runs = demo_runs(tmp_path)[:2]
    simulate_all(runs, tmp_path, lambda _: None)
    assert len(simulate_all(runs, tmp_path, lambda _: None)) == 2


def test_a_setting_that_cannot_be_simulated_is_left_out_and_reported(tmp_path: Path) -> None:
    runs = demo_runs(tmp_path)[:2]
    (tmp_path / "m1-sim").mkdir()
    said: list[str] = []
    compared = simulate_all(runs, tmp_path, said.append)
    assert len(compared) == 1
    assert len(said) == 1
    assert "m1-sim" in said[0]
