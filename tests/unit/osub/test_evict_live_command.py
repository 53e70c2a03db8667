"""``osub evict`` on a live Slurm, here a fake one: what it shows, asks, refuses and does."""

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
from osub.live.evicting import Surroundings
from tests.fixtures.fake_slurm import FakeSlurm
from tests.unit.osub.test_evict_command import call

HOSTILE = "$(reboot); <b>x</b> \x1b[2J ts_min=0"


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
        fake.submit(SubmitRequest(script="#!/bin/sh\n", name=HOSTILE, nodes=nodes, comment=HOSTILE))
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
