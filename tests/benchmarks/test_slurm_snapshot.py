"""What a look at many jobs costs: time, CPU of Slurm and of ours, and what other threads lose.

Run with ``scripts/test -m benchmark -s tests/benchmarks/test_slurm_snapshot.py``; prints, asserts nothing.
``OSUB_JOBS`` (1000,10000) says how many jobs. The C library's figures need a pyslurm (docs/slurm.md).
"""

from __future__ import annotations

import os
import resource
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from analysis.quantiles import quantiles
from deploy.local import LocalCluster, Shape
from deploy.local.host import find_program
from foundation.slurm import JobSnapshot, SlurmJobState
from foundation.slurm.command_slurm import CommandSlurm
from foundation.slurm.hosts import NodeBook
from foundation.slurm.job_sources import JsonSource, TextSource
from foundation.slurm.json_jobs import JsonReader
from foundation.slurm.pyslurm_library import is_installed
from foundation.slurm.subprocess_reader import ApartSlurm
from tests.fixtures.voice import say
from tests.integration.hostile import Hostile, Words

JOBS, LOOKS, TICK_S = 1_000, 20, 0.001

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.slurm,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_program("slurmctld") is None, reason="no Slurm on this host"),
]


@contextmanager
def ticking() -> Iterator[list[float]]:
    """Note in another thread how late each of its millisecond's ticks is, seconds."""
    late: list[float] = []
    over = threading.Event()

    def tick() -> None:
        due = time.monotonic()
        while not over.is_set():
            due += TICK_S
            time.sleep(max(0.0, due - time.monotonic()))
            late.append(time.monotonic() - due)
            due = max(due, time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield late
    finally:
        over.set()
        thread.join()


def cpu_ms(whose: int) -> float:
    used = resource.getrusage(whose)
    return 1000 * (used.ru_utime + used.ru_stime)


def measure(what: str, look: Callable[[], object]) -> None:
    look()
    theirs, walls = cpu_ms(resource.RUSAGE_CHILDREN), []
    with ticking() as late:
        for _ in range(LOOKS):
            began = time.monotonic()
            look()
            walls.append(1000 * (time.monotonic() - began))
    each = (cpu_ms(resource.RUSAGE_CHILDREN) - theirs) / LOOKS
    half, nearly_all, most = quantiles(late, (0.5, 0.99, 1.0))
    say(
        f"{what}: {statistics.median(walls):.1f} ms (most {max(walls):.1f}), commands {each:.1f} ms of CPU; "
        f"a thread that ticks each ms is late by {1000 * half:.2f} ms in the middle, "
        f"{1000 * nearly_all:.2f} ms at the 99th percentile, {1000 * most:.1f} ms at most"
    )


def test_a_look_at_a_thousand_jobs(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c")
    cluster.up(Shape(nodes=8, cores=8, virtual=True, multiplicity=4))
    try:
        slurm = Hostile(cluster)
        for number in range(JOBS):
            options = ("-n1",) if number < 200 else ("--hold", "-n1")
            slurm.submit(Words(name=b"job %d" % number, comment=b"a comment"), *options)
        client = CommandSlurm(slurm.conf)
        book = NodeBook(client.nodes)
        source = JsonSource(client._ask)
        say(f"{JOBS} jobs, 200 of them running; load {os.getloadavg()[0]:.1f}")
        measure("no look, for comparison", lambda: time.sleep(0.1))
        measure("a look while nothing changes", client.jobs)
        measure("all of JSON, most records as before", lambda: source.read(book))
        text = slurm.run("squeue", "--json").stdout.decode()

        def anew() -> None:
            reader = JsonReader()
            reader.open(text)
            reader.read(book.find)

        measure("decoding alone, every record anew", anew)
        plain = TextSource(client._ask, os.getuid())
        for _ in range(3):
            plain.read(book)
        measure("plain text", lambda: plain.read(book))
    finally:
        cluster.down()


COUNTS = tuple(int(number) for number in os.environ.get("OSUB_JOBS", "1000,10000").split(","))


def submit_held(slurm: Hostile, first: int, last: int) -> None:
    """Submit held jobs, by one shell: a record each."""
    slurm.run(
        *("sh", "-c"),
        f"i={first}; while [ $i -lt {last} ]; do "
        "sbatch --quiet --hold -n1 --job-name=job$i --comment='a comment' --wrap 'sleep 9' || exit 1; "
        "i=$((i+1)); done >/dev/null",
        timeout_s=600,
    )


def all_cpu_ms(*pids: int) -> float:
    """CPU time so far of this process, of the commands that it ran, and of other processes."""
    others = sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)  # as clock_getcpuclockid(3) has it
    return 1000 * (time.process_time() + others) + cpu_ms(resource.RUSAGE_CHILDREN)


def summary(took: dict[str, list[float]]) -> str:
    """Medians, and how many times as long plain text takes, turn by turn."""
    texts = took["plain text"]
    return ", ".join(
        f"{name} {statistics.median(some):.1f} ms (least {min(some):.1f}, text/it "
        f"{statistics.median(text / one for text, one in zip(texts, some, strict=True)):.1f})"
        for name, some in took.items()
    )


def test_sources_against_each_other(tmp_path: Path) -> None:
    """Held jobs and a few that run; looks of all sources by turns, so that a slow minute is everybody's."""
    cluster = LocalCluster(tmp_path / "c")
    cluster.up(Shape(nodes=8, cores=8, virtual=True, multiplicity=4))
    readers: list[ApartSlurm] = []
    try:
        slurm = Hostile(cluster)
        for _ in range(100):
            slurm.submit(Words(comment=b"a comment"), "-n1")
        client = CommandSlurm(slurm.conf)
        book = NodeBook(client.nodes)
        json, text = JsonSource(client._ask), TextSource(client._ask, os.getuid())
        looks: dict[str, Callable[[], JobSnapshot]] = {
            "JSON": lambda: json.read(book),
            "plain text": lambda: text.read(book),
        }
        if is_installed():
            readers.append(ApartSlurm(slurm.conf, source="pyslurm", alive_only=True))
            looks["pyslurm"] = readers[0].jobs
        pids = [daemon.pid for daemon in cluster.state().daemons if daemon.role == "slurmctld"]
        if readers:
            readers[0].jobs()
            assert readers[0]._process is not None
            pids.append(readers[0]._process.pid)
        have = 100
        for count in COUNTS:
            submit_held(slurm, have, count)
            have = count
            one = next(job.job_id for job in text.read(book).jobs if job.state is SlurmJobState.RUNNING)
            for change in (False, True):  # within a second of a change Slurm tells all jobs again
                walls: dict[str, list[float]] = {name: [] for name in looks}
                spent: dict[str, list[float]] = {name: [] for name in looks}
                for turn in range(2 + 10):
                    for name, look in looks.items():
                        if change:
                            slurm.run("scontrol", "update", f"JobId={one}", f"Comment=turn {turn}")
                        began, began_ms = time.monotonic(), all_cpu_ms(*pids)
                        found = look()
                        if turn >= 2:
                            walls[name].append(1000 * (time.monotonic() - began))
                            spent[name].append(all_cpu_ms(*pids) - began_ms)
                        assert len(found.jobs) == count, name
                        if change and name == "pyslurm":
                            said = {job.comment for job in found.jobs if job.job_id == one}
                            assert said == {f"turn {turn}"}, name
                what = "a job changes before each look" if change else "nothing changes"
                say(f"{count} jobs, {what}, load {os.getloadavg()[0]:.1f}: {summary(walls)}")
                say(f"of CPU, with slurmctld's: {summary(spent)}")
    finally:
        for reader in readers:
            reader.close()
        cluster.down()


@pytest.mark.skipif(not is_installed(), reason="no pyslurm here")
def test_looks_of_gangd_while_a_job_changes_now_and_then(tmp_path: Path) -> None:
    """A look a second by the C library, as gangd's; before every fifth a job has changed."""
    cluster = LocalCluster(tmp_path / "c")
    cluster.up(Shape(nodes=8, cores=8, virtual=True, multiplicity=4))
    slurm = Hostile(cluster)
    reader = ApartSlurm(slurm.conf, source="pyslurm", alive_only=True)
    try:
        for _ in range(100):
            slurm.submit(Words(comment=b"a comment"), "-n1")
        submit_held(slurm, 100, COUNTS[0])
        one = next(job.job_id for job in reader.jobs().jobs if job.state is SlurmJobState.RUNNING)
        assert reader._process is not None
        pids = [daemon.pid for daemon in cluster.state().daemons if daemon.role == "slurmctld"]
        pids.append(reader._process.pid)
        spent: list[float] = []
        for turn in range(40):
            if turn % 5 == 0:
                slurm.run("scontrol", "update", f"JobId={one}", f"Comment=turn {turn}")
            time.sleep(1.0)
            began_ms = all_cpu_ms(*pids)
            found = reader.jobs()
            spent.append(all_cpu_ms(*pids) - began_ms)
            assert {job.comment for job in found.jobs if job.job_id == one} == {f"turn {turn - turn % 5}"}
        looks = ", ".join(f"{statistics.median(spent[place::5]):.1f}" for place in range(5))
        say(
            f"{COUNTS[0]} jobs, a look a second, load {os.getloadavg()[0]:.1f}: five looks, of which "
            f"the first sees a change: {sum(spent) / 8:.1f} ms of CPU, with slurmctld's (medians {looks})"
        )
    finally:
        reader.close()
        cluster.down()
