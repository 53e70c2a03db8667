"""Whether anything has changed, by Slurm's C library: little is asked, and a change is seen at once."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from foundation.slurm import JobSnapshot, SlurmJob, SlurmJobState
from foundation.slurm.hosts import NodeBook
from foundation.slurm.job_sources import (
    FULL_EVERY_S,
    LibraryPulse,
    QuietLibrary,
    QuietSource,
    _path_of_loaded,
)
from foundation.slurm.pyslurm_library import LibrarySource
from foundation.slurm.slurm_types import (
    AnswerTooLongError,
    SlurmUnreachableError,
    UnknownFormatError,
)
from tests.unit.foundation.slurm.test_library import NODES, Record

LIBRARY = r"""
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
typedef struct { long last_backfill, last_update; uint32_t count; void *jobs; } answer_t;
typedef struct { long last_update; uint32_t count; void *some; } short_t;
static long changed, now, version, wholes, jobs;
void set(long at, long clock, long release) {
  changed = at; now = clock; version = release; wholes = 0; jobs = 1; }
void empty(void) { jobs = 0; }
long whole_loads(void) { return wholes; }
long slurm_api_version(void) { return version << 16; }
static int say(int code) { errno = code; return -1; }
int slurm_load_jobs(long since, answer_t **to, uint16_t flags) {
  if (flags != 0x11 || now < 0) return say(2000);
  if (since - 1 >= changed) return say(1900);
  *to = calloc(1, sizeof(answer_t));
  (*to)->last_update = now;
  wholes++;
  return 0;
}
int slurm_get_job_steps(long since, uint32_t job, uint32_t step, short_t **to, uint16_t flags) {
  if (flags != 0x11 || job < 0x04000000 || step != 0xfffffffe || version < 38 || version > 43) abort();
  if (now < 0) return say(1800);
  if (since - 1 >= changed) return say(1900);
  if (jobs) return say(2017);
  *to = calloc(1, sizeof(short_t));
  return 0;
}
int slurm_load_licenses(long since, short_t **to, uint16_t flags) {
  if (since || now < 0) return say(1800);
  *to = calloc(1, sizeof(short_t));
  (*to)->last_update = now;
  return 0;
}
void slurm_free_job_info_msg(answer_t *one) { free(one); }
void slurm_free_job_step_info_response_msg(short_t *one) { free(one); }
void slurm_free_license_info_msg(short_t *one) { free(one); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here (apt-get install gcc)")
    folder = tmp_path_factory.mktemp("lib")
    (folder / "slurm.c").write_text(LIBRARY)
    made = folder / "libslurm.so.99"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, folder / "slurm.c"], check=True, timeout=60)
    return made


SLURM_22_05, SLURM_25_05, SLURM_25_11 = 38, 43, 44  # versions of the library


@pytest.mark.parametrize("version", [SLURM_22_05, SLURM_25_05, SLURM_25_11])
def test_the_library_reports_when_it_was_asked_and_that_nothing_has_changed_since(
    library: Path, version: int
) -> None:
    pulse = LibraryPulse(library)
    loaded = pulse._loaded()
    assert loaded is not None
    now_s = int(time.time())
    loaded.set(now_s - 100, now_s, version)
    assert (pulse.since(0), pulse.since(now_s)) == (now_s, 0)
    loaded.set(now_s, now_s + 1, version)  # within the second of the answer before
    assert (pulse.since(now_s), pulse.since(now_s + 1)) == (now_s + 1, 0)
    loaded.set(0, -1, version)  # slurmctld is away
    assert pulse.since(now_s) is None
    assert pulse.since(0) is None
    loaded.set(0, 12345, version)  # another kind of answer
    assert pulse.since(0) is None


@pytest.mark.parametrize(("version", "wholes"), [(SLURM_22_05, 0), (SLURM_25_05, 0), (SLURM_25_11, 2)])
def test_that_something_has_changed_is_reported_in_few_bytes_where_the_library_can(
    library: Path, version: int, wholes: int
) -> None:
    pulse = LibraryPulse(library)
    loaded = pulse._loaded()
    assert loaded is not None
    now_s = int(time.time())
    loaded.set(now_s, now_s, version)
    assert pulse.is_short == (wholes == 0)
    assert [pulse.since(0), pulse.since(now_s)] == [now_s, now_s]
    assert loaded.whole_loads() == wholes


def test_a_change_is_reported_although_there_are_no_jobs(library: Path) -> None:
    pulse = LibraryPulse(library)
    loaded = pulse._loaded()
    assert loaded is not None
    now_s = int(time.time())
    loaded.set(now_s, now_s, SLURM_22_05)
    loaded.empty()
    assert pulse.since(now_s) == now_s


