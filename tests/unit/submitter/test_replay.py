"""A whole replay on a fake Slurm: rows, resume, detach, cancel, outage, lost answers."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import polars as pl
import pytest

from foundation.errors import ClusterError, InputError, OutputError
from foundation.records import HostRecord, load_run
from foundation.slurm import JobSnapshot, SlurmJobState, SubmitRequest
from submitter.plan.replay_options import ReplayOptions, Timing
from submitter.replay.replay_loop import Replay
from submitter.replay.replay_progress import ReplayProgress, Wish
from tests.fixtures.fake_slurm import FakeSlurm
from tests.fixtures.replay_world import make_world

TRACE = "".join(
    f"{number} {submit} -1 1 {procs} -1 -1 {procs} 60 -1 1 1 1 -1 {queue} -1 -1 -1\n"
    for number, submit, procs, queue in [(1, 0, 1, 1), (2, 0, 2, 1), (3, 0.3, 1, 0), (4, 0.3, 1, 1)]
)


class LiveFake(FakeSlurm):
    """A fake whose clock is the real one and whose jobs write the stamps that their wrapper would."""

    def __init__(self, run_s: float = 0.3) -> None:
        super().__init__(
            nodes=2, cores=1, multiplicity=2, run_time=lambda _: run_s, start_time=time.time(),
            uid=os.geteuid(),
        )  # fmt: skip
        self.submitted: list[str] = []

    def submit(self, request: SubmitRequest) -> int:
        self.submitted.append(request.name)
        return super().submit(request)

    def jobs(self) -> JobSnapshot:
        self.advance(max(0.0, time.time() - self.now))
        return super().jobs()


QUICK = Timing(turn_s=0.02, poll_s=0.05, away_s=0.05, look_s=0.2, gone_s=0.2, stamps_s=0.05, killed_s=0.05)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (path := tmp_path / "small.swf").write_text(TRACE)
    return path


def rows(run: Path) -> list[dict[str, object]]:
    return load_run(run).jobs.sort("trace_job").to_dicts()


def test_every_job_of_the_trace_has_one_row(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert Replay.begin(trace, out, LiveFake(), ReplayOptions(), timing=QUICK).run()
    run = load_run(out)
    assert run.complete
    assert run.jobs["trace_job"].to_list() == [1, 2, 3, 4]
    assert set(run.jobs["state"]) == {"COMPLETED"}
    assert (run.info.system, run.info.multiplicity) == ("N2C1", 2)
    assert run.info.slurm_config == {
        "KillWait": "30 sec",
        "PreemptMode": "OFF",
        "SelectTypeParameters": "CR_CORE_MEMORY,CR_LLN",
    }
    assert run.jobs.filter(pl.col("start_s") < pl.col("submit_s")).is_empty()
    assert not (out / "jobs").exists()


def test_samples_of_the_host_are_recorded_as_they_come(trace: Path, tmp_path: Path) -> None:
    asked: list[float] = []
    lasts: list[bool] = []

    def look(at_s: float, *, last: bool = False) -> HostRecord | None:
        asked.append(at_s)
        lasts.append(last)
        if (len(asked) % 3 and not last) or at_s < 0:
            return None
        return HostRecord(at_s=at_s, length_s=0.06, host="h", cpus=2, used_s=0.1, steal_s=0.0)

    assert Replay.begin(trace, tmp_path / "run", LiveFake(), ReplayOptions(), timing=QUICK).run(look=look)
    run = load_run(tmp_path / "run")
    assert run.host is not None
    assert 0 < run.host.height <= len(asked) // 3 + 1
    assert lasts.index(True) == len(lasts) - 1
    assert run.host["own_s"].null_count() == run.host.height


def test_an_existing_run_is_refused_without_resume(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious").touch()
    with pytest.raises(OutputError):
        Replay.begin(trace, tmp_path / "run", LiveFake(), ReplayOptions(), timing=QUICK)


def test_a_detached_replay_is_resumed_without_loss_or_double(trace: Path, tmp_path: Path) -> None:
    slurm, out = LiveFake(), tmp_path / "run"

    def detach_early(now: ReplayProgress) -> Wish:
        return Wish.DETACH if now.total - now.unsubmitted >= 2 else Wish.GO_ON

    assert not Replay.begin(trace, out, slurm, ReplayOptions(), timing=QUICK).run(detach_early)
    document = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert document[-1]["kind"] == "detached"
    assert document[-1]["unsubmitted"] == 4 - len(slurm.submitted)
    assert not load_run(out).complete
    assert Replay.resume(out, slurm, timing=QUICK).run()
    assert [row["state"] for row in rows(out)] == ["COMPLETED"] * 4
    assert len(slurm.submitted) == len(set(slurm.submitted)) == 4


def test_a_job_submitted_just_before_a_kill_is_found_by_its_name(trace: Path, tmp_path: Path) -> None:
    """The kill comes between Slurm's answer and the row: the row is missing, the job is not doubled."""
    slurm, out = LiveFake(), tmp_path / "run"
    first = Replay.begin(trace, out, slurm, ReplayOptions(), timing=QUICK)
    run_id = load_run(out).info.options["run_id"]
    first._writer.close()
    slurm.submit(SubmitRequest(script="#!/bin/sh\n", name=f"osub-{run_id}-1"))
    assert Replay.resume(out, slurm, timing=QUICK).run()
    assert len(slurm.submitted) == len(set(slurm.submitted)) == 4


