"""The samples of a calibration: on a host whose noise hides the steps, longer ones are taken."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from foundation.errors import HostError
from foundation.slurm import SlurmJobState, SubmitRequest
from submitter.calibration import CalibrationOutcome, LoneJobs, Sampled, fit_kind
from submitter.plan import look_at_target
from tests.fixtures.fake_slurm import FakeSlurm
from workloads.rrba.calibration_kinds import CalibrationKind, kind_of
from workloads.rrba.steps.calibrations import load_calibrations

KIND = kind_of(("--app", "lu", "--class", "S", "--itr", "9"), 1, 1)
STEP_S = 0.01


class Host:
    """Runs that take their steps' time, or ``noise_s`` where that is longer: a start-up on a busy host."""

    def __init__(self, noise_s: float, core_share: float = 1.0) -> None:
        self.noise_s = noise_s
        self.core_share = core_share
        self.runs: list[int] = []

    def run(self, kind: CalibrationKind, length: Sequence[str]) -> CalibrationOutcome:
        steps = int(length[-1])
        self.runs.append(steps)
        # The shorter, the later in a busy spell: times fall with the steps until the steps outgrow the noise.
        run_s = max(self.noise_s - 0.01 * STEP_S * steps, STEP_S * steps)
        return CalibrationOutcome(
            run_s, {"core_share": self.core_share, "host_type": "here", "busy_s": run_s}
        )


def sampled_on(host: Host) -> Sampled:
    sampled = Sampled(KIND, (10, 25, 50), [(12, host.run(KIND, ("--itr", "12")))])
    sampled.sample(host)
    return sampled


def test_where_noise_hides_the_steps_twice_as_many_are_run_until_it_does_not(tmp_path: Path) -> None:
    host = Host(noise_s=1.5)
    sampled = sampled_on(host)
    assert sampled.line(0.9) is None
    sampled.sample_longer(host, 1, 0.9)
    assert host.runs == [12, 10, 25, 50, 20, 50, 100, 40, 100, 200]
    row = fit_kind(sampled, tmp_path / "steps.json", 0.9)
    [stored] = load_calibrations(tmp_path / "steps.json")
    assert row.step_ms == pytest.approx(1e3 * stored.step_s)
    assert stored.step_s > 0


def test_a_calm_host_is_sampled_no_longer() -> None:
    host = Host(noise_s=0)
    sampled_on(host).sample_longer(host, 3, 0.9)
    assert host.runs == [12, 10, 25, 50]


def test_noise_that_stays_is_reported_and_nothing_stored(tmp_path: Path) -> None:
    host = Host(noise_s=1e6)
    sampled = sampled_on(host)
    sampled.sample_longer(host, 1, 0.9)
    assert max(host.runs) == 8 * 50
    with pytest.raises(HostError, match="times do not grow with the steps"):
        fit_kind(sampled, tmp_path / "steps.json", 0.9)
    assert not (tmp_path / "steps.json").exists()


def test_ranks_that_lack_their_core_are_sampled_no_longer(tmp_path: Path) -> None:
    host = Host(noise_s=1e6, core_share=0.4)
    sampled = sampled_on(host)
    sampled.sample_longer(host, 1, 0.9)
    assert max(host.runs) == 50
    with pytest.raises(HostError, match="had 40% of its core"):
        fit_kind(sampled, tmp_path / "steps.json", 0.9)


class InterruptedSlurm(FakeSlurm):
    """A signal comes while a job is submitted: Slurm has it, and its number is not known."""

    def submit(self, request: SubmitRequest) -> int:
        """Take the job, and raise."""
        super().submit(request)
        raise KeyboardInterrupt


def test_a_job_is_cancelled_although_a_signal_came_while_it_was_submitted(tmp_path: Path) -> None:
    slurm = InterruptedSlurm(uid=os.geteuid())
    jobs = LoneJobs(slurm, look_at_target(slurm), tmp_path, pin=False)
    with pytest.raises(KeyboardInterrupt):
        jobs.run(KIND, ("--itr", "5"))
    assert [job.state for job in slurm.jobs().jobs] == [SlurmJobState.CANCELLED]
