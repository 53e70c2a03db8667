"""What a newcomer stumbled over on a first walk through the commands: each stumble stays mended.

Those that need a cluster, or a page in a browser, are held elsewhere.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from osub.cli.main import run
from tests.fixtures.complaint import said

SACCT = (
    "JobID|JobIDRaw|User|Account|Partition|QOS|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NCPUS\n"
    "1|1|u|a|p|q|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:00:05|2024-01-01T00:01:05|60|10|1|1\n"
)


def line(number: int, submit: int, procs: int = 1, user: int = 1) -> str:
    return f"{number} {submit} -1 100 {procs} -1 -1 {procs} 200 -1 1 {user} 1 -1 1 -1 -1 -1\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.swf").write_text("".join(line(number, number) for number in range(1, 9)))
    return tmp_path


def test_archive_logs_with_submissions_of_minus_one_are_read_leniently(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "log-cln.swf").write_text(line(1, -1) + line(2, 5) + line(3, 9))
    words = ["simulate", "log-cln.swf", "--system", "N2C1", "--json"]
    assert "--lenient" in said(capsys, *words, "--out", "strict", code=1)
    assert run([*words, "--out", "lenient", "--lenient"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["jobs"] == 2
    assert sum(told["skipped_lines"].values()) == 1


@pytest.mark.parametrize("command", ["simulate", "replay", "demo"])
def test_commands_that_take_a_log_can_take_it_leniently(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--help"]) == 0
    assert "--lenient" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("trace generate --out g.swf --jobs 99999999999", "--jobs"),
        ("trace generate --out g.swf --jobs 10 --load 1e30", "load"),
        ("trace scale t.swf --out g.swf --system N2C1 --from-procs 8 --intensity 1e30", "intensity"),
        ("simulate t.swf --system N2C1 --out r --speedup 1e300", "--speedup"),
        ("simulate t.swf --system N9999999C9999999 --out r", "N9999999C9999999"),
        ("simulate t.swf --system N2C1 --out r --multiplicity 99999999999999999999", "--multiplicity"),
        ("trace convert t.swf --out g.swf --arrivals 1e300", "arrival"),
    ],
)
def test_numbers_beyond_reason_are_refused_in_a_line(
    here: Path, capsys: pytest.CaptureFixture[str], words: str, told: str
) -> None:
    assert told in said(capsys, *words.split(), code=2)
    assert not (here / "g.swf").exists()


def test_a_place_in_a_packed_log_is_no_picture(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gzip.open(here / "log.swf.gz", "wt") as stream:
        stream.write(line(1, 1) + "nonsense\n")
    assert "log.swf.gz:2:" in said(capsys, "trace", "info", "log.swf.gz", code=1)


@pytest.mark.parametrize("command", [["-h"], ["trace", "-h"], ["simulate", "-h"], ["cluster", "up", "-h"]])
def test_help_has_a_short_name_and_cuts_no_option(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command) == 0
    told = capsys.readouterr().out
    assert told.startswith("Usage: osub")
    assert "\N{HORIZONTAL ELLIPSIS}" not in told
    assert not [line for line in told.splitlines()[1:] if line.endswith("...")]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("report t.swf", "t.swf"),
        ("report nowhere", "no such folder"),
        ("runs list t.swf", "name a folder"),
        ("replay t.swf --out r --cluster t.swf", "t.swf is a file"),
        ("replay t.swf --out r --cluster .", "osub cluster up"),
        ("trace info sacct.csv", "osub trace convert"),
        ("simulate sacct.csv --system N2C1 --out r", "osub trace convert"),
        ("top --state nowhere", "osub cluster up --state nowhere --gang osub"),
    ],
)
def test_a_complaint_says_what_to_do(
    here: Path, capsys: pytest.CaptureFixture[str], words: str, told: str
) -> None:
    (here / "sacct.csv").write_text(SACCT)
    assert told in said(capsys, *words.split(), code=1)


def test_unknown_users_are_none_and_no_user_of_minus_one(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "anonymous.swf").write_text(line(1, 1, user=-1) + line(2, 2, user=-1))
    assert run(["trace", "info", "anonymous.swf", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["users"] is None


def test_a_cleaned_log_is_not_blamed_for_what_its_header_announces(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "log-cln.swf").write_text("; MaxRecords: 527371\n" + line(1, 1) + line(2, 2))
    assert run(["trace", "info", "log-cln.swf", "--json"]) == 0
    assert not [one for one in json.loads(capsys.readouterr().out)["remarks"] if "527" in one]


def test_one_job_is_one_job(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "one.swf").write_text(line(1, 1))
    assert run(["simulate", "one.swf", "--system", "N2C1", "--out", "r"]) == 0
    assert "1 job on N2C1" in capsys.readouterr().out
    assert run(["trace", "generate", "--out", "g.swf", "--jobs", "1"]) == 0
    assert "1 job for" in capsys.readouterr().out
    assert run(["trace", "info", "one.swf"]) == 0
    assert "1 jobs" not in capsys.readouterr().out


def test_waits_are_reported_in_the_unit_that_one_would_say(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "".join(line(number, 1).replace(" 100 ", " 90000 ") for number in range(1, 9))
    (here / "long.swf").write_text(long)
    assert run(["simulate", "long.swf", "--system", "N1C1", "--out", "r"]) == 0
    told = capsys.readouterr().out
    assert "wait: mean 3.65 days, longest 7.29 days" in told
    assert " s, " not in told.splitlines()[1]


def test_several_multiplicities_are_one_comparison(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "t.swf", "--system", "N2C1", "--multiplicity", "1,2", "--out", "both"]
    assert run(words) == 0
    said = capsys.readouterr().out
    assert said.startswith("Two jobs a core, assuming C_o = 1.2: ")
    assert "\nN2C1 SQ M=2 easy (sim) against N2C1 SQ M=1 easy (sim): " in said


def test_a_report_is_a_table_for_other_programs_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "t.swf", "--system", "N2C1", "--out", "r"]) == 0
    assert run(["report", "r", "--csv", "r.csv"]) == 0
    assert "wait" in (here / "r.csv").read_text()
    capsys.readouterr()
    assert "--force" in said(capsys, "report", "r", "--csv", "r.csv", code=1)


@pytest.mark.parametrize(
    "words",
    [
        "simulate t.swf --system N2C1 --out there",
        "trace convert t.swf --out there",
        "trace generate --out there",
        "report t.swf --html there",
        "compare t.swf t.swf --html there",
        "workloads assign t.swf --out there",
        "trace scale t.swf --out there --system N2C1",
        "trace export t.swf --format batsim --out there --system N2C1",
        "sweep t.swf --out points --html there",
    ],
)
def test_nothing_is_replaced_unasked(here: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    (here / "there").write_text("mine")
    assert "exists already" in said(capsys, *words.split(), code=1)
    assert (here / "there").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "near"),
    [("simualte", "simulate"), ("trace infos", "info"), ("trace info --jsn t.swf", "--json")],
)
def test_a_slip_of_the_keyboard_gets_the_nearest_word(
    here: Path, capsys: pytest.CaptureFixture[str], words: str, near: str
) -> None:
    told = said(capsys, *words.split(), code=2)
    assert "Did you mean" in told
    assert near in told
    assert "Did you mean" not in said(capsys, "xyzzy", code=2)


def test_a_comparison_s_page_has_a_name_of_its_own(here: Path) -> None:
    for label in ("one", "two"):
        assert run(["simulate", "t.swf", "--system", "N2C1", "--out", label, "--label", label]) == 0
    assert run(["compare", "one", "two", "--html", "c.html"]) == 0
    assert "<title>osub compare: two against one</title>" in (here / "c.html").read_text(encoding="utf-8")
