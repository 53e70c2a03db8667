"""The hybrid mechanisms carried out on a Slurm: which commands it is given, and what comes of refusals."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from foundation.errors import ClusterError
from foundation.slurm import JobSnapshot, NodeCores, Receiver, Reservation, SlurmJob, SlurmJobState, SlurmNode
from foundation.slurm.slurm_client import SubmitRequest
from foundation.slurm.slurm_types import SlurmRefusedError, SlurmUnreachableError
from osub.cli.main import run
from osub.live.on_demand import OnDemandDriver, compared, session_of
from tests.fixtures.replay_world import planned
from tests.fixtures.swf_jobs import write_jobs
from tests.unit.simulator.test_live_pool import KINDS

ORIGIN = 1_000_000.0
NODES = ("n1", "n2", "n3", "n4")
R, P = SlurmJobState.RUNNING, SlurmJobState.PENDING


class Scripted:
    """A Slurm whose jobs a test writes, and a clock; it notes its commands."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.known: dict[int, SlurmJob] = {}
        self.refuses: set[str] = set()
        self.made: set[str] = set()
        self.is_away = False
        self.now = ORIGIN

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def jobs(self) -> JobSnapshot:
        if self.is_away:
            raise SlurmUnreachableError("away")
        return JobSnapshot(tuple(self.known.values()))

    def nodes(self) -> Sequence[SlurmNode]:
        up = frozenset({"IDLE"})
        return [
            SlurmNode(
                name=name, states=up, cores=1, threads_per_core=1, memory_mib=1000,
                cpus_allocated=0, features=frozenset(),
            )
            for name in NODES
        ]  # fmt: skip

    def reservations(self) -> Sequence[Reservation]:
        return [Reservation(name=name, start_s=0, end_s=0, nodes=frozenset()) for name in sorted(self.made)]

    def _take(self, *words: str) -> None:
        if words[0] in self.refuses:
            raise SlurmRefusedError(f"`scontrol` failed: no {words[0]}")
        self.commands.append(words)

    def reserve(self, name: str, nodes: Sequence[str], length_s: int, user: str, *, anew: bool) -> None:
        assert anew == (name not in self.made)
        assert length_s <= 180
        self._take("reserve", name, ",".join(nodes))
        self.made.add(name)

    def unreserve(self, name: str) -> None:
        self._take("unreserve", name)
        self.made.remove(name)

    def change_job(self, job: int | str, **fields: str) -> None:
        self._take("change", str(job), *(f"{name}={value}" for name, value in fields.items()))
        own = self.known[int(job)]
        if "ReservationName" in fields:
            self.known[int(job)] = replace(own, reservation=fields["ReservationName"] or None)

    def put_back(self, job: int | str, *, held: bool = False) -> None:
        self._take("put back", str(job))

    def signal(self, job: int | str, signal_name: str, receiver: Receiver = Receiver.STEPS) -> None:
        self._take("signal", str(job), signal_name, str(receiver))

    def job(
        self, number: int, state: SlurmJobState, *nodes: str, start_s: float = 0, restarts: int = 0
    ) -> None:
        before = self.known.get(number)
        self.known[number] = SlurmJob(
            job_id=number, name=f"osub-ab-{number}", user=pwd.getpwuid(os.geteuid()).pw_name,
            uid=os.geteuid(), partition="main", state=state,
            reason="BeginTime" if restarts else "None", num_nodes=len(nodes),
            cores=tuple(NodeCores(node, (0,)) for node in nodes),
            start_time=int(ORIGIN + start_s) if nodes else None, restarts=restarts,
            reservation=before.reservation if before else None,
        )  # fmt: skip


def driver_of(folder: Path, slurm: Scripted, mechanism: str, *, asked: int = 2) -> OnDemandDriver:
    jobs = [(1, 0, 100, 2), (2, 0, 100, 2), (3, 0, 50, 1), (4, 40, 30, asked)]
    trace, kinds = folder / "t.swf", folder / "kinds.csv"
    write_jobs(trace, jobs)
    kinds.write_text(KINDS.format(notice="", predicted=""))
    session = session_of(trace, "N4C1", mechanism, [f"jobs={kinds}", "warning=10"], 1)
    driver = OnDemandDriver(slurm, session, NODES, 1000, slurm)  # type: ignore[arg-type]
    (folder / "jobs").mkdir()
    driver.begin("ab", ORIGIN, folder)
    return driver


def busy(slurm: Scripted, driver: OnDemandDriver) -> None:
    """Let a rigid and a malleable job run, and step."""
    slurm.job(1, R, "n1", "n2")
    slurm.job(2, R, "n3", "n4")
    slurm.now = ORIGIN + 10
    driver.step()
    assert slurm.commands == []


def test_a_malleable_job_is_warned_and_then_put_back_and_started_again(tmp_path: Path) -> None:
    slurm = Scripted()
    driver = driver_of(tmp_path, slurm, "n-paa")
    busy(slurm, driver)
    slurm.job(4, P)
    slurm.now = ORIGIN + 35
    driver.step()
    mine = "osub-ab-4"
    assert slurm.commands == [
        ("reserve", mine, "n3,n4"),
        ("change", "4", f"ReservationName={mine}"),
        ("signal", "2", "USR1", "batch"),
    ]
    slurm.commands.clear()
    slurm.now += 11
    driver.step()
    assert slurm.commands == [("put back", "2")]
    slurm.commands.clear()
    slurm.job(2, P, restarts=1)
    slurm.job(4, R, "n3", "n4", start_s=47)
    slurm.now += 2
    driver.step()
    assert ("change", "2", "StartTime=now") in slurm.commands
    assert ("change", "4", "ReservationName=") in slurm.commands
    slurm.commands.clear()
    slurm.job(4, SlurmJobState.COMPLETED)
    driver.step()
    assert slurm.commands[0] == ("reserve", "osub-ab-2", "n3,n4")
    driver.close()
    assert slurm.made == set()


