"""CommandSlurm: which failures are tried again, which are told, which are uncertain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from osub.errors import HostError
from osub.slurm import CommandSlurm, SubmitRequest
from osub.slurm.command import Answer, run_command
from osub.slurm.faults import SlurmRefusedError, SlurmUnreachableError, SubmitUncertainError

AWAY = Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
REQUEST = SubmitRequest(script="#!/bin/sh\ntrue\n", name="j", environment={"HOME": "/home/user"})


class Script:
    """A runner that gives prepared answers and notes what it was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[list[str], str | None, Mapping[str, str]]] = []
        self.pauses: list[float] = []

    def __call__(self, words: Sequence[str], stdin: str | None, env: Mapping[str, str], _: float) -> Answer:
        self.calls.append((list(words), stdin, env))
        return self.answers.pop(0)

    def client(self) -> CommandSlurm:
        return CommandSlurm(Path("/etc/x/slurm.conf"), runner=self, pause=self.pauses.append)


def test_a_read_is_tried_again_while_slurm_is_away() -> None:
    script = Script(AWAY, AWAY, Answer(0, "SLURM_VERSION = 22.05.8\n", ""))
    assert script.client().version() == "22.05.8"
    assert script.pauses == [0.5, 1.0]


def test_a_read_gives_up_after_bounded_tries_and_says_so() -> None:
    script = Script(AWAY, AWAY, AWAY)
    with pytest.raises(SlurmUnreachableError, match="is slurmctld running"):
        script.client().version()
    assert len(script.calls) == 3


def test_a_submission_returns_the_id_and_passes_script_and_options() -> None:
    script = Script(Answer(0, "17;cluster\n", ""))
    assert script.client().submit(REQUEST) == 17
    words, stdin, env = script.calls[0]
    assert words[:2] == ["sbatch", "--parsable"]
    assert stdin == REQUEST.script
    assert env["SLURM_CONF"] == "/etc/x/slurm.conf"
    assert env["HOME"] == "/home/user"


def test_a_submission_that_never_arrived_is_made_again() -> None:
    script = Script(AWAY, Answer(0, "18\n", ""))
    assert script.client().submit(REQUEST) == 18


@pytest.mark.parametrize(
    "answer", [Answer(None, "", "no answer"), Answer(1, "", "sbatch: error: Socket timed out on send/recv")]
)
def test_a_submission_without_an_answer_is_not_repeated(answer: Answer) -> None:
    script = Script(answer)
    with pytest.raises(SubmitUncertainError):
        script.client().submit(REQUEST)
    assert len(script.calls) == 1


def test_a_refusal_is_told_in_slurms_words() -> None:
    script = Script(
        Answer(1, "", "sbatch: error: invalid partition specified: q\nsbatch: error: Batch job failed\n")
    )
    with pytest.raises(SlurmRefusedError, match="Batch job failed"):
        script.client().submit(REQUEST)


def test_cancelling_a_job_that_has_ended_is_no_error() -> None:
    script = Script(Answer(1, "", "scancel: error: Kill job error on job id 9: Invalid job id specified\n"))
    script.client().cancel([9])
    assert script.calls[0][0] == ["scancel", "9"]


def test_cancelling_nothing_asks_nobody() -> None:
    script = Script()
    script.client().cancel([])
    assert script.calls == []


def test_an_unknown_job_is_none() -> None:
    script = Script(Answer(1, "", "slurm_load_jobs error: Invalid job id specified\n"))
    assert script.client().job(9) is None


def test_a_missing_program_is_an_error_of_the_host() -> None:
    with pytest.raises(HostError, match="not installed"):
        run_command(["no-such-program-at-all"], None, {}, 1.0)


def test_a_command_that_hangs_is_killed() -> None:
    assert run_command(["sleep", "60"], None, {"PATH": "/bin:/usr/bin"}, 0.05).returncode is None
