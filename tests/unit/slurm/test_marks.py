"""A word in a field of a job: what scontrol is told, and that nothing else can be told it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from foundation.slurm import CommandSlurm, FakeSlurm, SubmitRequest
from foundation.slurm.calling.run_command import Answer
from foundation.slurm.marks import MarkField, marking_script, sharing_text
from foundation.slurm.reading.json_jobs import JsonReader
from foundation.slurm.reading.record_faults import SlurmUnreachableError

DONE = "invalid keyword: end-of-7\ninvalid keyword: end-of-9\n"


def client(answer: Answer, asked: list[tuple[Sequence[str], str | None]]) -> CommandSlurm:
    def run(
        words: Sequence[str], stdin: str | None, environment: Mapping[str, str], timeout_s: float
    ) -> Answer:
        asked.append((words, stdin))
        return answer

    return CommandSlurm(Path("/etc/x/slurm.conf"), runner=run, pause=lambda _: None)


def test_the_word_says_since_when_in_universal_time() -> None:
    assert sharing_text(1_000_000_000.9) == "gangd-shares-cores=2001-09-09T01:46:40Z"


def test_all_jobs_are_marked_by_one_command() -> None:
    asked: list[tuple[Sequence[str], str | None]] = []
    assert client(Answer(1, "", DONE), asked).mark([7, 9], MarkField.ADMIN_COMMENT, "x=1") == {}
    assert asked == [
        (
            ["scontrol"],
            "update JobId=7 AdminComment=x=1\nend-of-7\nupdate JobId=9 AdminComment=x=1\nend-of-9\n",
        )
    ]


def test_a_refusal_is_told_of_its_own_job_and_silence_of_slurm_is_an_error() -> None:
    said = "slurm_update error: Access/permission denied\n" + DONE
    assert client(Answer(1, "", said), []).mark([7, 9], MarkField.EXTRA, "x") == {
        7: "slurm_update error: Access/permission denied"
    }
    with pytest.raises(SlurmUnreachableError, match="marked 1 of 2 jobs"):
        client(Answer(1, "", "invalid keyword: end-of-7\n"), []).mark([7, 9], MarkField.EXTRA, "x")


@pytest.mark.parametrize(
    "text", ["", "a b", "a\nupdate JobId=1 TimeLimit=0", "a'", 'a"', "=a", "x" * 129, "é"]
)
def test_what_could_be_another_word_for_scontrol_is_not_written(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        marking_script([7], MarkField.EXTRA, text)


def test_a_field_is_empty_only_if_it_is_known_to_be() -> None:
    slurm = FakeSlurm()
    job = slurm.job(slurm.submit(SubmitRequest(script="#!/bin/sh\n", name="j")))
    assert job is not None
    assert MarkField.ADMIN_COMMENT.is_empty(job)
    assert not MarkField.EXTRA.is_empty(job)  # this Slurm does not tell of it
    assert MarkField.EXTRA.is_empty(replace(job, extra=""))
    assert not MarkField.EXTRA.is_empty(replace(job, extra="a user's"))
    assert not MarkField.ADMIN_COMMENT.is_empty(replace(job, admin_comment="a site's"))


def test_json_tells_of_an_extra_that_is_empty_and_of_one_that_it_does_not_have() -> None:
    common = {"job_state": "PENDING", "user_id": 0, "partition": "p", "submit_time": 1, "start_time": 0}
    common |= {"end_time": 0, "time_limit": 5, "exit_code": 0, "node_count": 1}
    records = [
        common | more for more in ({"job_id": 1}, {"job_id": 2, "extra": ""}, {"job_id": 3, "extra": "mine"})
    ]
    text = json.dumps({"jobs": records, "errors": []})
    reader = JsonReader()
    reader.open(text)
    snapshot = reader.read(lambda _: None)
    assert not snapshot.unreadable
    assert [job.extra for job in snapshot.jobs] == [None, "", "mine"]


def test_the_word_of_a_job_is_of_a_fixed_form() -> None:
    assert re.fullmatch(
        r"gangd-shares-cores=[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", sharing_text(0)
    )
