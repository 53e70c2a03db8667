"""Whether gangd takes programs that wait for what they are; prints a table, asserts nothing about time.

Run it on a calm host::

    OSUB_FIGURES=demand.md pytest -m benchmark -s tests/benchmarks/test_demand_of_programs.py

Each program shares its cores with jobs that compute all the time, under both holds. A program that flaps is
taken for idle again and again while it works: then it runs with others rather than in slices of its own.
``OSUB_TRIAL_S`` (default 20) is how long each is watched.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.local import GangKind, HoldSetting
from deploy.local.gang import status_folder
from gangd.controller.controller_status import read_status
from tests.fixtures.gang_trials import PYTHON, Bench, Figures, cluster_of, noise, wait_slowly
from tests.fixtures.voice import say

pytestmark = [pytest.mark.benchmark, pytest.mark.slurm, pytest.mark.timeout(3600)]

WATCHED_S = float(os.environ.get("OSUB_TRIAL_S", "20"))
LAUNCH_S = 8.0
FIXTURES = Path(__file__).parents[1] / "fixtures"
WAITING = str(FIXTURES / "gang_waiting.py")


@dataclass(frozen=True, slots=True)
class Program:
    """A program: what it is called, its words, on how many nodes, and whether it is busy by rights."""

    name: str
    words: tuple[str, ...]
    nodes: int
    is_busy: bool = True


def rrba(app: str) -> Program:
    words = (*PYTHON, "-m", "workloads.rrba", "--app", app, "--target-s", f"{WATCHED_S + 60:g}")
    return Program(f"rrba {app}, 2 ranks", words, 2)


def programs(port: int) -> list[Program]:
    seconds = f"{WATCHED_S + 60:g}"
    return [
        rrba("lu"),
        rrba("jacobi"),
        rrba("mg"),
        Program(
            "2 ranks that block for their peer",
            (sys.executable, WAITING, "--for", "peer", "--port", str(port), "--seconds", seconds),
            2,
        ),
        Program(
            "1 process that waits for its files",
            (sys.executable, WAITING, "--for", "files", "--seconds", seconds),
            1,
        ),
        Program(
            "1 process, busy 1 %",
            (sys.executable, str(FIXTURES / "gang_shares.py"), "--pattern", "idle", "--until", "4000000000"),
            1,
            is_busy=False,
        ),
    ]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.mark.parametrize("hold", [*HoldSetting])
@pytest.mark.parametrize("number", range(6))
def test_demand(figures: Figures, number: int, hold: HoldSetting) -> None:
    program = programs(free_port())[number]
    with cluster_of(GangKind.OSUB, 2, hold=hold) as cluster, noise() as host:
        bench = Bench(cluster.client(), cluster.folder)
        begin_s = time.time() + LAUNCH_S
        for _ in range(2):  # one on each core
            bench.spinning(begin_s, begin_s + WATCHED_S + LAUNCH_S + 30)
        job = bench.id_of(bench.submit("program", program.words, program.nodes))
        state = status_folder(cluster.state().layout)

        def demand() -> str | None:
            return next((each.demand for each in read_status(state).jobs if each.job == job), None)

        wait_slowly(lambda: demand() is not None, 60, f"job {job} shares its core")
        time.sleep(LAUNCH_S)
        seen = []
        until = time.monotonic() + WATCHED_S
        while time.monotonic() < until:
            seen.append(demand())
            time.sleep(0.25)
        bench.cancel()
    flips = sum(now != before for before, now in itertools.pairwise(seen))
    busy = sum(each == "busy" for each in seen) / len(seen)
    say(f"  {program.name}, {hold.value}: busy {busy:.0%}, changes {flips}; {host}")
    figures.add(
        f"{program.name}, {hold.value}: taken for busy",
        f"{busy:.0%} of the time; {60 * flips / WATCHED_S:.1f} changes a minute",
        "100%; none" if program.is_busy else "0%; none",
        f"status four times a second for {WATCHED_S:g} s, with jobs that spin on both cores",
    )