def test_a_job_that_slurm_has_forgotten_is_known_by_its_own_stamps(trace: Path, tmp_path: Path) -> None:
    slurm, out = LiveFake(), tmp_path / "run"
    first = Replay.begin(trace, out, slurm, ReplayOptions(), timing=QUICK)
    origin = first._origin
    first._writer.close()
    ms = int(origin * 1000)
    (out / "jobs" / "1.start").write_text(json.dumps({"slurm_job": 77, "ms": ms + 100}))
    (out / "jobs" / "1.end").write_text(json.dumps({"ms": ms + 400, "exit_code": 0}))
    report = {
        "cpu_s": 0.25, "app": "rrba", "state": "completed", "steps": 9, "end_ms": ms + 390,
        "busy_s": 0.2,
    }  # fmt: skip
    (out / "jobs" / "1.report").write_text(json.dumps(report))
    assert Replay.resume(out, slurm, timing=QUICK).run()
    first_row = rows(out)[0]
    assert (first_row["job_id"], first_row["state"], first_row["cpu_s"]) == (77, "COMPLETED", 0.25)
    assert first_row["end_s"] == pytest.approx(0.4, abs=0.002)  # stamps are whole milliseconds
    steps = [first_row["first_step_s"], first_row["last_step_s"]]
    assert steps == pytest.approx([0.19, 0.39], abs=0.002)
    assert not any(name.endswith("-1") for name in slurm.submitted)


def test_cancel_ends_all_jobs_and_finishes_the_run(trace: Path, tmp_path: Path) -> None:
    slurm, out = LiveFake(run_s=60.0), tmp_path / "run"

    def cancel(now: ReplayProgress) -> Wish:
        return Wish.CANCEL if now.running else Wish.GO_ON

    assert Replay.begin(trace, out, slurm, ReplayOptions(), timing=QUICK).run(cancel)
    assert {row["state"] for row in rows(out)} == {"CANCELLED"}
    assert all(job.state.is_over for job in slurm.jobs().jobs)


