"""`down` on a real Slurm: it removes what `up` made, whatever was killed, and nothing else."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.local import LocalCluster, Shape
from deploy.local.down import cluster_cgroups
from deploy.local.layout import names_of
from foundation.errors import ClusterError, InputError, OutputError
from tests.fixtures.exchange import osub
from tests.fixtures.looks import until
from tests.fixtures.marked import marked_processes
from tests.fixtures.tier import choose
from tests.integration.conftest import empty_folder

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

SHAPE = Shape(nodes=1, cores=1, virtual=True)
WORDS = ["--nodes", "1", "--cores", "1", "--virtual"]
OSUB = [sys.executable, "-P", "-m", "osub.cli.main", "cluster"]
BAD = Shape(nodes=1, cores=1, virtual=True, settings=("SelectType=select/nonsense",))


@pytest.fixture
def place() -> Iterator[Path]:
    with empty_folder() as folder:
        yield folder


def left_of(home: Path) -> list[str]:
    """Return what is left on the host of the cluster that was in a folder."""
    names = names_of(home)
    found = [f"{process.pid} {process.name()}" for process in marked_processes(names.cluster)]
    return found + [str(path) for path in (*cluster_cgroups(names.letters), home) if path.exists()]


def test_a_run_in_the_clusters_folder_outlives_it_and_a_failed_up(place: Path) -> None:
    cluster = LocalCluster(place / "c")
    cluster.up(SHAPE)
    for name in ("run1", "log/run2", "run/run3"):
        (place / "c" / name).mkdir()
        (place / "c" / name / "run.json").write_text("{}")
    assert cluster.down().left == ("log/run2", "run/run3", "run1")
    with pytest.raises(ClusterError, match="ended at once"):
        cluster.up(BAD)
    for name in ("run1", "log/run2", "run/run3"):
        assert (place / "c" / name / "run.json").exists()
        (place / "c" / name / "run.json").unlink()
        (place / "c" / name).rmdir()
    assert cluster.down().left == ()
    assert not (place / "c").exists()


def test_a_key_that_slurm_does_not_know_is_named_and_nothing_of_the_try_stays(place: Path) -> None:
    said = osub("cluster", "up", "--state", place / "c", *WORDS, "--set", "Foo=bar")
    assert (said.code, said.out) == (1, "")
    assert "unrecognized key: Foo" in said.err
    assert said.err.count("\n") == 1
    assert osub("cluster", "down", "--state", place / "c").code == 0
    assert left_of(place / "c") == []


def test_a_failed_up_keeps_its_logs_until_the_next_one(place: Path) -> None:
    cluster = LocalCluster(place / "c")
    with pytest.raises(ClusterError, match="ended at once"):
        cluster.up(BAD)
    assert (place / "c" / "log" / "slurmctld.out").exists()
    cluster.up(SHAPE)
    assert cluster.status().is_whole
    assert cluster.down(keep_logs=True).left == ()
    assert sorted(entry.name for entry in (place / "c").iterdir()) == [".osub-cluster", "log"]
    ended = cluster.down()
    assert (ended.existed, ended.remains) == (False, True)
    assert left_of(place / "c") == []


def test_down_removes_what_a_failed_up_left_and_says_so(place: Path) -> None:
    cluster = LocalCluster(place / "c")
    with pytest.raises(ClusterError, match="ended at once"):
        cluster.up(BAD)
    first, again = (osub("cluster", "down", "--state", place / "c") for _ in range(2))
    assert (first.code, again.code) == (0, 0)
    assert "what an earlier one left there" in first.out
    assert again.out == f"no cluster in {place / 'c'}\n"
    assert left_of(place / "c") == []


def test_a_forged_state_sends_down_nowhere(place: Path) -> None:
    """Every word of ``cluster.json`` may be wrong, with the right owner too: `down` still knows its own."""
    cluster = LocalCluster(place / "c")
    cluster.up(SHAPE)
    precious = place / "precious"
    (precious / "log").mkdir(parents=True)
    (precious / "log" / "x.log").touch()
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        file = place / "c" / "cluster.json"
        state = json.loads(file.read_text())
        ticks = int(Path(f"/proc/{bystander.pid}/stat").read_text().rpartition(")")[2].split()[19])
        state["daemons"] = [{"role": "slurmctld", "pid": bystander.pid, "start_ticks": ticks}]
        file.write_text(json.dumps(state))
        forged = state | {"layout": state["layout"] | {"state": str(precious), "short": str(precious)}}
        file.write_text(json.dumps(forged))
        with pytest.raises(InputError, match="move it back"):
            cluster.status()
        other = state | {"layout": state["layout"] | {"cluster_name": "osub-other"}}
        file.write_text(json.dumps(other))
        with pytest.raises(InputError, match="names that are not"):
            cluster.status()
        assert cluster.down().existed
        assert bystander.poll() is None
        assert (precious / "log" / "x.log").exists()
        assert left_of(place / "c") == []
    finally:
        bystander.kill()
        bystander.wait()
        (precious / "log" / "x.log").unlink()
        (precious / "log").rmdir()
        precious.rmdir()


def test_a_cluster_whose_state_was_damaged_can_be_taken_down(place: Path) -> None:
    cluster = LocalCluster(place / "c")
    cluster.up(SHAPE)
    (place / "c" / "cluster.json").write_text("rubbish")
    with pytest.raises(InputError, match="edited"):
        cluster.status()
    assert cluster.down().existed
    assert left_of(place / "c") == []


def test_up_goes_on_where_a_killed_one_stopped(place: Path) -> None:
    """It was killed when some daemons ran, of which the last is not listed yet; none is started twice."""
    cluster = LocalCluster(place / "c")
    cluster.up(SHAPE)
    file = place / "c" / "cluster.json"
    state = json.loads(file.read_text())
    known = {daemon["role"]: daemon["pid"] for daemon in state["daemons"]}
    file.write_text(json.dumps(state | {"daemons": []}))
    again = cluster.up(SHAPE)
    assert {daemon.role: daemon.pid for daemon in again.daemons} == known
    cluster.down()
    assert left_of(place / "c") == []


def test_whatever_is_killed_down_leaves_nothing(place: Path) -> None:
    """`up` and `down` are killed at instants of chance, over and over; then one `down` that is not."""
    dice = random.Random(7)
    home = place / "c"
    long_s = 4.0
    for _ in range(choose(1, 2, 40)):
        for verb, words in (("up", WORDS), ("down", [])) * dice.randint(1, 2):
            command = [*OSUB, verb, "--state", str(home), *words]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            deadline_s = time.monotonic() + dice.uniform(0.2, long_s if verb == "up" else 1.5)
            while process.poll() is None and time.monotonic() < deadline_s:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
        LocalCluster(home).down()
        if home.exists():
            home.rmdir()  # killed before the folder was marked, or after its mark was gone
        assert left_of(home) == []


@pytest.fixture
def small_disk(place: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    (disk := place / "disk").mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "none", str(disk)], check=False)
    if done.returncode != 0:
        disk.rmdir()
        pytest.skip("this host does not allow mounting a small file system")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)
    disk.rmdir()


def fill(disk: Path) -> Path:
    """Write a file until the file system is full; return it."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream, suppress(OSError):
        while True:
            stream.write(b"x" * 512)
    assert shutil.disk_usage(disk).free == 0
    return filler


