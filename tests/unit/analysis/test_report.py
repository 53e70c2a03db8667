from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
import pytest

from analysis.report import write_report
from analysis.tables import distinctly_labelled
from foundation.errors import OutputError
from foundation.records import JOBS, Run, RunWriter, load_run, write_run
from foundation.records.table_files import frame_of
from tests.fixtures.example_runs import example_run
from tests.fixtures.records import make_ended, make_info, make_job, make_trace

SECTIONS = [
    "verdict", "schedule", "evidence", "differences", "metrics", "waiting", "slowdown",
    "completion", "use", "slices", "definitions", "where",
]  # fmt: skip


@pytest.fixture(name="runs", scope="module")
def _runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        load_run(example_run(folder / "alone", "alone", jobs=15)),
        load_run(example_run(folder / "gang", "gang", jobs=15)),
    ]


def page_of(runs: list[Run], folder: Path) -> str:
    """Write the report and return it without Plotly's own script, which has every word in it."""
    write_report(runs, folder / "report.html")
    text = (folder / "report.html").read_text(encoding="utf-8")
    return re.sub(r'<script type="text/plain".*?</script>', "", text, flags=re.DOTALL)


@pytest.fixture(name="page", scope="module")
def _page(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_of(runs, tmp_path_factory.mktemp("page"))


def sections_of(page: str) -> list[str]:
    return re.findall(r'<section id="(\w+)">', page)


def test_the_page_has_every_section_that_the_runs_have_something_for(
    runs: list[Run], page: str, tmp_path: Path
) -> None:
    assert sections_of(page) == SECTIONS
    alone = [name for name in SECTIONS if name not in ("slices", "differences")]
    assert sections_of(page_of(runs[:1], tmp_path)) == alone


@pytest.mark.slow
def test_repeats_are_pictured_once_a_setting_and_their_differences_have_intervals(
    runs: list[Run], tmp_path: Path
) -> None:
    repeats = [
        replace(run, jobs=run.jobs.with_columns(pl.col("end_s") + 0.1 * trial), path=tmp_path / str(trial))
        for run in runs
        for trial in (1, 2, 3)
    ]
    page = page_of(distinctly_labelled(repeats), tmp_path)
    assert re.findall(r"<h3>(.*?)</h3>\s*<figure", page)[:2] == ["M=1 (1)", "M=2 gangd (1)"]
    assert "completed in all of 3 and 3 runs; intervals over runs." in page
    assert re.search(r"degradation, mean</th>.*?\+[\d.]+ to \+[\d.]+</td>", page)


def test_the_page_loads_nothing_from_elsewhere(page: str) -> None:
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', page) == []
    assert "@import" not in page
    assert "default-src 'none'" in page


@pytest.mark.slow
def test_maps_of_runs_that_are_compared_have_one_scale_of_colours(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job a core is no darker in the run that has no more than in the one that has two."""
    monkeypatch.setattr("analysis.charts.gantt_chart.ROWS_LIMIT", 0)
    assert [run.info.most_a_core for run in runs] == [1, 2]
    assert re.findall(r'"zmax":(\d+)', page_of(runs[:1], tmp_path)) == ["1"]
    assert re.findall(r'"zmax":(\d+)', page_of(runs, tmp_path)) == ["2", "2"]


@pytest.mark.slow
def test_the_same_runs_give_the_same_page(runs: list[Run], page: str, tmp_path: Path) -> None:
    assert page_of(runs, tmp_path) == page


@pytest.mark.slow
def test_texts_from_files_are_shown_and_never_obeyed(runs: list[Run], tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    jobs = runs[1].jobs.with_columns(app=pl.lit(evil), user=pl.lit(evil), args=pl.lit(evil))
    info = msgspec.structs.replace(
        runs[1].info, label=evil, trace_name=evil, policy=evil, options={evil: evil}, slurm_version=evil
    )
    page = page_of([replace(runs[1], jobs=jobs, info=info)], tmp_path)
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "onerror=alert(2)&gt;" in page


def test_a_page_of_runs_with_nothing_to_show_is_written(tmp_path: Path) -> None:
    write_run(tmp_path / "RUN", make_info(), make_trace(tmp_path), frame_of([], JOBS))
    page = page_of([load_run(tmp_path / "RUN")], tmp_path)
    assert sections_of(page) == ["evidence", "metrics", "definitions", "where"]


@pytest.mark.slow
def test_jobs_that_failed_at_once_are_drawn_too(tmp_path: Path) -> None:
    jobs = [
        make_ended(1, dedicated_s=10.0),
        make_ended(2, submit_s=1.0, start_s=1.0, end_s=1.0, dedicated_s=10.0, state="FAILED"),
        make_ended(3, submit_s=None, dedicated_s=10.0),
    ]
    write_run(tmp_path / "RUN", make_info(), make_trace(tmp_path), frame_of(jobs, JOBS))
    page = page_of([load_run(tmp_path / "RUN")], tmp_path)
    assert "slowdown" in sections_of(page)
    assert "2 COMPLETED, 1 FAILED" in page


@pytest.mark.slow
def test_runs_that_lack_what_a_chart_needs_leave_it_out(tmp_path: Path) -> None:
    jobs = [make_ended(1, submit_s=None, dedicated_s=2.0), make_ended(2, submit_s=None)]
    write_run(tmp_path / "RUN", make_info(), make_trace(tmp_path), frame_of(jobs, JOBS))
    page = page_of([load_run(tmp_path / "RUN")], tmp_path)
    assert sections_of(page) == [
        name for name in SECTIONS if name not in ("verdict", "waiting", "slices", "differences")
    ]


@pytest.mark.slow
def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "RUN", make_info(), make_trace(tmp_path)) as writer:
        writer.append_job(make_ended(1, dedicated_s=2.0), make_job(2, start_s=4.0))
    page = page_of([load_run(tmp_path / "RUN")], tmp_path)
    assert "The run is not finished" in page
    assert "1 COMPLETED, 1 unfinished" in page
    assert "1 job ran at a place that is not known" in page


@pytest.mark.slow
def test_an_earlier_page_is_replaced_and_no_partial_file_stays(runs: list[Run], tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("old", encoding="utf-8")
    write_report(runs[:1], tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert 1e6 < (tmp_path / "report.html").stat().st_size <= 2e6, "one run has 2 MB at most"


@pytest.mark.slow
def test_a_page_that_cannot_be_written_says_what_to_do(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is a folder; name a file"):
        write_report(runs, tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        write_report(runs, tmp_path / "file" / "report.html")


def test_runs_with_one_label_are_distinguished(runs: list[Run]) -> None:
    same = [replace(run, info=msgspec.structs.replace(run.info, label="demo")) for run in (*runs, runs[1])]
    labels = [run.info.label for run in distinctly_labelled(same)]
    assert labels == ["demo (alone)", "demo (gang)", "demo (gang) #2"]
    assert [run.info.label for run in distinctly_labelled(runs)] == ["M=1", "M=2 gangd"]


@pytest.mark.slow
def test_a_run_of_many_jobs_makes_a_page_of_bounded_size(tmp_path: Path) -> None:
    count = 60_000
    number = pl.int_range(count, eager=True)
    jobs = pl.DataFrame(
        {
            "trace_job": number,
            "kind": ["batch", "interactive"] * (count // 2),
            "nodes": [1] * count,
            "cores": [4] * count,
            "due_s": number * 1.5,
            "submit_s": number * 1.5,
            "start_s": number * 1.5 + number % 977,
            "end_s": number * 1.5 + number % 977 + 40.25,
            "dedicated_s": 30.0 + number % 7,
            "cpu_s": [100.0] * count,
            "placement": [[{"node": f"n{job % 300}", "cores": "0-3"}] for job in range(count)],
            "state": ["COMPLETED"] * count,
        }
    )
    write_run(tmp_path / "RUN", make_info(system="N300C12"), make_trace(tmp_path), jobs)
    page = page_of([load_run(tmp_path / "RUN")], tmp_path)
    assert len(page) < 3_000_000
    assert "too large to draw each job" in page
    assert "drawn with 1,000 points" in page
    assert "longest waits, and a sample" in page


@pytest.mark.slow
def test_slurms_parameters_are_reported_as_text(runs: list[Run], tmp_path: Path) -> None:
    config = {"SchedulerParameters": "bf_interval=7,<b>x", "Epilog": "(null)"}
    reported = replace(runs[0], info=msgspec.structs.replace(runs[0].info, slurm_config=config))
    assert "bf_interval=7, &lt;b&gt;x" in page_of([reported, runs[1]], tmp_path)
    config["SchedulerParameters"] = "(null)"
    assert "Slurm&#39;s parameters" not in page_of([replace(reported), runs[1]], tmp_path)
