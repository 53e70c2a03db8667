"""State and record folders that are full, read-only, another cluster's, or an older copy."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from foundation.errors import OutputError
from gangd.controller.orders import ActiveOrder, OrderTarget
from gangd.controller.slicefiles import NAME, Retention
from gangd.controller.slicelog import SliceLog, read_slices
from gangd.controller.state_directory import STATE_NAME, STATUS_NAME, KeptState, StateDirectory
from gangd.core.scheduler_events import SliceRow
from tests.fixtures.gang_loop import ScriptedAgent, Stage, two_jobs

FULL = "No space left on device"
SIZE = 512 << 10


@pytest.fixture
def small(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """State and record folders of 512 KiB each."""
    folders = {name: tmp_path / name for name in ("state", "record")}
    mounted = []
    try:
        for folder in folders.values():
            folder.mkdir(mode=0o755)
            words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=755", "tmpfs", str(folder)]
            if subprocess.run(words, capture_output=True, check=False).returncode != 0:
                pytest.skip("only root can mount the small disks of this test")
            mounted.append(folder)
        yield folders
    finally:
        for folder in mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "filler").open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def row(number: int) -> SliceRow:
    return SliceRow(number, number * 1_000_000, 250_000_000, 7, "n1", "run", 1500, -3, 40)


def take_turns(stage: Stage, agent: ScriptedAgent, slices: int) -> None:
    """Wait for so many more slices; in each the agent holds one of the two jobs, and its lease runs."""
    first, leaseless = agent.timeline.horizon, 0

    def done() -> bool:
        nonlocal leaseless
        leaseless += agent.timeline.lease_over(time.monotonic_ns())
        return agent.timeline.horizon > first + slices

    stage.until(done)
    assert not leaseless
    held = [
        agent.timeline.held(number) for number in range(agent.timeline.horizon - 8, agent.timeline.horizon)
    ]
    assert set().union(*held) == {1, 2}
    assert not any(one == {1, 2} for one in held)


@pytest.mark.slow
def test_jobs_take_turns_while_folders_are_full_and_all_is_written_again_when_there_is_space(
    tmp_path: Path, small: dict[str, Path]
) -> None:
    stage = Stage(tmp_path, two_jobs())
    one, two = stage.agent("n1"), stage.agent("n2")
    state = small["state"] / STATE_NAME

    def raised() -> dict[str, str]:
        board = stage.loop._orders.alarms.standing(time.monotonic_ns())
        return {alarm.subject: alarm.text for alarm in board if alarm.kind == "disk"}

    def scene() -> None:
        stage.welcome(one, two)
        stage.until(lambda: bool(one.timeline.jobs(one.timeline.horizon)))
        fill(small["record"])
        stage.until(lambda: raised().keys() == {"record slices"})
        saved_ns = state.stat().st_mtime_ns
        stage.until(lambda: state.stat().st_mtime_ns > saved_ns)  # it does not wait for the record
        fill(small["state"])
        stage.until(lambda: raised().keys() == {"record slices", "save state", "write status"})
        for text in raised().values():
            assert FULL in text
            assert "scheduling goes on: free space there" in text
        take_turns(stage, one, 20)
        for folder in small.values():
            (folder / "filler").unlink()
        freed_s = time.time()
        stage.until(lambda: not raised())
        for name in (STATE_NAME, STATUS_NAME):
            stage.until(lambda name=name: (small["state"] / name).stat().st_mtime > freed_s)  # type: ignore[misc]

    stage.act(scene)
    assert list(read_slices(small["record"], 0.0))
    assert not [path.name for path in small["state"].iterdir() if path.name.endswith(".new")]


def test_a_controller_begins_with_full_folders(small: dict[str, Path]) -> None:
    (small["state"] / "controller.lock").touch(0o600)
    (small["record"] / NAME).touch(0o600)
    for folder in small.values():
        fill(folder)
    keeper = StateDirectory(small["state"])
    controller = keeper.begin(time.time_ns())
    record = SliceLog(small["record"], time.time() * 1e3, time.monotonic_ns())
    with pytest.raises(OutputError, match=FULL):
        record.flush()
    with pytest.raises(OutputError, match=FULL):
        keeper.save()
    for folder in small.values():
        (folder / "filler").unlink()
    record.append([row(1)])
    record.close()
    keeper.save()
    keeper.close()
    assert [read.slice for read in read_slices(small["record"], 0.0)] == [1]
    assert StateDirectory(small["state"]).begin(0).started_ns > controller.started_ns


def test_a_record_on_a_full_disk_loses_rows_and_no_more(small: dict[str, Path]) -> None:
    folder = small["record"]
    record = SliceLog(folder, 0.0, 0, retention=Retention(bytes=1 << 30))
    fill(folder)
    lost = 0
    for number in range(2_000):
        try:
            record.append([row(number)])
        except OutputError:
            lost += 1
    assert lost
    (folder / "filler").unlink()
    for number in range(2_000, 2_100):
        record.append([row(number)])
    record.close()
    kept = [read.slice for read in read_slices(folder, 0.0)]
    assert kept[-100:] == list(range(2_000, 2_100))
    assert kept == sorted(set(kept))
    assert len(kept) >= 2_100 - lost - 1, "a line may be torn"


def test_a_record_that_can_begin_no_new_file_begins_one_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = SliceLog(tmp_path, 0.0, 0, retention=Retention(bytes=200, parts=100))

    def full() -> None:
        raise OSError(28, FULL)

    refused = 0
    for number in range(60):
        with monkeypatch.context() as patch:
            if number < 20:
                patch.setattr(record, "_open", full)
            try:
                record.append([row(number)])
            except OutputError:
                refused += 1
    assert refused
    record.close()
    assert [read.slice for read in read_slices(tmp_path, 0.0)] == list(range(60))
    assert (tmp_path / NAME).stat().st_size < 400


def test_a_folder_that_is_read_only_is_refused_and_named(small: dict[str, Path]) -> None:
    words = ["mount", "-o", "remount,ro", str(small["state"])]
    subprocess.run(words, check=True)
    with pytest.raises(OutputError, match=f"cannot write to state folder {small['state']}: Read-only"):
        StateDirectory(small["state"])


# Folders that are not this controller's


def saved(folder: Path, **fields: object) -> KeptState:
    order = ActiveOrder(what="pause", target=OrderTarget(kind="all"), since_s=1.0, uid=0, by="root")
    keeper = StateDirectory(folder)
    keeper.know_cluster("one")
    keeper.state.orders = [order]
    keeper.state.nodes = {"n1": 4}
    for name, value in fields.items():
        setattr(keeper.state, name, value)
    keeper.save()
    keeper.close()
    return keeper.state


@pytest.mark.parametrize(
    ("cluster", "in_force"),
    [("one", True), (None, True), ("two", False)],
    ids=["its own", "Slurm tells no name", "another's"],
)
def test_the_state_of_another_cluster_is_set_aside(
    tmp_path: Path, cluster: str | None, in_force: bool
) -> None:
    folder = tmp_path / "state"
    content = saved(folder, started_ns=10**20)
    keeper = StateDirectory(folder)
    keeper.know_cluster(cluster)
    assert keeper.state.orders == (content.orders if in_force else [])
    assert keeper.begin(time.time_ns()).started_ns > 10**20, "agents follow it all the same"
    if in_force:
        assert keeper.damaged is None
    else:
        aside = folder / "controller.damaged-1.json"
        assert str(aside) in (keeper.damaged or "")
        assert b'"cluster":"one"' in aside.read_bytes()
        assert keeper.state.nodes == {}
    keeper.close()
    again = StateDirectory(folder)
    again.know_cluster(cluster)
    assert again.state.cluster == (cluster or "one")
    assert (again.damaged is None) == in_force, "the alarm stays until the file is removed"