def test_without_a_library_nothing_is_known(tmp_path: Path) -> None:
    assert LibraryPulse(tmp_path / "libslurm.so").since(0) is None
    (tmp_path / "libslurm.so").write_text("no library")
    assert LibraryPulse(tmp_path / "libslurm.so").since(0) is None


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "7f00-7f01 r-xp 0 0 0   /usr/lib/x86_64-linux-gnu/libslurm.so.38.0.0",
            "/usr/lib/x86_64-linux-gnu/libslurm.so.38.0.0",
        ),
        ("7f00-7f01 r-xp 0 0 0   /usr/lib/slurm/libslurmfull.so", "/usr/lib/slurm/libslurmfull.so"),
        (
            "7f00-7f01 r-xp 0 0 0   /usr/lib/slurm-wlm/libslurmfull-22.05.8.so",
            "/usr/lib/slurm-wlm/libslurmfull-22.05.8.so",
        ),
        ("7f00-7f01 r-xp 0 0 0   /tmp/libslurm.so (deleted)", None),
        ("7f00-7f01 r-xp 0 0 0   /usr/lib/libslurmdb.so", None),
        ("", None),
    ],
)
def test_the_library_is_the_one_that_is_loaded(tmp_path: Path, line: str, found: str | None) -> None:
    (maps := tmp_path / "maps").write_text(f"7e00-7e01 r-xp 0 0 0   /usr/lib/libc.so.6\n{line}\n")
    assert _path_of_loaded(maps) == (None if found is None else Path(found))


class World:
    """Jobs, a library that reads them, and a pulse; a second passes with each look."""

    def __init__(self, *, is_short: bool = False) -> None:
        self.is_short = is_short
        self.jobs = [Record(id=1)]
        self.now_s = self.changed_s = 1_000
        self.reads = self.asked = self.full_answers = 0
        self.knows = self.answers = True
        source = LibrarySource(lambda: self._load, lambda _: "root")
        self.source = QuietLibrary(source, self, clock=lambda: float(self.now_s))
        self.book = NodeBook(lambda: NODES)

    def _load(self) -> list[Record]:
        if not self.answers:
            raise UnknownFormatError("slurmctld is away")
        self.reads += 1
        self.full_answers += 1
        return list(self.jobs)

    def since(self, instant_s: int) -> int | None:
        self.asked += 1
        if not self.knows:
            return None
        if instant_s and instant_s - 1 >= self.changed_s:
            return 0
        self.full_answers += not self.is_short
        return self.now_s

    def look(self) -> JobSnapshot:
        self.now_s += 1
        return self.source.read(self.book)

    def change(self, *jobs: Record) -> None:
        self.jobs, self.changed_s = list(jobs), self.now_s


@pytest.mark.parametrize("is_short", [False, True])
def test_while_nothing_changes_no_job_is_read(*, is_short: bool) -> None:
    world = World(is_short=is_short)
    first = [world.look() for _ in range(3)][-1]
    reads = world.reads
    assert all(world.look() is not None for _ in range(10))
    assert (world.look(), world.reads) == (first, reads)


@pytest.mark.parametrize("is_short", [False, True])
def test_a_change_is_seen_at_the_next_look(*, is_short: bool) -> None:
    world = World(is_short=is_short)
    for _ in range(6):
        world.look()
    world.change(Record(id=1), Record(id=2))
    assert [job.job_id for job in world.look().jobs] == [1, 2]
    world.change(Record(id=2))
    assert [job.job_id for job in world.look().jobs] == [2]


@pytest.mark.parametrize("is_short", [False, True])
def test_a_change_at_any_instant_is_seen(*, is_short: bool) -> None:
    for quiet in range(12):
        world = World(is_short=is_short)
        for _ in range(quiet):
            world.look()
        world.change(Record(id=3))
        assert [job.job_id for job in world.look().jobs] == [3], quiet
        assert [job.job_id for job in world.look().jobs] == [3], quiet


@pytest.mark.parametrize("is_short", [False, True])
def test_while_jobs_come_and_go_nothing_else_is_asked(*, is_short: bool) -> None:
    world = World(is_short=is_short)
    for number in range(10):
        world.change(Record(id=number + 1))
        world.look()
    assert (world.asked, world.reads) == (0, 10)


@pytest.mark.parametrize("is_short", [False, True])
def test_a_full_look_comes_now_and_then_and_where_nothing_is_known_always(*, is_short: bool) -> None:
    world = World(is_short=is_short)
    for _ in range(5):
        world.look()
    reads = world.reads
    world.now_s += int(FULL_EVERY_S)
    world.look()
    assert world.reads == reads + 1
    world.knows = False
    reads = world.reads
    for _ in range(5):
        world.look()
    assert world.reads == reads + 5


@pytest.mark.parametrize(("is_short", "full"), [(True, 1), (False, 3)])
def test_a_change_costs_few_full_answers(*, is_short: bool, full: int) -> None:
    world = World(is_short=is_short)
    for _ in range(6):
        world.look()
    full += world.full_answers
    world.change(Record(id=1), Record(id=2))
    for _ in range(6):
        world.look()
    assert world.full_answers == full


