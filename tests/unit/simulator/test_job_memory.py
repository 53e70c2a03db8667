"""Memory that nodes reserve for jobs, and jobs that are killed for what they really use."""

from __future__ import annotations

from pathlib import Path

import pytest

import osub
from foundation.errors import InputError, UsageError

NODE_GIB = 100 / 1024**2
"""A node of 100 KiB."""


def trace(tmp_path: Path, jobs: list[tuple[int, int, int]], user: int = 1) -> Path:
    """Return a trace of jobs of one core and 100 s: submission, used and requested KiB."""
    path = tmp_path / "made.swf"
    lines = (
        f"{number} {at} 0 100 1 -1 {used} 1 100 {asked} 1 {user} 1 1 1 -1 -1 -1\n"
        for number, (at, used, asked) in enumerate(jobs, start=1)
    )
    path.write_text("".join(lines), encoding="utf-8")
    return path


def run(path: Path, memory: str | None, system: str = "N1C2", **more: object) -> osub.Run:
    return osub.simulate(path, system, memory=memory, memory_gib=NODE_GIB, **more)


def test_a_node_reserves_what_the_rule_says(tmp_path: Path) -> None:
    path = trace(tmp_path, [(0, 40, 80), (0, 60, 80)])
    starts = {rule: run(path, rule).jobs["start_s"].to_list() for rule in ("requested", "used", "ignored")}
    assert starts == {"requested": [0.0, 100.0], "used": [0.0, 0.0], "ignored": [0.0, 0.0]}
    assert run(path, None).jobs["start_s"].to_list() == starts["requested"]


def test_the_youngest_job_is_killed_where_peaks_exceed_the_node(tmp_path: Path) -> None:
    path = trace(tmp_path, [(0, 60, 80), (10, 60, 80), (200, 100, 100), (300, 60, 80)])
    ignored = run(path, "ignored")
    assert ignored.jobs["state"].to_list() == ["COMPLETED", "FAILED", "COMPLETED", "COMPLETED"]
    assert (ignored.outcome["out_of_memory"], ignored.info.options["out_of_memory"]) == (1, 1)
    assert ignored.info.options["memory"] == "ignored"
    for rule in ("requested", "used"):
        assert run(path, rule).outcome["out_of_memory"] == 0
    assert "out_of_memory" not in run(path, None).outcome


def test_a_predicted_peak_lets_jobs_start_once_there_is_history(tmp_path: Path) -> None:
    before = [(at * 200, 30, 80) for at in range(40)]
    path = trace(tmp_path, [*before, (9000, 30, 80), (9000, 30, 80), (9000, 60, 80)])
    starts = run(path, "predicted", system="N1C4").jobs["start_s"].to_list()[-3:]
    assert starts == [9000.0, 9000.0, 9000.0]
    found = run(path, "predicted", system="N1C4")
    assert (found.outcome["out_of_memory"], found.info.options["memory_coverage"]) == (1, 0.95)
    assert run(path, "requested", system="N1C4").jobs["start_s"].to_list()[-3:] == [9000.0, 9100.0, 9200.0]


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    path = trace(tmp_path, [(0, 40, 80)])
    with pytest.raises(UsageError, match="memory_gib"):
        osub.simulate(path, "N1C2", memory="used")
    with pytest.raises(UsageError, match="requested, predicted, used, ignored"):
        run(path, "guessed")
    with pytest.raises(UsageError, match="coverage"):
        run(path, "predicted", memory_coverage=1.5)
    with pytest.raises(UsageError, match="memory"):
        run(path, "used", mtbf=100)
    unknown = trace(tmp_path, [(0, -1, 80)])
    with pytest.raises(InputError, match="no used memory"):
        run(unknown, "predicted")
