"""Accounting and the completion log."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.slurm import CommandSlurm, SlurmJobState
from foundation.slurm.completions import CompletionFile, Completions, read_line, zone_of
from foundation.slurm.slurm_client import FIELDS, Accounted, accounting_words, read_accounting

FAKE = """#!/bin/sh
# Prints what is in the file next to it; refuses every word that it does not know.
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
    (folder := tmp_path / "bin").mkdir()
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


SUBMITTED = 1_795_597_200.0  # 2026-11-25T09:00:00Z

FORM = (
    "JobId={job} UserId={user} GroupId=root(0) Name={name} JobState={state} Partition=main TimeLimit=5 "
    "StartTime={start} EndTime={end} NodeList=n1 NodeCnt=1 ProcCnt=1 WorkDir={folder} ReservationName= "
    "Tres=cpu=1,mem=1024M,node=1 Account={account} QOS= WcKey={key} Cluster=unknown SubmitTime={submit} "
    "EligibleTime={submit}{more} DerivedExitCode=0:0 ExitCode={code} "
)


def line(job: int, **fields: object) -> str:
    usual: dict[str, object] = {"user": "root(0)", "name": "job", "state": "COMPLETED", "folder": "/root"}
    usual |= {"start": "2026-11-25T09:00:10", "end": "2026-11-25T09:01:00", "submit": "2026-11-25T09:00:00"}
    usual |= {"account": "", "key": "", "code": "0:0", "more": ""}
    return FORM.format(job=job, **(usual | fields))


def accounted(text: str, *jobs: int, at_s: float = SUBMITTED) -> dict[int, Accounted]:
    log = Completions()
    log.read(text.split("\n"))
    return log.accounted(dict.fromkeys(jobs, at_s))


def test_a_line_reports_how_a_job_ended_and_when() -> None:
    lines = [
        line(7),
        line(8, state="FAILED", code="3:0"),
        line(9, state="CANCELLED", code="0:15", start="Unknown"),
        line(10, more=" ArrayJobId=10 ArrayTaskId=0", user="(null)(4711)"),
        line(11, more=" HetJobId=11 HetJobOffset=0", name="a b=c", folder="/with a blank"),
    ]
    found = accounted("\n".join(lines), 7, 8, 9, 10, 11, 12)
    assert found.keys() == {7, 8, 9, 10, 11}
    assert found[7] == Accounted(
        job_id=7, state=SlurmJobState.COMPLETED, exit_code=0, exit_signal=None,
        submit_time=int(SUBMITTED), start_time=int(SUBMITTED) + 10, end_time=int(SUBMITTED) + 60,
    )  # fmt: skip
    assert (found[8].exit_code, found[9].exit_signal, found[9].start_time) == (3, 15, None)


def test_the_zone_of_slurmctld_is_found_by_when_a_job_was_submitted() -> None:
    there = line(7, submit="2026-11-25T14:45:01", start="2026-11-25T14:45:11", end="2026-11-25T14:46:01")
    [one] = accounted(there, 7).values()
    assert (one.submit_time, one.end_time) == (SUBMITTED + 1, SUBMITTED + 61)


@pytest.mark.parametrize(
    ("face_s", "zone_s"), [(0, 0), (119, 0), (-3600, -3600), (20_700, 20_700), (400, None)]
)
def test_no_zone_is_invented_for_a_job_of_another_time(face_s: int, zone_s: int | None) -> None:
    assert zone_of(int(SUBMITTED) + face_s, SUBMITTED) == zone_s
    assert zone_of(int(SUBMITTED) + 86_400, SUBMITTED) is None
    assert zone_of(None, SUBMITTED) is None


def test_a_job_of_the_same_number_that_was_submitted_last_year_is_another_job() -> None:
    assert accounted(line(7, submit="2025-11-25T09:00:00"), 7) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "x JobState=FAILED"},
        {"name": "x UserId=y"},
        {"state": "DANCING"},
        {"start": "yesterday"},
        {"code": "0"},
        {"user": "root"},
        {"user": "a b(1)"},
        {"folder": "/tmp ExitCode=0:0"},
        {"account": "a ExitCode=3:0"},
        {"more": " More=1"},
        {"name": "x" * 70_000},
    ],
)
def test_a_line_that_is_not_wholly_of_the_form_counts_for_nothing(wrong: dict[str, object]) -> None:
    assert read_line(line(7, **wrong)) is None
    assert accounted(line(7, **wrong) + "\n" + line(8), 7, 8).keys() == {8}


# Forgeries: 5 is the victim's job, 7 the attacker's.

FORGED = line(5, state="FAILED", code="9:0", user="alice(1000)")

