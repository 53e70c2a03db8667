"""How long a change of controllers takes: ``pytest -m benchmark -s tests/benchmarks/test_gang_takeover.py``.

Twenty agents' minds, slices of 250 ms, jobs that are frozen; controllers are real processes over an in-memory
Slurm. ``OSUB_TAKEOVERS`` sets how often the leader is killed or stopped, in turns.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from pathlib import Path

import pytest

from tests.fixtures.bench import record
from tests.fixtures.gang_company import Change, Company, blow, judge
from tests.fixtures.looks import until

pytestmark = pytest.mark.benchmark

NODES = 20
TAKEOVER_MS = float(os.environ.get("OSUB_TAKEOVER_MS", "1000"))


def summary(name: str, changes: list[Change]) -> str:
    def spread(values: list[float]) -> str:
        return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"

    first, last = spread([one.spoke_s for one in changes]), spread([one.all_s for one in changes])
    beyond_s, freed_s = (max(getattr(one, name) for one in changes) for name in ("beyond_s", "freed_s"))
    freed = sum(one.freed for one in changes)
    return (
        f"{name}, {len(changes)} times: first agent follows after {first} s, last {last} s; held beyond the "
        f"lease {beyond_s:.3f} s at most; {freed} of {NODES * len(changes)} nodes held no job for a while, "
        f"{freed_s:.2f} s at most"
    )


def test_takeovers(tmp_path: Path) -> None:
    company = Company(tmp_path, NODES, places=2, takeover_ms=TAKEOVER_MS)
    changes: dict[signal.Signals, list[Change]] = {signal.SIGKILL: [], signal.SIGSTOP: []}
    try:
        company.lead(0)
        until(lambda: "leads" in log(company, 0), 60, "the first leads")
        company.board()
        company.lead(1)
        now = company.all_hold()
        for turn in range(int(os.environ.get("OSUB_TAKEOVERS", "20"))):
            leads, standby = turn % 2, 1 - turn % 2
            _wait_standby(company, standby, turn // 2)
            number = (signal.SIGKILL, signal.SIGSTOP)[turn // 2 % 2]
            child = company.controllers[leads]
            at_ns = blow(child, number)
            later = company.all_hold(but=now)
            changes[number].append(judge(company.seen(), at_ns, later, NODES))
            if number == signal.SIGSTOP:
                blow(child, signal.SIGCONT)
            child.wait(60)
            company.lead(leads)
            now = later
            print(f"\n{signal.Signals(number).name}: {changes[number][-1]}", flush=True)
    finally:
        company.close()
        print(f"\nload {os.getloadavg()}, takeover_ms {TAKEOVER_MS:g}")
        for kind, found in changes.items():
            if found:
                print(summary(signal.Signals(kind).name, found))
                record(
                    "takeover", f"all agents follow the other after {signal.Signals(kind).name}",
                    [one.all_s for one in found], "s", better="less", baseline="takeover_ms",
                    baseline_trials=[TAKEOVER_MS / 1000],
                    method=f"{NODES} agents, controllers as processes",
                )  # fmt: skip


def _wait_back(company: Company, part: int) -> None:
    """Start the agents of a part anew and wait until each of them holds a job."""
    since_ns = time.monotonic_ns()
    company.board(part)
    names = {f"n{number + 1}" for number in range(part, NODES, company.parts)}
    until(
        lambda: names <= {one.node for one in company.seen() if one.ns > since_ns and one.held},
        60,
        f"agents of part {part} hold jobs again",
    )


def _wait_standby(company: Company, place: int, before: int) -> None:
    until(lambda: log(company, place).count("standby:") > before, 60, "the other stands by")


def log(company: Company, place: int) -> str:
    return (company.folder / f"controller-{place}.log").read_text()


def test_a_rolling_upgrade(tmp_path: Path) -> None:
    """First the controller, then the agents, five at a time; what the others hold meanwhile."""
    company = Company(tmp_path, NODES, parts=4)
    try:
        company.lead()
        for part in range(company.parts):
            company.board(part)
        now = company.all_hold()
        began_ns = blow(company.controllers[0], signal.SIGUSR2)
        company.controllers[0].wait(60)
        company.lead()
        company.all_hold(but=now)
        for part in range(company.parts):
            fleet = company.fleets[part]
            blow(fleet, signal.SIGTERM)
            fleet.wait(60)
            _wait_back(company, part)
        seen = [one for one in company.seen() if one.ns >= began_ns]
        took_s = (seen[-1].ns - began_ns) / 1e9
        beyond_s = max(one.beyond_ns for one in seen) / 1e9
        print(f"\nrolling upgrade of {NODES} agents, {took_s:.0f} s: held beyond the lease {beyond_s:.3f} s")
        print(f"load {os.getloadavg()}")
    finally:
        company.close()
