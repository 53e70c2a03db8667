from __future__ import annotations

from pathlib import Path

import pytest

from osub.errors import InputError, OutputError
from osub.records import (
    JobRecord,
    Placement,
    RunInfo,
    RunWriter,
    SliceRecord,
    load_run,
    trace_sha256,
)


def make_trace(folder: Path) -> Path:
    trace = folder / "tiny.swf"
    trace.write_text("; Version: 2.2\n1 0 0 10 1 -1 -1 1 -1 -1 1 1 1 1 1 1 -1 -1\n", encoding="utf-8")
    return trace


def make_info(label: str = "tiny") -> RunInfo:
    return RunInfo(
        kind="real",
        label=label,
        trace_name="tiny",
        system="N2C4",
        queues="sq",
        policy="backfill",
        multiplicity=2,
        started="2025-01-02T03:04:05.678Z",
    )


def make_job(trace_job: int = 1, **fields: object) -> JobRecord:
    values: dict[str, object] = {
        "trace_job": trace_job,
        "job_id": 100 + trace_job,
        "kind": "batch",
        "nodes": 1,
        "cores": 3,
        "due_s": 0.0,
        "submit_s": 0.5,
        "placement": (Placement("n1", (0, 1, 3)),),
        **fields,
    }
    return JobRecord(**values)  # type: ignore[arg-type]


def make_ended(trace_job: int = 1, **fields: object) -> JobRecord:
    return make_job(trace_job, **{"start_s": 1.0, "end_s": 3.0, "state": "COMPLETED", **fields})


def test_an_unfinished_run_is_read_from_its_journals(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "RUN", make_info(), make_trace(tmp_path)) as writer:
        writer.append_job(make_job())
        writer.event("submitted", trace_job=1)
    run = load_run(tmp_path / "RUN")
    assert not run.complete
    assert run.jobs["trace_job"].to_list() == [1]
    assert [event["kind"] for event in run.events()] == ["submitted"]
    assert run.info.trace_sha256 == trace_sha256(tmp_path / "tiny.swf")


def test_the_last_row_of_a_job_wins_across_a_reopening(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "RUN", make_info(), make_trace(tmp_path)) as writer:
        writer.append_job(make_job(1), make_job(2))
    with RunWriter.reopen(tmp_path / "RUN") as writer:
        assert writer.jobs() == {1: make_job(1), 2: make_job(2)}
        writer.append_job(make_ended(2), make_ended(1))
        writer.append_slice(SliceRecord(slice=0, start_s=0, length_s=0.25, job=101, node="n1", role="run"))
        writer.finish(wall_s=3.5, cpu_s=0.1)
    run = load_run(tmp_path / "RUN")
    assert run.complete
    assert run.jobs["trace_job"].to_list() == [1, 2]
    assert run.jobs["state"].to_list() == ["COMPLETED", "COMPLETED"]
    assert run.jobs["placement"].to_list() == [[{"node": "n1", "cores": "0-1,3"}]] * 2
    assert run.slices is not None
    assert run.info.wall_s == 3.5
    assert sorted(path.name for path in (tmp_path / "RUN").iterdir()) == [
        "jobs.parquet",
        "run.json",
        "slices.parquet",
        "trace.swf.gz",
    ]


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    trace = make_trace(tmp_path)
    RunWriter.create(tmp_path / "RUN", make_info(), trace).close()
    with pytest.raises(OutputError, match="already holds a run; use --resume or another folder"):
        RunWriter.create(tmp_path / "RUN", make_info(), trace)


def test_a_finished_run_cannot_be_reopened(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "RUN", make_info(), make_trace(tmp_path)) as writer:
        writer.append_job(make_ended())
        writer.finish(wall_s=1)
    with pytest.raises(OutputError, match="finished"):
        RunWriter.reopen(tmp_path / "RUN")


def test_a_run_without_a_state_for_every_job_cannot_finish(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "RUN", make_info(), make_trace(tmp_path)) as writer:
        writer.append_job(make_job(7))
        with pytest.raises(InputError, match="column state of trace_job 7"):
            writer.finish(wall_s=1)
    assert not load_run(tmp_path / "RUN").complete
