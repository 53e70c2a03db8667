"""Reading `squeue --json`: what Slurm 22.05 printed (tests/fixtures/slurm), newer shapes, and nonsense."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foundation.slurm import JobSnapshot, SlurmJob, SlurmJobState, SlurmNode
from foundation.slurm.json_jobs import JsonReader
from foundation.slurm.site_configuration import read_nodes
from foundation.slurm.slurm_types import SlurmUnreachableError, UnknownFormatError
from foundation.slurm.text_jobs import Written, job_of, read_facts

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurm"
TEXT = (FIXTURES / "jobs.json").read_text()
NODES = {node.name: node for node in read_nodes((FIXTURES / "nodes.txt").read_text())}
Record = dict[str, Any]


def read(text: str, find: Callable[[str], SlurmNode | None] = NODES.get) -> JobSnapshot:
    reader = JsonReader()
    reader.open(text)
    return reader.read(find)


def jobs() -> dict[int, SlurmJob]:
    snapshot = read(TEXT)
    assert snapshot.unreadable == ()
    return {job.job_id: job for job in snapshot.jobs}


def record(job_id: int) -> Record:
    return next(deepcopy(one) for one in json.loads(TEXT)["jobs"] if one["job_id"] == job_id)


def document(*records: object) -> str:
    return json.dumps({"meta": {}, "errors": [], "jobs": records})


def on(node: str, sockets: object) -> Record:
    """Return the resources of a job on one node."""
    return {"allocated_nodes": [{"nodename": node, "sockets": sockets}]}


def reread(job_id: int, **changes: object) -> JobSnapshot:
    """Read a record with some fields changed, and a sound one."""
    return read(document(record(job_id) | changes, record(9)))


# What 22.05 printed


def test_a_job_across_nodes_has_its_cores_and_its_users_words() -> None:
    job = jobs()[1]
    assert job.state is SlurmJobState.RUNNING
    assert [(held.node, held.cores, held.memory_mib) for held in job.cores] == [
        ("aduqw-n1", (0,), 8192),
        ("aduqw-n2", (0,), 8192),
    ]
    assert job.name is not None
    assert job.name.split("\n")[1].startswith("JobId=6 JobName=a"), "text, and no record"
    assert job.comment == 'gangd-weight=2\tNodes=aduqw-n2 CPU_IDs=0-3000000 Mem=1 "quoted\\" é%s'
    assert (job.user, job.uid, job.partition, job.batch_host) == ("root", 0, "main", "aduqw-n1")


def test_cores_are_numbered_through_the_sockets_of_a_node() -> None:
    assert [(held.node, held.cores) for held in jobs()[2].cores] == [("aduqw-n2", (1, 2, 3, 4))]


def test_times_are_epoch_seconds_and_limits_seconds() -> None:
    job = jobs()[1]
    assert job.start_time is not None
    assert job.end_time is not None
    assert job.time_limit_s == 86_400 + 2 * 3600 + 4 * 60 == job.end_time - job.start_time
    endless = jobs()[2]
    assert (endless.time_limit_s, endless.end_time) == (None, None)
    assert endless.start_time is not None


def test_array_tasks_and_het_components_are_distinguished() -> None:
    found = jobs()
    assert [(found[number].array_job_id, found[number].array_task_id) for number in (12, 13, 3, 1)] == [
        (3, 1),
        (3, 2),
        (3, 3),
        (None, None),
    ]
    assert [(found[number].het_job_id, found[number].het_job_offset) for number in (4, 5, 6)] == [
        (4, 0),
        (4, 1),
        (None, None),
    ]


def test_a_pending_job_has_no_cores_and_no_start() -> None:
    job = jobs()[9]
    assert (job.state, job.reason) == (SlurmJobState.PENDING, "JobHeldUser")
    assert (job.cores, job.start_time, job.end_time) == ((), None, None)


def test_the_longer_of_slurm_s_two_reasons_is_the_reason() -> None:
    longer = "ReqNodeNotAvail, UnavailableNodes:n1"
    said = TEXT.replace('"state_description": ""', f'"state_description": "{longer}"')
    assert {job.reason for job in read(said).jobs} == {longer}


def test_exit_code_and_signal_are_distinguished() -> None:
    found = [jobs()[number] for number in (6, 7, 11)]
    assert [(job.state, job.exit_code, job.exit_signal) for job in found] == [
        (SlurmJobState.FAILED, 3, None),
        (SlurmJobState.FAILED, 0, 9),
        (SlurmJobState.CANCELLED, 0, 15),
    ]


def test_a_requeued_job_counts_its_restarts_and_a_suspended_one_says_so() -> None:
    found = jobs()
    assert (found[8].state, found[8].restarts) == (SlurmJobState.RUNNING, 1)
    assert found[13].state is SlurmJobState.SUSPENDED
    assert found[13].cores != ()


# Shapes of newer versions, as their data parsers have them


def number(value: int | None) -> Record:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def as_newer(old: Record) -> Record:
    """Write a record of 22.05 as data_parser/v0.0.42 (Slurm 24.11) does."""
    new = deepcopy(old)
    for key in ("submit_time", "start_time", "end_time", "node_count", "array_job_id", "array_task_id"):
        new[key] = number(old[key])
    for key in ("het_job_id", "het_job_offset", "cpus"):
        new[key] = number(old[key])
    limit = old["time_limit"]
    new["time_limit"] = {"set": True, "infinite": limit is None, "number": limit or 0}
    new["job_state"] = [old["job_state"]]
    signalled = old["exit_code"] & 0x7F
    new["exit_code"] = {
        "status": ["SIGNALED" if signalled else "SUCCESS"],
        "return_code": number(old["exit_code"] >> 8),
        "signal": {"id": number(signalled or None), "name": ""},
    }
    held = old.get("job_resources")
    if held:
        new["job_resources"] = {
            "select_type": ["CORE", "MEMORY"],
            "cpus": held["allocated_cores"],
            "nodes": {
                "count": held["allocated_hosts"],
                "list": held["nodes"],
                "allocation": [
                    {
                        "index": index,
                        "name": share["nodename"],
                        "cpus": {"count": 1, "used": 0},
                        "memory": {"used": 0, "allocated": share["memory_allocated"]},
                        "sockets": [
                            {
                                "index": int(socket),
                                "cores": [
                                    {"index": 0, "status": ["UNALLOCATED"]},
                                    *(
                                        {"index": int(core), "status": ["ALLOCATED", "IN_USE"]}
                                        for core in cores["cores"]
                                    ),
                                ],
                            }
                            for socket, cores in share["sockets"].items()
                        ],
                    }
                    for index, share in enumerate(held["allocated_nodes"])
                ],
            },
        }
    return new


def test_a_newer_slurm_says_the_same() -> None:
    assert read(document(*(as_newer(one) for one in json.loads(TEXT)["jobs"]))) == read(TEXT)


def test_what_24_11_printed_is_what_its_squeue_lists() -> None:
    folder = FIXTURES / "24.11"
    nodes = {node.name: node for node in read_nodes((folder / "nodes.txt").read_text())}
    assert [(node.cores, node.sockets, node.threads_per_core) for node in nodes.values()] == [
        (4, 1, 2),
        (6, 2, 2),
    ]
    snapshot = read(gzip.decompress((folder / "jobs.json.gz").read_bytes()).decode(), nodes.get)
    assert snapshot.unreadable == ()
    facts = dict(read_facts((folder / "facts.txt").read_text()))
    assert len(facts) == len(snapshot.jobs) == 13
    for job in snapshot.jobs:
        listed = facts[job.job_id]
        assert listed is not None
        said = Written(job.comment, job.features)
        assert job.extra == ""  # its JSON has it, and it is empty; the list has none
        assert replace(job, extra=None) == job_of(listed, job.cores, said, job.name, job.reason)
    cores = {
        job.job_id: [(held.node, held.cores, held.memory_mib) for held in job.cores] for job in snapshot.jobs
    }
    assert cores[1] == [("n1", (0,), 200), ("n2", (0,), 200)]
    assert (cores[2], cores[9]) == ([("n2", (1, 2, 3, 4), 800)], [])
    [evil] = [job for job in snapshot.jobs if job.job_id == 1]
    assert evil.name == "x Nodes=n[1-2] CPU_IDs=0 Mem=1\nJobId=6 JobName=a"
    assert evil.comment == 'gangd-weight=2\tCPU_IDs=0-3000000 "q\\" é%s\x01'


def test_of_several_states_the_flag_counts_that_older_slurms_print() -> None:
    for words, state in (
        (["RUNNING", "COMPLETING"], SlurmJobState.COMPLETING),
        (["SUSPENDED", "SIGNALING"], SlurmJobState.SIGNALING),
        (["PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"], SlurmJobState.REQUEUE_HOLD),
        (["RUNNING", "POWER_UP_NODE"], SlurmJobState.RUNNING),
    ):
        assert reread(1, job_state=words).jobs[0].state is state


# What cannot be


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"job_state": "ASLEEP"}, "its state is none that is known"),
        ({"job_state": 3}, "another form"),
        ({"start_time": "now"}, "another form"),
        ({"start_time": 1 << 60}, "another form"),
        ({"end_time": -1}, "another form"),
        ({"user_id": None}, "another form"),
        ({"job_resources": on("aduqw-n1", {})}, "not among the 4"),
        ({"job_resources": on("n9", {})}, "does not have"),
    ],
)
def test_a_bad_record_harms_only_itself(changes: Record, why: str) -> None:
    snapshot = reread(1, **changes)
    assert [job.job_id for job in snapshot.jobs] == [9]
    [one] = snapshot.unreadable
    assert one.job_id == 1
    assert why in one.why
    assert snapshot.is_unreadable(1)
    assert not snapshot.is_unreadable(9)
    assert not snapshot.is_unreadable(2)


@pytest.mark.parametrize(
    "sockets",
    [
        {"0": {"cores": {"4": "allocated"}}},
        {"1": {"cores": {"0": "allocated"}}},
        {"0": {"cores": {"-1": "allocated"}}},
        {"0": {"cores": {"3000000": "allocated"}}},
        {"0": {"cores": {"0x1": "allocated"}}},
        {"0": {"cores": {"": "allocated"}}},
        {"99999": {"cores": {"0": "allocated"}}},
        [
            {
                "index": 0,
                "cores": [{"index": 1, "status": ["ALLOCATED"]}, {"index": 1, "status": ["ALLOCATED"]}],
            }
        ],
        [{"index": 70000, "cores": []}],
    ],
)
def test_cores_that_the_cluster_does_not_have_are_not_believed(sockets: object) -> None:
    snapshot = reread(1, job_resources=on("aduqw-n1", sockets))
    assert [one.job_id for one in snapshot.unreadable] == [1]


def test_a_job_twice_on_one_node_is_not_believed() -> None:
    share = {"nodename": "aduqw-n1", "sockets": {"0": {"cores": {"0": "allocated"}}}}
    assert reread(1, job_resources={"allocated_nodes": [share, share]}).is_unreadable(1)


def test_a_job_that_has_ended_may_have_been_on_a_node_that_is_gone() -> None:
    snapshot = read(document(record(6)), lambda _: None)
    assert [(job.state, job.cores) for job in snapshot.jobs] == [(SlurmJobState.FAILED, ())]


def test_of_two_records_with_one_id_neither_is_believed() -> None:
    snapshot = read(document(record(1), record(9), record(1) | {"job_state": "CANCELLED"}))
    assert [job.job_id for job in snapshot.jobs] == [9]
    assert [one.job_id for one in snapshot.unreadable] == [1]


def test_a_record_without_an_id_may_be_any_job() -> None:
    snapshot = read(document(record(9), {"job_id": "x"}, 7, None))
    assert [job.job_id for job in snapshot.jobs] == [9]
    assert {one.job_id for one in snapshot.unreadable} == {None}
    assert snapshot.is_unreadable(1)
    assert not snapshot.is_unreadable(9)


def test_fields_that_are_not_known_are_passed_over() -> None:
    assert reread(1, licenses={"of": ["any", "form"]}, flags=7).unreadable == ()


def test_slurm_being_away_is_no_empty_cluster() -> None:
    """22.05 ends with exit code 0 then, and prints an empty list."""
    fault = {"error": "Unspecified error", "description": "Failed while looking for jobs"}
    away = {"errors": [fault], "jobs": []}
    with pytest.raises(SlurmUnreachableError, match="Failed while looking for jobs"):
        read(json.dumps(away))


def test_jobs_next_to_an_error_are_not_taken_for_all_jobs() -> None:
    said = json.dumps({"errors": [{"error": "x\ny"}], "jobs": [record(9)]})
    with pytest.raises(UnknownFormatError, match=r"lists jobs, and says: x\?y"):
        read(said)


@pytest.mark.parametrize("text", ["", "[]", "{}", "squeue: hello", '{"jobs": 3}', '{"jobs": [', "\ud800"])
def test_what_is_no_such_document_says_so(text: str) -> None:
    with pytest.raises(UnknownFormatError):
        read(text)


def test_a_name_that_is_no_unicode_harms_no_one() -> None:
    raw = document(record(1), record(9)).encode().replace(b"CPU_IDs=0-3", b"CPU_IDs=\xff\xc3")
    snapshot = read(raw.decode(errors="replace"))
    assert [job.job_id for job in snapshot.jobs] == [1, 9]


def test_a_record_that_is_as_before_is_the_same_object_until_a_node_changes() -> None:
    reader = JsonReader()
    reader.open(TEXT)
    first = reader.read(NODES.get, 1)
    reader.open(TEXT.replace('"SUSPENDED"', '"RUNNING"'))
    second = reader.read(NODES.get, 1)
    assert [one is other for one, other in zip(first.jobs, second.jobs, strict=True)].count(False) == 1
    third = reader.read(NODES.get, 2)
    assert not any(one is other for one, other in zip(second.jobs, third.jobs, strict=True))