def test_a_full_disk_is_reported_and_nothing_is_left(small_disk: Path) -> None:
    filler = fill(small_disk)
    with pytest.raises(OutputError, match="No space left on device"):
        LocalCluster(small_disk / "c").up(SHAPE)
    assert sorted(entry.name for entry in small_disk.iterdir()) == ["filler"]
    filler.unlink()


def test_a_disk_that_fills_up_meanwhile_can_be_taken_down(small_disk: Path) -> None:
    cluster = LocalCluster(small_disk / "c")
    try:
        cluster.up(SHAPE)
    except (ClusterError, OutputError):
        assert left_of(small_disk / "c") in ([], [str(small_disk / "c")])
    filler = fill(small_disk)
    cluster.down()
    assert left_of(small_disk / "c") == []
    filler.unlink()


def test_a_disk_that_cannot_be_written_is_reported(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(OutputError, match="Read-only file system"):
        LocalCluster(small_disk / "c").up(SHAPE)


def test_a_path_too_long_for_sockets_is_no_obstacle(place: Path) -> None:
    home = place / ("long" * 30) / "c"
    cluster = LocalCluster(home)
    cluster.up(SHAPE)
    short = Path(cluster.state().layout.short)
    assert short.is_dir()
    assert cluster.status().is_whole
    until(lambda: (short / "spool").exists(), 60, "the spool is there")
    cluster.down()
    assert left_of(home) == []
    assert not short.exists()
    home.parent.rmdir()
