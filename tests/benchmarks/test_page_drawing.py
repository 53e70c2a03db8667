"""How long a page of 100,000 jobs takes until a fresh browser has drawn what the screen shows.

    pytest -m benchmark -s tests/benchmarks/test_page_drawing.py

On a calm host about a minute and a half, most of it for the run. Wanted: 2 s. The time on the main thread
does not depend on what else the host does.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import psutil
import pytest

import osub
from osub.cli.main import run
from tests.fixtures.browser import Browser, needs_chromium
from tests.fixtures.voice import say

pytestmark = [pytest.mark.benchmark, needs_chromium, pytest.mark.timeout(1800)]

JOBS, TIMES = 100_000, 5


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    trace = folder / "trace.swf"
    words = ["--jobs", str(JOBS), "--system", "N150C12", "--load", "0.8", "--seed", "3"]
    assert run(["trace", "generate", "--out", str(trace), *words]) == 0
    return osub.simulate(trace, "N150C12", multiplicity=2).report(folder / "page.html")


def main_thread_s(browser: Browser) -> float:
    """Return the CPU time of the busiest renderer's first thread."""
    used = []
    for process in psutil.Process(browser.pid).children(recursive=True):
        if "--type=renderer" in process.cmdline():
            ran_ns = Path(f"/proc/{process.pid}/task/{process.pid}/schedstat").read_text().split()[0]
            used.append(int(ran_ns) / 1e9)
    return max(used)


def test_a_page_of_many_jobs_in_a_fresh_browser(page: Path) -> None:
    walls, mains = [], []
    for _ in range(TIMES):
        with Browser() as browser, browser.tab() as tab:
            tab.look(1280, 900)
            begin_s = time.monotonic()
            tab.open(page, everything=False)
            walls.append(time.monotonic() - begin_s)
            mains.append(main_thread_s(browser))
    say(
        f"{page.stat().st_size / 1e6:.1f} MB, {JOBS:,} jobs: first screen after "
        f"{statistics.median(walls):.2f} s "
        f"({min(walls):.2f} to {max(walls):.2f}), main thread {statistics.median(mains):.2f} s"
    )
