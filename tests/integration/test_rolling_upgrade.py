"""Twenty agents are upgraded, one after the other, from the version before, while jobs share."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangd.wire.messages import OLDEST, VERSION
from tests.fixtures.looks import until
from tests.fixtures.many_agents import Troop
from tests.fixtures.older_sources import unpack_older

pytestmark = [pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(1200)]

AGENTS, LEASE_S, SLACK_S = 20, 2.0, 0.5


@pytest.fixture
def troop(tmp_path: Path) -> Iterator[Troop]:
    troop = Troop(tmp_path, AGENTS)
    yield troop
    troop.close()


def protocols(troop: Troop) -> set[int | None]:
    status = troop.status()
    return set() if status is None else {node.protocol for node in status.nodes if node.agent == "joined"}


def test_no_job_is_stopped_beyond_the_lease_while_twenty_agents_are_upgraded(
    troop: Troop, tmp_path: Path
) -> None:
    older = unpack_older(tmp_path)
    troop.lead(older)
    for node in troop.nodes:
        troop.board(node, older)
    troop.speak()
    troop.tree.forget()
    for _ in range(8):
        troop.speak()
    usual_s = max(troop.tree.longest_s.values())
    troop.tree.forget()
    began_s = time.monotonic()
    troop.lead()
    until(lambda: protocols(troop) == {OLDEST}, 60, "this controller has all agents of the version before")
    led_s = time.monotonic() - began_s
    troop.speak()
    for node in troop.nodes:
        troop.board(node)
        until(
            lambda node=node: any(held[0] == node for held in troop.tree.held()),  # type: ignore[misc]
            60,
            f"the new agent of {node} holds a job",
        )
    troop.speak()
    until(lambda: protocols(troop) == {VERSION}, 30, "all agents speak this version")
    took_s = time.monotonic() - began_s
    longest = max(troop.tree.longest_s.items(), key=lambda one: one[1])
    print(
        f"\n{AGENTS} agents and their controller upgraded in {took_s:.0f} s (controller {led_s:.1f} s), load "
        f"{os.getloadavg()[0]:.1f}: no job stood still for more than {longest[1]:.2f} s (on {longest[0]}); "
        f"while nothing was upgraded {usual_s:.2f} s"
    )
    assert longest[1] <= LEASE_S + SLACK_S
