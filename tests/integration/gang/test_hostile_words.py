"""Users who write what reads like Slurm, under gangd: no job is held for it, or spared; nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.slurm import SlurmJobState
from tests.fixtures.looks import until
from tests.integration.gang.frozen import processes_of
from tests.integration.gang.stage import SPIN, Stage
from tests.integration.hostile import ATTACKS, filled

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]


def look_again(stage: Stage) -> None:
    """Wait until gangd has asked Slurm after this instant."""
    asked_ms = stage.status().time_ms

    def looked() -> bool:
        status = stage.status()
        age_s = status.slurm_age_s
        return age_s is not None and status.time_ms - age_s * 1000 > asked_ms + 100

    until(looked, 60, "gangd asks Slurm again")


def test_words_run_nothing_hold_no_job_and_hide_no_job(stage: Stage, tmp_path: Path) -> None:
    here, there = stage.nodes
    proof = tmp_path / "proof"
    pair = [stage.start(SPIN, here) for _ in range(2)]
    alone = stage.start(SPIN, there)
    for attack in ATTACKS:
        words = filled(attack, proof=proof, node=there, victim=pair[0]).decode()
        # held, as anybody may submit it: it never runs
        stage.submit(SPIN, options=("--hold", f"--job-name={words}", f"--comment={words}"))
    look_again(stage)
    assert not proof.exists()
    assert stage.job_status(alone) is None, "it is alone on its core"
    for job in pair:
        assert stage.job_status(job) is not None, "it is not hidden"
        stage.wait_frozen(*processes_of(job, here))
    assert [
        alarm for alarm in stage.status().alarms if alarm.kind in {"unreadable", "placement", "slurm"}
    ] == []
    assert stage.state(alone) is SlurmJobState.RUNNING


def test_no_name_spares_a_job_from_being_held(stage: Stage, tmp_path: Path) -> None:
    node = stage.nodes[0]
    stage.start(SPIN, node)
    for attack in ATTACKS[2:9]:
        words = filled(attack, proof=tmp_path / "proof", node=stage.nodes[1], victim=1).decode()
        job = stage.start(SPIN, node, options=(f"--job-name={words}",))
        stage.wait_frozen(*processes_of(job, node))
        stage.client.cancel([job])
        until(lambda job=job: stage.state(job).is_over, 60, f"job {job} ends")  # type: ignore[misc]
