"""What operators order: what follows for jobs, who may order what, and the socket that it comes by."""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ClusterError, OutputError, TrustError, UsageError
from foundation.slurm import JobSnapshot, SlurmJob, SlurmJobState, SubmitRequest
from gangd.controller.job_policy import Policy
from gangd.controller.operators import Operators
from gangd.controller.order_socket import MOST_OF_A_USER, PATIENCE_NS, SOCKET_NAME, ControlServer, ask
from gangd.controller.orders import (
    MOST_BYTES,
    ActiveOrder,
    OrderAnswer,
    OrderBook,
    OrderRequest,
    OrderTarget,
    Peer,
    RequestFacts,
    Verb,
    by_name,
    read_answer,
    read_request,
    refusal,
)
from gangd.controller.slurm_view import ClusterView
from gangd.controller.state_directory import StateDirectory
from gangd.core.cores import CoreMap
from tests.fixtures.fake_slurm import FakeSlurm

ROOT, GANGD, ALICE, BOB = 0, 990, 1000, 1001
ROOT_PEER = Peer(ROOT, 7, "root")


def jobs(count: int = 3, nodes: int = 2) -> list[SlurmJob]:
    """Jobs 1 to ``count`` of Alice's, on ``n1`` or on both nodes."""
    slurm = FakeSlurm(nodes=nodes, cores=1, multiplicity=count)
    for number in range(count):
        slurm.submit(SubmitRequest(script="#!/bin/sh\n", name="a", nodes=1 if number else nodes))
    return [replace(job, uid=ALICE, start_time=100 + job.job_id) for job in slurm.jobs().jobs]


def facts(*known: SlurmJob) -> RequestFacts:
    return RequestFacts(
        GANGD, by_name(known or jobs()), frozenset({"n1", "n2"}), frozenset({"main", "night"})
    )


def order(
    book: OrderBook, verb: Verb, *targets: OrderTarget, weight: float | None = None, **more: object
) -> str:
    at = {"uid": ROOT, "by": "root", "now_s": 50.0, **more}
    return book.apply(OrderRequest(verb=verb, targets=targets, weight=weight), **at)  # type: ignore[arg-type]


def let_run(book: OrderBook, of: list[SlurmJob]) -> list[int]:
    return [job.job_id for job in of if book.standing(job).free is not None]


# What follows for jobs


@pytest.mark.parametrize(
    ("target", "run"),
    [
        (OrderTarget("all"), [1, 2, 3]),
        (OrderTarget("partition", "main"), [1, 2, 3]),
        (OrderTarget("partition", "night"), []),
        (OrderTarget("node", "n2"), [1, 3]),
        (OrderTarget("job", "2"), [2]),
    ],
)
def test_a_pause_lets_everything_run_there(target: OrderTarget, run: list[int]) -> None:
    all_jobs, book = jobs(), OrderBook()
    assert {job.job_id: job.nodes for job in all_jobs} == {1: ("n1", "n2"), 2: ("n1",), 3: ("n2",)}
    order(book, "pause", target)
    assert let_run(book, all_jobs) == run
    order(book, "resume", target)
    assert let_run(book, all_jobs) == []
    assert len(book) == 0


def test_a_drain_keeps_out_who_starts_later() -> None:
    all_jobs, book = jobs(), OrderBook()  # they start at 101, 102, 103
    order(book, "drain", OrderTarget("partition", "main"), now_s=101.5)
    assert let_run(book, all_jobs) == [2, 3]
    survey = book.survey(all_jobs)
    assert survey.stopped == {OrderTarget("partition", "main"): 2}
    assert survey.left == {OrderTarget("partition", "main"): 1}
    assert survey.free == {2: "partition main is drained", 3: "partition main is drained"}
    order(book, "drain", OrderTarget("all"), now_s=500)
    assert let_run(book, all_jobs) == [2, 3]


def test_pause_and_drain_of_one_target_replace_each_other() -> None:
    all_jobs, book = jobs(), OrderBook()
    order(book, "pause", OrderTarget("all"))
    order(book, "drain", OrderTarget("all"), now_s=500)
    assert let_run(book, all_jobs) == []
    assert [one.what for one in book.orders] == ["drain"]


def test_resuming_a_job_leaves_its_node_paused() -> None:
    all_jobs, book = jobs(), OrderBook()
    order(book, "pause", OrderTarget("node", "n1"), OrderTarget("job", "3"))
    order(book, "resume", OrderTarget("job", "3"))
    order(book, "resume", OrderTarget("job", "2"))
    assert let_run(book, all_jobs) == [1, 2]


