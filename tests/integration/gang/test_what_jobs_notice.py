"""What a program notices of being held: peers, locks, wall clocks; and the way out for those that mind."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

import pytest

from foundation.slurm import SlurmJobState
from tests.fixtures.looks import until
from tests.integration.gang.frozen import is_frozen, processes_of
from tests.integration.gang.stage import SPIN, Stage

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

# Two peers that give each other up when nothing comes for 4 s; the keepalive of their socket gives up at 3 s.
PEERS = """
import os, socket, sys, time
from pathlib import Path
place, heard = Path(sys.argv[1]), 0
if os.environ["SLURM_PROCID"] == "0":
    server = socket.create_server(("127.0.0.1", 0))
    Path(f"{place}.partial").write_text(str(server.getsockname()[1]))
    Path(f"{place}.partial").rename(place)
    link = server.accept()[0]
else:
    while not place.exists():
        time.sleep(0.05)
    link = socket.create_connection(("127.0.0.1", int(place.read_text())))
link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
    link.setsockopt(socket.IPPROTO_TCP, option, 1)
link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
link.settimeout(4.0)
end = time.monotonic() + 6
while time.monotonic() < end:
    link.sendall(b"x")
    busy = time.monotonic() + 0.05
    while time.monotonic() < busy:
        pass
    if not link.recv(1):
        break  # the peer is done
link.shutdown(socket.SHUT_WR)
while link.recv(4096):
    pass
"""
# Takes a lock five times, works while it has it, and writes down the longest wait for it.
LOCKER = """
import fcntl, sys, time
longest = 0.0
with open(sys.argv[1], "w") as lock:
    for _ in range(5):
        asked = time.monotonic()
        fcntl.flock(lock, fcntl.LOCK_EX)
        longest = max(longest, time.monotonic() - asked)
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass
        fcntl.flock(lock, fcntl.LOCK_UN)
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
open(sys.argv[2], "w").write(str(longest))
"""


def test_peers_with_short_patience_stay_connected(stage: Stage, tmp_path: Path) -> None:
    stage.set_quantum(1000)
    (program := tmp_path / "peers.py").write_text(PEERS)
    job = stage.start(f"exec srun -n2 {sys.executable} {program} {tmp_path / 'port'}", *stage.nodes)
    stage.start(f"exec srun -n2 sh -c '{SPIN}'", *stage.nodes)
    stage.wait_state(job, "busy")
    stage.wait_frozen(*processes_of(job, stage.nodes[0]))
    assert stage.finish(job, within_s=60) == [SlurmJobState.COMPLETED]


def test_lock_is_waited_for_no_longer_than_a_freeze_may_last(stage: Stage, tmp_path: Path) -> None:
    stage.set_quantum(250)
    program, node = tmp_path / "locker.py", stage.nodes[0]
    program.write_text(LOCKER)
    waits = [tmp_path / "wait1", tmp_path / "wait2"]
    jobs = [
        stage.submit(f"exec {sys.executable} {program} {tmp_path / 'lock'} {wait}", node) for wait in waits
    ]
    assert stage.finish(*jobs, within_s=90) == [SlurmJobState.COMPLETED] * 2
    assert max(float(wait.read_text()) for wait in waits) < 10, "the cap of 5 s, and the time to get a core"


def test_job_that_opts_out_is_never_held_and_the_other_is_not_held_for_it(stage: Stage) -> None:
    with (stage.layout.gang / "gangd.toml").open("a") as file:
        file.write(f"[users.{getpass.getuser()}]\nmay_opt_out = true\n")
    stage.set_quantum(240)  # another one, so that the configuration is read anew
    node = stage.nodes[0]
    free = stage.start(SPIN, node, options=("--comment", "gangd=off"))
    rival = stage.start(SPIN, node)
    stage.wait_state(free, "free")
    stage.wait_state(rival, "busy")
    both = [*processes_of(free, node), *processes_of(rival, node)]
    begin = stage.status().slice
    seen: list[bool] = []

    def later() -> bool:
        seen.append(any(is_frozen(pid) for pid in both))
        return stage.status().slice >= begin + 12

    until(later, 60, "twelve slices pass")
    assert not any(seen)


def test_timeout_counts_the_time_in_which_its_job_is_held(stage: Stage, tmp_path: Path) -> None:
    """As docs/host-preconditions.md says: wall clocks go on, so what runs under one gets less done."""
    stage.set_quantum(500)
    node, code, used = stage.nodes[0], tmp_path / "code", tmp_path / "used"
    stage.start(SPIN, node)
    job = stage.start(f"timeout 5 sh -c '{SPIN}'; echo $? > {code}; times > {used}", node)
    stage.wait_frozen(*processes_of(job, node))
    assert stage.finish(job, within_s=60) == [SlurmJobState.COMPLETED]
    assert code.read_text().strip() == "124"
    minutes, seconds = used.read_text().splitlines()[1].split()[0].rstrip("s").split("m")
    assert 60 * float(minutes) + float(seconds) < 4.5
