from __future__ import annotations

import io
import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console

from deploy.local import GangKind
from foundation.errors import ClusterError
from foundation.interruption import interrupted_by_signals
from foundation.slurm import JobSnapshot, NodeCores, SlurmJob, SlurmJobState
from gangd.controller.controller_status import (
    AlarmStatus,
    ControllerStatus,
    JobStatus,
    NodeStatus,
    Role,
    TunedStatus,
    about,
)
from osub.cli.main import run
from osub.cli.terminal import Console as Terminal
from osub.cli.top import command
from osub.cli.top.frame import Screen, frame
from osub.live.gangd_state import StatusFreshness
from osub.live.queue import LiveQueue, QueuedJob, QueueEye, queue_of
from tests.fixtures.cli import Cli
from tests.fixtures.looks import until

WELL = StatusFreshness(0.4, process=True)


def node(name: str, agent: str = "joined", **more: float | str) -> NodeStatus:
    return NodeStatus(node=name, agent=agent, freezer="cgroup1", skew_us=45, **more)  # type: ignore[arg-type]


def job(number: int, role: Role, **cores: list[int]) -> JobStatus:
    demand = "idle" if role == "idle" else "busy"
    hold = "yield" if role == "yields" else "freeze"
    return JobStatus(
        job=number, gang=number, state=demand, demand=demand, hold=hold, role=role, weight=1.0, cores=cores
    )


def status(**changes: object) -> ControllerStatus:
    plain = ControllerStatus(
        time_ms=time.time() * 1000,
        controller="00ff" * 8,
        pid=os.getpid(),
        dry_run=False,
        slice=4711,
        quantum_ms=250.0,
        asked_quantum_ms=250.0,
        lookahead=2,
        lost_share=None,
        lease_ms=2000.0,
        slurm_age_s=0.8,
        running_jobs=7,
        shared_jobs=3,
        tick_us=120,
        dropped={},
        alarms=[],
        nodes=[node("a1"), node("a2")],
        jobs=[
            job(12, "run", a1=[0, 1, 2], a2=[0]),
            job(13, "held", a1=[0, 1, 2], a2=[0]),
            job(14, "idle", a1=[2]),
            job(15, "free", a2=[0]),
        ],
    )
    return msgspec.structs.replace(plain, **changes)


def drawn(what: ControllerStatus, screen: Screen, pulse: StatusFreshness = WELL) -> list[str]:
    console = Console(file=io.StringIO(), width=screen.width, color_system=None)
    console.print(frame(what, pulse, screen))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines()]


def line_of(lines: list[str], word: str) -> str:
    return next(line for line in lines if line.startswith(word))


def test_each_core_reports_who_runs_and_who_is_held() -> None:
    lines = drawn(status(), Screen(80))
    assert line_of(lines, "a1").endswith("0-1: 12 (13)  2: 12 (13) ~14")
    assert line_of(lines, "a2").endswith("0: 12 +15 (13)")


def test_a_job_that_yields_is_distinguished_from_one_that_is_frozen() -> None:
    jobs = [job(12, "run", a1=[0]), job(13, "held", a1=[0]), job(14, "yields", a1=[0])]
    lines = drawn(status(jobs=jobs, nodes=[node("a1", yields="cgroup1-slurm")]), Screen(140))
    assert line_of(lines, "a1").endswith("0: 12 <14> (13)")
    assert "cgroup1-slurm" in line_of(lines, "a1")
    assert line_of(lines, " 14").split()[:4] == ["14", "yields", "busy", "yield"]


def test_time_without_an_agent_is_said_of_the_worst_node() -> None:
    nodes = [node("a1"), node("a2"), node("a3")]
    assert not [line for line in drawn(status(nodes=nodes), Screen(120)) if "no agent" in line]
    nodes = [node("a1"), node("a2", unattended_s=12.34), node("a3", "lost", unattended_s=3.0)]
    [line] = [line for line in drawn(status(nodes=nodes), Screen(120)) if "no agent" in line]
    assert line.startswith(
        "no agent acted on a2 for 12 s, on 1 other node for less since the controller began"
    )