def test_an_order_that_applies_already_changes_nothing_and_says_so() -> None:
    all_jobs, book = jobs(), OrderBook()  # they start at 101, 102, 103
    main, n1, n2 = OrderTarget("partition", "main"), OrderTarget("node", "n1"), OrderTarget("node", "n2")
    assert order(book, "drain", main, now_s=101.5).startswith("partition main: drained: jobs")
    reported = order(book, "drain", main, now_s=500.0)
    assert reported == "partition main: drained already, nothing changes"
    assert let_run(book, all_jobs) == [2, 3]  # they started after the first order
    assert [one.since_s for one in book.orders] == [101.5]
    order(book, "pause", n1)
    reported = order(book, "pause", n1, n2)
    assert reported == "node n2: paused: everything runs there; node n1: paused already, nothing changes"
    order(book, "weight", main, weight=2.0)
    assert "weight was 2 already" in order(book, "weight", main, weight=2.0)
    assert "weight is 3" in order(book, "weight", main, weight=3.0)


def test_who_takes_back_what_no_one_ordered_is_reported() -> None:
    book = OrderBook()
    order(book, "pause", OrderTarget("node", "n1"))
    reported = order(book, "resume", OrderTarget("node", "n11"))
    assert reported == "node n11: not paused or drained by name, nothing changes"
    assert "no weight was ordered there" in order(book, "weight", OrderTarget("job", "1"))
    assert order(book, "resume", OrderTarget("node", "n1")) == "node n1: resumed"


def test_a_jobs_weight_comes_before_its_partitions_and_the_owner_can_only_lower_it() -> None:
    (one, two, _), book = jobs(), OrderBook()
    order(book, "weight", OrderTarget("partition", "main"), weight=4.0)
    order(book, "weight", OrderTarget("job", "1"), weight=2.0)
    order(book, "weight", OrderTarget("job", "1"), weight=8.0, uid=ALICE, by="alice", owner=True)
    order(book, "weight", OrderTarget("job", "2"), weight=0.5, uid=ALICE, by="alice", owner=True)
    assert (book.standing(one).weigh(1.0), book.standing(two).weigh(1.0)) == (2.0, 0.5)
    order(book, "weight", OrderTarget("job", "2"), uid=ALICE, by="alice", owner=True)
    order(book, "weight", OrderTarget("job", "1"))
    assert (book.standing(one).weigh(1.0), book.standing(two).weigh(1.0)) == (4.0, 4.0)


def test_components_and_tasks_are_reached_by_their_leader_and_array() -> None:
    one, two, three = jobs()
    one, two = replace(one, het_job_id=1), replace(two, het_job_id=1, het_job_offset=1)
    three = replace(three, array_job_id=9, array_task_id=4)
    book = OrderBook()
    order(book, "pause", OrderTarget("job", "1"), OrderTarget("job", "9_4"))
    assert let_run(book, [one, two, three]) == [1, 2, 3]
    assert by_name([one, two, three]).keys() == {"1", "2", "3", "9_4", "9"}


def test_an_order_about_a_job_ends_with_the_job() -> None:
    all_jobs, book = jobs(), OrderBook()
    order(book, "pause", OrderTarget("job", "1"), OrderTarget("node", "n1"))
    over = [replace(all_jobs[0], state=SlurmJobState.COMPLETED, cores=()), *all_jobs[1:]]
    assert [one.target.name for one in book.forget(by_name(over))] == ["1"]
    assert [one.target.name for one in book.orders] == ["n1"]


def test_orders_reach_the_core_through_the_view() -> None:
    view = ClusterView(CoreMap({"n1": 1, "n2": 1}), Policy())
    snapshot = JobSnapshot(tuple(jobs()))
    assert not any(one.opt_out for one in view.views(snapshot))
    order(view.book, "pause", OrderTarget("node", "n1"))
    order(view.book, "weight", OrderTarget("job", "3"), weight=3.0)
    view.forget_views()
    assert [(one.opt_out, one.weight) for one in view.views(snapshot)] == [(True, 1), (True, 1), (False, 3)]


# Who may order what


