"""Charts of schedules, and the script that draws them."""

from __future__ import annotations

import base64
import gzip
from importlib.resources import files
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from plotly.offline import get_plotlyjs

from analysis.charts.gantt_chart import Bar, bars, gantt
from analysis.charts.run_curves import HEAT_COLUMNS, mean_load, scale
from analysis.charts.slice_charts import excerpt_chart, interval_rows
from analysis.metrics.derived_columns import with_derived
from analysis.pages import LETTERS, packed_plotly, unwrapped
from foundation.records import JOBS, SLICES, Placement, SliceRecord, load_run
from foundation.records.table_files import frame_of
from tests.fixtures.example_runs import example_run
from tests.fixtures.records import make_ended, make_info


def entries(*rows: tuple[int, float, float, str, list[int]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["row", "start_s", "end_s", "node", "core"], orient="row")


def test_a_job_alone_is_one_bar_over_its_neighbouring_cores() -> None:
    drawn, lanes = bars(entries((0, 0.0, 5.0, "a", [0, 1, 3])))
    assert drawn == [Bar(0, "a", 0, 2, None, 0.0, 5.0), Bar(0, "a", 3, 1, None, 0.0, 5.0)]
    assert lanes == 1


def test_jobs_that_share_a_core_lie_in_different_lanes_of_it() -> None:
    drawn, lanes = bars(entries((0, 0.0, 5.0, "a", [0, 1]), (1, 4.0, 9.0, "a", [1])))
    assert lanes == 2
    assert {(bar.row, bar.core): bar.lane for bar in drawn} == {(0, 0): None, (0, 1): 0, (1, 1): 1}


def test_jobs_that_follow_each_other_do_not_share() -> None:
    drawn, lanes = bars(entries((0, 0.0, 5.0, "a", [0]), (1, 5.0, 9.0, "a", [0])))
    assert (lanes, [bar.lane for bar in drawn]) == (1, [None, None])


def test_the_same_core_id_on_another_node_is_another_core() -> None:
    drawn, lanes = bars(entries((0, 0.0, 5.0, "a", [0]), (1, 0.0, 5.0, "b", [0])))
    assert (lanes, len(drawn)) == (1, 2)


def test_no_two_bars_overlap() -> None:
    rng = np.random.default_rng(4)
    rows = []
    for row in range(200):
        start_s = float(rng.integers(0, 300))
        cores = sorted(rng.choice(6, size=rng.integers(1, 6), replace=False).tolist())
        rows.append((row, start_s, start_s + float(rng.integers(1, 40)), f"n{rng.integers(0, 2)}", cores))
    drawn, _ = bars(entries(*rows))
    for first in drawn:
        for second in drawn:
            together = first.start_s < second.end_s and second.start_s < first.end_s
            near = first.node == second.node and first.core < second.core + second.cores
            if first is not second and together and near and second.core < first.core + first.cores:
                assert first.lane is not None
                assert second.lane is not None
                assert first.lane != second.lane
    covered = sum((bar.end_s - bar.start_s) * bar.cores for bar in drawn)
    assert covered == sum((end - start) * len(cores) for _, start, end, _, cores in rows)


def test_the_load_map_is_the_mean_over_each_cell() -> None:
    start, end = np.array([0.0, 1.5, 2.0]), np.array([300.0, 4.25, 3.0])
    load = mean_load(np.array([0, 1, 1]), start, end, np.array([2.0, 4.0, 1.0]), 2, float(HEAT_COLUMNS))
    assert load[0].tolist() == [2.0] * HEAT_COLUMNS
    assert load[1][:6].tolist() == pytest.approx([0, 2, 5, 4, 1, 0])


def test_idle_nodes_are_drawn_too() -> None:
    jobs = with_derived(frame_of([make_ended(1, placement=(Placement("b", (0,)),))], JOBS))
    chart = gantt(jobs, make_info(system="N3C2", node_names=("a", "b", "c")))
    assert chart is not None
    assert [label.split(" ")[0] for label in chart.figure.layout.yaxis.ticktext] == [*"aabbcc"]


def test_a_run_without_places_has_no_schedule() -> None:
    assert gantt(with_derived(frame_of([make_ended(1, placement=None)], JOBS)), make_info()) is None


def test_maps_of_runs_that_are_compared_have_one_scale_of_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """One job a core is no darker in a run that has no more than in one that has two."""
    monkeypatch.setattr("analysis.charts.gantt_chart.ROWS_LIMIT", 0)
    jobs = with_derived(frame_of([make_ended(1)], JOBS))
    tops = []
    for most in (None, 2):
        chart = gantt(jobs, make_info(multiplicity=1), most_a_core=most, most_px=300)
        assert chart is not None
        assert chart.figure.layout.height <= 300
        tops.append(chart.figure.data[0].zmax)
    assert tops == [1, 2]


@pytest.mark.parametrize(("low", "high"), [(0.1, 250.0), (1.0, 1.0), (0.98, 1.7), (1.0, 7000.0), (0.5, 4.0)])
def test_an_axis_has_round_ticks_and_space_for_all_values(low: float, high: float) -> None:
    axis = scale(low, high)
    first, last = axis["range"]
    if axis.get("type") == "log":
        first, last = 10**first, 10**last
        assert sum(first <= tick <= last for tick in axis["tickvals"]) >= 3
    assert first < low
    assert last > high


@pytest.mark.slow
def test_the_excerpt_shows_the_busiest_stretch(tmp_path: Path) -> None:
    run = load_run(example_run(tmp_path / "RUN", "gang"))
    assert run.slices is not None
    chart = excerpt_chart(run.slices, run.jobs)
    assert chart is not None
    roles = {text.rsplit(" ", 1)[1] for trace in chart.figure.data for text in trace.customdata}
    assert {"run", "held"} <= roles
    assert sum(len(trace.x) for trace in chart.figure.data) <= 3_000


def test_slices_of_jobs_at_unknown_places_have_no_excerpt() -> None:
    row = SliceRecord(slice=0, start_s=0, length_s=1, job=101, node="n1", role="run")
    assert excerpt_chart(frame_of([row], SLICES), frame_of([make_ended(placement=None)], JOBS)) is None


def test_the_interval_table_counts_long_intervals_together() -> None:
    pattern = "rhrhhhhhhrr"
    rows = [
        SliceRecord(
            slice=number, start_s=number, length_s=1, job=101, node="n1",
            role="run" if letter == "r" else "held",
        )
        for number, letter in enumerate(pattern)
    ]  # fmt: skip
    jobs = with_derived(frame_of([make_ended(1, app="lu", cores=25, dedicated_s=1.0)], JOBS))
    assert interval_rows(frame_of(rows, SLICES), jobs) == [["1", "lu, 25", "2.00", "1", "1", "0", "0", "1"]]


@pytest.mark.slow
def test_what_is_packed_is_plotlys_script_and_no_markup_begins_in_it() -> None:
    packed = packed_plotly()
    assert "<" not in packed.text
    content = base64.b85decode(packed.text.replace(".", "<"))
    assert gzip.decompress(content[: packed.length]).decode() == unwrapped(get_plotlyjs())
    assert len(packed.text) < 0.4 * len(get_plotlyjs())


def test_the_page_unpacks_with_the_same_letters() -> None:
    assert (len(LETTERS), len(set(LETTERS))) == (85, 85)
    script = (files("analysis.pages") / "assets" / "figures.js").read_text(encoding="utf-8")
    assert f'const letters = "{LETTERS}";' in script


def test_the_functions_around_the_script_are_left_out_and_nothing_else() -> None:
    script = get_plotlyjs()
    bare = unwrapped(script)
    licence, begin, rest = bare.partition('"use strict";var Plotly=')
    assert begin
    assert "MIT license" in licence
    assert bare.endswith("\nwindow.Plotly = Plotly;\n")
    assert "root.moduleName" not in bare
    assert rest.removesuffix("\nwindow.Plotly = Plotly;\n") in script
    assert len(script) - len(bare) < 400


def test_a_script_that_is_wrapped_otherwise_stays_as_it_is() -> None:
    for script in ("", "var Plotly = {};", get_plotlyjs()[:-5], get_plotlyjs()[7:]):
        assert unwrapped(script) == script
