"""Many jobs updated by one command, ends or a word: what goes into it, and what comes out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.slurm import CommandSlurm, SubmitRequest
from foundation.slurm.json_jobs import JsonReader
from foundation.slurm.run_command import CommandOutput
from foundation.slurm.slurm_client import (
    MarkField,
    marking_script,
    moving_script,
    read_outcomes,
    sharing_text,
)
from foundation.slurm.slurm_types import SlurmUnreachableError
from tests.fixtures.fake_slurm import FakeSlurm

ENDS = {7: 1_000_000_000, 5: 1_000_000_060}
DONE = "invalid keyword: end-of-7\ninvalid keyword: end-of-5\n"

MARKED = "invalid keyword: end-of-7\ninvalid keyword: end-of-9\n"


def client(answer: CommandOutput, asked: list[tuple[Sequence[str], str | None, str]]) -> CommandSlurm:
    def run(
        words: Sequence[str], stdin: str | None, environment: Mapping[str, str], timeout_s: float
    ) -> CommandOutput:
        asked.append((words, stdin, environment["TZ"]))
        return answer

    return CommandSlurm(Path("/etc/x/slurm.conf"), runner=run, pause=lambda _: None)


def test_all_ends_go_into_one_command_in_order_and_in_universal_time() -> None:
    asked: list[tuple[Sequence[str], str | None, str]] = []
    assert client(CommandOutput(1, "", DONE), asked).move_ends(ENDS) == {}
    [(words, stdin, zone)] = asked
    assert (words, zone) == (["scontrol"], "UTC")
    assert stdin == (
        "update JobId=7 EndTime=2001-09-09T01:46:40\nend-of-7\n"
        "update JobId=5 EndTime=2001-09-09T01:47:40\nend-of-5\n"
    )


def test_each_refusal_is_reported_for_its_own_job() -> None:
    said = "Access/permission denied for job 7\n\nsecond line\n" + DONE
    assert client(CommandOutput(1, "", said), []).move_ends(ENDS) == {
        7: "Access/permission denied for job 7; second line"
    }


@pytest.mark.parametrize(
    ("answer", "many"),
    [
        (CommandOutput(None, "", "no answer within 20 s"), 2),
        (CommandOutput(1, "", "invalid keyword: end-of-7\n"), 1),
        (CommandOutput(1, "", "Unexpected message received for job 7\n" + DONE), 1),
        (CommandOutput(1, "", "Unable to contact slurm controller (connect failure) for job 7\n" + DONE), 1),
        (CommandOutput(1, "", "scontrol: fatal: Unable to process configuration file\n"), 2),
    ],
)
def test_what_slurm_did_not_answer_is_an_error(answer: CommandOutput, many: int) -> None:
    with pytest.raises(SlurmUnreachableError, match=f"the ends of {many} of 2 jobs"):
        client(answer, []).move_ends(ENDS)


@given(st.text())
def test_whatever_scontrol_says_is_read(errors: str) -> None:
    assert all(job >= 0 for job in read_outcomes(errors))


@given(st.dictionaries(st.integers(1, 2**32 - 1), st.integers(0, 2**32)))
def test_a_line_for_each_job_and_nothing_else(ends: dict[int, int]) -> None:
    lines = moving_script(ends).splitlines()
    assert len(lines) == 2 * len(ends)
    said = "".join(f"invalid keyword: {line}\n" for line in lines[1::2])
    assert read_outcomes(said) == dict.fromkeys(ends, "")


def test_the_word_says_since_when_in_universal_time() -> None:
    assert sharing_text(1_000_000_000.9) == "gangd-shares-cores=2001-09-09T01:46:40Z"


def test_all_jobs_are_marked_by_one_command() -> None:
    asked: list[tuple[Sequence[str], str | None, str]] = []
    assert client(CommandOutput(1, "", MARKED), asked).mark([7, 9], MarkField.ADMIN_COMMENT, "x=1") == {}
    updates = "update JobId=7 AdminComment=x=1\nend-of-7\nupdate JobId=9 AdminComment=x=1\nend-of-9\n"
    assert asked == [(["scontrol"], updates, "UTC")]


def test_a_refusal_is_reported_for_its_own_job_and_silence_of_slurm_is_an_error() -> None:
    said = "slurm_update error: Access/permission denied\n" + MARKED
    assert client(CommandOutput(1, "", said), []).mark([7, 9], MarkField.EXTRA, "x") == {
        7: "slurm_update error: Access/permission denied"
    }
    with pytest.raises(SlurmUnreachableError, match="marked 1 of 2 jobs"):
        client(CommandOutput(1, "", "invalid keyword: end-of-7\n"), []).mark([7, 9], MarkField.EXTRA, "x")


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


def test_json_reports_of_an_extra_that_is_empty_and_of_one_that_it_does_not_have() -> None:
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
