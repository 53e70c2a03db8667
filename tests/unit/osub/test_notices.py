"""Notices of jobs that users submit: who may give them, what is kept for them, and when that ends."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from foundation.errors import ClusterError, UsageError
from foundation.slurm import CommandSlurm, NodeCores, Reservation, SlurmJob, SlurmJobState
from osub.cli.main import run
from osub.live import notices
from osub.live.notices import NoticeService, come, give_notice, instant_of, mechanism_named
from tests.unit.osub.test_on_demand import NODES, P, R, Scripted

ME = pwd.getpwuid(os.geteuid()).pw_name


class Site(Scripted):
    """A Slurm with jobs of several users."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_795_000_000.0
        self.others: list[Reservation] = []
        self.is_ended = False

    def unreserve(self, name: str) -> None:
        if name not in self.made:
            raise ClusterError(f"no reservation {name}")
        super().unreserve(name)
        if self.is_ended:
            self.is_ended = False
            raise KeyboardInterrupt

    def reservations(self) -> Sequence[Reservation]:
        return [*super().reservations(), *self.others]

    def reserve(self, name: str, nodes: Sequence[str], length_s: int, user: str, *, anew: bool) -> None:
        super().reserve(name, [*nodes, user], length_s, user, anew=anew)

    def change_job(self, job: int | str, **fields: str) -> None:
        super().change_job(job, **fields)
        if "Comment" in fields:
            self.known[int(job)] = replace(self.known[int(job)], comment=fields["Comment"])

    def has(self, number: int, state: SlurmJobState, *nodes: str, **fields: object) -> None:
        """Let a job be in a state; what is not named stays as it was."""
        before = self.known.get(number) or SlurmJob(
            job_id=number, name="j", user="bob", uid=1, partition="main", state=state,
            reason="None", num_nodes=len(nodes) or 1, time_limit_s=600, submit_time=int(self.now),
            start_time=int(self.now),
        )  # fmt: skip
        cores = tuple(NodeCores(node, (0,)) for node in nodes)
        self.known[number] = replace(before, state=state, cores=cores, **fields)  # type: ignore[arg-type]

    def gives_notice(self, number: int, in_s: float = 60, nodes: int = 2, user: str = "alice") -> None:
        said = f"beam osub-notice={self.now + in_s:.0f}"
        self.has(number, P, num_nodes=nodes, user=user, reason="JobHeldUser", comment=said)

    def said(self, number: int) -> str:
        return (self.known[number].comment or "").rpartition("osub-on-demand=")[2]

    def ordered(self, word: str) -> list[tuple[str, ...]]:
        found = [one for one in self.commands if one[0] == word and "Comment" not in one[-1]]
        self.commands.clear()
        return found


def service_of(slurm: Site, mechanism: str = "cua-paa", most_nodes: int = 2) -> NoticeService:
    return NoticeService(
        cast("CommandSlurm", slurm), mechanism_named(mechanism, ["warning=10", "release=20"]),
        NODES, partition="main", users=["alice", "carol"], most_nodes=most_nodes, clock=slurm,
    )  # fmt: skip


def full() -> Site:
    """Return a Slurm on which two jobs have all nodes."""
    slurm = Site()
    slurm.has(1, R, "n1", "n2")
    slurm.has(2, R, "n3", "n4")
    return slurm


def after(slurm: Site, service: NoticeService, seconds: float = 1) -> None:
    slurm.now += seconds
    service.step()


MINE = "osub-main.live-9"


