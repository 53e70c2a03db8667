"""The pages in a real browser: drawn, quiet, sorted, filtered, saved, readable in both schemes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import plotly.graph_objects as go
import polars as pl
import pytest

from analysis.charts.chart_style import Chart, arrange
from analysis.comparison.compared_runs import compared
from analysis.pages import Page, PageBlock, PageTable, Section, TableCell, VerdictParagraph, write_page
from foundation.records import Run, load_run
from tests.fixtures.browser import Browser, Tab, needs_chromium
from tests.fixtures.example_runs import Setting, example_run

pytestmark = [pytest.mark.slow, needs_chromium, pytest.mark.timeout(600)]
EVIL = (
    "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1><a href='javascript:1'>=1+1"
)

CONTRASTS = """
(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
    .map((one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || element.closest("script, .bars, .unseen, .skip")) continue;
    if (!element.getClientRects().length) continue;
    const drawn = element.closest("svg");
    const text = parts(drawn ? getComputedStyle(element).fill : getComputedStyle(element).color);
    const [one, other] = [light(text), light(behind(drawn ? element.closest(".plot") : element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) poor.push(`${walker.currentNode.textContent.trim()}: ${ratio.toFixed(2)}`);
  }
  return poor;
})()
"""


@pytest.fixture(name="tab", scope="module")
def _tab() -> Iterator[Tab]:
    with Browser() as browser, browser.tab() as tab:
        yield tab


@pytest.fixture(name="runs", scope="module")
def _runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    settings: tuple[Setting, ...] = ("alone", "naive", "gang")
    return [load_run(example_run(folder / setting, setting, jobs=12)) for setting in settings]


@pytest.fixture(name="comparison", scope="module")
def _comparison(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("page") / "comparison.html"
    compared(runs).write_page(page)
    return page


def small_page(target: Path, *, texts: str = "b") -> Path:
    """Write a page with a bar chart and a table of figures, words and gaps."""
    figure = go.Figure(go.Bar(x=["a", texts], y=[1, 2], name=texts, customdata=["first", texts]))
    arrange(figure, 300, xaxis_title="kind", yaxis_title="jobs")
    rows: list[list[str | TableCell]] = [
        ["ten", "10", "1,200"],
        [texts, "9", "-"],
        [TableCell("two", tone="bad"), "2", "30.5"],
    ]
    rows += [[f"row {number}", str(number), str(number)] for number in range(20, 26)]
    grid = PageTable(columns=("name", "size", "wait"), rows=rows, texts=1, heads=True)
    block = PageBlock("Sizes", "A caption.", grid=grid)
    sections = [Section("picture", "Picture", [PageBlock("", "Bars.", chart=Chart(figure, "Bars."))])]
    write_page(
        target,
        Page(texts, texts, [*sections, Section("t", texts, [block])], [VerdictParagraph("So:", texts)]),
    )
    return target


def column(tab: Tab, number: int) -> list[str]:
    """Return the texts of a column of the first table that has tools, as shown."""
    script = f"""[...document.querySelector("table[data-tools]").tBodies[0].rows]
        .filter((row) => !row.hidden).map((row) => row.cells[{number}].innerText)"""
    return list(tab.run(script))


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_a_comparison_is_drawn_quiet_and_readable(
    tab: Tab, comparison: Path, width: int, scheme: str
) -> None:
    tab.look(width, 900, scheme)
    tab.open(comparison)
    figures = "document.querySelectorAll('figure.chart')"
    assert tab.run(f"{figures}.length") >= 8
    assert tab.run(f"[...{figures}].filter((one) => !one.querySelector('.main-svg')).length") == 0
    assert tab.complaints == []
    assert [one for one in tab.requests if not one.startswith(("file:", "blob:", "data:"))] == []
    assert tab.run("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    # The numbers of jobs are on bars, whose colours are chosen for white (charts.py).
    tab.run("document.querySelectorAll('.bartext').forEach((one) => one.classList.add('bars'))")
    assert tab.run(CONTRASTS) == []


def test_the_answer_comes_first_then_the_reference_naive_and_gangd_and_where_it_ran_last(
    tab: Tab, comparison: Path
) -> None:
    tab.look(1400, 900)
    tab.open(comparison, everything=False)
    names = tab.run("[...document.querySelectorAll('main > section')].map((one) => one.id)")
    assert (names[:4], names[-1]) == (["verdict", "schedule", "evidence", "differences"], "where")
    script = "[...document.querySelectorAll('#schedule h3')].map((one) => one.innerText)"
    assert tab.run(script) == ["M=1", "M=2 naive", "M=2 gangd"]
    tops = tab.run("[...document.querySelectorAll('#schedule figure')].map((one) => one.offsetTop)")
    assert len(set(tops)) == 1, "they are side by side"
    bottom = (
        "[...document.querySelectorAll('#schedule figure')].map((one) => one.getBoundingClientRect().bottom)"
    )
    assert max(tab.run(bottom)) <= 900, "answer and picture are on the first screen"
    tab.look(420, 900)
    tops = tab.run("[...document.querySelectorAll('#schedule figure, .cards')].map((one) => one.offsetTop)")
    assert tops == sorted(tops)
    assert tops[0] < 900, "a picture begins on a phone's first screen, before the cards"


def test_headings_tables_and_figures_say_what_they_are(tab: Tab, comparison: Path) -> None:
    tab.look()
    tab.open(comparison, everything=False)
    levels = tab.run("[...document.querySelectorAll('h1,h2,h3,h4')].map((one) => Number(one.tagName[1]))")
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert tab.run("[...document.querySelectorAll('th')].filter((one) => !one.scope).length") == 0
    assert tab.run("[...document.querySelectorAll('table')].filter((one) => !one.caption).length") == 0
    unnamed = "[...document.querySelectorAll('.plot, button, input, .scroll')].filter((one) => !(%s)).length"
    assert tab.run(unnamed % "one.getAttribute('aria-label') || one.innerText.trim()") == 0
    names = tab.run("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(set(names)) == len(names)


def test_a_table_sorts_by_size_with_gaps_last_and_by_words(tab: Tab, tmp_path: Path) -> None:
    tab.look()
    tab.open(small_page(tmp_path / "page.html"))
    press = "document.querySelector('table[data-tools]').tHead.rows[0].cells[%d].firstChild.click()"
    tab.run(press % 2)
    assert column(tab, 2) == ["20", "21", "22", "23", "24", "25", "30.5", "1,200", "-"]
    tab.run(press % 2)
    assert column(tab, 2) == ["1,200", "30.5", "25", "24", "23", "22", "21", "20", "-"]
    tab.run(press % 0)
    assert column(tab, 0)[:3] == ["b", "row 20", "row 21"]
    assert (tab.run("document.querySelectorAll('th[aria-sort]').length"), tab.complaints) == (1, [])


def test_a_table_is_sorted_from_the_keyboard(tab: Tab, tmp_path: Path) -> None:
    tab.look()
    tab.open(small_page(tmp_path / "page.html"))
    for _ in range(40):
        tab.press("Tab", 9)
        if tab.run("document.activeElement.closest('th')?.innerText.trim() === 'size'"):
            break
    tab.press("Enter", 13)
    assert column(tab, 1)[:3] == ["2", "9", "10"]


def test_a_filter_shows_the_rows_with_all_its_words(tab: Tab, tmp_path: Path) -> None:
    tab.look()
    tab.open(small_page(tmp_path / "page.html"))
    write = """(() => { const input = document.querySelector("input[type=search]"); input.value = %r;
        input.dispatchEvent(new Event("input")); })()"""
    tab.run(write % "row 23")
    assert column(tab, 0) == ["row 23"]
    assert tab.run("document.querySelector('[role=status]').innerText") == "1 of 9 rows"
    tab.run(write % "")
    assert len(column(tab, 0)) == 9


def test_every_figure_is_saved_as_png_svg_and_csv(tab: Tab, comparison: Path) -> None:
    tab.look(scheme="dark")
    tab.open(comparison, everything=False)
    for number in (0, 2, 4):
        figure = f"[...window.osub.figures.keys()][{number}]"
        kind = tab.run(
            f"window.osub.picture({figure}, 'png')"
            ".then(async (one) => [one.size, ...new Uint8Array(await one.slice(1, 4).arrayBuffer())])"
        )
        assert kind[0] > 2000
        assert bytes(kind[1:]) == b"PNG"
        text = tab.run(f"window.osub.picture({figure}, 'svg').then((one) => one.text())")
        assert text.startswith("<svg")
        assert "rgb(18, 24, 30)" not in text, "pictures are for white paper"
    output = tab.run("[...window.osub.figures.values()].map((one) => window.osub.figureRows(one.figure))")
    assert all(len(rows) > 1 and {len(row) for row in rows} == {len(rows[0])} for rows in output)
    first = tab.run("window.osub.figureRows([...window.osub.figures.values()][0].figure)")
    assert first[0][:3] == [
        "series",
        *(f"time from the first due submission [s], {what}" for what in ("from", "length")),
    ]
    assert any("job 3" in str(row[-1]) for row in first[1:])
    assert tab.complaints == []


def test_the_switch_changes_page_and_figures_and_is_remembered_in_the_page(
    tab: Tab, comparison: Path
) -> None:
    tab.look(scheme="light")
    tab.open(comparison, everything=False)
    paper = "getComputedStyle(document.body).backgroundColor"
    drawn = "getComputedStyle(document.querySelector('.main-svg')).backgroundColor"
    assert tab.run(paper) == tab.run(drawn) == "rgb(255, 255, 255)"
    for _ in range(2):
        tab.run("document.getElementById('scheme').click()")
    assert tab.run("document.getElementById('scheme').innerText") == "Colours: dark"
    tab.wait_for(f"{paper} === 'rgb(18, 24, 30)' && {drawn} === 'rgb(18, 24, 30)'")
    tab.run("document.getElementById('scheme').click()")
    tab.wait_for(f"{drawn} === 'rgb(255, 255, 255)'")


def test_a_gantt_chart_is_coloured_by_job_by_a_button(tab: Tab, comparison: Path) -> None:
    tab.look()
    tab.open(comparison, everything=False)
    colours = (
        "new Set([...document.querySelector('#schedule .plot').querySelectorAll('.point path')]"
        ".map((one) => one.style.fill)).size"
    )
    before = tab.run(colours)
    tab.run(
        "[...document.querySelectorAll('#schedule button')].find((one) => one.innerText === 'by job').click()"
    )
    tab.wait_for(f"{colours} > {before}")


def test_hostile_names_are_letters_on_every_page(tab: Tab, runs: list[Run], tmp_path: Path) -> None:
    tab.look()
    jobs = runs[1].jobs.with_columns(app=pl.lit(EVIL), user=pl.lit(EVIL), args=pl.lit(EVIL))
    info = msgspec.structs.replace(
        runs[1].info, label=EVIL, trace_name=EVIL, policy=EVIL, options={EVIL: EVIL}, slurm_version=EVIL
    )
    evil = replace(runs[1], jobs=jobs, info=info)
    compared([runs[0], evil, runs[2]]).write_page(tmp_path / "runs.html")
    for page in (tmp_path / "runs.html", small_page(tmp_path / "small.html", texts=EVIL)):
        tab.open(page, everything=False)
        tab.run("document.querySelectorAll('button').forEach((one) => one.closest('th') && one.click())")
        assert tab.run("window.hacked") is None
        assert tab.run("document.querySelectorAll('img, a[href^=javascript]').length") == 0
        assert EVIL in tab.run("document.body.innerText")
        assert tab.complaints == []


def test_a_name_is_no_formula_in_a_saved_table(tab: Tab, tmp_path: Path) -> None:
    tab.look()
    tab.open(small_page(tmp_path / "page.html"))
    assert tab.run("""window.osub.csvOf([["=1+1", "-5", -5, "-", 'a "b", c', "+9%", "@x"]])""") == (
        '\'=1+1,-5,-5,-,"a ""b"", c",+9%,\'@x\n'
    )


def test_without_a_script_the_texts_and_tables_are_shown(tab: Tab, tmp_path: Path) -> None:
    tab.look()
    page = small_page(tmp_path / "page.html")
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.call("Page.navigate", url=page.as_uri())
        tab.wait_for("document.readyState === 'complete' && document.querySelector('td')")
        assert "need JavaScript" in tab.run("document.body.innerText")
        assert column(tab, 1)[0] == "10"
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)
