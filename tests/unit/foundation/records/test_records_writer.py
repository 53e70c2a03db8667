"""Records are written and read: journal, tables."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest

from foundation import records
from foundation.errors import InputError, OutputError
from foundation.id_list import write_ids
from foundation.records.journal import AppendFile, frame, good_length, read_frames
from foundation.records.table_files import frame_of
from tests.fixtures.records import TRACE_TEXT, make_ended, make_info, make_job, make_trace, rows_of


def create(folder: Path) -> records.RunWriter:
    return records.RunWriter.create(folder / "RUN", make_info(), make_trace(folder))


def test_an_unfinished_run_is_read_from_its_journals(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_job(make_job())
        writer.event("submitted", trace_job=1)
    run = records.load_run(tmp_path / "RUN")
    assert not run.complete
    assert run.jobs["trace_job"].to_list() == [1]
    assert [event["kind"] for event in run.events()] == ["submitted"]
    assert run.info.trace_sha256 == records.trace_sha256(tmp_path / "tiny.swf")


def test_the_last_row_of_a_job_wins_across_a_reopening(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_job(make_job(1), make_job(2))
    with records.RunWriter.reopen(tmp_path / "RUN") as writer:
        assert writer.entries() == {n: records.JobEntry(make_job(n)) for n in (1, 2)}
        writer.append_job(make_ended(2))
        writer.replace_slices(
            [records.SliceRecord(slice=0, start_s=0, length_s=0.25, job=101, node="n1", role="run")]
        )
        held = records.AllocationRecord(
            job=101, from_s=1, to_s=3, placement=(records.Placement("n1", (0, 1, 3)),), why="start"
        )
        writer.append_entry(records.JobEntry(make_ended(1), (held,)))
        assert writer.entries() == {
            1: records.JobEntry(make_ended(1), (held,)),
            2: records.JobEntry(make_ended(2)),
        }
        writer.finish(wall_s=3.5, cpu_s=0.1)
    run = records.load_run(tmp_path / "RUN")
    assert run.complete
    assert run.jobs["trace_job"].to_list() == [1, 2]
    assert run.jobs["state"].to_list() == ["COMPLETED", "COMPLETED"]
    assert run.jobs["placement"].to_list() == [[{"node": "n1", "cores": "0-1,3"}]] * 2
    assert run.slices is not None
    assert run.allocations is not None
    assert run.info.wall_s == 3.5
    assert sorted(path.name for path in (tmp_path / "RUN").iterdir()) == [
        "allocations.parquet", "jobs.parquet", "run.json", "slices.parquet", "trace.swf.gz",
    ]  # fmt: skip


def test_a_node_that_came_while_the_run_went_on_is_one_of_its_nodes(tmp_path: Path) -> None:
    place = (records.Placement("n3", (0,)),)
    held = records.AllocationRecord(job=101, from_s=1, to_s=3, placement=place, why="start")
    with records.RunWriter.create(
        tmp_path / "RUN", make_info(node_names=("n1", "n2")), make_trace(tmp_path)
    ) as writer:
        writer.append_entry(records.JobEntry(make_ended(1, placement=place), (held,)))
        assert records.load_run(tmp_path / "RUN").info.node_names == ("n1", "n2", "n3")
        writer.finish(wall_s=1)
    assert records.load_run(tmp_path / "RUN").info.node_names == ("n1", "n2", "n3")


def sample(at_s: float, own_s: float | None = 0.5) -> records.HostRecord:
    return records.HostRecord(at_s=at_s, length_s=1.0, host="h", cpus=2, used_s=1.5, steal_s=0.0, own_s=own_s)


def test_samples_of_the_host_outlive_a_kill_and_become_a_table(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_host(sample(1.0), sample(2.0))
    journal = tmp_path / "RUN" / "host.journal"
    journal.write_bytes(journal.read_bytes()[:-3])  # torn by a kill
    unfinished = records.load_run(tmp_path / "RUN")
    assert unfinished.host is not None
    assert unfinished.host["at_s"].to_list() == [1.0]
    with records.RunWriter.reopen(tmp_path / "RUN") as writer:
        writer.append_host(sample(3.0, None))
        writer.append_job(make_ended(1))
        writer.finish(wall_s=1)
    run = records.load_run(tmp_path / "RUN")
    assert run.host is not None
    assert run.host.select("at_s", "own_s").rows() == [(1.0, 0.5), (3.0, None)]
    assert not journal.exists()


def test_a_run_of_which_no_one_sampled_the_host_has_no_such_table(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_job(make_ended(1))
        writer.finish(wall_s=1)
    assert records.load_run(tmp_path / "RUN").host is None
    assert not (tmp_path / "RUN" / "host.parquet").exists()


@pytest.mark.parametrize("field", ["length_s", "cpus", "used_s", "at_s"])
def test_a_sample_that_breaks_a_rule_is_refused(tmp_path: Path, field: str) -> None:
    with create(tmp_path) as writer, pytest.raises(InputError, match=r"host.journal of at_s .*Expected"):
        writer.append_host(msgspec.structs.replace(sample(1.0), **{field: -1}))


def test_a_run_before_its_first_job_is_empty(tmp_path: Path) -> None:
    create(tmp_path).close()
    run = records.load_run(tmp_path / "RUN")
    assert (run.jobs.height, run.slices, run.allocations, list(run.events())) == (0, None, None, [])


def test_the_copy_of_the_trace_has_the_same_text_and_always_the_same_bytes(tmp_path: Path) -> None:
    copies = []
    for name in ("a", "b"):
        records.RunWriter.create(tmp_path / name, make_info(), make_trace(tmp_path)).close()
        copies.append((tmp_path / name / "trace.swf.gz").read_bytes())
    assert copies[0] == copies[1]
    assert gzip.decompress(copies[0]).decode() == TRACE_TEXT
    (packed := tmp_path / "t.swf.gz").write_bytes(copies[0])
    records.RunWriter.create(tmp_path / "c", make_info(), packed).close()
    assert (tmp_path / "c" / "trace.swf.gz").read_bytes() == copies[0]
    assert records.trace_sha256(packed) == records.trace_sha256(tmp_path / "tiny.swf")


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    create(tmp_path).close()
    with pytest.raises(OutputError, match="already holds a run; --resume goes on"):
        create(tmp_path)


def test_a_folder_with_other_files_is_refused_and_an_empty_one_is_taken(tmp_path: Path) -> None:
    (folder := tmp_path / "RUN").mkdir()
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
        records.RunWriter.create(tmp_path / "out" / "RUN", make_info(), trace)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trace_sha256": "0" * 64}, "not the one that the run is about"),
        ({"system": "12 nodes"}, r"RUN/run\.json: .*system"),
        ({"queues": "mq"}, "interactive_nodes is null"),
    ],
)
def test_a_wrong_description_is_refused_by_the_name_of_its_file(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        records.RunWriter.create(tmp_path / "RUN", make_info(**fields), make_trace(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.swf"]


def test_an_unwritable_folder_says_so(tmp_path: Path) -> None:
    (closed := tmp_path / "closed").mkdir(mode=0o500)
    if os.geteuid() == 0:
        closed = Path("/sys")  # no user, not even root, may make a folder there
    with pytest.raises(OutputError, match="choose another folder"):
        records.RunWriter.create(closed / "RUN", make_info(), make_trace(tmp_path))


def test_a_path_below_a_file_says_so(tmp_path: Path) -> None:
    trace = make_trace(tmp_path)
    with pytest.raises(OutputError, match="cannot create"):
        records.RunWriter.create(trace / "RUN", make_info(), trace)


def test_a_finished_run_cannot_be_reopened(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_job(make_ended())
        writer.finish(wall_s=1)
    with pytest.raises(OutputError, match="finished"):
        records.RunWriter.reopen(tmp_path / "RUN")


def test_two_writers_cannot_have_one_run(tmp_path: Path) -> None:
    with create(tmp_path), pytest.raises(OutputError, match="another process is writing"):
        records.RunWriter.reopen(tmp_path / "RUN")
    records.RunWriter.reopen(tmp_path / "RUN").close()


def test_a_run_without_a_state_for_every_job_cannot_finish(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_job(make_job(7))
        with pytest.raises(InputError, match="column state of trace_job 7"):
            writer.finish(wall_s=1)
    assert not records.load_run(tmp_path / "RUN").complete


def test_a_finish_that_was_killed_before_its_last_rename_can_be_done_again(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_job(make_ended())
    (tmp_path / "RUN" / ".jobs.parquet.partial").write_bytes(b"PAR1 torn")
    with records.RunWriter.reopen(tmp_path / "RUN") as writer:
        writer.finish(wall_s=1)
    assert records.load_run(tmp_path / "RUN").complete


def test_slices_that_are_collected_again_are_not_doubled(tmp_path: Path) -> None:
    slices = [
        records.SliceRecord(slice=n, start_s=n * 0.25, length_s=0.25, job=101, node="n1", role="run")
        for n in range(4)
    ]
    with create(tmp_path) as writer:
        writer.append_job(make_ended())
        writer.replace_slices(slices)
    # The finish failed, say on a full disk; another session collects them again.
    with records.RunWriter.reopen(tmp_path / "RUN") as writer:
        writer.replace_slices(slices)
        writer.finish(wall_s=1)
    run = records.load_run(tmp_path / "RUN")
    assert run.slices is not None
    assert run.slices["slice"].to_list() == [0, 1, 2, 3]


def test_a_refused_row_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.append_job(make_job(1))
        with pytest.raises(InputError, match="trace_job 3"):
            writer.append_job(make_job(2), make_job(3, nodes=0))
        assert list(writer.entries()) == [1]


def test_an_event_that_is_no_plain_data_is_refused(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        with pytest.raises(InputError, match="event odd"):
            writer.event("odd", what=object())
        writer.event("fine", seconds=1.5)
    assert [event["kind"] for event in records.load_run(tmp_path / "RUN").events()] == ["fine"]


def test_a_torn_event_is_cut_off_before_the_next(tmp_path: Path) -> None:
    with create(tmp_path) as writer:
        writer.event("first")
    (log := tmp_path / "RUN" / "log.jsonl").write_bytes(log.read_bytes() + b'{"kind": "to')
    assert len(list(records.load_run(tmp_path / "RUN").events())) == 1
    with records.RunWriter.reopen(tmp_path / "RUN") as writer:
        writer.event("second")
    assert [event["kind"] for event in records.load_run(tmp_path / "RUN").events()] == ["first", "second"]


PAYLOADS = [b"alpha", b"b", b"gamma" * 10]


def contents(path: Path) -> list[bytes]:
    return [payload for _, payload in read_frames(path)]


def test_a_journal_cut_at_any_byte_keeps_every_whole_row(tmp_path: Path) -> None:
    frames = [frame(payload) for payload in PAYLOADS]
    data = b"".join(frames)
    ends = [len(b"".join(frames[:count])) for count in range(len(frames) + 1)]
    path = tmp_path / "j"
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        whole = sum(end <= length for end in ends) - 1
        assert contents(path) == PAYLOADS[:whole]
        assert good_length(path) == ends[whole]


def test_a_last_row_that_never_reached_the_disk_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "j"
    whole = frame(b"row")
    last = frame(b"lost" * 9)
    for kept in (0, 5, 12, 20):
        path.write_bytes(whole + last[:kept] + bytes(len(last) - kept) + bytes(100))
        assert contents(path) == [b"row"]


def test_a_tail_of_zeros_is_what_a_power_cut_leaves(tmp_path: Path) -> None:
    (path := tmp_path / "j").write_bytes(frame(b"row") + bytes(4096))
    assert contents(path) == [b"row"]


@pytest.mark.parametrize("position", [0, 3, 4, 9, 14])
def test_damage_before_the_last_row_is_an_error(tmp_path: Path, position: int) -> None:
    data = bytearray(b"".join(frame(payload) for payload in PAYLOADS))
    data[position] ^= 0x55
    (path := tmp_path / "j").write_bytes(data)
    with pytest.raises(InputError, match="damaged at byte 0"):
        contents(path)


def held(job: int = 101, from_s: float = 1.0, to_s: float | None = None) -> records.AllocationRecord:
    return records.AllocationRecord(
        job=job, from_s=from_s, to_s=to_s, placement=(records.Placement("n1", (0,)),), why="start"
    )


def test_reopening_cuts_a_torn_row_off(tmp_path: Path) -> None:
    path = tmp_path / "jobs.journal"
    journal = records.JobJournal(path)
    journal.append(records.JobEntry(make_job(1)), records.JobEntry(make_job(2)))
    journal.close()
    path.write_bytes(path.read_bytes()[:-5])
    journal = records.JobJournal(path)
    journal.append(records.JobEntry(make_job(3)))
    journal.close()
    assert [entry.job for entry in records.read_entries(path).values()] == [make_job(1), make_job(3)]


@pytest.mark.slow
def test_a_job_and_its_allocations_are_cut_off_together_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "jobs.journal"
    journal = records.JobJournal(path)
    journal.append(records.JobEntry(make_job(1), (held(),)))
    first = path.stat().st_size
    journal.append(records.JobEntry(make_ended(1), (held(to_s=3.0),)))
    journal.close()
    data = path.read_bytes()
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        jobs, allocations = records.job_frames(path)
        ended = length == len(data)
        assert jobs["state"].to_list() == ([] if length < first else ["COMPLETED" if ended else None])
        ends = None if allocations is None else allocations["to_s"].to_list()
        assert ends == (None if length < first else [3.0 if ended else None])


def test_a_row_that_says_nothing_of_allocations_leaves_them(tmp_path: Path) -> None:
    journal = records.JobJournal(tmp_path / "jobs.journal")
    journal.append(records.JobEntry(make_job(1), (held(),)))
    journal.append(records.JobEntry(make_ended(1)))
    assert records.read_entries(tmp_path / "jobs.journal")[1] == records.JobEntry(make_ended(1), (held(),))
    journal.append(records.JobEntry(make_ended(1), ()))
    journal.close()
    assert records.read_entries(tmp_path / "jobs.journal")[1] == records.JobEntry(make_ended(1), ())


def test_an_allocation_of_another_job_is_refused(tmp_path: Path) -> None:
    journal = records.JobJournal(tmp_path / "jobs.journal")
    with pytest.raises(InputError, match="trace_job 1 is another job's"):
        journal.append(records.JobEntry(make_job(1), (held(job=77),)))
    journal.close()
    assert (tmp_path / "jobs.journal").read_bytes() == b""


def test_rows_of_another_table_are_refused(tmp_path: Path) -> None:
    (path := tmp_path / "jobs.journal").write_bytes(frame(b"\x93\x01\x02\x03"))
    with pytest.raises(InputError, match="not one of jobs"):
        records.read_entries(path)


def test_a_full_disk_is_said_and_no_row_follows_the_damage() -> None:
    file = AppendFile(Path("/dev/full"))
    with pytest.raises(OutputError, match="the disk is full; free some space"):
        file.append(b"row")


def test_no_journal_is_an_empty_table(tmp_path: Path) -> None:
    jobs, allocations = records.job_frames(tmp_path / "none")
    assert (jobs.schema, jobs.height, allocations) == (records.JOBS.schema, 0, None)


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Path:
    folder = tmp_path / "RUN"
    records.write_run(folder, make_info(), make_trace(tmp_path), frame_of([make_ended()], records.JOBS))
    return folder


def test_a_missing_folder_and_a_folder_without_a_run_say_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        records.load_run(tmp_path / "RUN")
    with pytest.raises(InputError, match=r"it has no run\.json"):
        records.load_run(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file is not a RUN folder: it is a file"):
        records.load_run(tmp_path / "file")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("run.json", "", "not a valid run description"),
        ("run.json", "[]", "not a valid run description"),
        ("run.json", '{"schema_version": 1}', "missing required field"),
        ("run.json", '{"schema_version": 99}', "schema version 99 and this osub reads version 1"),
        ("run.json", None, "tiral"),  # an unknown field
        ("jobs.parquet", "PAR1 and then nothing", r"jobs\.parquet.*damaged or not Parquet"),
    ],
)
def test_a_damaged_file_of_a_run_says_what_is_wrong(
    run: Path, file: str, text: str | None, message: str
) -> None:
    path = run / file
    path.write_text(path.read_text().replace('"trial"', '"tiral"') if text is None else text)
    with pytest.raises(InputError, match=message):
        records.load_run(run)


def test_a_table_is_checked_on_read(run: Path) -> None:
    path = run / "jobs.parquet"
    frame = pl.read_parquet(path)
    frame.with_columns(end_s=pl.lit(0.25)).write_parquet(path)
    with pytest.raises(InputError, match=r"jobs\.parquet: column end_s of trace_job 1: 0.25 is before"):
        records.load_run(run)
    frame.with_columns(wait_s=pl.lit(0.25)).write_parquet(path)
    with pytest.raises(InputError, match="unknown column wait_s"):
        records.load_run(run)
    with pytest.raises(InputError, match="unknown column wait_s"):
        records.load_run(run, placement=False)


def test_an_unfinished_run_can_be_read_without_placements(tmp_path: Path) -> None:
    with records.RunWriter.create(tmp_path / "RUN", make_info(), make_trace(tmp_path)) as writer:
        writer.append_job(make_job())
        assert "placement" not in records.load_run(tmp_path / "RUN", placement=False).jobs.columns


JOB_COUNT = 70_000


def many_jobs(count: int = JOB_COUNT) -> tuple[pl.DataFrame, records.PlacementArrays]:
    """Make jobs of 0 to 3 nodes (none: the job was refused)."""
    rng = np.random.default_rng(7)
    nodes = rng.integers(0, 4, count)
    offsets = np.concatenate(([0], np.cumsum(nodes)))
    first = np.repeat(rng.integers(0, 40, count), nodes)
    placements = records.PlacementArrays(
        offsets=offsets,
        node=(first + np.arange(offsets[-1]) - np.repeat(offsets[:-1], nodes)) % 40,
        cores=rng.integers(0, 3, offsets[-1]),
        node_names=[f"node{number}" for number in range(40)],
        core_sets=["0-7", "0,2", "4-7"],
    )
    due_s = np.sort(rng.random(count) * 1e6).round(6)
    ran = pl.Series(nodes > 0)
    frame = pl.DataFrame(
        {
            "trace_job": np.arange(1, count + 1),
            "kind": np.where(rng.random(count) < 0.1, "interactive", "batch"),
            "nodes": np.maximum(nodes, 1),
            "cores": np.maximum(nodes, 1) * 8,
            "due_s": due_s,
            "submit_s": due_s,
            "start_s": due_s + 1.5,
            "end_s": due_s + 9.25,
            "state": np.where(nodes > 0, "COMPLETED", "REFUSED"),
        }
    ).with_columns(pl.when(ran).then(pl.col("start_s", "end_s")))
    return frame, placements


@pytest.fixture(name="trace")
def _trace(tmp_path: Path) -> Path:
    return make_trace(tmp_path)


@pytest.mark.slow
def test_the_same_jobs_give_the_same_bytes_in_any_order_and_form(tmp_path: Path, trace: Path) -> None:
    jobs, placements = many_jobs()
    order = np.random.default_rng(1).permutation(jobs.height)
    listed = jobs.with_columns(placements.column().alias("placement"))
    info = make_info()
    records.write_run(tmp_path / "a", info, trace, jobs, placements=placements)
    records.write_run(tmp_path / "b", info, trace, jobs[order], placements=placements.reorder(order))
    records.write_run(tmp_path / "c", info, trace, listed)
    records.write_run(tmp_path / "d", info, trace, listed[order])
    assert len({(tmp_path / name / "jobs.parquet").read_bytes() for name in "abcd"}) == 1
    assert records.load_run(tmp_path / "d").jobs.select(listed.columns).equals(listed)


@pytest.mark.slow
def test_the_number_of_threads_does_not_change_the_bytes(tmp_path: Path, trace: Path) -> None:
    program = (
        "import sys; from pathlib import Path;"
        "from tests.unit.foundation.records.test_records_writer import many_jobs;"
        "from tests.fixtures.records import make_info; from foundation.records import write_run;"
        "jobs, placements = many_jobs();"
        "write_run(Path(sys.argv[1]), make_info(), Path(sys.argv[2]), jobs, placements=placements)"
    )
    contents = set()
    for threads in ("1", "3"):
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / threads), str(trace)],
            check=True,
            env={**os.environ, "POLARS_MAX_THREADS": threads},
        )
        contents.add((tmp_path / threads / "jobs.parquet").read_bytes())
    assert len(contents) == 1


def test_a_run_can_be_read_without_its_placements(tmp_path: Path, trace: Path) -> None:
    jobs, placements = many_jobs(100)
    records.write_run(tmp_path / "RUN", make_info(), trace, jobs, placements=placements)
    light = records.load_run(tmp_path / "RUN", placement=False)
    assert light.jobs.equals(records.load_run(tmp_path / "RUN").jobs.drop("placement"))


def test_all_tables_come_back(tmp_path: Path, trace: Path) -> None:
    place = (records.Placement("n1", (0, 5)), records.Placement("n2", (1,)))
    job = make_ended(placement=place)
    allocation = records.AllocationRecord(
        job=101, from_s=1, to_s=3, placement=place, why="start", wasted_s=0.5
    )
    held = records.SliceRecord(
        slice=3, start_s=0.75, length_s=0.25, job=101, node="n1", role="held", skew_us=-3
    )
    records.write_run(
        tmp_path / "RUN",
        make_info(kind="simulated", wall_s=0.5, system="N2C6"),
        trace,
        frame_of([job], records.JOBS),
        allocations=frame_of([allocation], records.ALLOCATIONS),
        slices=frame_of([held], records.SLICES),
    )
    run = records.load_run(tmp_path / "RUN")
    assert run.complete
    assert list(rows_of(run.jobs, records.JOBS)) == [job]
    assert run.allocations is not None
    assert list(rows_of(run.allocations, records.ALLOCATIONS)) == [allocation]
    assert run.slices is not None
    assert list(rows_of(run.slices, records.SLICES)) == [held]


def test_a_broken_row_leaves_no_folder_and_names_the_final_file(tmp_path: Path, trace: Path) -> None:
    frame = frame_of([make_ended(3, nodes=0)], records.JOBS)
    with pytest.raises(InputError, match=r"/RUN/jobs\.parquet: column nodes of trace_job 3"):
        records.write_run(tmp_path / "RUN", make_info(), trace, frame)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.swf"]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"offsets": np.array([0, 2, 1])}, "offsets"),
        ({"node": np.array([0, 9])}, "node indices"),
        ({"cores": np.array([-1, 0])}, "core set indices"),
        ({"core_sets": ["3-1"]}, "ends before it begins"),
        ({"node_names": ["a", "a"]}, "empty or repeated"),
        ({"offsets": np.array([0, 2, 2]), "node": np.array([1, 1])}, "node twice"),
        ({"offsets": np.array([0, 2])}, "1 placement for 2 jobs"),
    ],
)
def test_placement_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, trace: Path, broken: dict[str, object], message: str
) -> None:
    fields: dict[str, object] = {
        "offsets": np.array([0, 1, 2]), "node": np.array([0, 1]), "cores": np.array([0, 0]),
        "node_names": ["a", "b"], "core_sets": ["0-1"], **broken,
    }  # fmt: skip
    jobs = frame_of([make_ended(1), make_ended(2)], records.JOBS).drop("placement")
    placements = records.PlacementArrays(**fields)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        records.write_run(tmp_path / "RUN", make_info(), trace, jobs, placements=placements)


@pytest.fixture(name="small_disk")
def _small_disk(tmp_path: Path) -> Iterator[Path]:
    (disk := tmp_path / "disk").mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("only root can mount the small disk of this test")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_half_written(small_disk: Path, trace: Path) -> None:
    jobs, placements = many_jobs()
    with pytest.raises(OutputError, match=r"RUN/jobs\.parquet: the disk is full; free some space"):
        records.write_run(small_disk / "RUN", make_info(), trace, jobs, placements=placements)
    assert list(small_disk.iterdir()) == []


def test_core_ids_have_one_notation() -> None:
    assert write_ids([7, 0, 1, 2, 9, 10]) == "0-2,7,9-10"
    assert records.parse_cores("0-2,7,9-10") == (0, 1, 2, 7, 9, 10)
    assert write_ids([]) == ""
