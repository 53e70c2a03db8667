"""Jobs read by a process of its own: only differences come, in small parts; a broken process is replaced."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from foundation.slurm import (
    CommandSlurm,
    JobSnapshot,
    NodeCores,
    SlurmJob,
    SlurmJobState,
    SlurmNode,
    UnreadableJob,
    subprocess_reader,
)
from foundation.slurm.hosts import NodeBook
from foundation.slurm.job_sources import ChosenSource
from foundation.slurm.reader_process import Reader
from foundation.slurm.slurm_types import (
    AnswerTooLongError,
    SlurmRefusedError,
    SlurmUnreachableError,
    UnknownFormatError,
)
from gangd.freezer.procfs import read_stat
from tests.fixtures.looks import until

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurm"


def job(number: int, state: SlurmJobState = SlurmJobState.RUNNING, comment: str | None = None) -> SlurmJob:
    cores = (NodeCores("n1", (0, 1), 2048),) if state is SlurmJobState.RUNNING else ()
    return SlurmJob(
        job_id=number, name=f"job {number}", user="u", uid=1000, partition="main", state=state,
        reason="None", num_nodes=1, cores=cores, comment=comment,
    )  # fmt: skip


class ScriptedSource:
    """A source whose answers a test sets."""

    def __init__(self) -> None:
        self.snapshot = JobSnapshot(())

    def read(self, _: NodeBook) -> JobSnapshot:
        return self.snapshot


def reader(source: ScriptedSource, *, all_jobs: bool = True) -> Reader:
    return Reader(ChosenSource({"scripted": source}), NodeBook(list), all_jobs=all_jobs)


def messages(raw: bytes) -> Iterator[object]:
    """Decode messages as they come through a pipe."""
    decoder, (fd, fd_in) = subprocess_reader.Decoder(subprocess_reader.Answer), os.pipe()

    def write() -> None:
        with os.fdopen(fd_in, "wb") as pipe:
            pipe.write(raw)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        while True:
            try:
                decoder.feed(fd)
            except subprocess_reader.BrokenPipe:
                return
            while (message := decoder.take()) is not None:
                yield message
    finally:
        os.close(fd)
        thread.join()


def answer(one: Reader, nodes: list[SlurmNode] | None = None) -> list[object]:
    to = io.BytesIO()
    one.answer(nodes, to)
    return list(messages(to.getvalue()))


# The process


def test_only_what_changed_is_sent() -> None:
    source = ScriptedSource()
    one = reader(source)
    source.snapshot = JobSnapshot((job(1), job(2)))
    assert answer(one) == [
        subprocess_reader.Jobs([job(1), job(2)]),
        subprocess_reader.AnswerComplete(2, "scripted"),
    ]
    assert answer(one) == [subprocess_reader.AnswerComplete(2, "scripted")]
    bad = UnreadableJob(4, "another form")
    source.snapshot = JobSnapshot((job(2, comment="new"), job(3)), (bad,))
    assert answer(one) == [
        subprocess_reader.Jobs([job(2, comment="new"), job(3)]),
        subprocess_reader.Gone([1]),
        subprocess_reader.UnreadJobs([bad]),
        subprocess_reader.AnswerComplete(2, "scripted"),
    ]


def test_jobs_that_are_over_are_left_out_where_no_one_needs_them() -> None:
    source = ScriptedSource()
    source.snapshot = JobSnapshot((job(1), job(2, SlurmJobState.PENDING), job(3, SlurmJobState.COMPLETED)))
    assert answer(reader(source, all_jobs=False)) == [
        subprocess_reader.Jobs([job(1), job(2, SlurmJobState.PENDING)]),
        subprocess_reader.AnswerComplete(2, "scripted"),
    ]


def test_a_part_is_small_however_many_jobs_there_are() -> None:
    source = ScriptedSource()
    source.snapshot = JobSnapshot(tuple(job(number) for number in range(1, 5_001)))
    to = io.BytesIO()
    reader(source).answer(None, to)
    raw, lengths = to.getvalue(), []
    while raw:
        length = int.from_bytes(raw[:4], "big")
        lengths.append(length)
        raw = raw[4 + length :]
    assert len(lengths) > 10
    assert max(lengths) <= subprocess_reader.PART_BYTES + 1024
    parts = [one.jobs for one in messages(to.getvalue()) if isinstance(one, subprocess_reader.Jobs)]
    assert tuple(each for part in parts for each in part) == source.snapshot.jobs


def test_a_job_that_no_message_holds_is_unreadable_and_no_other_is_harmed() -> None:
    source = ScriptedSource()
    source.snapshot = JobSnapshot((job(1), job(2, comment="x" * subprocess_reader.MOST_BYTES)))
    assert answer(reader(source)) == [
        subprocess_reader.Jobs([job(1)]),
        subprocess_reader.UnreadJobs([UnreadableJob(2, "its record is too long")]),
        subprocess_reader.AnswerComplete(1, "scripted"),
    ]


# Messages


@pytest.mark.parametrize(
    "error",
    [SlurmUnreachableError("a"), SlurmRefusedError("b"), AnswerTooLongError("c"), UnknownFormatError("d")],
)
def test_an_error_is_the_same_on_the_other_side(error: Exception) -> None:
    reported = subprocess_reader.AnswerFault.of(error).error()  # type: ignore[arg-type]
    assert (type(reported), str(reported)) == (type(error), str(error))


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\xff\xff\xff\xff", "message of 4294967295 bytes"),
        (b"\0\0\0\1\x01", "no message"),
        (b"\0\0\0\2\x81\xa1", "no message"),
    ],
)
def test_what_is_no_message_is_refused(raw: bytes, why: str) -> None:
    with pytest.raises(subprocess_reader.BrokenPipe, match=why):
        list(messages(raw))


Make = Callable[..., subprocess_reader.ApartSlurm]


# Our side, with processes that a test scripts


PRELUDE = """
import os, sys, time
from pathlib import Path
from foundation.slurm import SlurmJob, SlurmJobState, SlurmNode
from foundation.slurm.subprocess_reader import AnswerComplete, AnswerFault, Decoder, Gone, Jobs
from foundation.slurm.subprocess_reader import Look, NodesFrame, encode
started = Path(sys.argv[1]); started.write_text(started.read_text() + "x" if started.exists() else "x")
starts = len(started.read_text())
def say(*messages):
    os.write(1, b"".join(map(encode, messages)))
