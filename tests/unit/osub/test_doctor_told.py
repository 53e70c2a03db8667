"""What ``osub doctor`` says first, and that nothing of it is cut where a terminal is narrow."""

from __future__ import annotations

import pytest

import osub.cli.doctor as doctor
from deploy.checks import Advice, Grade
from deploy.local.host import HostFinding, pmu_finding
from osub.cli.doctor import host_verdict, show, verdict
from osub.cli.main import run


def advice(what: str, grade: Grade) -> Advice:
    return Advice(what, grade, "TaskPlugin=task/none, ConstrainCores=no", "why it matters in a sentence")


@pytest.mark.parametrize(
    ("grades", "told"),
    [
        ("good good", "gangd can do its work there; nothing is to be changed"),
        ("good warning", "gangd can do its work there; a loss comes with setting 1"),
        ("warning bad", "gangd cannot do its work there yet: setting 1"),
    ],
)
def test_what_it_comes_to_is_said_in_a_sentence(grades: str, told: str) -> None:
    several = [advice(f"setting {number}", Grade(grade)) for number, grade in enumerate(grades.split())]
    assert verdict(several) == told


def test_names_and_values_are_whole_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show([advice("UnkillableStepTimeout", Grade.WARNING)])
    told = capsys.readouterr().out
    assert "UnkillableStepTimeout" in told.splitlines()[4]
    assert "\N{HORIZONTAL ELLIPSIS}" not in told
    assert max(map(len, told.splitlines())) <= 80


@pytest.mark.parametrize(
    ("slurm", "pmu", "told", "code"),
    [
        ("yes", "yes", "An embedded cluster can run here.\n", 0),
        ("yes", "no", "An embedded cluster can run here.\nIt lacks, as the table says: PMU\n", 0),
        ("no", "yes", "No embedded cluster can run here yet; simulations and reports need none.\nFirst: ", 1),
    ],
)
def test_a_host_s_first_line_says_whether_a_cluster_can_run(
    slurm: str,
    pmu: str,
    told: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    findings = [
        HostFinding("Slurm", slurm, "", "apt-get install slurmctld"),  # type: ignore[arg-type]
        HostFinding("munge", "yes", "", ""),
        HostFinding("PMU", pmu, "", ""),  # type: ignore[arg-type]
    ]
    monkeypatch.setattr(doctor, "examine_host", lambda: findings[:2])
    monkeypatch.setattr(doctor, "job_folders", lambda: findings[2])
    assert host_verdict(findings).startswith(told.strip())
    assert run(["doctor"]) == code
    assert capsys.readouterr().out.startswith(told)


def test_a_counter_that_hardly_counts_is_no_pmu() -> None:
    assert pmu_finding(2700, 10_000_000).here == "no"
    assert pmu_finding(0, 10_000_000).here == "no"
    assert pmu_finding(9_000_000, 10_000_000).here == "yes"
    assert pmu_finding(0, 0).here == "yes"
