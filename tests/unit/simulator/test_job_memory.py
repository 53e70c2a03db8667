"""Memory that nodes reserve for jobs, and jobs that are killed for what they really use."""

from __future__ import annotations

from pathlib import Path

import pytest

import osub
from foundation.errors import InputError, UsageError

NODE_GIB = 100 / 1024**2  # a node of 100 KiB


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


def grown(path: Path, **more: object) -> osub.Run:
    """Run jobs whose memory grows for half of their work, in slices of 2 s, on a node of 800 MiB."""
    words = {"multiplicity": 2, "quantum_ms": 2000, "hold": "freeze", "overhead": 1.0, "vary_overhead": False}
    words |= {"memory": "ignored", "memory_growth": 0.5, **more}
    return osub.simulate(path, "N1C2", memory_gib=800 / 1024, **words)


def two_large(tmp_path: Path, asked_mib: tuple[int, int] = (600, 600)) -> Path:
    return trace(tmp_path, [(place, 500 << 10, asked << 10) for place, asked in enumerate(asked_mib)])


def test_a_node_that_is_full_kills_the_job_with_most_memory(tmp_path: Path) -> None:
    found = grown(two_large(tmp_path))
    assert found.jobs["state"].to_list() == ["FAILED", "COMPLETED"]
    assert 38 <= found.jobs["end_s"][0] <= 44, "both have 400 MiB after 40 s"
    assert (found.outcome["out_of_memory"], found.info.options["memory_growth"]) == (1, 0.5)


def test_the_youngest_gang_gives_way_before(tmp_path: Path) -> None:
    found = grown(two_large(tmp_path), memory_mib=350)
    assert found.jobs["state"].to_list() == ["COMPLETED", "COMPLETED"]
    assert found.jobs["end_s"][0] == 100, "the first in line is never suspended"
    assert found.jobs["frozen_s"][1] > 40
    assert found.outcome["out_of_memory"] == 0


def test_a_gang_above_its_request_gives_way_first(tmp_path: Path) -> None:
    found = grown(two_large(tmp_path, (100, 600)), memory_mib=350, memory="requested")
    assert found.outcome["out_of_memory"] == 0
    assert found.jobs["end_s"][1] < found.jobs["end_s"][0], "the older one has used more than it asked for"


def test_memory_lets_slices_be_cut_where_no_core_is_shared(tmp_path: Path) -> None:
    alone = grown(two_large(tmp_path), multiplicity=1, check=True)
    assert alone.outcome["out_of_memory"] == 1
    little = grown(
        trace(tmp_path, [(0, 100 << 10, 200 << 10), (1, 100 << 10, 200 << 10)]), memory_mib=350, check=True
    )
    assert little.jobs["end_s"].to_list() == [100.0, 101.0]


def test_growth_and_bound_that_cannot_be_are_refused(tmp_path: Path) -> None:
    path = two_large(tmp_path)
    for name, value in (
        ("memory", None),
        ("quantum_ms", None),
        ("memory_growth", 0.0),
        ("memory_growth", 1.5),
    ):
        with pytest.raises(UsageError, match="memory_growth"):
            grown(path, **{name: value})
    for name, value in (("memory_growth", None), ("memory_mib", 800), ("memory_mib", 0)):
        with pytest.raises(UsageError, match="memory_mib"):
            grown(path, **{"memory_mib": 350, name: value})


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
