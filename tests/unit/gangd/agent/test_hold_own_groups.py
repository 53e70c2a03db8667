from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gangd.freezer.holder import Did
from gangd.freezer.tree import job_of_own, own_group
from gangd.hold.cpu_group import cpu_path, width
from gangd.hold.cpu_priority import IDLE1, IDLE2, SHARES1, CpuWeightControl, threads
from gangd.hold.own_groups import OwnGroups
from tests.fixtures import gang_yield
from tests.fixtures.gang_host import cpu_ns
from tests.fixtures.looks import until
from tests.fixtures.no_ledger import NoLedger

Children = list[subprocess.Popen[bytes]]
A, B = 7, 8
FORKING = """
import os, signal, time
parent = os.getpid()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print(flush=True)
for number in range(150):
    if number == 140:
        signal.sigwait({signal.SIGUSR1})
    if os.fork() == 0:
        while os.getppid() == parent:
            time.sleep(0.1)
        os._exit(0)
    time.sleep(0.002)
time.sleep(1000)
"""


@pytest.fixture
def node() -> Iterator[str]:
    if os.geteuid() != 0 or not (gang_yield.CPU1 / "cgroup.procs").exists():
        pytest.skip("needs root and a cgroup v1 cpu hierarchy")
    name = f"osubtest{os.getpid()}"
    yield name
    gang_yield.remove_groups(gang_yield.CPU1, name)


@pytest.fixture
def host(node: str, children: Children) -> Iterator[Path]:
    """Return a hierarchy that has most of each core, whatever else this host does."""
    (top := gang_yield.CPU1 / f"host_{node}").mkdir()
    (top / "cpu.shares").write_text("8192")  # most of a core; more starves the other tests
    yield top
    for child in children:
        child.kill()
        child.wait()
    gang_yield.remove_groups(top, node)
    until(lambda: not (top / "cgroup.procs").read_text(), what="an empty group")
    top.rmdir()


@contextmanager
def home_of(children: Children, top: Path, node: str) -> Iterator[Path]:
    """Make a group that children come from, and remove it when they have ended."""
    (home := top / f"home_{node}").mkdir()
    try:
        yield home
    finally:
        for child in children:
            child.kill()
            child.wait()
        until(lambda: not (home / "cgroup.procs").read_text(), what="an empty group")
        home.rmdir()


def started(children: Children, program: str) -> int:
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    children.append(child)
    assert child.stdout is not None
    child.stdout.readline()
    return child.pid


def spinner(children: Children) -> int:
    return started(children, gang_yield.PIN.format(cpu=gang_yield.a_cpu()))


def only(*pids: int) -> Callable[[], tuple[int, ...]]:
    return lambda: pids


def group_of(pid: int) -> str | None:
    return cpu_path(pid)


@pytest.mark.slow
@pytest.mark.parametrize("knob", [IDLE1, SHARES1])
def test_held_job_leaves_the_core_to_the_others_and_gets_its_part_back(
    host: Path, node: str, children: Children, knob: CpuWeightControl
) -> None:
    held, owner = spinner(children), spinner(children)
    groups = OwnGroups(host, knob, node, NoLedger())
    assert groups.gather({A: only(held), B: only(owner)})
    assert not groups.gather({A: only(held), B: only(owner)})  # nothing new
    assert groups.hold(A).did is Did.WROTE
    assert groups.hold(A).did is Did.NOTHING
    assert gang_yield.shares([held, owner])[0] < 0.1
    assert groups.release(A).did is Did.WROTE
    assert 0.3 < gang_yield.shares([held, owner])[0] < 0.7
    groups.close()


@pytest.mark.slow
def test_held_job_takes_what_the_owner_leaves(host: Path, node: str, children: Children) -> None:
    held, owner = spinner(children), spinner(children)
    groups = OwnGroups(host, IDLE1, node, NoLedger())
    groups.gather({A: only(held), B: only(owner)})
    groups.hold(A)
    children[1].send_signal(signal.SIGSTOP)
    start = cpu_ns(held)
    until(lambda: cpu_ns(held) - start > 50_000_000, what="progress of a job whose owner rests")
    groups.close()


