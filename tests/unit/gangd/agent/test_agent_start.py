"""What an agent does about what an earlier one left, before it takes its place."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from foundation.errors import HostError
from foundation.files import live_folder
from gangd.agent.assemble import AgentSettings, report_last_end, serve
from gangd.agent.report_buffer import Sender, SliceBook
from gangd.agent.telemetry import JsonLog
from gangd.curve_keys import make_keys
from gangd.guardian.state_folders import ended_path, make_private, state_path
from gangd.guardian.statefile import StateFile, Word
from tests.fixtures.gang_host import FakeV1


@pytest.fixture
def left(fake_v1: FakeV1, tmp_path: Path) -> Iterator[Path]:
    """A step that an agent, dead by now, has frozen; its control file."""
    make_private(live_folder(tmp_path / "state"))
    state = StateFile.create(state_path(tmp_path / "state", "a"), "a", str(fake_v1.root))
    step = fake_v1.step(12, "0")
    (step / "freezer.state").write_text("FROZEN")
    slot = state.claim_cgroup(1, "slurm_a/uid_7/job_12/step_0", 12)
    assert slot is not None
    state.hold(slot)
    state.set_word(Word.LEASE_NS, time.monotonic_ns() + 10**12)
    state.set_word(Word.AGENT_START, state.word(Word.AGENT_START) + 1)
    state.close()
    yield step / "freezer.state"
    shutil.rmtree(live_folder(tmp_path / "state"))


def settings(tmp_path: Path, *, dry_run: bool = False) -> AgentSettings:
    make_keys(tmp_path / "keys", ["a"])
    return AgentSettings(
        node="a",
        state_dir=tmp_path / "state",
        keys_dir=tmp_path / "keys",
        controllers=("tcp://127.0.0.1:1,tcp://127.0.0.1:2",),
        freezer="cgroup1",
        root=tmp_path / "absent",  # it gets no further than that
        dry_run=dry_run,
    )


def recorded(tmp_path: Path) -> list[int]:
    state = StateFile.open(state_path(tmp_path / "state", "a"))
    jobs = [held.job for held in state.held()]
    state.close()
    return jobs


def test_record_of_what_cannot_be_thawed_is_kept(left: Path, tmp_path: Path) -> None:
    left.unlink()
    left.mkdir()  # cannot be written
    with pytest.raises(HostError, match="12 were left held"):
        serve(settings(tmp_path))
    assert recorded(tmp_path) == [12]


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_is_left_is_thawed_before_its_record_is_replaced(
    left: Path, tmp_path: Path, *, dry_run: bool
) -> None:
    with pytest.raises(Exception, match="absent"):
        serve(settings(tmp_path, dry_run=dry_run))
    assert left.read_text() == "THAWED"
    assert recorded(tmp_path) == []


@pytest.mark.parametrize(
    ("record", "kinds"),
    [
        (b'{"end": "agent died", "signal": "SIGKILL", "status": null}', ["agent_died"]),
        (b'{"end": "agent died", "signal": null, "status": 1}', ["agent_died"]),
        (b'{"end": "farewell", "signal": null, "status": 0}', []),
        (b'{"end": "agent died"', []),
        (b"[1]", []),
        (b"x" * 5000, []),
        (None, []),
    ],
)
def test_reports_how_the_last_agent_ended(tmp_path: Path, record: bytes | None, kinds: list[str]) -> None:
    path, book = ended_path(tmp_path, "a"), SliceBook()
    if record is not None:
        path.write_bytes(record)
        path.chmod(0o600)
    report_last_end(path, JsonLog(2, "a"), book)
    faults = book.report(Sender("a", bytes(16), None, 0, 0), 0).faults
    assert [fault.kind for fault in faults] == kinds
    assert all(("SIGKILL" in fault.text) == (b"SIGKILL" in (record or b"")) for fault in faults)


def test_record_that_others_could_have_written_is_not_believed(tmp_path: Path) -> None:
    path, book = ended_path(tmp_path, "a"), SliceBook()
    path.write_bytes(b'{"end": "agent died", "signal": "SIGKILL", "status": null}')
    path.chmod(0o666)
    report_last_end(path, JsonLog(2, "a"), book)
    assert not book.has_news