ATTACKS = {
    "a name with a whole line": line(7, name=f"x\n{FORGED}\ny"),
    "a name that ends its own line first": line(
        7, name=line(7, name="x").split("Name=")[1] + "\n" + FORGED[:-60]
    ),
    "a folder with a whole line": line(7, folder=f"/x\n{FORGED}\n/y"),
    "a line whose end is Slurm's own": line(
        7, name="x JobState=\nJobId=5 UserId=alice(1000) GroupId=a(1) Name=y"
    ),
    "a key with a whole line": line(7, key=f"\n{FORGED}"),
    "a line that begins in the cut one before": line(7, name="x" * 1023)[:1023] + FORGED,
    "a number alone": line(7, name="JobId=5\nJobId=5 \nJobId=5"),
}

OWN = line(5, user="alice(1000)")

TRUE = Accounted(
    job_id=5, state=SlurmJobState.COMPLETED, exit_code=0, exit_signal=None,
    submit_time=int(SUBMITTED), start_time=int(SUBMITTED) + 10, end_time=int(SUBMITTED) + 60,
)  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
@pytest.mark.parametrize("first", [True, False])
def test_who_forges_a_line_of_anothers_job_can_only_have_it_count_as_unknown(
    attack: str, first: bool
) -> None:
    text = f"{attack}\n{OWN}" if first else f"{OWN}\n{attack}"
    assert accounted(text, 5).get(5) in {None, TRUE}


def test_a_line_that_was_cut_takes_the_next_with_it_and_a_forged_one_cannot_replace_it() -> None:
    cut = line(7, name="x" * 1023)[:1023]
    assert accounted(f"{cut}{OWN}\n{FORGED}", 5) == {}
    assert accounted(f"{FORGED}\n{cut}{OWN}", 5) == {}


def test_a_job_that_was_put_back_counts_by_its_last_life() -> None:
    again = {"submit": "2026-11-25T09:02:00", "start": "2026-11-25T09:03:00", "end": "2026-11-25T09:04:00"}
    attempts = [
        line(5, state="NODE_FAIL"),
        line(5, state="REQUEUED", **again),
        line(5, state="TIMEOUT", **again),
    ]
    [one] = accounted("\n".join(attempts), 5).values()
    assert (one.state, one.end_time) == (SlurmJobState.TIMEOUT, SUBMITTED + 240)
    assert accounted("\n".join([attempts[0], line(5, user="mallory(666)", **again)]), 5) == {}
    assert accounted("\n".join([line(5), attempts[2]]), 5) == {}  # a completed job has no other attempt


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    accounted(text, 5, 7)


@given(st.text(alphabet="JobIdNameStae= \n0123456789abc():-T/", max_size=300))
def test_no_name_makes_a_line_about_another_job_that_is_believed(name: str) -> None:
    assert accounted(f"{line(7, name=name)}\n{OWN}", 5).get(5) in {None, TRUE}


# The file


def test_what_is_new_of_the_file_is_read_and_half_a_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = CompletionFile(path)
    assert log.read() is None
    path.write_text(line(7) + "\n" + line(8)[:50])
    read = log.read()
    assert read is not None
    assert read.accounted({7: SUBMITTED, 8: SUBMITTED}).keys() == {7}
    with path.open("a") as more:
        more.write(line(8)[50:] + "\n")
    assert (log.read() or read).accounted({8: SUBMITTED}).keys() == {8}
    path.unlink()  # logrotate
    path.write_text(line(9) + "\n")
    assert (log.read() or read).accounted({7: SUBMITTED, 9: SUBMITTED}).keys() == {7, 9}


def test_of_a_long_log_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foundation.slurm.completions.MOST_BYTES", 2_000)
    (path := tmp_path / "log").write_text("".join(f"{line(number)}\n" for number in range(1, 30)))
    read = CompletionFile(path).read()
    assert read is not None
    assert set(read.accounted(dict.fromkeys(range(1, 30), SUBMITTED))) == {25, 26, 27, 28, 29}


def test_a_log_that_others_may_write_is_not_believed(tmp_path: Path) -> None:
    (path := tmp_path / "log").write_text(line(7) + "\n")
    path.chmod(0o666)
    assert CompletionFile(path).read() is None
    path.chmod(0o644)
    (tmp_path / "link").symlink_to(path)
    assert CompletionFile(tmp_path / "link").read() is None
    assert CompletionFile(path, "no such user").read() is not None


def test_a_cluster_without_slurmdbd_has_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, folder = tmp_path / "log", tmp_path / "bin"
    path.write_text(line(7) + "\n")
    folder.mkdir()
    said = f"JobCompLoc = {path}\\nJobCompType = jobcomp/filetxt\\nSlurmUser = root(0)\\n"
    for name, script in {
        "sacct": "echo 'Slurm accounting storage is disabled' >&2; exit 1",
        "scontrol": f"printf '{said}'",
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    found = CommandSlurm().accounted({7: SUBMITTED, 8: SUBMITTED})
    assert found is not None
    assert found == {7: replace(TRUE, job_id=7)}
    (folder / "scontrol").write_text(f"#!/bin/sh\nprintf '{said.replace('filetxt', 'none')}'\n")
    assert CommandSlurm().accounted({7: SUBMITTED}) is None