def test_what_a_held_job_forks_yields_too_and_none_escapes(host: Path, node: str, children: Children) -> None:
    root = started(children, FORKING)

    def family() -> tuple[int, ...]:
        path = Path(f"/proc/{root}/task/{root}/children")
        return (root, *map(int, path.read_text().split()))

    groups = OwnGroups(host, IDLE1, node, NoLedger())
    until(lambda: len(family()) > 20, what="children")
    groups.gather({A: family})  # some are born before, some meanwhile, some after
    groups.hold(A)
    os.kill(root, signal.SIGUSR1)
    until(lambda: len(family()) == 151, what="all children")
    assert {group_of(pid) for pid in family()} == {f"/{host.name}/{own_group(node, A)}"}
    groups.close()


def test_processes_go_back_to_where_they_were_and_the_group_is_removed(node: str, children: Children) -> None:
    pid = spinner(children)
    with home_of(children, gang_yield.CPU1, node) as home:
        (home / "cgroup.procs").write_text(str(pid))
        groups = OwnGroups(gang_yield.CPU1, IDLE1, node, NoLedger())
        groups.gather({A: only(pid)})
        assert group_of(pid) == "/" + own_group(node, A)
        groups.hold(A)
        groups.gather({})  # the job is no longer scheduled
        assert group_of(pid) == f"/{home.name}"
        assert not (gang_yield.CPU1 / own_group(node, A)).exists()
        assert groups.hold(A).did is Did.GONE
        groups.close()


def test_group_of_another_job_is_no_home(node: str, children: Children) -> None:
    stray, task = spinner(children), spinner(children)
    with home_of(children, gang_yield.CPU1, node) as home:
        (home / "cgroup.procs").write_text(str(task))
        groups = OwnGroups(gang_yield.CPU1, IDLE1, node, NoLedger())
        groups.gather({B: only(stray)})
        groups.gather({A: only(stray), B: lambda: ()})
        groups.gather({A: only(stray, task)})
        groups.close()
        assert group_of(stray) == group_of(task) == f"/{home.name}"


def test_home_that_is_gone_is_the_top(node: str, children: Children) -> None:
    (home := gang_yield.CPU1 / f"home_{node}").mkdir()
    pid = spinner(children)
    (home / "cgroup.procs").write_text(str(pid))
    groups = OwnGroups(gang_yield.CPU1, IDLE1, node, NoLedger())
    groups.gather({A: only(pid)})
    home.rmdir()
    groups.close()
    assert group_of(pid) == "/"


def test_next_agent_restores_what_an_earlier_one_left_low(host: Path, node: str, children: Children) -> None:
    held, owner = spinner(children), spinner(children)
    first = OwnGroups(host, SHARES1, node, NoLedger())
    first.gather({A: only(held), B: only(owner)})
    first.hold(A)
    first.hold(B)
    second = OwnGroups(host, IDLE1, node, NoLedger())  # the first was killed
    low = host / own_group(node, A)
    assert (low / "cpu.shares").read_text() == "1024\n"
    assert not second.gather({A: only(held), B: only(owner)})  # they are in their groups already
    second.hold(A)
    assert gang_yield.shares([held, owner])[0] < 0.1
    second.close()
    assert group_of(held) == group_of(owner) == f"/{host.name}"


def test_ended_job_leaves_nothing_behind(node: str, children: Children) -> None:
    pid = spinner(children)
    groups = OwnGroups(gang_yield.CPU1, IDLE1, node, NoLedger())
    groups.gather({A: only(pid)})
    groups.hold(A)
    children[0].kill()
    children[0].wait()
    groups.gather({})
    until(
        lambda: bool(groups.gather({})) or not (gang_yield.CPU1 / own_group(node, A)).exists(), what="removal"
    )
    groups.close()