def test_each_job_reports_its_role_demand_and_place() -> None:
    lines = drawn(status(), Screen(80))
    assert line_of(lines, " 12").split() == ["12", "run", "busy", "a[1-2]", "x", "1-3", "cores"]
    assert line_of(lines, " 14").split() == ["14", "idle", "idle", "a1", "x", "1", "core"]


@pytest.mark.parametrize("width", [20, 40, 80, 120, 250])
def test_no_line_is_wider_than_the_terminal_nor_wrapped(width: int) -> None:
    lines = drawn(status(), Screen(width))
    assert all(len(line) <= width for line in lines)
    side_by_side = 3 + 5
    assert len(lines) == (side_by_side if width == 250 else side_by_side + 3)


@pytest.mark.parametrize("width", [80, 100, 180, 200])
def test_who_is_on_the_cores_is_never_cut_for_the_figures_of_agents(width: int) -> None:
    jobs = [job(3748001, "idle", a1=[0]), job(3748003, "held", a1=[0])]
    lines = drawn(status(jobs=jobs, nodes=[node("a1", yields="cgroup1-slurm")]), Screen(width))
    assert "0: (3748003) ~3748001" in line_of(lines, "a1")


def test_roomy_terminals_get_more_columns_and_wide_ones_both_tables_side_by_side() -> None:
    assert "freeze us" not in "\n".join(drawn(status(), Screen(80)))
    assert "freeze us" in "\n".join(drawn(status(), Screen(120)))
    assert any("cores" in line and "demand" in line for line in drawn(status(), Screen(200)))


def test_what_does_not_fit_is_counted_and_trouble_comes_first() -> None:
    many = status(
        nodes=[node(f"n{number}") for number in range(400)] + [node("sick", "lost")],
        jobs=[job(number, "held", n7=[0]) for number in range(100)],
        jobs_left_out=23,
    )
    for height in (10, 24, 60):
        for width in (80, 200):
            lines = drawn(many, Screen(width, height))
            assert len(lines) <= height
            text = "\n".join(lines)
            shown = sum(line.startswith(("n", "sick")) and "node" not in line for line in lines)
            assert f"and {401 - shown} more nodes" in text
            assert "more jobs" in text
            assert "sick" in text
    tall = drawn(many, Screen(80, 60))
    assert (
        tall.index(line_of(tall, "sick"))
        < tall.index(line_of(tall, "n7 "))
        < tall.index(line_of(tall, "n0 "))
    )


def test_without_a_height_everything_is_drawn() -> None:
    text = "\n".join(drawn(status(nodes=[node(f"n{number}") for number in range(400)]), Screen(80)))
    assert "n399" in text
    assert "more nodes" not in text


def test_a_dead_and_a_hanging_controller_are_distinguished() -> None:
    dead = "\n".join(drawn(status(), Screen(160), StatusFreshness(75.0, process=False)))
    assert "is dead or left 75 s ago; all jobs run" in dead
    hangs = "\n".join(drawn(status(), Screen(160), StatusFreshness(4.0, process=True)))
    assert "has not written for 4.0 s: it hangs" in hangs
    assert "dead" not in "\n".join(drawn(status(), Screen(160)))


def test_slurms_age_alarms_refusals_and_dry_run_are_shown() -> None:
    alarms = [AlarmStatus(kind="k", subject=str(n), text=f"bad {n}", for_s=90.0, count=n) for n in range(9)]
    lines = drawn(status(slurm_age_s=None, dropped={"replayed": 3}, dry_run=True, alarms=alarms), Screen(80))
    text = "\n".join(lines)
    assert "Slurm has not answered yet" in text
    assert "messages refused: 3 replayed" in text
    assert "nothing is held" in text
    assert "! bad 3 (90 s, 3 times)" in text
    assert "! and 5 more alarms" in text
    assert "bad 4" not in text


