"""A cluster's home: what is marked as ours, what is removed, and that nothing else ever is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local import LocalCluster
from deploy.local.belongings import FolderName
from deploy.local.home import Home, take_home
from foundation.errors import ClusterError, OutputError, TrustError
from tests.fixtures.tier import choose

ALL: tuple[FolderName, ...] = ("log", "run", "spool", "slurmctld", "scratch", "gang")
MARK = ".osub-cluster"
OTHER = 61_234


@contextmanager
def furnished(path: Path) -> Iterator[Home]:
    """Make a home with something in it, and give it."""
    with take_home(path, create=True) as home:
        assert home is not None
        home.furnish(ALL, 0o755)
        for name in ("cluster.json", "slurm.conf"):
            home.write(name, "x")
        (home.short / "run" / "munge.sock").touch()
        (home.path / "log" / "slurmd.log").touch()
        (home.path / "slurmctld" / "hash.1" / "job.1").mkdir(parents=True)
        yield home


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a short path, in which a home needs no stand-in."""
    with tempfile.TemporaryDirectory(prefix="h-") as folder:
        yield Path(folder)


def clear(path: Path) -> list[str]:
    """Do as `down`; return what is left."""
    with take_home(path) as home:
        if home is None:
            return []
        home.empty()
        return home.leave()


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_a_home_comes_and_goes(place: Path) -> None:
    path = place / "a" / "c"
    with furnished(path):
        assert names(path) == sorted([MARK, "cluster.json", "slurm.conf", *ALL])
        assert path.stat().st_mode & 0o777 == 0o700
        assert (path / "run").stat().st_mode & 0o777 == 0o755
        assert (path / "slurmctld").stat().st_mode & 0o777 == 0o700
    assert clear(path) == []
    assert not path.exists()
    assert clear(path) == []


