"""A controller is restarted, killed or stopped while agents hold jobs: real processes, real sockets.

How long that takes is measured by ``tests/benchmarks/test_gang_takeover.py``; here it may take as long as the
host likes, but nobody is held longer than the lease allows.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gangd.controller.state_directory import STATE_NAME
from tests.fixtures.gang_company import Company, blow, judge
from tests.fixtures.gang_host import until

pytestmark = pytest.mark.slow

NODES = 4
MOST_BEYOND_S = 1.0
"""One thread plays all agents, and is late on a busy host; a real agent has a thread and a guardian."""


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Company]:
    company = Company(tmp_path, NODES)
    yield company
    company.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Company]:
    company = Company(tmp_path, NODES, places=2, takeover_ms=1000)
    yield company
    company.close()


def log(company: Company, place: int) -> str:
    return (company.folder / f"controller-{place}.log").read_text()


def test_a_controller_that_is_restarted_goes_on_with_what_it_knew(alone: Company) -> None:
    alone.lead()
    alone.board()
    first = alone.all_hold()
    at_ns = blow(alone.controllers[0], signal.SIGUSR2)
    assert alone.controllers[0].wait(30) == 0
    state = msgspec.json.decode((alone.folder / "state" / STATE_NAME).read_bytes())
    assert sorted(state["joined"]) == [f"n{number + 1}" for number in range(NODES)]
    assert len(state["gangs"]) == NODES
    assert all(one["launched"] for one in state["gangs"])
    alone.lead()
    later = alone.all_hold(but=first)
    assert judge(alone.seen(), at_ns, later, NODES).beyond_s <= MOST_BEYOND_S


def test_a_standby_takes_over_from_a_leader_that_is_killed(pair: Company) -> None:
    pair.lead(0)
    until(lambda: "leads" in log(pair, 0), 60, "the first leads")
    pair.lead(1)
    pair.board()
    first = pair.all_hold()
    until(lambda: "standby" in log(pair, 1), 60, "the second stands by")
    at_ns = blow(pair.controllers[0], signal.SIGKILL)
    later = pair.all_hold(but=first)
    assert "term 2: this controller leads" in log(pair, 1)
    assert judge(pair.seen(), at_ns, later, NODES).beyond_s <= MOST_BEYOND_S
    assert {one.line for one in pair.seen()[-NODES:]} == {1}
    # The first comes back as a standby, and takes over when the second leaves in order.
    pair.controllers[0].wait(20)
    pair.lead(0)
    until(lambda: log(pair, 0).count("standby:") == 1, 60, "the first stands by")
    at_ns = blow(pair.controllers[1], signal.SIGUSR2)
    third = pair.all_hold(but=later)
    assert judge(pair.seen(), at_ns, third, NODES).beyond_s <= MOST_BEYOND_S
    assert pair.controllers[1].wait(30) == 0


def test_a_leader_that_was_stopped_and_wakes_up_is_heard_no_more(pair: Company) -> None:
    pair.lead(0)
    until(lambda: "leads" in log(pair, 0), 60, "the first leads")
    pair.lead(1)
    pair.board()
    first = pair.all_hold()
    until(lambda: "standby" in log(pair, 1), 60, "the second stands by")
    at_ns = blow(pair.controllers[0], signal.SIGSTOP)
    later = pair.all_hold(but=first)
    blow(pair.controllers[0], signal.SIGCONT)
    assert pair.controllers[0].wait(30) != 0
    assert "another controller has taken over (term 2)" in log(pair, 0)
    seen = pair.seen()
    assert judge(seen, at_ns, later, NODES).beyond_s <= MOST_BEYOND_S
    last = {one.node: one.follows for one in seen}
    assert set(last.values()) == {later}
    socket = pair.folder / "state" / "control.sock"
    assert socket.exists(), "it is the later controller's by now"