def test_a_notice_keeps_nodes_and_the_job_that_comes_gets_them_from_the_cheapest() -> None:
    slurm = full()
    slurm.has(1, R, "n1", "n2", comment="osub-checkpoint=7")
    service = service_of(slurm)
    after(slurm, service, 30)
    slurm.gives_notice(9)
    after(slurm, service)
    assert slurm.ordered("reserve") == [("reserve", MINE, f"n1,n2,n3,n4,{ME}")]
    assert (slurm.said(9), slurm.known[9].comment[:4] if slurm.known[9].comment else "") == ("taken", "beam")
    slurm.has(9, P, reason="Priority")
    after(slurm, service)
    assert slurm.said(9) == "came"
    assert ("reserve", MINE, "n1,n2,alice") in slurm.commands
    assert ("change", "9", f"ReservationName={MINE}") in slurm.commands
    assert slurm.ordered("put back") == [("put back", "1")]
    slurm.has(1, P, restarts=1, reason="BeginTime")
    slurm.has(9, R, "n1", "n2", reason="None")
    after(slurm, service)
    assert ("change", "1", "StartTime=now") in slurm.commands
    assert ("change", "9", "ReservationName=") in slurm.commands
    slurm.has(9, SlurmJobState.COMPLETED)
    after(slurm, service)
    after(slurm, service)
    joined = ("change", "1", "ReservationName=osub-main.live-1", "StartTime=now")
    assert joined in slurm.commands
    slurm.has(1, R, "n1", "n2", reason="None")
    after(slurm, service)
    assert slurm.made == set()


def test_service_that_is_ended_while_it_frees_what_an_ended_job_had_leaves_nothing() -> None:
    slurm = full()
    service = service_of(slurm)
    after(slurm, service, 30)
    slurm.gives_notice(9)
    after(slurm, service)
    assert slurm.made == {MINE}
    slurm.has(9, SlurmJobState.CANCELLED)
    slurm.is_ended = True
    with pytest.raises(KeyboardInterrupt):
        after(slurm, service)
    service.close()
    assert slurm.made == set()


@pytest.mark.parametrize(
    ("change", "answer"),
    [({"user": "bob"}, "user"), ({"nodes": 3}, "nodes"), ({"in_s": -30}, "time"), ({"in_s": 90_000}, "time")],
)
def test_a_notice_that_is_not_allowed_keeps_nothing(change: dict[str, object], answer: str) -> None:
    slurm = full()
    service = service_of(slurm)
    slurm.gives_notice(9, **change)  # type: ignore[arg-type]
    after(slurm, service)
    assert (slurm.said(9), slurm.made) == (answer, set())
    slurm.has(9, P, reason="Priority")
    after(slurm, service)
    assert slurm.ordered("put back") == []


def test_an_array_gives_no_notice() -> None:
    slurm = full()
    service = service_of(slurm)
    slurm.gives_notice(9)
    slurm.known[9] = replace(slurm.known[9], array_job_id=9, array_task_id=0)
    slurm.refuses = {"change"}
    after(slurm, service)
    assert slurm.made == set()


def test_all_on_demand_jobs_together_have_their_share_of_the_nodes() -> None:
    slurm = full()
    service = service_of(slurm)
    slurm.gives_notice(8, nodes=1)
    slurm.gives_notice(9, nodes=2, user="carol")
    after(slurm, service)
    assert (slurm.said(8), slurm.said(9)) == ("taken", "nodes")


def test_a_notice_that_is_not_used_ends_and_bars_its_user_for_as_long() -> None:
    slurm = full()
    service = service_of(slurm)
    slurm.gives_notice(9, in_s=60)
    after(slurm, service)
    after(slurm, service, 70)
    assert slurm.made == {MINE}
    after(slurm, service, 20)
    assert slurm.made == set()
    slurm.has(9, SlurmJobState.CANCELLED)
    after(slurm, service)
    slurm.gives_notice(10, in_s=60)
    slurm.gives_notice(11, in_s=60, user="carol")
    after(slurm, service)
    assert (slurm.said(10), slurm.said(11)) == ("unused", "taken")
    slurm.has(11, SlurmJobState.CANCELLED)
    after(slurm, service, 100)
    slurm.gives_notice(12, in_s=60)
    after(slurm, service)
    assert slurm.said(12) == "taken"


def test_a_job_that_ran_between_two_looks_was_no_notice_for_nothing() -> None:
    slurm = full()
    service = service_of(slurm)
    slurm.gives_notice(9)
    after(slurm, service)
    slurm.has(9, SlurmJobState.COMPLETED)
    after(slurm, service)
    slurm.gives_notice(10)
    after(slurm, service)
    assert slurm.said(10) == "taken"