def test_weight_that_cannot_be_set_is_reported_and_set_with_the_next_release(
    node: str, children: Children
) -> None:
    refused: list[bytes] = []

    def write(fd: int, data: bytes, offset: int) -> int:
        if not refused and data.isdigit() and int(data) > 1:
            refused.append(data)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.pwrite(fd, data, offset)

    pids = (started(children, "print(flush=True); import time; time.sleep(1000)"), spinner(children))
    groups = OwnGroups(gang_yield.CPU1, SHARES1, node, NoLedger(), write=write)
    groups.gather({A: only(*pids)}, cores={A: 2})
    assert refused
    assert "Input/output error" in groups.troubles()[A]
    groups.hold(A)
    groups.release(A)
    shares_file = gang_yield.CPU1 / own_group(node, A) / "cpu.shares"
    assert shares_file.read_text().strip() == refused[0].decode()
    for child in children:
        child.kill()
        child.wait()
    groups.gather({})
    groups.close()


def test_real_time_thread_is_reported_and_the_others_yield(node: str, children: Children) -> None:
    program = (
        "import threading, time, os, sys\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
        "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))\n"
        "print(flush=True)\ntime.sleep(1000)"
    )
    pid = started(children, program)
    groups = OwnGroups(gang_yield.CPU1, IDLE1, node, NoLedger())
    groups.gather({A: only(pid)})
    assert "real-time" in groups.troubles()[A]
    assert not groups.troubles()
    tasks = (gang_yield.CPU1 / own_group(node, A) / "tasks").read_text().split()
    assert tasks == [str(tid) for tid in threads(f"/proc/{pid}/task") if tid != pid]
    children[0].send_signal(signal.SIGKILL)
    groups.close()


def test_weight_is_that_of_allocated_cores_a_job_can_keep_busy(node: str, children: Children) -> None:
    program = (
        "import threading, time\n"
        "for _ in range(3): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
        "print(flush=True)\ntime.sleep(1000)"
    )
    pid = started(children, program)
    assert [width((pid,), cores) for cores in (1, 3, 8)] == [1, 3, 4]
    assert width((pid, 2**22 + 1), 8) == 4  # one that is gone counts for nothing
    groups = OwnGroups(gang_yield.CPU1, IDLE1, node, NoLedger())
    groups.gather({A: only(pid)})
    file = gang_yield.CPU1 / own_group(node, A) / "cpu.shares"
    assert int(file.read_text()) == 1024, "whatever cores its user lets it run on"
    for cores in (3, 2):  # also when nothing was moved
        groups.gather({A: only(pid)}, cores={A: cores})
        assert int(file.read_text()) == 1024 * cores
    groups.hold(A)
    groups.gather({A: only(pid)}, cores={A: 3})
    groups.release(A)
    assert int(file.read_text()) == 1024 * 3
    groups.close()


def test_full_ledger_means_that_nothing_is_held(node: str, children: Children) -> None:
    class Full(NoLedger):
        def claim_cgroup(self, kind: int, path: str, job: int) -> int | None:
            return None

    pid = spinner(children)
    groups = OwnGroups(gang_yield.CPU1, IDLE1, node, Full())
    groups.gather({A: only(pid)})
    done = groups.hold(A)
    assert done.did is Did.FAILED
    assert "ledger" in (done.text or "")
    assert (gang_yield.CPU1 / own_group(node, A) / "cpu.idle").read_text() == "0\n"
    groups.close()


def test_group_that_a_user_removed_is_made_again(node: str, children: Children) -> None:
    pid = spinner(children)
    groups = OwnGroups(gang_yield.CPU1, IDLE1, node, NoLedger())
    groups.gather({A: only(pid)})
    (gang_yield.CPU1 / "cgroup.procs").write_text(str(pid))
    (gang_yield.CPU1 / own_group(node, A)).rmdir()
    assert groups.hold(A).did is Did.GONE
    groups.gather({A: only(pid)})
    groups.gather({A: only(pid)})
    assert group_of(pid) == "/" + own_group(node, A)
    assert groups.hold(A).did is Did.WROTE
    groups.close()