@pytest.mark.parametrize("is_short", [False, True])
def test_after_an_outage_no_older_answer_passes_for_the_newest(*, is_short: bool) -> None:
    for quiet in range(6):
        world = World(is_short=is_short)
        for _ in range(quiet):
            world.look()
        world.change(Record(id=7))
        world.answers = False
        with pytest.raises(UnknownFormatError):
            world.look()
        world.answers = True
        assert [job.job_id for job in world.look().jobs] == [7], quiet


def test_of_jobs_that_wait_gangd_reads_little() -> None:
    words = {"name": "n", "comment": "c", "admin_comment": "a", "qos": "q", "reservation": "r"}
    waits, runs = Record(id=1, state="PENDING", **words), Record(id=2, **words)

    def read(*, full: bool) -> dict[int, SlurmJob]:
        source = LibrarySource(lambda: lambda: [waits, runs], lambda _: "root", alive_only=not full)
        return {job.job_id: job for job in source.read(NodeBook(lambda: NODES)).jobs}

    some, whole = read(full=False), read(full=True)
    assert some[2] == whole[2]
    assert (some[1].name, some[1].comment, some[1].qos, some[1].account) == (None, None, None, None)
    assert (some[1].state, some[1].uid, some[1].partition) == (
        whole[1].state,
        whole[1].uid,
        whole[1].partition,
    )
    assert whole[1].name == "n"


def snapshot(state: SlurmJobState = SlurmJobState.RUNNING) -> JobSnapshot:
    job = SlurmJob(
        job_id=1, name="x", user="u", uid=1, partition="main", state=state, reason="None", num_nodes=1
    )
    return JobSnapshot((job,))


class Slurm:
    """A Slurm whose answers a test sets; it counts requests."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.answer = snapshot()
        self.list: str | Exception = "1|RUNNING"
        self.full = self.short = 0
        self.fails = False
        self.source = QuietSource(self, self.ask, lambda: self.now_s)

    def read(self, _: NodeBook) -> JobSnapshot:
        self.full += 1
        if self.fails:
            raise SlurmUnreachableError("away")
        return JobSnapshot(self.answer.jobs)

    def ask(self, *words: str, check: Callable[[str], object] = len) -> str:
        self.short += 1
        if isinstance(self.list, Exception):
            raise self.list
        return self.list

    def look(self) -> tuple[JobSnapshot, int, int]:
        """Read once; returns what came of it, and how many full and short answers were asked for."""
        self.full = self.short = 0
        self.now_s += 1
        return self.source.read(NodeBook(list)), self.full, self.short


def quiet() -> Slurm:
    slurm = Slurm()
    assert [slurm.look()[1:] for _ in range(4)] == [(1, 0), (1, 0), (1, 1), (0, 1)]
    return slurm


def test_while_jobs_change_only_full_answers_are_asked_for() -> None:
    slurm = Slurm()
    for state in (
        SlurmJobState.PENDING,
        SlurmJobState.RUNNING,
        SlurmJobState.COMPLETING,
        SlurmJobState.COMPLETED,
    ):
        slurm.answer = snapshot(state)
        assert slurm.look() == (snapshot(state), 1, 0)


def test_what_changes_is_seen_at_once() -> None:
    slurm = quiet()
    slurm.answer, slurm.list = snapshot(SlurmJobState.COMPLETING), "1|COMPLETING"
    assert slurm.look() == (snapshot(SlurmJobState.COMPLETING), 1, 1)
    assert slurm.look()[1:] == (1, 0), "full answers until two are the same"


def test_what_a_list_does_not_report_is_seen_now_and_then() -> None:
    slurm = quiet()
    slurm.answer = snapshot(SlurmJobState.SUSPENDED)
    assert slurm.look() == (snapshot(), 0, 1)
    slurm.now_s += FULL_EVERY_S
    assert slurm.look() == (snapshot(SlurmJobState.SUSPENDED), 1, 1)


def test_after_a_failure_nothing_old_is_reported() -> None:
    slurm = quiet()
    slurm.list, slurm.answer, slurm.fails = "1|COMPLETED", snapshot(SlurmJobState.COMPLETED), True
    for _ in range(2):
        with pytest.raises(SlurmUnreachableError):
            slurm.look()
    slurm.fails = False
    assert slurm.look()[0] == snapshot(SlurmJobState.COMPLETED)


def test_a_list_that_is_too_long_is_done_without() -> None:
    slurm = quiet()
    slurm.list = AnswerTooLongError("more than 64 MiB")
    assert slurm.look()[1:] == (1, 1)


def test_slurm_being_away_is_reported() -> None:
    slurm = quiet()
    slurm.list = SlurmUnreachableError("away")
    with pytest.raises(SlurmUnreachableError):
        slurm.look()