def test_slices_that_grew_are_reported_next_to_what_was_asked_for() -> None:
    calm, late = status(lost_share=0.0018), status(quantum_ms=500.0, lookahead=3, lost_share=0.031)
    assert "slice 4711 of 250 ms, lease 2 s" in "\n".join(drawn(calm, Screen(120)))
    assert "switches take 0.2%" in "\n".join(drawn(calm, Screen(120)))
    assert "slice 4711 of 500 ms (asked for: 250), 3 final, lease 2 s" in "\n".join(drawn(late, Screen(120)))


def test_what_could_steer_the_terminal_does_not_reach_it() -> None:
    alarm = AlarmStatus(kind="k", subject="s", text="evil \x1b[2J [red]\nline", for_s=1.0, count=1)
    lines = drawn(status(alarms=[alarm]), Screen(80))
    assert any("[red]" in line for line in lines)
    assert "\x1b" not in "\n".join(lines)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "status.json").write_bytes(msgspec.json.encode(status()))
    return tmp_path


def test_once_prints_a_frame(folder: Path, cli: Cli) -> None:
    assert "slice 4711 of 250 ms" in cli("top", "--gangd", folder).out


def test_json_is_the_status(folder: Path, cli: Cli) -> None:
    assert cli.json("top", "--gangd", folder, "--json")["slice"] == 4711


def test_a_stale_status_is_an_exit_code(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "status.json").write_bytes(msgspec.json.encode(status(time_ms=1.0)))
    assert "hangs" in cli("top", "--gangd", tmp_path, "--once", code=1).out


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["--gangd", "/nonexistent"], 1, "is gangd running"),
        (["--state", "/nonexistent"], 1, "osub cluster up"),
        (["--state", "a", "--gangd", "b"], 2, "--gangd"),
    ],
)
def test_errors_are_one_line(words: list[str], code: int, complaint: str, cli: Cli) -> None:
    error = cli("top", *words, code=code).err
    assert error.startswith("osub: ")
    assert error.count("\n") == 1
    assert complaint in error


