from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from foundation.errors import HostError, UsageError
from foundation.files import live_folder
from gangd.agent.agent_options import endpoints, with_command
from gangd.agent.main import main
from gangd.agent.thaw_tool import held_without_agent
from gangd.freezer.freezer_choice import choose
from gangd.guardian.state_folders import make_private, state_path
from gangd.guardian.statefile import StateFile, Word
from tests.fixtures.gang_host import FakeV1


class Left:
    """State files of agents, with a held step each; the agent is this process, or a dead one."""

    def __init__(self, tree: FakeV1, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.tree = tree
        self.folder = folder
        self.capsys = capsys

    def thaw(self, *words: str) -> dict[str, object]:
        with pytest.raises(SystemExit) as end:
            main(["thaw", "--state", str(self.folder), "--json", *words])
        assert end.value.code == 0
        answer = json.loads(self.capsys.readouterr().out)
        assert isinstance(answer, dict)
        return answer

    def agent(self, node: str, job: int, *, alive: bool = True, lease_left_ns: int = 10**12) -> Path:
        step = self.tree.step(job, "0", node=node)
        (step / "freezer.state").write_text("FROZEN")
        state = StateFile.create(state_path(self.folder, node), node, str(self.tree.root))
        slot = state.claim_cgroup(1, f"slurm_{node}/uid_7/job_{job}/step_0", job)
        assert slot is not None
        state.hold(slot)
        state.set_word(Word.LEASE_NS, time.monotonic_ns() + lease_left_ns)
        if not alive:
            state.set_word(Word.AGENT_START, state.word(Word.AGENT_START) + 1)  # its pid is another's now
        state.close()
        return step

    def word(self, node: str, word: Word) -> int:
        state = StateFile.open(state_path(self.folder, node))
        value = state.word(word)
        state.close()
        return value


# Nodes of other tests on this host, whose steps may be frozen at the same time, have other names.
@pytest.fixture
def left(fake_v1: FakeV1, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Left]:
    make_private(live_folder(tmp_path / "state"))
    yield Left(fake_v1, tmp_path / "state", capsys)
    shutil.rmtree(live_folder(tmp_path / "state"))


def frozen(step: Path) -> bool:
    return (step / "freezer.state").read_text() == "FROZEN"


def test_expired_spares_agents_that_live_and_have_a_lease(left: Left) -> None:
    healthy = left.agent("thawed-a", 1)
    late = left.agent("thawed-b", 2, lease_left_ns=-1)
    dead = left.agent("thawed-c", 3, alive=False)
    assert left.thaw("--expired")["jobs"] == [2, 3]
    assert [frozen(step) for step in (healthy, late, dead)] == [True, False, False]
    assert left.thaw("--expired")["jobs"] == [2]  # the dead one's file is clean now


def test_all_thaws_healthy_agents_jobs_too_and_makes_them_pause(left: Left) -> None:
    step = left.agent("thawed-a", 1)
    assert left.thaw("--all", "--pause", "5")["jobs"] == [1]
    assert not frozen(step)
    assert left.word("thawed-a", Word.PAUSED_UNTIL_NS) > 0
    assert left.word("thawed-a", Word.GUARDIAN_TRIPS) == 1


def test_leaves_alone_what_no_agent_froze(left: Left) -> None:
    left.agent("thawed-a", 1)
    suspended = left.tree.step(9, "0")
    (suspended / "freezer.state").write_text("FROZEN")
    assert left.thaw("--all")["jobs"] == [1]
    assert frozen(suspended)


def test_scan_thaws_every_frozen_job_cgroup(left: Left) -> None:
    suspended = left.tree.step(9, "0")
    (suspended / "freezer.state").write_text("FROZEN")
    root = str(left.tree.root)
    assert left.thaw("--all", "--root", root)["scanned"] == []
    assert left.thaw("--all", "--scan", "--dry-run", "--root", root)["scanned"] == [str(suspended)]
    assert frozen(suspended)
    assert left.thaw("--all", "--scan", "--root", root)["scanned"] == [str(suspended)]
    assert not frozen(suspended)


def test_one_node_only(left: Left) -> None:
    one, other = left.agent("thawed-a", 1), left.agent("thawed-b", 2)
    assert left.thaw("--all", "--node", "thawed-b")["jobs"] == [2]
    assert [frozen(step) for step in (one, other)] == [True, False]


def test_exchanged_state_files_never_freeze_and_thaw_what_is_left(left: Left) -> None:
    healthy, dead = left.agent("thawed-a", 1), left.agent("thawed-b", 2, alive=False)
    one, other = state_path(left.folder, "thawed-a"), state_path(left.folder, "thawed-b")
    between = one.with_name("between")
    for source, target in ((one, between), (other, one), (between, other)):
        source.rename(target)
    left.thaw("--expired", "--node", "thawed-b")
    assert (frozen(healthy), frozen(dead)) == (True, True), "a record says whose it is, and its agent runs"
    left.thaw("--expired", "--node", "thawed-a")
    assert (frozen(healthy), frozen(dead)) == (True, False)


def test_file_of_an_earlier_boot_means_nothing(left: Left) -> None:
    step = left.agent("thawed-a", 1)
    path = state_path(left.folder, "thawed-a")
    raw = bytearray(path.read_bytes())
    raw[258:262] = b"dead"
    path.write_bytes(raw)
    assert left.thaw("--all", "--root", "/nowhere")["jobs"] == []
    assert frozen(step)


def test_damaged_file_is_reported_and_the_others_are_done(left: Left) -> None:
    step = left.agent("thawed-b", 2)
    state_path(left.folder, "thawed-a").write_bytes(b"rubbish")
    with pytest.raises(SystemExit) as end:
        main(["thaw", "--state", str(left.folder), "--all"])
    assert end.value.code == 1
    assert "remove it" in left.capsys.readouterr().err
    assert not frozen(step)


def test_what_an_agent_held_between_two_looks_is_not_reported() -> None:
    """An agent that switches while we look: each of its two jobs is held at one look and not on record."""
    found = iter([{"a", "x"}, {"b", "x"}, {"a", "x"}, {"b", "x"}])
    recorded = iter([{"b"}, {"a"}, {"b"}])
    assert held_without_agent(lambda: next(found), lambda: next(recorded)) == {"x"}
    found = iter([{"a"}, {"a"}])
    recorded = iter([set[str](), {"a"}])  # let go and held again meanwhile
    assert held_without_agent(lambda: next(found), lambda: next(recorded)) == set()


def test_command_line_needs_to_know_which(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["thaw"])
    assert end.value.code == 2
    assert "--expired" in capsys.readouterr().err


def test_addresses() -> None:
    assert endpoints("head") == ("tcp://head:7321", "tcp://head:7322")
    assert endpoints("tcp://head:9000") == ("tcp://head:9000", "tcp://head:9001")
    assert endpoints("ipc:///a,ipc:///b") == ("ipc:///a", "ipc:///b")
    with pytest.raises(ValueError, match="HOST"):
        endpoints("head:x")
    assert with_command(["--node", "a"]) == ["run", "--node", "a"]
    assert with_command(["thaw", "--all"]) == ["thaw", "--all"]
    assert with_command(["--help"]) == ["--help"]


def test_state_is_in_memory(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/x / ext4 rw 0 0\nshm /dev/shm tmpfs rw 0 0\nrun /run tmpfs rw 0 0\n")
    assert live_folder(Path("/run/gangd"), mounts) == Path("/run/gangd")
    stand_in = live_folder(Path("/var/lib/gangd"), mounts)
    assert stand_in.parent == Path("/dev/shm")
    assert stand_in == live_folder(Path("/var/../var/lib/gangd"), mounts)
    assert stand_in != live_folder(Path("/var/lib/gangd2"), mounts)
    mounts.write_text("/dev/x / ext4 rw 0 0\n")
    assert live_folder(Path("/var/lib/gangd"), mounts) == Path("/var/lib/gangd")


def test_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    make_private(tmp_path / "mine")
    make_private(tmp_path / "mine")
    (tmp_path / "mine").chmod(0o777)
    with pytest.raises(HostError, match="alone"):
        make_private(tmp_path / "mine")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    with pytest.raises(HostError, match="alone"):
        make_private(tmp_path / "link")


@pytest.mark.parametrize(
    ("files", "tracking", "kind", "root"),
    [
        ("cgroup.controllers cgroup.procs", "proctrack/cgroup", "cgroup2", "."),
        # a hybrid host, as Slurm does
        ("freezer/cgroup.procs unified/cgroup.controllers unified/cgroup.procs", None, "cgroup1", "freezer"),
        ("freezer/cgroup.procs", "proctrack/linuxproc", "signals", None),
        ("", None, "signals", None),
    ],
)
def test_chooses_as_slurm_tracks_by_what_can_be_written(
    tmp_path: Path, files: str, tracking: str | None, kind: str, root: str | None
) -> None:
    for name in files.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    choice = choose("auto", None, tracking, tmp_path)
    assert choice.kind == kind
    assert root is None or choice.root == tmp_path / root


def test_obeys_what_was_asked_for_or_says_why_not(tmp_path: Path) -> None:
    assert choose("signals", None, "proctrack/cgroup", tmp_path).kind == "signals"
    assert choose("cgroup2", tmp_path, None).root == tmp_path
    with pytest.raises(UsageError, match="--root"):
        choose("cgroup1", tmp_path / "absent", None)
    with pytest.raises(UsageError, match="known are"):
        choose("freon", None, None)
