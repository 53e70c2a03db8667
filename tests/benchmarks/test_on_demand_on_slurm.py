"""Every mechanism for on-demand jobs on an embedded Slurm, next to the simulation of the same trace.

``pytest -m benchmark -s tests/benchmarks/test_on_demand_on_slurm.py`` (root, 4 minutes a mechanism).
``OSUB_MECHANISMS`` chooses some, ``OSUB_ON_DEMAND_TRIALS`` how many traces are replayed (1).

Four nodes of one core, 18 rigid and malleable jobs and six on-demand ones within 200 s. Jobs save every 5 s;
a malleable job has a warning of 5 s.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import polars as pl
import pytest

import osub
from deploy.local import GangKind, LocalCluster, Shape
from foundation.records import load_run
from tests.fixtures.voice import say

pytestmark = [pytest.mark.benchmark, pytest.mark.slurm, pytest.mark.timeout(7200)]
MECHANISMS = ("n-paa", "n-spaa", "cua-paa", "cua-spaa", "cup-paa", "cup-spaa", "share")
NODES, SPAN_S, OTHERS, ON_DEMAND = 4, 200, 18, 6
SETTINGS = ("warning=5", "release=30", "squatting=no")
INSTANT_S = 5.0
COLUMNS = "trace_job,kind,min_nodes,setup_s,checkpoint_every_s,checkpoint_s,notice_s,predicted_s"


def write_trace(folder: Path, seed: int) -> tuple[Path, Path]:
    """Write a trace and the kinds of its jobs: a third of those not on demand is malleable."""
    dice = Random(seed)
    drawn = [(dice.uniform(0, 0.9 * SPAN_S), False) for _ in range(OTHERS)]
    drawn += [(SPAN_S * (place + dice.uniform(0.3, 0.9)) / ON_DEMAND, True) for place in range(ON_DEMAND)]
    lines, kinds = [], [COLUMNS]
    for number, (submit, demand) in enumerate(sorted(drawn), 1):
        come_s = round(submit)
        nodes = dice.randint(1, 2) if demand else dice.randint(1, 3)
        run_s = dice.randint(8, 15) if demand else dice.randint(15, 40)
        lines.append(f"{number} {come_s} -1 {run_s} {nodes} -1 -1 {nodes} 120 -1 1 1 1 -1 1 -1 -1 -1")
        if demand:
            notice_s = max(0, come_s - dice.randint(10, 25))
            predicted_s = max(notice_s, come_s - dice.randint(0, 5))
            kinds.append(f"{number},ondemand,,,,,{notice_s},{predicted_s}")
        elif number % 3 == 0 and nodes > 1:
            kinds.append(f"{number},malleable,1,1,,,,")
        else:
            kinds.append(f"{number},rigid,,1,5,0,,")
    trace, table = folder / f"{seed}.swf", folder / f"{seed}.csv"
    trace.write_text("\n".join([f"; MaxNodes: {NODES}", f"; MaxProcs: {NODES}", *lines, ""]))
    table.write_text("\n".join([*kinds, ""]))
    return trace, table


@contextmanager
def cluster(*, shared: bool) -> Iterator[LocalCluster]:
    with tempfile.TemporaryDirectory(prefix="ot-demand-") as home:
        found = LocalCluster(Path(home) / "c")
        gang = GangKind.OSUB if shared else GangKind.NONE
        found.up(Shape(nodes=NODES, cores=1, virtual=True, multiplicity=2 if shared else 1, gang=gang))
        try:
            if shared:
                state = found.state()
                toml = state.layout.gang / "gangd.toml"
                toml.write_text(f"most_job_weight = 8.0\n{toml.read_text()}")
                [daemon] = [one for one in state.daemons if one.role == "gangd"]
                os.kill(daemon.pid, signal.SIGHUP)
            yield found
        finally:
            found.down()


def figures(jobs: pl.DataFrame) -> tuple[int, float, float, float, int]:
    """Return starts within 5 s and wait of on-demand jobs, others' turnaround, node s lost, preemptions."""
    demand = jobs.filter(pl.col("kind") == "ondemand")
    others = jobs.filter(pl.col("kind") != "ondemand")
    waits_s = (demand["start_s"] - demand["submit_s"]).to_numpy()
    lost = jobs["wasted_s"].fill_null(0) * jobs["nodes"]
    return (
        int((waits_s <= INSTANT_S).sum()),
        float(waits_s.mean()),
        float((others["end_s"] - others["submit_s"]).to_numpy().mean()),
        float(lost.sum()),
        int(jobs["preemptions"].sum()),
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_mechanism_live_and_simulated(mechanism: str, tmp_path: Path) -> None:
    if mechanism not in os.environ.get("OSUB_MECHANISMS", ",".join(MECHANISMS)).split(","):
        pytest.skip("not asked for")
    for seed in range(1, 1 + int(os.environ.get("OSUB_ON_DEMAND_TRIALS", "1"))):
        trace, kinds = write_trace(tmp_path, seed)
        settings = [f"jobs={kinds}"]
        settings += SETTINGS if mechanism != "share" else []
        words = [part for setting in settings for part in ("--set", setting)]
        run = tmp_path / f"{mechanism}-{seed}"
        with cluster(shared=mechanism == "share") as found:
            where = ["--cluster", str(found.folder), "--out", str(run), "--on-demand", mechanism]
            done = subprocess.run(
                [sys.executable, "-P", "-m", "osub.cli.main", "replay", str(trace), *where, *words],
                capture_output=True,
                text=True,
                check=False,
                timeout=1800,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert found.client().reservations() == []
        simulated = osub.simulate(
            trace, f"N{NODES}C1", policy=f"hybrid-{mechanism}", settings=settings, interactive_queue=-1
        )
        live_jobs = load_run(run).jobs
        live = figures(live_jobs)
        model = figures(simulated.jobs)
        assert len(live_jobs) == OTHERS + ON_DEMAND
        cells = " | ".join(f"{one:.4g} / {other:.4g}" for one, other in zip(live, model, strict=True))
        say(f"| {mechanism} | {seed} | {cells} | load {os.getloadavg()[0]:.0f}")
