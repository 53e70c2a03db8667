"""The doctor, the cluster's status, the page of attacks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import osub.cli.doctor as doctor
from deploy.checks import Advice, Grade
from deploy.local.host import HostFinding, pmu_finding
from foundation.slurm import JobSnapshot, UnreadableJob
from osub.cli.cluster import MOST_UNREADABLE, unreadable_lines
from osub.cli.doctor import host_verdict, show, verdict
from tests.attacks import ATTACKS
from tests.fixtures.cli import Cli


def advice(what: str, grade: Grade) -> Advice:
    return Advice(what, grade, "TaskPlugin=task/none, ConstrainCores=no", "why it matters in a sentence")


@pytest.mark.parametrize(
    ("grades", "message"),
    [
        ("good good", "gangd can do its work there; nothing is to be changed"),
        ("good warning", "gangd can do its work there; a loss comes with setting 1"),
        ("warning bad", "gangd cannot do its work there yet: setting 1"),
    ],
)
def test_what_it_comes_to_is_said_in_a_sentence(grades: str, message: str) -> None:
    several = [advice(f"setting {number}", Grade(grade)) for number, grade in enumerate(grades.split())]
    assert verdict(several) == message


def test_names_and_values_are_whole_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show([advice("UnkillableStepTimeout", Grade.WARNING)])
    output = capsys.readouterr().out
    assert "UnkillableStepTimeout" in output.splitlines()[4]
    assert "\N{HORIZONTAL ELLIPSIS}" not in output
    assert max(map(len, output.splitlines())) <= 80


@pytest.mark.parametrize(
    ("slurm", "pmu", "message", "code"),
    [
        ("yes", "yes", "An embedded cluster can run here.\n", 0),
        ("yes", "no", "An embedded cluster can run here.\nIt lacks, as the table says: PMU\n", 0),
        ("no", "yes", "No embedded cluster can run here yet; simulations and reports need none.\nFirst: ", 1),
    ],
)
def test_a_host_s_first_line_says_whether_a_cluster_can_run(
    slurm: str, pmu: str, message: str, code: int, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    findings = [
        HostFinding("Slurm", slurm, "", "apt-get install slurmctld"),  # type: ignore[arg-type]
        HostFinding("munge", "yes", "", ""),
        HostFinding("PMU", pmu, "", ""),  # type: ignore[arg-type]
    ]
    monkeypatch.setattr(doctor, "examine_host", lambda: findings[:2])
    monkeypatch.setattr(doctor, "job_folders", lambda: findings[2])
    assert host_verdict(findings).startswith(message.strip())
    assert cli("doctor", code=code).out.startswith(message)


def test_a_counter_that_hardly_counts_is_no_pmu() -> None:
    assert (pmu_finding(2700, 10_000_000).here, pmu_finding(0, 10_000_000).here) == ("no", "no")
    assert (pmu_finding(9_000_000, 10_000_000).here, pmu_finding(0, 0).here) == ("yes", "yes")


def test_jobs_that_cannot_be_read_are_named_the_first_few_of_them() -> None:
    assert unreadable_lines(JobSnapshot(())) == []
    some = (UnreadableJob(7, "its state is none that is known"), UnreadableJob(None, "its line is malformed"))
    assert unreadable_lines(JobSnapshot((), some)) == [
        "cannot be read: job 7: its state is none that is known",
        "cannot be read: a job: its line is malformed",
    ]
    many = tuple(UnreadableJob(number, "no") for number in range(2_000))
    lines = unreadable_lines(JobSnapshot((), many))
    assert (len(lines), lines[-1]) == (MOST_UNREADABLE + 1, "... and 1990 more")


PAGE = Path(__file__).parents[3] / "docs" / "measured" / "security.md"


def test_the_page_lists_every_attack() -> None:
    _, _, listed = PAGE.read_text(encoding="utf-8").partition("| attack | what he does |\n| --- | --- |\n")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", listed.split("\n\n")[0], re.MULTILINE)
    assert rows == [(attack.name, attack.tries) for attack in ATTACKS.values()]
