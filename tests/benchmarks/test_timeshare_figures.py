"""How long time-sharing takes: ``pytest -m benchmark -s tests/benchmarks/test_timeshare_figures.py``.

The whole of Edison's size: 2.4 million jobs in 600 days on 5,576 nodes, drawn as the study draws them, as a
file and a command of its own. ``EDISON_DAYS`` takes fewer days.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from foundation.units import US_PER_S
from simulator.experiments.edison import DAYS, NODES, Edison
from simulator.timeshare.timeshare_state import TimeshareDemands
from tests.fixtures.swf_jobs import swf_job
from tests.fixtures.voice import say

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]
CORES = 24


@pytest.fixture(scope="module")
def edison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    days = int(os.environ.get("EDISON_DAYS", DAYS))
    jobs = Edison(days=days, warm_up_days=days // 6, spell_day=days * 7 // 12).draw(1)
    path = tmp_path_factory.mktemp("edison") / "edison.swf"
    write_swf(jobs, path)
    return path


def write_swf(jobs: TimeshareDemands, path: Path) -> None:
    """Write jobs as a trace, each with all cores of its nodes."""
    columns = zip(
        (jobs.submit_us // US_PER_S).tolist(),
        (jobs.run_us // US_PER_S).tolist(),
        (jobs.nodes * CORES).tolist(),
        (jobs.request_us // US_PER_S).tolist(),
        strict=True,
    )
    with path.open("w") as out:
        out.write(f"; MaxNodes: {NODES}\n; MaxProcs: {NODES * CORES}\n")
        out.writelines(swf_job(number, *row) for number, row in enumerate(columns, start=1))


MEASURED = """
import json, resource, sys, time
from osub.cli.main import main
began = time.perf_counter()
sys.argv = ["osub", *sys.argv[1:]]
try:
    main()
except SystemExit:
    pass
peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"wall_s": time.perf_counter() - began, "peak_mib": peak_kib / 1024}), file=sys.stderr)
"""


@pytest.mark.parametrize("policy", ["timeshare-batch", "timeshare"])
def test_a_trace_of_edisons_size(edison: Path, policy: str, tmp_path: Path) -> None:
    words = ["simulate", str(edison), "--system", f"N{NODES}C{CORES}", "--policy", policy]
    words += ["--out", str(tmp_path / "run"), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *words], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    took = json.loads(done.stderr.strip().splitlines()[-1])
    say(
        f"{policy}: {found['jobs']:,} jobs, engine {found['engine_cpu_s']:.1f} s of CPU, command "
        f"{took['wall_s']:.1f} s, peak {took['peak_mib']:,.0f} MiB; load average {os.getloadavg()[0]:.1f}"
    )
