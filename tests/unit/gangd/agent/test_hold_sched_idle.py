from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangd.freezer.holder import Did
from gangd.guardian.guardian_watch import thaw_held
from gangd.guardian.statefile import StateFile
from gangd.hold import sched_idle
from gangd.hold.cpu_priority import may_return, policy_of, set_policy, threads
from gangd.hold.sched_idle import SchedIdle
from tests.fixtures.gang_yield import PIN, a_cpu, shares
from tests.fixtures.looks import until
from tests.fixtures.no_ledger import NoLedger

Children = list[subprocess.Popen[bytes]]
A = 7
THREADED = """
import threading, time, sys
def more():
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
more()
print(flush=True)
for line in sys.stdin:
    more()
    print(flush=True)
"""
FORKS = """
import os, sys, time
print(flush=True)
sys.stdin.readline()
child = os.fork()
if not child:
    time.sleep(1000)
print(child, flush=True)
sys.stdin.readline()
"""


def started(children: Children, program: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    children.append(child)
    line(child)
    return child


def line(child: subprocess.Popen[bytes]) -> bytes:
    assert child.stdout is not None
    return child.stdout.readline()


def say(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    child.stdin.write(b"\n")
    child.stdin.flush()


def policies(pid: int) -> set[int | None]:
    return {policy_of(tid) for tid in threads(f"/proc/{pid}/task")}


@pytest.fixture
def root_only() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may take SCHED_IDLE back")


pytestmark = pytest.mark.usefixtures("root_only")


def test_held_job_leaves_the_core_to_others_of_its_session(children: Children) -> None:
    held, owner = (started(children, PIN.format(cpu=a_cpu())).pid for _ in range(2))
    yielder = SchedIdle(NoLedger())
    yielder.gather({A: lambda: (held,)})
    assert yielder.hold(A).did is Did.WROTE
    assert yielder.hold(A).did is Did.NOTHING
    assert shares([held, owner], 20.0, 1_000_000_000)[0] < 0.1
    assert yielder.release(A).did is Did.WROTE
    assert policies(held) == {os.SCHED_OTHER}
    yielder.close()


def test_every_thread_yields_and_those_born_meanwhile_are_released_too(children: Children) -> None:
    child = started(children, THREADED)
    yielder = SchedIdle(NoLedger())
    yielder.gather({A: lambda: (child.pid,)})
    yielder.hold(A)
    say(child)
    line(child)
    assert len(list(threads(f"/proc/{child.pid}/task"))) == 3
    assert policies(child.pid) == {os.SCHED_IDLE}
    yielder.release(A)
    assert policies(child.pid) == {os.SCHED_OTHER}
    yielder.close()


def test_process_that_was_born_while_its_parent_yielded_is_released(children: Children) -> None:
    parent = started(children, FORKS)
    members = [parent.pid]
    yielder = SchedIdle(NoLedger())
    yielder.gather({A: lambda: tuple(members)})
    yielder.hold(A)
    say(parent)
    born = int(line(parent))
    yielder.release(A)  # it has not been seen yet
    assert policies(born) == {os.SCHED_IDLE}
    members.append(born)
    assert yielder.gather({A: lambda: tuple(members)})
    assert policies(born) == {os.SCHED_OTHER}
    yielder.close()
    os.kill(born, 9)


def test_what_a_user_chose_is_kept(children: Children) -> None:
    own, batch = started(children, THREADED), started(children, THREADED)
    for tid in threads(f"/proc/{own.pid}/task"):
        set_policy(tid, os.SCHED_IDLE)
    for tid in threads(f"/proc/{batch.pid}/task"):
        set_policy(tid, os.SCHED_BATCH)
        os.setpriority(os.PRIO_PROCESS, tid, 5)
    yielder = SchedIdle(NoLedger())
    yielder.gather({A: lambda: (own.pid, batch.pid)})
    yielder.hold(A)
    assert policies(batch.pid) == {os.SCHED_IDLE}
    yielder.release(A)
    assert policies(own.pid) == {os.SCHED_IDLE}
    assert policies(batch.pid) == {os.SCHED_BATCH}
    assert os.getpriority(os.PRIO_PROCESS, batch.pid) == 5
    yielder.close()


def test_real_time_process_is_left_alone(children: Children) -> None:
    child = started(children, THREADED)
    os.sched_setscheduler(child.pid, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    yielder = SchedIdle(NoLedger())
    yielder.gather({A: lambda: (child.pid,)})
    yielder.hold(A)
    assert os.SCHED_FIFO in policies(child.pid)
    assert os.SCHED_IDLE not in policies(child.pid)
    yielder.close()


def test_process_from_which_it_could_not_be_taken_back_is_left_alone(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = started(children, THREADED)
    assert not may_return(child.pid)  # the usual RLIMIT_NICE is 0
    monkeypatch.setattr(sched_idle, "has_cap_nice", lambda: False)
    yielder = SchedIdle(NoLedger())
    yielder.gather({A: lambda: (child.pid,)})
    yielder.hold(A)
    assert policies(child.pid) == {os.SCHED_OTHER}
    assert "RLIMIT_NICE" in yielder.troubles()[A]
    yielder.close()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateFile]:
    file = StateFile.create(tmp_path / "agent-a.state", "a", "/")
    yield file
    file.close()


def test_ledger_names_what_yields_and_the_guardian_gives_it_back(
    children: Children, state: StateFile
) -> None:
    parent = started(children, FORKS)
    yielder = SchedIdle(state)
    yielder.gather({A: lambda: (parent.pid,)})
    assert not list(state.held())
    yielder.hold(A)
    say(parent)
    born = int(line(parent))
    assert [held.pid for held in state.held()] == [parent.pid]
    revived = thaw_held(state)  # as after the agent was killed
    assert revived.jobs == {A}
    assert not revived.failures
    assert policies(parent.pid) == policies(born) == {os.SCHED_OTHER}
    os.kill(born, 9)


def test_reused_pid_is_left_alone(children: Children, state: StateFile) -> None:
    child = started(children, THREADED)
    for tid in threads(f"/proc/{child.pid}/task"):
        set_policy(tid, os.SCHED_IDLE)
    slot = state.claim_idle(child.pid, 1, A)  # another process had this pid
    assert slot is not None
    state.hold(slot)
    assert thaw_held(state).gone == 1
    assert policies(child.pid) == {os.SCHED_IDLE}


def test_switches_go_on_while_processes_are_gathered(children: Children) -> None:
    pids = tuple(started(children, THREADED).pid for _ in range(3))
    yielder = SchedIdle(NoLedger())
    stop = threading.Event()

    def switch() -> None:
        while not stop.is_set():
            yielder.hold(A)
            yielder.release(A)

    thread = threading.Thread(target=switch)
    thread.start()
    for _ in range(50):
        yielder.gather({A: lambda: pids})
        yielder.gather({})
    stop.set()
    thread.join()
    yielder.close()
    until(lambda: all(policies(pid) == {os.SCHED_OTHER} for pid in pids), what="priority of all")
