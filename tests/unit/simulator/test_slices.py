"""Exact slices: the gang scheduler's own core decides who runs, and the record says so."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from foundation.errors import UsageError
from foundation.records import GangSettings, load_run
from simulator.recording import slice_frame, tables_of
from simulator.setting_choices import setting_of
from simulator.simulation.one_simulation import SimulationResult, simulate
from simulator.simulation.simulation_options import Cleaning
from simulator.simulation.trace_workload import make_workload
from simulator.simulation_session import SimulationSession
from simulator.simulation_spec import SimulationSpec
from workloads.swf import load_columns

PATTERN = "-1 -1 -1 10 10 2 2 2 16"


def line(number: int, submit: int, run: int, procs: int, queue: int = 1, more: str = "") -> str:
    return (
        f"{number} {submit} -1 {run} {procs} -1 -1 {procs} {run} -1 1 1 1 -1 {queue} -1 -1 -1 {more}".rstrip()
    )


def run(tmp_path: Path, lines: list[str], *, check: bool = False, **words: object) -> SimulationResult:
    (path := tmp_path / "slices.swf").write_text("\n".join(lines) + "\n")
    given = {"multiplicity": 2, "quantum_ms": 250.0, "overhead": "1.0", "hold": "freeze", **words}
    setting = setting_of(SimulationSpec(**given))  # type: ignore[arg-type]
    return simulate(make_workload(load_columns(path), setting.queues, Cleaning()), setting, check=check)


def ends_s(result: SimulationResult) -> list[float]:
    return [end / 1e6 for end in result.end_us.tolist()]


def test_two_jobs_on_one_core_take_turns_and_end_together(tmp_path: Path) -> None:
    result = run(tmp_path, [line(1, 0, 20, 1), line(2, 0, 20, 1)], system="N1C1")
    first, second = ends_s(result)
    # each is held for half of the time after the first slices, in which both ran at half speed
    assert 39.5 <= first <= 40
    # when a job ends, two slices are final already in which it was to run
    assert 39.5 <= second <= 40.75
    assert result.pools[0].run.gang is not None
    frozen = result.pools[0].run.gang.frozen_us / 1e6
    assert frozen == pytest.approx([19.5, 19.5], abs=0.6)


def test_no_slice_is_cut_where_no_core_is_shared(tmp_path: Path) -> None:
    result = run(tmp_path, [line(1, 0, 20, 1), line(2, 0, 20, 1)], system="N1C2")
    assert ends_s(result) == [20, 20]
    frame = slice_frame(result)
    assert frame is not None
    assert frame.height == 0


def test_a_gang_runs_on_all_of_its_nodes_or_on_none(tmp_path: Path) -> None:
    result = run(tmp_path, [line(1, 0, 20, 4), line(2, 0, 20, 2), line(3, 0, 20, 2)], system="N2C2")
    frame = slice_frame(result)
    assert frame is not None
    roles = frame.filter(pl.col("job") == 1).group_by("slice").agg(pl.col("role").n_unique().alias("roles"))
    assert roles["roles"].to_list() == [1] * roles.height


def test_a_held_slice_has_one_busy_job_a_core(tmp_path: Path) -> None:
    result = run(
        tmp_path, [line(1, 0, 10, 1), line(2, 0, 10, 1), line(3, 0, 10, 1)], system="N1C1", multiplicity=3
    )
    frame = slice_frame(result)
    assert frame is not None
    runners = frame.filter(pl.col("role") == "run").group_by("slice").len().sort("slice")
    assert set(runners.filter(pl.col("slice") > 3)["len"]) == {1}


def test_an_idle_interactive_job_costs_its_neighbour_next_to_nothing(tmp_path: Path) -> None:
    lines = [line(1, 0, 60, 1), line(2, 0, 40, 1, queue=0, more=PATTERN)]
    batch, interactive = ends_s(run(tmp_path, lines, system="N1C1"))
    # 4 s of bursts cost the batch job 4 s, and the slices until the scheduler knows that no other computes a
    # little more
    assert 64 <= batch <= 66.5
    assert 42 <= interactive <= 45


def test_jobs_of_one_core_that_yield_share_it_without_slices(tmp_path: Path) -> None:
    result = run(tmp_path, [line(1, 0, 20, 1), line(2, 0, 20, 1)], system="N1C1", hold="yield")
    assert ends_s(result) == [40, 40]
    assert result.pools[0].run.gang is not None
    assert result.pools[0].run.gang.frozen_us.tolist() == [0, 0]


def test_gangs_that_yield_take_turns_as_frozen_ones_do(tmp_path: Path) -> None:
    lines = [line(1, 0, 20, 2), line(2, 0, 20, 2)]
    frozen = ends_s(run(tmp_path, lines, system="N2C1", hold="freeze"))
    yielding = ends_s(run(tmp_path, lines, system="N2C1", hold="yield"))
    assert yielding == pytest.approx(frozen, abs=0.5)


def test_a_gang_that_yields_uses_what_the_owner_leaves_and_no_core_idles(tmp_path: Path) -> None:
    lines = [line(1, 0, 60, 2), line(2, 0, 40, 1, queue=0, more=PATTERN)]
    frozen, _ = ends_s(run(tmp_path, lines, system="N2C1", hold="freeze"))
    yielding, interactive = ends_s(run(tmp_path, lines, system="N2C1", hold="yield"))
    # 4 s of bursts cost the batch job 4 s and nothing else: what it is owed for is what others computed
    assert yielding == pytest.approx(64, abs=0.02)
    assert yielding <= frozen
    assert 42 <= interactive <= 45


def test_a_gang_stays_stopped_while_one_of_its_cores_is_not_left(tmp_path: Path) -> None:
    lines = [line(1, 0, 10, 2), line(2, 0, 10, 1), line(3, 0, 10, 2)]
    result = run(tmp_path, lines, system="N2C1", multiplicity=3, hold="yield")
    assert slice_frame(result) is not None
    assert (result.end_us > 10e6).all()
    assert result.pools[0].run.gang is not None
    frozen_s = result.pools[0].run.gang.frozen_us / 1e6
    turnaround_s = result.end_us / 1e6
    assert turnaround_s - frozen_s == pytest.approx([10, 10, 10], abs=0.8)


@pytest.mark.parametrize("hold", ["freeze", "yield"])
def test_work_is_conserved_over_slices(tmp_path: Path, hold: str) -> None:
    lines = [line(1, 0, 10, 2), line(2, 1, 10, 2), line(3, 2, 9, 1), line(4, 3, 40, 1, queue=0, more=PATTERN)]
    result = run(tmp_path, lines, system="N2C1", multiplicity=3, hold=hold, check=True)
    assert (result.end_us >= result.workload.submit_us + result.workload.run_us).all()


def test_an_unknown_hold_is_reported() -> None:
    with pytest.raises(UsageError, match="unknown hold 'stop': choose freeze or yield"):
        setting_of(SimulationSpec(system="N1C1", multiplicity=2, quantum_ms=250.0, hold="stop"))


def test_the_run_has_the_slices_and_the_frozen_time(tmp_path: Path) -> None:
    trace = tmp_path / "two.swf"
    trace.write_text("\n".join([line(1, 0, 5, 1), line(2, 0, 5, 1)]) + "\n")
    session = SimulationSession(
        trace, SimulationSpec(system="N1C1", multiplicity=2, quantum_ms=100.0, hold="freeze"), Cleaning()
    )
    session.write(tables_of(session.run()), tmp_path / "run", None, 0.0, 0.0)
    run_read = load_run(tmp_path / "run")
    assert run_read.info.gang == GangSettings(kind="osub", quantum_ms=100.0, hold="freeze")
    assert run_read.slices is not None
    assert set(run_read.slices["role"].unique()) >= {"run", "held"}
    assert (run_read.jobs["frozen_s"] > 1).all()


@pytest.mark.parametrize(
    "words", [{"quantum_ms": 1.0}, {"quantum_ms": 6000.0}, {"quantum_ms": 250.0, "node_noise": 0.1}]
)
def test_slices_that_cannot_be_are_reported(words: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        setting_of(SimulationSpec(system="N1C1", multiplicity=2, **words))  # type: ignore[arg-type]
