"""How an agent learns of jobs: prolog socket, process scan, launch."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangd.agent.agenda import Agenda, AgendaItem
from gangd.agent.decide import STEPD_NS
from gangd.agent.hold_controller import HoldController, Lease
from gangd.agent.linux_host import MOST_AT_ONCE, Bell, Rings, bell_name
from gangd.agent.process_scan import PIECE_NS, REST_SHARE, ROUND_NS, ProcessScan, ScanFindings, UnseenSteps
from gangd.agent.steps import BATCH_NS, StepTable
from gangd.freezer.freezer_choice import RecordingFreezer
from gangd.freezer.holder import Step, StepKey
from gangd.freezer.procfs import is_launcher
from gangd.wire.messages import ControllerIdentity
from tests.fixtures.gang_simulated import MS, SECOND, SimulatedAgent
from tests.fixtures.looks import until

BATCH, FIRST, EXTERN = StepKey(1, "batch"), StepKey(1, "0"), StepKey(1, "extern")
TASK, STEPD, LAUNCHER = 100, 999, 77


@pytest.fixture
def freezer() -> RecordingFreezer:
    return RecordingFreezer()


@pytest.fixture
def table(freezer: RecordingFreezer) -> StepTable:
    gate = HoldController(freezer, Lease(None))
    return StepTable(gate, is_stepd=lambda pid: pid == STEPD, is_launcher=lambda pid: pid == LAUNCHER)


def put(freezer: RecordingFreezer, key: StepKey, *pids: int) -> None:
    freezer.steps.add(key)
    freezer.members[key] = pids


def test_step_that_was_launched_runs_once_its_tasks_are_no_slurmstepd(
    table: StepTable, freezer: RecordingFreezer
) -> None:
    put(freezer, FIRST)
    assert not table.refresh(0).launched
    put(freezer, FIRST, STEPD, TASK)
    assert not table.refresh(1).launched
    put(freezer, FIRST, TASK, TASK + 1)
    assert table.refresh(2).launched == {1}
    assert not table.refresh(3).launched  # it is reported once


def test_job_launches_until_the_grace_after_its_tasks_have_begun(
    table: StepTable, freezer: RecordingFreezer
) -> None:
    put(freezer, FIRST)
    table.refresh(0)
    assert table.launching_at(2 * SECOND, 200 * MS) == {1}
    assert not table.launching_at(STEPD_NS, 200 * MS)  # it is not waited for
    put(freezer, FIRST, STEPD)
    table.refresh(2 * SECOND)
    assert table.launching_at(2 * SECOND, 200 * MS) == {1}
    put(freezer, FIRST, TASK)
    table.refresh(2 * SECOND)
    assert table.launching_at(2 * SECOND + 199 * MS, 200 * MS) == {1}
    assert not table.launching_at(2 * SECOND + 200 * MS, 200 * MS)


def test_job_yields_for_as_long_as_a_task_is_slurmstepd(table: StepTable, freezer: RecordingFreezer) -> None:
    put(freezer, FIRST, STEPD)
    table.refresh(0)
    assert table.launching_at(10 * STEPD_NS, 200 * MS) == {1}


def test_step_without_a_place_for_tasks_launches_and_is_not_held(
    table: StepTable, freezer: RecordingFreezer, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(freezer, FIRST)
    monkeypatch.setattr(freezer, "look", lambda: (Step(FIRST, None, is_empty=True),))
    table.refresh(0)
    assert table.launching_at(SECOND, 200 * MS) == {1}
    assert table.views() == ()
    monkeypatch.undo()
    put(freezer, FIRST, TASK)
    table.refresh(SECOND)
    assert [view.key for view in table.views()] == [FIRST]


def test_batch_script_runs_after_a_moment_unless_it_launches(
    table: StepTable, freezer: RecordingFreezer
) -> None:
    put(freezer, BATCH, TASK)
    assert not table.refresh(0).launched
    put(freezer, BATCH, TASK, LAUNCHER)
    assert not table.refresh(BATCH_NS + 1).launched
    put(freezer, BATCH, TASK)
    assert table.refresh(BATCH_NS + 2).launched == {1}


def test_what_slurm_adopts_is_no_launch(table: StepTable, freezer: RecordingFreezer) -> None:
    put(freezer, EXTERN, TASK)
    for now_ns in (0, BATCH_NS, 10 * BATCH_NS):
        assert not table.refresh(now_ns).launched


def test_job_whose_steps_are_gone_is_launched_anew(table: StepTable, freezer: RecordingFreezer) -> None:
    put(freezer, FIRST, TASK)
    assert table.refresh(0).launched
    freezer.steps.clear()
    table.refresh(1)
    put(freezer, FIRST)
    assert not table.refresh(2).launched
    put(freezer, FIRST, TASK)
    assert table.refresh(3).launched == {1}


def test_launcher_is_known_by_its_name(tmp_path: Path, children: list[subprocess.Popen[bytes]]) -> None:
    for name in ("srun", "other"):
        program = tmp_path / name
        shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
        children.append(subprocess.Popen([program, "100"]))
    until(lambda: is_launcher(children[0].pid), what="the launcher has begun")
    assert not is_launcher(children[1].pid)
    assert not is_launcher(2**22 + 5)


@pytest.fixture
def agent() -> SimulatedAgent:
    agent = SimulatedAgent()
    agent.now_ns = (time.monotonic_ns() // SECOND + 2) * SECOND
    agent.zero_ns = agent.controller_ns()
    agent.node.looks.is_notified = True
    agent.join()
    agent.rotate(run_ns=SECOND)
    agent.sent.clear()
    return agent


def launched(agent: SimulatedAgent) -> list[tuple[int, ...]]:
    return [report.launched for report in agent.reports if report.launched]


def test_launch_is_followed_closely_and_reported_at_once(agent: SimulatedAgent) -> None:
    agent.freezer.steps.add(FIRST)
    agent.node.look(agent.now_ns)  # its folder was made
    agent.run(300 * MS)
    assert launched(agent) == []
    agent.freezer.members[FIRST] = (TASK,)
    agent.run(60 * MS)
    assert launched(agent) == [(1,)]
    agent.run(3 * SECOND)
    assert launched(agent) == [(1,)]


def test_launch_that_takes_for_ever_is_not_looked_at_for_ever(agent: SimulatedAgent) -> None:
    agent.freezer.steps.add(FIRST)
    agent.node.look(agent.now_ns)
    agent.run(3 * SECOND)
    looks: list[int] = []
    look = agent.both.look
    agent.both.look = lambda: (looks.append(1), look())[1]  # type: ignore[func-returns-value]
    agent.run(3 * SECOND)
    assert len(looks) <= 4


def test_later_controller_is_informed_what_runs(agent: SimulatedAgent) -> None:
    agent.freezer.steps.add(FIRST)
    agent.freezer.members[FIRST] = (TASK,)
    agent.node.look(agent.now_ns)
    agent.run(SECOND)
    agent.sent.clear()
    agent.controller = ControllerIdentity(b"d" * 16, 2)
    agent.rotate(run_ns=2 * SECOND)
    assert launched(agent) == [(1,)]


SCRIPT = Path(__file__).parents[4] / "deploy" / "slurm" / "gang-bell"
LONG_S = 30.0  # a tenth of a second is what the script allows itself; the host may be busy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    deep = tmp_path / ("a long name " * 10) / "state"  # longer than a socket's path may be
    deep.mkdir(parents=True)
    return deep


def hang(folder: Path) -> Bell:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    one = Bell.hang(fd, bell_name("n1"))
    os.close(fd)
    return one


@pytest.fixture
def bell(folder: Path) -> Iterator[Bell]:
    one = hang(folder)
    yield one
    one.close()


def send(folder: Path, *messages: bytes) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as one:
        one.connect(f"/proc/self/fd/{fd}/{bell_name('n1')}")
        for message in messages:
            one.send(message)
    os.close(fd)


def test_jobs_that_begin_and_end_are_reported(bell: Bell, folder: Path) -> None:
    assert bell.take() == Rings()
    send(folder, b"begin 7", b"begin 8\n", b"end 9", b"begin 7")
    assert bell.take() == Rings(frozenset({7, 8}), frozenset({9}))
    assert bell.take() == Rings()


@pytest.mark.parametrize(
    "message",
    [
        *(b"", b"begin", b"begin 0", b"begin -1", b"begin 1 2", b"thaw 1", b"begin 1\n\n"),
        *(b"begin 12345678901", b"begin \xd9\xa1", b"begin 1" + b"\0" * 100, b" begin 1", b"BEGIN 1"),
    ],
)
def test_what_is_no_ring_is_refused_and_harms_nothing(bell: Bell, folder: Path, message: bytes) -> None:
    send(folder, message, b"end 3")
    assert bell.take() == Rings(ended=frozenset({3}), refused=1)


def test_a_number_that_no_job_has_is_left_out(bell: Bell, folder: Path) -> None:
    send(folder, b"begin 9999999999")
    assert bell.take() == Rings()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: becomes another user")
def test_only_root_and_the_agents_own_user_are_believed(bell: Bell, folder: Path) -> None:
    for path in (folder, *folder.parents):  # as if every guard of the folder had failed
        found = path.stat()
        if found.st_uid == 0 and path.is_relative_to("/tmp") and not found.st_mode & 0o001:
            path.chmod(0o755)  # never /tmp itself, which is everybody's already
    (folder / bell_name("n1")).chmod(0o666)
    other = (
        "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); "
        "os.chdir(sys.argv[1]); s.sendto(b'begin 5', sys.argv[2])"
    )
    subprocess.run([sys.executable, "-c", other, folder, bell_name("n1")], check=True, timeout=60)
    send(folder, b"begin 6")
    assert bell.take() == Rings(frozenset({6}), refused=1)


def test_a_plain_user_cannot_even_knock(bell: Bell, folder: Path) -> None:
    assert (folder / bell_name("n1")).stat().st_mode & 0o777 == 0o600


def test_a_flood_is_taken_in_turns(bell: Bell, folder: Path) -> None:
    sent = 0
    try:
        for number in range(1, 10_000):
            send(folder, b"begin %d" % number)
            sent += 1
    except BlockingIOError:
        pass
    assert len(bell.take().begun) == min(sent, MOST_AT_ONCE)


def test_the_bell_of_an_agent_that_was_killed_is_replaced_and_its_own_is_taken_down(folder: Path) -> None:
    killed = hang(folder)
    killed._socket.close()
    second = hang(folder)
    send(folder, b"end 4")
    assert second.take().ended == {4}
    second.close()
    os.close(killed._folder_fd)
    assert list(folder.iterdir()) == []


# The script


def ring(folder: Path, *words: str, script: Path = SCRIPT, **environment: str) -> float:
    """Run the script as slurmd does; returns how long it took. It must end with 0 and print nothing."""
    given = {"SLURM_JOB_ID": "77", "SLURMD_NODENAME": "n1", "GANGD_STATE": str(folder)} | environment
    began = time.monotonic()
    done = subprocess.run([script, *words], env=given, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    return time.monotonic() - began


@pytest.fixture
def near() -> Iterator[Path]:
    """Give a folder whose path a socket may have, as /run/gangd has it."""
    (path := Path("/tmp") / f"bell-{os.getpid()}").mkdir(mode=0o700)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def hung(near: Path) -> Iterator[Bell]:
    one = hang(near)
    yield one
    one.close()


def patient(tmp_path: Path) -> Path:
    """Return the script with half a minute in place of a tenth of a second: the host may be busy."""
    script = tmp_path / "gang-bell"
    text = SCRIPT.read_text()
    assert text.count("KILL 0.1") == 2
    script.write_text(text.replace("KILL 0.1", "KILL 30"))
    script.chmod(0o755)
    return script


def with_tools(script: Path, tools: Path) -> str:
    """Return the script with the programs of one folder only."""
    return script.read_text().replace("PATH=/usr/sbin:/usr/bin:/sbin:/bin\n", f"PATH={tools}\n")


@pytest.mark.parametrize(
    ("words", "environment", "rings"),
    [
        ((), {"SLURM_SCRIPT_CONTEXT": "prolog_slurmd"}, Rings(begun=frozenset({77}))),
        ((), {"SLURM_SCRIPT_CONTEXT": "epilog_slurmd"}, Rings(ended=frozenset({77}))),
        (("begin",), {}, Rings(begun=frozenset({77}))),
        (("end",), {"SLURM_SCRIPT_CONTEXT": "prolog_slurmd"}, Rings(ended=frozenset({77}))),
        ((), {}, Rings()),
        (("begin",), {"SLURM_JOB_ID": "7; reboot"}, Rings()),
        (("begin",), {"SLURM_JOB_ID": ""}, Rings()),
        (("begin",), {"SLURMD_NODENAME": "../n1"}, Rings()),
    ],
)
def test_slurms_prolog_and_epilog_ring(
    hung: Bell, near: Path, tmp_path: Path, words: tuple[str, ...], environment: dict[str, str], rings: Rings
) -> None:
    ring(near, *words, script=patient(tmp_path), **environment)
    assert hung.take() == rings


def test_with_no_agent_the_prolog_returns_and_nothing_happens(near: Path) -> None:
    ring(near, "begin")
    (near / bell_name("n1")).mkdir()
    ring(near, "begin")


def test_the_bell_of_a_dead_agent_does_not_hold_the_prolog_up(near: Path) -> None:
    one = hang(near)
    one._socket.close()  # as the kernel does for a process that is killed
    os.close(one._folder_fd)
    assert (near / bell_name("n1")).is_socket()
    assert ring(near, "begin") < LONG_S


def test_an_agent_that_sleeps_does_not_hold_the_prolog_up(hung: Bell, near: Path) -> None:
    with pytest.raises(BlockingIOError):
        send(near, *[b"begin 1"] * 100_000)
    assert ring(near, "begin") < LONG_S


def test_a_host_without_perl_rings_by_python(hung: Bell, near: Path, tmp_path: Path) -> None:
    (tools := tmp_path / "bin").mkdir()
    for name in ("timeout", "python3", "sh"):
        found = shutil.which(name, path="/usr/bin:/bin")
        if found is None:
            pytest.skip(f"no {name} in /usr/bin")
        (tools / name).symlink_to(found)
    script = patient(tmp_path)
    script.write_text(with_tools(script, tools))
    ring(near, "end", script=script)
    assert hung.take() == Rings(ended=frozenset({77}))


def test_what_hangs_is_killed_and_the_prolog_succeeds(hung: Bell, near: Path, tmp_path: Path) -> None:
    (tools := tmp_path / "bin").mkdir()
    (tools / "timeout").symlink_to("/usr/bin/timeout")
    (tools / "perl").write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    (tools / "perl").chmod(0o755)
    (script := tmp_path / "gang-bell").write_text(with_tools(SCRIPT, tools))
    script.chmod(0o755)
    assert ring(near, "end", script=script) < LONG_S


USER = 1500
KEY = StepKey(12, "0")


def process(proc: Path, pid: int, cgroup: str, *, uid: int = 0, comm: str = "app", line: str = "app") -> None:
    """Make a process in a folder of the shape of /proc."""
    (folder := proc / str(pid)).mkdir()
    (folder / "stat").write_text(f"{pid} ({comm}) S 1 1 1 " + "0 " * 15 + "77 0 0")
    (folder / "comm").write_text(f"{comm}\n")
    (folder / "cmdline").write_text(line.replace(" ", "\0"))
    (folder / "cgroup").write_text(cgroup)
    if comm == "slurmstepd":
        (proc / "slurmstepd").touch()
        (folder / "exe").symlink_to(proc / "slurmstepd")
    if uid:
        os.chown(folder, uid, uid)


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make folders of another user")


def scanned(
    proc: Path, *users: int, stepds: bool = False, agenda: Agenda | None = None, finds_strays: bool = True
) -> ScanFindings:
    found = ProcessScan("a", agenda or Agenda(), proc, finds_strays=finds_strays).walk(
        frozenset(users), 0, stepds=stepds
    )
    assert found is not None
    return found


@as_root
@pytest.mark.parametrize(
    "job",
    [
        "1:freezer:/slurm_a/uid_1500/job_5/step_0\n",
        "0::/system.slice/a_slurmstepd.scope/job_5/step_0/user/task_0\n",
        "0::/system.slice/a_slurmstepd.scope/sEKNK5D2BV4300/step_0/user/task_0\n",
    ],
)
def test_stray_is_a_process_of_a_job_user_outside_every_job(tmp_path: Path, job: str) -> None:
    process(tmp_path, 10, job, uid=USER)
    process(tmp_path, 11, "0::/user.slice\n", uid=USER)
    process(tmp_path, 12, "0::/user.slice\n", uid=USER + 1)
    assert scanned(tmp_path, USER, 0).strays == {USER: [11]}


def test_strays_are_reported_with_a_job_of_their_user_and_by_number_where_he_has_none() -> None:
    found = ScanFindings({USER: [11, 12, 13], USER + 1: [20], USER + 2: [30]})
    assert list(found.stray_faults({12, 30}, {USER: 5})) == [
        (USER, [11, 13], "2 processes of its user run outside of jobs, process 11 for one", 5),
        (USER + 1, [20], f"1 process of user {USER + 1} runs outside of jobs, process 20 for one", None),
    ]


def test_a_users_oldest_job_is_the_one_with_the_lowest_number(
    table: StepTable, freezer: RecordingFreezer
) -> None:
    for job in (9, 7, 8):
        put(freezer, StepKey(job, "0"), os.getpid())
    table.refresh(0)
    assert table.oldest_jobs() == {os.getuid(): 7}


@as_root
def test_process_whose_first_thread_has_ended_is_where_its_other_threads_are(tmp_path: Path) -> None:
    """The kernel shows a thread that has ended in no cgroup."""
    for pid, job in ((10, "1:freezer:/slurm_a/uid_1500/job_5/step_0\n"), (20, "1:freezer:/user\n")):
        process(tmp_path, pid, "1:freezer:/\n", uid=USER)
        stat = f"{pid} (munged) Z 1 1 1 " + "0 " * 13 + "2 0 77 0 0"
        (tmp_path / str(pid) / "stat").write_text(stat)
        for tid, cgroup in ((pid, "1:freezer:/\n"), (pid + 1, job)):
            (tmp_path / f"{pid}/task/{tid}").mkdir(parents=True)
            (tmp_path / f"{pid}/task/{tid}/cgroup").write_text(cgroup)
    assert scanned(tmp_path, USER).strays == {USER: [20]}


def test_walk_takes_little_time_at_once_and_rests_in_between(tmp_path: Path) -> None:
    for pid in range(100):
        process(tmp_path, pid, "0::/\n")
    now_ns = cpu_ns = pieces = 0

    def clock() -> int:
        nonlocal cpu_ns
        cpu_ns += 200_000  # a look at eight processes
        return cpu_ns

    agenda = Agenda()
    census = ProcessScan("a", agenda, tmp_path, clock)
    while True:
        before_ns = cpu_ns
        found = census.walk(frozenset({USER}), now_ns, stepds=True)
        pieces += 1
        assert cpu_ns - before_ns <= PIECE_NS + 800_000
        next_ns = agenda.at(AgendaItem.CENSUS)
        assert next_ns is not None
        assert next_ns - now_ns >= REST_SHARE * 200_000
        if found is not None:
            break
        now_ns = next_ns
    assert pieces > 1
    assert next_ns >= ROUND_NS


def test_finds_the_slurmstepds_of_its_own_node(tmp_path: Path) -> None:
    for pid, cgroup, step in (
        (10, "0::/system.slice/a_slurmstepd.scope/sEKNK5D2BV4300/step_0/slurm\n", "12.0"),
        (11, "4:freezer:/slurm_a/uid_1/job_13\n0::/\n", "13.batch"),
        (12, "0::/system.slice/b_slurmstepd.scope/job_14/step_0/slurm\n", "14.0"),
        (13, "0::/system.slice/slurmstepd.scope/job_15/step_0/slurm\n", "15.0"),
    ):
        process(tmp_path, pid, cgroup, comm="slurmstepd", line=f"slurmstepd: [{step}]")
    process(tmp_path, 14, "0::/\n", line="slurmstepd: [16.0]")  # who only says so
    assert scanned(tmp_path, stepds=True).stepds == {KEY: 10, StepKey(13, "batch"): 11, StepKey(15, "0"): 13}


def test_slurmstepd_whose_tasks_have_yet_to_begin_or_have_ended_is_not_counted(tmp_path: Path) -> None:
    process(tmp_path, 9, "0::/\n", comm="slurmstepd", line="slurmstepd")  # a task to be
    process(tmp_path, 8, "0::/\n", comm="sh", line="sh")
    for pid, job, children in ((10, 12, "9 "), (11, 13, ""), (13, 14, "9 8 ")):
        process(tmp_path, pid, "0::/\n", comm="slurmstepd", line=f"slurmstepd: [{job}.0]")
        listed = tmp_path / str(pid) / "task" / str(pid) / "children"
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text(children)
    assert scanned(tmp_path, stepds=True).stepds == {StepKey(14, "0"): 13}


def test_nothing_is_looked_at_if_no_one_asks(tmp_path: Path) -> None:
    agenda = Agenda()
    scanned(tmp_path / "absent", 0, agenda=agenda)
    assert agenda.at(AgendaItem.CENSUS) == ROUND_NS


def judged(unseen: UnseenSteps, stepds: dict[StepKey, int], named: set[int], found: set[int]) -> set[StepKey]:
    return set(unseen.judge(unseen.jobs(named, found), stepds))


def test_job_that_runs_and_has_no_step_anywhere_is_reported() -> None:
    unseen = UnseenSteps()
    assert judged(unseen, {KEY: 10}, {12}, set()) == set()  # it may just begin
    assert judged(unseen, {KEY: 10}, {12}, set()) == {KEY}
    assert judged(unseen, {KEY: 10}, {12}, set()) == {KEY}
    assert judged(unseen, {KEY: 11}, {12}, set()) == set()  # another


def test_job_whose_step_was_found_once_or_that_is_no_ones_concern_is_not_reported() -> None:
    unseen = UnseenSteps()
    judged(unseen, {KEY: 10}, {12}, {12})
    for _ in range(3):  # its step ends, slurmstepd cleans up
        assert judged(unseen, {KEY: 10}, {12}, set()) == set()
    for _ in range(3):  # not in the schedule
        assert judged(unseen, {KEY: 10}, set(), set()) == set()
    for _ in range(3):  # no slurmstepd: an allocation in which nothing runs
        assert judged(unseen, {}, {12}, set()) == set()


@as_root
@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/user.slice/user-1500.slice/user@1500.service/slurmstepd.scope/job_5/step_0/user/task_0\n",
        "0::/user.slice/user-1500.slice/user@1500.service/job_5/step_0\n",
        "1:name=systemd:/user.slice/job_5\n0::/\n",
    ],
)
def test_a_cgroup_that_a_user_made_hides_no_stray(tmp_path: Path, cgroup: str) -> None:
    process(tmp_path, 10, cgroup, uid=USER)
    assert scanned(tmp_path, USER).strays == {USER: [10]}


def test_a_slurmstepd_whose_title_reports_no_step_is_reported(tmp_path: Path) -> None:
    cgroup = "0::/system.slice/slurmstepd.scope/job_15/step_0/slurm\n"
    for pid, line in (
        (10, "slurmstepd: [sEKNK5D2BV4300.0]"),
        (11, "/usr/sbin/slurmstepd infinity"),
        (12, "/usr/sbin/slurmstepd-wlm"),
        (13, "slurmstepd: [12.0:namespace]"),
        (14, "slurmstepd: [12.0]"),
    ):
        process(tmp_path, pid, cgroup, comm="slurmstepd", line=line)
    found = scanned(tmp_path, stepds=True)
    assert (found.unread, found.stepds) == ({10: "slurmstepd: [sEKNK5D2BV4300.0]"}, {KEY: 14})


def test_what_cannot_be_recognised_is_reported_when_it_lasts() -> None:
    unseen = UnseenSteps()
    assert unseen.lasting({"x": "x is odd"}) == {}
    assert unseen.lasting({"x": "x is odd", "y": "y is odd"}) == {"x": "x is odd"}
    assert (unseen.lasting({}), unseen.lasting({"x": "x is odd"})) == ({}, {})


@as_root
def test_where_users_log_in_what_they_run_is_no_stray(tmp_path: Path) -> None:
    process(tmp_path, 10, "0::/user.slice\n", uid=USER)
    assert not scanned(tmp_path, USER, finds_strays=False).strays
