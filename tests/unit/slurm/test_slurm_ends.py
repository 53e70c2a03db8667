"""Moving many ends by one command: what goes into it, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.slurm import CommandSlurm
from foundation.slurm.calling.run_command import Answer
from foundation.slurm.ends import moving_script, read_outcomes
from foundation.slurm.reading.record_faults import SlurmUnreachableError

ENDS = {7: 1_000_000_000, 5: 1_000_000_060}
DONE = "invalid keyword: end-of-7\ninvalid keyword: end-of-5\n"


def client(answer: Answer, asked: list[tuple[Sequence[str], str | None, str]]) -> CommandSlurm:
    def run(
        words: Sequence[str], stdin: str | None, environment: Mapping[str, str], timeout_s: float
    ) -> Answer:
        asked.append((words, stdin, environment["TZ"]))
        return answer

    return CommandSlurm(Path("/etc/x/slurm.conf"), runner=run, pause=lambda _: None)


def test_all_ends_go_into_one_command_in_order_and_in_universal_time() -> None:
    asked: list[tuple[Sequence[str], str | None, str]] = []
    assert client(Answer(1, "", DONE), asked).move_ends(ENDS) == {}
    [(words, stdin, zone)] = asked
    assert (words, zone) == (["scontrol"], "UTC")
    assert stdin == (
        "update JobId=7 EndTime=2001-09-09T01:46:40\nend-of-7\n"
        "update JobId=5 EndTime=2001-09-09T01:47:40\nend-of-5\n"
    )


def test_each_refusal_is_told_of_its_own_job() -> None:
    said = "Access/permission denied for job 7\n\nsecond line\n" + DONE
    assert client(Answer(1, "", said), []).move_ends(ENDS) == {
        7: "Access/permission denied for job 7; second line"
    }


@pytest.mark.parametrize(
    ("answer", "many"),
    [
        (Answer(None, "", "no answer within 20 s"), 2),
        (Answer(1, "", "invalid keyword: end-of-7\n"), 1),
        (Answer(1, "", "Unexpected message received for job 7\n" + DONE), 1),
        (Answer(1, "", "Unable to contact slurm controller (connect failure) for job 7\n" + DONE), 1),
        (Answer(1, "", "scontrol: fatal: Unable to process configuration file\n"), 2),
    ],
)
def test_what_slurm_did_not_answer_is_an_error(answer: Answer, many: int) -> None:
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