def test_a_shrink_that_slurm_refuses_becomes_a_preemption(tmp_path: Path) -> None:
    slurm = Scripted()
    driver = driver_of(tmp_path, slurm, "n-spaa", asked=1)
    busy(slurm, driver)
    slurm.job(4, P)
    slurm.refuses = {"change"}
    for _ in range(3):
        slurm.now += 1
        driver.step()
    assert ("signal", "2", "USR1", "batch") in slurm.commands
    events = [driver.events.get() for _ in range(driver.events.qsize())]
    assert any(fields.get("what") == "shrink" for _, fields in events)


def test_a_job_that_shrinks_is_written_the_nodes_it_keeps(tmp_path: Path) -> None:
    slurm = Scripted()
    driver = driver_of(tmp_path, slurm, "n-spaa", asked=1)
    busy(slurm, driver)
    slurm.job(4, P)
    driver.step()
    assert ("change", "2", "ReqNodeList=n3") in slurm.commands
    assert (tmp_path / "jobs" / "2.state.nodes").read_text() == "1\n"
    slurm.job(2, P, restarts=1)
    slurm.now += 1
    driver.step()
    assert ("change", "2", "StartTime=now", "NumNodes=1-2") in slurm.commands


def test_refused_reservations_are_recorded_and_tried_again(tmp_path: Path) -> None:
    slurm = Scripted()
    driver = driver_of(tmp_path, slurm, "n-paa")
    busy(slurm, driver)
    slurm.job(4, P)
    slurm.refuses = {"reserve"}
    driver.step()
    assert slurm.commands == [("signal", "2", "USR1", "batch")]
    slurm.refuses.clear()
    driver.step()
    assert ("reserve", "osub-ab-4", "n3,n4") in slurm.commands


def test_the_end_leaves_no_reservation_and_no_job_that_only_waits_to_be_put_back(tmp_path: Path) -> None:
    slurm = Scripted()
    driver = driver_of(tmp_path, slurm, "n-paa")
    busy(slurm, driver)
    slurm.job(4, P)
    driver.step()
    slurm.commands.clear()
    driver.close()
    assert slurm.commands == [
        ("put back", "2"),
        ("change", "4", "ReservationName="),
        ("unreserve", "osub-ab-4"),
    ]


def test_what_a_killed_replay_left_is_dropped_and_others_reservations_stay(tmp_path: Path) -> None:
    slurm = Scripted()
    slurm.made = {"osub-ab-4", "osub-cd-1", "maintenance"}
    driver_of(tmp_path, slurm, "n-paa")
    assert slurm.made == {"osub-cd-1", "maintenance"}


def test_a_slurm_that_is_away_is_reported_once(tmp_path: Path) -> None:
    slurm = Scripted()
    driver = driver_of(tmp_path, slurm, "n-paa")
    slurm.is_away = True
    driver.step()
    driver.step()
    assert driver.events.qsize() == 1


def test_jobs_are_asked_for_by_their_kinds(tmp_path: Path) -> None:
    driver = driver_of(tmp_path, Scripted(), "n-paa")

    def asked(number: int) -> SubmitRequest:
        job = planned(number, 1.0, nodes=2, limit_minutes=2)
        return driver.request(job, SubmitRequest(script="", name="", nodes=2, time_limit_minutes=2))

    rigid, malleable, demand = asked(1), asked(2), asked(4)
    assert (rigid.nodes, rigid.most_nodes, rigid.options) == (2, None, ("requeue", "exclusive"))
    assert (malleable.nodes, malleable.most_nodes, malleable.time_limit_minutes) == (1, 2, 4)
    assert demand.options[0].startswith("priority=42949672")
    with driver.applications() as table:
        rows = table.read_text().splitlines()
    assert rows[1].endswith("--every 20.000000 --work 100.000000 --warning 10.000000")
    assert "--asked 2 --work 100" in rows[2]


def test_a_user_without_rights_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    slurm = Scripted()
    driver = driver_of(tmp_path, slurm, "n-paa")
    driver.refuse_without_rights()
    assert slurm.made == set()
    slurm.refuses = {"reserve"}
    with pytest.raises(ClusterError):
        driver.refuse_without_rights()


def test_live_and_simulated_jobs_stand_in_one_table() -> None:
    live = pl.DataFrame(
        {
            "kind": ["ondemand", "batch"], "submit_s": [0.0, 0.0], "start_s": [1.0, 0.0],
            "end_s": [5.0, 10.0], "preemptions": [0, 2], "wasted_s": [None, 3.0], "nodes": [1, 2],
        }
    )  # fmt: skip
    lines = compared(live, live.drop("wasted_s"))
    assert [line.split()[-2:] for line in lines[-2:]] == [["2", "2"], ["6", "0"]]


@pytest.mark.parametrize(
    "words",
    [
        ["--set", "warning=3"],
        ["--on-demand", "n-paa", "--speedup", "2"],
        ["--on-demand", "n-paa", "--fit", "30"],
        ["--on-demand", "n-paa", "--no-requeue"],
    ],
)
def test_contradictions_are_usage_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (trace := tmp_path / "t.swf").write_text("1 0 -1 10 1 -1 -1 1 10 -1 1 1 1 -1 1 -1 -1 -1\n")
    code = run(["replay", str(trace), "--cluster", str(tmp_path), "--out", str(tmp_path / "RUN"), *words])
    assert code == 2
    assert "--on-demand" in capsys.readouterr().err
    assert not (tmp_path / "RUN").exists()