def test_a_signal_ends_a_command_when_its_cluster_is_gone(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come in the middle, as from a user who presses Ctrl-C twice."""
    emptied = Home.empty

    def empty(home: Home, *kept: object) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        emptied(home, *kept)  # type: ignore[arg-type]

    path = place / "c"
    with furnished(path):
        pass
    monkeypatch.setattr(Home, "empty", empty)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            LocalCluster(path).down()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not path.exists()


def test_a_folder_that_was_there_stays(place: Path) -> None:
    (path := place / "c").mkdir()
    with furnished(path):
        pass
    assert clear(path) == []
    assert names(path) == []


@pytest.mark.parametrize("name", ["log", "slurm.conf", "run1", "cluster.json", "lost+found"])
def test_a_folder_that_holds_anything_is_no_home(place: Path, name: str) -> None:
    (place / name).mkdir()
    (place / name / "run.json").write_text("{}")
    with pytest.raises(ClusterError, match="not ours"), take_home(place, create=True):
        pass
    assert clear(place) == []
    assert names(place) == [name]
    assert (place / name / "run.json").exists()


def test_what_others_put_into_a_home_stays_and_so_does_its_mark(place: Path) -> None:
    path = place / "c"
    with furnished(path):
        (path / "run1").mkdir()
        (path / "run1" / "run.json").write_text("{}")
        (path / "log" / "notes.txt").touch()
        (path / "run" / "run2").mkdir()
        (path / "gang" / "run3").mkdir()
        (path / "spool" / "run4").mkdir()
    left = ["gang/run3", "log/notes.txt", "run/run2", "run1", "spool/run4"]
    assert clear(path) == left
    assert clear(path) == left
    assert names(path) == [MARK, "gang", "log", "run", "run1", "spool"]
    assert names(path / "log") == ["notes.txt"]
    # The mark is still there, so the folder may have another cluster, which replaces no other.
    with take_home(path, create=True) as home:
        assert home is not None
        home.empty()
        home.furnish(ALL, 0o755)
    assert clear(path) == left


def test_a_stranger_at_the_place_of_something_of_ours_is_in_the_way_and_stays(place: Path) -> None:
    path = place / "c"
    with furnished(path):
        (path / "run1").mkdir()
    clear(path)
    (path / "slurmctld").mkdir()
    (path / "slurmctld" / "run.json").touch()
    with take_home(path, create=True) as home:
        assert home is not None
        with pytest.raises(ClusterError, match=r"slurmctld, which .* did not make"):
            home.furnish(ALL, 0o755)
    clear(path)
    assert (path / "slurmctld" / "run.json").exists()


def test_another_folder_under_the_name_of_ours_stays(place: Path) -> None:
    path = place / "c"
    with furnished(path):
        (path / "slurmctld").rename(place / "moved")
        (path / "slurmctld").mkdir()
        (path / "slurmctld" / "run.json").touch()
    assert clear(path) == ["slurmctld/run.json"]
    assert (path / "slurmctld" / "run.json").exists()
    assert (place / "moved" / "hash.1").exists()


def test_links_in_the_place_of_ours_are_not_followed(place: Path) -> None:
    (precious := place / "precious").mkdir()
    (precious / "slurmd.log").touch()
    path = place / "c"
    with furnished(path):
        (path / "log").rename(place / "moved")
        (path / "log").symlink_to(precious)
        (path / "slurmctld" / "hash.2").symlink_to(precious)
        (path / "slurm.conf").unlink()
        (path / "slurm.conf").symlink_to(precious / "slurmd.log")
    assert clear(path) == ["log"]
    assert names(precious) == ["slurmd.log"]


def test_a_forged_list_names_nothing_outside(place: Path) -> None:
    path = place / "c"
    (place / "precious").mkdir()
    with furnished(path):
        pass
    mark = path / MARK
    good = mark.read_text()
    for evil in ("../precious", "/etc", "home"):
        mark.write_text(good.replace('"name":"log"', f'"name":"{evil}"'))
        with pytest.raises(ClusterError, match="edited"):
            clear(path)
        mark.write_text(good.replace('"files":["cluster.json"', f'"files":["{evil}"'))
        with pytest.raises(ClusterError, match="edited"):
            clear(path)
    mark.write_text(good.replace(f'"path":"{path}"', f'"path":"{place}"'))
    with pytest.raises(ClusterError, match="move it back"):
        clear(path)
    short = json.dumps({"path": str(place / "precious"), "home": str(path), "identity": None})
    mark.write_text(good.replace('"short":null', f'"short":{short}'))
    assert clear(path) == ["run/munge.sock", "spool"]
    assert (place / "precious").exists()


def test_a_home_that_was_moved_is_reported(place: Path) -> None:
    with furnished(place / "c"):
        pass
    (place / "c").rename(place / "d")
    with pytest.raises(ClusterError, match=r"made in .*/c: move it back"):
        clear(place / "d")
    (place / "d").rename(place / "c")
    assert clear(place / "c") == []


def test_one_at_a_time(place: Path) -> None:
    with furnished(place / "c"):
        for create in (True, False):
            with pytest.raises(ClusterError, match="another"), take_home(place / "c", create=create):
                pass


def test_a_link_is_no_home(place: Path) -> None:
    (place / "real").mkdir()
    (place / "c").symlink_to(place / "real")
    for create in (True, False):
        with pytest.raises(TrustError, match="is a link"), take_home(place / "c", create=create):
            pass
    assert names(place / "real") == []


def test_a_file_is_no_home(place: Path) -> None:
    (place / "c").touch()
    with (
        pytest.raises(OutputError, match=r"cannot use .*/c for a cluster: Not a directory"),
        take_home(place / "c", create=True),
    ):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder to another user")
def test_a_home_of_another_user_is_refused_and_left(place: Path) -> None:
    with furnished(place / "c"):
        pass
    os.chown(place / "c", OTHER, -1)
    with pytest.raises(TrustError, match=f"user id {OTHER}"):
        clear(place / "c")
    os.chown(place / "c", 0, -1)
    os.chown(place / "c" / MARK, OTHER, -1)
    with pytest.raises(TrustError, match=f"user id {OTHER}"):
        clear(place / "c")
    assert (place / "c" / "cluster.json").exists()


def test_a_long_path_has_a_short_substitute_under_a_name_of_chance(place: Path) -> None:
    path = place / ("c" * 60)
    shorts = set()
    for _ in range(2):
        with furnished(path) as home:
            assert len(str(home.short)) <= 44
            assert home.short.is_dir()
            assert not (path / "run").exists()
            shorts.add(home.short)
        assert clear(path) == []
        assert not any(short.exists() for short in shorts)
    assert len(shorts) == 2


def test_another_folder_in_the_place_of_the_substitute_stays(place: Path) -> None:
    path = place / ("c" * 60)
    with furnished(path) as home:
        short = home.short
    (moved := place / "moved").mkdir()
    for inner in short.iterdir():
        inner.rename(moved / inner.name)
    short.rmdir()
    short.mkdir()
    try:
        (short / "run").mkdir()
        (short / "run" / "munge.sock").touch()
        assert clear(path) == []
        assert (short / "run" / "munge.sock").exists()
    finally:
        (short / "run" / "munge.sock").unlink()
        (short / "run").rmdir()
        short.rmdir()


@pytest.mark.slow
def test_a_jobs_folders_of_any_depth_go_and_nothing_that_they_lead_to(place: Path) -> None:
    path = place / "c"
    (place / "precious").mkdir()
    (place / "precious" / "x").touch()
    with furnished(path) as home:
        (inner := home.path / "spool" / "abcde-n1").mkdir()
        fd = os.open(inner, os.O_RDONLY)
        for _ in range(1200):
            os.mkdir("d", dir_fd=fd)
            below = os.open("d", os.O_RDONLY, dir_fd=fd)
            os.symlink(place / "precious", "link", dir_fd=below)
            os.close(fd)
            fd = below
        os.close(fd)
    assert clear(path) == []
    assert not path.exists()
    assert names(place / "precious") == ["x"]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["up", "down"])
def test_killed_at_any_act_it_can_be_taken_down(place: Path, what: str) -> None:
    stride = choose(11, 4, 1)
    words = [sys.executable, "-m", "tests.fixtures.killed_home", str(place), what, str(stride)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100 / stride
