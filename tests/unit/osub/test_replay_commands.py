"""osub replay, and what it shows meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from foundation.errors import ClusterError, TrustError
from gangd.controller.controller_status import ControllerStatus, NodeStatus
from gangd.controller.slicelog import SliceLog
from osub.cli.application import takes
from osub.cli.replay import _ask
from osub.live.gang import AUTO, NONE, collector_of, find_gang
from submitter.plan import ReplaySpec
from submitter.replay.replay_progress import ReplayProgress, Wish
from tests.fixtures.cli import Cli

CONFIG = {"PreemptMode": "OFF", "SlurmUser": f"slurm({os.geteuid()})"}
NODES = ("n1", "n2")


def status(**fields: object) -> ControllerStatus:
    known: dict[str, object] = {
        "time_ms": time.time() * 1000, "controller": "00", "pid": 1, "dry_run": False, "slice": 1,
        "quantum_ms": 200.0, "asked_quantum_ms": 100.0, "lookahead": 3, "lost_share": None,
        "lease_ms": 2000.0, "slurm_age_s": 0.1, "running_jobs": 0, "shared_jobs": 0, "tick_us": 1,
        "dropped": {}, "alarms": [],
        "nodes": [NodeStatus(node=name, agent="joined") for name in NODES], "jobs": [],
    }  # fmt: skip
    return msgspec.convert(known | fields, ControllerStatus)


def state_folder(folder: Path, **fields: object) -> Path:
    state, record = folder / "state", folder / "record"
    state.mkdir(mode=0o755)
    SliceLog(record, 0.0, 0).close()
    fields.setdefault("record", str(record))
    (state / "status.json").write_bytes(msgspec.json.encode(status(**fields)))
    return state


def test_a_gangd_that_serves_the_nodes_lets_limits_apply_and_reports_its_slices(tmp_path: Path) -> None:
    found = find_gang(str(state_folder(tmp_path)), None, CONFIG, NODES)
    settings = found.settings
    assert (settings.kind, settings.quantum_ms, settings.lease_s) == ("osub", 100.0, 2.0)
    assert (found.slices, found.remark) == (tmp_path / "record", None)
    collect = collector_of(found.slices, CONFIG)
    assert collect is not None
    assert list(collect({1}, 0.0)) == []


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"time_ms": 1000.0}, "last wrote its status"),
        ({"dry_run": True}, "holds no job"),
        ({"nodes": [NodeStatus(node="n1", agent="joined")]}, "no agent on n2"),
        (
            {"nodes": [NodeStatus(node="n1", agent="joined"), NodeStatus(node="n2", agent="lost")]},
            "no agent on n2",
        ),
    ],
)
def test_a_gangd_that_does_not_hold_these_jobs_is_an_error(
    fields: dict[str, object], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ClusterError, match=complaint):
        find_gang(str(state_folder(tmp_path, **fields)), None, CONFIG, NODES)


def test_what_another_user_could_have_written_is_not_believed(tmp_path: Path) -> None:
    state = state_folder(tmp_path)
    (state / "status.json").chmod(0o666)
    with pytest.raises(TrustError):
        find_gang(str(state), None, CONFIG, NODES)
    (state / "status.json").chmod(0o644)
    state.chmod(0o777)
    with pytest.raises(TrustError):
        find_gang(str(state), None, CONFIG, NODES)


def test_slices_that_another_user_could_have_written_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    state = state_folder(tmp_path)
    (tmp_path / "record" / "slices.jsonl").chmod(0o666)
    found = find_gang(str(state), None, CONFIG, NODES)
    assert (found.settings.kind, found.slices) == ("osub", None)
    assert found.remark is not None
    assert "no slices" in found.remark


def test_nothing_in_the_default_folder_is_no_gangd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osub.live.gang.DEFAULT_STATE", tmp_path / "state")
    assert find_gang(AUTO, None, CONFIG, NODES).settings.kind == "none"
    state_folder(tmp_path)
    assert find_gang(AUTO, None, CONFIG, NODES).settings.kind == "osub"
    assert find_gang(NONE, None, CONFIG, NODES).settings.kind == "none"
    other = find_gang(AUTO, None, CONFIG, ("x1",))
    assert other.settings.kind == "none"
    assert other.remark is not None
    assert "no agent on x1" in other.remark


def test_slurm_s_own_gang_scheduler_is_known_by_its_configuration() -> None:
    found = find_gang(AUTO, None, {"PreemptMode": "GANG,SUSPEND", "SchedulerTimeSlice": "30 sec"}, NODES)
    assert (found.settings.kind, found.settings.quantum_ms) == ("slurm", 30_000.0)


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["--sbatch-option", "array=1-3"], 2, "--sbatch-option array can't be set"),
        (["--sbatch-option", "hetjob"], 2, "not heterogeneous"),
        (["--sbatch-option", "-p x"], 2, "--sbatch-option takes"),
        (["--speedup", "nan"], 2, "'nan' is not a valid number"),
        (["--start", "inf"], 2, "--start must be a number"),
        (["--patience", "-1"], 2, "--patience must not be negative"),
        (["--calibration", "/nowhere/steps.json"], 1, "no file /nowhere/steps.json"),
        (["--resume"], 2, "no RUN"),
        (["--resume", "--dry-run"], 2, "--dry-run begins nothing"),
        (["--resume", "--repeat", "2"], 2, "--repeat begins a replay anew"),
        (["--repeat", "-1"], 2, "--repeat"),
        (["--cluster", __file__], 1, "is a file"),
        (["--down-nodes", "maybe"], 2, "--down-nodes"),
        (["--cluster", "/nowhere"], 1, "no slurm.conf"),
    ],
)
def test_wrong_words_are_one_line_and_leave_nothing(
    words: list[str], code: int, complaint: str, tmp_path: Path, cli: Cli
) -> None:
    out = tmp_path / "run"
    said = cli("replay", tmp_path / "t.swf", "--out", out, *words, code=code).err
    assert said.startswith("osub: ")
    assert said.count("\n") == 1
    assert complaint in said
    assert not out.exists()


def test_a_host_without_slurm_is_informed_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho 'fatal: Could not establish a configuration source' >&2\nexit 1\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    printed = cli("replay", tmp_path / "t.swf", "--out", tmp_path / "run", code=1)
    assert "belongs to no Slurm: --cluster" in printed.err


NOW = ReplayProgress(unsubmitted=1, waiting=2, running=1, done=4, now_s=10.0, left_s=16.0, slurm_away=False)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return what makes a terminal at which these answers are typed; it gives the questions asked."""

    def type_in(*words: str | type[BaseException]) -> list[str]:
        asked: list[str] = []
        coming: Iterator[str | type[BaseException]] = iter(words)

        def typed(question: str) -> str:
            asked.append(question)
            word = next(coming)
            if isinstance(word, str):
                return word
            raise word

        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("builtins.input", typed)
        return asked

    return type_in


