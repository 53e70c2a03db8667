"""The commands that need no cluster, and what the others say without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from osub.cli.main import run
from submitter.plan.replay_plan import read_apps
from workloads.rrba.calibration_kinds import kind_of, target_of

TRACE = "".join(
    f"{number} 0 -1 {seconds} {procs} -1 -1 {procs} 60 -1 1 1 1 -1 {queue} -1 -1 -1\n"
    for number, seconds, procs, queue in (
        (1, 100, 1, 1),
        (2, 50, 2, 1),
        (3, 70, 3, 1),
        (4, 10, 1, 0),
        (5, 0, 1, 1),
    )
)


def test_assigned_applications_are_a_table_for_the_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.swf").write_text(TRACE)
    words = ["workloads", "assign", str(tmp_path / "t.swf"), "--out", str(tmp_path / "apps.csv")]
    assert run([*words, "--speedup", "10", "--class", "S", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    # Not the interactive job, nor the one that never ran.
    assert answer["jobs"] == 3
    assert sum(answer["applications"].values()) == 3
    choices = read_apps(tmp_path / "apps.csv")
    assert set(choices) == {1, 2, 3}
    assert [target_of(choices[job].args) for job in (1, 2, 3)] == [10.0, 5.0, 7.0]
    for job in (1, 2, 3):
        assert choices[job].app == "rrba"
        kind_of(choices[job].args, job, 1)
    assert kind_of(choices[3].args, 3, 1).app == "jacobi"


@pytest.mark.slow
def test_kernels_are_compiled_into_a_folder_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["workloads", "compile", "--json"]) == 0
    assert Path(json.loads(capsys.readouterr().out)["folder"]).is_dir()


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        ([], 2, "nothing to calibrate"),
        (["--app", "bt.A", "--ranks", "2"], 2, "square number of ranks"),
        (["--app", "bt.Z"], 2, "bt has S, W, A, B, C"),
        (["--app", "lu.S"], 1, "has no slurm.conf"),
    ],
)
def test_calibration_that_cannot_be_made_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, complaint: str
) -> None:
    where = ["--cluster", str(tmp_path), "--calibration", str(tmp_path / "steps.json")]
    assert run(["workloads", "calibrate", *where, *words]) == code
    complaints = capsys.readouterr().err
    assert complaint in complaints
    assert not (tmp_path / "steps.json").exists()
