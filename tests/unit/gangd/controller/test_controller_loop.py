"""The whole controller in the test's main thread; agents in other threads, over CURVE sockets."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from foundation.slurm import JobSnapshot
from gangd.controller.order_socket import ask
from gangd.controller.orders import OrderAnswer, OrderRequest, OrderTarget
from gangd.controller.slicelog import read_slices
from gangd.controller.state_directory import STATE_NAME
from gangd.curve_keys import SHARED_AGENT
from gangd.main import main
from gangd.wire.messages import Ping, Pong, Report
from tests.fixtures.gang_loop import ScriptedAgent, Stage, no_jobs, played, submit_two, two_jobs

pytestmark = pytest.mark.slow


def broken() -> JobSnapshot:
    raise KeyError("JobState")


def test_two_jobs_take_turns_on_all_nodes_and_are_thawed_at_the_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs())
    one, two = stage.agent("n1"), stage.agent("n2")

    def scene() -> None:
        stage.welcome(one, two)
        one.say(Ping(node="n1", agent_ns=5))
        stage.until(lambda: bool(one.timeline.jobs(one.timeline.horizon)))
        stage.until(lambda: any(isinstance(reply, Pong) for reply in one.replies))
        first = one.timeline.horizon
        stage.until(lambda: one.timeline.horizon > first + 20)
        held = [one.timeline.held(number) for number in range(first + 2, first + 8)]
        assert sorted(map(sorted, held)) == [[1], [1], [1], [2], [2], [2]]
        assert held == [two.timeline.held(number) for number in range(first + 2, first + 8)]
        stage.until_status(lambda status: status.shared_jobs == 2)
        status = stage.known()
        assert [(node.node, node.agent, node.skew_us) for node in status.nodes] == [
            ("n1", "joined", 11),
            ("n2", "joined", 11),
        ]
        cores = {"n1": [0], "n2": [0]}
        assert [(job.job, job.state, job.cores) for job in status.jobs] == [
            (1, "busy", cores),
            (2, "busy", cores),
        ]

    with stage.play(scene):
        # It thawed everything when it left.
        stage.until(lambda: one.timeline.epoch is None and two.timeline.epoch is None)
    rows = list(read_slices(tmp_path / "record", 0.0))
    assert {(row.job, row.node, row.role) for row in rows} >= {
        (job, node, role) for job in (1, 2) for node in ("n1", "n2") for role in ("run", "held")
    }


@played()
def test_idle_jobs_are_seen_through_the_wire_and_let_go(stage: Stage, *agents: ScriptedAgent) -> None:
    stage.welcome(*agents)
    stage.until(lambda: any(agent.timeline.held(agent.timeline.horizon) for agent in agents))
    for agent in agents:
        agent.busy = False

    def let_go() -> bool:
        number = agents[0].timeline.horizon
        named = agents[0].timeline.jobs(number)
        return named == {1, 2} and not any(agents[0].timeline.held(number + more) for more in range(4))

    stage.until(let_go)


@played()
def test_slurm_may_be_away_and_jobs_go_on_taking_turns(stage: Stage, *agents: ScriptedAgent) -> None:
    stage.welcome(*agents)
    timeline = agents[0].timeline
    stage.until(lambda: bool(timeline.held(timeline.horizon)))
    stage.slurm.reachable = False
    stage.until(lambda: "Slurm does not answer" in stage.alarms().get("slurm", ""))
    horizon = timeline.horizon
    stage.until(lambda: timeline.horizon > horizon + 10)
    assert timeline.held(horizon + 8) | timeline.held(horizon + 9) == {1, 2}
    stage.slurm.reachable = True
    stage.until(lambda: "slurm" not in stage.alarms())


@played()
def test_a_job_that_cannot_be_read_is_held_no_more_and_an_alarm_says_so(
    stage: Stage, *agents: ScriptedAgent
) -> None:
    stage.welcome(*agents)
    timeline = agents[0].timeline
    stage.until(lambda: bool(timeline.held(timeline.horizon)))
    stage.slurm.unreadable[1] = why = "its state is none that is known"
    stage.until(lambda: "unreadable" in stage.alarms())
    assert stage.alarms()["unreadable"] == f"not managed, for it cannot be read: job 1: {why}"
    stage.until(lambda: not any(timeline.held(timeline.horizon + more) for more in range(-4, 1)))
    del stage.slurm.unreadable[1]
    stage.until(lambda: "unreadable" not in stage.alarms())
    stage.until(lambda: bool(timeline.held(timeline.horizon)))


def test_an_alarm_is_up_as_long_as_a_damaged_state_file_is_there(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / STATE_NAME).write_text("{ torn")
    stage = Stage(tmp_path, two_jobs())

    def scene() -> None:
        stage.until(lambda: "state" in stage.alarms())
        (tmp_path / "state" / "controller.damaged-1.json").unlink()
        stage.until(lambda: stage.status() is not None and "state" not in stage.alarms())

    stage.act(scene)


@played()
def test_a_reload_changes_the_quantum_and_a_broken_one_changes_nothing(
    stage: Stage, *agents: ScriptedAgent
) -> None:
    stage.welcome(*agents)
    timeline = agents[0].timeline

    def length_ms() -> float | None:
        begin, end = timeline.start_ns(timeline.horizon), timeline.start_ns(timeline.horizon + 1)
        return None if begin is None or end is None else (end - begin) / 1e6

    stage.until(lambda: length_ms() == 50.0 and bool(timeline.held(timeline.horizon)))
    refused = [agent.refused for agent in agents]  # before their first plan was there
    os.kill(os.getpid(), signal.SIGHUP)
    stage.until(lambda: stage.reloads == 1)
    assert length_ms() == 50.0
    os.kill(os.getpid(), signal.SIGHUP)
    stage.until(lambda: length_ms() == 100.0 and bool(timeline.held(timeline.horizon)))
    assert [agent.refused for agent in agents] == refused


@played(lambda: no_jobs(nodes=4_000), ["n1"])
def test_lease_follows_the_number_of_nodes_that_slurm_has(stage: Stage, agent: ScriptedAgent) -> None:
    stage.welcome(agent)
    stage.until(lambda: agent.timeline.lease_ns == 5_000_000_000)
    stage.until_status(lambda status: status.lease_ms == 5_000)


@played(nodes=())
def test_what_the_controller_knows_is_written_when_it_is_asked_to(stage: Stage) -> None:
    saved = stage.config.state / STATE_NAME
    stage.until(saved.exists)
    for _ in range(3):  # much sooner after one another than by itself
        before = saved.stat().st_mtime_ns
        os.kill(os.getpid(), signal.SIGUSR1)
        stage.until(lambda before=before: saved.stat().st_mtime_ns > before)  # type: ignore[misc]


@played(nodes=())
def test_a_reload_is_checked_against_slurm_as_the_start_is(stage: Stage) -> None:
    stage.reloads = 1
    stage.changes = {"quantum_ms": 100.0, "freeze_cap_ms": 6_000.0}
    os.kill(os.getpid(), signal.SIGHUP)
    stage.until(lambda: "configuration" in stage.alarms())
    assert "half of Slurm's MessageTimeout" in stage.alarms()["configuration"]
    stage.changes = {"quantum_ms": 100.0, "freeze_cap_ms": 4_000.0}
    stage.slurm.reachable = False
    os.kill(os.getpid(), signal.SIGHUP)
    stage.until(lambda: "Slurm does not answer" in stage.alarms()["configuration"])
    assert stage.known().quantum_ms == 50.0
    stage.slurm.reachable = True
    os.kill(os.getpid(), signal.SIGHUP)
    stage.until_status(lambda status: status.quantum_ms == 100.0)
    stage.until(lambda: "configuration" not in stage.alarms())


@played(no_jobs, quantum_ms=3_000.0, grace_ms=60_000.0)
def test_a_launch_that_is_over_counts_two_slices_later_not_at_the_next_look(
    stage: Stage, *agents: ScriptedAgent
) -> None:
    seen_in: list[int] = []
    began_s = stage.made_s  # slice 0, a moment ago

    def since_s() -> float:
        """How long the slice that runs has run, as far as the status has it; -1 before the jobs are there."""
        status = stage.status()
        if status is None or status.shared_jobs < 2:
            return -1.0
        seen_in.append(status.slice)
        return status.time_ms / 1000 - began_s - status.slice * 3.0

    stage.welcome(*agents)
    submit_two(stage.slurm)
    # The look of this slice is over, the next one is more than a second away.
    stage.until(lambda: 0.3 < since_s() < 1.7)
    assert not agents[0].timeline.jobs(agents[0].timeline.horizon)
    for agent in agents:
        agent.launched = (1, 2)
    stage.until(lambda: bool(agents[0].timeline.jobs(agents[0].timeline.horizon)))
    assert agents[0].timeline.horizon == seen_in[-1] + 2


@played(nodes=())
def test_a_thread_that_dies_is_an_alarm(stage: Stage) -> None:
    stage.until_status(lambda status: status.running_jobs == 2)
    stage.slurm.jobs = broken  # type: ignore[method-assign]
    stage.until(lambda: "thread" in stage.alarms())
    assert "thread slurm died and was started again: KeyError: 'JobState'" in stage.alarms()["thread"]
    del stage.slurm.jobs
    stage.slurm.cancel([1])
    stage.until_status(lambda status: status.running_jobs == 1)


def test_a_dry_run_sends_the_agents_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs(), dry_run=True)
    agents = [stage.agent("n1"), stage.agent("n2")]

    def scene() -> None:
        stage.welcome(*agents)
        stage.until_status(lambda status: status.shared_jobs == 2)

    with stage.play(scene):
        for agent in agents:
            agent.listen()
    assert all(agent.timeline.controller is None for agent in agents)


@played(nodes=["n1"])
def test_a_new_controller_is_heard_of_without_being_asked(stage: Stage, one: ScriptedAgent) -> None:
    stage.until(lambda: one.timeline.controller == stage.loop.controller)
    assert one.timeline.lease_over(time.monotonic_ns())


@played(nodes=["n1", "n77"])
def test_a_stranger_and_a_liar_are_counted_and_do_no_harm(
    stage: Stage, one: ScriptedAgent, nowhere: ScriptedAgent
) -> None:
    stage.until_status(lambda status: "unknown_agent" in status.dropped)
    one.say(Report(node="n1", incarnation=b"x" * 16, follows=None, seq=1, offset_ns=0, rtt_us=0))
    one.sockets.reports.send(b"\xc1 rubbish")

    def refused() -> bool:
        nowhere.hello()
        return any("no node n77" in getattr(reply, "reason", "") for reply in nowhere.replies)

    stage.until(refused)
    stage.welcome(one)
    stage.until_status(lambda status: "malformed" in status.dropped)
    assert stage.known().dropped["unknown_agent"] >= 1
    assert stage.known().dropped["malformed"] == 1


def test_keys_are_made_for_a_node_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["keys", "--dir", str(tmp_path / "k"), "--agents", "n[1-3]"])
    assert sorted(path.stem for path in (tmp_path / "k" / "agents").glob("*.key")) == ["n1", "n2", "n3"]
    said = capsys.readouterr().err
    assert "4 key pairs made" in said
    assert "warning" not in said


def test_a_key_that_all_nodes_share_is_made_when_asked_for_only_and_loudly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["keys", "--dir", str(tmp_path / "k")])
    assert left.value.code == 2
    assert not (tmp_path / "k").exists()
    capsys.readouterr()
    main(["keys", "--dir", str(tmp_path / "k"), "--shared"])
    assert [path.stem for path in (tmp_path / "k" / "agents").glob("*.key")] == ["_shared"]
    assert "warning: every node will have the same key" in capsys.readouterr().err


@played(nodes=["n1"], keys=(SHARED_AGENT,))
def test_a_key_that_all_nodes_share_is_an_alarm(stage: Stage, one: ScriptedAgent) -> None:
    stage.welcome(one)
    stage.until(lambda: "shared key" in stage.alarms())


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["run", "--config", "/no/such.toml"], 1, "cannot read configuration /no/such.toml"),
        (["run", "--quantum-ms", "1"], 2, "20 ms to 5 s are possible"),
        (["keys", "--dir", "/tmp", "--agents", "n[1-"], 2, "--agents n[1-"),
        (["keys", "--dir", "/tmp", "--agents", ""], 2, "names no node"),
    ],
)
def test_an_error_is_one_line_with_its_exit_code(
    arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == code
    assert text in capsys.readouterr().err


def test_a_pause_lets_all_run_at_once_and_holds_after_a_restart(tmp_path: Path) -> None:
    slurm = two_jobs()
    everything = (OrderTarget("all"),)

    def waiting(stage: Stage, held: bool) -> None:
        one = stage.agents[0]
        stage.until(lambda: bool(one.timeline.held(one.timeline.horizon + 1)) is held)

    first = Stage(tmp_path, slurm)
    agents = [first.agent("n1"), first.agent("n2")]

    def scene() -> None:
        first.welcome(*agents)
        waiting(first, held=True)
        answers: list[OrderAnswer] = []
        request = OrderRequest(verb="pause", targets=everything)
        asking = threading.Thread(target=lambda: answers.append(ask(first.config.state, request)))
        asking.start()
        first.until(lambda: {1, 2} <= set(agents[0].timeline.exempt.opt_out))
        asking.join()
        assert answers[0].done
        first.until_status(lambda status: status.orders)
        reported = {(job.job, job.state, job.ordered) for job in first.known().jobs}
        assert reported == {(number, "free", "everything is paused") for number in (1, 2)}

    first.act(scene)

    second = Stage(tmp_path, slurm)
    agents_again = [second.agent("n1"), second.agent("n2")]

    def scene_again() -> None:
        second.welcome(*agents_again)
        second.until_status(lambda status: status.shared_jobs == 2)
        assert [order.what for order in second.known().orders] == ["pause"]
        assert not agents_again[0].timeline.held(agents_again[0].timeline.horizon + 1)
        assert ask(second.config.state, OrderRequest(verb="resume", targets=everything)).done
        waiting(second, held=True)

    second.act(scene_again)