@pytest.mark.parametrize("running", [0, 1, 2])
def test_the_one_cluster_with_gangd_that_runs_need_not_be_named(
    running: int, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    def found(gang: GangKind, number: int) -> SimpleNamespace:
        shape = SimpleNamespace(gang=gang)
        return SimpleNamespace(folder=Path(f"/nonexistent/{number}"), state=SimpleNamespace(shape=shape))

    clusters = [found(GangKind.NONE, 9), *(found(GangKind.OSUB, number) for number in range(running))]
    monkeypatch.setattr("osub.live.gangd_state.live_clusters", lambda: clusters)
    error = cli("top", code=1 if running == 1 else 2).err
    assert error.count("\n") == 1
    assert ("no cluster in /nonexistent/0" in error) == (running == 1)
    assert ("no gangd runs here" in error) == (running == 0)
    assert ("gangd runs in /nonexistent/0, /nonexistent/1" in error) == (running == 2)


def test_a_torn_status_is_one_line(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "status.json").write_bytes(b"{")
    assert "not the status of a gangd of this version" in cli("top", "--gangd", tmp_path, code=1).err


def test_what_goes_to_a_pipe_has_no_blanks_but_between_columns() -> None:
    lines = drawn(status(), Screen(1000))
    tables = [line for line in lines if line.startswith(("node", "job")) or "a1" in line]
    assert len(tables) > 2
    assert max(len(line.rstrip()) for line in tables) < 200


def test_a_host_s_own_gangd_need_not_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    (tmp_path / "status.json").write_bytes(msgspec.json.encode(status()))
    monkeypatch.setattr("osub.live.gangd_state.USUAL_STATE", tmp_path)
    monkeypatch.setattr("osub.cli.top.command.QueueEye.once", lambda _: None)
    for words in (["top"], ["top", "--json"], ["gang", "status"]):
        assert cli(*words).out


def test_gang_status_shows_what_slices_tune_themselves_to_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = TunedStatus(gangs=[1, 2], turn_ms=500, freezes=True, cost_ms=4.0, left_share=0.013)
    new = TunedStatus(gangs=[*range(3, 23)], turn_ms=250, freezes=False, cost_ms=None, left_share=None)
    (tmp_path / "status.json").write_bytes(msgspec.json.encode(status(tuned=[known, new])))
    run(["gang", "status", "--gangd", str(tmp_path)])
    said = " ".join(capsys.readouterr().out.split())
    assert "slices of 250 ms tune themselves" in said
    assert (
        "jobs 1, 2: turns of 500 ms, as switches take 2.0 ms each (0.4%), caches 2; "
        "frozen, as owners of slices leave 1.3%" in said
    )
    assert "jobs 3, 4, 5, 6, 7, 8, 9, 10, ...: turns of 250 ms; hold mode as configured" in said
    run(["gang", "status", "--json", "--gangd", str(tmp_path)])
    assert json.loads(capsys.readouterr().out)["tuned"][0]["turn_ms"] == 500


def test_a_terminal_that_cannot_be_redrawn_gets_one_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    (tmp_path / "status.json").write_bytes(msgspec.json.encode(status()))
    monkeypatch.setattr("osub.cli.top.command.QueueEye.once", lambda _: None)
    monkeypatch.setenv("FORCE_COLOR", "1")  # for Rich a terminal
    monkeypatch.setenv("TERM", "dumb")
    assert "gangd 00ff00ff00ff" in cli("top", "--gangd", tmp_path).out


def test_a_job_that_is_alone_for_a_while_is_watched_on(tmp_path: Path) -> None:
    eye = QueueEye(lambda: JobSnapshot(()))
    for jobs, reported in (([job(12, "run", a1=[0])], "a1"), ([], "job 12 shares no cores now")):
        (tmp_path / "status.json").write_bytes(msgspec.json.encode(status(jobs=jobs)))
        console = Terminal(file=io.StringIO(), width=80, height=20, color_system=None)
        console.print(command._picture(tmp_path, console, eye, 12))
        assert reported in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_restored_however_it_ends(
    ending: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "status.json").write_bytes(msgspec.json.encode(status()))
    monkeypatch.setattr(command, "_asked_to_leave", lambda _: os.kill(os.getpid(), ending))
    monkeypatch.setenv("TERM", "xterm")
    console = Terminal(file=io.StringIO(), force_terminal=True, width=80, height=20, color_system=None)
    ignored_or_not = signal.signal(ending, signal.SIG_DFL)  # nohup ignores SIGHUP, and so would the command
    try:
        with interrupted_by_signals():
            command._watch(tmp_path, console, QueueEye(lambda: JobSnapshot(())), None)
        assert signal.getsignal(ending) is signal.SIG_DFL
    finally:
        signal.signal(ending, ignored_or_not)
    drawn_there = console.file.getvalue()  # type: ignore[attr-defined]
    assert drawn_there.count("\x1b[?1049h") == drawn_there.count("\x1b[?1049l") == 1


def test_what_is_closed_to_a_user_is_reported_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    def closed(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", closed)
    monkeypatch.setattr("gangd.controller.order_socket.os.open", closed)
    for words in (["top", "--once"], ["gang", "status"], ["gang", "pause", "--all"]):
        printed = cli(*words, "--gangd", tmp_path, code=1)
        assert "only root and the user of this gangd may" in printed.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("pause -p ma*in", "--partition 'ma*in': Slurm has no such names"),
        ("pause -j 1,", "--job '': Slurm has no such names"),
        ("pause -w n[1-5000]", "5,000 names at once: give 4,096 at most, or --all"),
        ("pause", "--node, --partition, --job or --all"),
        ("weight 2", "name whose weight it is: --partition or --job"),
    ],
)
def test_orders_that_name_nothing_sound_are_refused_in_words(
    words: str, why: str, tmp_path: Path, cli: Cli
) -> None:
    output = cli("gang", *words.split(), "--gangd", tmp_path, code=2).err
    assert why in output
    assert "$." not in output