@pytest.mark.parametrize(
    ("uid", "verb", "target", "why"),
    [
        (ROOT, "pause", OrderTarget("all"), None),
        (GANGD, "drain", OrderTarget("node", "n1"), None),
        (ALICE, "pause", OrderTarget("job", "1"), "only root and the user of gangd may pause"),
        (ALICE, "resume", OrderTarget("job", "1"), "may resume"),
        (ALICE, "weight", OrderTarget("job", "1"), None),
        (BOB, "weight", OrderTarget("job", "1"), "the owner of a job, may change job 1"),
        (ALICE, "weight", OrderTarget("partition", "main"), "may change partition main"),
        (ALICE, "weight", OrderTarget("job", "77"), "no job 77"),
        (ROOT, "weight", OrderTarget("node", "n1"), "not about a node"),
        (ROOT, "weight", OrderTarget("all"), "not about everything"),
        (ROOT, "drain", OrderTarget("job", "1"), "takes turns or is paused"),
        (ROOT, "pause", OrderTarget("node", "n3"), "no node n3"),
        (ROOT, "pause", OrderTarget("partition", "mian"), "no partition mian"),
        (ROOT, "resume", OrderTarget("node", "n3"), None),
        (ROOT, "pause", OrderTarget("all", "n1"), "one too many"),
        (ROOT, "pause", OrderTarget("node"), "no name"),
        (ROOT, "pause", OrderTarget("job", "one"), "no job: give its number"),
    ],
)
def test_who_may_order_what(uid: int, verb: Verb, target: OrderTarget, why: str | None) -> None:
    weight = 0.5 if verb == "weight" else None
    reported = refusal(OrderRequest(verb=verb, targets=(target,), weight=weight), Peer(uid, 1, "x"), facts())
    assert (reported is None) if why is None else (reported is not None and why in reported), reported


def test_orders_are_bounded_and_wait_for_slurm() -> None:
    known = facts()
    one = OrderRequest(verb="pause", targets=(OrderTarget("job", "1"),))
    full = replace(known, standing=20_000)
    assert "has not answered" in str(refusal(one, ROOT_PEER, replace(known, jobs=None)))
    assert "orders stand" in str(refusal(one, ROOT_PEER, full))
    assert refusal(msgspec.structs.replace(one, verb="resume"), ROOT_PEER, full) is None
    weighed = msgspec.structs.replace(one, weight=2.0)
    assert "takes no weight" in str(refusal(weighed, ROOT_PEER, known))


documents = st.recursive(st.none() | st.integers() | st.text(), st.lists).map(msgspec.json.encode)


@given(st.binary(max_size=200) | documents)
def test_any_bytes_are_a_request_or_refused(body: bytes) -> None:
    for read in (read_request, read_answer):
        with pytest.raises(UsageError):
            read(body)


@pytest.mark.parametrize(
    "text",
    [
        '{"verb":"pause","targets":[]}',
        '{"verb":"kill","targets":[["all",""]]}',
        '{"verb":"pause","targets":[["node","n1;reboot"]]}',
        '{"verb":"pause","targets":[["node","n1\\n"]]}',
        '{"verb":"weight","targets":[["job","1"]],"weight":0}',
        '{"verb":"pause","targets":[["all",""]],"version":2}',
        '{"verb":"pause","targets":[["all",""]],"now":true}',
    ],
)
def test_what_is_out_of_bounds_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_request(text.encode())
    with pytest.raises(UsageError, match="long at most"):
        read_request(text.encode().ljust(MOST_BYTES + 1))


# The socket


class Serving:
    """A server in a thread, which confirms what it is asked."""

    def __init__(self, folder: Path, own_uid: int = GANGD) -> None:
        self.fd = os.open(folder, os.O_DIRECTORY)
        self.server = ControlServer(self.fd, own_uid)
        self.asked: list[tuple[OrderRequest, Peer]] = []
        self.leaving = False
        self.later_ns = 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while not self.leaving:
            self.server.serve(self.handle, time.monotonic_ns() + self.later_ns)
            time.sleep(0.005)

    def handle(self, request: OrderRequest, peer: Peer) -> OrderAnswer:
        self.asked.append((request, peer))
        return OrderAnswer(done=True, text="ok")

    def close(self) -> None:
        self.leaving = True
        self.thread.join()
        self.server.close()
        os.close(self.fd)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(tmp_path)
    yield serving
    serving.close()


ASKED = OrderRequest(verb="pause", targets=(OrderTarget("all"),))


def test_a_request_comes_with_who_asks(serving: Serving, tmp_path: Path) -> None:
    assert ask(tmp_path, ASKED) == OrderAnswer(done=True, text="ok")
    [(request, peer)] = serving.asked
    assert (request, peer.uid, peer.pid) == (ASKED, os.geteuid(), os.getpid())
    assert stat.S_IMODE((tmp_path / SOCKET_NAME).stat().st_mode) == 0o666


