"""Reading what a real Slurm 22.05 printed (tests/fixtures/slurm)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from osub.slurm import Job, JobState
from osub.slurm.text import read_config, read_jobs, read_nodes, read_partitions

FIXTURES = Path(__file__).parents[2] / "fixtures" / "slurm"


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def jobs() -> tuple[dict[int, Job], list[int | None]]:
    snapshot = read_jobs((FIXTURES / "jobs.txt").read_text(), {})
    return {job.job_id: job for job in snapshot.jobs}, [one.job_id for one in snapshot.unreadable]


def test_array_tasks_and_het_components_are_told_apart() -> None:
    found, _ = jobs()
    assert (found[9].array_job_id, found[9].array_task_id) == (2, 1)
    assert (found[3].het_job_id, found[3].het_job_offset) == (3, 0)
    assert (found[4].het_job_id, found[4].het_job_offset) == (3, 1)
    assert found[4].name == "w.sh"


def test_a_running_job_has_its_nodes_cores_and_times() -> None:
    found, _ = jobs()
    job = found[5]
    assert job.state is JobState.RUNNING
    assert [(held.node, held.cores) for held in job.cores] == [("aduqw-n1", (0,))]
    assert job.start_time == 1795267054
    assert job.end_time is None
    assert job.time_limit_s is None


def test_limits_with_days_are_read() -> None:
    found, _ = jobs()
    assert found[9].time_limit_s == 86_400 + 2 * 3_600 + 4 * 60


def test_a_pending_job_has_no_cores_and_no_start() -> None:
    found, _ = jobs()
    assert found[8].state is JobState.PENDING
    assert found[8].cores == ()
    assert found[8].start_time is None


def test_exit_code_and_signal_are_told_apart() -> None:
    found, _ = jobs()
    assert (found[6].exit_code, found[6].exit_signal) == (3, None)
    assert (found[9].exit_code, found[9].exit_signal) == (0, 15)


def test_a_job_name_cannot_forge_keys() -> None:
    found, _ = jobs()
    assert found[5].name == "evil JobState=FAILED NodeList=q"
    assert found[5].state is JobState.RUNNING


def test_a_forged_record_takes_neither_job_in() -> None:
    """A name with a line break pretends to be job 1: job 1 and the forger are left out, the rest stay."""
    found, unusable = jobs()
    assert 1 not in found
    assert 10 not in found
    assert sorted(map(str, unusable)) == ["1", "1", "10"]
    assert len(found) == 8


def test_cpu_ids_become_core_ids_where_cores_have_threads() -> None:
    line = next(
        line for line in (FIXTURES / "jobs.txt").read_text().splitlines() if "JobId=1 JobName=w" in line
    )
    both = read_jobs(line, {}).jobs
    halved = read_jobs(line, {"aduqw-n2": 2, "aduqw-n3": 2}).jobs
    assert [held.cores for held in both[0].cores] == [(0, 1, 2), (0, 1, 2)]
    assert [held.cores for held in halved[0].cores] == [(0, 1), (0, 1)]
    assert both[0].comment == "hello Nodes=x CPU_IDs=7"


def test_nodes_have_states_as_flags_and_a_reason() -> None:
    nodes = {node.name: node for node in read_nodes((FIXTURES / "nodes.txt").read_text())}
    assert nodes["aduqw-n1"].is_up
    assert nodes["aduqw-n1"].cores == 4
    drained = [node for node in nodes.values() if not node.is_up]
    assert [node.reason for node in drained] == ["bad disk, see log"]
    assert "DRAIN" in drained[0].states


def test_a_node_that_does_not_respond_is_not_up() -> None:
    text = (FIXTURES / "nodes.txt").read_text().replace("State=MIXED ", "State=MIXED* ")
    assert "NOT_RESPONDING" in read_nodes(text)[0].states
    assert not read_nodes(text)[0].is_up


def test_partitions_have_their_multiplicity() -> None:
    parts = {part.name: part for part in read_partitions((FIXTURES / "partitions.txt").read_text())}
    assert (parts["batch"].multiplicity, parts["batch"].forced, parts["batch"].is_default) == (2, True, True)
    assert parts["interactive"].multiplicity == 4
    assert parts["batch"].nodes == ("aduqw-n2", "aduqw-n3")


def test_configuration_is_a_mapping() -> None:
    config = read_config((FIXTURES / "config.txt").read_text())
    assert config["SLURM_VERSION"] == "22.05.8"
    assert config["MessageTimeout"] == "10 sec"


def test_a_job_whose_name_is_no_list_harms_itself_only() -> None:
    lines = (FIXTURES / "jobs.txt").read_text().splitlines()
    line = next(line for line in lines if "JobId=3 " in line)
    for name in ("x Nodes=a CPU_IDs=x Mem=1", "x Nodes=n[1- CPU_IDs=0 Mem=1", "x Nodes=@g CPU_IDs=0 Mem=1"):
        forged = line.replace("JobId=3 ", "JobId=77 ").replace("JobName=w.sh", f"JobName={name}")
        assert forged != line
        snapshot = read_jobs("\n".join([line, forged]), {})
        assert [job.job_id for job in snapshot.jobs] == [3]
        assert [one.job_id for one in snapshot.unreadable] == [77]
