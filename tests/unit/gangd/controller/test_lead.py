"""Leader and standby."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from foundation.errors import HostError, TrustError, UsageError
from gangd.controller.controller_config import Config, load_config
from gangd.controller.failover import drop_messages
from gangd.controller.intake import AT_ONCE, MOST_BEYOND, Quota
from gangd.controller.state_directory import (
    LEADER_NAME,
    STATE_NAME,
    Candidate,
    Lead,
    Leader,
    LeadFile,
    StateDirectory,
)
from gangd.wire.sockets import ControllerSockets, Received
from tests.fixtures.gang_company import Company, blow, judge
from tests.fixtures.looks import until

SECOND = 1_000_000_000


@pytest.fixture
def file(tmp_path: Path) -> Iterator[LeadFile]:
    fd = os.open(tmp_path, os.O_DIRECTORY)
    yield LeadFile(fd, tmp_path)
    os.close(fd)


def leader(**more: object) -> Leader:
    return Leader(**{"term": 1, "host": "h", "pid": 1, **more})  # type: ignore[arg-type]


def test_where_no_one_leads_the_first_takes_the_lead() -> None:
    assert Candidate(SECOND).may_lead(None, 0)


def test_a_standby_waits_for_as_long_as_the_leader_counts() -> None:
    candidate = Candidate(SECOND)
    for number in range(20):
        assert not candidate.may_lead(leader(count=number), number * SECOND * 9 // 10)
    assert not candidate.may_lead(leader(count=19), 18 * SECOND)
    assert candidate.may_lead(leader(count=19), 19 * SECOND)


def test_a_standby_that_was_stopped_itself_does_not_take_an_old_look_for_silence() -> None:
    candidate = Candidate(SECOND)
    assert not candidate.may_lead(leader(count=1), 0)
    assert not candidate.may_lead(leader(count=500), 90 * SECOND)


def test_a_leader_that_resigned_is_waited_for_no_more() -> None:
    assert Candidate(SECOND).may_lead(leader(resigned=True), 0)


def test_each_claim_is_of_the_next_term(file: LeadFile) -> None:
    first = file.claim(None)
    assert first is not None
    assert first.term == 1
    assert file.read() == first
    second = file.claim(file.read())
    assert second is not None
    assert second.term == 2


def test_of_two_that_claim_a_term_one_gets_it(
    file: LeadFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert file.claim(None) is not None
    monkeypatch.setattr("gangd.controller.state_directory.names_in", lambda _: [])  # it had looked before
    assert file.claim(None) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [LEADER_NAME, "term-1"]


def test_who_claimed_and_died_before_he_said_so_is_followed_by_the_next(file: LeadFile) -> None:
    first = file.claim(None)
    (file._folder / "term-2").touch(0o600)
    third = file.claim(first)
    assert third is not None
    assert third.term == 3
    assert not (file._folder / "term-2").exists()


def test_a_deposed_leader_is_informed_before_it_speaks_and_writes_nothing(file: LeadFile) -> None:
    mine = file.claim(None)
    assert mine is not None
    lead = Lead(file, mine, SECOND, 0)
    lead.look(0)
    assert file.read() == Leader(term=1, count=1, host=mine.host, pid=mine.pid)
    theirs = file.claim(file.read())
    lead.look(SECOND // 5)  # it is not time yet
    with pytest.raises(HostError, match=r"taken over \(term 2\)"):
        lead.look(SECOND)
    lead.resign()
    assert lead.is_lost
    assert file.read() == theirs


def test_a_leader_that_cannot_renew_leaves_before_another_takes_over(
    file: LeadFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = file.claim(None)
    assert mine is not None
    lead = Lead(file, mine, SECOND, 0)

    def full(_: Leader) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file, "write", full)
    lead.look(0)
    lead.look(SECOND // 4)
    with pytest.raises(HostError, match="cannot be renewed"):
        lead.look(SECOND * 3 // 4)
    assert lead.is_lost


def test_a_lease_that_others_may_write_is_not_believed(file: LeadFile, tmp_path: Path) -> None:
    (tmp_path / LEADER_NAME).write_bytes(b"{")
    assert file.read() is None
    (tmp_path / LEADER_NAME).chmod(0o666)
    with pytest.raises(TrustError):
        file.read()


def test_a_controller_that_shares_the_folder_keeps_one_that_does_not_away(
    file: LeadFile, tmp_path: Path
) -> None:
    mine = file.claim(None)
    assert mine is not None
    shared = StateDirectory(tmp_path, Lead(file, mine, SECOND, 0))
    standby = StateDirectory(tmp_path, Lead(file, mine, SECOND, 0))
    with pytest.raises(HostError, match="another gangd uses"):
        StateDirectory(tmp_path)
    standby.close()
    shared.close()
    StateDirectory(tmp_path).close()


def test_the_time_after_which_a_standby_takes_over_has_bounds(tmp_path: Path) -> None:
    assert Config().takeover_ms is None
    (path := tmp_path / "gangd.toml").write_text("takeover_ms = 100\n")
    with pytest.raises(UsageError):
        load_config(path)


class Flooded:
    """Sockets in which messages of one key wait."""

    def __init__(self, messages: int) -> None:
        self.left = messages
        self.cuts: list[str] = []
        self.access = self

    def turned(self) -> None:
        """The thread of access control checks that messages are read."""

    def receive(self) -> Received | None:
        self.left -= 1
        return Received(b"c", "n1", b"?", 7) if self.left >= 0 else None

    def cut(self, taken: Received, why: str) -> None:
        self.cuts.append(taken.key)


@pytest.mark.parametrize(("messages", "cuts"), [(AT_ONCE, 0), (AT_ONCE + MOST_BEYOND, 1)])
def test_a_standby_cuts_clients_that_send_far_more_than_is_read(messages: int, cuts: int) -> None:
    sockets, quota = Flooded(messages), Quota()
    while sockets.left > 0:
        drop_messages(cast("ControllerSockets", sockets), quota, 0)
    assert sockets.cuts == ["n1"] * cuts


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


@pytest.mark.slow
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


def all_hold_with_a_standby(pair: Company) -> str:
    """Start a leader, agents and a standby; return what agents hold."""
    pair.lead(0)
    until(lambda: "leads" in log(pair, 0), 60, "the first leads")
    pair.lead(1)
    pair.board()
    first = pair.all_hold()
    until(lambda: "standby" in log(pair, 1), 60, "the second stands by")
    return first


@pytest.mark.slow
def test_a_standby_takes_over_from_a_leader_that_is_killed(pair: Company) -> None:
    first = all_hold_with_a_standby(pair)
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


@pytest.mark.slow
def test_a_leader_that_was_stopped_and_wakes_up_is_heard_no_more(pair: Company) -> None:
    first = all_hold_with_a_standby(pair)
    at_ns = blow(pair.controllers[0], signal.SIGSTOP)
    later = pair.all_hold(but=first)
    blow(pair.controllers[0], signal.SIGCONT)
    assert pair.controllers[0].wait(30) != 0
    assert "another controller has taken over (term 2)" in log(pair, 0)
    seen = pair.seen()
    assert judge(seen, at_ns, later, NODES).beyond_s <= MOST_BEYOND_S
    assert set({one.node: one.follows for one in seen}.values()) == {later}
    socket = pair.folder / "state" / "control.sock"
    assert socket.exists(), "it is the later controller's by now"
