"""Memory of a node and its jobs as the kernel's files tell it, and what is paged out and in, and when."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from foundation.errors import HostError
from gangd.agent import memory_process
from gangd.agent.memory_process import (
    AHEAD_NS,
    CHUNK,
    SOON_NS,
    MeasuredMemory,
    MemoryProcess,
    MemoryReader,
    MemoryTask,
    Pager,
)

MIB = 1 << 20


class Host:
    """A host's /proc and memory cgroups in a folder."""

    def __init__(self, folder: Path, *, v1: bool) -> None:
        self.proc, self.cgroups, self.v1 = folder / "proc", folder / "cgroup", v1
        self.root = self.cgroups / "memory" if v1 else self.cgroups
        self.root.mkdir(parents=True)
        self.write(self.proc / "meminfo", "MemTotal: 8000 kB\nMemAvailable: 4000 kB\nSwapFree: 0 kB\n")
        self.process("self", "/agent")

    def write(self, path: Path, text: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def process(self, pid: int | str, cgroup: str, pss_kib: int | None = None, rss_kib: int = 0) -> None:
        lines = f"4:cpu:/\n9:memory:{cgroup}\n0::/" if self.v1 else f"0::{cgroup}"
        self.write(self.proc / str(pid) / "cgroup", lines)
        self.write(self.proc / str(pid) / "status", f"Name:\tx\nVmRSS:\t {rss_kib} kB")
        if pss_kib is not None:
            self.write(self.proc / str(pid) / "smaps_rollup", f"a-b ---p 0 0:0 0 [rollup]\nPss: {pss_kib} kB")

    def group(self, path: str, limit: object, usage: int, peak: int, cache: int, idle: int) -> None:
        names = ("limit_in_bytes", "usage_in_bytes", "max_usage_in_bytes") if self.v1 else ()
        folder = self.root / path.strip("/")
        for name, value in zip(names or ("max", "current", "peak"), (limit, usage, peak), strict=True):
            self.write(folder / f"memory.{name}", value)
        words = ("total_cache", "total_inactive_file") if self.v1 else ("file", "inactive_file")
        self.write(folder / "memory.stat", f"{words[0]} {cache}\n{words[1]} {idle}")

    def reader(self) -> MemoryReader:
        return MemoryReader(self.proc, self.cgroups)


@pytest.fixture(params=(True, False), ids=("v1", "v2"))
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    return Host(tmp_path, v1=request.param)


def test_a_job_without_a_cgroup_has_the_shares_of_its_processes(host: Host) -> None:
    host.process(7, "/agent", pss_kib=300, rss_kib=900)
    host.process(8, "/agent", rss_kib=50)
    reader = host.reader()
    assert reader.measure({5: (7, 8, 99)}).jobs == ((5, 350, 350),)
    host.process(7, "/agent", pss_kib=100)
    assert reader.measure({5: (7, 8)}).jobs == ((5, 150, 350),), "the peak stays"
    assert reader.measure({}).jobs == ()
    assert reader.measure({5: (7,)}).jobs == ((5, 100, 100),), "a job that is gone is forgotten"


def test_a_job_in_a_cgroup_of_slurms_has_what_cannot_be_dropped(host: Host) -> None:
    host.process(7, "/slurm/uid_0/job_5/step_0", pss_kib=1)
    host.group("/slurm/uid_0/job_5", 1 << 62, 100 * MIB, 400 * MIB, 60 * MIB, 30 * MIB)
    reader = host.reader()
    assert reader.measure({5: (7,)}).jobs == ((5, 70 * 1024, 340 * 1024),)
    host.process(7, "/slurm/uid_0/job_6/step_0", pss_kib=1)
    assert reader.measure({5: (7,)}).jobs[0][1] == 1, "not by the folder of another job"


def test_what_the_cgroups_above_jobs_leave_counts_where_it_is_less(host: Host) -> None:
    assert host.reader().measure({}).available == 4000
    host.group("/agent", 10 * MIB, 9 * MIB, 0, 0, MIB)
    assert host.reader().measure({}).available == 2048
    host.process(7, "/slurm/uid_0/job_5/step_0")
    host.group("/slurm/uid_0/job_5", MIB, MIB, MIB, 0, 0)  # the job's own limit is no other job's
    host.group("/slurm", 5 * MIB, 4 * MIB, 0, 0, 0)
    assert host.reader().measure({5: (7,)}).available == 1024


def test_what_is_unlimited_or_unreadable_bounds_nothing(host: Host) -> None:
    host.group("/agent", "max", 9 * MIB, 0, 0, 0)
    assert host.reader().measure({}).available == 4000
    host.group("/agent", (1 << 63) - 4096, 9 * MIB, 0, 0, 0)
    assert host.reader().measure({}).available == 4000


def test_time_that_tasks_waited_for_memory_is_told_where_the_kernel_does(host: Host) -> None:
    assert host.reader().measure({})[1:3] == (None, 0)
    host.write(
        host.proc / "pressure" / "memory",
        "some avg10=12.50 avg60=1.00 avg300=0.00 total=777\nfull avg10=50.00 avg60=0 avg300=0 total=9",
    )
    assert host.reader().measure({})[1:3] == (0.125, 777)


def test_swap_counts_as_it_was_measured_last(host: Host) -> None:
    reader = host.reader()
    reader.measure({})
    assert not reader.has_swap
    host.write(host.proc / "meminfo", f"MemAvailable: 4000 kB\nSwapFree: {CHUNK // 1024 + 1} kB")
    assert not reader.has_swap, "nothing is read between two rounds"
    reader.measure({})
    assert reader.has_swap


def test_only_memory_that_swap_can_take_is_paged(host: Host) -> None:
    lines = (
        "00400000-00401000 r-xp 00000000 08:01 55 /bin/x",
        "00600000-00700000 rw-p 00000000 00:00 0  [heap]",
        "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 ",
        "7f1000000000-7f1000200000 rw-p 00000000 08:01 55 /lib/y",
        "7f2000000000-7f2000200000 rw-s 00000000 00:05 9 /dev/shm/z",
        "7f3000000000-7f3000200000 ---p 00000000 00:00 0 ",
    )
    host.write(host.proc / "7" / "maps", "\n".join(lines))
    assert host.reader().regions(7) == [(0x600000, 0x700000), (0x7F0000000000, 0x7F0000200000)]


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Process and advice of each call."""
    said: list[tuple[int, int]] = []

    def advise(pid: int, _begin: int, _size: int, advice: int) -> bool:
        said.append((pid, advice))
        return True

    monkeypatch.setattr(memory_process, "_advise", advise)
    return said


@pytest.fixture
def pager(host: Host) -> Pager:
    for pid in (7, 8):
        host.write(host.proc / str(pid) / "maps", f"0-{2 * CHUNK:x} rw-p 00000000 00:00 0 ")
    return Pager(host.reader())


PIDS = {1: (7,), 2: (8,)}


def test_frozen_jobs_are_paged_out_while_memory_is_short(
    pager: Pager, advised: list[tuple[int, int]]
) -> None:
    task = MemoryTask(PIDS, frozenset({2}), reclaim_kib=1000)
    assert pager.due(task, 1000, 0) is None, "there is as much as there is to be"
    assert pager.due(task._replace(reclaim_kib=0), 0, 0) is None, "it was not asked for"
    while (job := pager.due(task, 999, 0)) is not None:
        pager.page(job, task, 0)
    assert advised == [(8, 21), (8, 21)], "each piece once, and the job that runs not at all"
    assert pager.paged_kib == 2 * CHUNK // 1024


def test_a_job_that_runs_soon_is_left_and_read_in_before(
    pager: Pager, advised: list[tuple[int, int]]
) -> None:
    later = 10 * SOON_NS
    task = MemoryTask(PIDS, frozenset({2}), frozenset({2}), later, SOON_NS, 1000)
    assert pager.due(task, 0, later - SOON_NS) is None
    assert pager.due(task, 0, later - 2 * SOON_NS) == 2
    pager.page(2, task, later - 2 * SOON_NS)
    pager.page(2, task, later - 2 * SOON_NS)
    assert pager.due(task, 10**9, later - AHEAD_NS - 1) is None
    while (job := pager.due(task, 10**9, later - AHEAD_NS)) is not None:
        pager.page(job, task, later - AHEAD_NS)
    assert advised == [(8, 21), (8, 21), (8, 3), (8, 3)]
    assert pager.due(task._replace(lasts_ns=AHEAD_NS - 1), 0, later - 1) is None, "a slice too short for it"


def test_a_job_that_ran_is_paged_out_anew(pager: Pager, advised: list[tuple[int, int]]) -> None:
    task = MemoryTask(PIDS, frozenset({2}), reclaim_kib=1000)
    for _ in range(2):
        while (job := pager.due(task, 0, 0)) is not None:
            pager.page(job, task, 0)
        assert pager.due(task._replace(frozen=frozenset()), 0, 0) is None
    assert len(advised) == 4


@pytest.fixture
def measuring() -> Iterator[MemoryProcess]:
    one = MemoryProcess()
    try:
        yield one
    finally:
        one.close()


def _wait(one: MemoryProcess, what: object = None) -> MeasuredMemory:
    until_s = time.monotonic() + 20
    while time.monotonic() < until_s:
        found = one.take()
        if found is not None and (what is None or [job for job, _, _ in found.jobs] == what):
            return found
        time.sleep(0.02)
    raise AssertionError("nothing was measured")


def test_the_process_measures_a_real_process(measuring: MemoryProcess) -> None:
    held = mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, 64 * MIB, 4096):
        held[at] = 1
    measuring.tell(MemoryTask({5: (os.getpid(),)}))
    found = _wait(measuring, [5])
    assert found.available > 0
    assert found.jobs[0][1] > 64 * 1024
    held.close()


def test_the_process_ends_with_its_pipe_and_its_death_is_noticed(measuring: MemoryProcess) -> None:
    _wait(measuring)
    measuring._child.kill()
    os.waitid(os.P_PID, measuring._child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(HostError):
        _wait(measuring, [-1])


def test_memory_of_another_process_goes_to_swap_and_comes_back() -> None:
    swap = [line.split() for line in Path("/proc/swaps").read_text().splitlines()[1:]]
    if os.geteuid() != 0 or sum(int(line[2]) - int(line[3]) for line in swap) < 64 * 1024:
        pytest.skip("paging out needs root and 64 MiB of free swap: swapon FILE")
    code = (
        "import sys; a = bytearray(b'x' * (32 << 20)); print(1, flush=True); "
        "sys.stdin.read(); print(sum(a) % 97)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        pager, task = (
            Pager(MemoryReader()),
            MemoryTask({1: (child.pid,)}, frozenset({1}), reclaim_kib=1 << 40),
        )
        while (job := pager.due(task, 0, 0)) is not None:
            pager.page(job, task, 0)
        status = Path(f"/proc/{child.pid}/status").read_text()
        [swapped] = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmSwap")]
        assert swapped > 24 << 10
        out, _ = child.communicate("")
        assert int(out) == (32 << 20) * ord("x") % 97
    finally:
        child.kill()
        child.wait()
