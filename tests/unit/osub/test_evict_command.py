"""``osub evict JOBS.csv``: what it prints and writes, and what it refuses in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from foundation.slurm import SlurmJobState, SubmitRequest
from osub.cli.evict import live as evict_live
from osub.cli.main import run
from osub.live.evicting import Surroundings
from tests.fixtures.fake_slurm import FakeSlurm

HEADER = "job,nodes,loss,ts_min,ta_min\n"
GOOD = HEADER + "7,4,100,3,6\n12,4,10,5,\nx,8,,2,2\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (path := tmp_path / "jobs.csv").write_text(GOOD)
    return path


def call(*words: str) -> tuple[int, str, str]:
    """Run a command; its exit code, and what it prints."""
    out, err = StringIO(), StringIO()
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    try:
        code = run(["evict", *words])
    finally:
        sys.stdout, sys.stderr = kept
    return code, out.getvalue(), err.getvalue()


def asked(table: Path, *words: str, nodes: str = "8", deadline: str = "8") -> tuple[int, str, str]:
    return call(str(table), "--free-nodes", nodes, "--deadline", deadline, *words)


def test_json_has_every_deadline(table: Path) -> None:
    code, out, _ = asked(table, "--all-deadlines", "--json")
    found = json.loads(out)["deadlines"]
    assert code == 0
    assert [one["deadline_min"] for one in found] == list(range(9))
    assert found[0] == {
        "deadline_min": 0, "possible": True, "loss": 110.0, "checkpoint_min": 0, "nodes": 8,
        "choices": {"7": "kill", "12": "kill"},
    }  # fmt: skip
    assert (found[2]["choices"], found[2]["loss"]) == ({"x": "app"}, 0)


def test_one_deadline_alone_is_the_last(table: Path) -> None:
    found = json.loads(asked(table, "--json")[1])["deadlines"]
    assert [one["deadline_min"] for one in found] == [8]


@pytest.mark.parametrize("solver", ["optimal", "greedy", "backtracking"])
def test_every_solver_answers(table: Path, solver: str) -> None:
    code, out, _ = asked(table, "--solver", solver, "--json")
    assert code == 0
    assert json.loads(out)["deadlines"][0]["possible"]


def test_what_is_not_possible_is_reported_and_has_no_loss(tmp_path: Path) -> None:
    (path := tmp_path / "jobs.csv").write_text(HEADER + "a,4,,5,\n")
    found = json.loads(asked(path, "--json", nodes="4", deadline="2")[1])["deadlines"][0]
    assert (found["possible"], found["loss"], found["choices"]) == (False, None, {})
    assert "not possible" in asked(path, nodes="4", deadline="2")[1]


def test_the_table_shows_the_trade_off_and_the_choices(table: Path) -> None:
    code, out, _ = asked(table, "--all-deadlines", "--overlap")
    assert code == 0
    for text in ("0 to 1", "2 to 8", "110.00", "overlapped", "app: x"):
        assert text in out


def test_jobs_come_by_number_whatever_their_order_in_the_file(table: Path) -> None:
    lines = GOOD.splitlines()
    table.write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    found = json.loads(asked(table, "--json", "--all-deadlines")[1])["deadlines"]
    assert list(found[0]["choices"]) == ["7", "12"]


def test_columns_may_come_in_any_order_after_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(b"\xef\xbb\xbfta_min,wait_min,job,loss,nodes,ts_min\r\n4,1,a,9,2,\r\n\r\n")
    found = json.loads(asked(path, "--json", nodes="2")[1])["deadlines"][0]
    assert found["choices"] == {"a": "app"}


@pytest.mark.slow
def test_the_page_is_whole_or_not_there(table: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert asked(table, "--html", str(page))[0] == 0
    assert "Loss over the deadline" in page.read_text()
    assert "add --force" in asked(table, "--html", str(page))[2]
    assert asked(table, "--html", str(page), "--force")[0] == 0
    missing = tmp_path / "no" / "page.html"
    code, out, err = asked(table, "--html", str(missing))
    assert (code, out) == (1, "")
    assert str(missing) in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.csv", "page.html"]


HOSTILE = {
    "negative loss": ("a,4,-1,3,6", "job a: loss: '-1'"),
    "negative time": ("a,4,1,-3,6", "job a: ts_min: '-3'"),
    "not a number": ("a,4,nan,3,6", "job a: loss: 'nan'"),
    "infinite": ("a,4,1,3,inf", "job a: ta_min: 'inf'"),
    "huge exponent": ("a,4,1e99,3,6", "job a: loss: '1e99'"),
    "exponent of three digits": ("a,4,1e999,3,6", "job a: loss: '1e999'"),
    "underscore": ("a,4,1_0,3,6", "job a: loss: '1_0'"),
    "other digits": ("a,٤,1,3,6", "job a: nodes: '\\u0664'"),
    "no nodes": ("a,0,1,3,6", "job a: nodes: '0'"),
    "nodes missing": ("a,,1,3,6", "job a: nodes: ''"),
    "half a node": ("a,1.5,1,3,6", "job a: nodes: '1.5'"),
    "more nodes than there are": ("a,1000000000,1,3,6", "job a: nodes: '1000000000'"),
    "nodes in hexadecimal": ("a,0x10,1,3,6", "job a: nodes: '0x10'"),
    "formula": ("=cmd|' /C calc'!A1,4,1,3,6", "job \"=cmd|' /C calc'!A1\": job:"),
    "formula with at": ("@SUM(1),4,1,3,6", "job '@SUM(1)': job:"),
    "HTML": ("<b>x</b>,4,1,3,6", "job '<b>x</b>': job:"),
    "escape sequence": ("a\x1b[2J,4,1,3,6", "job 'a\\x1b[2J': job:"),
    "NUL": ("a\0,4,1,3,6", "job 'a\\x00': job:"),
    "newline in a name": ('"a\nb",4,1,3,6', "job 'a\\nb': job:"),
    "other way round": ("a\u202eb,4,1,3,6", "job 'a\\u202eb': job:"),
    "a path": ("../../etc/passwd,4,1,3,6", "job '../../etc/passwd': job:"),
    "an option": ("--signal=KILL,4,1,3,6", "job '--signal=KILL': job:"),
    "no name": (",4,1,3,6", "job '': job:"),
    "long name": ("a" * 65 + ",4,1,3,6", "aaa...': job:"),
    "twice": ("a,4,1,3,6\na,4,1,3,6", ":3: job a: job: it is here twice"),
    "too few cells": ("a,4", "2 cells for 5 columns"),
    "too many cells": ("a,4,1,3,6,7", "6 cells for 5 columns"),
    "an open quote": ('"a,4,1,3,6', "no CSV"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_rows_are_one_line_that_names_file_job_and_column(tmp_path: Path, name: str) -> None:
    row, expected = HOSTILE[name]
    (path := tmp_path / "jobs.csv").write_text(HEADER + row + "\n", newline="")
    page = tmp_path / "page.html"
    code, out, err = asked(path, "--html", str(page), nodes="1")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert f"{path}:" in err
    assert expected in err
    assert err.rstrip("\n").isprintable()
    assert not page.exists()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("job,nodes,loss,ts_min\n", "no column ta_min"),
        ("", "no column job, nodes"),
        ("job,nodes,loss,ts_min,ta_min,user\n", "unknown column 'user'"),
        ("job,nodes,loss,ts_min,ta_min,job\n", "column job is here twice"),
        ("job;nodes;loss;ts_min;ta_min\n", "no column job"),
    ],
)
def test_a_table_with_other_columns_is_refused(tmp_path: Path, header: str, expected: str) -> None:
    (path := tmp_path / "jobs.csv").write_text(header)
    code, _, err = asked(path)
    assert code == 1
    assert f"{path}:1: {expected}" in err


def test_a_wait_is_a_part_of_its_time(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job,nodes,loss,ts_min,ta_min,wait_min\na,1,1,1,2,3\n")
    assert "job a: wait_min:" in asked(path, nodes="1")[2]
    for share in ("0", "1.5", "-1", "half"):
        path.write_text(f"job,nodes,loss,ts_min,ta_min,share\na,1,1,1,2,{share}\n")
        assert "job a: share:" in asked(path, nodes="1")[2]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", HEADER.encode() + b"\xe9,1,1,1,1\n"])
def test_what_is_no_text_is_reported(tmp_path: Path, content: bytes) -> None:
    (path := tmp_path / "jobs.csv").write_bytes(content)
    code, _, err = asked(path)
    assert code == 1
    assert "no text in UTF-8" in err


def test_a_file_that_is_not_there_or_no_file_is_reported(tmp_path: Path) -> None:
    assert asked(tmp_path / "none.csv")[0] == 1
    assert "cannot read" in asked(tmp_path)[2]


@pytest.mark.parametrize(
    ("nodes", "deadline", "expected"),
    [
        ("17", "8", "hold 16 nodes"),
        ("1000000000", "8", "hold 16 nodes"),
        ("8", "-1", "zero or more"),
        ("8", "nan", "is not a valid number"),
        ("8", "inf", "zero or more"),
        ("8", "1e9", "at most 10,000 steps"),
        ("8", "2.5", "no multiple"),
        ("eight", "8", "free-nodes"),
    ],
)
def test_questions_that_make_no_sense_are_usage_errors(
    table: Path, nodes: str, deadline: str, expected: str
) -> None:
    code, out, err = asked(table, nodes=nodes, deadline=deadline)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert expected in err


HOSTILE_NAME = "$(reboot); <b>x</b> \x1b[2J ts_min=0"


@dataclass
class Live:
    """A fake Slurm, and what happens while the command waits."""

    slurm: FakeSlurm
    meanwhile: Callable[[], object] = lambda: None

    def pause(self, seconds: float) -> None:
        self.slurm.advance(seconds)
        self.meanwhile()


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Live:
    """Four nodes and three jobs, of one, one and two nodes."""
    fake = FakeSlurm(nodes=4, run_time=lambda _: 100_000.0)
    for nodes in (1, 1, 2):
        fake.submit(SubmitRequest(script="#!/bin/sh\n", name=HOSTILE_NAME, nodes=nodes, comment=HOSTILE_NAME))
        fake.advance(1800)
    found = Live(fake)
    around = Surroundings(client=fake, now=lambda: fake.now, clock=lambda: fake.now, pause=found.pause)
    monkeypatch.setattr(evict_live, "surroundings", lambda _: around)
    return found


@pytest.fixture
def slurm(live: Live) -> FakeSlurm:
    return live.slurm


def evict(*words: str, nodes: str = "2", deadline: str = "4") -> tuple[int, str, str]:
    return call("--live", "--free-nodes", nodes, "--deadline", deadline, *words)


def states(slurm: FakeSlurm) -> list[SlurmJobState]:
    return [job.state for job in slurm.jobs().jobs]


def test_it_shows_the_trade_off_and_the_commands_and_does_nothing(slurm: FakeSlurm) -> None:
    code, out, _ = evict("--app-min", "1")
    assert code == 0
    for text in ("3 jobs that can be evicted hold 4 nodes", "System checkpoints are"):
        assert text in out
    assert "  scancel --signal=USR1 3   # 1 min; if it has not ended in time: scancel 3\n" in out
    assert states(slurm) == [SlurmJobState.RUNNING] * 3
    assert slurm.signals == []


def test_nothing_that_users_write_is_shown_or_read(slurm: FakeSlurm) -> None:
    for words in ([], ["--json"]):
        out = evict(*words)[1]
        assert "reboot" not in out
        assert "\x1b" not in out


def test_without_knowledge_jobs_can_only_be_killed_and_that_is_reported(slurm: FakeSlurm) -> None:
    found = json.loads(evict("--json", "--all-deadlines")[1])
    assert [one["loss"] for one in found["deadlines"]] == [1.0] * 5
    assert found["orders"] == [{"job": "3", "choice": "kill", "commands": [["scancel", "3"]]}]
    assert any("can only be killed" in fact for fact in found["facts"])
    assert "outcomes" not in found


def test_a_table_reports_of_single_jobs(slurm: FakeSlurm, tmp_path: Path) -> None:
    (table := tmp_path / "times.csv").write_text("job,loss,ta_min\n3,50,\n1,,3\n")
    found = json.loads(evict("--json", "--times", str(table))[1])
    assert found["deadlines"][0]["choices"] == {"1": "app", "2": "kill"}


def test_system_checkpoints_need_a_command(slurm: FakeSlurm, tmp_path: Path) -> None:
    (table := tmp_path / "times.csv").write_text("job,ts_min\n3,2\n")
    assert json.loads(evict("--json", "--times", str(table))[1])["deadlines"][0]["choices"] == {"3": "kill"}
    words = ("--json", "--times", str(table), "--system-command", "ckpt --job {job}")
    found = json.loads(evict(*words)[1])
    assert found["orders"][0]["commands"] == [["ckpt", "--job", "3"], ["scancel", "3"]]


def test_executing_asks_and_is_refused_where_no_one_can_answer(slurm: FakeSlurm) -> None:
    code, _, err = evict("--execute")
    assert (code, err.count("\n")) == (2, 1)
    assert "--yes" in err
    assert states(slurm) == [SlurmJobState.RUNNING] * 3


def test_executing_ends_what_was_chosen_and_no_other(slurm: FakeSlurm) -> None:
    slurm.on_signal = lambda _: 20.0
    code, out, _ = evict("--execute", "--yes", "--json", "--app-min", "1")
    found = json.loads(out)
    assert code == 0
    assert found["outcomes"] == [
        {"job": "3", "end": "ended by itself after the signal", "after_s": 20.0, "note": "COMPLETED"}
    ]
    assert states(slurm) == [SlurmJobState.RUNNING, SlurmJobState.RUNNING, SlurmJobState.COMPLETED]


def test_refusals_are_reported_and_too_few_nodes_are_an_error(slurm: FakeSlurm) -> None:
    slurm.others = {3}
    code, out, err = evict("--execute", "--yes", nodes="4")
    assert code == 1
    assert "refused by Slurm: Kill job error on job id 3" in out
    assert "job 3 (kill): refused by Slurm: Kill job error on job id 3: Access/permission denied" in err
    assert "only 2 of 4 nodes were let go" in err.splitlines()[-1]
    assert states(slurm) == [SlurmJobState.CANCELLED, SlurmJobState.CANCELLED, SlurmJobState.RUNNING]


def test_what_is_late_is_reported(live: Live) -> None:
    """Slurm goes away when the job is cancelled, and comes back after the deadline."""
    slurm = live.slurm
    began = slurm.now
    slurm.on_end = lambda _job, _request: setattr(slurm, "reachable", False)
    live.meanwhile = lambda: setattr(slurm, "reachable", slurm.now - began > 150)
    code, _, err = evict("--execute", "--yes", deadline="2")
    assert code == 0
    assert "2 nodes were let go, the last 31 s after the deadline" in err


def test_an_interruption_reports_what_was_done(live: Live) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    live.meanwhile = interrupt
    code, out, err = evict("--execute", "--yes", "--app-min", "1", nodes="4")
    assert code == 130
    assert "interrupted meanwhile: signalled" in " ".join(out.split())
    assert out.count("not done") == 2
    assert err.splitlines()[-1] == "osub: interrupted"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--signal", "NONSENSE"), "there is no signal"),
        (("--signal", "USR1 1"), "there is no signal"),
        (("--app-min", "-1"), "--app-min"),
        (("--app-min", "nan"), "--app-min"),
        (("--every-min", "0"), "--every-min"),
        (("--system-min", "3"), "--system-command"),
        (("--system-command", "ckpt"), "{job}"),
        (("--partition", "none"), "no partition none"),
        (("--overlap",), "table of jobs"),
    ],
)
def test_words_that_make_no_sense_are_refused(
    slurm: FakeSlurm, words: tuple[str, ...], expected: str
) -> None:
    code, out, err = evict(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert expected in err


def test_a_table_and_a_cluster_are_not_mixed(slurm: FakeSlurm, tmp_path: Path) -> None:
    (table := tmp_path / "jobs.csv").write_text("job,nodes,loss,ts_min,ta_min\n1,1,1,1,1\n")
    assert call(str(table), "--free-nodes", "1", "--deadline", "1", "--execute")[0] == 2
    assert "name a table" in call("--free-nodes", "1", "--deadline", "1")[2]


@pytest.mark.parametrize("row", ["1; reboot,3", "$(x),3", "1,-3", "--all,3"])
def test_hostile_tables_of_times_are_refused(slurm: FakeSlurm, tmp_path: Path, row: str) -> None:
    (table := tmp_path / "times.csv").write_text(f"job,ta_min\n{row}\n")
    code, _, err = evict("--times", str(table))
    assert (code, err.count("\n")) == (1, 1)


@pytest.mark.parametrize(("answer", "left"), [("n\n", 3), ("y\n", 2)])
def test_a_question_is_answered_before_anything_is_done(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, answer: str, left: int
) -> None:
    class Typed(StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Typed(answer))
    code, _, err = evict("--execute")
    assert "Evict 1 job of 1 user (1 kill)?" in err
    assert states(slurm).count(SlurmJobState.RUNNING) == left
    assert code == (1 if left == 3 else 0)
    assert ("osub: nothing was evicted" in err) is (left == 3)
