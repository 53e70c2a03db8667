from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foundation.errors import HostError
from gangd.guardian.guardian_watch import thaw_held
from gangd.guardian.statefile import RECORDS, StateFile, Word
from tests.fixtures.gang_host import FakeV1


def make(tmp_path: Path, root: str = "/nowhere") -> StateFile:
    return StateFile.create(tmp_path / "agent-a.state", "a", root)


def test_another_process_reads_what_was_written(tmp_path: Path) -> None:
    state = make(tmp_path, "/sys/fs/cgroup/freezer")
    slot = state.claim_cgroup(1, "slurm_a/uid_7/job_12/step_0", 12)
    assert slot is not None
    state.hold(slot)
    state.set_word(Word.LEASE_NS, 2**62)
    other = StateFile.open(tmp_path / "agent-a.state")
    (held,) = other.held()
    assert (held.kind, held.job, held.path) == (1, 12, "slurm_a/uid_7/job_12/step_0")
    assert (other.node(), str(other.root())) == ("a", "/sys/fs/cgroup/freezer")
    assert other.word(Word.LEASE_NS) == 2**62
    assert other.this_boot()
    assert other.agent_alive()
    assert other.lease_left_ns() > 0
    state.release(slot)
    assert list(other.held()) == []
    other.close()
    state.close()


def test_lease_reads_the_same_from_another_time_namespace(tmp_path: Path) -> None:
    """A health check in the host's namespace must understand an agent whose clock is shifted."""
    if os.geteuid() != 0 or not Path("/proc/self/timens_offsets").exists():
        pytest.skip("needs root and time namespaces")
    program = (
        "import sys, time; from pathlib import Path; from gangd.guardian.statefile import StateFile, Word; "
        "s = StateFile.create(Path(sys.argv[1]), 'a', '/'); "
        "s.set_word(Word.LEASE_NS, time.monotonic_ns() + 100 * 10**9); print(time.monotonic())"
    )
    path = tmp_path / "agent-a.state"
    words = ["unshare", "--time", "--monotonic", "50000", "--fork", sys.executable, "-c", program, str(path)]
    shifted_s = float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    assert shifted_s - time.monotonic() > 40_000
    state = StateFile.open(path)
    assert 60e9 < state.lease_left_ns() <= 100e9
    state.close()


def test_full_ledger_refuses_and_a_dropped_slot_is_used_again(tmp_path: Path) -> None:
    state = make(tmp_path)
    slots = [state.claim_process(pid, 1, 12) for pid in range(1, RECORDS + 1)]
    assert None not in slots
    assert len(set(slots)) == RECORDS
    assert state.claim_process(5, 1, 12) is None
    assert slots[7] is not None
    state.drop(slots[7])
    assert state.claim_process(5, 1, 12) == slots[7]
    state.close()


def test_path_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    state = make(tmp_path)
    assert state.claim_cgroup(2, "x" * 300, 12) is None
    state.close()


def test_new_file_leaves_the_old_mapping_alone(tmp_path: Path) -> None:
    old = make(tmp_path)
    slot = old.claim_process(1, 1, 12)
    assert slot is not None
    old.hold(slot)
    new = make(tmp_path)
    assert list(new.held()) == []
    assert len(list(old.held())) == 1
    old.close()
    new.close()


def test_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"something else")
    with pytest.raises(HostError, match="no agent state file"):
        StateFile.open(tmp_path / "x")
    with pytest.raises(HostError, match="cannot write"):
        StateFile.create(Path("/proc/absent/agent.state"), "a", "/")


def test_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    make(tmp_path).close()
    (tmp_path / "agent-a.state").chmod(0o622)
    with pytest.raises(HostError, match="others may write"):
        StateFile.open(tmp_path / "agent-a.state")


def test_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    state = make(tmp_path)
    assert state.path is not None
    assert state.path.stat().st_mode & 0o777 == 0o600
    assert state.path.stat().st_uid == os.geteuid()
    state.close()


def test_revives_nothing_outside_slurms_cgroups(fake_v1: FakeV1, tmp_path: Path) -> None:
    state = make(tmp_path, str(fake_v1.root))
    inside = fake_v1.step(12, "0")
    outside = fake_v1.root / "user.slice"
    outside.mkdir()
    for folder, path in ((inside, "slurm_a/uid_7/job_12/step_0"), (outside, "user.slice")):
        (folder / "freezer.state").write_text("FROZEN")
        slot = state.claim_cgroup(1, path, 12)
        assert slot is not None
        state.hold(slot)
    revived = thaw_held(state)
    assert (revived.jobs, revived.gone) == (frozenset({12}), 1)
    assert (inside / "freezer.state").read_text() == "THAWED"
    assert (outside / "freezer.state").read_text() == "FROZEN"
    state.close()