@pytest.mark.parametrize(("seconds", "reason"), [(30, "Licenses"), (2, "JobHeldUser")])
def test_a_job_that_came_and_does_not_start_keeps_no_nodes_for_long(seconds: float, reason: str) -> None:
    slurm = full()
    service = service_of(slurm)
    slurm.gives_notice(9)
    after(slurm, service)
    slurm.has(9, P, reason="Priority")
    after(slurm, service)
    assert slurm.made == {MINE}
    slurm.has(9, P, reason=reason)
    after(slurm, service, seconds)
    assert (slurm.said(9), slurm.made) == ("expired", set())


def test_late_jobs_count_again_when_they_come() -> None:
    slurm = full()
    service = service_of(slurm)
    slurm.gives_notice(8, in_s=5)
    after(slurm, service)
    after(slurm, service, 30)
    slurm.gives_notice(9, in_s=60, user="carol")
    after(slurm, service)
    assert slurm.said(9) == "taken"
    slurm.has(8, P, reason="Priority")
    after(slurm, service)
    assert slurm.said(8) == "nodes"


def test_no_user_gets_into_a_reservation_before_its_job_is_about_to_start() -> None:
    slurm = full()
    service = service_of(slurm, "n-paa", most_nodes=4)
    slurm.gives_notice(9, nodes=4)
    slurm.others = [Reservation(name="maintenance", start_s=0, end_s=2**31, nodes=frozenset({"n4"}))]
    after(slurm, service)
    slurm.has(9, P, reason="Priority")
    after(slurm, service)
    assert slurm.ordered("reserve") == [("reserve", MINE, f"n1,n2,n3,n4,{ME}")]


def test_a_malleable_job_is_warned_and_a_rigid_one_with_checkpoints_asked_to_save() -> None:
    for comment, mechanism, expected in (
        ("osub-min-nodes=1", "n-paa", [("signal", "1", "USR1", "batch")]),
        ("osub-checkpoint=10", "n-paa", [("signal", "1", "USR1", "batch"), ("put back", "1")]),
        ("osub-min-nodes=1", "n-spaa", [("change", "1", "ReqNodeList=n1")]),
    ):
        slurm = full()
        slurm.has(1, R, "n1", "n2", comment=comment)
        service = service_of(slurm, mechanism)
        after(slurm, service, 33)
        slurm.gives_notice(9, nodes=1)
        slurm.has(9, P, reason="Priority")
        after(slurm, service)
        assert [one for one in slurm.commands if one[1] == "1"] == expected


def test_nodes_of_several_jobs_and_of_others_partitions_are_left_alone() -> None:
    slurm = Site()
    slurm.has(1, R, "n1", "n2")
    slurm.has(2, R, "n2", "n3")
    slurm.has(3, R, "n4", partition="other")
    service = service_of(slurm, "n-paa", most_nodes=4)
    slurm.gives_notice(9, nodes=2)
    slurm.has(9, P, reason="Priority")
    after(slurm, service)
    assert slurm.ordered("reserve") == [("reserve", MINE, "n1,n3,alice")]
    slurm.gives_notice(10, nodes=2)
    slurm.has(10, P, reason="Priority")
    after(slurm, service)
    assert slurm.ordered("put back") == []


def test_a_service_that_starts_again_goes_on() -> None:
    slurm = full()
    first = service_of(slurm)
    slurm.gives_notice(9)
    after(slurm, first)
    slurm.made.add("osub-main-2.live-4")
    second = service_of(slurm)
    assert slurm.made == {"osub-main-2.live-4"}
    after(slurm, second)
    assert MINE in slurm.made
    slurm.has(9, P, reason="Priority")
    after(slurm, second)
    slurm.has(1, P, restarts=1)
    slurm.has(9, R, "n1", "n2")
    after(slurm, second)
    third = service_of(slurm)
    slurm.gives_notice(10, user="carol")
    after(slurm, third)
    assert slurm.said(10) == "nodes"  # the job that runs counts
    third.close()
    assert slurm.made == {"osub-main-2.live-4"}


def test_places_of_jobs_that_ended_are_used_again() -> None:
    slurm = Site()
    service = service_of(slurm)
    for number in range(1, 400):
        slurm.known = {}
        slurm.has(number, R, "n1", "n2")
        after(slurm, service)
    slurm.gives_notice(999)
    after(slurm, service)
    assert slurm.said(999) == "taken"


