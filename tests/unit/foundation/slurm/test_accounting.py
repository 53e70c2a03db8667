"""What became of jobs by ``sacct``: a strict grammar, and a command that knows no other options."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from foundation.slurm import CommandSlurm, SlurmJobState
from foundation.slurm.slurm_client import FIELDS, Accounted, accounting_words, read_accounting

FAKE = """#!/bin/sh
# Prints what is in the file beside it; refuses every word that it does not know.
for word in "$@"; do
  case $word in
    --noheader | --parsable2 | --allocations | --duplicates) ;;
    --format=JobIDRaw,State,ExitCode,Submit,Start,End) ;;
    --jobs=*[!0-9,]*) echo "sacct: fatal: Bad job/step specified: $word" >&2; exit 1 ;;
    --jobs=*) ;;
    *) echo "sacct: unrecognized option '$word'" >&2; exit 1 ;;
  esac
done
[ "$TZ" = UTC ] || exit 3
cat "$(dirname "$0")/answer"
"""
TEXT = """\
7|COMPLETED|0:0|2026-11-24T09:00:00|2026-11-24T09:00:10|2026-11-24T09:01:00
8|CANCELLED by 1000|0:15|2026-11-24T09:00:00|2026-11-24T09:00:10|2026-11-24T09:00:20
9|RUNNING|0:0|2026-11-24T09:00:00|2026-11-24T09:00:10|Unknown
10|NODE_FAIL|1:0|2026-11-24T09:00:00|2026-11-24T09:00:10|2026-11-24T09:00:20
10|FAILED|3:0|2026-11-24T09:00:20|2026-11-24T09:00:30|2026-11-24T09:00:40
11|CANCELLED|0:0|2026-11-24T09:00:00|None|2026-11-24T09:00:20
"""


def test_jobs_are_read_with_their_last_life() -> None:
    found = read_accounting(TEXT)
    assert {key: (one.state, one.exit_code, one.exit_signal) for key, one in found.items()} == {
        7: (SlurmJobState.COMPLETED, 0, None),
        8: (SlurmJobState.CANCELLED, 0, 15),
        9: (SlurmJobState.RUNNING, 0, None),
        10: (SlurmJobState.FAILED, 3, None),
        11: (SlurmJobState.CANCELLED, 0, None),
    }
    assert found[7].end_time is not None
    assert found[7].start_time is not None
    assert found[7].end_time - found[7].start_time == 50
    assert (found[9].end_time, found[11].start_time) == (None, None)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "7",
        "7|COMPLETED|0:0|2026-11-24T09:00:00|2026-11-24T09:00:10",
        "7.batch|COMPLETED|0:0|Unknown|Unknown|Unknown",
        "7|DANCING|0:0|Unknown|Unknown|Unknown",
        "7|COMPLETED|0|Unknown|Unknown|Unknown",
        "7|COMPLETED|0:0|Unknown|Unknown|Unknown|more",
        "7|CANCELLED by x|0:0|Unknown|Unknown|Unknown",
        "x|7|COMPLETED|0:0|Unknown|Unknown|Unknown",
        "\u0667|COMPLETED|0:0|Unknown|Unknown|Unknown",
        " 7|COMPLETED|0:0|Unknown|Unknown|Unknown",
    ],
)
def test_a_line_of_another_form_counts_for_nothing(line: str) -> None:
    assert set(read_accounting(f"{line}\n{TEXT}")) == {7, 8, 9, 10, 11}
    assert read_accounting(line) == {}


def test_a_time_that_is_none_is_not_known() -> None:
    [one] = read_accounting("7|COMPLETED|0:0|2026-99-24T09:00:00|Unknown|None").values()
    assert (one.submit_time, one.start_time, one.end_time) == (None, None, None)


def test_no_field_in_which_users_write_is_asked_for() -> None:
    assert set(FIELDS).isdisjoint({"JobName", "Comment", "Account", "WorkDir", "SubmitLine", "WCKey"})
    assert accounting_words([3, 4])[-1] == "--jobs=3,4"


@pytest.fixture
def sacct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sacct").write_text(FAKE)
    (folder / "sacct").chmod(0o755)
    (folder / "answer").write_text(TEXT)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_the_command_is_one_that_sacct_knows(sacct: Path) -> None:
    found = CommandSlurm().accounted({7: 0.0, 8: 0.0})
    assert found is not None
    assert isinstance(found[7], Accounted)


def test_a_cluster_without_accounting_has_none(sacct: Path) -> None:
    (sacct / "sacct").write_text("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2; exit 1\n")
    assert CommandSlurm().accounted({7: 0.0}) is None


def test_a_host_without_sacct_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert CommandSlurm().accounted({7: 0.0}) is None