@pytest.mark.parametrize(
    ("word", "wish"),
    [
        ("d", Wish.DETACH),
        ("c", Wish.CANCEL),
        ("G", Wish.GO_ON),
        ("go on", Wish.GO_ON),
        (" cancel ", Wish.CANCEL),
    ],
)
def test_an_answer_is_a_word_or_its_beginning(
    answer: Callable[..., list[str]], word: str, wish: Wish
) -> None:
    answer(word)
    assert _ask(NOW, polite=True, outlives_us=True) is wish


def test_an_answer_that_is_none_is_asked_for_again(answer: Callable[..., list[str]]) -> None:
    asked = answer("", "x", "yes", "dx", "c")
    assert _ask(NOW, polite=True, outlives_us=True) is Wish.CANCEL
    assert len(asked) == 5
    assert asked[0].startswith("4 of 8 jobs done.")


@pytest.mark.parametrize("end", [EOFError, KeyboardInterrupt])
def test_no_answer_loses_nothing(answer: Callable[..., list[str]], end: type[BaseException]) -> None:
    answer(end)
    assert _ask(NOW, polite=True, outlives_us=True) is Wish.DETACH
    assert _ask(NOW, polite=False, outlives_us=True) is Wish.DETACH


def test_a_cluster_that_ends_with_the_command_is_nothing_to_detach_from(
    answer: Callable[..., list[str]],
) -> None:
    asked = answer("d", "e")
    assert _ask(NOW, polite=True, outlives_us=False) is Wish.DETACH
    assert len(asked) == 2
    assert "etach" not in asked[0]


def test_a_file_gives_what_a_replay_is_not_asked_for(tmp_path: Path, cli: Cli) -> None:
    spec = tmp_path / "replay.toml"
    for text, words, reported, code in (
        ('trace = "t.swf"\nout = "run"\n', ["--resume"], f"there is no RUN in {tmp_path / 'run'}", 2),
        ('trace = "t.swf"\nout = "run"\npatience = -1\n', [], "--patience must not be negative", 2),
        ('trace = "t.swf"\nout = "run"\noversize = "maybe"\n', [], "--oversize", 2),
        ('trace = "t.swf"\nout = "run"\ntrial = 0\n', [], "trial takes a number of at least 1, not 0", 2),
        ('trace = "t.swf"\nrun = "run"\n', [], "nothing is called run", 2),
        ('trace = "t.swf"\n', [], "Missing option '--out'", 2),
    ):
        spec.write_text(text)
        assert reported in cli("replay", "--spec", spec, *words, code=code).err
    assert sorted(tmp_path.iterdir()) == [spec]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('export = ["UCX_TLS=dc_x", "HWLOC_XMLFILE"]\n', ["UCX_TLS=dc_x", "HWLOC_XMLFILE"]),
        (
            '[export]\nUCX_TLS = "dc_x"\nTOKEN = "a=b c"\nTRIES = 3\n',
            ["UCX_TLS=dc_x", "TOKEN=a=b c", "TRIES=3"],
        ),
    ],
)
def test_a_file_gives_variables_as_a_list_or_as_a_table(tmp_path: Path, text: str, words: list[str]) -> None:
    taken: list[ReplaySpec] = []
    command = typer.Typer()
    command.command()(takes(ReplaySpec)(taken.append))
    (spec := tmp_path / "replay.toml").write_text('trace = "t.swf"\nout = "run"\n' + text)
    for more in ([], ["--export", "OTHER=1"]):  # the command line wins
        CliRunner().invoke(command, ["--spec", str(spec), *more], catch_exceptions=False)
    assert [each.export for each in taken] == [words, ["OTHER=1"]]