@pytest.mark.parametrize("name", ["share", "paa", "cua"])
def test_mechanisms_that_the_service_has_not_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        mechanism_named(name, [])
    with pytest.raises(UsageError):
        mechanism_named("cua-paa", ["jobs=x"])


def test_instants_are_now_later_today_or_a_date() -> None:
    now = time.mktime((2026, 11, 27, 12, 0, 0, 0, 0, -1))
    assert instant_of("now", now) == now
    assert instant_of("now+20minutes", now) == now + 1200
    assert instant_of("now+90", now) == now + 90
    assert instant_of("14:30", now) == now + 9000
    assert instant_of("11:00", now) == now + 23 * 3600
    assert instant_of("2026-11-27T12:00:05", now) == now + 5
    for text in ("soon", "2026-11-27T11:00", "now+1day", "25:00"):
        with pytest.raises(UsageError):
            instant_of(text, now)


class Asked:
    """What ``give_notice`` and ``come`` ask of Slurm, with a service that answers."""

    def __init__(self, job: SlurmJob | None, answer: str | None) -> None:
        self.known, self.answer = job, answer
        self.words: list[str] = []
        self.cancelled: list[int] = []

    def submit_by(self, words: Sequence[str]) -> int:
        self.words = list(words)
        return 9

    def job(self, number: int) -> SlurmJob | None:
        assert number == 9
        return self.known

    def cancel(self, jobs: Sequence[int]) -> None:
        self.cancelled += jobs

    def release(self, number: int) -> None:
        assert self.known is not None
        if self.answer is not None:
            said = (self.known.comment or "").partition(" osub-on-demand=")[0]
            self.known = replace(self.known, comment=f"{said} osub-on-demand={self.answer}")


def held(comment: str, state: SlurmJobState = P) -> SlurmJob:
    slurm = Site()
    slurm.has(9, state, comment=comment, reason="JobHeldUser")
    return slurm.known[9]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_ANSWER_S", 0.05)
    monkeypatch.setattr(notices, "_LOOK_S", 0.01)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("answer", ["taken", "user", None])
def test_a_notice_leaves_no_job_that_the_service_does_not_take(answer: str | None) -> None:
    asked = Asked(held("" if answer is None else f"osub-on-demand={answer}"), None)
    client = cast("CommandSlurm", asked)
    if answer == "taken":
        assert give_notice(client, ["-N2", "job.sh"], "now+5", "gangd-app=lu") == 9
        assert asked.words[:3] == ["--hold", "--exclusive", "--mem=0"]
        assert asked.words[3].startswith("--comment=gangd-app=lu osub-notice=")
        assert asked.words[4:] == ["-N2", "job.sh"]
    else:
        with pytest.raises(ClusterError, match="no service has answered" if answer is None else "--user"):
            give_notice(client, ["job.sh"], "now")
        assert asked.cancelled == [9]
    with pytest.raises(UsageError):
        give_notice(client, ["--comment=x", "job.sh"], "now")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("job", "answer"),
    [
        (None, "came"),
        (held("gangd-app=lu"), "came"),
        (held("osub-notice=1795821677", R), "came"),
        (held("osub-notice=1795821677 osub-on-demand=taken"), None),
        (held("osub-notice=1795821677 osub-on-demand=taken"), "nodes"),
    ],
)
def test_only_a_held_job_that_gave_notice_comes(job: SlurmJob | None, answer: str | None) -> None:
    with pytest.raises(ClusterError):
        come(cast("CommandSlurm", Asked(job, answer)), 9)


@pytest.mark.usefixtures("quick")
def test_a_held_job_comes() -> None:
    come(cast("CommandSlurm", Asked(held("osub-notice=1795821677 osub-on-demand=taken"), "came")), 9)


@pytest.mark.parametrize(
    "words",
    [
        ["notice", "--at", "now", "--cluster", "{}", "job.sh"],
        ["now", "5", "--cluster", "{}"],
        ["serve", "--mechanism", "cua-paa", "--user", "alice", "--cluster", "{}"],
        ["serve", "--mechanism", "share", "--user", "alice", "--cluster", "{}"],
    ],
)
def test_without_a_cluster_there_is_one_line(
    tmp_path: object, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert run(["on-demand", *(word.format(tmp_path) for word in words)]) in {1, 2}
    assert capsys.readouterr().err.count("\n") == 1