@pytest.mark.slow
def test_switches_go_on_while_jobs_are_gathered_and_dissolved(node: str, children: Children) -> None:
    pids = [spinner(children) for _ in range(2)]
    groups = OwnGroups(gang_yield.CPU1, IDLE1, node, NoLedger())
    stop = threading.Event()
    wrong: list[object] = []

    def switch() -> None:
        while not stop.is_set():
            both = (groups.hold(A), groups.release(A))
            wrong.extend(done for done in both if done.did is Did.FAILED)

    thread = threading.Thread(target=switch)
    thread.start()
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        groups.gather({A: only(*pids)})
        groups.gather({})
    stop.set()
    thread.join()
    assert not wrong
    groups.close()
    assert not list(gang_yield.CPU1.glob(f"gangd_{node}_*"))


@pytest.fixture
def top2() -> Iterator[tuple[Path, str]]:
    """Return the top of the unified hierarchy, and a name of a node for groups in it."""
    if os.geteuid() != 0 or gang_yield.UNIFIED is None:
        pytest.skip("needs root and a cgroup v2 hierarchy")
    name = f"osubtest{os.getpid()}"
    yield gang_yield.UNIFIED, name
    gang_yield.remove_groups(gang_yield.UNIFIED, name)


def place2(pid: int) -> str | None:
    return cpu_path(pid, unified=True)


def test_unified_group_holds_and_gives_processes_back(top2: tuple[Path, str], children: Children) -> None:
    top, node = top2
    knob = gang_yield.knob_of_unified(top)
    with home_of(children, top, node) as home:
        moved = f"open({str(home / 'cgroup.procs')!r}, 'w').write('0')\n"
        pid = started(children, moved + FORKING)  # all of its children are born at home
        family = Path(f"/proc/{pid}/task/{pid}/children")

        def members() -> tuple[int, ...]:
            return (pid, *map(int, family.read_text().split()))

        groups = OwnGroups(top, knob, node, NoLedger())
        until(lambda: len(members()) > 20, what="children")
        assert groups.gather({A: members}, cores={A: 3})
        weight = top / own_group(node, A) / knob.weight_file
        assert weight.read_text() == "300\n"
        assert groups.hold(A).did is Did.WROTE
        assert weight.read_text() == "1\n"
        os.kill(pid, signal.SIGUSR1)
        until(lambda: len(members()) == 151, what="all children")
        assert {place2(each) for each in members()} == {"/" + own_group(node, A)}
        assert groups.release(A).did is Did.WROTE
        assert weight.read_text() == "300\n"
        groups.gather({A: members}, cores={A: 200})
        assert weight.read_text() == "10000\n", "the most that the kernel takes"
        groups.hold(A)
        groups.gather({})  # the job is no longer scheduled
        assert {place2(each) for each in members()} == {f"/{home.name}"}
        assert not weight.parent.exists()
        groups.close()


def test_next_agent_restores_a_unified_group(top2: tuple[Path, str], children: Children) -> None:
    top, node = top2
    knob, pid = gang_yield.knob_of_unified(top), spinner(children)
    first = OwnGroups(top, knob, node, NoLedger())
    first.gather({A: only(pid), B: lambda: ()})
    first.hold(A)
    second = OwnGroups(top, knob, node, NoLedger())  # the first was killed
    assert (top / own_group(node, A) / knob.weight_file).read_text() == "100\n"
    assert not (top / own_group(node, B)).exists()
    assert not second.gather({A: only(pid)})
    second.close()
    assert place2(pid) == "/", "its slurmstepd does not tell where it was born"


