"""Processes of gangd: files, threads, set-up, light imports."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from foundation.errors import TrustError, UsageError
from foundation.files import live_folder, stand_in
from gangd.agent.assemble import AgentSettings, _lock
from gangd.agent.thaw_tool import thaw_recorded
from gangd.controller.controller_config import Config, load_config
from gangd.controller.examine_slurm import hides_jobs
from gangd.controller.slicelog import SliceLog
from gangd.controller.state_directory import StateDirectory
from gangd.curve_keys import load_agent_keys, load_controller_keys, make_keys
from gangd.daemon_process import Death, WatchedThread
from gangd.guardian.state_folders import ledger_folders, state_path

OTHER = 61_234
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file to another user")


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    """A folder in which anybody can put something in the place of what is there."""
    (folder := tmp_path / "open").mkdir()
    folder.chmod(0o777)
    return folder


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file to which links of an attacker lead."""
    (path := tmp_path / "precious").write_text("mine")
    return path


def test_nothing_is_kept_where_others_may_write(open_to_all: Path) -> None:
    settings = AgentSettings(node="n1", state_dir=open_to_all / "a", keys_dir=open_to_all, controllers=("h",))
    with pytest.raises(TrustError):
        StateDirectory(open_to_all / "state")
    with pytest.raises(TrustError):
        SliceLog(open_to_all / "record", 0.0, 0)
    with pytest.raises(TrustError):
        make_keys(open_to_all / "keys", ["n1"])
    with pytest.raises(TrustError):
        _lock(settings)
    assert list(open_to_all.iterdir()) == []


@as_root
def test_a_state_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", OTHER, -1)
    with pytest.raises(TrustError, match=f"user id {OTHER}"):
        StateDirectory(tmp_path / "state")
    assert list((tmp_path / "state").iterdir()) == []


def test_links_in_the_place_of_files_lead_nowhere(tmp_path: Path, precious: Path) -> None:
    state, record, agents = tmp_path / "state", tmp_path / "record", tmp_path / "agents"
    for folder, name in ((state, "controller.lock"), (record, "slices.jsonl"), (agents, "agent-n1.lock")):
        folder.mkdir()
        (folder / name).symlink_to(precious)
    with pytest.raises(TrustError, match="is a link"):
        StateDirectory(state)
    with pytest.raises(TrustError, match="is a link"):
        SliceLog(record, 0.0, 0)
    with pytest.raises(TrustError, match="is a link"):
        _lock(AgentSettings(node="n1", state_dir=agents, keys_dir=agents, controllers=("h",)))
    (state / "controller.lock").unlink()
    for name in ("status.json", ".status.json.new", "controller.json"):
        (state / name).symlink_to(precious)
    with pytest.raises(TrustError, match="is a link"):
        StateDirectory(state)
    (state / "controller.json").unlink()
    keeper = StateDirectory(state)
    keeper.tell(b"{}")
    keeper.save()
    keeper.close()
    assert precious.read_text() == "mine"
    assert (state / "status.json").read_bytes() == b"{}"


def test_a_state_that_others_may_write_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "controller.json").write_text('{"started_ns": 99}')
    (tmp_path / "controller.json").chmod(0o666)
    with pytest.raises(TrustError, match="others may write"):
        StateDirectory(tmp_path)


@pytest.mark.parametrize(
    ("private", "option", "mode"),
    [("none", None, 0o644), ("jobs,usage", None, 0o600), ("nodes", None, 0o600), ("jobs", "0640", 0o640)],
)
def test_who_may_read_the_status_follows_from_private_data(
    tmp_path: Path, private: str, option: str | None, mode: int
) -> None:
    config = Config(status_mode=option)
    keeper = StateDirectory(tmp_path)
    keeper.status_mode = config.mode_of_status(hides_jobs=hides_jobs({"PrivateData": private}))
    keeper.tell(b"{}")
    keeper.save()
    keeper.close()
    SliceLog(tmp_path / "record", 0.0, 0, keeper.status_mode).close()
    assert (tmp_path / "status.json").stat().st_mode & 0o777 == mode
    assert (tmp_path / "record" / "slices.jsonl").stat().st_mode & 0o777 == mode
    assert (tmp_path / "controller.json").stat().st_mode & 0o777 == 0o600


def test_a_mode_is_an_octal_number(tmp_path: Path) -> None:
    file = tmp_path / "gangd.toml"
    for text in ("rw-r--r--", "644", "0888", "07777"):
        file.write_text(f'status_mode = "{text}"')
        with pytest.raises(UsageError, match="status_mode"):
            load_config(file)