def test_a_job_is_shown_with_who_shares_its_cores_on_its_nodes() -> None:
    found = about(status(), 14)
    assert [one.job for one in found.jobs] == [12, 13, 14]
    assert [node.node for node in found.nodes] == ["a1"]
    assert [node.node for node in about(status(), 12).nodes] == ["a1", "a2"]


def test_without_a_job_nothing_is_left_out() -> None:
    plain = status()
    assert about(plain, None) is plain


def test_a_job_that_shares_nothing_is_reported() -> None:
    with pytest.raises(ClusterError, match="job 99 shares no cores now"):
        about(status(), 99)


EVIL = "a\x1b[31m\n\u202eb" + "x" * 300
NOW = 1_700_000_100.0


def slurm_job(number: int, state: SlurmJobState, name: str | None = None, **more: object) -> SlurmJob:
    plain: dict[str, object] = {
        "user": "u", "uid": 1, "partition": "main", "reason": "Resources", "num_nodes": 1,
    }  # fmt: skip
    return SlurmJob(job_id=number, name=name, state=state, **(plain | more))  # type: ignore[arg-type]


def with_queue(queue: LiveQueue | None, width: int = 150) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(frame(status(), WELL, Screen(width), queue, NOW))
    return out.getvalue().splitlines()


def snapshot() -> JobSnapshot:
    held = (NodeCores("a1", (0,)),)
    return JobSnapshot(
        (
            slurm_job(
                12, SlurmJobState.RUNNING, "solver", cores=held, start_time=NOW - 90,
                comment="osub replay f gangd-app=lu",
            ),
            slurm_job(
                13, SlurmJobState.RUNNING, EVIL, cores=held, start_time=None, comment="gangd-app=$(id) x"
            ),
            slurm_job(21, SlurmJobState.PENDING, "late", submit_time=NOW - 5),
            slurm_job(20, SlurmJobState.PENDING, EVIL, submit_time=NOW - 300),
            slurm_job(30, SlurmJobState.COMPLETED, "done"),
        )
    )  # fmt: skip


def test_names_applications_elapsed_times_and_the_queue_are_shown() -> None:
    lines = with_queue(queue_of(snapshot()))
    own = next(line.split() for line in lines if line.lstrip().startswith("12 "))
    assert own[:5] == ["12", "solver", "lu", "90", "s"]
    (waits,) = (line for line in lines if line.startswith("queue: "))
    assert waits.startswith("queue: 2 jobs: 20 ")
    assert "21 late (Resources, 5.0 s)" in waits


def test_what_users_write_neither_steers_the_terminal_nor_fills_it() -> None:
    lines = with_queue(queue_of(snapshot()))
    assert all(line.isprintable() and len(line) <= 150 for line in lines)
    assert "$(id)" not in "\n".join(lines)
    assert "x" * 40 not in "\n".join(lines)


def test_without_slurm_the_picture_has_neither_columns_nor_queue() -> None:
    lines = with_queue(None)
    assert not any(line.startswith("queue") for line in lines)
    assert not any("name" in line and "does" in line for line in lines)


def test_an_empty_queue_and_a_long_one_are_reported_in_a_line() -> None:
    assert any(line.startswith("queue: no job waits") for line in with_queue(LiveQueue({}, ())))
    many = tuple(QueuedJob(n, "n", "u", None, None, "Priority") for n in range(1000))
    assert sum("queue" in line for line in with_queue(LiveQueue({}, many))) == 1


def test_a_slurm_that_does_not_answer_is_asked_again() -> None:
    asked: list[int] = []

    def ask() -> JobSnapshot:
        asked.append(1)
        if len(asked) == 1:
            raise ClusterError("away")
        return snapshot()

    with QueueEye(ask, 0.0) as eye:
        until(lambda: eye.latest is not None)
    assert QueueEye(lambda: snapshot()).once() == queue_of(snapshot())
