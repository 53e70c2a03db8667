"""CommandSlurm: which failures are tried again, which are told, which are uncertain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from foundation.slurm import CommandSlurm, SubmitRequest
from foundation.slurm.run_command import CommandOutput
from foundation.slurm.slurm_types import (
    SlurmRefusedError,
    SlurmUnreachableError,
    SubmitUncertainError,
    UnreadableJobError,
)

AWAY = CommandOutput(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
PENDING = """{"job_id": 7, "job_state": "PENDING", "user_id": 0, "partition": "main", "submit_time": 1,
 "start_time": 0, "end_time": 0, "time_limit": null, "exit_code": 0, "node_count": 1}"""
REQUEST = SubmitRequest(script="#!/bin/sh\ntrue\n", name="j", environment={"HOME": "/home/user"})


class Script:
    """A runner that gives prepared answers and notes what it was asked."""

    def __init__(self, *answers: CommandOutput) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[list[str], str | None, Mapping[str, str]]] = []
        self.pauses: list[float] = []

    def __call__(
        self, words: Sequence[str], stdin: str | None, env: Mapping[str, str], _: float
    ) -> CommandOutput:
        self.calls.append((list(words), stdin, env))
        return self.answers.pop(0)

    def client(self) -> CommandSlurm:
        return CommandSlurm(Path("/etc/x/slurm.conf"), runner=self, pause=self.pauses.append)


def test_a_read_is_tried_again_while_slurm_is_away() -> None:
    script = Script(AWAY, AWAY, CommandOutput(0, "SLURM_VERSION = 22.05.8\n", ""))
    assert script.client().version() == "22.05.8"
    assert script.pauses == [0.5, 1.0]


def test_a_read_gives_up_after_bounded_tries_and_says_so() -> None:
    script = Script(AWAY, AWAY, AWAY)
    with pytest.raises(SlurmUnreachableError, match="is slurmctld running"):
        script.client().version()
    assert len(script.calls) == 3


def test_a_submission_returns_the_id_and_passes_script_and_options() -> None:
    script = Script(CommandOutput(0, "17;cluster\n", ""))
    assert script.client().submit(REQUEST) == 17
    words, stdin, env = script.calls[0]
    assert words[:2] == ["sbatch", "--parsable"]
    assert stdin == REQUEST.script
    assert env["SLURM_CONF"] == "/etc/x/slurm.conf"
    assert env["HOME"] == "/home/user"


def test_a_submission_that_never_arrived_is_made_again() -> None:
    script = Script(AWAY, CommandOutput(0, "18\n", ""))
    assert script.client().submit(REQUEST) == 18


@pytest.mark.parametrize(
    "answer",
    [
        CommandOutput(None, "", "no answer"),
        CommandOutput(1, "", "sbatch: error: Socket timed out on send/recv"),
    ],
)
def test_a_submission_without_an_answer_is_not_repeated(answer: CommandOutput) -> None:
    script = Script(answer)
    with pytest.raises(SubmitUncertainError):
        script.client().submit(REQUEST)
    assert len(script.calls) == 1


def test_a_refusal_is_reported_in_slurms_words() -> None:
    script = Script(
        CommandOutput(
            1, "", "sbatch: error: invalid partition specified: q\nsbatch: error: Batch job failed\n"
        )
    )
    with pytest.raises(SlurmRefusedError, match="Batch job failed"):
        script.client().submit(REQUEST)


def test_cancelling_a_job_that_has_ended_is_no_error() -> None:
    script = Script(
        CommandOutput(1, "", "scancel: error: Kill job error on job id 9: Invalid job id specified\n")
    )
    script.client().cancel([9])
    assert script.calls[0][0] == ["scancel", "9"]


def test_very_many_jobs_are_cancelled_by_several_commands() -> None:
    script = Script(*[CommandOutput(0, "", "")] * 3)
    script.client().cancel(range(2_500), only_pending=True)
    assert [len(words) for words, _, _ in script.calls] == [1002, 1002, 502]
    assert [number for words, _, _ in script.calls for number in words[2:]] == [
        str(one) for one in range(2_500)
    ]


def test_cancelling_nothing_asks_no_one() -> None:
    script = Script()
    script.client().cancel([])
    assert script.calls == []


def test_an_unknown_job_is_none_and_an_unreadable_one_an_error() -> None:
    script = Script(CommandOutput(0, '{"jobs": []}', ""), CommandOutput(0, "", ""))
    assert script.client().job(9) is None
    records = f'{{"jobs": [{{"job_id": 9}}, {PENDING}]}}'
    script = Script(CommandOutput(0, records, ""), CommandOutput(0, "", ""))
    with pytest.raises(UnreadableJobError, match="job 9: its record has another form"):
        script.client().job(9)


def test_a_list_of_jobs_is_tried_again_where_squeue_says_away_with_exit_code_0() -> None:
    away = CommandOutput(0, '{"errors": [{"description": "Failed while looking for jobs"}], "jobs": []}', "")
    script = Script(
        away, CommandOutput(0, f'{{"errors": [], "jobs": [{PENDING}]}}', ""), CommandOutput(0, "", "")
    )
    assert [job.job_id for job in script.client().jobs().jobs] == [7]
    assert script.pauses == [0.5]
    script = Script(away, away, away)
    with pytest.raises(SlurmUnreachableError, match="Failed while looking for jobs"):
        script.client().jobs()


def test_an_end_is_moved_in_a_zone_that_has_every_hour_once() -> None:
    script = Script(CommandOutput(1, "", "invalid keyword: end-of-9\n"))
    script.client().move_ends({9: 1_793_511_000})
    words, stdin, env = script.calls[0]
    assert (words, stdin) == (["scontrol"], "update JobId=9 EndTime=2026-11-01T05:30:00\nend-of-9\n")
    assert env["TZ"] == "UTC"


@pytest.mark.parametrize(
    "printed", ["", "Submitted batch job 9", "9 9", "-9", "9\n10", "99999999999", "\u0669"]
)
def test_a_submission_whose_id_cannot_be_read_is_uncertain(printed: str) -> None:
    with pytest.raises(SubmitUncertainError):
        Script(CommandOutput(0, printed, "")).client().submit(REQUEST)


def test_what_a_command_says_is_reported_in_one_printable_line() -> None:
    script = Script(CommandOutput(1, "", "sbatch: error: \x1b[31mno\x07" + "!" * 5000 + "\n"))
    with pytest.raises(SlurmRefusedError) as caught:
        script.client().submit(REQUEST)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_a_munged_that_is_away_is_waited_for_as_slurm_is() -> None:
    words = "sbatch: error: Batch job submission failed: Protocol authentication error\n"
    script = Script(*[CommandOutput(1, "", words)] * 3)
    with pytest.raises(SlurmUnreachableError, match="authentication"):
        script.client().submit(REQUEST)


def test_a_job_is_checked_without_being_submitted_and_the_line_that_reports_is_reported() -> None:
    words = "sbatch: unrecognized option '--bogus'\nTry \"sbatch --help\" for more information\n"
    script = Script(
        CommandOutput(0, "", "sbatch: Job 3 to start at ...\n"), CommandOutput(255, "", words), AWAY
    )
    client = script.client()
    client.check(REQUEST)
    assert script.calls[0][0][:2] == ["sbatch", "--test-only"]
    with pytest.raises(SlurmRefusedError, match="unrecognized option '--bogus'"):
        client.check(REQUEST)
    with pytest.raises(SlurmUnreachableError):
        client.check(REQUEST)


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        (
            "error: _parse_next_key: Parsing error at unrecognized key: Foo",
            "scontrol: fatal: Unable to process configuration file",
        ),
        (
            "error: get_addr_info: getaddrinfo() failed: Name or service not known: No error",
            "slurm_load_ctl_conf error: No error",
        ),
    ],
)
def test_why_a_configuration_cannot_be_read_is_reported(reason: str, end: str) -> None:
    script = Script(CommandOutput(1, "", f"scontrol: {reason}\nscontrol: error: more\n{end}\n"))
    with pytest.raises(SlurmRefusedError) as caught:
        script.client().config()
    assert str(caught.value) == f"`scontrol show config` failed: scontrol: {reason}; {end}"


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (
            "sbatch: error: lua: Say no --mem.\nsbatch: error: cli_filter plugin terminated with error\n",
            "lua: Say no --mem.; sbatch: error: cli_filter plugin terminated with error",
        ),
        (
            "sbatch: error: Say why.\nsbatch: error: See our page.\nallocation failure: Unspecified error\n",
            "Say why.; See our page.; allocation failure: Unspecified error",
        ),
        ("sbatch: error: Invalid qos\n", "sbatch: error: Invalid qos"),
    ],
)
def test_a_refusal_has_the_words_of_a_site_s_own_filters(printed: str, told: str) -> None:
    """As Slurm 22.05 prints them of cli_filter.lua and job_submit.lua."""
    script = Script(CommandOutput(1, "", printed), CommandOutput(1, "", printed))
    for ask in (script.client().check, script.client().submit):
        with pytest.raises(SlurmRefusedError) as caught:
            ask(REQUEST)
        assert str(caught.value).endswith(f": {told}")
