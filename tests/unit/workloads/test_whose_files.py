"""What jobs read from places to which everybody may write: none of it may be another user's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from foundation.errors import HostError, PeerError
from foundation.files import write_whole
from foundation.trust import usable_cache
from workloads.eiba.inbox import Inbox
from workloads.eiba.node_barrier import join_hub
from workloads.rrba.ranks.shared_segments import check_mapped, clear_the_way

OTHER = 61_234
ENVIRONMENT = {"PMI_JOBID": "1.0"}
NAME = "mpich_shm_eb421bf2_0"  # what MPICH calls the memory of step 1.0
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file to another user")


class FakeHost:
    """Shared memory, and processes that have it mapped."""

    def __init__(self, folder: Path) -> None:
        self.shm, self.proc = folder / "shm", folder / "proc"
        for path in (self.shm, self.proc / "self", self.proc / "77"):
            path.mkdir(parents=True)

    def segment(self, name: str = NAME, mode: int = 0o600) -> Path:
        path = self.shm / name
        path.touch(mode)
        path.chmod(mode)
        return path

    def map(self, path: Path, who: str, inode: int | None = None) -> Path:
        maps = self.proc / who / "maps"
        number = path.stat().st_ino if inode is None else inode
        maps.write_text(f"7f00-7f10 rw-s 00000000 00:1b {number}                        {path}\n")
        return maps

    def clear(self) -> None:
        clear_the_way(ENVIRONMENT, self.shm, self.proc)


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let time pass."""

    def pass_time(seconds: float) -> None:
        now = time.time()
        monkeypatch.setattr("workloads.rrba.ranks.shared_segments.time.time", lambda: now + seconds)

    return pass_time


def test_memory_of_a_dead_job_of_the_same_name_goes(host: FakeHost, later: Callable[[float], None]) -> None:
    stale, other = host.segment(), host.segment("mpich_shm_ec421d85_0")
    later(60)
    host.clear()
    assert not stale.exists()
    assert other.exists()


def test_memory_that_a_rank_has_or_has_just_made_stays(
    host: FakeHost, later: Callable[[float], None]
) -> None:
    path = host.segment()
    host.clear()
    assert path.exists()
    later(60)
    maps = host.map(path, "77")
    host.clear()
    assert path.exists()
    maps.unlink()
    host.clear()
    assert not path.exists()


@as_root
def test_a_stranger_who_took_the_name_is_removed_by_root(host: FakeHost) -> None:
    os.chown(host.segment(mode=0o666), OTHER, -1)
    host.clear()
    assert list(host.shm.iterdir()) == []


@as_root
def test_a_stranger_who_took_the_name_is_refused_by_a_user() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        host = FakeHost(Path(folder))
        os.chown(host.segment(mode=0o666), OTHER, -1)
        said = _clear_as_a_user(host)
    assert f"user id {OTHER}" in said


def _clear_as_a_user(host: FakeHost) -> str:
    script = (
        "import os; from pathlib import Path; from foundation.errors import HostError\n"
        "from workloads.rrba.ranks.shared_segments import clear_the_way\n"
        f"os.setuid({OTHER + 1})\n"
        f"try: clear_the_way({ENVIRONMENT!r}, Path({str(host.shm)!r}), Path({str(host.proc)!r}))\n"
        "except HostError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="/")
    return done.stdout


def test_what_ranks_share_must_be_theirs_alone(host: FakeHost) -> None:
    path = host.segment()
    check_mapped(host.map(path, "self"), host.shm)
    path.chmod(0o666)
    with pytest.raises(HostError, match="open to others"):
        check_mapped(host.map(path, "self"), host.shm)
    path.chmod(0o600)
    with pytest.raises(HostError, match="must be removed"):
        check_mapped(host.map(path, "self", inode=1), host.shm)
    maps = host.map(path, "self")
    path.unlink()
    with pytest.raises(HostError, match="is gone"):
        check_mapped(maps, host.shm)


@as_root
def test_an_impostors_rendezvous_is_not_joined(tmp_path: Path) -> None:
    path = tmp_path / "rendezvous"
    notice = {"identity": "1.0.0", "host": "h", "addresses": ["127.0.0.1"], "port": 1, "key": "00"}
    path.write_text(json.dumps(notice))
    path.chmod(0o600)
    os.chown(path, OTHER, -1)
    with Inbox() as inbox, pytest.raises(PeerError, match=f"user id {OTHER}'s"):
        join_hub(inbox, path, "1.0.0", 1, time.monotonic() + 0.2)


def test_a_rendezvous_that_others_may_write_or_that_is_a_link_is_not_joined(tmp_path: Path) -> None:
    (path := tmp_path / "rendezvous").write_text("{}")
    path.chmod(0o666)
    with Inbox() as inbox, pytest.raises(PeerError, match="others may write it"):
        join_hub(inbox, path, "1.0.0", 1, time.monotonic() + 0.2)
    (tmp_path / "link").symlink_to(path)
    with Inbox() as inbox, pytest.raises(PeerError, match="symbolic links"):
        join_hub(inbox, tmp_path / "link", "1.0.0", 1, time.monotonic() + 0.2)


def test_a_report_is_written_through_no_ones_link(tmp_path: Path) -> None:
    (precious := tmp_path / "precious").write_text("mine")
    (tmp_path / f".report.{os.getpid()}.partial").symlink_to(precious)
    (tmp_path / "report").symlink_to(precious)
    write_whole(tmp_path / "report", "a report", 0o644)
    assert precious.read_text() == "mine"
    assert (tmp_path / "report").read_text() == "a report"
    assert not (tmp_path / "report").is_symlink()


def test_kernels_are_not_loaded_from_a_cache_that_others_may_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert usable_cache(tmp_path / "good" / "cache")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for _ in range(2):
        assert not usable_cache(tmp_path / "open" / "cache")
    assert len(caplog.records) == 1
    assert "everybody who may write" in caplog.text


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """As root, a file would otherwise replace /dev/null."""
    before = Path("/dev/null").stat()
    write_whole(Path("/dev/null"), "a report")
    after = Path("/dev/null").stat()
    assert (before.st_ino, before.st_rdev, before.st_mode) == (after.st_ino, after.st_rdev, after.st_mode)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", "a report")
    assert os.read(reader, 100) == b"a report"
    os.close(reader)