def test_a_path_may_be_longer_than_a_sockets_may(tmp_path: Path) -> None:
    (folder := tmp_path / ("x" * 120)).mkdir()
    serving = Serving(folder)
    try:
        assert ask(folder, ASKED).done
    finally:
        serving.close()
    assert not (folder / SOCKET_NAME).exists()


def connect(folder: Path) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.settimeout(10)
    link.connect(str(folder / SOCKET_NAME))
    return link


def test_who_says_rubbish_or_nothing_harms_no_one(serving: Serving, tmp_path: Path) -> None:
    with connect(tmp_path) as rubbish, connect(tmp_path) as silent, connect(tmp_path):
        rubbish.send(b"\xff\x00 pause")
        assert not read_answer(rubbish.recv(4096)).done
        assert ask(tmp_path, ASKED).done
        serving.later_ns = PATIENCE_NS * 2
        assert silent.recv(1) == b""
    assert ask(tmp_path, ASKED).done
    assert len(serving.asked) == 2


def test_a_user_has_few_connections_and_few_requests(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving.server, "_operators", frozenset({GANGD}))  # we are a user like any other now
    links = [connect(tmp_path) for _ in range(MOST_OF_A_USER + 1)]
    assert links[-1].recv(1) == b""
    with pytest.raises(ClusterError, match="too many at once"):
        ask(tmp_path, ASKED)
    for link in links:
        link.close()
    deadline_s = time.monotonic() + 10
    while (answer := tried(tmp_path)) is None or answer.done:
        assert time.monotonic() < deadline_s
    assert "too many requests" in answer.text
    assert 1 <= len(serving.asked) <= 45


def tried(folder: Path) -> OrderAnswer | None:
    """An answer, or None while connections of before are not seen to be closed."""
    try:
        return ask(folder, ASKED)
    except ClusterError:
        return None


def test_nothing_but_a_socket_is_replaced(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_DIRECTORY)
    (tmp_path / SOCKET_NAME).write_text("mine")
    with pytest.raises(TrustError):
        ControlServer(fd, 0)
    (tmp_path / SOCKET_NAME).unlink()
    (tmp_path / SOCKET_NAME).symlink_to("/etc/passwd")
    with pytest.raises(TrustError):
        ControlServer(fd, 0)
    os.close(fd)
    with pytest.raises(OutputError):
        ControlServer(fd, 0)


def test_where_no_one_listens_one_line_says_so(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no gangd listens"):
        ask(tmp_path, ASKED)
    with pytest.raises(ClusterError, match="cannot open state folder"):
        ask(tmp_path / "none", ASKED)


# All together


def test_orders_are_written_before_they_are_confirmed_and_hold_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    keeper, changes = StateDirectory(tmp_path), []
    cores = CoreMap({"n1": 1, "n2": 1})
    operators = Operators(keeper, cores, frozenset({"main"}), GANGD, lambda: 50.0, lambda: changes.append(1))
    operators.see(JobSnapshot(tuple(jobs())))
    answer = operators.handle(OrderRequest(verb="pause", targets=(OrderTarget("node", "n1"),)), ROOT_PEER)
    assert answer.done
    node = OrderTarget("node", "n1")
    assert answer.orders == (ActiveOrder(what="pause", target=node, since_s=50.0, uid=0, by="root"),)
    assert not operators.handle(ASKED, Peer(BOB, 8, "bob\x1b[2J")).done
    assert changes == [1]
    assert "order: root (uid 0, pid 7): pause node n1: done" in caplog.text
    assert "refused" in caplog.text
    still = operators.handle(OrderRequest(verb="resume", targets=(OrderTarget("job", "2"),)), ROOT_PEER)
    assert "it is not held all the same, for node n1 is paused" in still.text
    everything = operators.handle(OrderRequest(verb="resume", targets=(OrderTarget("all"),)), ROOT_PEER)
    assert everything.text.endswith("nothing changes; still, node n1 is paused")
    keeper.close()
    again = StateDirectory(tmp_path)
    assert OrderBook(again.state.orders).orders == answer.orders
    again.close()


def test_an_order_that_cannot_be_written_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = StateDirectory(tmp_path)
    operators = Operators(keeper, CoreMap({"n1": 1}), frozenset(), GANGD, lambda: 1.0, lambda: None)

    def full() -> None:
        raise OutputError("no space left on device")

    monkeypatch.setattr(keeper, "save", full)
    answer = operators.handle(ASKED, ROOT_PEER)
    assert answer.done
    assert "only until gangd ends, for it cannot be written: no space" in answer.text
    keeper.close()
