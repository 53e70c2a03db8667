"""Jobs through ``pyslurm``: which release fits, what it tells, and what it does not."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from foundation.slurm import NodeCores, SlurmJobState, SlurmNode
from foundation.slurm.hosts import EVERY_S, NodeBook
from foundation.slurm.pyslurm_library import LibraryJob, LibrarySource, fitting_load, release
from foundation.slurm.slurm_types import UnknownFormatError

NODES = [
    SlurmNode(
        name=name, states=frozenset({"IDLE"}), cores=8, threads_per_core=2, memory_mib=1000,
        cpus_allocated=0, features=frozenset(),
    )
    for name in ("n1", "n2")
]  # fmt: skip


class Record:
    """A ``pyslurm.Job`` of 22.5, with its quirks: 0 is None, ``cpu_ids`` are cores."""

    id = 7
    name: str | None = "a name"
    user_id = 0
    partition = "main,other"
    state = "RUNNING"
    state_reason: str | None = None
    num_nodes: int | None = 2
    array_id: int | None = None
    array_task_id: int | None = None
    array_tasks_waiting: str | None = None
    heterogeneous_id: int | None = None
    heterogeneous_offset: int | None = None
    submit_time: int | None = 100
    start_time: int | None = 200
    end_time: int | None = 800
    time_limit: int | None = 10
    requeue_count = 0
    preempt_time: int | None = None
    exit_code_signal = 0
    comment: str | None = None
    admin_comment: str | None = None
    batch_host: str | None = "n1"
    account: str | None = "physics"
    qos: str | None = None
    reservation: str | None = None

    def __init__(self, **values: object) -> None:
        self.constraints: list[str] = []
        self.layout: Mapping[str, Mapping[str, object]] = {
            "n1": {"cpu_ids": "0-1,4", "gres": {}, "memory": 500},
            "n2": {"cpu_ids": "7", "gres": {}, "memory": None},
        }
        self.__dict__.update(values)

    def get_resource_layout_per_node(self) -> Mapping[str, Mapping[str, object]]:
        return self.layout


def read(*records: object):  # type: ignore[no-untyped-def]
    source = LibrarySource(lambda: lambda: records, lambda uid: f"user{uid}")  # type: ignore[arg-type,return-value]
    return source.read(NodeBook(lambda: NODES))


def read_one(**values: object):  # type: ignore[no-untyped-def]
    snapshot = read(Record(**values))
    assert snapshot.unreadable == ()
    [job] = snapshot.jobs
    return job


def test_a_running_job_has_its_cores_and_times() -> None:
    job = read_one(constraints=["a", "b"], comment="gangd=off")
    assert job.cores == (NodeCores("n1", (0, 1, 4), 500), NodeCores("n2", (7,), None))
    assert (job.user, job.partition, job.state) == ("user0", "main", SlurmJobState.RUNNING)
    assert (job.start_time, job.end_time, job.time_limit_s) == (200, 800, 600)
    assert (job.account, job.qos) == ("physics", None)
    assert (job.features, job.comment, job.reason) == ("a,b", "gangd=off", "None")


def test_an_endless_job_has_no_end_while_it_runs() -> None:
    assert read_one(time_limit=None).end_time is None
    assert read_one(time_limit=None, state="COMPLETED").end_time == 800


def test_a_pending_job_has_neither_cores_nor_times() -> None:
    job = read_one(state="PENDING")
    assert (job.cores, job.start_time, job.end_time) == ((), None, None)


@pytest.mark.parametrize(
    ("values", "array", "het"),
    [
        ({}, (None, None), (None, None)),
        ({"array_id": 5}, (5, 0), (None, None)),  # task 0 is None there
        ({"array_id": 5, "array_task_id": 3}, (5, 3), (None, None)),
        ({"array_id": 5, "array_tasks_waiting": "4-9", "state": "PENDING"}, (5, None), (None, None)),
        ({"heterogeneous_id": 5}, (None, None), (5, 0)),
        ({"heterogeneous_id": 5, "heterogeneous_offset": 1}, (None, None), (5, 1)),
    ],
)
def test_the_first_of_an_array_or_a_heterogeneous_job_is_distinguished_from_none(
    values: dict[str, object], array: object, het: object
) -> None:
    job = read_one(**values)
    assert ((job.array_job_id, job.array_task_id), (job.het_job_id, job.het_job_offset)) == (array, het)


@pytest.mark.parametrize(
    ("state", "signal", "message"),
    [
        ("COMPLETED", 0, (0, None)),
        ("FAILED", 0, (None, None)),
        ("FAILED", 9, (0, 9)),
        ("RUNNING", 0, (0, None)),
    ],
)
def test_an_exit_code_counts_only_where_it_is_sure(state: str, signal: int, message: object) -> None:
    job = read_one(state=state, exit_code_signal=signal)
    assert (job.exit_code, job.exit_signal) == message


# What cannot be believed


@pytest.mark.parametrize(
    "values",
    [
        {"state": "DANCING"},
        {"layout": {"n9": {"cpu_ids": "0", "memory": 1}}},
        {"layout": {"n1": {"cpu_ids": "8", "memory": 1}}},
        {"layout": {"n1": {"cpu_ids": "x", "memory": 1}}},
        {"layout": {"n1": {"cpu_ids": None, "memory": 1}}},
    ],
)
def test_a_record_that_cannot_be_is_unreadable_alone(values: dict[str, object]) -> None:
    snapshot = read(Record(**values), Record(id=8))
    assert [one.job_id for one in snapshot.unreadable] == [7]
    assert [job.job_id for job in snapshot.jobs] == [8]


class Undecodable(Record):
    @property
    def comment(self) -> str:  # type: ignore[override]
        return b"\xff".decode()


@pytest.mark.parametrize(
    "record",
    [
        Undecodable(),
        Record(layout={"n1": {"cpu_ids": ",".join(map(str, range(0, 100, 2))), "memory": 1}}),
        Record(layout={"n1": {"cores": "0"}}),
        object(),
        Record(time_limit="unlimited"),
    ],
)
def test_where_something_is_not_reported_another_source_is_to_be_read(record: object) -> None:
    class Named(Record):
        id = 1

    if not hasattr(record, "id"):
        record = type("Other", (), {"id": 3})()
    with pytest.raises(UnknownFormatError):
        read(Named(), record)


# What is kept from look to look

CHANGES: dict[str, object] = {
    "name": "another", "user_id": 5, "partition": "other", "state": "SUSPENDED",
    "state_reason": "Priority", "num_nodes": 1, "array_id": 9, "array_task_id": 3,
    "array_tasks_waiting": "4-9", "heterogeneous_id": 9, "heterogeneous_offset": 1,
    "submit_time": 101, "start_time": 201, "end_time": 801, "time_limit": None, "requeue_count": 1,
    "preempt_time": 300, "exit_code_signal": 9, "constraints": ["a"], "comment": "gangd=off",
    "admin_comment": "said", "batch_host": "n2", "account": "arts", "qos": "low",
    "reservation": "maintenance", "layout": {"n1": {"cpu_ids": "5", "memory": 500}},
}  # fmt: skip


def test_every_field_that_is_read_is_tried() -> None:
    assert set(CHANGES) == set(LibraryJob.__annotations__) - {"id"} | {"layout"}


@pytest.mark.parametrize("alive_only", [False, True])
@pytest.mark.parametrize("kind", [{}, {"array_id": 5}, {"heterogeneous_id": 5}])
@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "COMPLETED"])
def test_a_job_that_is_kept_is_never_another_than_one_read_anew(
    state: str, kind: dict[str, object], alive_only: bool
) -> None:
    loaded: list[Record] = []

    def source() -> LibrarySource:
        return LibrarySource(lambda: lambda: loaded, lambda uid: f"user{uid}", alive_only=alive_only)

    kept, book = source(), NodeBook(lambda: NODES)
    for field, value in CHANGES.items():
        for changed in ({field: value}, {}):
            loaded[:] = [Record(**({"state": state} | kind | changed))]
            assert kept.read(book) == source().read(book), field


def test_a_job_that_is_as_it_was_is_the_same_object() -> None:
    source = LibrarySource(lambda: lambda: [Record(), Record(id=8, state="PENDING")], lambda _: "root")
    first, second = (source.read(NodeBook(lambda: NODES)).jobs for _ in range(2))
    assert len(first) == 2
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_a_job_is_read_anew_when_a_node_is_not_what_it_was() -> None:
    nodes, now_s = [*NODES], [0.0]
    source = LibrarySource(lambda: lambda: [Record(), Record(id=8, layout={})], lambda _: "root")
    book = NodeBook(lambda: nodes, clock=lambda: now_s[0])
    assert [job.job_id for job in source.read(book).jobs] == [7, 8]
    nodes[0] = replace(nodes[0], cores=4)
    now_s[0] += 2 * EVERY_S
    snapshot = source.read(book)
    assert [one.job_id for one in snapshot.unreadable] == [7]
    assert [job.job_id for job in snapshot.jobs] == [8]


def test_of_jobs_that_are_over_nothing_is_asked_where_no_one_needs_them() -> None:
    source = LibrarySource(lambda: lambda: [Undecodable(state="COMPLETED"), Record(id=8)], alive_only=True)
    assert [job.job_id for job in source.read(NodeBook(lambda: NODES)).jobs] == [8]


# Which release fits


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("22.05.8", (22, 5)),
        ("22.5.3", (22, 5)),
        ("25.11.0", (25, 11)),
        ("24.11.5-1", (24, 11)),
        ("unknown", None),
        ("22", None),
    ],
)
def test_releases_of_slurm_and_pyslurm_are_compared(version: str, found: object) -> None:
    assert release(version) == found


@pytest.fixture
def pyslurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    def install(version: str, text: str) -> None:
        (tmp_path / "pyslurm.py").write_text(text)
        (info := tmp_path / f"pyslurm-{version}.dist-info").mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pyslurm\nVersion: {version}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "pyslurm", raising=False)

    yield install
    sys.modules.pop("pyslurm", None)


JOBS = "class Jobs:\n    @staticmethod\n    def load():\n        return {1: 'a job'}\n"


def test_a_pyslurm_of_the_same_release_is_used(pyslurm) -> None:  # type: ignore[no-untyped-def]
    pyslurm("22.5.3", JOBS)
    assert [str(one) for one in fitting_load(lambda: "22.05.8")()] == ["a job"]


def test_one_of_another_release_is_not_even_imported(pyslurm, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pyslurm("25.11.0", "raise SystemExit(9)")
    with pytest.raises(UnknownFormatError, match=r"pyslurm 25\.11\.0 is not for Slurm 22\.05\.8"):
        fitting_load(lambda: "22.05.8")


@pytest.mark.parametrize("text", ["import no_such_module", "x = 1"])
def test_one_that_cannot_be_imported_or_is_another_thing_is_not_used(pyslurm, text: str) -> None:  # type: ignore[no-untyped-def]
    pyslurm("22.5.3", text)
    with pytest.raises(UnknownFormatError, match="cannot be used"):
        fitting_load(lambda: "22.05.8")


def test_an_error_of_the_library_has_another_source_read(pyslurm) -> None:  # type: ignore[no-untyped-def]
    pyslurm("22.5.3", JOBS.replace("return {1: 'a job'}", "raise RuntimeError('Unable to contact')"))
    load = fitting_load(lambda: "22.05.8")
    with pytest.raises(UnknownFormatError, match="Unable to contact"):
        load()