def job(n):
    always = dict(name=None, user="u", uid=1, partition="p", reason="", num_nodes=1)
    always["state"] = SlurmJobState.PENDING
    return SlurmJob(job_id=n, **always)
decoder, looks = Decoder(Look), 0
while True:
    look = decoder.take()
    if look is None:
        decoder.feed(0)
        continue
    looks += 1
"""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[subprocess_reader.ApartSlurm] = []

    def begin(body: str, answer_s: float = 30.0) -> subprocess_reader.ApartSlurm:
        program = tmp_path / "process.py"
        program.write_text(PRELUDE + "".join(f"    {line}\n" for line in body.strip().splitlines()))
        words = [sys.executable, str(program), str(tmp_path / "started")]
        made.append(subprocess_reader.ApartSlurm(words=words, answer_s=answer_s))
        return made[-1]

    yield begin
    for one in made:
        one.close()


def test_differences_add_up_and_what_is_unchanged_is_the_same_object(make: Make) -> None:
    slurm = make("""
if looks == 1: say(Jobs([job(1), job(2)]), AnswerComplete(2, "scripted"))
if looks == 2: say(Gone([1]), Jobs([job(3)]), AnswerComplete(2, "scripted"))
if looks == 3: say(AnswerFault("unreachable", "away"))
if looks == 4: say(AnswerComplete(2, "scripted"))
""")
    first = slurm.jobs().jobs
    assert [each.job_id for each in first] == [1, 2]
    second = slurm.jobs().jobs
    assert [each.job_id for each in second] == [2, 3]
    assert second[0] is first[1]
    with pytest.raises(SlurmUnreachableError, match="away"):
        slurm.jobs()
    assert (slurm.jobs().jobs, slurm.read_from) == (second, "scripted")


@pytest.mark.slow
def test_what_is_new_is_reported_with_the_jobs_though_nodes_were_asked_for_meanwhile(make: Make) -> None:
    slurm = make("""