def test_unified_group_without_its_controller_is_made_again(tmp_path: Path, children: Children) -> None:
    """A service manager may disable the controller; its files are then gone from a group that is there."""
    top = gang_yield.FakeCpu1(tmp_path / "cgroup").root
    (group := top / own_group("n1", A)).mkdir()

    def enable(text: str) -> None:
        for name in ("cgroup.procs", "cpu.weight", "cpu.idle"):
            (group / name).write_text(text)
        (top / "cgroup.subtree_control").write_text("")

    enable("")
    groups = OwnGroups(top, IDLE2, "n1", NoLedger())
    enable("")
    groups.gather({A: only()})
    assert (top / "cgroup.subtree_control").read_text() == "+cpu"
    (group / "cpu.idle").unlink()
    (group / "cpu.weight").unlink()
    groups._groups[A].fds["cpu.weight"] = fd = os.open("/proc/self/mem", os.O_RDONLY)
    with pytest.raises(OSError, match="Input/output"):  # as a file that the kernel has removed
        os.pread(fd, 1, 0)
    assert groups.gather({A: only()})
    assert not groups.gather({A: only()})
    assert "No such file" in groups.troubles()[A]
    enable("")
    groups.gather({A: only()})
    assert groups.hold(A).did is Did.WROTE
    assert (group / "cpu.idle").read_text() == "1"
    groups.close()


@pytest.mark.parametrize("top", [gang_yield.CPU1, gang_yield.UNIFIED], ids=["v1", "unified"])
def test_no_right_to_override_permissions_is_needed(top: Path | None, children: Children) -> None:
    """The kernel gives the top of a hierarchy to root, without the permission to write there."""
    if os.geteuid() != 0 or top is None or not (top / "cgroup.procs").exists():
        pytest.skip("needs root and that hierarchy")
    node, pid, mode = f"osubtest{os.getpid()}", spinner(children), top.stat().st_mode
    top.chmod(0o555)
    knob = gang_yield.knob_of_unified(top) if top == gang_yield.UNIFIED else IDLE1
    program = (
        "import pickle, sys; from pathlib import Path; from gangd.hold.own_groups import OwnGroups;"
        "from tests.fixtures.no_ledger import NoLedger;"
        "top, knob, node, job, pid = pickle.load(sys.stdin.buffer);"
        "groups = OwnGroups(top, knob, node, NoLedger()); groups.gather({job: lambda: (pid,)});"
        "print(groups.troubles())"
    )
    words = ["setpriv", "--bounding-set=-dac_override", sys.executable, "-c", program]
    try:
        given = pickle.dumps((top, knob, node, A, pid))
        assert subprocess.run(words, input=given, check=True, stdout=subprocess.PIPE).stdout == b"{}\n"
        assert str(pid) in (top / own_group(node, A) / "cgroup.procs").read_text().split()
    finally:
        top.chmod(mode & 0o777)
        children[0].kill()
        children[0].wait()
        gang_yield.remove_groups(top, node)


def test_only_names_of_our_own_kind_are_ours() -> None:
    assert job_of_own(own_group("n1", 5), "n1") == 5
    assert job_of_own(own_group("n1", 5), "n2") is None
    for name in ("gangd_n1_job_", "gangd_n1_job_5x", "x_gangd_n1_job_5", "slurm_n1"):
        assert job_of_own(name, "n1") is None
    for path in ("gangd_n1_job_5", "slurm_n1/uid_7/job_5", "slurm/uid_7"):
        assert IDLE1.allows(path)
    for path in ("gangd_n1_job_5", "system.slice/n1_slurmstepd.scope/job_5"):
        assert IDLE2.allows(path)
    for path in (
        "",
        "/",
        "..",
        "gangd_n1_job_5/..",
        "slurm_n1",
        "system.slice",
        "slurm_n1/uid_7/job_5/step_0",
    ):
        assert not IDLE1.allows(path)
        assert not IDLE2.allows(path)