def test_a_configuration_that_others_may_write_is_not_believed(tmp_path: Path) -> None:
    (file := tmp_path / "gangd.toml").write_text("quantum_ms = 100")
    assert load_config(file).quantum_ms == 100
    file.chmod(0o666)
    with pytest.raises(TrustError, match="others may write"):
        load_config(file)


def test_keys_that_others_may_write_are_not_believed(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", ["n1"])
    assert load_controller_keys(tmp_path / "keys").agents()
    public = tmp_path / "keys" / "agents" / "n1.key"
    public.chmod(0o666)
    with pytest.raises(TrustError, match="others may write"):
        load_controller_keys(tmp_path / "keys").agents()
    public.chmod(0o600)
    (tmp_path / "keys" / "agents").chmod(0o777)
    with pytest.raises(TrustError, match="everybody who may write"):
        load_agent_keys(tmp_path / "keys", "n1")


@as_root
def test_a_stranger_who_took_the_substitutes_name_stops_no_one(tmp_path: Path) -> None:
    """Everybody may write to /dev/shm, and the name can be known before: the folder itself is used then."""
    (state := tmp_path / "state").mkdir()
    (squat := stand_in(state)).mkdir()
    try:
        if live_folder(state) == state:
            pytest.skip("the temporary folder is in memory itself")
        os.chown(squat, OTHER, -1)
        (squat / "agent-n1.state").write_bytes(b"forged")
        assert live_folder(state) == state
        assert state_path(state, "n1") == state / "agent-n1.state"
        assert set(ledger_folders(state)) == {squat, state}
        blow = thaw_recorded(state, None, only_expired=True)
        assert (blow.files, blow.failures) == (0, [])
    finally:
        (squat / "agent-n1.state").unlink(missing_ok=True)
        squat.rmdir()


HEAVY = {
    "polars", "plotly", "numba", "mpi4py", "typer", "jinja2", "rich", "scipy", "sklearn", "psutil",
    "dask", "prometheus_client",
}  # fmt: skip


@pytest.mark.parametrize(
    ("module", "more"),
    [
        ("gangd.agent.assemble", {"numpy"}),
        ("gangd.guardian.guardian_process", {"numpy", "zmq", "msgspec", "ClusterShell"}),
        ("gangd.agent.main", {"numpy", "zmq", "msgspec", "ClusterShell"}),
        ("gangd.main", set[str]()),
    ],
)
def test_daemons_import_little(module: str, more: set[str]) -> None:
    program = f"import sys, {module}; print(*sorted(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not (HEAVY | more) & set(done.stdout.split())


PROGRAM = """
import resource
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
from gangd.daemon_process import allow_open_files
print(allow_open_files() == hard)
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard))
print(allow_open_files() == hard)
"""


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True"] * 3


DEADLINE_S = 10.0


def test_a_thread_that_dies_is_reported_and_begins_anew() -> None:
    deaths: queue.SimpleQueue[Death] = queue.SimpleQueue()
    lived = threading.Event()
    attempts = []

    def work() -> None:
        attempts.append(threading.current_thread().name)
        if len(attempts) == 1:
            raise KeyError("JobId")
        if len(attempts) == 2:
            raise SystemExit(3)
        lived.set()

    thread = WatchedThread("slurm", work, deaths.put)
    thread.start()
    assert lived.wait(DEADLINE_S)
    assert thread.stop(DEADLINE_S)
    first, second = deaths.get(timeout=1), deaths.get(timeout=1)
    assert (first.thread, first.count, second.count) == ("slurm", 1, 2)
    assert first.why.startswith("KeyError: 'JobId' (")
    assert "work:" in first.why
    assert second.why.startswith("SystemExit: 3")
    assert attempts == ["slurm"] * 3


def test_a_thread_whose_work_is_done_ends() -> None:
    deaths: queue.SimpleQueue[Death] = queue.SimpleQueue()
    thread = WatchedThread("short", lambda: None, deaths.put)
    thread.start()
    assert thread.stop(DEADLINE_S)
    assert deaths.empty()


def test_a_thread_that_dies_while_it_is_to_end_does_not_begin_anew() -> None:
    begun, end = threading.Semaphore(0), threading.Event()

    def work() -> None:
        begun.release()
        end.wait(DEADLINE_S)
        raise RuntimeError("torn down")

    thread = WatchedThread("late", work, lambda _: None)
    thread.start()
    assert begun.acquire(timeout=DEADLINE_S)
    end.set()
    assert thread.stop(DEADLINE_S)
    assert thread.deaths in (0, 1)
    assert not begun.acquire(blocking=False)
