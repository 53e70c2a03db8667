"""Commands as a user calls them one after the other, and their errors."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import osub
from foundation.errors import UsageError
from foundation.units import counted, counted_of, verb
from osub.cli.main import run
from tests.fixtures.cli import Cli

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


@pytest.mark.slow
def test_archive_logs_with_submissions_of_minus_one_are_read_leniently(here: Path, cli: Cli) -> None:
    (here / "log-cln.swf").write_text(line(1, -1) + line(2, 5) + line(3, 9))
    words = ["simulate", "log-cln.swf", "--system", "N2C1", "--json"]
    assert "--lenient" in cli.said(*words, "--out", "strict", code=1)
    document = cli.json(*words, "--out", "lenient", "--lenient")
    assert (document["jobs"], sum(document["skipped_lines"].values())) == (2, 1)


@pytest.mark.parametrize("command", ["simulate", "replay", "demo"])
def test_commands_that_take_a_log_can_take_it_leniently(command: str, cli: Cli) -> None:
    assert "--lenient" in cli(command, "--help").out


@pytest.mark.parametrize(
    ("code", "words", "message"),
    [
        (2, "trace generate --out g.swf --jobs 99999999999", "--jobs"),
        (2, "trace generate --out g.swf --jobs 10 --load 1e30", "load"),
        (2, "trace scale t.swf --out g.swf --system N2C1 --from-procs 8 --intensity 1e30", "intensity"),
        (2, "simulate t.swf --system N2C1 --out r --speedup 1e300", "--speedup"),
        (2, "simulate t.swf --system N9999999C9999999 --out r", "N9999999C9999999"),
        (2, "simulate t.swf --system N2C1 --out r --multiplicity 99999999999999999999", "--multiplicity"),
        (2, "trace convert t.swf --out g.swf --arrivals 1e300", "arrival"),
        (2, "trace convert t.swf --out g.swf --shortest nan", "--shortest"),
        (2, "trace convert t.swf --out g.swf --shortest nan", "'nan' is not a valid number"),
        (2, "report a --beta nan", "--beta"),
        (2, "report a --beta nan", "'nan' is not a valid number"),
        (2, "compare a a --least-run nan", "--least-run"),
        (2, "compare a a --least-run nan", "'nan' is not a valid number"),
        (2, "demo --seconds soon", "'soon' is not a number (see"),
        (2, "simulate t.swf --system N2C1 --out r --memory-gib lots", "'lots' is not a number (see"),
        (2, "simulate t.swf --system N2C1 --out r --seed 1.5", "'1.5' is not a whole number (see"),
        (2, "trace info --jsn t.swf", "No such option: --jsn. Did you mean"),
        (2, "experiment eviction t.swf t.swf", "takes at most 1 trace; 2 are given"),
        (2, "experiment thesis-5 t.swf --kit-queue 3", "give --kit, too"),
        (2, "experiment thesis-6 t.swf --survey 9", "there are data sets 1 to 6, not 9"),
        (2, "experiment thesis-6 t.swf --survey 0-2", "there are data sets 1 to 6, not 0-2"),
        (1, "report t.swf", "t.swf"),
        (1, "report nowhere", "no such folder"),
        (1, "runs list t.swf", "name a folder"),
        (1, "replay t.swf --out r --cluster t.swf", "t.swf is a file"),
        (1, "replay t.swf --out r --cluster .", "osub cluster up"),
        (1, "trace info sacct.csv", "osub trace convert"),
        (1, "simulate sacct.csv --system N2C1 --out r", "osub trace convert"),
        (1, "top --state nowhere", "osub cluster up --state nowhere --gang osub"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line_that_says_what_to_do(
    here: Path, cli: Cli, code: int, words: str, message: str
) -> None:
    (here / "sacct.csv").write_text(SACCT)
    assert message in cli.said(*words.split(), code=code)
    assert not (here / "g.swf").exists()


def test_a_place_in_a_packed_log_is_no_picture(here: Path, cli: Cli) -> None:
    with gzip.open(here / "log.swf.gz", "wt") as stream:
        stream.write(line(1, 1) + "nonsense\n")
    assert "log.swf.gz:2:" in cli.said("trace", "info", "log.swf.gz", code=1)


@pytest.mark.parametrize("command", [["-h"], ["trace", "-h"], ["simulate", "-h"], ["cluster", "up", "-h"]])
def test_help_has_a_short_name_and_cuts_no_option(command: list[str], cli: Cli) -> None:
    output = cli(*command).out
    assert output.startswith("Usage: osub")
    assert "\N{HORIZONTAL ELLIPSIS}" not in output
    assert not [line for line in output.splitlines()[1:] if line.endswith("...")]


def test_unknown_users_are_none_and_no_user_of_minus_one(here: Path, cli: Cli) -> None:
    (here / "anonymous.swf").write_text(line(1, 1, user=-1) + line(2, 2, user=-1))
    assert cli.json("trace", "info", "anonymous.swf", "--json")["users"] is None


def test_a_cleaned_log_is_not_blamed_for_what_its_header_announces(here: Path, cli: Cli) -> None:
    (here / "log-cln.swf").write_text("; MaxRecords: 527371\n" + line(1, 1) + line(2, 2))
    printed = cli("trace", "info", "log-cln.swf", "--json")
    assert not [one for one in json.loads(printed.out)["remarks"] if "527" in one]


def test_one_job_is_one_job(here: Path, cli: Cli) -> None:
    (here / "one.swf").write_text(line(1, 1))
    assert "1 job on N2C1" in cli("simulate", "one.swf", "--system", "N2C1", "--out", "r").out
    assert "1 job for" in cli("trace", "generate", "--out", "g.swf", "--jobs", "1").out
    assert "1 jobs" not in cli("trace", "info", "one.swf").out


def test_waits_are_reported_in_the_unit_that_one_would_say(here: Path, cli: Cli) -> None:
    long = "".join(line(number, 1).replace(" 100 ", " 90000 ") for number in range(1, 9))
    (here / "long.swf").write_text(long)
    output = cli("simulate", "long.swf", "--system", "N1C1", "--out", "r").out
    assert "wait: mean 3.65 days, longest 7.29 days" in output
    assert " s, " not in output.splitlines()[1]


@pytest.mark.slow
def test_several_multiplicities_are_one_comparison(here: Path, cli: Cli) -> None:
    words = ["simulate", "t.swf", "--system", "N2C1", "--multiplicity", "1,2", "--out", "both"]
    said = cli(*words).out
    assert said.startswith("Two jobs a core, assuming C_o = 1.2: ")
    assert "\nN2C1 SQ M=2 easy (sim) against N2C1 SQ M=1 easy (sim): " in said


def test_a_report_is_a_table_for_other_programs_too(here: Path, cli: Cli) -> None:
    assert run(["simulate", "t.swf", "--system", "N2C1", "--out", "r"]) == 0
    assert run(["report", "r", "--csv", "r.csv"]) == 0
    assert "wait" in (here / "r.csv").read_text()
    assert "--force" in cli.said("report", "r", "--csv", "r.csv", code=1)


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
def test_nothing_is_replaced_unasked(here: Path, cli: Cli, words: str) -> None:
    (here / "there").write_text("mine")
    assert "exists already" in cli.said(*words.split(), code=1)
    assert (here / "there").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ("simualte", "simulate"),
        ("tune t.swf", "'sweep tune'"),
        ("trace infos", "info"),
        ("trace info --jsn t.swf", "--json"),
    ],
)
def test_a_slip_of_the_keyboard_gets_the_nearest_word(here: Path, cli: Cli, words: str, near: str) -> None:
    output = cli.said(*words.split(), code=2)
    assert "Did you mean" in output
    assert near in output
    assert "Did you mean" not in cli.said("xyzzy", code=2)


@pytest.mark.slow
def test_a_comparison_s_page_has_a_name_of_its_own(here: Path) -> None:
    for label in ("one", "two"):
        assert run(["simulate", "t.swf", "--system", "N2C1", "--out", label, "--label", label]) == 0
    assert run(["compare", "one", "two", "--html", "c.html"]) == 0
    assert "<title>osub compare: two against one</title>" in (here / "c.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words",
    [
        "simulate nowhere.swf --system N2C1 --out t.swf/x",
        "simulate nowhere.swf --system N2C1 --multiplicity 1,2 --out t.swf/x",
        "replay nowhere.swf --out t.swf/x",
        "demo --trace nowhere.swf --out t.swf/x",
        "sweep nowhere.toml --out t.swf/x",
        "sweep nowhere.toml --out x --html t.swf/x.html",
        "sweep tune nowhere.swf --system N2C1 --out t.swf/x",
        "experiment thesis-5 nowhere.swf --html t.swf/x.html",
        "experiment thesis-6 nowhere.swf --html t.swf/x.html",
        "experiment thesis-7 nowhere.swf --out t.swf/x",
        "experiment thesis-7 nowhere.swf --out x --html t.swf/x.html",
        "experiment eviction nowhere.swf --html t.swf/x.html",
        "evict nowhere.csv --free-nodes 1 --deadline 1 --html t.swf/x.html",
        "report nowhere --html t.swf/x.html",
        "report nowhere --csv t.swf/x.csv",
        "compare nowhere nowhere --html t.swf/x.html",
        "compare nowhere nowhere --csv t.swf/x.csv",
        "trace convert nowhere.swf --out t.swf/x.swf",
        "trace generate --jobs 10000000 --out t.swf/x.swf",
        "trace scale nowhere.swf --system N2C1 --out t.swf/x.swf",
        "trace scale nowhere.swf --system N2C1 --out x.swf --html t.swf/x.html",
        "trace interactive nowhere.swf --out t.swf/x.swf",
        "trace merge nowhere.swf nowhere.swf --out t.swf/x.swf",
        "trace patterns nowhere --synthesize 3 --out t.swf/x.swf",
        "trace record --pid 99999999 --out t.swf/x.csv",
        "trace export nowhere.swf --format batsim --out t.swf/x.json",
        "trace export nowhere.swf --format elastisim --out t.swf/x",
        "trace import nowhere.json --format batsim --out t.swf/x.swf",
        "trace import nowhere.csv --format evalys --out t.swf/x",
        "workloads assign nowhere.swf --out t.swf/x.csv",
        "predict fit --data nowhere --out t.swf/x.json",
        "predict evaluate --data nowhere --html t.swf/x.html",
        "predict import nowhere.tar --out t.swf/x",
        "predict matrix --data nowhere --csv t.swf/x.csv",
        "predict measure --apps lu --out t.swf/x",
    ],
)
def test_what_cannot_be_written_is_found_before_anything_is_read(here: Path, cli: Cli, words: str) -> None:
    before = sorted(here.rglob("*"))
    output = cli.said(*words.split(), code=1)
    assert "t.swf" in output
    assert "nowhere" not in output
    assert sorted(here.rglob("*")) == before


def test_a_dry_sweep_makes_nothing(here: Path, cli: Cli) -> None:
    (here / "s.toml").write_text('[base]\ntrace = "t.swf"\nsystem = "N2C1"\n[grid]\nmultiplicity = [1, 2]\n')
    assert "2 points, 0 of them done" in cli("sweep", "s.toml", "--out", "points", "--dry-run").out
    assert not (here / "points").exists()


def test_no_is_no_interruption(here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("simulate", "t.swf", "--system", "N2C1", "--out", "r")
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "n")
    assert "osub: nothing was removed" in cli("runs", "remove", "r", code=1).err

    def no_answer(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("click.termui.visible_prompt_func", no_answer)
    assert "no answer: nothing was removed; --yes" in cli("runs", "remove", "r", code=1).err
    assert (here / "r" / "run.json").exists()


NO_TEXT = "b\udcff"  # what Python makes of the byte 255 in the name of a file


def test_names_that_are_no_text_are_refused_or_shown(here: Path, cli: Cli) -> None:
    (here / f"{NO_TEXT}.swf").write_bytes((here / "t.swf").read_bytes())
    assert '"name": "b?"' in cli("trace", "info", f"{NO_TEXT}.swf", "--json").out
    words = ["simulate", f"{NO_TEXT}.swf", "--system", "N2C1", "--out"]
    assert "is no text" in cli.said(*words, NO_TEXT, code=1)
    assert run([*words, "r"]) == 0
    (here / "r").rename(NO_TEXT)
    assert "is no text" in cli.said("report", NO_TEXT, code=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [(">/dev/full", 1, "No space left"), (">&-", 0, ""), ("2>&-", 0, ""), ("<&-", 0, "")],
)
def test_output_that_no_one_can_take_is_one_line_or_none(
    here: Path, redirection: str, code: int, message: str
) -> None:
    words = f"{sys.executable} -m osub.command trace info t.swf --json {redirection}"
    done = subprocess.run(words, shell=True, cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr.count("\n") == (1 if message else 0)
    assert message in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_locale_without_our_letters_gets_a_question_mark(here: Path, encoding: str) -> None:
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    (here / "trace-\N{GREEK SMALL LETTER ALPHA}.swf").write_bytes((here / "t.swf").read_bytes())
    for words in (
        ["trace", "info", "trace-\N{GREEK SMALL LETTER ALPHA}.swf"],
        ["trace", "generate", "--help"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "osub.command", *words],
            env=environment,
            cwd=here,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"trace" in done.stdout.lower()


HEADING = "JobID|JobName|State|Submit|Start|End|NCPUS"
ROW = "{0}|solve|COMPLETED|2024-01-01T00:00:0{0}|2024-01-01T00:00:09|2024-01-01T00:01:09|1"
TRACE_LINE = "{0} {1} -1 {2} 1 -1 -1 1 200000 -1 1 1 1 -1 1 -1 -1 -1\n"


@pytest.fixture
def reports_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OSUB_JIT", "0")
    (tmp_path / "t.swf").write_text("".join(TRACE_LINE.format(one, one, 100) for one in range(1, 9)))
    (tmp_path / "other.swf").write_text(
        "".join(TRACE_LINE.format(one, 977 * one, 7000 * one) for one in range(1, 9))
    )
    return tmp_path


def simulated(name: str, trace: str = "t.swf", *words: str) -> None:
    assert run(["simulate", trace, "--system", "N2C1", "--out", name, *words]) == 0


def test_one_is_no_plural() -> None:
    assert [counted(number, "job") for number in (0, 1, 1200)] == ["0 jobs", "1 job", "1,200 jobs"]
    assert counted(2, "process") == "2 processes"
    assert counted_of(1, 1, "job") == "1 of 1 job"
    assert counted_of(1, 2000, "job") == "1 of 2,000 jobs"
    assert [verb(1), verb(2), verb(1, "has", "have")] == ["is", "are", "has"]


@pytest.mark.slow
def test_runs_of_different_traces_are_no_comparison(reports_here: Path, cli: Cli) -> None:
    """Numbers of jobs agree by chance; a verdict on them would be one on nothing."""
    simulated("a")
    simulated("b", "other.swf", "--multiplicity", "2")
    assert "are not of one trace (t, other)" in cli.said("compare", "a", "b", code=2)
    with pytest.raises(UsageError, match="not of one trace"):
        osub.compare("a", "b")
    output = cli("report", "a", "b").out
    assert "is of another trace" in output
    assert "against" not in output


@pytest.mark.slow
def test_a_trace_whose_arrivals_were_changed_is_compared(reports_here: Path) -> None:
    assert run(["trace", "convert", "t.swf", "--gaps", "2", "--out", "dense.swf"]) == 0
    simulated("a")
    simulated("b", "dense.swf")
    assert run(["compare", "a", "b"]) == 0


def test_all_runs_are_removed_or_none(reports_here: Path, cli: Cli) -> None:
    simulated("a")
    simulated("b")
    (reports_here / "b" / "jobs.parquet").rename(reports_here / "b" / "jobs.journal")
    assert "b is not finished" in cli.said("runs", "remove", "a", "b", "--yes", code=1)
    assert (reports_here / "a" / "run.json").exists()
    assert cli("runs", "remove", "a", "a", "./a", "--yes").out == "a is removed\n"


def test_arrivals_that_no_memory_holds_are_refused(
    reports_here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workloads.trace.transforms.busy_window.MOST_JOBS", 100)
    output = cli.said("trace", "convert", "t.swf", "--arrivals", "20", "--out", "o.swf", code=2)
    assert "makes 160 jobs of t's 8" in output


@pytest.mark.parametrize("packed", [False, True])
def test_a_byte_order_mark_is_no_part_of_a_log(reports_here: Path, cli: Cli, packed: bool) -> None:
    """Spreadsheets and PowerShell write one."""
    texts = {"log": f"{HEADING}\r\n{ROW.format(1)}\r\n", "trace": (reports_here / "t.swf").read_text()}
    for name, text in texts.items():
        data = b"\xef\xbb\xbf" + text.encode()
        (reports_here / name).write_bytes(gzip.compress(data) if packed else data)
    printed = cli("trace", "convert", "log", "--out", "log.swf")
    assert printed.out.splitlines()[-1] == "log.swf: 1 of 1 job"
    assert cli.json("trace", "info", "trace", "--json")["jobs"] == 8


def test_text_of_16_bits_is_named(reports_here: Path, cli: Cli) -> None:
    (reports_here / "log").write_bytes(f"{HEADING}\n{ROW.format(1)}\n".encode("utf-16"))
    assert "save it as UTF-8" in cli.said("trace", "convert", "log", "--out", "o.swf", code=1)


def test_a_study_page_may_be_written_again_without_force(reports_here: Path, cli: Cli) -> None:
    """``--force`` begins the study anew: half an hour of replays would be gone for a page."""
    (reports_here / "page.html").write_text("mine")
    words = ["experiment", "thesis-7", "nowhere.swf", "--out", "study", "--html", "page.html"]
    assert "--force" not in cli.said(*words, code=1)
    assert (reports_here / "page.html").read_text() == "mine"
    (reports_here / "page.html").write_text(
        "<title>The thesis&#39;s physical study (chapter 7) again</title>"
    )
    assert "there is no nowhere.swf" in cli.said(*words, code=1)


def test_one_file_takes_one_result_and_a_device_is_no_file(reports_here: Path, cli: Cli) -> None:
    simulated("a")
    assert "cannot take both" in cli.said("report", "a", "--csv", "y", "--html", "./y", code=2)
    assert "cannot take both" in cli.said("compare", "a", "a", "--csv", "y", "--html", "y", code=2)
    assert not (reports_here / "y").exists()
    assert run(["report", "a", "--csv", "/dev/null"]) == 0


def test_a_label_is_no_formula_of_a_spreadsheet(reports_here: Path) -> None:
    simulated("a", "t.swf", "--label", "=1+1")
    assert run(["report", "a", "--csv", "a.csv"]) == 0
    assert (reports_here / "a.csv").read_text().startswith("figure,'=1+1\n")


def test_times_of_one_table_have_one_unit(reports_here: Path, cli: Cli) -> None:
    """The verdict's too: who reads of 4 h there looks for 4 h in the table."""
    simulated("a", "other.swf")
    rows = [line for line in cli("report", "a").out.splitlines() if " done [" in line or "makespan" in line]
    assert len(rows) >= 3
    assert all(" [h] " in line for line in rows)


@pytest.mark.parametrize("name", ["quantum_ms", "checkpoint_interval", "speedup"])
def test_what_is_no_number_is_refused_from_python_by_name(reports_here: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} takes a number, not nan"):
        osub.simulate("t.swf", "N2C1", **{name: float("nan")})


def test_thresholds_that_are_no_number_are_refused_by_name(reports_here: Path) -> None:
    simulated("a")
    with pytest.raises(UsageError, match="beta_s takes a number, 0 s or more, not nan"):
        osub.load("a").metrics(beta_s=float("nan"))


def test_a_damaged_trace_that_no_run_can_keep_is_mended_as_the_message_says(
    reports_here: Path, cli: Cli
) -> None:
    whole = gzip.compress("".join(TRACE_LINE.format(one, one, one % 97) for one in range(1, 400)).encode())
    (reports_here / "cut.swf.gz").write_bytes(whole[: len(whole) // 2])
    words = ["--system", "N2C1", "--out", "r", "--lenient"]
    assert "osub trace convert --lenient" in cli.said("simulate", "cut.swf.gz", *words, code=1)
    assert run(["trace", "convert", "cut.swf.gz", "--lenient", "--out", "sound.swf"]) == 0
    assert run(["simulate", "sound.swf", *words]) == 0
