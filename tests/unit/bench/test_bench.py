"""``make bench``: what benchmarks tell becomes rows with intervals and ratios, is kept, and is drawn."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.bench.areas import AREAS, areas_named
from tests.bench.figures import Row, rows_of, table
from tests.bench.history import Run, append, default_file, read, this_run
from tests.bench.page import draw
from tests.fixtures.bench import TARGET, record

ROOT = Path(__file__).parents[3]


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    target = tmp_path / "figures"
    monkeypatch.setenv(TARGET, str(target))
    record(
        "sweep", "overhead", [4.0, 6.0, 5.0], "%", better="less", baseline="work", baseline_trials=[2, 2, 1]
    )
    record("install", "agent", [11.0], "MB", better="less", method="files")
    return target.read_text().splitlines()


def runs(rows: list[Row]) -> list[Run]:
    return [this_run("1.0", "abc", "quick", load, rows) for load in (0.1, 9.0)]


def test_a_figure_has_its_median_an_interval_and_the_ratio_to_its_baseline(lines: list[str]) -> None:
    repeated, once = rows_of(lines)
    assert (repeated.value, repeated.repeats, repeated.ratio) == (5.0, 3, 3.0)
    assert repeated.interval is not None
    assert 4.0 <= repeated.interval[0] <= 5.0 <= repeated.interval[1] <= 6.0
    assert (once.value, once.interval, once.ratio) == (11.0, None, None)
    assert "| sweep | overhead | 5 (4 to 6) % | work | 3 (2 to 5) |" in table([repeated, once])


def test_a_history_keeps_runs_and_passes_over_what_a_kill_left(lines: list[str], tmp_path: Path) -> None:
    file = tmp_path / "new" / "bench.jsonl"
    made = runs(rows_of(lines))
    for run in made:
        append(file, run)
    with file.open("a") as stream:
        stream.write('{"at": "2026')
    assert read(file) == made
    assert read(tmp_path / "none") == []


def test_the_history_is_in_the_user_s_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert default_file() == Path("/somewhere/osub/bench.jsonl")


@pytest.mark.slow
def test_the_page_has_every_figure_and_says_when_the_host_was_not_calm(
    lines: list[str], tmp_path: Path
) -> None:
    draw(tmp_path / "bench.html", runs(rows_of(lines)))
    page = (tmp_path / "bench.html").read_text()
    assert "not calm" in page
    assert "sweep: overhead" in page
    assert "install: agent" in page


def test_every_area_names_tests_that_exist() -> None:
    for area in AREAS:
        for node in area.tests:
            file, _, name = node.partition("::")
            assert re.search(rf"^def {name.partition('[')[0]}\(", (ROOT / file).read_text(), re.MULTILINE), (
                node
            )
    with pytest.raises(ValueError, match="no area moon"):
        areas_named(("moon",))


def test_what_is_reported_is_a_line_of_json(lines: list[str]) -> None:
    assert [json.loads(line)["area"] for line in lines] == ["sweep", "install"]
