"""What a look at a thousand jobs costs: time, CPU of Slurm's command, and what other threads lose.

Run with ``scripts/test -m benchmark -s tests/benchmarks/test_slurm_snapshot.py``; prints, asserts nothing.
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

from deploy.local import LocalCluster, Shape
from deploy.local.host import find_program
from osub.slurm.command import CommandSlurm
from osub.slurm.json_jobs import JsonReader
from osub.slurm.nodebook import NodeBook
from osub.slurm.sources import JsonSource, TextSource
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
    late.sort()
    say(
        f"{what}: {statistics.median(walls):.1f} ms (most {max(walls):.1f}), commands {each:.1f} ms of CPU; "
        f"a thread that ticks each ms is late by {1000 * late[len(late) // 2]:.2f} ms in the middle, "
        f"{1000 * late[-len(late) // 100]:.2f} ms at the 99th percentile, {1000 * late[-1]:.1f} ms at most"
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
