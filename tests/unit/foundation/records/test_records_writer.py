from __future__ import annotations

import gzip
import os
from pathlib import Path

import msgspec
import pytest

from foundation.errors import InputError, OutputError
from foundation.records import (
    AllocationRecord,
    HostRecord,
    JobEntry,
    Placement,
    RunWriter,
    SliceRecord,
    load_run,
    trace_sha256,
)
from tests.fixtures.records import TRACE_TEXT, make_ended, make_info, make_job, make_trace


def create(folder: Path) -> RunWriter:
    return RunWriter.create(folder / "RUN", make_info(), make_trace(folder))


def test_an_unfinished_run_is_read_from_its_journals(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_job(make_job())
        writer.event("submitted", trace_job=1)
    run = load_run(tmp_path / "RUN")
    assert not run.complete
    assert run.jobs["trace_job"].to_list() == [1]
    assert [event["kind"] for event in run.events()] == ["submitted"]
    assert run.info.trace_sha256 == trace_sha256(tmp_path / "tiny.swf")


def test_the_last_row_of_a_job_wins_across_a_reopening(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_job(make_job(1), make_job(2))
    with RunWriter.reopen(tmp_path / "RUN") as writer:
        assert writer.jobs() == {1: make_job(1), 2: make_job(2)}
        writer.append_job(make_ended(2))
        writer.append_slice(SliceRecord(slice=0, start_s=0, length_s=0.25, job=101, node="n1", role="run"))
        held = AllocationRecord(
            job=101, from_s=1, to_s=3, placement=(Placement("n1", (0, 1, 3)),), why="start"
        )
        writer.append_entry(JobEntry(make_ended(1), (held,)))
        assert writer.entries() == {1: JobEntry(make_ended(1), (held,)), 2: JobEntry(make_ended(2))}
        writer.finish(wall_s=3.5, cpu_s=0.1)
    run = load_run(tmp_path / "RUN")
    assert run.complete
    assert run.jobs["trace_job"].to_list() == [1, 2]
    assert run.jobs["state"].to_list() == ["COMPLETED", "COMPLETED"]
    assert run.jobs["placement"].to_list() == [[{"node": "n1", "cores": "0-1,3"}]] * 2
    assert run.slices is not None
    assert run.allocations is not None
    assert run.info.wall_s == 3.5
    assert sorted(path.name for path in (tmp_path / "RUN").iterdir()) == [
        "allocations.parquet",
        "jobs.parquet",
        "run.json",
        "slices.parquet",
        "trace.swf.gz",
    ]


def sample(at_s: float, own_s: float | None = 0.5) -> HostRecord:
    return HostRecord(at_s=at_s, length_s=1.0, host="h", cpus=2, used_s=1.5, steal_s=0.0, own_s=own_s)


def test_samples_of_the_host_outlive_a_kill_and_become_a_table(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_host(sample(1.0), sample(2.0))
    journal = tmp_path / "RUN" / "host.journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-3])  # torn by a kill
    unfinished = load_run(tmp_path / "RUN")
    assert unfinished.host is not None
    assert unfinished.host["at_s"].to_list() == [1.0]
    with RunWriter.reopen(tmp_path / "RUN") as writer:
        writer.append_host(sample(3.0, None))
        writer.append_job(make_ended(1))
        writer.finish(wall_s=1)
    run = load_run(tmp_path / "RUN")
    assert run.host is not None
    assert run.host.select("at_s", "own_s").rows() == [(1.0, 0.5), (3.0, None)]
    assert not journal.exists()


def test_a_run_of_which_no_one_sampled_the_host_has_no_such_table(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_job(make_ended(1))
        writer.finish(wall_s=1)
    assert load_run(tmp_path / "RUN").host is None
    assert not (tmp_path / "RUN" / "host.parquet").exists()


@pytest.mark.parametrize("field", ["length_s", "cpus", "used_s", "at_s"])
def test_a_sample_that_breaks_a_rule_is_refused(tmp_path: Path, field: str) -> None:
    with create(tmp_path) as writer, pytest.raises(InputError, match=r"host.journal of at_s .*Expected"):
        writer.append_host(msgspec.structs.replace(sample(1.0), **{field: -1}))


def test_a_run_before_its_first_job_is_empty(tmp_path: Path) -> None:
    create(tmp_path).close()
    run = load_run(tmp_path / "RUN")
    assert (run.jobs.height, run.slices, run.allocations, list(run.events())) == (0, None, None, [])


def test_the_copy_of_the_trace_has_the_same_text_and_always_the_same_bytes(tmp_path: Path) -> None:
    copies = []
    for name in ("a", "b"):
        RunWriter.create(tmp_path / name, make_info(), make_trace(tmp_path)).close()
        copies.append((tmp_path / name / "trace.swf.gz").read_bytes())
    assert copies[0] == copies[1]
    assert gzip.decompress(copies[0]).decode() == TRACE_TEXT
    packed = tmp_path / "t.swf.gz"
    packed.write_bytes(copies[0])
    RunWriter.create(tmp_path / "c", make_info(), packed).close()
    assert (tmp_path / "c" / "trace.swf.gz").read_bytes() == copies[0]
    assert trace_sha256(packed) == trace_sha256(tmp_path / "tiny.swf")


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    create(tmp_path).close()
    with pytest.raises(OutputError, match="already holds a run; --resume goes on"):
        create(tmp_path)


def test_a_folder_with_other_files_is_refused_and_an_empty_one_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "RUN"
    folder.mkdir()
    (folder / "thesis.tex").touch()
    with pytest.raises(OutputError, match="other files"):
        create(tmp_path)
    (folder / "thesis.tex").unlink()
    create(tmp_path).close()
    assert (folder / "run.json").exists()


@pytest.mark.parametrize("bad", ["missing", "damaged", "folder"])
def test_a_trace_that_cannot_be_read_leaves_nothing(tmp_path: Path, bad: str) -> None:
    trace = tmp_path / "t.swf.gz"
    if bad == "damaged":
        trace.write_bytes(gzip.compress(b"1 2 3\n" * 1000)[:-9])
    elif bad == "folder":
        trace.mkdir()
    with pytest.raises(InputError, match=r"t\.swf\.gz"):
        RunWriter.create(tmp_path / "out" / "RUN", make_info(), trace)
    assert list((tmp_path / "out").iterdir()) == []


def test_another_trace_than_the_described_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not the one that the run is about"):
        RunWriter.create(tmp_path / "RUN", make_info(trace_sha256="0" * 64), make_trace(tmp_path))


def test_a_wrong_description_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"RUN/run\.json: .*system"):
        RunWriter.create(tmp_path / "RUN", make_info(system="12 nodes"), make_trace(tmp_path))
    with pytest.raises(InputError, match="interactive_nodes is null"):
        RunWriter.create(tmp_path / "RUN", make_info(queues="mq"), make_trace(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.swf"]


def test_an_unwritable_folder_says_so(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    if os.geteuid() == 0:
        closed = Path("/sys")  # nobody, not even root, may make a folder there
    with pytest.raises(OutputError, match="choose another folder"):
        RunWriter.create(closed / "RUN", make_info(), make_trace(tmp_path))


def test_a_path_below_a_file_says_so(tmp_path: Path) -> None:
    trace = make_trace(tmp_path)
    with pytest.raises(OutputError, match="cannot create"):
        RunWriter.create(trace / "RUN", make_info(), trace)


def test_a_finished_run_cannot_be_reopened(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_job(make_ended())
        writer.finish(wall_s=1)
    with pytest.raises(OutputError, match="finished"):
        RunWriter.reopen(tmp_path / "RUN")


def test_two_writers_cannot_have_one_run(tmp_path: Path) -> None:
    with create(tmp_path), pytest.raises(OutputError, match="another process is writing"):
        RunWriter.reopen(tmp_path / "RUN")
    RunWriter.reopen(tmp_path / "RUN").close()


def test_a_run_without_a_state_for_every_job_cannot_finish(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_job(make_job(7))
        with pytest.raises(InputError, match="column state of trace_job 7"):
            writer.finish(wall_s=1)
    assert not load_run(tmp_path / "RUN").complete


def test_a_finish_that_was_killed_before_its_last_rename_can_be_done_again(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_job(make_ended())
    (tmp_path / "RUN" / ".jobs.parquet.partial").write_bytes(b"PAR1 torn")
    with RunWriter.reopen(tmp_path / "RUN") as writer:
        writer.finish(wall_s=1)
    assert load_run(tmp_path / "RUN").complete


def test_slices_that_are_collected_again_are_not_doubled(tmp_path: Path) -> None:
    slices = [
        SliceRecord(slice=n, start_s=n * 0.25, length_s=0.25, job=101, node="n1", role="run")
        for n in range(4)
    ]
    with create(tmp_path) as writer:
        writer.append_job(make_ended())
        writer.replace_slices(slices)
    # The finish failed, say on a full disk; another session collects them again.
    with RunWriter.reopen(tmp_path / "RUN") as writer:
        writer.replace_slices(slices)
        writer.finish(wall_s=1)
    run = load_run(tmp_path / "RUN")
    assert run.slices is not None
    assert run.slices["slice"].to_list() == [0, 1, 2, 3]


def test_a_refused_row_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_job(make_job(1))
        with pytest.raises(InputError, match="trace_job 3"):
            writer.append_job(make_job(2), make_job(3, nodes=0))
        assert list(writer.jobs()) == [1]


def test_an_event_that_is_no_plain_data_is_refused(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        with pytest.raises(InputError, match="event odd"):
            writer.event("odd", what=object())
        writer.event("fine", seconds=1.5)
    assert [event["kind"] for event in load_run(tmp_path / "RUN").events()] == ["fine"]


def test_a_torn_event_is_cut_off_before_the_next(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.event("first")
    log = tmp_path / "RUN" / "log.jsonl"
    log.write_bytes(log.read_bytes() + b'{"kind": "to')
    assert len(list(load_run(tmp_path / "RUN").events())) == 1
    with RunWriter.reopen(tmp_path / "RUN") as writer:
        writer.event("second")
    assert [event["kind"] for event in load_run(tmp_path / "RUN").events()] == ["first", "second"]


def test_facts_learnt_during_the_run_reach_its_description(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.update_info(slurm_version="22.05.8")
    assert load_run(tmp_path / "RUN").info.slurm_version == "22.05.8"
