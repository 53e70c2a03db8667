"""Running a command: how long, how much, and what cannot be run at all."""

from __future__ import annotations

import sys

import pytest

from foundation.errors import HostError, UsageError
from foundation.slurm.calling.run_command import run_command

PATH = {"PATH": "/bin:/usr/bin"}


def test_a_command_gets_its_stdin_and_gives_what_it_prints_as_it_is() -> None:
    answer = run_command(
        ["sh", "-c", "cat; printf 'a\\r\\nb\\377' >&2; exit 3"], "x\r\n" * 100_000, PATH, 10.0
    )
    assert answer.returncode == 3
    assert answer.stdout == "x\r\n" * 100_000, "no line end is made of another"
    assert answer.stderr == "a\r\nb\N{REPLACEMENT CHARACTER}"


def test_a_command_that_does_not_read_its_stdin_is_no_fault() -> None:
    assert run_command(["true"], "x" * (1 << 20), PATH, 10.0).returncode == 0


def test_a_missing_program_is_an_error_of_the_host() -> None:
    with pytest.raises(HostError, match="not installed"):
        run_command(["no-such-program-at-all"], None, {}, 1.0)


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["true", "a\0b"], None),
        (["true", "\ud800"], None),
        (["true"], "\ud800"),
        (["true", "x" * (1 << 20)], None),
    ],
)
def test_what_no_command_can_be_given_is_an_error_of_usage(words: list[str], stdin: str | None) -> None:
    with pytest.raises(UsageError, match="true cannot be given these words"):
        run_command(["true", *words], stdin, PATH, 1.0)


def test_a_command_that_hangs_is_killed() -> None:
    assert run_command(["sleep", "60"], None, PATH, 0.05).returncode is None


def test_a_command_that_closes_its_output_and_hangs_is_killed() -> None:
    assert run_command(["sh", "-c", "exec >&- 2>&-; sleep 60"], None, PATH, 0.2).returncode is None


@pytest.mark.parametrize("where", ["1", "2"])
def test_a_command_that_never_stops_talking_is_killed(where: str) -> None:
    answer = run_command(["sh", "-c", f"yes >&{where}"], None, PATH, 60.0, most_bytes=1 << 20)
    assert (answer.returncode, answer.too_long, answer.stdout) == (None, True, "")


def test_a_command_that_talks_for_too_long_is_killed() -> None:
    slowly = "import time\nwhile True: print('x', flush=True); time.sleep(0.001)"
    answer = run_command([sys.executable, "-c", slowly], None, PATH, 0.5)
    assert (answer.returncode, answer.too_long) == (None, False)