if looks == 1: say(Jobs([job(1), job(2), job(4)]), AnswerComplete(3, "scripted"))
if looks == 2: say(Gone([1]), Jobs([job(3)]), AnswerComplete(3, "scripted"))
if looks == 3: say(Gone([2, 3]), Jobs([job(1)]), AnswerComplete(2, "scripted"))
if looks == 4: say(AnswerComplete(2, "scripted"))
if looks == 5: os._exit(1)
""")
    first = slurm.jobs().difference
    slurm.nodes()  # what came with the nodes is not lost
    second, third = slurm.jobs().difference, slurm.jobs().difference
    assert first is not None
    assert second is not None
    assert third is not None
    assert [one.job_id for one in first.changed] == [1, 2, 4]
    assert (second.since, third.since) == (first.number, second.number)
    assert ([one.job_id for one in second.changed], sorted(second.gone)) == ([1], [2, 3])
    assert (third.changed, third.gone) == ((), ())
    with pytest.raises(SlurmUnreachableError):
        slurm.jobs()
    fourth = slurm.jobs().difference
    assert fourth is not None
    assert fourth.since != third.number  # another process tells all anew


@pytest.mark.parametrize(
    ("deed", "why"),
    [
        ("os._exit(3)", "it ended"),
        ("os.kill(os.getpid(), 11)", "it ended"),
        ("os.write(1, b'garbage at length')", "message of"),
        ("say(Jobs([job(1)]), AnswerComplete(5, 'scripted'))", "sent 1 jobs, and counts 5"),
        ("say(Look())", "no message"),
        pytest.param("time.sleep(600)", "did not answer within", marks=pytest.mark.slow),
    ],
)
def test_a_process_that_fails_is_reported_and_followed_by_another(
    make: Make, tmp_path: Path, deed: str, why: str
) -> None:
    slurm = make(
        f"if starts == 1: {deed}\nelse: say(Jobs([job(9)]), AnswerComplete(1, 'scripted'))", answer_s=5.0
    )
    with pytest.raises(SlurmUnreachableError, match=why):
        slurm.jobs()
    assert [each.job_id for each in slurm.jobs().jobs] == [9]
    assert (tmp_path / "started").read_text() == "xx"


@pytest.mark.slow
def test_after_a_death_in_the_library_the_next_process_leaves_it_alone(make: Make, tmp_path: Path) -> None:
    slurm = make("""
if "any" in sys.argv: os._exit(1)
say(AnswerComplete(0, sys.argv[-1]))
""")
    with pytest.raises(SlurmUnreachableError):
        slurm.jobs()
    slurm.jobs()
    assert slurm.read_from == "commands"


def test_closing_ends_the_process_and_starts_none(make: Make, tmp_path: Path) -> None:
    slurm = make("say(AnswerComplete(0, 'scripted'))")
    slurm.jobs()
    slurm.close()
    slurm.close()
    with pytest.raises(SlurmUnreachableError):
        slurm.jobs()
    assert (tmp_path / "started").read_text() == "x"


# The real process, with commands that print what Slurm printed


@pytest.fixture
def slurm_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder := tmp_path / "bin").mkdir()
    for name, text in {
        "squeue": f'case "$*" in *--json*) cat {FIXTURES}/jobs.json;; *) echo one;; esac',
        "scontrol": f'case "$*" in *node*) cat {FIXTURES}/nodes.txt;; *) cat {FIXTURES}/config.txt;; esac',
    }.items():
        (path := folder / name).write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.mark.slow
def test_the_process_says_what_the_commands_say(slurm_commands: Path) -> None:
    here, apart = CommandSlurm(), subprocess_reader.ApartSlurm(source="commands")
    held = subprocess_reader.ApartSlurm(source="commands", alive_only=True)
    try:
        assert set(apart.jobs().jobs) == set(here.jobs().jobs)
        assert apart.nodes() == here.nodes()
        assert apart.config() == here.config()
        assert set(held.jobs().jobs) == {each for each in here.jobs().jobs if not each.state.is_over}
    finally:
        apart.close()
        held.close()


@pytest.mark.slow
def test_a_command_that_is_missing_is_reported_and_the_process_goes_on(slurm_commands: Path) -> None:
    (slurm_commands / "squeue").write_text(
        "#!/bin/sh\necho 'squeue: error: Unable to contact slurm controller' >&2; exit 1\n"
    )
    apart = subprocess_reader.ApartSlurm(source="commands")
    try:
        for _ in range(2):
            with pytest.raises(SlurmUnreachableError, match="Unable to contact"):
                apart.jobs()
    finally:
        apart.close()


@pytest.mark.slow
def test_a_command_that_runs_when_the_process_is_ended_ends_with_it(
    slurm_commands: Path, tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    (slurm_commands / "squeue").write_text(f"#!/bin/sh\necho $$ >{asked}; exec sleep 600\n")
    apart = subprocess_reader.ApartSlurm(source="commands")

    def ask() -> None:
        with pytest.raises(SlurmUnreachableError):
            apart.jobs()

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: asked.exists() and asked.read_text().endswith("\n"), what="squeue")
    apart.close()
    asking.join()
    pid = int(asked.read_text())
    until(lambda: (stat := read_stat(pid)) is None or not stat.alive, 20, "the end of squeue")