def test_an_outage_is_waited_out(trace: Path, tmp_path: Path) -> None:
    slurm, out = LiveFake(), tmp_path / "run"
    turns = count()

    def outage(_: ReplayProgress) -> Wish:
        turn = next(turns)
        if turn in (3, 15):
            slurm.reachable = turn == 15
        return Wish.GO_ON

    assert Replay.begin(trace, out, slurm, ReplayOptions(), timing=QUICK).run(outage)
    assert [row["state"] for row in rows(out)] == ["COMPLETED"] * 4
    assert {"slurm away", "slurm back"} <= {event["kind"] for event in load_run(out).events()}


def test_slurm_away_at_the_beginning_is_an_error_and_leaves_nothing(trace: Path, tmp_path: Path) -> None:
    slurm = LiveFake()
    slurm.reachable = False
    with pytest.raises(ClusterError, match="does not answer"):
        Replay.begin(trace, tmp_path / "run", slurm, ReplayOptions(), timing=QUICK)
    assert not (tmp_path / "run").exists()


def _bad_traces() -> Iterator[tuple[str, bytes]]:
    yield "empty", b""
    yield "comments", b"; Version: 2.2\n; nothing else\n"
    yield "nul", b"1 0 -1 10 1 -1 -1 1 60 -1 1 1 1 -1 1 -1\0-1 -1\n"
    yield "negative", b"1 -5 -1 10 1 -1 -1 1 60 -1 1 1 1 -1 1 -1 -1 -1\n"
    yield "short", b"1 0 -1 10\n"


@pytest.mark.parametrize(("name", "content"), list(_bad_traces()))
def test_a_bad_trace_is_an_error_and_leaves_nothing(name: str, content: bytes, tmp_path: Path) -> None:
    (trace := tmp_path / f"{name}.swf").write_bytes(content)
    with pytest.raises(InputError) as caught:
        Replay.begin(trace, tmp_path / "run", LiveFake(), ReplayOptions(), timing=QUICK)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_refused_job_has_a_row_and_a_reason(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.slurm.refuse = lambda request: "Invalid qos specification" if request.nodes == 2 else None
    run = world.replay(trace)
    refused = rows(world.out)[1]
    assert (refused["state"], refused["job_id"], refused["start_s"]) == ("REFUSED", None, None)
    assert [str(event["why"]) for event in run.events() if event["kind"] == "refused"] == [
        f"Slurm refused osub-{run.info.options['run_id']}-2: Invalid qos specification"
    ]


def test_the_run_holds_the_trace_in_its_own_seconds(tmp_path: Path) -> None:
    (trace := tmp_path / "late.swf").write_text(
        re.sub(r"^(\d) (\S+)", lambda m: f"{m[1]} {1000 + 10 * float(m[2])}", TRACE, flags=re.MULTILINE)
    )
    run = make_world(tmp_path).replay(trace, ReplayOptions(speedup=10))
    assert run.jobs["due_s"].to_list() == pytest.approx([0.0, 0.0, 0.3, 0.3])
    assert run.jobs["dedicated_s"].to_list() == pytest.approx([0.1] * 4)


def test_unsorted_submissions_are_sorted(tmp_path: Path) -> None:
    trace = tmp_path / "unsorted.swf"
    trace.write_text("".join(reversed(TRACE.splitlines(keepends=True))))
    run = make_world(tmp_path).replay(trace)
    assert run.jobs.sort("trace_job")["due_s"].to_list() == [0.0, 0.0, 0.3, 0.3]
    assert run.jobs["submitted_s"].is_not_null().all()


def test_a_failed_job_is_reported_with_what_it_said(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, run_s=5.0)
    world.at(2.0, lambda: world.slurm.end(1, SlurmJobState.FAILED))
    session = world.begin(trace)
    (world.out / "jobs" / "1.out").write_bytes(b"starting\nslurm_script: 21: nosuchapp: not found\x1b[0m\n\n")
    assert session.run(world.limit(3600))
    assert session.states() == {"COMPLETED": 3, "FAILED": 1}
    failure = session.failure()
    assert failure is not None
    assert failure.startswith("job 1 with exit code 1: slurm_script: 21: nosuchapp: not found?[0m (/")
